"""collect: join a group; with the last one, put every answer into the conversation, in the calls' order."""

import json
from collections.abc import Sequence

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.plan._track import Track, track
from interlock.nodes.tools._ended import ended_processes
from interlock.nodes.tools._refused import refusals_after
from interlock.nodes.tools._results import as_sent, recorded_of
from interlock.nodes.tools._verdicts import attempt_of, instead_of, is_ready, is_stop
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.plan import PlanStep
from interlock.state.refused import Refusals, refusals_in
from interlock.state.tools import Verdicts


class CollectIn(TypedDict, total=False):
    head: str
    message: str
    count: int
    decided: Verdicts
    finished: Verdicts
    stop: str
    stopped_by: str
    refused: Refusals
    approval_mode: str
    plan_phase: str
    plan_file: str
    approved_plan: bool
    plan_steps: list[PlanStep]
    noted_epoch: int


class CollectOut(TypedDict, total=False):
    head: str
    stop: str
    stopped_by: str
    refused: Refusals
    approval_mode: str
    plan_phase: str
    plan_file: str
    approved_plan: bool
    plan_steps: list[PlanStep]
    plan_verdict: str
    todos: str
    noted_epoch: int


async def collect(state: CollectIn, runtime: Runtime[Deps]) -> CollectOut:
    """Only the join appends answers (`engine.md` 9), so that the chain never holds half a batch."""
    deps = runtime.context
    verdicts = {**state["decided"], **(state.get("finished") or {})}
    if any(map(is_ready, verdicts.values())):
        return {}
    calls = deps.transcript.message(state["message"]).tool_calls
    answers: list[Message] = []
    done: list[tuple[CallView, ToolResult]] = []
    told: list[tuple[CallView, ToolResult]] = []
    for index, call in enumerate(calls):
        verdict = verdicts[str(index)]
        view, result = recorded_of(deps.journal, state["message"], index, verdict)
        sent = as_sent(deps.transcript, verdict, result)
        done.append((view, result))
        told.append((view, sent))
        answers.append(
            Message(
                role="tool", tool_call_id=call.id, name=call.name, content=sent.content, status=sent.status
            )
        )
    head = deps.transcript.append(state["head"], answers)
    for index, record in enumerate(deps.transcript.ids(head, len(answers))):
        attempt = attempt_of(verdicts[str(index)])
        if instead_of(verdicts[str(index)]):
            continue  # the journal alone holds all of it
        deps.journal.settle(CallKey(message=state["message"], index=index, attempt=attempt), record)
    moved = track(_plan_of(state), done, lambda name: _risk(deps, name))
    note, epoch = ended_processes(deps, state.get("noted_epoch", 0))
    head = deps.transcript.append(head, note)
    stop = _stop(deps, state, [verdicts[str(i)] for i in range(len(calls))], done)
    refused = refusals_after(refusals_in(state), told, lambda name: _risk(deps, name))
    return {"head": head, **stop, "refused": refused, "noted_epoch": epoch, **moved, **_todos(deps, done)}


def _stop(
    deps: Deps, state: CollectIn, verdicts: Sequence[str], done: Sequence[tuple[CallView, ToolResult]]
) -> CollectOut:
    """Why the run ends here, and who wants it: a person, then the first hook that said so, before or after its call."""
    if state.get("stop"):
        return {"stop": state["stop"], "stopped_by": "person"}
    for verdict, (_, result) in zip(verdicts, done, strict=True):
        if is_stop(verdict):
            return {"stop": deps.transcript.read(instead_of(verdict))[0].text, "stopped_by": "hook"}
        if result.stop:
            by_hook = (result.error or {}).get("type") == "stopped_by_hook"
            return {"stop": result.stop, "stopped_by": "hook" if by_hook else "person"}
    return {"stop": "", "stopped_by": ""}


def _todos(deps: Deps, done: Sequence[tuple[CallView, ToolResult]]) -> CollectOut:
    """The newest list of steps leaves the conversation for the state: compression can't lose it."""
    lists = [r.meta["todos"] for c, r in done if c.name == "write_todos" and r.status == "success"]
    if not lists:
        return {}
    record = Message(role="tool", name="write_todos", content=json.dumps(lists[-1], ensure_ascii=False))
    return {"todos": deps.transcript.append("", [record])}


def _plan_of(state: CollectIn) -> Track:
    return {
        "approval_mode": state["approval_mode"],
        "plan_phase": state.get("plan_phase", ""),
        "plan_file": state.get("plan_file", ""),
        "plan_steps": state.get("plan_steps", []),
    }


def _risk(deps: Deps, name: str) -> str:
    info = deps.toolset.info(name)
    return info.risk if info else ""
