"""project_files: the files of a folder that count only if it is trusted, and what each would do then."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, get_args

from interlock.services.config.formats import load_dotenv
from interlock.services.config.server_files import FORMATS
from interlock.services.config.settings import FOLDERS, load_settings
from interlock.services.files.agent_files import (
    AgentFileKind,
    find_agent_files,
    find_unread_agent_files,
)
from interlock.services.files.claude_denials import CLAUDE_SETTINGS
from interlock.services.files.ignore import AGENT_FILES
from interlock.services.files.protected import builtin_protected_names
from interlock.services.files.stamps import glob_paths, path_exists, real_path
from interlock.services.policy.rule_files import list_workspace_rule_files
from interlock.services.trust.decisions import is_trusted
from interlock.services.trust.file_effects import MOST_NAMED, NOT_READ, describe_file_effects
from interlock.state.context import IGNORE_FILE
from interlock.state.errors import ConfigError
from interlock.state.names import LISTING
from interlock.state.settings import ContextSettings, ReadSettings
from interlock.state.text import join_up_to


class ProjectFile(NamedTuple):
    """A file, and what it would run, connect to, allow or set, one line each."""

    path: Path
    runs: tuple[str, ...] = ()

    def display_path(self, root: Path) -> str:
        return display_path(self.path, root)


def list_files_needing_trust(
    root: Path, home: Path, settings: ContextSettings | None = None
) -> list[ProjectFile]:
    """List workspace files that need trust, except the user's own; includes files read only by later versions.

    `settings`: what they say of memory and rule files."""
    mine = {real_path(home / folder) for folder in FOLDERS}
    found = [
        file
        for name in builtin_protected_names()
        for file in _parts_needing_trust(root / name)
        if real_path(root / name) not in mine
    ]
    theirs = [file for file in _other_agents_files(root) if file not in found]
    found += [file for file in theirs if _has_effect(file) and not _is_in_home(file, root, home)]
    found += load_dotenv(start=root, home=home, env={}, trusted=False).ignored
    found += list_workspace_rule_files(root, home)
    files = [ProjectFile(file, tuple(describe_file_effects(file))) for file in found]
    more = [*_list_waiting_instructions(root, home, settings), *_list_definition_files(root, home)]
    return [*files, *map(ProjectFile, more)]


def _list_waiting_instructions(root: Path, home: Path, settings: ContextSettings | None) -> list[Path]:
    """Return the memory and rule files that count only in a trusted folder."""
    from interlock.services.context.instructions import load_instructions
    from interlock.services.context.memory import UNTRUSTED

    found = load_instructions([root], home, settings or ContextSettings.default(), trusted=False)
    return [file.path for file in (*found.memory, *found.rules) if file.unused == UNTRUSTED]


def _describe_instructions(
    root: Path, home: Path, settings: ContextSettings | None
) -> dict[Path, ProjectFile]:
    """Return what the project's memory and rule files come to in a trusted folder, those of folders below it, too."""
    from interlock.services.context.instructions import describe_memory_file, describe_rule, load_instructions
    from interlock.services.context.memory import MemoryFile
    from interlock.services.context.nested_instructions import find_nested_instructions
    from interlock.services.context.rules import AgentRule

    chosen = settings or ContextSettings.default()
    loaded = load_instructions([root], home, chosen, trusted=True)
    found: dict[Path, ProjectFile] = {}
    for file in (
        *loaded.memory,
        *loaded.rules,
        *find_nested_instructions(root, chosen, loaded.included, trusted=True),
    ):
        is_memory = isinstance(file, MemoryFile)
        row = describe_memory_file(file, root) if is_memory else describe_rule(file, root)
        base = next((above for above in root.parents if file.path.parent in (above, above / ".claude")), root)
        if isinstance(file, AgentRule):
            base = file.base
        waits = root.is_relative_to(base) and base != root and not is_trusted(base, home)
        more = [f"counts if {base} is trusted, too"] if waits else []
        if file.level == "project":
            found[file.path] = ProjectFile(file.path, (f"instructions for the model: {row}", *more))
    for rule in _describe_rules_of_modes(root, home, {*found}) if chosen.read.rules else ():
        found.setdefault(rule.path, rule)
    return found


