"""accept: put the snapshot in place of what it stands for, if it is one and makes the conversation smaller."""

import json
from typing import Any

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.compress._sizes import tokens_of
from interlock.nodes.compress._snapshot import BadSnapshot, sections_of, xml_of
from interlock.nodes.compress._split import Cut, kept, opening_length
from interlock.prompts import load, render
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.plan import PlanStep
from interlock.state.turn_events import ChatCompressed


class AcceptIn(TypedDict, total=False):
    head: str
    base: str
    split: int
    carried: int
    tokens: int
    force: bool
    draft: str
    checked: str
    todos: str
    plan_steps: list[PlanStep]


class AcceptOut(TypedDict, total=False):
    head: str
    last_prompt_tokens: int
    compress_failed_at: int
    compress_status: str
    snapshot: str
    tokens_before: int
    tokens_after: int


async def accept(state: AcceptIn, runtime: Runtime[Deps]) -> AcceptOut:
    """The new chain names the old one. A refused attempt changes nothing and is remembered, unless it was forced."""
    transcript = runtime.context.transcript
    before = tokens_of(transcript.read(state["head"]))
    snapshot = _snapshot(state, runtime.context)
    if not snapshot:
        return _refused(state, "failed_empty", before, before)
    messages = _conversation(state, runtime.context, snapshot)
    after = tokens_of(messages)
    if after > before:
        return _refused(state, "failed_inflated", before, after)
    head = transcript.append("", messages, continues=state["head"])
    runtime.stream_writer(ChatCompressed(before=before, after=after))
    return {
        "head": head,
        "last_prompt_tokens": 0,
        "compress_failed_at": 0,
        "compress_status": "compressed",
        "snapshot": transcript.append("", [Message(role="assistant", content=snapshot)]),
        "tokens_before": before,
        "tokens_after": after,
    }


def _refused(state: AcceptIn, status: str, before: int, after: int) -> AcceptOut:
    update: AcceptOut = {"compress_status": status, "tokens_before": before, "tokens_after": after}
    return update if state.get("force") else {**update, "compress_failed_at": max(state["tokens"], 1)}


def _snapshot(state: AcceptIn, deps: Deps) -> str:
    """The checked snapshot, else the draft, as XML of ours; empty: neither can be used."""
    for record in (state["checked"], state["draft"]):
        if record:
            try:
                return xml_of(sections_of(deps.transcript.message(record).text))
            except BadSnapshot:
                continue
    return ""


def _conversation(state: AcceptIn, deps: Deps, snapshot: str) -> list[Message]:
    """Opening word for word, snapshot with what the run itself knows, what is kept word for word."""
    messages = deps.transcript.read(state["base"])
    rest = kept(messages, Cut(state["split"], state["carried"]))
    parts = [load("compress/snapshot").text(snapshot=snapshot), *_outside(state, deps)]
    told = [Message(role="user", origin="snapshot", content="\n\n".join(parts))]
    if not rest or rest[0].role == "user":
        told.append(Message(role="assistant", content=load("compress/acknowledged").text()))
    return [*messages[: opening_length(messages)], *told, *rest]


def _outside(state: AcceptIn, deps: Deps) -> list[str]:
    """What is not the conversation's to remember: the plan, the list of steps, and what waits for the user."""
    parts: list[str] = []
    if plan := [
        f"- [{'x' if step['done'] else ' '}] {step['text']}" for step in state.get("plan_steps") or []
    ]:
        parts.append(render("compress/plan", steps="\n".join(plan)))
    if state.get("todos"):
        todos: list[dict[str, Any]] = json.loads(deps.transcript.message(state["todos"]).text)
        lines = [f"- [{todo['status']}] {todo['description']}" for todo in todos]
        parts += [render("compress/todos", todos="\n".join(lines))] if lines else []
    if waiting := deps.approvals.open_requests():
        lines = [f"- {r.call.name} {json.dumps(r.call.args, ensure_ascii=False)}" for r in waiting]
        parts.append(render("compress/open_requests", requests="\n".join(lines)))
    return parts
