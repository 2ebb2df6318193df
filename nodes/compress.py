"""compress: replace the old part of a conversation with a checked snapshot of it."""

import asyncio
import json
from typing import Any

from langgraph.runtime import Runtime

from interlock.nodes.compress_snapshot import (
    BadSnapshot,
    ConversationSize,
    Cut,
    collect_requests_rejections_and_skills,
    count_opening_messages,
    estimate_total_tokens,
    find_compression_cut,
    format_snapshot_xml,
    measure_conversation_size,
    merge_dropped_memory_files,
    messages_kept_by_cut,
    parse_snapshot,
    should_attempt_snapshot,
)
from interlock.nodes.helper_model import ask_for_text_record
from interlock.nodes.hooks import fire_hooks, hook_node
from interlock.prompts import load_prompt, render_prompt
from interlock.state.compress import KEPT_LINES, KEPT_OUTPUT_TOKENS, CompressState
from interlock.state.deps import Deps, Transcript
from interlock.state.events import ChatCompressed, ErrorEvent
from interlock.state.messages import Message, TextPart, curate_history
from interlock.state.node import node
from interlock.state.run import is_hooked
from interlock.state.text import estimate_tokens

PRESERVE = 0.3
"""Share of the characters that is kept (gemini-cli: the same)."""
_TIMEOUT_S = 300.0
"""Timeout in seconds; reading a half-full window takes a while."""
_ATTEMPTS = 3
_MOST_CALLS, _ARGS = 50, 120
"""Calls, and characters of their arguments, that are listed where there is no summary."""
_UNSUMMARISED = "The conversation's older part was dropped without a summary: the model gave none."
_COUNTED = ("compress_status", "tokens_before", "tokens_after")


