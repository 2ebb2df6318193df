"""check: the command that must succeed before an answer counts: run as things are, and with the tests of before."""

from collections.abc import Iterable, Mapping
from typing import Any

from langgraph.runtime import Runtime

from interlock.nodes.requests import require_request_and_answer, write_request_and_route
from interlock.prompts import load_prompt, render_prompt
from interlock.state.calls import ApprovalRequest, CallKey, CallView
from interlock.state.checks import REQUEST, CheckEnd, TestChange, TestChanges
from interlock.state.deps import Deps
from interlock.state.events import AgentBlocked
from interlock.state.main import MainState
from interlock.state.messages import IncrementalScan, Message, TextPart
from interlock.state.node import node, require_task_id

_HOW: Mapping[str, str] = {
    "failed": "failed",
    "no tests": "succeeded, but no test ran; that is no pass",
    "timeout": "didn't end in time",
}
_FEEDBACK = ("head", "hook_stage", "fed_back", "turn_status", "error", "result")
_NAMED = 3
"""Paths of changed tests in one line."""
_LEFT = ("beside code", "not kept")
"""Changes that can't be put back, so that a check that passes proves nothing of them."""
_SENTENCES: Mapping[str, str] = {
    "whole": "What concerns tests in {} can't be told apart, so all of it was put back.",
    "beside code": "Tests in {} have changed and can't be told from the code, so they were left as they are now.",
    "new": "{} decides which tests run and is new.",
    "added": "New, and left out: {}.",
    "built": "For a build to make them anew, these were left out: {}.",
    "not kept": "These have changed and couldn't be compared, so they were left as they are now: {}.",
}


def relabel_accepted_answer_for_check(update: Any, deps: Deps) -> Any:
    """Let the check decide on an answer that the hooks accept: the label becomes `check`."""
    # Where there is no answer, no hook was asked.
    is_accepted = update.get("turn_status") == "ok" and update.get("hook_stage") == "admitted"
    return {**update, "label": "check"} if is_accepted and deps.checks.command else update


RULE, EDIT = "check", "check:edit"
"""Sections of what the model is told of the check."""


def append_check_rule_once(head: str, deps: Deps) -> str:
    """Return the head after telling the model the rule, once in a conversation."""
    if not deps.checks.must_pass_with_original_tests or RULE in context_section_names(head, deps):
        return head
    text = render_prompt("run/check_rule", command=deps.checks.command)
    return deps.transcript.append(head, [_context_message(text, RULE)])


def build_first_test_edit_note(head: str, deps: Deps, paths: Iterable[str]) -> list[Message]:
    """Return what the model is told at its first change of a test, once in a conversation."""
    if not deps.checks.must_pass_with_original_tests or EDIT in context_section_names(head, deps):
        return []
    path = next(filter(deps.checks.is_test_or_settings, paths), "")
    if not path:
        return []
    return [_context_message(render_prompt("run/check_edit", path=path, command=deps.checks.command), EDIT)]


def _context_message(text: str, section: str) -> Message:
    return Message(role="user", origin="context", content=(TextPart(text=text, section=section),))


def _add_context_section_names(found: set[str], message: Message) -> None:
    if message.origin == "context":
        found |= {p.section for p in message.content if isinstance(p, TextPart) and p.section}


_sections = IncrementalScan(set[str], _add_context_section_names)


def context_section_names(head: str, deps: Deps) -> set[str]:
    """Return the sections of a conversation's context."""
    return _sections(deps.transcript.read(head), deps.transcript)