def _describe_rules_of_modes(root: Path, home: Path, described: Collection[Path]) -> Iterator[ProjectFile]:
    """Yield what Roo Code's rules come to, also those that only the task loop reads. `described`: files that have a
    row."""
    from interlock.services.context.instructions import describe_roo_rules
    from interlock.services.policy.modes import load_modes

    slugs = {mode.slug for mode in load_modes(root, home, trusted=True)[0].list_modes()}
    for found in describe_roo_rules(root, home, slugs, True, described):
        if found.path is not None and found.path.is_relative_to(root):
            row = found.text.removeprefix(f"{display_path(found.path, root)}: ")
            yield ProjectFile(found.path, (f"instructions for the model: {row}",))


def _list_definition_files(root: Path, home: Path) -> list[Path]:
    """Return the files that define skills, commands and sub-agents. What they do is described only for `trust`."""
    from interlock.services.context.definition_files import Folders, find_ignored_files

    folders = Folders(root, home, trusted=False, ignored=() if root == home else (root,))
    kinds: tuple[AgentFileKind, ...] = ("skills", "commands", "agents")
    return [file.path for kind in kinds for file in find_ignored_files(kind, folders)]


def _describe_definitions(root: Path, home: Path) -> dict[Path, ProjectFile]:
    """Return what the files that define skills, commands and sub-agents do, those of the repository around a folder and
    of folders below it, too."""
    from interlock.services.context.definition_files import Folders, find_parents_in_repository
    from interlock.services.context.definitions import list_definition_uses, list_nested_skill_uses

    if root == home:
        return {}
    parents = tuple(find_parents_in_repository(root, home))
    uses = [*list_definition_uses(Folders(root, home, True, parents)), *list_nested_skill_uses(root)]
    found: dict[Path, ProjectFile] = {}
    for use in uses:
        file = use.use.file
        if file.in_home:
            continue
        lines = [*use.effects, *use.use.notes]
        if use.use.problem:
            lines.append(f"not used; {use.use.problem}")
        elif file.base in parents:
            trusted = is_trusted(file.base, home)
            lines.append(
                f"{file.base} is trusted, so it counts"
                if trusted
                else f"counts if {file.base} is trusted, too"
            )
        elif file.base != root:
            lines.append(f"counts for files in {display_path(file.base, root)}")
        found[file.path] = ProjectFile(file.path, tuple(lines))
    return found


def _has_effect(file: Path) -> bool:
    """Return whether a file of another agent holds anything that counts in a trusted folder."""
    return any(not line.startswith(NOT_READ) for line in describe_file_effects(file))


def _is_in_home(file: Path, root: Path, home: Path) -> bool:
    """Return whether it is the user's own file, as in the home directory."""
    return real_path(file) == real_path(home / file.relative_to(root))


def _other_agents_files(folder: Path) -> Iterator[Path]:
    """Yield the files of other agents in a folder that run or allow something in a trusted one."""
    yield from (file for name in (*FORMATS, *CLAUDE_SETTINGS) if path_exists(file := folder / name))


