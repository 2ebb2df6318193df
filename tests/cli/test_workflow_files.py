"""Workflows that users declare: listed, drawn, run, parked, resumed elsewhere; broken, changed, gone, not trusted."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run

sys.path.insert(0, str(Path(__file__).parent))
from workflow_files import NOTE, declare


@pytest.fixture
def work(tmp_path: Path, home: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    declare(folder, "note", NOTE, home)
    (tmp_path / "script.json").write_text(json.dumps([{"text": "Starts faster."}, {"text": "Much faster."}]))
    return folder


@pytest.fixture
def run(run: Run, work: Path) -> Run:
    return run


def begun(run: Run, tmp_path: Path, *flags: str) -> Done:
    return run("run", "note", "the start", "-m", f"script:{tmp_path / 'script.json'}", "-o", "json", *flags)


def test_it_is_listed_has_a_schema_and_a_diagram_like_ours(run: Run) -> None:
    rows = {row["name"]: row for row in run("workflows", "--json").json}
    assert rows["note"]["summary"] == "a release note, written once somebody has approved it"
    assert rows["note"]["source"].endswith(".interlock/workflows/note.py")
    assert rows["main"]["source"] == "interlock"
    assert (
        run("schema", "note").json["input"]["properties"]["topic"]["description"]
        == "what the note is about ★"
    )
    drawn = run("diagram", "note").out
    assert 'review -->|"rejected"| draft' in drawn
    assert 'review[["review"]]' in drawn
    assert "await_answer" in run("diagram", "note", "--depth", "2").out


def test_its_help_names_its_inputs_first_and_which_are_flags(
    run: Run, work: Path, home: Path, cli: Any
) -> None:
    fields = """
    pages: int | None = Field(3, description="100 % of them")
    tone: Literal["dry", "warm"] = "dry"
    draft: bool = False
    tags: list[str] = Field(description="labels")
    loop_check: bool = True
    yolo: str = Field("", description="its flag is taken")
