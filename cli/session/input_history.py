"""input_history: what was typed in a workspace, for its next sessions; long pastes are folded, as in the input."""

import json
import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

from prompt_toolkit.history import History

from interlock.services.files.filesystem import locked, replace_file, sha256

_FOLDED_LINES, _FOLDED_CHARS = 10, 1_000
"""A paste that has more is folded."""
_MARK = re.compile(r"\[pasted [\d,]+ (?:lines|characters) #(\d+)\]")
_ENTRIES = 1_000
"""That are kept of a workspace."""
_LARGEST = 100_000
"""Characters of an entry with its pastes; a larger one is kept in its run alone."""
_FILE_SIZE = 4_000_000
"""Bytes from which the file is cut back to its newest entries."""


class Pastes:
    """Long pastes, each shown as one short mark in the input, and sent whole."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def fold(self, text: str) -> str:
        """The mark for a paste, or a short one itself; line ends as LF."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _FOLDED_LINES and len(text) <= _FOLDED_CHARS:
            return text
        number = str(len(self._texts) + 1)
        self._texts[number] = text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        return f"[pasted {size} #{number}]"

    def whole(self, text: str) -> str:
        """With each mark's text in its place."""
        return _MARK.sub(lambda mark: self._texts.get(mark[1], mark[0]), text)

    def mark_before(self, text: str) -> str:
        """The mark of a paste that the text ends with, or nothing."""
        found = re.search(rf"{_MARK.pattern}$", text)
        return found[0] if found and found[1] in self._texts else ""

    def parts(self, text: str) -> list[str]:
        """What the marks in it stand for, in order."""
        return [self._texts[mark[1]] for mark in _MARK.finditer(text) if mark[1] in self._texts]

    def put_back(self, text: str, parts: Iterable[str]) -> str:
        """A text with marks of an earlier session, each with the number that it has in this one."""
        left = iter(parts)
        return _MARK.sub(lambda mark: self.fold(part) if (part := next(left, None)) else mark[0], text)


class InputHistory(History):
    """A file with one JSON line an entry, only its owner's to read. Secrets are redacted in it."""

    def __init__(self, home: Path, workspace: Path, pastes: Pastes, redact: Callable[[str], str]) -> None:
        """`home`: the state directory."""
        super().__init__()
        self.path = home / "input" / f"{sha256(os.fsencode(workspace))[:16]}.jsonl"
        self._pastes, self._redact = pastes, redact

    def load_history_strings(self) -> list[str]:
        """The newest first, each text once."""
        found = [self._pastes.put_back(*entry) for line in reversed(self._lines()) if (entry := _entry(line))]
        return list(dict.fromkeys(found))

    def store_string(self, string: str) -> None:
        """What can't be kept (a full disk) isn't; nobody's work depends on it."""
        entry = {"text": self._redact(string), "pasted": [*map(self._redact, self._pastes.parts(string))]}
        if len(entry["text"]) + sum(map(len, entry["pasted"])) > _LARGEST:
            return
        line = json.dumps({k: v for k, v in entry.items() if v}, ensure_ascii=True) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self.path.parent):
                if self.path.exists() and self.path.stat().st_size > _FILE_SIZE:
                    replace_file(self.path, "".join(f"{kept}\n" for kept in self._lines()).encode())
                handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, 0o600)
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    file.write(line)
        except OSError:
            pass

    def _lines(self) -> list[str]:
        try:
            text = self.path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return []
        return text.splitlines()[-_ENTRIES:]


def _entry(line: str) -> tuple[str, list[str]] | None:
    """None: the line isn't whole; whoever wrote it was killed."""
    try:
        read: object = json.loads(line)
    except ValueError:
        return None
    if not isinstance(read, dict) or not isinstance(text := cast("dict[str, Any]", read).get("text"), str):
        return None
    pasted = cast("dict[str, list[Any]]", read).get("pasted", [])
    return (text, [*map(str, pasted)]) if text else None
