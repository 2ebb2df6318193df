"""repair: the ends of a repair: the check and who allows it, what confirms a correction, its edit, the report."""

import re
from collections.abc import Mapping

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.repair_attempts import describe_place, diff_of_files
from interlock.nodes.repair_records import (
    load_attempts,
    load_check_end,
    load_files,
    load_suspects,
    store_model_record,
)
from interlock.nodes.requests import require_request_and_answer, write_and_emit_request
from interlock.nodes.tools_results import policy_decision_record, record_call_decision, record_person_decision
from interlock.nodes.workflow import call, place_calls, results
from interlock.state.calls import ApprovalRequest, CallKey, CallView
from interlock.state.checks import CheckEnd, Checks
from interlock.state.deps import Deps, Transcript
from interlock.state.messages import Message, ToolCall
from interlock.state.node import node, require_task_id
from interlock.state.repair import CONFIRMING_RUNS, RepairState, Suspects
from interlock.state.text import format_count

_LEAST_TRIAL_S, _TRIAL_FACTOR = 60.0, 10.0
"""A correction may make the check this much slower, and it has so many seconds at least: longer is an endless loop."""
_REPLAYED_S = 0.005
"""No process starts and ends in so few seconds: the end was logged before a kill."""
_SAYS_WHY = re.compile(r"\w*(?:Error|Exception)\b|^E  |panicked|!=|expected|got|left:|right:", re.IGNORECASE)
"""A line of a failed test that says what was wrong."""
_COMMAND = ("command", "check_timeout_s")
_DENIED = "The check {command!r} may not run: {reason}"
_ENDS: Mapping[str, tuple[str, str]] = {
    "no tests": ("no_tests", "The check {command!r} succeeds, but no test ran. Name the tests in --check."),
    "timeout": (
        "check_timeout",
        "The check {command!r} didn't end within {seconds:g} s. If it is only slow, raise the input check_timeout_s.",
    ),
    "not made": ("check", "The check {command!r} couldn't be run: {output}"),
}
_FLAKY = (
    "The check {command!r} is flaky: of {runs} runs on the same files, some passed and some failed, or failed in other "
    "tests. Make it deterministic first; nothing was changed."
)
_VIEW = (
    "The check {command!r} ends otherwise in a scratch view of the workspace than in the workspace itself, so a "
    "correction can't be tried: {output}"
)


def check_of(state: RepairState, deps: Deps, timeout_s: float | None = None) -> Checks:
    """Return the check that the repair must make pass; `timeout_s`: of one run, in place of the input's."""
    return deps.checks.for_command(
        state["command"], state["check_timeout_s"] if timeout_s is None else timeout_s
    )


_FRESH: RepairState = {
    "trial_timeout_s": 0.0,
    "checked": "",
    "suspects": "",
    "best": "",
    "attempt_no": 0,
    "since_best": 0,
    "answer": "",
    "trial": "",
    "tried": "",
    "outcome": "",
    "confirmed": False,
    "stop": "",
}


@node(writes=("command", "error", *_FRESH), labels=("found", "none"), nondeterministic=True)
async def find_check(state: RepairState, runtime: Runtime[Deps]) -> RepairState:  # noqa: ARG001 - as nodes
    """Take the command of `--check`, else the project's own test command."""
    checks = runtime.context.checks
    command = checks.command or await checks.find_test_command()
    if command:
        return {**_FRESH, "label": "found", "command": command, "error": {}}
    text = "The repository names no command that runs tests. Give one: --check 'python3 -m pytest -q'"
    return {**_FRESH, "label": "none", "command": "", "error": {"type": "no_tests", "message": text}}


def _check_call(deps: Deps, state: RepairState) -> tuple[CallKey, CallView]:
    """Return the check as the shell command that the policy decides on."""
    args: dict[str, JsonValue] = {
        "command": state["command"],
        "description": "Run the check, also with each correction that is tried",
    }
    made = ToolCall(id="0.0", name="run_shell_command", args=args)
    record = deps.transcript.append("", [Message(role="assistant", tool_calls=(made,))])
    return CallKey(message=record, index=0), CallView(id="0.0", name=made.name, args=args)


