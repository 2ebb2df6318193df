"""compress_snapshot: where to cut a conversation, the size of its parts, the snapshot of the old part, and what is kept
of it word for word, whatever the snapshot says.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple
from xml.sax.saxutils import escape

from interlock.prompts import load_prompt
from interlock.state.compress import GROWTH, CompressState
from interlock.state.context import MEMORY
from interlock.state.conversation import Sized
from interlock.state.deps import Deps
from interlock.state.messages import Message, TextPart, estimate_message_tokens
from interlock.state.text import estimate_tokens


class Cut(NamedTuple):
    """Drops the messages from the end of the opening up to `start`, except `carried`."""

    start: int
    """Index of the first message kept."""
    kept_request: int = -1
    """Index of an earlier message also kept: the request in progress; -1: none."""


class ConversationSize(NamedTuple):
    """A conversation's size relative to a model's window, in tokens."""

    tokens: int
    limit: int
    unsent: int = 0
    """Tokens of messages that the count of the last request doesn't include."""

    @property
    def is_nearly_full(self) -> bool:
        """Whether the next request may not fit."""
        return self.tokens + self.unsent > _CROWDED * self.limit

    def has_reached(self, threshold: float) -> bool:
        """Whether the size reaches `threshold`, a share of the limit."""
        return self.tokens >= threshold * self.limit


SECTIONS = (
    *("overall_goal", "active_constraints", "key_knowledge", "file_system_state", "artifact_trail"),
    *("recent_actions", "current_plan"),
)
_CROWDED = 0.9
"""Share of the window; what isn't counted yet is estimated."""
_BEGIN_TASKS = (None, "person", "agent")
"""Origins of user messages that say what to do."""
_ROOT = "state_snapshot"
_BEGIN, _END = f"<{_ROOT}>", f"</{_ROOT}>"
_CDATA_END = "]]>"
_MARKUP = (
    rf"</?(?:{'|'.join((_ROOT, *SECTIONS))})>"  # our tags
    r"|<!\[CDATA\[.*?\]\]>"
    r"|&(?:amp|lt|gt|quot|apos);"
    r"|([<&]|\]\]>)"  # any other markup: generics, shell operators, entities, declarations
)
_NO_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"
"""Characters XML 1.0 can't contain, not even escaped."""


class BadSnapshot(ValueError):  # noqa: N818 - a finding, told to the model
    """Why an answer contains no usable snapshot, in words a model can act on."""


def count_opening_messages(messages: Sequence[Message]) -> int:
    """Number of messages before the conversation proper: system prompt, environment, memory files' rules."""
    for index, message in enumerate(messages):
        if message.role != "system" and message.origin != "context":
            return index
    return len(messages)


