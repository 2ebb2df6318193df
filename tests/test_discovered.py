"""Tools declared by one command of the project and run by another: under policy and journal, where it is trusted."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Ended, execute, one_call, response
from folders import put, tree
from scripted import call, tools

DECLARED = [
    {
        "functionDeclarations": [
            {
                "name": "add",
                "description": "Adds two numbers.",
                "parameters": {
                    "type": "object",
                    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                    "required": ["a"],
                },
            }
        ]
    },
    {"name": "fail", "parametersJsonSchema": {"type": "object", "properties": {}}},
    {"name": "read_file", "description": "Not ours."},
    {"name": "bad name"},
    {"name": "mcp_x_y"},
    "no declaration",
]
PROGRAM = """import json, sys
if sys.argv[1] == "declare":
    print(open("declared.json").read())
elif sys.argv[2] == "fail":
    print("to stdout"); print("to stderr", file=sys.stderr); sys.exit(3)
else:
    open("called", "a").write("x")
    print(sum(json.load(sys.stdin).values()))
"""
SETTINGS = {
    "tools": {
        "discoveryCommand": f"{sys.executable} tools.py declare",
        "callCommand": f"{sys.executable} tools.py call",
    }
}


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    tree(folder, {".interlock/settings.json": SETTINGS, "tools.py": PROGRAM, "declared.json": DECLARED})
    return folder


@pytest.fixture
def interlock(work: Path) -> Callable[..., Ended]:
    return partial(execute, work)


def calls(tool: str, **args: Any) -> list[str]:
    return [*one_call(tool, **args), "--skip-trust"]


def test_a_declared_tool_asks_and_runs_with_its_arguments_on_stdin(
    interlock: Callable[..., Ended], work: Path
) -> None:
    parked = interlock(*calls("add", a=2, b=40))
    assert parked.returncode == 75, parked.stderr
    assert not (work / "called").exists()
    for name in ("read_file", "bad name", "mcp_x_y"):
        assert f"Tool {name!r} of tools.discoveryCommand can't be used" in parked.stderr
    shown = interlock("approvals", "latest").stdout
    assert "tools.py call add" in shown
    assert '"b": 40' in shown
    done = interlock("resume", "latest", "--skip-trust", "--approve", "all")
    assert response(done)["content"] == "42"
    assert (work / "called").read_text() == "x"
    refused = interlock(*calls("add", a=1), "--approval-mode", "plan")
    assert response(refused)["error"]["type"] == "policy_violation"


def test_a_failure_tells_both_streams_and_arguments_are_held_to_the_schema(
    interlock: Callable[..., Ended],
) -> None:
    failed = response(interlock(*calls("fail"), "-y"))
    assert failed["status"] == "error"
    first, *rest = failed["content"].splitlines()  # two pipes: which is read first isn't guaranteed
    assert (first, sorted(rest)) == ("fail failed (exit code 3).", ["to stderr", "to stdout"])
    for args, says in (
        ({"a": "x"}, "'a': 'x' is not of type 'integer'"),
        ({"b": 1}, "'a' is a required property"),
    ):
        wrong = response(interlock(*calls("add", **args), "-y"))
        assert wrong["error"]["type"] == "invalid_tool_params"
        assert says in wrong["content"]


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "its output isn't JSON"),
        ("[" * 5000, "its output isn't JSON"),
        ("{}", "JSON list of"),
        (None, "exit code 1"),
    ],
)
def test_a_discovery_that_fails_stops_nothing(
    interlock: Callable[..., Ended], work: Path, text: str | None, says: str
) -> None:
    (work / "declared.json").unlink() if text is None else (work / "declared.json").write_text(text)
    (work / "a.txt").write_text("here\n")
    done = interlock(*calls("read_file", file_path="a.txt"), "-y")
    assert "here" in response(done)["content"]
    assert "tools.discoveryCommand" in done.stderr
    assert says in done.stderr


def test_a_folder_that_is_not_trusted_declares_nothing(interlock: Callable[..., Ended], work: Path) -> None:
    (work / "tools.py").write_text("open('ran', 'w')\n")
    untrusted = [a for a in calls("add", a=1) if a != "--skip-trust"]
    done = interlock(*untrusted, "-y")
    assert not (work / "ran").exists()
    assert done.returncode == 55 or response(done)["error"]["type"] == "tool_not_registered"


def test_models_are_told_of_it(interlock: Callable[..., Ended], work: Path) -> None:
    put(work / "script.yaml", [tools(call("add", a=5)), {"text": "five", "expect": "5"}])
    done = interlock("-p", "add", "-y", "--skip-trust", "-m", "script:script.yaml")
    assert (done.returncode, done.stdout) == (0, "five\n"), done.stderr
    whole = interlock("run", "context", "x", "--skip-trust", "-m", "script:script.yaml").stdout
    assert "Adds two numbers." in whole
