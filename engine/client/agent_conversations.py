"""agent_conversations: what somebody and another agent said in a folder, as a `history` that `main` takes.

Only texts are kept: calls of another program's tools mean nothing here. Secrets in them are masked."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.engine.client.agent_homes import find_opencode_data, list_roo_storages
from interlock.services.files.disk import read_file
from interlock.services.secrets.redaction import Redactor

_MOST_FILES = 2_000
_LONGEST_TITLE = 80
_LONGEST_LINE = 1_000_000
_NOT_SAID = ("<", "Caveat: ", "# AGENTS.md instructions", "[Request interrupted")
"""How texts begin that a program put there as the user's."""

_ROO_USER = re.compile(
    r"<(?:user_message|task|feedback|answer)>\n?(.*?)\n?</(?:user_message|task|feedback|answer)>", re.DOTALL
)
"""What a person said, in today's tag and those of earlier versions of Roo Code."""

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
    redact = Redactor()
    for file, said in _FINDERS[agent](home, env, folder):
        history = [{"role": role, "content": redact(text)} for role, text in _join_same_speaker(said)]
        if any(one["role"] == "user" for one in history):
            first = next(one["content"] for one in history if one["role"] == "user")
            yield AgentConversation(file, file.stem, " ".join(first.split())[:_LONGEST_TITLE], history)


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


def _find_claude_conversations(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    projects = Path(env.get("CLAUDE_CONFIG_DIR") or home / ".claude").expanduser() / "projects"
    name = re.sub(r"[^A-Za-z0-9]", "-", str(folder))  # as Claude Code names a folder
    for file in _newest(projects.glob(f"{name}*/*.jsonl")):
        lines = [*_json_lines(file)]
        places = (one["cwd"] for one in lines if isinstance(one.get("cwd"), str))
        if _is_in(next(places, ""), folder):
            kept = (one for one in lines if not one.get("isSidechain") and not one.get("isMeta"))
            yield file, [*_said_in((_object(one.get("message")) for one in kept), ("text",))]


def _find_codex_conversations(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    sessions = Path(env.get("CODEX_HOME") or home / ".codex").expanduser() / "sessions"
    for file in _newest(sessions.rglob("rollout-*.jsonl")):
        first = next(_json_lines(file, only_first=True), dict[str, Any]())
        if _is_in(str(_object(first.get("payload")).get("cwd", "")), folder):
            lines = _json_lines(file)
            items = (_object(one.get("payload")) for one in lines if one.get("type") == "response_item")
            messages = (one for one in items if one.get("type") == "message")
            yield file, [*_said_in(messages, ("input_text", "output_text"))]


def _find_gemini_conversations(home: Path, _env: Mapping[str, str], folder: Path) -> Found:
    place = home / ".gemini/tmp" / hashlib.sha256(str(folder).encode()).hexdigest() / "chats"
    for file in _newest(place.glob("session-*.json")):
        whole = next(_json_lines(file, whole=True), dict[str, Any]())
        messages = _to_list(whole.get("messages"))
        roles = {"user": "user", "gemini": "assistant"}
        named = ({**one, "role": roles.get(str(one.get("type")))} for one in map(_object, messages))
        yield file, [*_said_in(named, (None,))]


def _find_roo_conversations(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    storages = list_roo_storages(home, env)
    for file in _newest(task for storage in storages for task in storage.glob("tasks/*/history_item.json")):
        about = next(_json_lines(file, whole=True), dict[str, Any]())
        if _is_in(str(about.get("workspace", "")), folder):
            messages = map(_object, _read_json_list(file.with_name("api_conversation_history.json")))
            yield file.parent, [*_said_in_roo(messages)]


def _said_in_roo(messages: Iterable[Mapping[str, Any]]) -> Iterator[Said]:
    """Yield what was said in a task of Roo Code: people's words stand in tags, and the last answer is a call."""
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role == "user":
            said = "\n\n".join(_list_words_of_person(content))
        elif role == "assistant":
            calls = [_object(one.get("input")) for one in map(_object, _to_list(content))]
            shown = (call.get(key) for call in calls for key in ("result", "question"))
            said = "\n\n".join(
                text for text in (*_list_texts(content), *shown) if isinstance(text, str)
            ).strip()
        else:
            continue
        if said:
            yield role, said


def _list_words_of_person(content: object) -> list[str]:
    """Return what a person said to Roo Code. An answer to a call is theirs if nothing else stands in it: a file that
    was read may hold such tags."""
    said = [words for text in _list_texts(content) for words in _ROO_USER.findall(text)]
    for part in map(_object, _to_list(content)):
        answer = "\n".join(_list_texts(part.get("content"))).strip()
        if found := _ROO_USER.fullmatch(answer):
            said.append(found[1])
    return said


def _find_opencode_conversations(home: Path, env: Mapping[str, str], folder: Path) -> Found:
    """Those of its folders of JSON files; later versions keep them in a database."""
    storage = find_opencode_data(home, env) / "storage"
    for file in _newest(storage.glob("session/*/*.json")):
        about = next(_json_lines(file, whole=True), dict[str, Any]())
        if _is_in(str(about.get("directory", "")), folder) and not about.get("parentID"):
            messages = sorted((storage / "message" / file.stem).glob("*.json"))  # ids grow with time
            yield file, [*_said_in((_read_opencode_message(storage, one) for one in messages), ("text",))]


def _read_opencode_message(storage: Path, file: Path) -> dict[str, Any]:
    files = sorted((storage / "part" / file.stem).glob("*.json"))
    parts = [part for one in files for part in _json_lines(one, whole=True) if not part.get("synthetic")]
    return {**next(_json_lines(file, whole=True), dict[str, Any]()), "content": parts}


_FINDERS: Mapping[str, Callable[[Path, Mapping[str, str], Path], Found]] = {
    "claude": _find_claude_conversations,
    "codex": _find_codex_conversations,
    "gemini": _find_gemini_conversations,
    "opencode": _find_opencode_conversations,
    "roo": _find_roo_conversations,
}


def _said_in(messages: Iterable[Mapping[str, Any]], kinds: tuple[str | None, ...]) -> Iterator[Said]:
    """Yield the texts of messages. `kinds`: the types of parts that are text."""
    for message in messages:
        role, content = message.get("role"), message.get("content")
        if role not in ("user", "assistant"):
            continue
        parts = _to_list(content)
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


def _read_json_list(file: Path) -> list[object]:
    """Return the list that a file holds; empty if it can't be read."""
    try:
        return _to_list(json.loads(read_file(file)))
    except (OSError, ValueError, RecursionError):
        return []


def _to_list(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []


def _list_texts(content: object) -> list[str]:
    """Return the texts of a message's content."""
    if isinstance(content, str):
        return [content]
    texts = (one.get("text") for one in map(_object, _to_list(content)) if one.get("type") == "text")
    return [text for text in texts if isinstance(text, str)]


def _object(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _is_in(place: str, folder: Path) -> bool:
    return bool(place) and Path(place).is_relative_to(folder)
