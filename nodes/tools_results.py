"""tools_results: helpers shared by deciding and executing calls: results, and the record of who decided."""

from langgraph.runtime import Runtime

from interlock.prompts import load_prompt
from interlock.state.calls import (
    Answer,
    CallKey,
    CallOutcome,
    CallView,
    OneCall,
    ToolResult,
    Verdict,
    call_key_from_state,
    error_result,
)
from interlock.state.charts import ToolCallChart, next_state
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import RunError
from interlock.state.events import ToolResultEvent
from interlock.state.forms import FilledForm
from interlock.state.hooks import HookOutcome, HookWait
from interlock.state.journal import DecidedBy, DecisionRecord, Journal
from interlock.state.messages import Message
from interlock.state.node import require_task_id
from interlock.state.run import is_hooked
from interlock.state.seen import SeenFiles
from interlock.state.tools import DecideState, ExecuteState

CALL = ("message", "index", "attempt")
"""Keys that identify an attempt at a call."""
MODES = ("approval_mode", "chosen_mode")
"""What `effective_approval_mode` reads."""
_REASON = 2000
"""Characters of a hook's reason kept in state and requests; the decision record has all of it."""


def load_deps_key_and_call(state: OneCall, runtime: Runtime[Deps]) -> tuple[Deps, CallKey, CallView]:
    """Deps, key and call: what every node of one call needs."""
    deps, key = runtime.context, call_key_from_state(state)
    return deps, key, deps.journal.read_call(key)


def load_earlier_calls(deps: Deps, message: str, index: int) -> list[CallView]:
    """The preceding calls of the batch; an edit's preview builds on their results."""
    return [deps.journal.read_call(CallKey(message=message, index=i)) for i in range(index)]


def find_seen_files(deps: Deps, key: CallKey) -> SeenFiles | None:
    """What the model knew of files when it made a call; None: a program made it."""
    if deps.info.workflow in _GIVEN_CALLS or _is_placed_by_program(deps.transcript, key.message):
        return None
    return deps.journal.seen.before(key.message)


_GIVEN_CALLS = ("tools", "edit")
"""Workflows whose calls somebody passes in."""


def _is_placed_by_program(transcript: Transcript, record: str) -> bool:
    """Whether a node of a workflow made the calls of a message (`place_calls`)."""
    before = [transcript.read_message(one) for one in transcript.record_ids(record, 2)[:-1]]
    opening = load_prompt("run/placed_calls").render()
    return any(message.origin == "context" and message.text.startswith(opening) for message in before)


EXECUTED = tuple(
    f"{before}execute {end}" for before in ("", "schedule ") for end in ("succeed", "fail", "cancel")
)
"""Moves of a node that sees a scheduled call to its end. An execution begins without a status: as if just decided."""


WITHOUT_RUN = ("schedule", "execute", "succeed")
"""Events of a call that has succeeded without being run."""


def call_status_after_events(status: str, *events: str) -> str:
    """The call's status after these events (`ToolCallChart`)."""
    for event in events:
        status = next_state(ToolCallChart, status, event)
    return status


def answer_call_without_running(
    deps: Deps, state: DecideState, call: CallView, result: ToolResult, label: str, *events: str
) -> DecideState:
    """Journal the result of a call that isn't run, and return its node's update. Without events the call has failed."""
    deps.journal.record_result(call_key_from_state(state), call, result)
    status = call_status_after_events(state.get("status", "validating"), *(events or ("fail",)))
    return {"label": label, "status": status}


def require_recorded_result(journal: Journal, key: CallKey) -> ToolResult:
    """The journaled result of a finished attempt."""
    row = journal.find_row(key, journal.read_call(key))
    if row is None or row.result is None:
        raise RunError(f"Call {str(key)!r} is over but the journal holds no result of it.")
    return row.result


def load_call_and_result(
    journal: Journal, message: str, index: int, outcome: CallOutcome
) -> tuple[CallView, ToolResult]:
    key = CallKey(message=message, index=index, attempt=outcome["attempt"])
    return journal.read_call(key), require_recorded_result(journal, key)


def result_for_model(transcript: Transcript, record: str, result: ToolResult) -> ToolResult:
    """The result as the model reads it: itself, or the record replacing it (shortened, or with hooks' additions)."""
    if not record:
        return result
    message = transcript.read_message(record)
    if message.status is None or message.status == result.status:
        return result.model_copy(update={"content": message.text})
    error = {"type": "blocked_by_hook", "message": message.text}
    update = {"status": message.status, "content": message.text, "error": error, "data": ()}
    return result.model_copy(update=update)


def build_tool_result_event(deps: Deps, key: CallKey, record: str) -> ToolResultEvent:
    """The event shown to people: long outputs in full, but a blocked one as the model has it."""
    call, raw = deps.journal.read_call(key), require_recorded_result(deps.journal, key)
    sent = result_for_model(deps.transcript, record, raw)
    result = raw if sent.status == raw.status else sent
    duration, code = result.meta.get("duration_ms"), result.meta.get("exit_code")
    return ToolResultEvent(
        tool_name=call.name,
        tool_id=call.id,
        status=result.status,
        output=result.content,
        error=result.error,
        duration_ms=duration if isinstance(duration, int) else 0,
        diff=str(result.meta.get("diff") or ""),
        summary=deps.toolset.summarize_call(call),
        exit=str(result.meta.get("signal") or (f"exit {code}" if code else "")),
    )