@node(
    reads=("command", "approval_mode"),
    writes=("approval", "error"),
    labels=("allowed", "asked", "denied"),
)
async def check_rights(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Ask the policy about the command: it will run code that a model wrote, in a scratch view."""
    deps = runtime.context
    key, made = _check_call(deps, state)
    mode = state["approval_mode"]
    verdict = await deps.policy.decide_by_rules_and_checkers(
        made, "execute", mode, deps.approvals.list_session_rules()
    )
    record_call_decision(runtime, key, policy_decision_record(verdict, mode))
    if verdict.decision == "allow":
        return {"label": "allowed", "error": {}}
    if verdict.decision == "deny":
        return {"label": "denied", "error": _denied(state, verdict.deny_message or verdict.reason)}
    request = ApprovalRequest(
        attempt=key,
        kind="approval",
        call=made,
        reason=f"{verdict.reason} It runs now, and with each correction that is tried, in a view of the workspace.",
        preview=state["command"],
        choices=("proceed_once", "reject", "cancel"),
    )
    write_and_emit_request(runtime, request)
    return {"label": "asked", "approval": request.key}


def _denied(state: RepairState, reason: str) -> dict[str, str]:
    return {"type": "denied", "message": _DENIED.format(command=state["command"], reason=reason)}


@node(reads=("command", "approval"), writes=("error",), labels=("proceed", "refused"), group="questions")
async def take_approval(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """A refused check ends the repair: nothing else tells whether a correction is one."""
    deps = runtime.context
    key, _ = _check_call(deps, state)
    _, answer = require_request_and_answer(deps, state["approval"])
    record_person_decision(runtime, key, state["approval"], answer)
    if answer.choice == "proceed_once":
        return {"label": "proceed", "error": {}}
    kind = "cancelled" if answer.choice == "cancel" else "rejected"
    reason = answer.feedback or "a person refused it."
    return {"label": "refused", "error": {**_denied(state, reason), "type": kind}}


@node(
    reads=(*_COMMAND, "trial", "best", "checked", "trial_timeout_s"),
    writes=("checked", "best", "since_best", "trial_timeout_s", "outcome", "error"),
    labels=("passes at once", "fails", "passes", "better", "no better", "unusable"),
)
async def run_check(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Run the check: at first in the workspace and in a view of it, later with a correction."""
    if state["trial"]:
        return await _check_trial(state, runtime)
    deps, task = runtime.context, require_task_id(runtime, "run_check")
    checks, clock = check_of(state, deps), deps.clock
    begun = clock.monotonic()
    end = await checks.run_check(f"repair:{task}")
    took = clock.monotonic() - begun
    if end.how == "passed":
        return {"label": "passes at once", "error": {}}
    if end.how != "failed":
        return {"label": "unusable", "error": _unusable_check_error(state, end)}
    begun = clock.monotonic()
    again = await checks.run_check_with_files(f"repair view:{task}", {})
    took = max(took, clock.monotonic() - begun)
    if _test_names(again) != _test_names(end) or again.how != end.how:
        third = await checks.run_check_with_files(f"repair view again:{task}", {})
        is_flaky = third.how != again.how or _test_names(third) != _test_names(again)
        text = _FLAKY if is_flaky else _VIEW
        message = text.format(command=state["command"], runs=3, output=again.output[-300:])
        return {
            "label": "unusable",
            "error": {"type": "flaky" if is_flaky else "check_view", "message": message},
        }
    limit = state["check_timeout_s"]
    if took > _REPLAYED_S:
        limit = min(limit or float("inf"), max(_LEAST_TRIAL_S, _TRIAL_FACTOR * took))
    return {
        "label": "fails",
        "checked": store_model_record(deps.transcript, end),
        "trial_timeout_s": limit,
        "error": {},
    }


async def _check_trial(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    deps, task = runtime.context, require_task_id(runtime, "run_check")
    checks = check_of(state, deps, state["trial_timeout_s"])
    end = await checks.run_check_with_files(f"repair:{task}", load_files(deps.transcript, state["trial"]))
    before = load_check_end(deps.transcript, state)
    if end.how == "passed":
        return {"label": "passes", "best": state["trial"], "outcome": "it passes"}
    outcome = describe_failed_trial(before, end)
    if not is_better(before, end):
        return {"label": "no better", "outcome": outcome}
    found = store_model_record(deps.transcript, end)
    return {"label": "better", "best": state["trial"], "checked": found, "since_best": -1, "outcome": outcome}


def describe_failed_trial(before: CheckEnd, after: CheckEnd) -> str:
    """Say in a few words how the check ended with a correction."""
    if after.how == "timeout":
        return "the check didn't end in time: something loops"
    if after.how != "failed":
        return "no test ran" if after.how == "no tests" else after.output[-200:]
    if new := [name for name in _test_names(after) if name not in _test_names(before)]:
        return f"it breaks {', '.join(new[:3])}"
    if is_better(before, after):
        return f"only {', '.join(_test_names(after)[:3])} still fails"
    text = after.failures[0].detail if after.failures else after.output
    said = [line.strip() for line in text.split("\n") if _SAYS_WHY.search(line)]
    return f"it still fails: {said[-1][:200]}" if said else "it still fails"


def _test_names(end: CheckEnd) -> list[str]:
    return sorted(one.name for one in end.failures)


def is_better(before: CheckEnd, after: CheckEnd) -> bool:
    """Return whether fewer tests fail, and none that passed before; also if tests can be loaded at last."""
    if after.how != "failed" or not before.failures or not after.failures:
        return False
    broken_before, broken = (sum(one.is_broken for one in end.failures) for end in (before, after))
    if broken != broken_before:
        return broken < broken_before
    return {*_test_names(after)} < {*_test_names(before)}


def _unusable_check_error(state: RepairState, end: CheckEnd) -> dict[str, str]:
    kind, text = _ENDS[end.how]
    seconds = state["check_timeout_s"] or 900
    return {
        "type": kind,
        "message": text.format(command=state["command"], seconds=seconds, output=end.output[-300:]),
    }


@node(
    reads=(*_COMMAND, "best", "trial_timeout_s"),
    writes=("confirmed", "error"),
    labels=("holds", "flaky"),
)
async def confirm(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Run the check again with the correction: one success of a flaky check proves nothing."""
    deps, task = runtime.context, require_task_id(runtime, "confirm")
    checks = check_of(state, deps, state["trial_timeout_s"])
    for number in range(1, CONFIRMING_RUNS):
        end = await checks.run_check_with_files(
            f"confirm {number}:{task}", load_files(deps.transcript, state["best"])
        )
        if end.how != "passed":
            message = _FLAKY.format(command=state["command"], runs=number + 1)
            return {"label": "flaky", "error": {"type": "flaky", "message": message}}
    return {"label": "holds", "confirmed": True, "error": {}}


@node(reads=("suspects", "best", "head"), writes=("head",))
async def apply(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Place one edit for each changed file, as small as it can be; policy and people decide on it."""
    deps = runtime.context
    files, best = load_suspects(deps.transcript, state).files, load_files(deps.transcript, state["best"])
    edits = [
        call(
            "replace",
            file_path=path,
            instruction="Repair what the failing tests found",
            old_string=old,
            new_string=new,
        )
        for path, text in best.items()
        for old, new in [smallest_edit(files[path], text)]
    ]
    return {"head": place_calls(dict(state), runtime, *edits)}


def smallest_edit(before: str, after: str) -> tuple[str, str]:
    """Return the lines that differ, from the first to the last, with as many around them that they occur once."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    start = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    tail = 0
    while tail < min(len(old), len(new)) - start and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    end = len(old) - tail
    while start > 0 or end < len(old):
        piece = "".join(old[start:end])
        if piece.strip() and before.count(piece) == 1:
            break
        start, end = max(0, start - 1), min(len(old), end + 1)
    return "".join(old[start:end]), "".join(new[start : len(new) - (len(old) - end)])


@node(
    reads=(*_COMMAND, "message", "count", "stop"),
    writes=("error",),
    labels=("made", "refused"),
)
async def verify(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Run the check once more in the workspace, where the edit now is."""
    deps = runtime.context
    failed = next((one for one in results(dict(state), runtime) if one.status != "success"), None)
    if failed is not None:
        kind = "cancelled" if state.get("stop") or failed.status == "cancelled" else "refused"
        problem = failed.error["message"] if failed.error else failed.content
        message = f"The correction passes the check, but its edit wasn't made: {problem}"
        return {"label": "refused", "error": {"type": kind, "message": message}}
    end = await check_of(state, deps).run_check(f"verify:{require_task_id(runtime, 'verify')}")
    if end.how == "passed":
        return {"label": "made", "error": {}}
    text = (
        f"The check {state['command']!r} passed in the view, but doesn't in the workspace. "
        "Take the edit back: interlock undo"
    )
    return {"label": "refused", "error": {"type": "check_view", "message": text}}


_CANCELLED = ("cancelled",)
_BROKEN = ("check", "model")


@node(
    reads=("command", "tried", "best", "confirmed", "suspects", "error"),
    writes=("repair_status", "told", "error"),
)
async def report(state: RepairState, runtime: Runtime[Deps]) -> RepairState:
    """Say how it ended. A repair that isn't one is an error, whatever was tried."""
    transcript, error = runtime.context.transcript, state.get("error") or {}
    told = transcript.append("", [Message(role="assistant", content=describe_repair(state, transcript))])
    if error:
        kind = error["type"]
        status = "cancelled" if kind in _CANCELLED else "failed" if kind in _BROKEN else "not_repaired"
        return {"repair_status": status, "told": told}
    if state["confirmed"] or not state["suspects"]:
        return {"repair_status": "done", "told": told if state["confirmed"] else ""}
    message = (
        f"{format_count(len(load_attempts(transcript, state)), 'correction')} tried, and none makes "
        f"{state['command']!r} succeed. The workspace is as it was."
    )
    return {
        "repair_status": "not_repaired",
        "told": told,
        "error": {"type": "not_repaired", "message": message},
    }


def describe_repair(state: RepairState, transcript: Transcript) -> str:
    """Say what was done, with the diff, or what was tried, one line an attempt."""
    suspects = load_suspects(transcript, state) if state["suspects"] else Suspects()
    diff = diff_of_files(suspects.files, load_files(transcript, state["best"]))
    if not state.get("error") and state["confirmed"]:
        return f"Repaired: {state['command']!r} passes.\n\n```diff\n{diff}```"
    if not state["suspects"]:
        return ""
    lines = [
        f"{number}. {describe_place(suspects.places[one.place])}: {one.outcome}"
        for number, one in enumerate(load_attempts(transcript, state), 1)
    ]
    if diff:
        what = (
            "This correction passes the check" if state["confirmed"] else "This change makes fewer tests fail"
        )
        lines += ["", f"{what}, and wasn't applied:", "", f"```diff\n{diff}```"]
    return "\n".join(lines)
