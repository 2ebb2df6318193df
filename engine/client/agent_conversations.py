"""agent_conversations: what somebody and another agent said in a folder, as a `history` that `main` takes.

Only texts are kept: calls of another program's tools mean nothing here. Secrets in them are masked."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.files.disk import read_file
from interlock.services.secrets.redaction import Redactor

_MOST_FILES = 2_000
_LONGEST_TITLE = 80
_LONGEST_LINE = 1_000_000
_NOT_SAID = ("<", "Caveat: ", "# AGENTS.md instructions", "[Request interrupted")
"""How texts begin that a program put there as the user's."""

Said = tuple[str, str]
"""Who said it, `user` or `assistant`, and what."""


class AgentConversation(NamedTuple):
    file: Path
    name: str
    """Of the conversation, among those of its program."""
    title: str
    history: list[dict[str, str]]


def find_agent_conversations(
    agent: str, home: Path, env: Mapping[str, str], folder: Path
) -> Iterator[AgentConversation]:
    """Yield the conversations of a program that were held in a folder or below it, the newest first."""
    if (finder := _FINDERS.get(agent)) is None:
        return
    redact = Redactor()
    for file, said in finder(home, env, folder):
        history = [{"role": role, "content": redact(text)} for role, text in _join_same_speaker(said)]
        if any(one["role"] == "user" for one in history):
            first = next(one["content"] for one in history if one["role"] == "user")
            yield AgentConversation(file, file.stem, " ".join(first.split())[:_LONGEST_TITLE], history)


def can_find_conversations(agent: str) -> bool:
    return agent in _FINDERS


def _join_same_speaker(said: Iterable[Said]) -> Iterator[Said]:
    role, texts = "", list[str]()
    for speaker, text in said:
        if speaker != role and texts:
            yield role, "\n\n".join(texts)
            texts = []
        role = speaker
        texts.append(text)
    if texts:
        yield role, "\n\n".join(texts)


Found = Iterator[tuple[Path, list[Said]]]


def _claude(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    projects = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser() / "projects"
    name = re.sub(r"[^A-Za-z0-9]", "-", str(folder))  # as Claude Code names a folder
    for file in _newest(projects.glob(f"{name}*/*.jsonl")):
        lines = [*_json_lines(file)]
        places = (one["cwd"] for one in lines if isinstance(one.get("cwd"), str))
        if _is_in(next(places, ""), folder):
            kept = (one for one in lines if not one.get("isSidechain") and not one.get("isMeta"))
            yield file, [*_said_in((_object(one.get("message")) for one in kept), ("text",))]


def _codex(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    sessions = Path(env.get("CODEX_HOME") or home / ".codex").expanduser() / "sessions"
    for file in _newest(sessions.rglob("rollout-*.jsonl")):
        first = next(_json_lines(file, only_first=True), dict[str, Any]())
        if _is_in(str(_object(first.get("payload")).get("cwd", "")), folder):
            lines = _json_lines(file)
            items = (_object(one.get("payload")) for one in lines if one.get("type") == "response_item")
            messages = (one for one in items if one.get("type") == "message")
            yield file, [*_said_in(messages, ("input_text", "output_text"))]


def _gemini(home: Path, _env: Mapping[str, str], folder: Path) -> Found:
    place = home / ".gemini/tmp" / hashlib.sha256(str(folder).encode()).hexdigest() / "chats"
    for file in _newest(place.glob("session-*.json")):
        whole = next(_json_lines(file, whole=True), dict[str, Any]())
        messages = cast("list[object]", found) if isinstance(found := whole.get("messages"), list) else []
        roles = {"user": "user", "gemini": "assistant"}
        named = ({**one, "role": roles.get(str(one.get("type")))} for one in map(_object, messages))
        yield file, [*_said_in(named, (None,))]


_FINDERS: Mapping[str, Callable[[Path, Mapping[str, str], Path], Found]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
}


def _said_in(messages: Iterable[Mapping[str, Any]], kinds: tuple[str | None, ...]) -> Iterator[Said]:
    """Yield the texts of messages. `kinds`: the types of parts that are text."""
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            continue
        parts = cast("list[object]", content) if isinstance(content, list) else []
        texts = [content] if isinstance(content, str) else []
        texts += [one.get("text") for one in map(_object, parts) if one.get("type") in kinds]
        said = "\n".join(text for text in texts if isinstance(text, str)).strip()
        if said and not (role == "user" and said.startswith(_NOT_SAID)):
            yield role, said


def _newest(files: Iterable[Path]) -> list[Path]:
    def changed(file: Path) -> float:
        try:
            return file.stat().st_mtime
        except OSError:
            return 0

    return sorted(files, key=changed, reverse=True)[:_MOST_FILES]


def _json_lines(file: Path, *, whole: bool = False, only_first: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file, one a line; what can't be read is left out, as the last line of a killed program."""
    try:
        if only_first:
            with file.open(encoding="utf-8", errors="replace") as lines:
                text = lines.readline(_LONGEST_LINE)
        else:
            text = read_file(file).decode("utf-8", "replace")
    except OSError:
        return
    for line in [text] if whole else text.splitlines():
        try:
            found: object = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield cast("dict[str, Any]", found)


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_in(place: str, folder: Path) -> bool:
    return bool(place) and Path(place).is_relative_to(folder)