class CallResult(HookWait, total=False):
    status: str
    """The call's status, see ToolCallChart."""


def should_fire_after_tool_hooks(state: CallResult) -> bool:
    """A call stopped while running has no result to show to hooks."""
    return is_hooked(state, "AfterTool") and state.get("status") != "cancelled"


def mode_refusal_or_noop_result(deps: Deps, mode: str, call: CallView) -> ToolResult | None:
    """The answer to a call the mode of work forbids; None: it doesn't. `call` is valid."""
    info = deps.toolset.find_tool_info(call.name)
    if not mode or info is None:
        return None
    if info.name == "switch_mode" and call.args.get("mode_slug") == mode:
        return ToolResult(status="success", content=f"You are in mode {mode!r} already.")
    why = deps.modes.refusal_reason(mode, call, info.name, deps.toolset.written_paths(call))
    return error_result("mode_restriction", why) if why else None


def record_call_decision(runtime: Runtime[Deps], key: CallKey, decision: DecisionRecord) -> None:
    """Record a decision on a call, along with the step that made it."""
    runtime.context.steps.record_decision(require_task_id(runtime, "A decision on a call"), key, decision)


def policy_decision_record(verdict: Verdict, mode: str) -> DecisionRecord:
    return DecisionRecord(
        by="policy",
        decision=verdict.decision,
        rule=verdict.rule,
        reason=verdict.reason,
        parts=verdict.parts,
        session=verdict.session,
        mode=mode,
    )


def record_argument_change(
    runtime: Runtime[Deps], key: CallKey, by: DecidedBy, new_attempt: int, who: str, reason: str = ""
) -> None:
    """Record that the call got other arguments: those of `new_attempt`."""
    what = DecisionRecord(by=by, decision="changed", who=who, reason=reason, becomes=new_attempt)
    record_call_decision(runtime, key, what)


def record_person_decision(
    runtime: Runtime[Deps], key: CallKey, request: str, answer: Answer, new_attempt: int = 0
) -> None:
    """Record a person's answer to the request with this key."""
    words = answer.text or answer.feedback or ""
    what = DecisionRecord(
        by="person",
        decision=answer.choice,
        who=answer.by,
        request=request,
        said=words,
        said_at=answer.at,
        becomes=new_attempt,
    )
    record_call_decision(runtime, key, what)


def shorten_hook_reason(outcome: HookOutcome) -> str:
    """The reason, never empty."""
    return outcome.reason.strip()[:_REASON] or "no reason given"


def format_hook_names(outcome: HookOutcome) -> str:
    """The hooks behind the decision: `hook lint`, `hooks lint, audit`."""
    word = "block" if outcome.stop is not None else outcome.decision
    named = [v.name for v in outcome.verdicts if v.decision == word and not v.warning]
    found = list(dict.fromkeys(named or [v.name for v in outcome.verdicts]))
    return f"{'hook' if len(found) == 1 else 'hooks'} {', '.join(found)}"


def record_hook_decision(
    runtime: Runtime[Deps], key: CallKey, event: str, outcome: HookOutcome, new_attempt: int = 0
) -> None:
    """Record the hooks' decision on the call, if any hook ran."""
    if not outcome.verdicts:
        return
    what = DecisionRecord(
        by="hook",
        decision="stop" if outcome.stop is not None else outcome.decision,
        who=format_hook_names(outcome),
        event=event,
        reason=outcome.stop or outcome.reason,
        hooks=outcome.verdicts,
        becomes=new_attempt,
    )
    record_call_decision(runtime, key, what)


def record_result_with_additions(
    deps: Deps,
    key: CallKey,
    replacement: str = "",
    *,
    args_changed_by_hook: bool = False,
    notes: str = "",
    stop: str = "",
) -> str:
    """Chain record with the result, or what replaces it (`replacement`), plus additions; empty: the plain result.

    `replacement` and `notes` are records. `stop`, why the run must end, goes into the record before it.
    """
    extra = [load_prompt("run/args_changed_by_hook").render()] if args_changed_by_hook else []
    extra += [deps.transcript.read_message(notes).text] if notes else []
    if not extra:
        return replacement
    call = deps.journal.read_call(key)
    known = deps.transcript.read_message(replacement) if replacement else None
    text = known.text if known else require_recorded_result(deps.journal, key).content
    status = known.status if known else None
    message = Message(role="tool", name=call.name, status=status, content="\n\n".join([text, *extra]))
    before = [Message(role="user", origin="hook", content=stop)] if stop else []
    return deps.transcript.append("", [*before, message])


def load_filled_forms(deps: Deps, state: ExecuteState) -> tuple[FilledForm, ...]:
    """Forms filled in so far, over all attempts."""
    record = state.get("given", "")
    lines = deps.transcript.read_message(record).text.split("\n") if record else ()
    return tuple(map(FilledForm.model_validate_json, lines))
