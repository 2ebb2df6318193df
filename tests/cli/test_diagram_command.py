"""`interlock diagram`: every picture can be read, and shows what was asked for."""

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs.stage import Stage, call
from commands import Run
from folders import put
from geometry import Box, Drawing, read
from scripted import says, tools

from interlock.cli.main import main
from interlock.graphs import PIPELINES
from interlock.state.charts import CHARTS

A4, SMALLEST = 554.0, 5.0
"""Points: the width of a page without its margins, and of the type that is still read in print."""


def drawn(folder: Path, *typed: str) -> bytes:
    file = folder / "drawn.svg"
    assert main(["diagram", *typed, "-o", str(file)]) in (0, None)
    return file.read_bytes()


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "typed",
    [
        *([name, "--depth", "1"] for name in PIPELINES),
        *(["main", "--depth", "3"], ["tools", "--depth", "9"], *([name] for name in CHARTS)),
        *(
            pytest.param([name, "--depth", depth], marks=pytest.mark.sweep)
            for name in PIPELINES
            for depth in ("2", "3")
        ),
        *(
            ["turn", "--show", shown]
            for shown in ("main", "main,hooks", "main,questions,errors", "main,lists")
        ),
    ],
    ids=" ".join,
)
def test_a_picture_is_read_on_a_page_as_wide_as_a4_and_nothing_lies_on_a_label(
    typed: list[str], tmp_path: Path
) -> None:
    picture = read(drawn(tmp_path, *typed))
    assert picture.lines and picture.faults() == []
    assert picture.piles(3) == []
    assert 11 * A4 / max(A4, picture.width) >= SMALLEST


def test_the_check_of_geometry_sees_a_fault() -> None:
    label, node = Box("a label", "label", 0, 0, 10, 10), Box("a node", "node", 8, 0, 20, 10)
    assert Drawing(20, (label, node), ()).faults() == ["'a label' and 'a node' overlap"]
    line = ("an edge", ((5.0, -5.0), (5.0, 5.0)))
    assert Drawing(20, (label,), (line,)).faults() == ["'an edge' runs through 'a label'"]


def test_a_fault_in_an_opened_graph_is_seen(tmp_path: Path) -> None:
    picture = read(drawn(tmp_path, "tools", "--depth", "3"))
    names = {frame.name for frame in picture.frames}
    assert names == {"decide", "execute", "decide.edit", "execute.subagent", "execute.summarize"}
    around = {box.name: box for box in (*picture.boxes, *picture.frames)}
    for name in ("decide.edit", "decide.edit.match", "execute.subagent.recover"):
        inner, outer = around[name], around[name.rpartition(".")[0]]
        assert outer.left < inner.left < inner.right < outer.right, name
        assert outer.top < inner.top < inner.bottom < outer.bottom, name
    whole = read(drawn(tmp_path, "tools", "--depth", "9"))
    assert {frame.name for frame in whole.frames} > {"execute.subagent.turn.route"}
    assert "execute.subagent.tools" in {box.name for box in whole.boxes}  # closed: it stands around it
    line = ("collect->next_group", ((around["decide"].left + 9, around["decide"].top + 9),))
    assert replace(picture, lines=(line,)).faults() == ["'collect->next_group' runs through 'decide'"]


@pytest.mark.parametrize(
    ("workflow", "path"),
    [
        (
            "turn",
            "check_limits compress mask_tool_outputs ide_context check_context loop-check route call_model",
        ),
        ("edit", "read match repair correct_target fix_edit match_again apply check_rights write"),
        ("main", "open_prompt command context turn tools finish"),
        ("task", "load_mode build_prompt turn choose_call tools"),
    ],
)
def test_the_main_path_is_a_straight_line(workflow: str, path: str, tmp_path: Path) -> None:
    boxes = {b.name: b for b in read(drawn(tmp_path, workflow)).boxes}
    middles = {round((boxes[n].left + boxes[n].right) / 2) for n in ("__start__", *path.split(), "__end__")}
    assert len(middles) == 1


@pytest.mark.parametrize(
    ("typed", "path", "beside"),
    [
        ("main --depth 2", "open_prompt context turn tools finish", "command compress next-speaker"),
        ("turn --depth 2", "check_limits mask_tool_outputs check_context route call_model", "compress"),
        ("tools --depth 2", "parse decide next_group execute collect", "parse_xml"),
    ],
)
def test_an_opened_graph_keeps_the_usual_way_as_its_trunk(
    typed: str, path: str, beside: str, tmp_path: Path
) -> None:
    picture = read(drawn(tmp_path, *typed.split()))
    boxes = {b.name: b for b in (*picture.boxes, *picture.frames)}
    names = ("__start__", *path.split(), "__end__")
    middles = {
        name: round((boxes[name].left + boxes[name].right) / 2, 1) for name in (*names, *beside.split())
    }
    (trunk,) = {middles[name] for name in names}
    assert trunk not in {middles[name] for name in beside.split()}
    ends = {name.rpartition("->")[2] for name, _ in picture.lines}
    assert {*names[1:]} <= ends, "none of its edges is cut short"
    assert picture.piles(5) == []