def list_files_shown_for_trust(
    root: Path, home: Path, settings: ContextSettings | None = None
) -> list[ProjectFile]:
    """What a person sees before the folder is trusted: those, what of them doesn't count, the files of folders below
    it, and the graphs that could then be run by name."""
    listing = root / LISTING
    graphs = [ProjectFile(listing, tuple(describe_file_effects(listing)))] if listing.is_file() else []
    definitions = {**_describe_definitions(root, home), **_describe_instructions(root, home, settings)}
    by_target = {real_path(path): path for path in definitions}
    needing = [
        _name_linked_file(file, by_target.get(real_path(file.path)), root)
        for file in list_files_needing_trust(root, home, settings)
        if file.path not in definitions
    ]
    around = _repository_files_needing_trust(root, home)
    read = (settings or ContextSettings.default()).read
    shown = {file.path for file in needing}
    without = (
        ProjectFile(file, tuple(describe_file_effects(file)))
        for file in _other_agents_files(root)
        if file not in shown and not _is_in_home(file, root, home)
    )
    files = [*needing, *around, *definitions.values(), *without, *_hiding_files(root, read), *graphs]
    files += _describe_unread_files(root, {file.path for file in files})
    notes = [*_notes_on_settings(root, home), *_notes_on_kinds_turned_off(root, read)]
    return [file._replace(runs=(*file.runs, *_notes_about(file.path, notes))) for file in files]


def _name_linked_file(file: ProjectFile, described: Path | None, root: Path) -> ProjectFile:
    """Return a file of which nothing is said with the file that it leads to, if that is described."""
    if file.runs or described is None:
        return file
    return file._replace(runs=(f"the same file as {display_path(described, root)}",))


def _describe_unread_files(root: Path, shown: Collection[Path]) -> Iterator[ProjectFile]:
    """Yield other agents' files that Interlock doesn't read, each with why. `shown`: files that have a row."""
    for kind in get_args(AgentFileKind):
        for row, file in find_unread_agent_files(kind, root):
            if file not in shown:
                yield ProjectFile(file, (f"{kind}: not used; {row.unread}",))


def _hiding_files(root: Path, read: ReadSettings) -> Iterator[ProjectFile]:
    """Yield the ignore files of agents, which count in an untrusted folder, too."""
    for name in AGENT_FILES:
        if path_exists(root / name):
            shown = ("instructions for the model: its text, in the task loop",) if name == IGNORE_FILE else ()
            yield ProjectFile(root / name, ("hides files from tools, trusted or not", *shown))
    does = "hides files from tools, trusted or not" if read.ignore else _describe_kind_turned_off("ignore")
    for _row, file in find_agent_files("ignore", root):
        yield ProjectFile(file, (does,))


def _notes_on_kinds_turned_off(root: Path, read: ReadSettings) -> Iterator[str]:
    on = read.model_dump()
    for kind in _KINDS_OF_SETTINGS:
        for _row, file in () if on[kind] else find_agent_files(kind, root):
            yield f"{file}: {_describe_kind_turned_off(kind)}"


def _describe_kind_turned_off(kind: AgentFileKind) -> str:
    return f"{kind}: not used; the setting context.read.{kind} is false"


class AgentFileUse(NamedTuple):
    """One file of another agent, as `interlock doctor` shows it."""

    kind: AgentFileKind
    path: Path
    text: str
    """What counts of it, or why it isn't used."""
    used: bool


_KINDS_OF_SETTINGS: tuple[AgentFileKind, ...] = ("servers", "hooks", "permissions", "environment")
_OTHER_KINDS: tuple[AgentFileKind, ...] = ("servers", "hooks", "permissions", "ignore", "plugins")


def describe_other_agents_files(
    root: Path, home: Path, read: ReadSettings, *, trusted: bool, servers: Mapping[str, Sequence[str]]
) -> Iterator[AgentFileUse]:
    """Yield a folder's files of servers, hooks, permissions, hidden files and plugins that other agents read, used or
    not.

    `servers`: file → its servers that count."""
    on = read.model_dump()
    for kind in _OTHER_KINDS:
        off = "" if on.get(kind, True) else f"context.read.{kind} is false"
        for _row, file in find_agent_files(kind, root):
            if kind == "ignore":
                yield AgentFileUse(kind, file, off or "hides files from tools", used=not off)
            elif not _is_in_home(file, root, home) and (text := _summarize_agent_file(kind, file)):
                counting = servers.get(str(file), ())
                if off:
                    yield AgentFileUse(kind, file, off, used=False)
                elif not trusted:
                    yield AgentFileUse(kind, file, "the folder isn't trusted (interlock trust)", used=False)
                elif kind != "servers":
                    yield AgentFileUse(kind, file, text, used=not text.startswith("("))
                elif counting:
                    yield AgentFileUse(kind, file, f"{text}; these count: {', '.join(counting)}", used=True)
                else:
                    yield AgentFileUse(kind, file, f"{text}, of which none counts", used=False)
        for row, file in find_unread_agent_files(kind, root):
            yield AgentFileUse(kind, file, row.unread, used=False)