"""
    topic = '    topic: str = Field(description="what the note is about ★")\n'
    text = NOTE.replace(topic, topic + fields).replace("\nfrom", "\nfrom typing import Literal\nfrom", 1)
    declare(work, "note", text, home)
    shown = [" ".join(line.split()) for line in cli("run", "note", "--help", cwd=work).stdout.splitlines()]
    assert shown[: shown.index("options:") - 1] == [
        "usage: interlock run note [PROMPT] [FLAGS]",
        "",
        "note: a release note, written once somebody has approved it",
        "",
        "arguments:",
        "PROMPT topic: what the note is about (required)",
        "",
        "inputs of note:",
        "--pages N 100 % of them (default: 3)",
        "--tone dry|warm (default: dry)",
        "--[no-]draft",
        "",
        "inputs of note without a flag, for --input:",
        "tags LIST labels (required)",
        "loop_check BOOLEAN (default: true)",
        "yolo TEXT its flag is taken",
    ]
    assert run("run", "note", "x", "--tone", "wet").err.startswith(
        "interlock: --tone: 'wet' isn't one of dry,"
    )
    assert "run WORKFLOW [PROMPT]" in cli("run", "-h").stdout


def test_it_parks_and_goes_on_in_another_process_and_folder(run: Run, tmp_path: Path, cli: Any) -> None:
    parked = begun(run, tmp_path)
    (request,) = parked.json["pending_approvals"]
    assert (parked.code, request["reason"], request["preview"]) == (
        75,
        "Publish this note?",
        "Starts faster.",
    )
    name = parked.json["session_id"] if "session_id" in parked.json else parked.json["run"]
    elsewhere = cli("resume", name, "--reject", "1", "--reason", "say more", "-o", "json")
    assert elsewhere.returncode == 75
    edited = run("resume", name, "--edit", '2={"note": "Starts at once."}', "-o", "json")
    assert edited.json["pending_approvals"][0]["tool_name"] == "write_file"
    done = run("resume", name, "--approve", "3")
    assert (done.code, json.loads(done.out)) == (0, {"status": "done", "note": "Starts at once."})
    assert (tmp_path / "work" / "NOTE.md").read_text() == "Starts at once."
    assert "draft → review → draft → review → publish → write → finish" in run("show", name).out
    assert "stroke" in run("diagram", "--run", name).out


def test_a_folder_that_nobody_trusts_has_none(run: Run, home: Path) -> None:
    shutil.rmtree(home / ".interlock")
    refused = run("run", "note", "x")
    assert refused.code == 55
    assert ".interlock/workflows/note.py, which was ignored" in refused.err
    listed = run("workflows")
    assert "note" not in [line.split()[0] for line in listed.out.splitlines()]
    assert "ignored: .interlock/workflows/note.py" in listed.err
    assert run("schema", "note", "--skip-trust").code == 0
    assert "interlock trust" in run("workflows").err


BROKEN = {
    "syntax": ("def build(:\n", 1, "expected what Python"),
    "raises": ("import os\n\nos.no_such_thing\n", 3, "AttributeError"),
    "exits": ("raise SystemExit\n", 1, "SystemExit"),
    "nothing": ('"""Nothing."""\nX = 1\n', 2, "there is no WORKFLOW; expected `WORKFLOW = Workflow('odd'"),
    "other": ("\nWORKFLOW = 3\n", 2, "WORKFLOW is 3; expected"),
    "name": (NOTE, 56, "its name is 'note', which isn't 'odd', the file's"),
    "key": (
        NOTE.replace('Graph("note"', 'Graph("odd"').replace('Workflow("note"', 'Workflow("odd"').replace(
            'writes=("note",)', 'writes=("nota",)'
        ),
        44,
        "odd.draft writes ['nota'], which NoteState lacks",
    ),
    "dead end": (
        NOTE.replace('Workflow("note"', 'Workflow("odd"').replace('    g.edge("finish", END)\n', ""),
        55,
        "can't reach the end",
    ),
    "endless": (
        NOTE.replace('Workflow("note"', 'Workflow("odd"').replace('"rejected": "draft"', '"rejected": END')
        .replace('g.edge("finish", END)', 'g.edge("finish", "publish")'),
        56,
        "'publish', 'finish', 'write' could follow each other for ever; expected a `loop(g, …, most=N)`",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_is_one_line_with_its_place_and_the_others_work(
    run: Run, work: Path, home: Path, kind: str
) -> None:
    text, line, what = BROKEN[kind]
    file = declare(work, "odd", text)
    refused = run("run", "odd", "x")
    assert (refused.code, refused.out) == (52, "")
    (told,) = refused.err.splitlines()
    assert told.startswith(f"interlock: {file}:{line}: ")
    assert what in told
    assert run("run", "odd", "--help") == refused
    rows = {row["name"]: row for row in run("workflows", "--json").json}
    assert rows["odd"]["problem"] == told.removeprefix("interlock: ")
    assert "problem" not in rows["note"]
    assert run("schema", "note").code == run("schema", "main").code == 0


@pytest.mark.parametrize(
    ("breaks", "error"),
    [
        ('raise ValueError("no words")', "Node 'draft' failed: ValueError: no words (note.py:27 in draft)"),
        ("raise SystemExit", "Node 'draft' failed: SystemExit (note.py:27 in draft)"),
    ],
)
def test_what_its_node_raises_is_its_own_error(
    run: Run, work: Path, tmp_path: Path, home: Path, breaks: str, error: str
) -> None:
    first = '    return {"note": await ask_model'
    declare(work, "note", NOTE.replace(first, f"    print(state)\n    {breaks}\n{first}"), home)
    failed = begun(run, tmp_path)
    assert (failed.code, failed.json["error"]["message"]) == (1, error)


CHANGED = {
    "told": (NOTE.replace('"Publish', '"Really publish'), ""),
    "node gone": (
        NOTE.replace('g.subgraph("review"', 'g.subgraph("check"').replace('"review"', '"check"'),
        "it stands before node 'review' of 'note', which this version doesn't have",
    ),
    "key gone": (
        NOTE.replace("    topic: str\n    note", "    subject: str\n    note").replace('"topic"', '"subject"')
        .replace("['topic']", "['subject']").replace('topic: str = Field', 'subject: str = Field'),
        "its state holds 'topic' of 'note', which this version doesn't have",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CHANGED)
def test_a_run_whose_file_changed_goes_on_or_is_refused_by_name(
    run: Run, work: Path, tmp_path: Path, kind: str
) -> None:
    text, refusal = CHANGED[kind]
    parked = begun(run, tmp_path)
    declare(work, "note", text)
    gone_on = run("resume", "latest", "--approve", "1")
    if refusal:
        assert gone_on.code == 1
        assert refusal in gone_on.err
        declare(work, "note", NOTE)
        gone_on = run("resume", "latest")
    else:
        assert ".interlock/workflows/note.py has changed since this run began" in gone_on.err
    assert "Create NOTE.md" in gone_on.err, parked
    assert run("resume", "latest", "--approve", "2").code == 0


def test_a_run_whose_file_is_gone_names_it(run: Run, work: Path, tmp_path: Path) -> None:
    begun(run, tmp_path)
    file = work / ".interlock" / "workflows" / "note.py"
    file.rename(work / "kept.py")
    refused = run("resume", "latest", "--approve", "1")
    assert (refused.code, str(file) in refused.err, "no longer exists" in refused.err) == (1, True, True)
    (work / "kept.py").rename(file)
    assert run("resume", "latest", "--approve", "1").code == 75


def test_a_run_of_a_folder_that_lost_its_trust_waits_for_it(
    run: Run, work: Path, tmp_path: Path, home: Path
) -> None:
    begun(run, tmp_path)
    shutil.rmtree(home / ".interlock")
    assert run("resume", "latest", "--approve", "1").code == 55
    assert run("resume", "latest", "--approve", "1", "--skip-trust").code == 75


def test_the_users_own_count_everywhere_a_projects_win_and_none_takes_a_name_of_ours(
    run: Run, work: Path, home: Path
) -> None:
    declare(home, "note", NOTE.replace("a release note", "the user's"))
    named = NOTE.replace('Graph("note"', 'Graph("mine"').replace('Workflow("note"', 'Workflow("mine"')
    declare(home, "mine", f"print('hello')\n{named}")
    declare(work, "main", NOTE)
    listed = run("workflows", "--json").json
    rows = {row["name"]: row for row in listed if "problem" not in row}
    assert rows["note"]["summary"].startswith("a release note")
    assert rows["mine"]["source"].startswith(str(home))
    (taken,) = (row["problem"] for row in listed if "problem" in row)
    assert "'main' is one of Interlock's own workflows" in taken
    assert run("schema", "main").json["input"]["title"] == "MainInput"


def test_a_package_brings_its_own_by_an_entry_point(
    run: Run, work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    info = site / "their_flows-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-flows\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[interlock.workflows]\nnews = their_flows:NEWS\nodd = their_flows:MISSING\nplan = their_flows:NEWS\n"
    )
    (site / "their_flows.py").write_text(
        NOTE.replace('Workflow("note"', 'Workflow("news"').replace("WORKFLOW =", "NEWS =")
    )
    monkeypatch.syspath_prepend(site)
    listed = run("workflows", "--json").json
    rows = {row["name"]: row for row in listed if "problem" not in row}
    problems = {row["name"]: row["problem"] for row in listed if "problem" in row}
    assert rows["news"]["source"] == "entry point their_flows:NEWS"
    assert "MISSING" in problems["odd"]
    assert "'plan' is one of Interlock's own workflows" in problems["plan"]
    assert run("run", "news", "x", "-m", f"script:{tmp_path / 'script.json'}").code == 75
    assert run("resume", "latest", "--approve", "1").code == 75
    assert run("resume", "latest", "--approve", "2").code == 0


def test_graphs_of_a_trusted_langgraph_json_are_listed_with_their_schema_or_what_they_lack(
    tmp_path: Path, home: Path, run: Run
) -> None:
    folder = tmp_path / "listed"
    folder.mkdir()
    graph = (
        "graph = StateGraph(State, output_schema=Out).add_node('a', lambda state: None).add_edge(START, 'a')"
    )
    types = "State = TypedDict('State', {'x': int})\nOut = TypedDict('Out', {'y': int})"
    (folder / "agent.py").write_text(
        '"""Adds."""\nfrom langgraph.graph import START, StateGraph\nfrom typing_extensions import TypedDict\n'
        f"{types}\n{graph}\n"
    )

    def listed(dependency: str, *flags: str) -> tuple[dict[str, Any], str]:
        listing = {"graphs": {"adder": "./agent.py:graph"}, "dependencies": [".", dependency]}
        (folder / "langgraph.json").write_text(json.dumps(listing))
        done = run("workflows", "-C", str(folder), "--json", *flags)
        rows: dict[str, dict[str, Any]] = {row["name"]: row for row in done.json}
        return rows.get("adder", {}), done.err

    row, _ = listed("pydantic>=2", "--skip-trust")
    assert (row["summary"], row["source"]) == ("Adds", str(folder / "langgraph.json"))
    row, warning = listed("pydantic>=2")
    assert not row
    assert "isn't trusted, so these were ignored: langgraph.json" in warning
    for lacks, why in (("no-such-package", "it isn't installed"), ("pydantic>=99", "pydantic is 2.")):
        row, _ = listed(lacks, "--skip-trust")
        assert f"dependency '{lacks}': {why}" in row["problem"]
        assert row["problem"].endswith(f"-m pip install '{lacks}'")
    graphs = {"main": "./agent.py:graph"}
    (folder / "langgraph.json").write_text(json.dumps({"graphs": graphs}))
    *_, row = run("workflows", "-C", str(folder), "--json", "--skip-trust").json
    assert row["problem"].endswith(
        f"'main' is one of Interlock's own workflows; run this graph as {folder}/agent.py:graph"
    )
    schema = run("schema", f"{folder / 'agent.py'}:graph").json
    assert [*schema["input"]["properties"]] == ["x"]
    assert [*schema["output"]["properties"]] == ["y"]