def test_a_runs_picture_marks_the_conditions_that_held_and_what_matched(run: Run) -> None:
    Path("a.txt").write_text("“x” = 1\n")
    edit = ("--file-path", "a.txt", "--old-string", '"x" = 1', "--new-string", '"y" = 1')
    assert run("run", "edit", *edit, "-y").code == 0
    drawing = run("diagram", "edit", "--run", "latest").out
    assert "<br/>1. exact<br/>✓ 2. typography<br/>3. whitespace" in drawing
    assert drawing.count("✓") == 2, "the other is the legend's"
    run("run", "next-speaker", "--input", '{"history": []}')
    assert "✓ 1. the conversation is empty: nobody" in run("diagram", "next-speaker", "--run", "latest").out
    run("run", "system-prompt")
    drawing = run("diagram", "system-prompt", "--run", "latest").out
    assert '{{"✓ no sub-agent"}}' in drawing and '{{"no sub-agent and a mode' in drawing
    assert '{{"native calls"}}' in drawing, "a condition of the prompt of task, which wasn't made"


def test_the_drawing_of_the_system_prompt_is_no_ladder(tmp_path: Path) -> None:
    picture = read(drawn(tmp_path, "system-prompt"))
    assert max(box.bottom for box in picture.boxes) < 1000


SHOWN = """
turn --show main: call_model route, not before_model ask_hook wait_retry note_loop
turn --show main,hooks: call_model before_model await_hook, not wait_retry note_loop
turn --show main,errors: call_model wait_retry note_loop, not before_model await_hook
edit --show main,questions: apply await_approval take_approval, not fail match_list0
edit --show main,lists,errors: apply fail match_list0, not await_approval take_approval
tools --depth 2 --show main: decide_validate execute_run_tool, not decide_request_approval execute_notify
turn: call_model before_model wait_retry legend_hooks legend_errors legend_graph, not legend_questions legend_list \
legend_taken
system-prompt: gather_task gather_task_then0 legend_then legend_list, not legend_graph legend_here
system-prompt --show main: gather_task assemble, not gather_task_if0 gather_task_then0 assemble_list0 legend_if
context --depth 2: system_prompt_gather_main legend_list, not legend_hooks legend_graph
"""


@pytest.mark.parametrize(
    ("typed", "inside", "outside"), [re.split(": |, not ", line) for line in SHOWN.strip().splitlines()]
)
def test_show_draws_only_the_groups_that_are_named(
    typed: str, inside: str, outside: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    picture = {
        box.name.replace(".", "_").replace("-", "_") for box in read(drawn(tmp_path, *typed.split())).boxes
    }
    main(["diagram", *typed.split()])
    text = capfdbinary.readouterr().out.decode()
    for name in inside.split():
        assert name in picture and f" {name}[" in text, name
    for name in outside.split():
        assert name not in picture and f" {name}[" not in text, name


@pytest.mark.parametrize("depth", ["1", "2"])
def test_a_waiting_runs_picture_says_what_is_asked_why_and_how_to_decide(
    depth: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = [
        call("run_shell_command", command="git push"),
        call("write_file", file_path="a.txt", content="x"),
    ]
    stage = Stage(tmp_path, [tools(*calls)])
    run = stage.run("main", {"prompt": "deploy"}).run
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    svg = drawn(tmp_path, "--run", run, "--depth", depth)
    text = " ".join(re.findall(r">([^<>]+)</text>", svg.decode())).replace("&#160;", " ")
    for words in ("waits here", "1. Run git push", "2. Create a.txt (+1)", "No rule allows `git push`."):
        assert words in text, words
    assert f"decide: interlock resume {run}" in text
    assert {"legend.here", "legend.taken", "legend.untaken", "legend.graph"} <= {
        b.name for b in read(svg).boxes
    }
    assert read(svg).faults() == []
    shutil.rmtree(stage.work)
    assert drawn(tmp_path, "--run", run, "--depth", depth) == svg, "its folder may be gone"


def test_the_chart_of_calls_without_a_call_lists_those_that_there_are(run: Run, tmp_path: Path) -> None:
    script = [says("list_directory", dir_path="."), {"text": "done"}]
    run("-p", "look", "-m", f"script:{put(tmp_path / 'calls.json', script)}")
    asked = run("diagram", "tool-call", "--run", "latest")
    assert asked.code == 2 and "--call N" in asked.err and "  1  list_directory, done" in asked.err, asked