def _summarize_agent_file(kind: AgentFileKind, file: Path) -> str:
    """Return what a file holds of a kind, in words; empty if nothing. `interlock trust` says more."""
    lines = [*describe_file_effects(file)]
    starts = {"servers": "MCP server ", "hooks": "hook ", "permissions": "permission "}
    found = [line for line in lines if line.startswith(starts[kind])]
    if not found:
        return next((line for line in lines if line.startswith("(can't be read")), "")
    unused = [line for line in found if "(doesn't count" in line or "(asks instead" in line]
    names = f"{len(found)} {starts[kind].strip()}{'s' if len(found) > 1 else ''}"
    return names + (f"; of them {join_up_to(unused, MOST_NAMED)}" if unused else "")


def _repository_files_needing_trust(root: Path, home: Path) -> Iterator[ProjectFile]:
    """Yield the files of servers of the repository around a folder, which count if its root is trusted."""
    from interlock.services.files.git_folder import find_git_root

    top = find_git_root(root)
    if top in (None, root, home):
        return
    trusted = is_trusted(top, home)
    counts = f"{top} is trusted, so its MCP servers count" if trusted else f"counts if {top} is trusted, too"
    for file in (*_other_agents_files(top), *(top / folder / "settings.json" for folder in FOLDERS)):
        servers = tuple(line for line in describe_file_effects(file) if line.startswith("MCP server "))
        if servers:
            yield ProjectFile(file, (*servers, counts))


def _notes_on_settings(root: Path, home: Path) -> Sequence[str]:
    """Return what doesn't count of a folder's settings files and servers, though it is trusted."""
    try:
        loaded = load_settings(workspace=root, home=home, env={}, overrides={}, trusted=True)
    except ConfigError:  # said in the row of the file
        return ()
    return [*loaded.notes, *(f"{file}: not used: unknown setting {key}" for file, key in loaded.unknown)]


def _notes_about(file: Path, notes: Iterable[str]) -> Iterator[str]:
    yield from (note.removeprefix(f"{file}: ") for note in notes if note.startswith(f"{file}: "))


def _parts_needing_trust(path: Path) -> Iterator[Path]:
    """Yield the parts of a protected name that apply only in a trusted folder."""
    for pattern in builtin_protected_names()[path.name].trusted:
        if "*" in pattern:
            yield from glob_paths(path, pattern)
        elif path_exists(file := path / pattern):
            yield file


def ignored_files_warning(files: Iterable[ProjectFile], root: Path) -> list[str]:
    """Return a warning naming what was ignored and how to enable it, or an empty list."""
    names = [_describe_file_with_counts(file, root) for file in files]
    if not names:
        return []
    return [
        f"This folder isn't trusted, so these were ignored: {join_up_to(names, MOST_NAMED)}. "
        "To let them count: interlock trust (once: --skip-trust)."
    ]


def display_path(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


def _describe_file_with_counts(file: ProjectFile, root: Path) -> str:
    kinds = [line.split(" ", 1)[0] for line in file.runs]
    counts = [
        f"{n} {word}{'s' if n > 1 else ''}"
        for word, n in (
            ("hook", kinds.count("hook")),
            ("MCP server", kinds.count("MCP")),
            ("permission", kinds.count("permission")),
        )
        if n
    ]
    return display_path(file.path, root) + (f" ({', '.join(counts)})" if counts else "")
