"""How a hook's process replies: exit codes, JSON, texts, failures; and how several replies combine."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from folders import table
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.files.filesystem import OutputFiles
from interlock.services.hooks.hook_replies import (
    HookEnvironment,
    HookReply,
    SourcedReply,
    merge_replies,
    next_hook_input,
    parse_reply,
    run_hook,
)
from interlock.services.hooks.hook_settings import Hook
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.state.tooling import ProcessEnd

TABLE: dict[str, list[Any]] = table(__file__, "hooks.yaml")
NO = '{"decision": "deny", "reason": "no"}'


def ran(folder: Path, command: str, **more: Any) -> HookReply:
    async def go() -> HookReply:
        processes = SupervisedProcesses(
            outputs=OutputFiles(folder / "home"),
            env=tool_environment({**os.environ, "SECRET_TOKEN": "hush"}),
        )
        around = HookEnvironment("run1", folder, folder / "plans", "scout:0")
        hook = Hook(event="BeforeTool", source="f", place="p", command=command, **more)
        return await run_hook(hook, around.build_input("BeforeTool", {"tool_name": "x"}), processes, around)

    return asyncio.run(go())


def ended(output: str = "", code: int | None = 0, how: Any = "exited", omitted: int = 0) -> ProcessEnd:
    return ProcessEnd(how, code, None if code is not None else "SIGKILL", output, omitted, None, 0.1)


@pytest.mark.parametrize(("output", "code", "said", "decision", "reason"), TABLE["replies"])
def test_a_reply_is_read_as_documented(output: str, code: int, said: str, decision: str, reason: str) -> None:
    reply = parse_reply(ended(output, code), said, required=False)
    assert (reply.decision, reply.reason) == (decision, reason)


@pytest.mark.parametrize("what", TABLE["failures"])
def test_a_failure_warns_and_a_required_hook_blocks_by_it(what: dict[str, Any]) -> None:
    open_reply = parse_reply(ended(**what), "", required=False)
    assert (open_reply.decision, bool(open_reply.warning), open_reply.message) == ("none", True, "")
    closed = parse_reply(ended(**what), "", required=True)
    assert closed.decision == "block"
    assert closed.warning in closed.reason


def test_what_a_failed_hook_allows_or_changes_does_not_count() -> None:
    changes = {"tool_input": {"a": 1}, "additionalContext": "c"}
    given = {"continue": False, "systemMessage": "m", "hookSpecificOutput": changes}
    reply = parse_reply(ended(json.dumps(given), code=1), "", required=False)
    assert (reply.stop, reply.output, reply.context, reply.message) == ("It gave no reason.", {}, "", "")
    assert "exited with 1" in reply.warning


def test_names_of_claude_code_mean_the_same_text_is_a_message_and_stop_has_a_reason() -> None:
    specific = {"hookEventName": "PreToolUse", "updatedInput": {"a": 1}, "additionalContext": "c"}
    reply = parse_reply(ended(json.dumps({"hookSpecificOutput": specific})), "", required=False)
    assert (reply.output, reply.context) == ({"tool_input": {"a": 1}}, "c")
    assert parse_reply(ended("hello\n"), "", required=True).message == "hello"
    stop = parse_reply(ended('{"continue": false, "stopReason": "enough"}'), "", required=False)
    assert (stop.stop, stop.decision) == ("enough", "none")


# A real process


def test_a_hook_gets_the_event_and_its_surroundings(tmp_path: Path) -> None:
    reply = ran(
        tmp_path,
        'cat > got.json; echo "$GEMINI_SESSION_ID|$CLAUDE_PROJECT_DIR|$SECRET_TOKEN|$OWN"',
        env={"OWN": "o"},
    )
    got = json.loads((tmp_path / "got.json").read_text())
    assert {k: v for k, v in got.items() if k != "timestamp"} == {
        "session_id": "run1",
        "cwd": str(tmp_path),
        "hook_event_name": "BeforeTool",
        "agent": "scout:0",
        "tool_name": "x",
    }
    assert reply.message == f"run1|{tmp_path}||o"


def test_stdout_and_stderr_are_told_apart(tmp_path: Path) -> None:
    reply = ran(tmp_path, f"echo noise >&2; echo '{NO}'; echo noise >&2")
    assert (reply.decision, reply.reason, reply.warning) == ("block", "no", "")
    assert ran(tmp_path, "echo ' das ist verboten: ü ' >&2; exit 2").reason == "das ist verboten: ü"


def test_a_flood_on_either_stream_is_held(tmp_path: Path) -> None:
    assert "more than" in ran(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x").warning
    reply = ran(tmp_path, "head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 2")
    assert (reply.decision, len(reply.reason)) == ("block", 10_000)


def test_a_hook_that_takes_too_long_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    reply = ran(tmp_path, "(sleep 30; touch late) & sleep 30", timeout_s=0.3)
    assert (reply.decision, reply.warning) == ("none", "it took longer than 0.3 s")
    assert ran(tmp_path, "sleep 30", timeout_s=0.3, required=True).decision == "block"


# Together

DECISIONS = st.sampled_from(["none", "allow", "ask", "block"])
REPLIES = st.builds(
    HookReply,
    decision=DECISIONS,
    reason=st.text(max_size=5),
    stop=st.none() | st.text(max_size=5),
    message=st.text(max_size=5),
    context=st.text(max_size=5),
    warning=st.text(max_size=3),
)


@given(st.lists(REPLIES, max_size=6))
def test_no_block_and_no_stop_is_ever_lost(replies: list[HookReply]) -> None:
    outcome = merge_replies("BeforeTool", [SourcedReply(str(i), "f", r) for i, r in enumerate(replies)])
    ranks = ["none", "allow", "ask", "block"]
    assert outcome.decision == max((r.decision for r in replies), key=ranks.index, default="none")
    assert (outcome.stop is None) == all(r.stop is None for r in replies)
    assert all(r.reason in outcome.reason for r in replies if r.decision == outcome.decision != "none")
    assert outcome.messages == tuple(r.message for r in replies if r.message)
    assert all(r.context in outcome.context for r in replies)
    assert [v.decision for v in outcome.verdicts] == [r.decision for r in replies]


@pytest.mark.parametrize(
    ("configs", "mode", "names"),
    [
        ([("AUTO", ["b"]), ("ANY", ["a"])], "ANY", ["a", "b"]),
        ([("ANY", ["a"]), ("NONE", ["b"]), ("AUTO", [])], "NONE", []),
        ([("AUTO", ["b", "a"])], "AUTO", ["a", "b"]),
    ],
)
def test_tool_choices_are_united_under_the_strictest_mode(configs: Any, mode: str, names: list[str]) -> None:
    outputs = [{"toolConfig": {"mode": m, "allowedFunctionNames": n}} for m, n in configs]
    outcome = merge_replies(
        "BeforeToolSelection", [SourcedReply("h", "f", HookReply(output=o)) for o in outputs]
    )
    assert outcome.output == {"toolConfig": {"mode": mode, "allowedFunctionNames": names}}


def test_changes_add_up_and_are_the_next_ones_input() -> None:
    first, then = (
        {"tool_input": {"a": 1, "b": 1}, "clearContext": True},
        HookReply(output={"tool_input": {"b": 2}}),
    )
    both = {"tool_input": {"a": 1, "b": 2}}
    replies = [SourcedReply("h", "f", HookReply(output=first)), SourcedReply("h", "f", then)]
    assert merge_replies("BeforeTool", replies).output == {**both, "clearContext": True}
    assert next_hook_input({"tool_input": first["tool_input"]}, "BeforeTool", then) == both
    assert next_hook_input({"prompt": "p"}, "BeforeAgent", HookReply(context="c")) == {"prompt": "p\n\nc"}
    model = next_hook_input(
        {"llm_request": {"m": 1}}, "BeforeModel", HookReply(output={"llm_request": {"t": 2}})
    )
    assert model == {"llm_request": {"m": 1, "t": 2}}
