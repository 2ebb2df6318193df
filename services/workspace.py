"""workspace: the directories that tools may touch, and what in them they may not."""

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from interlock.services.ignore import IgnoreRules, Layer, entry_ignored
from interlock.services.output_paths import kept_output, plan_path
from interlock.services.private_paths import is_private, private_part
from interlock.state.text import clean
from interlock.state.tooling import PathRefused

_DEPENDENCIES = "node_modules"
"""Readable, never writable; left out of listings like what git ignores."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


class FolderWorkspace:
    """A `Workspace` of directories on this machine."""

    def __init__(
        self,
        root: Path,
        included: Sequence[Path] = (),
        *,
        git_ignore: bool = True,
        agent_ignore: bool = True,
        custom_ignore: Sequence[Path] = (),
        outputs: Path | None = None,
    ) -> None:
        self._outputs = outputs  # whole tool outputs are kept there; those can be read, too
        self.plans: Path | None = None  # the run's plans folder, once the run is known
        self._roots = tuple(dict.fromkeys(Path(os.path.realpath(d)) for d in (root, *included)))
        custom = [self.root / path for path in custom_ignore]
        self._rules = {
            d: IgnoreRules(d, git=git_ignore, agent=agent_ignore, custom=custom if d == self.root else ())
            for d in self._roots
        }

    @property
    def root(self) -> Path:
        return self._roots[0]

    @property
    def roots(self) -> Sequence[Path]:
        return self._roots

    def readable(self, path: str) -> Path:
        """As `Workspace.readable`; files that ignore rules leave alone are refused too, directories aren't."""
        real = kept_output(self._outputs, path) or self.plan_file(path) or self._allowed(path)
        if not os.path.isfile(real):  # noqa: PTH113 - Path.is_file raises for names that are too long
            return real
        if self.ignored(real, git=False):
            raise PathRefused(
                f"{path!r} is kept from tools by .geminiignore or .rooignore; go on without it."
            )
        if not self._in_dependencies(real) and self.ignored(real):
            raise PathRefused(
                f"{path!r} is ignored by git; go on without it, or ask the user to show what is in it."
            )
        return real

    def writable(self, path: str) -> Path:
        """As `Workspace.writable`; what git ignores may be written."""
        if plan := self.plan_file(path):
            return plan
        real = self._allowed(path)
        if real in self._roots:
            raise PathRefused(f"{path!r} is the workspace itself; name a file in it.")
        if self._in_dependencies(real):
            raise PathRefused(
                f"{path!r} lies in node_modules, which is read only; change the project's own files."
            )
        if self.ignored(real, git=False):
            raise PathRefused(
                f"{path!r} is kept from tools by .geminiignore or .rooignore; go on without it."
            )
        return real

    def plan_file(self, path: str) -> Path | None:
        return plan_path(self.plans, path)

    def relative(self, path: Path) -> str:
        """Relative to the workspace; absolute in an included directory, so that it can be used as a path again."""
        inside = path.is_relative_to(self.root)
        text = (path.relative_to(self.root) if inside else path).as_posix()
        return _CONTROL.sub(lambda m: f"\\x{ord(m[0]):02x}", clean(text))

    def ignored(self, path: Path, *, git: bool = True) -> bool:
        root = self._root_of(path)
        if root is None or path == root:
            return False
        if git and self._in_dependencies(path):
            return True
        return self._rules[root].ignored(str(path), os.path.isdir(path), git=git)  # noqa: PTH112 - as above

    def walk(self, start: Path, *, include_ignored: bool = False) -> Sequence[Path]:
        root = self._root_of(start)
        if root is None:
            return ()
        if not os.path.isdir(start):  # noqa: PTH112 - as above
            return [start] if os.path.isfile(start) else []  # noqa: PTH113 - as above
        git = not include_ignored and not self._in_dependencies(start)
        return list(self._files_below(start, self._rules[root], git))

    def _files_below(self, start: Path, rules: IgnoreRules, git: bool) -> Iterator[Path]:
        agent = rules.agent_layers()
        pending: list[tuple[os.DirEntry[str], list[Layer]]] = []

        def open_directory(path: str, layers: list[Layer]) -> None:
            entries = _entries(path)
            if git and path != str(start) and any(e.name == ".gitignore" for e in entries):
                layers = rules.deeper(layers, path)
            pending.extend((entry, layers) for entry in reversed(entries))

        open_directory(str(start), rules.git_layers(str(start)) if git else [])
        while pending:
            entry, layers = pending.pop()
            is_dir = entry.is_dir(follow_symlinks=False)
            if is_private(entry.name) or (git and entry.name.casefold() == _DEPENDENCIES):
                continue
            if entry_ignored(layers, agent, entry.path, is_dir):
                continue
            if is_dir:
                open_directory(entry.path, layers)
            elif entry.is_file(follow_symlinks=False) or self._link_to_own_file(entry, rules):
                yield Path(entry.path)

    def _link_to_own_file(self, entry: os.DirEntry[str], rules: IgnoreRules) -> bool:
        if not entry.is_symlink():
            return False
        target = Path(os.path.realpath(entry.path))
        root = self._root_of(target)
        if root is None or not target.is_file() or private_part(target.relative_to(root)):
            return False
        return rules is not self._rules[root] or not self.ignored(target, git=False)

    def _allowed(self, path: str) -> Path:
        """The real path, once it is known to be inside and not private."""
        given = self._given(path)
        real = Path(os.path.realpath(given))
        root = self._root_of(real)
        if root is None:
            raise PathRefused(f"{path!r} leads outside the workspace; name a path inside {str(self.root)!r}.")
        # A private name can also be a link to somewhere harmless: what was written counts as well as where it leads.
        written = Path(os.path.normpath(given))
        lexical = self._root_of(written)
        names = [real.relative_to(root), *([written.relative_to(lexical)] if lexical else [])]
        for name in names:
            if found := private_part(name):
                raise PathRefused(f"{path!r} is refused: tools may not touch {found!r}; go on without it.")
        return real

    def _given(self, path: str) -> Path:
        if not path.strip():
            raise PathRefused("the path is empty; name a file or directory of the workspace.")
        if "\0" in path:
            raise PathRefused(f"{path!r} holds a NUL character; write the path without it.")
        if path.startswith("file://"):
            path = unquote(urlsplit(path).path)
        elif path == "~" or path.startswith("~/"):
            path = os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises where there is no home
        elif path.startswith("@") and len(path) > 1 and not os.path.lexists(self.root / path):
            path = path[1:]  # models copy the mark of a file reference
        return self.root / path

    def _root_of(self, path: Path) -> Path | None:
        inside = [root for root in self._roots if path.is_relative_to(root)]
        return max(inside, key=lambda root: len(root.parts), default=None)

    def _in_dependencies(self, path: Path) -> bool:
        root = self._root_of(path)
        return root is not None and _DEPENDENCIES in str(path.relative_to(root)).casefold().split("/")


def _entries(path: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(path) as found:
            return sorted(found, key=lambda entry: entry.name)
    except OSError:  # gone meanwhile, or not ours to read: as if it were empty
        return []
