"""What terminals and programs see of runs that hooks stopped, blocked or continued."""

from pathlib import Path

import pytest
from commands import Done, Run
from folders import put
from scripted import call, says, tools

ANSWERS = [{"text": "First answer."}, {"text": "Second answer."}]


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    put(tmp_path / "script.json", ANSWERS)
    return run


def hook(home: Path, event: str, command: str) -> None:
    settings = home / ".gemini" / "settings.json"
    settings.parent.mkdir(exist_ok=True)
    hooks = {event: [{"hooks": [{"type": "command", "name": "gate", "command": command}]}]}
    quiet = {"skipNextSpeakerCheck": True}
    put(settings, {"hooks": hooks, "model": quiet})


def go(run: Run, tmp_path: Path, *more: str) -> Done:
    return run("-m", f"script:{tmp_path / 'script.json'}", "-p", "go", *more)


NO = "echo 'the tests are red' >&2; exit 2"
STOP = """echo '{"continue": false, "stopReason": "enough for today"}'"""
ONCE = f"if mkdir ../once 2>/dev/null; then {NO}; fi"


def test_a_blocked_prompt_is_one_line_that_says_which_hook_and_why(
    run: Run, tmp_path: Path, home: Path
) -> None:
    hook(home, "BeforeAgent", NO)
    done = go(run, tmp_path)
    assert (done.code, done.out) == (56, "")
    line = "interlock: BeforeAgent hook 'gate' blocked the prompt: the tests are red (blocked_by_hook)"
    assert [told for told in done.err.splitlines() if told.startswith("interlock:")] == [line]
    assert "Go on with: interlock resume" in done.err


def test_the_answer_that_a_hook_stopped_at_is_still_the_answer(run: Run, tmp_path: Path, home: Path) -> None:
    hook(home, "AfterAgent", STOP)
    done = go(run, tmp_path, "-o", "json")
    assert done.code == 56
    told = done.json
    assert told["response"] == "First answer."
    assert told["error"]["type"] == "stopped_by_hook"
    assert told["error"]["message"] == "AfterAgent hook 'gate' stopped the run: enough for today"
    done = go(run, tmp_path)
    assert (done.code, done.out) == (56, "First answer.\n")


def test_of_an_answer_that_was_sent_back_only_the_better_one_is_on_stdout(
    run: Run, tmp_path: Path, home: Path
) -> None:
    hook(home, "AfterAgent", ONCE)
    done = go(run, tmp_path)
    assert (done.code, done.out) == (0, "Second answer.\n")
    assert done.err.index("First answer.") < done.err.index("a hook refused: the tests are red")
    (tmp_path / "once").rmdir()
    assert go(run, tmp_path, "-o", "json").json["response"] == "Second answer."


def test_a_stream_tells_of_hooks_where_they_stood(run: Run, tmp_path: Path, home: Path) -> None:
    hook(home, "AfterAgent", ONCE)
    events = go(run, tmp_path, "-o", "stream-json").events
    told = [e for e in events if e["type"] in ("message", "hook", "agent_blocked", "result")]
    kinds = [e["type"] for e in told if e.get("role") != "user"]
    assert kinds == ["message", "hook", "agent_blocked", "message", "hook", "result"]
    assert [e["reason"] for e in told if e["type"] == "agent_blocked"] == ["the tests are red"]
    assert [e["decision"] for e in told if e["type"] == "hook"] == ["block", "none"]
    assert told[-1]["status"] == "success"


def test_a_stream_ends_with_what_stopped_it(run: Run, tmp_path: Path, home: Path) -> None:
    hook(home, "BeforeModel", STOP)
    done = go(run, tmp_path, "-o", "stream-json")
    assert done.code == 56
    stopped, result = [e for e in done.events if e["type"] in ("agent_stopped", "result")]
    assert stopped["reason"] == "enough for today"
    assert (result["status"], result["error"]["type"]) == ("error", "stopped_by_hook")


WROTE = says("write_file", file_path="fixed", content="x")
AGAIN = r"(?s)no file.*The work is not done"


@pytest.mark.parametrize(
    ("command", "replies"),
    [
        (("-p",), [{"text": "Done."}, {"expect": AGAIN, **WROTE}, {"text": "Now it is."}]),
        (
            ("run", "task", "--mode", "code"),
            [
                says("attempt_completion", result="Done."),
                tools(call("execute_command", command="touch fixed"), expect=AGAIN),
                says("attempt_completion", result="Now it is."),
            ],
        ),
    ],
)
def test_nothing_is_done_while_its_check_fails(
    command: tuple[str, ...], replies: list[dict[str, object]], run: Run, tmp_path: Path, home: Path
) -> None:
    put(home / ".gemini" / "settings.json", '{"model": {"skipNextSpeakerCheck": true}}')
    flags = (
        "-y",
        "-m",
        f"script:{tmp_path / 'script.json'}",
        "--check",
        "test -e fixed || { echo no file; exit 1; }",
    )
    put(tmp_path / "script.json", replies)
    done = run(*command, "do it", *flags)
    assert (done.code, done.out) == (0, "Now it is.\n"), done.err
    (tmp_path / "work" / "fixed").unlink()
    put(tmp_path / "script.json", [replies[0]] * 3)
    done = run(*command, "do it", *flags, "--max-turns", "2")
    assert done.code == 53, done.err


def test_a_check_needs_a_command(run: Run, tmp_path: Path) -> None:
    assert "--check: no command." in go(run, tmp_path, "--check", " ").err
