"""Every way in which a run ends is told alike by the command that drove it and by those that look at it later."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from folders import put
from scripted import tools

from interlock.engine import Options, resume_sync
from interlock.engine.read import find_run
from interlock.engine.store import resolve_state_directory
from interlock.state.events import Event, ToolStart

ENDS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("ends.yaml").read_text())


@pytest.mark.parametrize("name", ENDS)
def test_an_end_has_one_exit_code_and_one_reason(name: str, run: Run) -> None:
    end: dict[str, Any] = {"flags": [], **ENDS[name]}
    put(Path("s.json"), end["script"])
    done = run("-p", "go", "-m", "script:s.json", *end["flags"])
    if "then" in end:
        done = run("resume", "latest", *end["then"])
    assert done.code == end["code"], done.err

    (row,) = run("runs", "--json").json
    error: dict[str, str] = row["error"] or {}
    status, _, kind = end["standing"].partition(": ")
    assert (row["status"], error.get("type", "")) == (status.partition(" (")[0], kind)
    assert f"  {end['standing']}  " in run("runs").out
    first = f"{row['run']}  main  {row['status']}" + (f" ({kind})" if kind else "")
    assert run("show", "latest").out.splitlines()[0] == first
    waited, followed = run("wait", "latest"), run("logs", "latest")
    assert (waited.code, followed.code) == (done.code, done.code)
    if kind:
        reason = error["message"]
        assert reason in done.err
        assert waited.out == f"{row['run']}  {row['status']}: {reason}\n"
        assert followed.err.endswith(f" is {row['status']}: {reason}\n")


def test_why_a_run_failed_before_is_not_told_while_it_is_resumed(run: Run) -> None:
    put(Path("s.json"), [{"error": {"status": 400}}])
    assert run("-p", "go", "-m", "script:s.json").code == 1
    put(Path("s.json"), [tools({"name": "list_directory", "args": {"dir_path": "."}}), {"text": "Done."}])
    seen: list[object] = []

    def look(event: Event) -> None:
        if isinstance(event, ToolStart):
            seen.append(find_run(resolve_state_directory(), "latest").error)

    options = Options(home=resolve_state_directory(), workspace=Path.cwd(), env=dict(os.environ))
    assert resume_sync("latest", options=options, renderers=[look]).status == "done"
    assert seen == [None]


ME = "codebase_investigator:0"
REPORT = {"SummaryOfFindings": "It is there.", "ExplorationTrace": ["looked"], "RelevantLocations": []}
LOOK = {"agent": ME, "tool_calls": [{"name": "list_directory", "args": {"dir_path": "."}}]}
LOOP = [LOOK] * 6 + [{"agent": ME, "tool_calls": [{"name": "complete_task", "args": {"report": REPORT}}]}]


@pytest.mark.parametrize(
    ("workflow", "flags", "code", "advice"),
    [
        ("investigate", (), 58, "interlock run investigate … --no-loop-check"),
        ("turn", ("--max-turns", "0"), 53, "interlock run turn … --max-turns N"),
        ("init", ("--max-turns", "0"), 53, "interlock run init … --max-turns N"),
    ],
)
def test_a_run_that_takes_no_prompt_is_to_be_started_again_and_not_resumed(
    run: Run, workflow: str, flags: tuple[str, ...], code: int, advice: str
) -> None:
    put(Path("s.json"), LOOP)
    ended = run("run", workflow, "look", "-m", "script:s.json", *flags)
    assert ended.code == code
    assert advice in ended.err
    assert "interlock resume" not in ended.err
    assert "interlock resume" not in run("show", "latest").out


def test_what_is_advised_after_a_loop_works(run: Run) -> None:
    put(Path("s.json"), LOOP)
    done = run("run", "investigate", "look", "-m", "script:s.json", "--no-loop-check", "-o", "json")
    assert (done.code, done.json["report"]["SummaryOfFindings"]) == (0, "It is there.")
