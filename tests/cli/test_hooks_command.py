"""`interlock hooks` shows the hooks in effect; `hooks test` what an event would run, and with --run their replies."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "user"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("GEMINI_API_KEY", raising=False)
    return made


def settings(folder: Path, hooks: Any = HOOKS) -> Path:
    file = folder / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": hooks}))
    return file


def test_all_hooks_are_listed(cli: Cli, home: Path) -> None:
    file = settings(home)
    shown = json.loads(cli("hooks", "--json").stdout)
    assert [(h["event"], h["name"] or h["command"], h["source"]) for h in shown["hooks"]] == [
        ("BeforeTool", "fix", str(file)),
        ("BeforeTool", "guard", str(file)),
        ("AfterAgent", "true", str(file)),
    ]
    assert "60 s, sequential, required" in cli("hooks").stdout


def test_test_shows_what_would_run_with_what_and_runs_nothing(cli: Cli, home: Path, tmp_path: Path) -> None:
    settings(home)
    done = cli("hooks", "test", "BeforeTool", "--input", WRITE)
    assert done.returncode == 0, done.stderr
    assert "BeforeTool for write_file: 2 hooks, one after the other" in done.stdout
    assert done.stdout.index("1. fix") < done.stdout.index("2. guard")
    shown = json.loads(cli("hooks", "test", "BeforeTool", "--input", WRITE, "--json").stdout)
    assert (
        shown["hooks"][0]["input"].items()
        >= {
            "hook_event_name": "BeforeTool",
            "cwd": str(tmp_path),
            "tool_name": "write_file",
            "tool_input": {"a": 1},
        }.items()
    )
    other = cli("hooks", "test", "BeforeTool", "--input", '{"tool_name": "read_file"}')
    assert "no hook" in other.stdout
    assert not (tmp_path / "got").exists()


def test_run_shows_what_each_got_and_said_and_what_it_comes_to(cli: Cli, home: Path, tmp_path: Path) -> None:
    settings(home)
    shown = json.loads(cli("hooks", "test", "PreToolUse", "--input", WRITE, "--run", "--json").stdout)
    fix, guard = shown["hooks"]
    assert (fix["verdict"]["decision"], guard["verdict"]["decision"]) == ("none", "block")
    assert (
        guard["input"]["tool_input"] == json.loads((tmp_path / "got").read_text())["tool_input"] == {"a": 2}
    )
    assert (shown["outcome"]["decision"], shown["outcome"]["reason"]) == ("block", "not now")
    assert not list((tmp_path / "state").glob("*.db"))
    assert "together: block" in cli("hooks", "test", "PreToolUse", "--input", WRITE, "--run").stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("test", "BeforTool"), 2, "No event 'BeforTool'. Did you mean 'BeforeTool'"),
        (("test",), 2, "Name an event: BeforeAgent"),
        (("tset",), 2, "No action 'tset', expected test"),
        (("--run",), 2, "interlock hooks test EVENT"),
        (("test", "BeforeTool", "--input", "[1]"), 42, "--input"),
    ],
)
def test_a_mistake_gets_one_line(
    cli: Cli, home: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = cli("hooks", *arguments)
    assert (done.returncode, len(done.stderr.splitlines())) == (code, 1), done.stderr
    assert said in done.stderr


def test_hooks_of_an_untrusted_folder_are_ignored_and_it_says_so(
    cli: Cli, home: Path, tmp_path: Path
) -> None:
    settings(tmp_path)
    done = cli("hooks")
    assert "No hooks count here" in done.stdout
    assert "ignored: .gemini/settings.json (3 hooks)" in done.stderr
    assert "interlock trust" in done.stderr
    assert "guard" in cli("hooks", "--skip-trust").stdout


def test_what_cannot_be_used_is_said_with_its_place_here_and_by_doctor(cli: Cli, home: Path) -> None:
    file = settings(home, {"BeforTool": [], "AfterTool": [{"hooks": [{"command": 5}]}]})
    for done in (cli("hooks"), cli("doctor")):
        told = done.stderr + done.stdout
        assert "hooks.BeforTool: no event is called so" in told
        assert "hooks.AfterTool.0.hooks.0.command is 5, expected a string" in told
    assert str(file) in cli("hooks").stderr
