"""`interlock hooks` shows the hooks in effect; `hooks test` what an event would run, and with --run their replies."""

import json
from pathlib import Path
from typing import Any

from commands import Run
from folders import put

HOOKS = {
    "PreToolUse": [
        {
            "matcher": "write_file|replace",
            "sequential": True,
            "hooks": [
                {"name": "fix", "command": """echo '{"hookSpecificOutput": {"tool_input": {"a": 2}}}'"""},
                {"name": "guard", "command": "cat > got; echo not now >&2; exit 2", "required": True},
            ],
        }
    ],
    "Stop": [{"hooks": [{"command": "true", "timeout": 5000}]}],
}
WRITE = '{"tool_name": "write_file", "tool_input": {"a": 1}}'


def settings(folder: Path, hooks: Any = HOOKS) -> Path:
    file = put(folder / ".gemini" / "settings.json", {"hooks": hooks})
    return file


def test_all_hooks_are_listed(run: Run, home: Path) -> None:
    file = settings(home)
    shown = json.loads(run("hooks", "--json").out)
    assert [(h["event"], h["name"] or h["command"], h["source"]) for h in shown["hooks"]] == [
        ("BeforeTool", "fix", str(file)),
        ("BeforeTool", "guard", str(file)),
        ("AfterAgent", "true", str(file)),
    ]
    assert "60 s, sequential, required" in run("hooks").out


def test_test_shows_what_would_run_with_what_and_runs_nothing(run: Run, home: Path, tmp_path: Path) -> None:
    settings(home)
    done = run("hooks", "test", "BeforeTool", "--input", WRITE)
    assert done.code == 0, done.err
    assert "BeforeTool for write_file: 2 hooks, one after the other" in done.out
    assert done.out.index("1. fix") < done.out.index("2. guard")
    shown = json.loads(run("hooks", "test", "BeforeTool", "--input", WRITE, "--json").out)
    assert (
        shown["hooks"][0]["input"].items()
        >= {
            "hook_event_name": "BeforeTool",
            "cwd": str(tmp_path / "work"),
            "tool_name": "write_file",
            "tool_input": {"a": 1},
        }.items()
    )
    other = run("hooks", "test", "BeforeTool", "--input", '{"tool_name": "read_file"}')
    assert "no hook" in other.out
    assert not Path("got").exists()


def test_run_shows_what_each_got_and_said_and_what_it_comes_to(run: Run, home: Path) -> None:
    settings(home)
    shown = json.loads(run("hooks", "test", "PreToolUse", "--input", WRITE, "--run", "--json").out)
    fix, guard = shown["hooks"]
    assert (fix["verdict"]["decision"], guard["verdict"]["decision"]) == ("none", "block")
    assert guard["input"]["tool_input"] == json.loads(Path("got").read_text())["tool_input"] == {"a": 2}
    assert (shown["outcome"]["decision"], shown["outcome"]["reason"]) == ("block", "not now")
    assert not list((home / "interlock").glob("*.db"))
    assert "together: block" in run("hooks", "test", "PreToolUse", "--input", WRITE, "--run").out


def test_hooks_of_an_untrusted_folder_are_ignored_and_it_says_so(run: Run, home: Path) -> None:
    settings(Path())
    done = run("hooks")
    assert "No hooks apply here" in done.out
    assert "ignored: .gemini/settings.json (3 hooks)" in done.err
    assert "interlock trust" in done.err
    assert "guard" in run("hooks", "--skip-trust").out


def test_what_cannot_be_used_is_said_with_its_place_here_and_by_doctor(run: Run, home: Path) -> None:
    file = settings(home, {"BeforTool": [], "AfterTool": [{"hooks": [{"command": 5}]}]})
    for done in (run("hooks"), run("doctor")):
        told = done.err + done.out
        assert "hooks.BeforTool: unknown event" in told
        assert "hooks.AfterTool.0.hooks.0.command is 5, expected a string" in told
    assert str(file) in run("hooks").err


def test_doctor_names_hooks_whose_code_lies_in_the_folder_and_they_import_nothing_planted(
    run: Run, home: Path
) -> None:
    Path("checks").mkdir()
    Path("checks/one.py").write_text("import json; print(json.dumps({'systemMessage': 'mine'}))")
    Path("checks/json.py").write_text("print('planted')")
    settings(home, {"AfterAgent": [{"hooks": [{"type": "command", "command": "python3 checks/one.py"}]}]})
    assert "runs 'checks/json.py' and 1 more of this folder, where the model writes" in run("doctor").out
    told = run("hooks", "test", "AfterAgent", "--run").out
    assert "mine" in told and "planted" not in told