def find_compression_cut(messages: Sequence[Message], preserved_share: float) -> Cut | None:
    """Cut at the first user message after `1 - preserve` of the characters; None if there is nothing to drop.

    Without such a message, everything is dropped if the last answer is complete. Else, in the middle of a long task,
    the cut comes before the first complete round of calls after that point, and the task's request is carried along.
    So it is where that message is a nudge or a hook's, which begins no task.
    """
    first = count_opening_messages(messages)
    sizes = [len(m.model_dump_json(exclude_defaults=True)) for m in messages]
    target = sum(sizes[first:]) * (1 - preserved_share)
    new = _index_after_earlier_snapshot(messages, first)
    before, waiting = 0, set[str]()
    request, last = -1, Cut(-1)
    in_task: Cut | None = None
    for index in range(first, len(messages)):
        message = messages[index]
        if not waiting and message.role == "user" and not _is_hook_addition(messages, index):
            begins = message.origin in _BEGIN_TASKS
            last = Cut(index, -1 if begins else request)
            if before >= target:
                return _discard_useless_cut(last, new)
            request = index if begins else request
        if not waiting and message.role == "assistant" and before >= target and in_task is None:
            in_task = Cut(index, request)
        waiting |= {call.id for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
        before += sizes[index]
    end = messages[-1] if messages else None
    if end is not None and end.role == "assistant" and not end.tool_calls:
        return _discard_useless_cut(Cut(len(messages)), new)
    return _discard_useless_cut(in_task, new) or _discard_useless_cut(last, new)


def _is_hook_addition(messages: Sequence[Message], index: int) -> bool:
    """Whether the message is a hook's addition right after a request, and not a request itself."""
    return messages[index].origin == "hook" and index > 0 and messages[index - 1].role == "user"


def messages_kept_by_cut(messages: Sequence[Message], cut: Cut) -> list[Message]:
    """The messages kept verbatim after the opening."""
    carried = [messages[cut.kept_request]] if cut.kept_request >= 0 else []
    return [*carried, *messages[cut.start :]]


def _discard_useless_cut(cut: Cut | None, first_droppable: int) -> Cut | None:
    """The cut, unless it drops nothing but an earlier snapshot."""
    if cut is None or cut.start - first_droppable - (cut.kept_request >= 0) <= 0:
        return None
    return cut


def _index_after_earlier_snapshot(messages: Sequence[Message], start: int) -> int:
    """Index behind an earlier snapshot, and behind the line that answers it."""
    if start == len(messages) or messages[start].origin != "snapshot":
        return start
    answered = messages[start + 1 : start + 2]
    return start + 1 + any(m.role == "assistant" and not m.tool_calls for m in answered)


def estimate_total_tokens(messages: Iterable[Message]) -> int:
    return sum(map(estimate_message_tokens, messages))


def measure_conversation_size(deps: Deps, state: Sized) -> ConversationSize:
    """Size as counted by the provider for the last request, else estimated; window of the model that would answer."""
    limit = deps.models.context_window(state.get("sticky_model") or deps.models.resolve_alias(state["model"]))
    history, known = deps.transcript.read(state["head"]), state.get("last_prompt_tokens")
    if not known:
        return ConversationSize(estimate_total_tokens(history), limit)
    return ConversationSize(known, limit, estimate_total_tokens(messages_after_last_answer(history)))


def messages_after_last_answer(history: Sequence[Message]) -> Sequence[Message]:
    """Messages after the last answer."""
    for index in range(len(history), 0, -1):
        if history[index - 1].role == "assistant":
            return history[index:]
    return history


def should_attempt_snapshot(state: CompressState) -> bool:
    """Whether to try: after a failure, only once the conversation has grown by 10 %, unless forced or necessary."""
    failed_at = state.get("compress_failed_at") or 0
    return (
        bool(state.get("force") or state.get("crowded"))
        or not failed_at
        or state["tokens"] >= failed_at * GROWTH
    )


def parse_snapshot(answer: str) -> dict[str, str]:
    """Section → text, of the last snapshot in the answer, without scratchpad and chatter. Raises `BadSnapshot`.

    All sections must be present; only the goal must be non-empty.
    """
    end = answer.rfind(_END)
    starts = [answer.rfind(_BEGIN, 0, max(end, 0)), answer.find(_BEGIN, 0, max(end, 0))]
    if end < 0 or starts[0] < 0:
        raise BadSnapshot(f"the answer holds no {_BEGIN}…{_END}")
    try:
        return _parse_snapshot_xml(answer[starts[0] : end + len(_END)])
    except BadSnapshot:
        if starts[0] == starts[1]:
            raise
    return _parse_snapshot_xml(answer[starts[1] : end + len(_END)])  # the last opening tag was only quoted


def _parse_snapshot_xml(snapshot: str) -> dict[str, str]:
    """Parse flat sections of text: no nesting, no duplicates. Declarations count as text, see `_plain`."""
    from xml.etree import ElementTree

    try:
        root = ElementTree.fromstring(_escape_foreign_markup(re.sub(_NO_XML, "\ufffd", snapshot)))
    except ElementTree.ParseError as error:
        raise BadSnapshot(f"the snapshot is not well-formed XML ({error})") from error
    texts: dict[str, str] = {}
    for section in root:
        for inner in section:
            raise BadSnapshot(f"<{inner.tag}> stands inside <{section.tag}>")
        if section.tag in (_ROOT, *texts):
            raise BadSnapshot(f"<{section.tag}> is there twice")
        texts[section.tag] = (section.text or "").strip()
    if not texts.get("overall_goal"):
        raise BadSnapshot("<overall_goal> is missing or empty")
    return {name: texts.get(name, "") for name in SECTIONS}


def format_snapshot_xml(sections: dict[str, str]) -> str:
    """The snapshot as XML, with texts escaped where needed."""
    inner = "\n".join(
        f"<{name}>\n{escape(sections[name])}\n</{name}>" if sections[name] else f"<{name}/>"
        for name in SECTIONS
    )
    return f"<{_ROOT}>\n{inner}\n</{_ROOT}>"


def _escape_foreign_markup(snapshot: str) -> str:
    """Our tags and text. Stop looking for CDATA sections after the last end of one, to stay linear."""
    last = snapshot.rfind(_CDATA_END) + len(_CDATA_END) if _CDATA_END in snapshot else 0
    parts = (snapshot[:last], snapshot[last:].replace("<![CDATA[", "&lt;![CDATA["))
    return "".join(re.sub(_MARKUP, _escape_if_foreign, part, flags=re.DOTALL) for part in parts)


def _escape_if_foreign(match: re.Match[str]) -> str:
    return escape(match[0]) if match[1] else match[0]


_LONGEST = 1_000
"""Characters of one text; from its middle, more are left out."""
_SHARE = 20
"""All texts of a kind take at most this part of the window."""
_ARGS = 300


def collect_requests_rejections_and_skills(dropped: Sequence[Message], window_tokens: int) -> list[TextPart]:
    """Parts of the snapshot's message, for a window of `window_tokens` tokens: the person's own words, what they
    rejected, and the skills in use; those that an earlier snapshot kept, too.
    """
    parts: list[TextPart] = []
    for name, found in _KINDS.items():
        texts = _first_and_newest_texts(
            [*_texts_from_earlier_snapshot(dropped, name), *found(dropped)], window_tokens // _SHARE
        )
        if texts:
            parts.append(TextPart(text=f"\n\n{load_prompt(f'compress/{name}').render()}\n"))
            parts += [TextPart(text=f"- {text}\n", section=name) for text in texts]
    return parts


def merge_dropped_memory_files(dropped: Iterable[Message]) -> list[Message]:
    """The memory files that the dropped part was told of on its way; they go to the opening, which is never dropped."""
    found = {
        part.section: part
        for message in dropped
        if message.origin == "context"
        for part in message.content
        if isinstance(part, TextPart) and (part.section or "").startswith(MEMORY)
    }
    if not found:
        return []
    heading = TextPart(text=load_prompt("context/nearby").render() + "\n")
    return [Message(role="user", origin="context", content=(heading, *found.values()))]


def _texts_from_earlier_snapshot(dropped: Iterable[Message], section: str) -> list[str]:
    """Texts that an earlier compression kept."""
    parts = (part for message in dropped if message.origin == "snapshot" for part in message.content)
    texts = (part.text for part in parts if isinstance(part, TextPart) and part.section == section)
    return [text.removeprefix("- ").removesuffix("\n") for text in texts]


def _first_and_newest_texts(texts: Sequence[str], max_tokens: int) -> list[str]:
    """Each text once: the first, which begins the work, and as many of the newest as fit."""
    texts = list(dict.fromkeys(texts))
    room = max_tokens - sum(map(estimate_tokens, texts[:1]))
    newest: list[str] = []
    for text in reversed(texts[1:]):
        room -= estimate_tokens(text)
        if room < 0:
            break
        newest.insert(0, text)
    return [*texts[:1], *newest]


def _collect_user_texts(dropped: Sequence[Message]) -> list[str]:
    said = (m.text for m in dropped if m.role == "user" and m.origin in (None, "person"))
    return [_shorten_and_indent(text) for text in said if text.strip()]


def _collect_rejected_calls(dropped: Sequence[Message]) -> list[str]:
    before = load_prompt("run/call_rejected").render(feedback="")
    silent = load_prompt("run/call_rejected_silently").render()
    calls = {call.id: call for message in dropped for call in message.tool_calls}
    found: list[str] = []
    for message in dropped:
        call = calls.get(message.tool_call_id or "")
        if call is None or not message.text.startswith((before, silent)):
            continue
        args = json.dumps(call.args, ensure_ascii=False)
        why = message.text.removeprefix(before) if message.text.startswith(before) else ""
        found.append(_shorten_and_indent(f"{call.name} {args[:_ARGS]}" + (f": {why}" if why else "")))
    return found


def _collect_skill_names(dropped: Sequence[Message]) -> list[str]:
    done = {m.tool_call_id for m in dropped if m.status == "success"}
    calls = (call for message in dropped for call in message.tool_calls if call.id in done)
    return [str(call.args.get("name")) for call in calls if call.name == "activate_skill"]


_KINDS: dict[str, Callable[[Sequence[Message]], list[str]]] = {
    "words": _collect_user_texts,
    "rejected": _collect_rejected_calls,
    "skills": _collect_skill_names,
}


def _shorten_and_indent(text: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]} […] {text[-half:]}"
    return text.replace("\n", "\n  ")
