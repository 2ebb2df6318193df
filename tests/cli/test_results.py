"""What a person reads of a workflow's output: drawn alike by `run -o text`, `show` and a session; JSON in a pipe."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put

from interlock.cli.render.workflow_results import RESULT_RENDERERS
from interlock.graphs import PIPELINES

PRICES = "def price(n):\n    return n * 2\n\n\ndef total(prices):\n    return sum(price(n) for n in prices)\n"
MESSAGE = {"role": "user", "content": "fix the price"}
REPORT = {
    "SummaryOfFindings": "The price is doubled.",
    "ExplorationTrace": ["read prices.py"],
    "RelevantLocations": [{"FilePath": "prices.py", "Reasoning": "It doubles.", "KeySymbols": ["price"]}],
}
FINISHED = {"name": "complete_task", "args": {"report": REPORT}}
EDIT = {"file_path": "prices.py", "old_string": "n * 2", "new_string": "n * 3"}
READ = {"id": "1", "name": "read_file", "args": {"file_path": "prices.py"}}
TURNS: dict[str, Any] = {"events": [{"type": "tool_call", "name": "glob", "args": {}}] * 5}

CASES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("edit", EDIT, ["-    return n * 2", "+    return n * 3", "applied · found by: exact · 1 place"]),
    ("search", {"query": "price"}, ["prices.py:1-6  1.00", "  2      return n * 2", "1 result · index"]),
    ("mode", {}, ["*  architect     read, edit (\\.md$)", "current mode: architect"]),
    ("mode", {"tool": "replace", "path": "prices.py", "mode": "code"}, ["allowed in mode code"]),
    ("system-prompt", {}, ["# Core mandates", "mandates  ", "left out: needs a sub-agent", " sections · "]),
    ("context", {"prompt": "look @prices.py"}, ["  # Core mandates", "user", "  look @prices.py", "files"]),
    ("route", {"request": "hi"}, ["gemini-2.5-pro (default, "]),
    ("next-speaker", {"history": []}, ["undecided (precheck): the conversation is empty"]),
    ("loop-check", {"events": []}, ["no loop", "a model checks next at turn 30, then every 10 turns"]),
    ("loop-check", TURNS, ["loop (tool_call): ", "at event 4, 1 detection"]),
    ("compress", {"history": [MESSAGE], "token_limit": 1000}, ["  fix the price", "below the threshold"]),
    ("summarize", {"tool": "shell", "text": "short"}, ["short"]),
    ("tools", {"calls": [READ]}, ["✓ read_file [1]", "  def price(n):"]),
    ("turn", {"request": "hi"}, ["Hello.", "ok · "]),
    ("subagent", {"agent": "generalist", "prompt": "hi"}, ["Done.", "goal: It completed its task. · 1 turn"]),
    ("investigate", {"objective": "hi"}, ["The price is doubled.", "prices.py  price", "  - read prices.py"]),
    ("mcp", {}, ["No MCP servers are set up."]),
]
REPLIES: dict[str, list[dict[str, Any]]] = {
    "turn": [{"text": "Hello."}],
    "subagent": [
        {"agent": "generalist:0", "tool_calls": [{"name": "complete_task", "args": {"result": "Done."}}]}
    ],
    "investigate": [{"agent": "codebase_investigator:0", "tool_calls": [FINISHED]}],
}


@pytest.mark.sample(6)
@pytest.mark.parametrize(("workflow", "given", "expected"), CASES)
def test_a_result_is_drawn_for_people_when_asked_and_by_show_and_is_json_in_a_pipe(
    run: Run, workflow: str, given: dict[str, Any], expected: list[str]
) -> None:
    put(Path("prices.py"), PRICES)
    arguments = ["run", workflow, "--input", json.dumps(given), "-y"]
    if replies := REPLIES.get(workflow):
        put(Path("replies.json"), json.dumps(replies))
        arguments += ["-m", "script:replies.json"]
    drawn = run(*arguments, "-o", "text")
    assert drawn.code == 0, drawn.err
    for part in expected:
        assert part in drawn.out
    shown = run("show", "latest").out
    for line in drawn.out.splitlines():
        assert line.rstrip() in shown
    for more in ((), ("-o", "json")):
        put(Path("prices.py"), PRICES)
        assert run(*arguments, *more).json


def test_a_verdict_and_a_failed_edit_name_their_reason_once(run: Run) -> None:
    refused = run("run", "mode", "--tool", "replace", "--path", "a.py", "--mode", "architect", "-o", "text")
    assert refused.out == "not allowed in mode architect\n"
    assert refused.err.count("may only edit files that match") == 1
    flags = ("--content", "a b", "--old-string", "zzz", "--new-string", "x")
    failed = run("run", "edit", *flags, "-o", "text")
    assert (failed.code, failed.out, failed.err.count("old_string isn't in")) == (1, "failed\n", 1)


def test_each_named_workflow_is_drawn_in_its_own_way_or_says_its_answer() -> None:
    assert {*PIPELINES} - {*RESULT_RENDERERS} == {"main", "task"}


@pytest.mark.parametrize(
    ("workflow", "flags", "expected"),
    [
        ("compress", (), "Input field 'history' is missing. See: interlock schema compress"),
        ("next-speaker", (), "Input field 'history' is missing. See: interlock schema next-speaker"),
        ("tools", (), "Input: give either calls or text. See: interlock schema tools"),
        (
            "loop-check",
            ("--input", '{"evnts": []}'),
            "Did you mean 'events'? See: interlock schema loop-check",
        ),
    ],
)
def test_a_wrong_input_names_the_schema(
    run: Run, workflow: str, flags: tuple[str, ...], expected: str
) -> None:
    done = run("run", workflow, *flags)
    assert done.code == 42
    assert expected in done.err


TITLES: list[tuple[str, dict[str, Any], str]] = [
    ("edit", {"content": "a b", "old_string": "a", "new_string": "b"}, "a b · a · b"),
    ("mode", {"tool": "replace", "path": "a.py"}, "replace · a.py"),
    ("mode", {}, "mode"),
    (
        "compress",
        {"history": [MESSAGE], "token_limit": 900, "force": True},
        "fix the price · force · 900",
    ),
    ("tools", {"calls": [READ]}, "read_file"),
    ("route", {"request": [{"type": "text", "text": "look"}]}, "look"),
    ("loop-check", TURNS, "glob, glob, glob, glob, glob"),
]


@pytest.mark.parametrize(("workflow", "given", "title"), TITLES)
def test_a_run_is_titled_by_its_input(run: Run, workflow: str, given: dict[str, Any], title: str) -> None:
    run("run", workflow, "--input", json.dumps(given))
    assert run("runs", "--json").json[0]["title"] == title