@node(
    reads=("head",), writes=_FEEDBACK, labels=("passed", "tests matter", "feedback", "broken"), group="hooks"
)
async def run_check(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Run the command. The model gets what a failing one printed."""
    checks = runtime.context.checks
    end = await checks.run_check(f"check:{require_task_id(runtime, 'run_check')}")
    match end.how:
        case "passed":
            return {"label": "tests matter" if checks.must_pass_with_original_tests else "passed"}
        case "not made":
            message = f"The check {checks.command!r} couldn't be run: {end.output}"
            error = {"type": "check", "message": message}
            return {
                "label": "broken",
                "turn_status": "error",
                "hook_stage": "answered",
                "error": error,
                "result": "",
            }
        case how:
            text = load_prompt("run/check_failed").render(
                command=checks.command, how=_HOW[how], output=end.output
            )
            return _append_check_feedback(state, runtime, text)


def _append_check_feedback(state: MainState, runtime: Runtime[Deps], feedback: str) -> MainState:
    runtime.stream_writer(AgentBlocked(reason=feedback, by="check"))
    head = runtime.context.transcript.append(
        state["head"], [Message(role="user", origin="hook", content=feedback)]
    )
    anew: MainState = {"hook_stage": "admitted", "fed_back": True, "turn_status": "", "result": ""}
    return {**anew, "head": head, "label": "feedback"}


@node(
    reads=("head",),
    writes=("check_changes", "check_output", "check_view"),
    labels=("same", "changed", "unknown"),
    nondeterministic=True,
    group="hooks",
)
async def compare_tests(state: MainState, runtime: Runtime[Deps]) -> MainState:  # noqa: ARG001 - as nodes
    """Look whether tests, and files that decide which tests run, are as they were when the run began."""
    deps = runtime.context
    found = await deps.checks.find_test_changes()
    if found.is_empty:
        return {"label": "same", "check_changes": "", "check_output": "", "check_view": ""}
    record = _store_text_record(deps, found.model_dump_json())
    label = "changed" if found.changes else "unknown"
    return {"label": label, "check_changes": record, "check_output": "", "check_view": ""}


@node(
    reads=("check_changes",),
    writes=("check_output",),
    labels=("passed", "failed", "beside code"),
    group="hooks",
)
async def run_old_tests(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Run the command in a view in which the tests are as they were."""
    deps, changes = runtime.context, _load_test_changes(runtime.context, state)
    end = await deps.checks.run_check_with_original_tests(
        f"before:{require_task_id(runtime, 'run_old_tests')}", changes
    )
    if end.how != "passed":
        return {"label": "failed", "check_output": _store_text_record(deps, end.model_dump_json())}
    left = any(change.how in _LEFT for change in changes.changes)
    return {"label": "beside code" if left else "passed", "check_output": ""}


@node(writes=("check_view",), group="hooks")
async def try_view(state: MainState, runtime: Runtime[Deps]) -> MainState:  # noqa: ARG001 - as nodes
    """Run the command in a view with today's tests: if it fails there too, a view proves nothing."""
    end = await runtime.context.checks.run_check_with_original_tests(
        f"view:{require_task_id(runtime, 'try_view')}", TestChanges()
    )
    return {"check_view": end.how}


@node(
    reads=("reply", "hooked", "check_changes", "check_output", "check_view"),
    writes=("approval",),
    labels=("asked", "notify"),
    group="questions",
)
async def ask_tests(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Ask whether the changed tests count: the command succeeds only with them."""
    deps, changes = runtime.context, _load_test_changes(runtime.context, state)
    attempt = CallKey(message=state["reply"], index=0)
    number = 1
    while deps.approvals.find_answer(f"{attempt}:tests:{number}"):
        number += 1
    end = _load_check_end(deps, state)
    args: dict[str, Any] = {"command": deps.checks.command, "tests": changes.hashes}
    request = ApprovalRequest(
        attempt=attempt,
        what="tests",
        asked=number,
        kind="approval",
        call=CallView(id=f"tests:{number}", name=REQUEST, args=args),
        reason=_changed_tests_request_reason(changes, end, state.get("check_view", "")),
        preview=_changed_tests_preview(deps.checks.command, changes, end),
        choices=("proceed_once", "reject", "cancel"),
    )
    return {**write_request_and_route(runtime, state, request)}


def _changed_tests_request_reason(changes: TestChanges, check_end: CheckEnd | None, view_outcome: str) -> str:
    if changes.unknown:
        return f"The check passes, but whether it passes with the tests of before can't be told: {changes.unknown}"
    by_how: dict[str, list[TestChange]] = {}
    for change in changes.changes:
        by_how.setdefault(change.how, []).append(change)
    told = " ".join(
        sentence.format(_format_first_changed_paths(by_how[how]))
        for how, sentence in _SENTENCES.items()
        if how in by_how
    )
    if check_end is None:
        return f"The check passes, but tests that couldn't be put back have changed. {told}"
    if view_outcome and view_outcome != "passed":
        why = (
            "it fails there with today's tests, too"
            if view_outcome != "not made"
            else "there can be none here"
        )
        begin = (
            f"Tests have changed, and a view of the workspace with the tests of before proves nothing: {why}."
        )
    else:
        how = {"no tests": "no test ran", "timeout": "it didn't end in time"}.get(check_end.how, "it fails")
        back = [change for change in changes.changes if change.how not in _LEFT]
        begin = f"The check passes only with changed tests; with {_format_first_changed_paths(back)} as before, {how}."
    return f"{begin} {told}".strip()


def _format_first_changed_paths(changes: "tuple[TestChange, ...] | list[TestChange]") -> str:
    names = [change.path for change in changes]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _changed_tests_preview(command: str, changes: TestChanges, check_end: CheckEnd | None) -> str:
    gone = [f"{change.path} is gone" for change in changes.changes if change.how == "gone"]
    gone += [
        f"{change.path} has changed" for change in changes.changes if change.how in ("built", "not kept")
    ]
    printed = [f"{command} with the tests as they were:", check_end.output] if check_end else []
    return "\n".join(filter(None, [changes.diff, *gone, "" if not printed else "\n" + "\n".join(printed)]))


@node(
    reads=("approval", "head", "check_changes"),
    writes=(*_FEEDBACK, "stop", "stopped_by"),
    labels=("accepted", "trusted", "feedback", "stopped"),
    group="questions",
)
async def take_tests(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Accepted changes count as they were shown; a person's reason sends the model on."""
    deps = runtime.context
    _, answer = require_request_and_answer(deps, state["approval"])
    if answer.choice == "cancel":
        return {"label": "stopped", "stop": "ended by the user", "stopped_by": "person"}
    if answer.choice == "proceed_once":
        return {"label": "trusted" if _load_test_changes(deps, state).unknown else "accepted"}
    paths = _format_first_changed_paths(_load_test_changes(deps, state).changes) or "the tests"
    reason = (answer.feedback or answer.text or "").strip() or "no reason was given."
    return _append_check_feedback(
        state, runtime, render_prompt("run/check_rejected", paths=paths, reason=reason)
    )


def _store_text_record(deps: Deps, text: str) -> str:
    return deps.transcript.append("", [Message(role="tool", content=text)])


def _load_test_changes(deps: Deps, state: MainState) -> TestChanges:
    return TestChanges.model_validate_json(deps.transcript.read_message(state["check_changes"]).text)


def _load_check_end(deps: Deps, state: MainState) -> CheckEnd | None:
    record = state.get("check_output")
    return CheckEnd.model_validate_json(deps.transcript.read_message(record).text) if record else None
