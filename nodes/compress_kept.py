"""compress_kept: what a compression keeps word for word, whatever its snapshot says: the person's own words, what the
person rejected, the skills in use, and the memory files of sub-directories.

Those of earlier compressions are parts of the snapshot's message; memory files go to the opening of the conversation,
which is never dropped.
"""

import json
from collections.abc import Callable, Iterable, Sequence

from interlock.prompts import load
from interlock.state.context import MEMORY
from interlock.state.messages import Message, TextPart
from interlock.state.text import estimate_tokens

_LONGEST = 1_000
"""Characters of one text; from its middle, more are left out."""
_SHARE = 20
"""All texts of a kind take at most this part of the window."""
_ARGS = 300


def kept_parts(dropped: Sequence[Message], limit: int) -> list[TextPart]:
    """Parts of the snapshot's message, for a window of `limit` tokens."""
    parts: list[TextPart] = []
    for name, found in _KINDS.items():
        texts = _fitting([*_earlier(dropped, name), *found(dropped)], limit // _SHARE)
        if texts:
            parts.append(TextPart(text=f"\n\n{load(f'compress/{name}').text()}\n"))
            parts += [TextPart(text=f"- {text}\n", section=name) for text in texts]
    return parts


def memory_of(dropped: Iterable[Message]) -> list[Message]:
    """The memory files that the dropped part was told of on its way."""
    found = {
        part.section: part
        for message in dropped
        if message.origin == "context"
        for part in message.content
        if isinstance(part, TextPart) and (part.section or "").startswith(MEMORY)
    }
    if not found:
        return []
    heading = TextPart(text=load("context/nearby").text() + "\n")
    return [Message(role="user", origin="context", content=(heading, *found.values()))]


def _earlier(dropped: Iterable[Message], name: str) -> list[str]:
    """Texts that an earlier compression kept."""
    parts = (part for message in dropped if message.origin == "snapshot" for part in message.content)
    texts = (part.text for part in parts if isinstance(part, TextPart) and part.section == name)
    return [text.removeprefix("- ").removesuffix("\n") for text in texts]


def _fitting(texts: Sequence[str], most: int) -> list[str]:
    """Each text once: the first, which begins the work, and as many of the newest as fit."""
    texts = list(dict.fromkeys(texts))
    room = most - sum(map(estimate_tokens, texts[:1]))
    newest: list[str] = []
    for text in reversed(texts[1:]):
        room -= estimate_tokens(text)
        if room < 0:
            break
        newest.insert(0, text)
    return [*texts[:1], *newest]


def _words(dropped: Sequence[Message]) -> list[str]:
    said = (m.text for m in dropped if m.role == "user" and m.origin in (None, "person"))
    return [_indented(text) for text in said if text.strip()]


def _rejected(dropped: Sequence[Message]) -> list[str]:
    before = load("run/call_rejected").text(feedback="")
    silent = load("run/call_rejected_silently").text()
    calls = {call.id: call for message in dropped for call in message.tool_calls}
    found: list[str] = []
    for message in dropped:
        call = calls.get(message.tool_call_id or "")
        if call is None or not message.text.startswith((before, silent)):
            continue
        args = json.dumps(call.args, ensure_ascii=False)
        why = message.text.removeprefix(before) if message.text.startswith(before) else ""
        found.append(_indented(f"{call.name} {args[:_ARGS]}" + (f": {why}" if why else "")))
    return found


def _skills(dropped: Sequence[Message]) -> list[str]:
    done = {m.tool_call_id for m in dropped if m.status == "success"}
    calls = (call for message in dropped for call in message.tool_calls if call.id in done)
    return [str(call.args.get("name")) for call in calls if call.name == "activate_skill"]


_KINDS: dict[str, Callable[[Sequence[Message]], list[str]]] = {
    "words": _words,
    "rejected": _rejected,
    "skills": _skills,
}


def _indented(text: str) -> str:
    text = text.strip()
    if len(text) > _LONGEST:
        half = _LONGEST // 2
        text = f"{text[:half]} […] {text[-half:]}"
    return text.replace("\n", "\n  ")
