"""workspace: the directories that tools may access, and the exceptions within them."""

import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path

from interlock.services.files.conventions import read_conventions
from interlock.services.files.filesystem import HeldDirectory
from interlock.services.files.ignore import IgnoreRules, Layer, is_entry_ignored
from interlock.services.files.protected import (
    ProtectedPaths,
    find_private_hard_link,
    find_private_name,
    fold_name,
    is_private_name,
    is_process_dependent_path,
    parse_stored_output_name,
    resolve_links,
    resolve_plan_path,
    resolve_stored_output,
    to_absolute_path,
)
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.errors import ConfigError, UserError
from interlock.state.file_names import (
    fold_written_name,
    format_file_name,
    has_one_spelling,
    quote_name,
    quote_path,
    strip_odd_ends,
)
from interlock.state.settings import Settings
from interlock.state.workspace import (
    Buffers,
    FileConventions,
    LeaveOut,
    OpenDirEntry,
    PathRefused,
    Protection,
    ignored_path_message,
)
from interlock.tools.workspace_files import Kind, entry_kind, open_directory, stat_refusing_links

DEPENDENCIES = "node_modules"
"""Read-only, and omitted from listings like git-ignored files."""


_UNKNOWN = "\ufffd"
_KERNEL = tuple(map(Path, ("/proc", "/sys", "/dev")))
"""Kernel interfaces (process environments, devices) rather than files."""


