"""tools_batch: one batch of calls: decide, group, and collect results into the conversation."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from langgraph.runtime import Runtime

from interlock.nodes.check import build_first_test_edit_note, context_section_names
from interlock.nodes.context import format_memory_file
from interlock.nodes.plan import PLANNED, compute_plan_mode_changes, phase_during_review, record_mode_events
from interlock.nodes.tools_approval import require_tool_info
from interlock.nodes.tools_questions import check_claimed_plan_approval
from interlock.nodes.tools_results import load_call_and_result, result_for_model
from interlock.prompts import load_prompt
from interlock.state.calls import (
    CallKey,
    CallOutcome,
    CallView,
    ToolResult,
    cancelled_result,
    parse_call_outcome,
)
from interlock.state.context import MEMORY
from interlock.state.conversation import EFFECTS, LOOP_END, MISTAKES, Refusals, Refused, refusals_from_state
from interlock.state.deps import Deps
from interlock.state.messages import Message, TextPart
from interlock.state.names import WAIT
from interlock.state.node import node
from interlock.state.plan import PlanMode
from interlock.state.tools import CallKind, DecideSend, ExecuteSend, ToolsState

_WHO = {"policy_violation": "policy", "rejected": "person", "blocked_by_hook": "hook"}
"""Error type of a result → who refused."""

_PATHS = ("file_path", "dir_path", "path")
"""Arguments that contain a call's path."""

_Done = tuple[CallView, ToolResult]
"""A call and its result."""
_REASON = 300
"""Characters kept of a reason in state."""


def parse_batch_outcomes(state: ToolsState) -> dict[int, CallOutcome]:
    """Outcome of each call of the batch so far."""
    stored = {**state["decided"], **(state.get("finished") or {})}
    return {int(index): parse_call_outcome(outcome) for index, outcome in stored.items()}