@node(
    reads=(
        *("head", "model", "sticky_model", "last_prompt_tokens", "force", "token_limit", "threshold"),
        *("compress_failed_at", "hooked"),
    ),
    writes=(*_COUNTED, "tokens", "token_limit", "crowded", "base"),
    labels=("due", "hooked", "below"),
)
async def check_threshold(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    """Whether the conversation is long enough; if forced, any non-empty one is."""
    deps = runtime.context
    known = measure_conversation_size(deps, state)
    known = ConversationSize(known.tokens, state.get("token_limit") or known.limit, known.unsent)
    threshold = state.get("threshold") or deps.settings.model.compression_threshold
    due = state.get("force") or known.is_nearly_full or known.has_reached(threshold)
    if due and not any(m.role != "system" for m in curate_history(deps.transcript.read(state["head"]))):
        due = False
    # Hooks are only asked about attempts at a snapshot; older outputs are shortened without asking.
    asked = is_hooked(state, "PreCompress") and should_attempt_snapshot(
        {**state, "tokens": known.tokens, "crowded": known.is_nearly_full}
    )
    return {
        "tokens": known.tokens,
        "token_limit": known.limit,
        "crowded": known.is_nearly_full,
        "label": "below" if not due else "hooked" if asked else "due",
        "compress_status": "noop",
        "base": state["head"],
        "tokens_before": known.tokens,
        "tokens_after": known.tokens,
    }


@hook_node(reads=("tokens", "force"), writes=("compress_failed_at",), labels=("go on", "put off"))
async def pre_compress(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    """A hook's refusal only postpones this compression, like a failed attempt."""
    trigger = "manual" if state.get("force") else "auto"
    outcome = await fire_hooks("PreCompress", {"trigger": trigger}, state, runtime, subject=trigger)
    if outcome.stop is None and outcome.decision != "block":
        return {"label": "go on"}
    return {**_failure_update_unless_forced(state), "label": "put off"}


@node(
    reads=("tokens", "token_limit", "force", "crowded", "compress_failed_at", "head"),
    writes=(*_COUNTED, "base", "head", "last_prompt_tokens"),
    labels=("attempt", "failed before"),
)
async def truncate_old_outputs(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    """Keep the newest 50,000 tokens of output whole, or as many as fill half of a smaller window. After a failed
    attempt, this is all that is done for now."""
    deps = runtime.context
    messages = deps.transcript.read(state["head"])
    room = min(KEPT_OUTPUT_TOKENS, state["token_limit"] // 2)
    shorter: dict[int, Message] = {}
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.role != "tool":
            continue
        tokens = estimate_tokens(message.text)
        if tokens <= room:
            room -= tokens
        elif short := await _save_and_shorten_output(message, deps):
            shorter[index] = short
    base = state["head"]
    if shorter:
        replaced = [shorter.get(i, m) for i, m in enumerate(messages)]
        base = deps.transcript.append("", replaced, continues=state["head"])
    if should_attempt_snapshot(state):
        return {"base": base, "label": "attempt"}
    return {
        "base": base,
        "label": "failed before",
        **build_truncation_update(state["head"], base, deps.transcript),
    }


async def _save_and_shorten_output(message: Message, deps: Deps) -> Message | None:
    """The shortened output, or None if it wouldn't be shorter. Its file is on disk before anything refers to it."""
    lines = message.text.splitlines()[-KEPT_LINES:]
    end = "\n".join(lines)[-deps.settings.tools.truncate_at :]
    if len(end) >= len(message.text) or message.text.startswith("[Older output, shortened:"):
        return None
    path = await asyncio.to_thread(deps.outputs.save_bytes, message.text.encode())
    text = load_prompt("compress/old_output").render(path=str(path), lines=str(len(lines)), end=end)
    if len(text) >= len(message.text):
        return None
    return message.model_copy(update={"content": text})


def build_truncation_update(head: str, truncated_head: str, transcript: Transcript) -> CompressState:
    """Return the conversation with its older outputs shortened, if any were, as all that is done."""
    if truncated_head == head:
        return {"compress_status": "noop"}
    return {
        "head": truncated_head,
        "last_prompt_tokens": 0,
        "compress_status": "truncated",
        "tokens_before": estimate_total_tokens(transcript.read(head)),
        "tokens_after": estimate_total_tokens(transcript.read(truncated_head)),
    }


@node(
    reads=("head", "base", "preserve"),
    writes=(*_COUNTED, "head", "last_prompt_tokens", "split", "carried"),
    labels=("found", "nothing to drop"),
)
async def split(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    transcript = runtime.context.transcript
    cut = find_compression_cut(transcript.read(state["base"]), state.get("preserve", PRESERVE))
    if cut is None:
        return {
            "label": "nothing to drop",
            **build_truncation_update(state["head"], state["base"], transcript),
        }
    return {"split": cut.start, "carried": cut.kept_request, "label": "found"}


_PART = ("head", "base", "split", "token_limit")


@node(reads=_PART, writes=("draft", "checked"), labels=("answered", "failed"))
async def summarise(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    record = await _ask_for_snapshot_record(
        state, [_nudge_message(load_prompt("compress/summarise").render())], runtime
    )
    return {"draft": record, "checked": "", "label": "answered" if record else "failed"}


@node(reads=(*_PART, "draft"), writes=("checked",))
async def verify(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    """The model also hears what is wrong with the draft's form. Without an answer the draft stands."""
    text = runtime.context.transcript.read_message(state["draft"]).text
    task = [
        _nudge_message(load_prompt("compress/summarise").render()),
        Message(role="assistant", content=text),
        _nudge_message(load_prompt("compress/verify").render(problem=_describe_snapshot_problem(text))),
    ]
    return {"checked": await _ask_for_snapshot_record(state, task, runtime)}


async def _ask_for_snapshot_record(
    state: CompressState, task_messages: list[Message], runtime: Runtime[Deps]
) -> str:
    """The part to drop is sent as it was if it fits the window, else with its older outputs shortened."""
    transcript, split = runtime.context.transcript, state["split"]
    messages = transcript.read(state["head"])
    if estimate_total_tokens(messages[:split]) > state["token_limit"]:
        messages = transcript.read(state["base"])
    part = curate_history(messages[count_opening_messages(messages) : split])
    system = Message(role="system", content=load_prompt("compress/system").render())
    asked = [system, *part, *task_messages]
    return await ask_for_text_record(runtime, "compressor", asked, state["base"], _TIMEOUT_S, _ATTEMPTS)


def _nudge_message(text: str) -> Message:
    return Message(role="user", origin="nudge", content=text)


def _describe_snapshot_problem(text: str) -> str:
    try:
        parse_snapshot(text)
    except BadSnapshot as problem:
        return f"As it stands it can't be used: {problem}."
    return ""


@node(
    reads=(
        *("head", "base", "split", "carried", "tokens", "token_limit", "threshold", "crowded", "force"),
        *("draft", "checked", "todos", "plan_steps"),
    ),
    writes=(*_COUNTED, "head", "last_prompt_tokens", "compress_failed_at", "snapshot"),
    labels=("compressed", "truncated", "empty", "inflated"),
)
async def accept(state: CompressState, runtime: Runtime[Deps]) -> CompressState:
    """The new chain refers to the old one. A rejected attempt changes nothing and is remembered unless forced; but
    where the next request may not fit, the old part goes without a summary."""
    transcript = runtime.context.transcript
    before = estimate_total_tokens(transcript.read(state["head"]))
    snapshot = _usable_snapshot_xml(state, runtime.context)
    if not snapshot and not state.get("crowded"):
        return {"label": "empty", **_rejected_attempt_update(state, "failed_empty", before, before)}
    messages = _build_compressed_conversation(state, runtime.context, snapshot)
    after = estimate_total_tokens(messages)
    if after > before:
        return {"label": "inflated", **_rejected_attempt_update(state, "failed_inflated", before, after)}
    head = transcript.append("", messages, continues=state["head"])
    runtime.stream_writer(ChatCompressed(before=before, after=after))
    if not snapshot:
        runtime.stream_writer(ErrorEvent(severity="warning", message=_UNSUMMARISED))
    label = "compressed" if snapshot else "truncated"
    return {
        "label": label,
        "head": head,
        "last_prompt_tokens": 0,
        "compress_failed_at": _tokens_if_still_over_threshold(state, runtime.context, before - after),
        "compress_status": label,
        "snapshot": snapshot and transcript.append("", [Message(role="assistant", content=snapshot)]),
        "tokens_before": before,
        "tokens_after": after,
    }


def _tokens_if_still_over_threshold(state: CompressState, deps: Deps, saved_tokens: int) -> int:
    """The tokens left, if they would be compressed again at once: not before they have grown. Else 0."""
    left = ConversationSize(state["tokens"] - saved_tokens, state["token_limit"])
    threshold = state.get("threshold") or deps.settings.model.compression_threshold
    return left.tokens if left.has_reached(threshold) else 0


def _rejected_attempt_update(
    state: CompressState, status: str, tokens_before: int, tokens_after: int
) -> CompressState:
    return {
        **_failure_update_unless_forced(state),
        "compress_status": status,
        "tokens_before": tokens_before,
        "tokens_after": tokens_after,
    }


def _failure_update_unless_forced(state: CompressState) -> CompressState:
    """A failed attempt isn't retried soon, unless it was forced."""
    return {} if state.get("force") else {"compress_failed_at": max(state["tokens"], 1)}


def _usable_snapshot_xml(state: CompressState, deps: Deps) -> str:
    """The checked snapshot, else the draft, as escaped XML; empty: neither is usable."""
    for record in (state["checked"], state["draft"]):
        if record:
            try:
                return format_snapshot_xml(parse_snapshot(deps.transcript.read_message(record).text))
            except BadSnapshot:
                continue
    return ""


def _build_compressed_conversation(state: CompressState, deps: Deps, snapshot: str) -> list[Message]:
    """The opening verbatim, the snapshot with the run's own facts, and the messages kept verbatim."""
    messages = deps.transcript.read(state["base"])
    rest = messages_kept_by_cut(messages, Cut(state["split"], state["carried"]))
    opening = messages[: count_opening_messages(messages)]
    dropped = [
        m for at, m in enumerate(messages[: state["split"]]) if at >= len(opening) and at != state["carried"]
    ]
    about = (
        load_prompt("compress/snapshot").render(snapshot=snapshot)
        if snapshot
        else _format_dropped_calls_note(dropped)
    )
    text = "\n\n".join([about, *_render_plan_todos_and_requests(state, deps)])
    own = collect_requests_rejections_and_skills(dropped, state["token_limit"])
    content = (TextPart(text=text), *own) if own else text
    snapshot_messages = [Message(role="user", origin="snapshot", content=content)]
    if not rest or rest[0].role == "user":
        snapshot_messages.append(
            Message(role="assistant", content=load_prompt("compress/acknowledged").render())
        )
    return [*opening, *merge_dropped_memory_files(dropped), *snapshot_messages, *rest]


def _format_dropped_calls_note(dropped: list[Message]) -> str:
    calls = [call for message in dropped for call in message.tool_calls][-_MOST_CALLS:]
    lines = (f"- {call.name} {json.dumps(call.args, ensure_ascii=False)[:_ARGS]}" for call in calls)
    return load_prompt("compress/unsummarised").render(calls="\n".join(lines))


def _render_plan_todos_and_requests(state: CompressState, deps: Deps) -> list[str]:
    """Facts the conversation needn't remember: the plan, the todo list, and what is pending with the user."""
    parts: list[str] = []
    if plan := [
        f"- [{'x' if step['done'] else ' '}] {step['text']}" for step in state.get("plan_steps") or []
    ]:
        parts.append(render_prompt("compress/plan", steps="\n".join(plan)))
    if state.get("todos"):
        todos: list[dict[str, Any]] = json.loads(deps.transcript.read_message(state["todos"]).text)
        lines = [f"- [{todo['status']}] {todo['description']}" for todo in todos]
        parts += [render_prompt("compress/todos", todos="\n".join(lines))] if lines else []
    if waiting := deps.approvals.list_open_requests():
        lines = [f"- {r.call.name} {json.dumps(r.call.args, ensure_ascii=False)}" for r in waiting]
        parts.append(render_prompt("compress/open_requests", requests="\n".join(lines)))
    return parts