class FolderWorkspace:
    """A `Workspace` of directories on this machine."""

    def __init__(
        self,
        root: Path,
        included: Sequence[Path] = (),
        *,
        git_ignore: bool = True,
        agent_ignore: bool = True,
        hiding_files: bool = True,
        custom_ignore: Sequence[Path] = (),
        outputs: Path | None = None,
        protected: ProtectedPaths | None = None,
        buffers: Buffers | None = None,
        encodings: Mapping[str, str] | None = None,
    ) -> None:
        self._encodings = list((encodings or {}).items())
        self.protected_paths = protected or ProtectedPaths()
        self.buffers = buffers
        # Whole tool outputs are stored there and may be read too.
        self._outputs = Path(os.path.realpath(outputs)) if outputs else None
        self.plans: Path | None = None  # the run's plans folder, once the run is known
        self.fetch_output: Callable[[str], None] = lambda _: None
        """Writes the stored output with this name that another host made."""
        self._roots = tuple(dict.fromkeys(Path(os.path.realpath(d)) for d in (root, *included)))
        deepest = sorted(self._roots, key=lambda root: len(root.parts), reverse=True)
        self._prefixes = [(f"{str(root).rstrip('/')}/", root) for root in deepest]
        state = (self._outputs.parent,) if self._outputs else ()
        self._closed = tuple(d for d in (*_KERNEL, *state) if self._is_below_a_root(d))
        """No part of a workspace that lies around it, such as `/` or the home directory."""
        self._anchors = {d: HeldDirectory(d) for d in self._roots}
        custom = [self.root / path for path in custom_ignore]
        self._rules = {
            d: IgnoreRules(
                d,
                git=git_ignore,
                agent=agent_ignore,
                hiding=hiding_files,
                custom=custom if d == self.root else (),
            )
            for d in self._roots
        }

    @property
    def root(self) -> Path:
        return self._roots[0]

    @property
    def roots(self) -> Sequence[Path]:
        return self._roots

    def resolve_readable(self, path: str) -> Path:
        """See `Workspace.resolve_readable`; also refuses ignored files, but not ignored directories."""
        real = (
            self._find_or_fetch_stored_output(path)
            or self.find_plan_file(path)
            or self._resolve_allowed_path(path)
        )
        if os.path.isdir(real):  # noqa: PTH112 - Path.is_dir raises for names that are too long
            return real
        self._refuse_if_user_ignored(path, real)
        there = os.path.isfile(real)  # noqa: PTH113 - as above; else it may be a pattern
        if there and not self._is_in_node_modules(real) and self.is_ignored(real):
            raise PathRefused(ignored_path_message(path, git=True))
        return real

    def _find_or_fetch_stored_output(self, path: str) -> Path | None:
        name = parse_stored_output_name(path)
        if not (self._outputs and name):
            return None
        if not os.path.lexists(path):
            path = str(self._outputs / name)  # as another host knows it
            if not os.path.lexists(path):
                self.fetch_output(name)
        return resolve_stored_output(self._outputs, path)

    def resolve_writable(self, path: str) -> Path:
        """See `Workspace.resolve_writable`; git-ignored files may be written."""
        if plan := self.find_plan_file(path):
            return plan
        real = self._resolve_allowed_path(path)
        if real in self._roots:
            raise PathRefused(f"{quote_name(path)} is the workspace itself; name a file in it.")
        if self._is_in_node_modules(real):
            raise PathRefused(
                f"{quote_name(path)} lies in node_modules, which is read only; change the project's own files."
            )
        self._refuse_if_user_ignored(path, real)
        _refuse_new_name_with_odd_ends(path, real)
        return real

    def find_existing_spelling(self, path: str) -> str:
        """See `Workspace.find_existing_spelling`."""
        if os.path.lexists(to_absolute_path(path, self.root)):
            return path
        stripped = strip_odd_ends(path)  # quotes around a whole path hide that it is absolute
        spelled = [self._spell_as_existing(path, text) for text in dict.fromkeys((path, stripped)) if text]
        return next(
            (text for text in spelled if os.path.lexists(to_absolute_path(text, self.root))), spelled[0]
        )

    def _spell_as_existing(self, path: str, text: str) -> str:
        """Return `text` with each name as the folder around it has it, as far as there is one such name. Raise
        `PathRefused`, which names `path`."""
        absolute = to_absolute_path(text, self.root)
        root = self._find_root_of(absolute)
        names = [*path_parts_below(absolute, root)] if root else []
        known, changed = str(root), False
        for at, name in enumerate(names):
            if name != ".." and not os.path.lexists(f"{known}/{name}"):
                found = _find_names_alike(known, name)
                if len(found) > 1:
                    raise PathRefused(
                        f"{quote_name(path)} could be any of {len(found)} names that look alike; write it exactly, "
                        "or rename one."
                    )
                if not found:
                    break
                changed, names[at] = True, found[0]
            known = f"{known}/{names[at]}"
        if not changed:
            return text
        spelled = Path(str(root), *names)
        return str(spelled if text.startswith(("/", "~", "file:")) else spelled.relative_to(self.root))

    def _refuse_if_user_ignored(self, path: str, real: Path) -> None:
        if self.is_ignored(real, git=False):
            raise PathRefused(ignored_path_message(path, git=False))

    def read_conventions(self, path: Path) -> FileConventions:
        """See `Workspace.read_conventions`."""
        return read_conventions(path, self._encodings, self.display_path(path))

    def confirm_encoding(self, confirmed: ConfirmedEncoding) -> None:
        """See `Workspace.confirm_encoding`."""
        self._encodings.append((confirmed.pattern, confirmed.encoding))

    def find_protection(self, path: str) -> Protection | None:
        """See `Workspace.find_protection`. Checks both the path as written and its target."""
        try:
            absolute = to_absolute_path(path, self.root)
            real = resolve_links(absolute)
        except PathRefused:
            return None
        if resolve_plan_path(self.plans, path) is not None:
            return None
        written = Path(os.path.normpath(absolute))
        if _is_process_dependent(absolute, written, real) and not absolute.is_relative_to("/dev"):
            return Protection("/proc", "where a command finds other files than this program")
        ways = dict.fromkeys((real, written))
        with suppress(PathRefused):
            if (existing := self.find_existing_spelling(path)) != path:
                real = resolve_links(self.root / existing)
                ways |= {real: None}
        known = (self.protected_paths.find_path_protection(way, self._roots) for way in ways)
        return next(filter(None, known), None) or self.protected_paths.find_hard_link_protection(
            real, self._roots
        )

    def find_plan_file(self, path: str) -> Path | None:
        return resolve_plan_path(self.plans, path)

    def display_path(self, path: Path) -> str:
        """Return the path relative to the workspace; absolute in an included directory, so that it stays usable."""
        inside = path.is_relative_to(self.root)
        return format_file_name((path.relative_to(self.root) if inside else path).as_posix())

    def is_ignored(self, path: Path, *, git: bool = True) -> bool:
        root = self._find_root_of(path)
        if root is None or path == root:
            return False
        if git and self._is_in_node_modules(path):
            return True
        return self._rules[root].is_ignored(str(path), os.path.isdir(path), git=git)  # noqa: PTH112 - as above

    def make_ignore_test(self, directory: Path, *, git: bool = True) -> Callable[[str, bool], bool]:
        root = self._find_root_of(directory)
        if root is None:
            return lambda _name, _is_dir: False
        inside = self._rules[root].make_ignore_test(str(directory), git=git)
        below = git and self._is_in_node_modules(directory)
        closed = self._inaccessible_names_in(str(directory))
        return lambda name, is_dir: (
            below or name in closed or (git and fold_name(name) == DEPENDENCIES) or inside(name, is_dir)
        )

    def list_files(
        self,
        start: Path,
        *,
        include_ignored: bool = False,
        stop: Callable[[], None] = lambda: None,
        leave_out: LeaveOut | None = None,
    ) -> Sequence[str]:
        root = self._find_root_of(start)
        if root is None:
            return ()
        try:
            with self.open_parent_directory(start) as place:
                mode = stat_refusing_links(place).st_mode
        except OSError:
            return ()
        if not stat.S_ISDIR(mode):
            return [str(start)] if stat.S_ISREG(mode) else []
        git = not include_ignored and not self._is_in_node_modules(start)
        return self._list_files_below(str(start), self._rules[root], stop, leave_out, git=git)

    def _list_files_below(
        self,
        start: str,
        rules: IgnoreRules,
        stop: Callable[[], None],
        leave_out: LeaveOut | None,
        *,
        git: bool,
    ) -> list[str]:
        """Return files by name, and links only to files that tools may see; with `git` false, ignored files too."""
        agent = rules.agent_ignore_layers()
        files: list[str] = []
        # From the outermost folder to the one that is read: what is left of each, and what counts for its entries.
        opened: list[tuple[str, Iterator[tuple[str, Kind]], list[Layer], Set[str]]] = []

        def open_directory(path: str, layers: list[Layer], beside: Set[str] = frozenset()) -> None:
            stop()
            found = self._list_entries(path)
            names = {name for name, _ in found}
            if path != start and leave_out and leave_out(path.rpartition("/")[2], beside, names):
                return
            if git and path != start and ".gitignore" in names:
                layers = rules.with_gitignore_layer(layers, path)
            opened.append((f"{path.removesuffix('/')}/", iter(found), layers, names))

        open_directory(start, rules.gitignore_layers(start) if git else [])
        while opened:
            base, entries, layers, names = opened[-1]
            for name, kind in entries:
                if is_private_name(name) or (git and fold_name(name) == DEPENDENCIES):
                    continue
                if leave_out and leave_out(name, names, ()):
                    continue
                path = base + name
                if (layers or agent.hides_anything) and is_entry_ignored(
                    layers, agent, path, kind == "directory"
                ):
                    continue
                if kind == "file":
                    files.append(path)
                elif kind == "directory":
                    open_directory(path, layers, names)
                    break
                elif kind == "link" and self._is_allowed_link(path, rules):
                    files.append(path)
            else:
                opened.pop()
        return files

    @contextmanager
    def open_parent_directory(self, path: Path, *, create_missing: bool = False) -> Generator[OpenDirEntry]:
        folder = self._require_containing_folder(path)
        if folder not in self._anchors:
            self._anchors[folder] = HeldDirectory(folder, private=True)  # ours, not the user's
        if create_missing and self.find_protection(str(path)):
            self.protected_paths.announce_new_path(path)
        with self._anchors[folder].open_parent_directory(path, create_missing=create_missing) as place:
            yield place

    def describe_replaced_root(self) -> str:
        """See `Workspace.describe_replaced_root`."""
        if not self._anchors[self.root].is_replaced():
            return ""
        if self.root.is_dir() and not self.root.is_symlink():
            return "The workspace's folder was removed and made anew: what was in it before is gone."
        return f"The workspace's folder {quote_path(self.root)} is gone: it was deleted or moved away. Tell the user."

    def record_written_digest(self, path: Path, digest: str | None) -> None:
        self.protected_paths.record_written_digest(path, digest)

    def _require_containing_folder(self, path: Path) -> Path:
        """Return the folder by which a path is reached. Raise `PathRefused` if it is outside of all."""
        if (root := self._find_root_of(path)) is not None:
            return root
        own = (Path(os.path.realpath(d)) for d in (self._outputs, self.plans) if d is not None)
        found = next((d for d in own if path.is_relative_to(d)), None)
        if found is None:
            raise self._outside_workspace_error(str(path))
        return found

    def _list_entries(self, path: str) -> list[tuple[str, Kind]]:
        try:
            with (
                self.open_parent_directory(Path(path)) as place,
                open_directory(place) as directory,
                os.scandir(directory) as found,
            ):
                closed = self._inaccessible_names_in(path)
                return sorted((e.name, entry_kind(e)) for e in found if e.name not in closed)
        except OSError:  # gone or unreadable: treated as empty
            return []

    def _is_allowed_link(self, path: str, rules: IgnoreRules) -> bool:
        """Return whether a link leads to a file that tools may see."""
        try:
            target = resolve_links(path)
        except PathRefused:
            return False
        root = self._find_root_of(target)
        if root is None or find_private_name(path_parts_below(target, root)) or not os.path.isfile(target):  # noqa: PTH113 - a name may be too long for Path.is_file
            return False
        return rules is not self._rules[root] or not self.is_ignored(target, git=False)

    def _resolve_allowed_path(self, path: str) -> Path:
        """Return the real path. Raise `PathRefused` if it is outside the workspace or private."""
        absolute = to_absolute_path(self.find_existing_spelling(path), self.root)
        real = resolve_links(absolute)
        root = self._find_root_of(real)
        if root is None:
            raise self._outside_workspace_error(path)
        # Check the path as written as well as its target: a private name can link to somewhere harmless.
        written = Path(os.path.normpath(absolute))
        if _is_process_dependent(absolute, written, real):
            raise PathRefused(
                f"{quote_name(path)} is refused: it leads each process elsewhere; name the file itself."
            )
        # `link/..` is the parent of the link's target, but people and patterns ignore the link.
        if ".." in absolute.parts and self._find_root_of(resolve_links(written)) is None:
            raise self._outside_workspace_error(path)
        lexical = None if written == real else self._find_root_of(written)
        for name, top in ((real, root), (written, lexical)):
            if top and (found := find_private_name(path_parts_below(name, top))):
                raise PathRefused(
                    f"{quote_name(path)} is refused: tools may not touch {quote_name(found)}; go on without it."
                )
        hides = self._is_hidden_by_user if self._rules[root].agent_ignore_layers().hides_anything else None
        if twin := find_private_hard_link(real, root, hides):
            raise PathRefused(
                f"{quote_name(path)} is refused: it is the same file as "
                f"{quote_name(self.display_path(Path(twin)))}; go on without it."
            )
        return real

    def _is_hidden_by_user(self, file: str) -> bool:
        return self.is_ignored(Path(file), git=False)

    def _outside_workspace_error(self, path: str) -> PathRefused:
        return PathRefused(
            f"{quote_name(path)} leads outside the workspace; name a path inside {quote_path(self.root)}."
        )

    def _find_root_of(self, path: Path) -> Path | None:
        text = f"{path}/"  # Path.is_relative_to takes 20 times as long
        root = next((root for prefix, root in self._prefixes if text.startswith(prefix)), None)
        if root and any(path.is_relative_to(d) and not root.is_relative_to(d) for d in self._closed):
            return None
        return root

    def _is_below_a_root(self, path: Path) -> bool:
        return any(path.is_relative_to(root) and path != root for root in self._roots)

    def _inaccessible_names_in(self, directory: str) -> Set[str]:
        return {d.name for d in self._closed if str(d.parent) == directory}

    def _is_in_node_modules(self, path: Path) -> bool:
        root = self._find_root_of(path)
        return root is not None and DEPENDENCIES in map(fold_name, path_parts_below(path, root))


