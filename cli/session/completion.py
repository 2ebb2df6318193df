"""completion: completes what is typed: `/commands`, including custom ones, their arguments, and files behind `@`."""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import Path
from threading import Lock, Thread

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from interlock.cli.render.output import to_one_line
from interlock.engine.client import load_folder_settings
from interlock.services.files.workspace import open_workspace
from interlock.state.errors import InterlockError
from interlock.state.workspace import Workspace


class FuzzyNameMatcher:
    """Names searched again with every letter typed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._lower = [name.lower() for name in names]

    def find_matching_indices(self, typed: str, limit: int) -> list[int]:
        """Indices of names with the typed letters in order, ignoring case; the likeliest first."""
        wanted = typed.lower()
        if not wanted:
            return list(range(min(limit, len(self._names))))
        # Match each letter at its first occurrence: one pass over a name, whatever is typed.
        pattern = re.compile(
            "".join(f"[^{_escape_for_character_class(c)}]*{re.escape(c)}" for c in wanted), re.DOTALL
        )
        found = (place for place, name in enumerate(self._lower) if pattern.match(name))
        return nsmallest(limit, found, key=lambda place: self._match_rank(place, wanted))

    def _match_rank(self, index: int, wanted: str) -> tuple[int, int, int]:
        name = self._lower[index]
        last = name.rstrip("/").rpartition("/")[2]
        tests = (
            name == wanted,
            last.startswith(wanted),
            name.startswith(wanted),
            wanted in last,
            wanted in name,
        )
        kind = next((number for number, holds in enumerate(tests) if holds), len(tests))
        return kind, len(name), index


def _escape_for_character_class(letter: str) -> str:
    return f"\\{letter}" if letter in "\\]^-[&~|" else letter


_MOST = 50
"""Most completions offered at a time; typing on narrows them."""
_FILES_FRESH_S = 3.0
"""Seconds until a list of files is stale."""
_LONGEST = 400
"""Characters beyond which nothing is completed; nobody types more of a name."""
_AT = re.compile(r"""(?<![^\s(\[{<"',;:])@(?:"([^"\n]*)|((?:\\.|[^\s\\,;!"'`(){}\[\]<>|])*))$""")
"""As `services/context/references` reads them, up to the cursor."""
_PLAIN = re.compile(r"""[^\s\\,;!"'`(){}\[\]<>|]+""")
_CUT_OFF = (".", ":", "?")
"""Taken for the sentence's punctuation at the end of an unquoted name."""


@dataclass(frozen=True)
class CommandOffer:
    summary: str
    arguments: Callable[[str], Iterable[str]] | None = None
    """Completions for the last word typed after the name."""


class WorkspaceFiles:
    """The workspace's files and folders, as tools see them; reread in the background when stale."""

    def __init__(self, workspace: Callable[[], Workspace]) -> None:
        """`workspace` is called in the reading thread, at each reading: a session may move to another folder."""
        self._open = workspace
        self._names = FuzzyNameMatcher(())
        self._paths: Sequence[str] = ()
        self._read_at: float | None = None
        self._lock = Lock()

    def find_matching_paths(self, typed: str, limit: int) -> list[str]:
        """Paths, folders with a final `/`; the likeliest first."""
        if self._read_at is None:
            self._refresh_paths()
        elif time.monotonic() - self._read_at > _FILES_FRESH_S and not self._lock.locked():
            Thread(target=self._refresh_paths, daemon=True).start()
        names, paths = self._names, self._paths
        return [paths[place] for place in names.find_matching_indices(typed, limit)]

    def _refresh_paths(self) -> None:
        with self._lock:
            paths = sorted(
                _files_and_folders(self._open()), key=lambda path: (path.rstrip("/").count("/"), path)
            )
            if paths != self._paths:
                self._names, self._paths = FuzzyNameMatcher(paths), paths
            self._read_at = time.monotonic()


def open_folder_workspace(folder: Path) -> Workspace:
    """The workspace as runs in this folder see it."""
    return open_workspace(folder, load_folder_settings(folder))


def _files_and_folders(workspace: Workspace) -> Iterator[str]:
    """Files, and each folder above them."""
    for root in workspace.roots:
        folders = {"", str(root)}
        base = f"{workspace.root}/"
        for file in workspace.list_files(root):
            plain = file.isascii() and file.isprintable() and "\\" not in file and file.startswith(base)
            shown = file[len(base) :] if plain else workspace.display_path(Path(file))
            yield shown
            while (folder := shown.rpartition("/")[0]) not in folders:
                folders.add(folder)
                yield f"{folder}/"
                shown = folder


def quote_file_reference(path: str) -> str:
    """The path as written behind `@`, quoted where necessary."""
    if _PLAIN.fullmatch(path) and not path.endswith(_CUT_OFF):
        return f"@{path}"
    if '"' not in path:
        return f'@"{path}"'
    return "@" + re.sub(r"""([\s\\,;!"'`(){}\[\]<>|])""", r"\\\1", path)


class SessionCompleter(Completer):
    """Never raises: what can't be read isn't offered."""

    def __init__(self, commands: Callable[[str], Mapping[str, CommandOffer]], files: WorkspaceFiles) -> None:
        """`commands`: returns the commands for a name being typed."""
        self._commands, self._files = commands, files

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:  # noqa: ARG002 - as Completer
        with suppress(InterlockError, OSError):
            yield from self._completions_at(document.text_before_cursor)

    def _completions_at(self, text: str) -> Iterator[Completion]:
        if text.startswith("/") and "\n" not in text:
            yield from self._complete_command(text)
        if found := _AT.search(text[-_LONGEST:]):
            yield from self._complete_file(found)

    def _complete_command(self, text: str) -> Iterator[Completion]:
        name, space, rest = text[1:].partition(" ")
        known = self._commands(name)
        if not space:
            names = list(known)
            for place in FuzzyNameMatcher(names).find_matching_indices(name, _MOST):
                about = to_one_line(known[names[place]].summary, 60)
                yield Completion(f"/{names[place]}", -len(text), display_meta=about)
        elif name in known and (arguments := known[name].arguments):
            word = rest.rpartition(" ")[2]
            offered = list(arguments(rest))
            for place in FuzzyNameMatcher(offered).find_matching_indices(word, _MOST):
                yield Completion(offered[place], -len(word))

    def _complete_file(self, reference: re.Match[str]) -> Iterator[Completion]:
        typed = reference[1] if reference[1] is not None else re.sub(r"\\(.)", r"\1", reference[2])
        for path in self._files.find_matching_paths(typed, _MOST):
            yield Completion(quote_file_reference(path), -len(reference[0]), display=path)