@node(
    reads=("message", "count", "decided", "finished", "approval_mode", "plan_phase"),
    writes=("group", "kinds", "reading", "plan_phase"),
    moves=("exit_plan_mode", "no_review exit_plan_mode"),
)
async def next_group(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Contiguous reading calls run in parallel; a call that writes, executes or asks runs alone, in order."""
    outcomes = parse_batch_outcomes(state)
    open_calls = {i: outcomes[i]["attempt"] for i in range(state["count"]) if outcomes[i]["word"] == "ready"}
    if is_batch_cancelled(outcomes):
        return {"group": [], "kinds": {}}
    group: list[int] = []
    kinds: dict[str, CallKind] = {}
    reading = True
    for index, attempt in open_calls.items():
        key = CallKey(message=state["message"], index=index, attempt=attempt)
        call = runtime.context.journal.read_call(key)
        info, waits = require_tool_info(runtime.context, call), call.args.get(WAIT) is True
        if (info.alone or waits) and group:
            break
        group.append(index)
        kinds[str(index)] = "question" if info.risk == "question" else info.kind
        reading = reading and info.effect == "none"
        if info.alone or waits:
            break
    found: ToolsState = {"group": group, "kinds": kinds, "reading": reading}
    if "review" not in kinds.values() or state["approval_mode"] != "plan":
        return found
    if state.get("plan_phase") != (phase := phase_during_review(_plan_mode_from_state(state))):
        record_mode_events(runtime, ["exit_plan_mode"])
    return {**found, "plan_phase": phase}


def is_batch_cancelled(outcomes: Mapping[int, CallOutcome]) -> bool:
    """Return whether a person cancelled a call, and with it the batch."""
    return any(outcome["word"] == "cancel" for outcome in outcomes.values())


@node(reads=("message", "decided", "finished"), writes=("decided", "stop"), group="errors")
async def cancel_rest(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Answer the calls that haven't run."""
    deps = runtime.context
    gone: dict[str, CallOutcome] = {}
    for index, outcome in parse_batch_outcomes(state).items():
        if outcome["word"] == "ready":
            key = CallKey(message=state["message"], index=index, attempt=outcome["attempt"])
            text = load_prompt("run/call_cancelled").render(
                reason="the user cancelled the batch it belongs to"
            )
            deps.journal.record_result(key, deps.journal.read_call(key), cancelled_result(text))
            gone[str(index)] = {"word": "cancel", "attempt": outcome["attempt"]}
    return {"decided": gone, "stop": "cancelled by the user"}


_PLAN = ("approval_mode", "plan_phase", "plan_file", "approved_plan", "plan_steps")
_KEPT = ("head", "stop", "stopped_by", "refused", "noted_epoch", *_PLAN)


@node(
    reads=("message", "count", "decided", "finished", "skill_denies", "skill_allows", *_KEPT),
    writes=(
        "ended",
        "plan_text",
        "plan_verdict",
        "todos",
        "mode",
        "skill_denies",
        "skill_allows",
        *LOOP_END,
        *_KEPT,
    ),
    labels=("groups left", "cancelled", "done"),
    nondeterministic=True,
    moves=("allow_edits", PLANNED),
)
async def collect(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Only the join appends answers (`docs/internals.md#chains`), so that the chain never contains half a batch."""
    deps = runtime.context
    outcomes = parse_batch_outcomes(state)
    if is_batch_cancelled(outcomes) and not state.get("stop"):
        return {"label": "cancelled"}
    if any(outcome["word"] == "ready" for outcome in outcomes.values()):
        return {"label": "groups left"}
    records = [outcomes[index].get("record", "") for index in range(state["count"])]
    done = [
        load_call_and_result(deps.journal, state["message"], i, outcomes[i]) for i in range(state["count"])
    ]
    shown = [
        (call, result_for_model(deps.transcript, record, result))
        for record, (call, result) in zip(records, done, strict=True)
    ]
    names = [call.name for call in deps.transcript.read_message(state["message"]).tool_calls]
    answers = [
        _tool_answer_message(call, name, sent) for name, (call, sent) in zip(names, shown, strict=True)
    ]
    head = deps.transcript.append(state["head"], answers)
    for index, record in enumerate(deps.transcript.record_ids(head, len(shown))):
        if not records[index]:  # else the journal has the only copy
            key = CallKey(message=state["message"], index=index, attempt=outcomes[index]["attempt"])
            deps.journal.replace_result_text_with_record(key, record)
    note, epoch = build_ended_processes_note(deps, state.get("noted_epoch", 0))
    collected: ToolsState = {
        "label": "done",
        "head": deps.transcript.append(
            head,
            [*note, *_subdirectory_memory_messages(deps, head, done), *_test_edit_notes(deps, head, done)],
        ),
        "noted_epoch": epoch,
        "refused": update_refusals(refusals_from_state(state), shown, lambda name: _risk_of_tool(deps, name)),
    }
    for index, (_, result) in enumerate(done):
        key = CallKey(message=state["message"], index=index, attempt=outcomes[index]["attempt"])
        check_claimed_plan_approval(deps, key, result)
    moved, moves = compute_plan_mode_changes(
        _plan_mode_from_state(state), done, lambda name: _risk_of_tool(deps, name)
    )
    edits = _auto_edit_mode_update(deps, state)
    record_mode_events(runtime, [*moves, *(["allow_edits"] if edits and not moves else [])])
    ended: ToolsState = {**_record_newest_todos(deps, done), **_record_task_loop_outcome(deps, done)}
    if denied := _collect_from_skills("denied_tools", state.get("skill_denies", ""), ",", done):
        collected["skill_denies"] = denied
    if allowed := _collect_from_skills("allowed_tools", state.get("skill_allows", ""), "\n", done):
        collected["skill_allows"] = allowed
    return {**collected, **_stop_update(deps, state, outcomes, done), **edits, **moved, **ended}


def _auto_edit_mode_update(deps: Deps, state: ToolsState) -> ToolsState:
    """Another approval mode, if a person allowed all edits with one of these calls."""
    asked = (parse_call_outcome(outcome).get("approval") for outcome in state["decided"].values())
    answers = (deps.approvals.find_answer(key) for key in asked if key)
    wanted = any(answer is not None and answer.choice == "proceed_always_edits" for answer in answers)
    return {"approval_mode": "auto_edit"} if wanted and state["approval_mode"] == "default" else {}


def _subdirectory_memory_messages(deps: Deps, head: str, done: Sequence[_Done]) -> list[Message]:
    """Memory files of subdirectories these calls touched, once per conversation."""
    calls = (call for call, result in done if result.status == "success")
    paths = [str(path) for call in calls for name in _PATHS if (path := call.args.get(name))]
    if not paths:
        return []
    seen = context_section_names(head, deps)
    files = deps.context.load_subdirectory_memory_files(paths, {name.removeprefix(MEMORY) for name in seen})
    if not files:
        return []
    shown = tuple(TextPart(text=format_memory_file(f) + "\n", section=MEMORY + f.shown) for f in files)
    heading = TextPart(text=load_prompt("context/nearby").render() + "\n")
    return [Message(role="user", origin="context", content=(heading, *shown))]


def _test_edit_notes(deps: Deps, head: str, done: Sequence[_Done]) -> list[Message]:
    """What the model is told at its first change of a test that was there."""
    metas = [result.meta for _, result in done if result.status == "success" and "diff" in result.meta]
    changed = [meta for meta in metas if meta["diff"] and not str(meta["diff"]).startswith("--- /dev/null")]
    return build_first_test_edit_note(head, deps, (str(meta.get("path", "")) for meta in changed))


def _tool_answer_message(call: CallView, name: str, result: ToolResult) -> Message:
    """`name`: as used by the model."""
    content = (TextPart(text=result.content), *result.data) if result.data else result.content
    return Message(role="tool", tool_call_id=call.id, name=name, content=content, status=result.status)


def _stop_update(
    deps: Deps, state: ToolsState, outcomes: Mapping[int, CallOutcome], done: Sequence[_Done]
) -> ToolsState:
    """Why the run ends here, and for whom: a person, else the first hook to ask, before or after its call."""
    if state.get("stop"):
        return {"stop": state["stop"], "stopped_by": "person", "ended": "stopped"}
    for index, (_, result) in enumerate(done):
        if outcomes[index]["word"] == "stop":
            reason = deps.transcript.read(outcomes[index].get("record", ""))[0].text
            return {"stop": reason, "stopped_by": "hook", "ended": "stopped"}
        if result.stop:
            by_hook = (result.error or {}).get("type") == "stopped_by_hook"
            return {"stop": result.stop, "stopped_by": "hook" if by_hook else "person", "ended": "stopped"}
    return {"stop": "", "stopped_by": "", "ended": ""}


def _record_newest_todos(deps: Deps, done: Sequence[_Done]) -> ToolsState:
    """Copy the newest todo list from the conversation to state, so that compression can't lose it."""
    lists = [r.meta["todos"] for _, r in done if "todos" in r.meta and r.status == "success"]
    if not lists:
        return {}
    record = Message(role="tool", name="write_todos", content=json.dumps(lists[-1], ensure_ascii=False))
    return {"todos": deps.transcript.append("", [record])}


def _record_task_loop_outcome(deps: Deps, done: Sequence[_Done]) -> ToolsState:
    """What the task loop needs to decide how to continue."""
    types = {(result.error or {}).get("type", "") for _, result in done}
    end: ToolsState = {"completed": "", "subtask": "", "mistaken": not types.isdisjoint(MISTAKES)}
    for meta in (result.meta for _, result in done if result.status == "success"):
        if text := meta.get("completed"):
            message = Message(role="assistant", content=str(text))
            end["completed"] = deps.transcript.append("", [message])
        if task := meta.get("subtask"):
            message = Message(role="tool", content=json.dumps(task, ensure_ascii=False))
            end["subtask"] = deps.transcript.append("", [message])
        if mode := meta.get("switch_to_mode"):
            end["mode"] = str(mode)
    return end


def _collect_from_skills(key: str, before: str, separator: str, done: Sequence[_Done]) -> str:
    """What skills forbid or allow until the next prompt: those of before, and those read in this batch."""
    metas = (result.meta.get(key) for _, result in done if result.status == "success")
    found = [str(tool) for tools in metas if isinstance(tools, list) for tool in tools]
    return separator.join(dict.fromkeys(filter(None, [*before.split(separator), *found])))


def _plan_mode_from_state(state: ToolsState) -> PlanMode:
    return {
        "approval_mode": state["approval_mode"],
        "plan_phase": state.get("plan_phase", ""),
        "plan_file": state.get("plan_file", ""),
        "plan_steps": state.get("plan_steps", []),
    }


def _risk_of_tool(deps: Deps, name: str) -> str:
    info = deps.toolset.find_tool_info(name)
    return info.risk if info else ""


def make_decide_sends(state: ToolsState) -> Sequence[DecideSend]:
    """Decide all calls independently and concurrently, so that their questions are pending together."""
    mode, withheld = state["approval_mode"], state.get("withheld") or {}
    chosen = [i for i in range(state["count"]) if str(i) not in withheld]
    return [{"message": state["message"], "index": i, "approval_mode": mode} for i in chosen]


def has_effectful_group(state: ToolsState) -> bool:
    """Return whether the group has effects, which a resumed run finds by their decision: that is stored before them, as
    an edit already made wouldn't match again.
    """
    return not state["reading"]


def make_execute_sends(state: ToolsState) -> Sequence[ExecuteSend]:
    outcomes = parse_batch_outcomes(state)
    return [
        {
            "message": state["message"],
            "index": index,
            "attempt": outcomes[index]["attempt"],
            "approval": outcomes[index].get("approval", ""),
            "by_hook": outcomes[index].get("by_hook", False),
            "by_person": outcomes[index].get("by_person", False),
            "kind": state["kinds"][str(index)],
            "approval_mode": state["approval_mode"],
        }
        for index in state["group"]
    ]


def update_refusals(before: Refusals, batch: Sequence[_Done], risk_of: Callable[[str], str]) -> Refusals:
    """Refusals after a batch. A refused call with an effect is settled by a success of the same kind in a later batch,
    once the model knows of the refusal; one without effect, by any success. Questions need no answer. A person's no is
    no failure if another call of the batch had an effect or was of the same kind: they chose among them."""
    worked = {risk_of(call.name) for call, result in batch if _has_succeeded(result)}
    after = {kind: _settle_compensated_refusal(kind, refused, worked) for kind, refused in before.items()}
    for call, result in batch:
        for kind, found in _refusals_in_result(call, result, risk_of(call.name)):
            earlier = after.pop(kind, None)  # keeps the newest last
            chosen = found["who"] == "person" and not worked.isdisjoint({*EFFECTS, kind})
            after[kind] = _combine_refusals(earlier, {**found, "open": found["open"] and not chosen})
    return after


def _combine_refusals(earlier: Refused | None, found: Refused) -> Refused:
    """Combine two refusals; an open one is never hidden by a settled one."""
    if earlier is None:
        return found
    shown = earlier if earlier["open"] and not found["open"] else found
    return {**shown, "times": earlier["times"] + found["times"]}


def _settle_compensated_refusal(kind: str, refused: Refused, succeeded_kinds: set[str]) -> Refused:
    made_up = kind in succeeded_kinds if kind in EFFECTS else bool(succeeded_kinds)
    return {**refused, "open": refused["open"] and not made_up}


def _has_succeeded(result: ToolResult) -> bool:
    """A command with a non-zero exit code or killed by a signal doesn't count."""
    ended = (result.meta.get("exit_code") or 0, result.meta.get("signal"))
    return result.status == "success" and ended == (0, None)


def _refusals_in_result(call: CallView, result: ToolResult, kind: str) -> Iterator[tuple[str, Refused]]:
    """The call's own refusal, or those of its sub-agent."""
    inside = result.meta.get("refused")
    if isinstance(inside, dict):
        yield from cast(Refusals, inside).items()
    elif who := _WHO.get((result.error or {}).get("type", "")):
        yield kind, _make_refusal(call, result, who, kind)


def _make_refusal(call: CallView, result: ToolResult, who: str, kind: str) -> Refused:
    meta = result.meta
    by = meta.get("rule") or meta.get("by") or meta.get("hook") or ""
    why = meta.get("why") if "why" in meta else (result.error or {}).get("message")
    reason = " ".join(str(why or "").split())[:_REASON]
    needed = kind != "question"
    return {"tool": call.name, "who": who, "by": str(by), "reason": reason, "times": 1, "open": needed}


def build_ended_processes_note(deps: Deps, since_epoch: int) -> tuple[list[Message], int]:
    """The note, if there is news, and the drive up to which everything has been reported."""
    ended, epoch = deps.journal.list_ended_background_commands(since_epoch)
    if not ended:
        return [], epoch
    processes = "\n".join(f"- {call.args.get('command', call.name)}" for call in ended)
    text = load_prompt("run/processes_ended").render(processes=processes)
    return [Message(role="user", origin="context", content=text)], epoch