def _find_names_alike(directory: str, name: str) -> list[str]:
    """Return the names in a directory that a model may have meant by `name`, which is none of them; those that need no
    quotes, commas or blanks removed from its ends before others."""
    if has_one_spelling(name) and strip_odd_ends(name) == name:  # listing 20,000 names takes some 17 ms
        return []
    written = fold_written_name(name)
    try:
        names = os.listdir(directory)  # noqa: PTH208
    except OSError:
        return []
    if _UNKNOWN in name:  # a byte that isn't UTF-8, as a program showed it
        return [found for found in names if os.fsencode(found).decode(errors="replace") == name]
    # Plain names, which are most, fold to themselves.
    odd = [(found, fold_written_name(found)) for found in names if not found.isascii() or "\\" in found]
    for wanted in (written, strip_odd_ends(written)):
        same = {found for found, folded in odd if folded == wanted} | ({wanted} & {*names})
        if wanted and same:
            return sorted(same)
    return []


def _refuse_new_name_with_odd_ends(path: str, real: Path) -> None:
    """Raise `PathRefused` for a path that would make a file or folder of such a name."""
    for place in (real, *real.parents):
        if os.path.lexists(place):
            return
        if (clean := strip_odd_ends(place.name)) != place.name:
            raise PathRefused(
                f"{quote_name(path)} is refused: no file is called so, and quotes, commas, backticks and blanks at "
                f"the ends of a name are mostly slips; write {quote_name(clean)}, or create it with a command if the "
                "name is meant."
            )


def _is_process_dependent(absolute: Path, normalized: Path, real: Path) -> bool:
    """Return whether a path leads each process elsewhere; `normalized`: the path without `..`."""
    return (normalized != real or ".." in absolute.parts) and is_process_dependent_path(absolute)


def path_parts_below(path: Path, root: Path) -> Sequence[str]:
    """Return the names on the way from the root to a path inside it."""
    return path.parts[len(root.parts) :]


def open_workspace(
    root: Path,
    settings: Settings,
    outputs: Path | None = None,
    protected: ProtectedPaths | None = None,
    buffers: Buffers | None = None,
) -> FolderWorkspace:
    """Open the workspace described by settings. Raises `UserError` or `ConfigError` naming a missing directory."""
    if not os.path.isdir(root):  # noqa: PTH112 - Path.is_dir raises for names that are too long
        raise UserError(
            f"No directory {quote_path(root)}; start in the directory that you want to work on, or name it: -C DIR"
        )
    included = [root / Path(name).expanduser() for name in settings.context.include_directories]
    for directory in included:
        if not os.path.isdir(directory):  # noqa: PTH112 - see above
            raise ConfigError(
                f"Included directory {quote_path(directory)} isn't there; expected a directory."
            )
    filtering = settings.context.file_filtering
    return FolderWorkspace(
        root,
        included,
        git_ignore=filtering.respect_git_ignore,
        agent_ignore=filtering.respect_gemini_ignore,
        hiding_files=settings.context.read.ignore,
        custom_ignore=[Path(name) for name in filtering.custom_ignore_files],
        outputs=outputs,
        protected=protected,
        buffers=buffers,
        encodings=settings.files.encodings,
    )
