"""trust: what a folder supplies, and whether a person has trusted it.

Recorded in `~/.interlock/trusted.json` (`interlock trust`), or in gemini-cli's `~/.gemini/trustedFolders.json`; ours
wins for the same folder. As there, `security.folderTrust.enabled: false` in the user's own settings trusts all."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from interlock.services.config.claude_settings import read_claude_settings
from interlock.services.config.formats import load_dotenv, parse_yaml
from interlock.services.config.server_files import FORMATS, find_server_format, read_server_tables
from interlock.services.config.settings import FOLDERS, load_settings, read_json_object
from interlock.services.files.agent_files import (
    AgentFileKind,
    find_agent_files,
    find_unread_agent_files,
)
from interlock.services.files.claude_denials import CLAUDE_SETTINGS
from interlock.services.files.disk import make_private_directory, read_file
from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock
from interlock.services.files.linked_worktree import find_linked_worktree
from interlock.services.files.protected import builtin_protected_names
from interlock.services.files.stamps import glob_paths, path_exists, real_path
from interlock.services.hooks.hook_settings import ClaudeHookReader, Hook
from interlock.services.hooks.scripts import find_code_files_and_folders
from interlock.services.policy.claude_permissions import (
    PermissionEntry,
    is_claude_settings,
    read_permissions,
)
from interlock.services.policy.rule_files import list_workspace_rule_files
from interlock.services.secrets.environment import is_secret_name
from interlock.state.errors import ConfigError
from interlock.state.names import LISTING
from interlock.state.settings import ContextSettings, ReadSettings
from interlock.state.text import dict_or_empty, estimate_tokens, join_up_to

if TYPE_CHECKING:
    from interlock.services.context.memory import MemoryFile

_TELLING = re.compile(
    r"command|script|hook|url|uri|endpoint|address|host|proxy|webhook|telemetry|header|env|allow|trust|path|director|sandbox",
    re.IGNORECASE,
)
"""Keys of settings that may run something, lead outside or allow something; they are shown first."""
_FIRST = ("type", "name", "command")
_NOT_READ = "not read: "
_VARIABLE = re.compile(r"[${]")


def describe_file_effects(file: Path) -> Iterator[str]:
    """The lines of one file, or one that says why it can't be read."""
    try:
        yield from [*_describe_contents(file)]
    except (ConfigError, OSError, ValueError) as error:  # `tomllib` and UTF-8 raise a ValueError, too
        yield f"(can't be read: {error})"


def _describe_contents(file: Path) -> Iterable[str]:
    if find_server_format(file):
        return _describe_server_file(file)
    if is_claude_settings(str(file)):
        return _describe_claude_settings(file)
    if file.suffix == ".json":
        return _describe_settings(read_json_object(file) or {}, listing=file.name == LISTING)
    if file.suffix == ".py":
        return ["Python code, which runs with your rights"]
    text = read_file(file).decode("utf-8-sig")
    if file.suffix == ".toml":
        return _describe_rules(dict_or_empty(tomllib.loads(text)))
    if file.name == ".roomodes":
        return _describe_values(dict_or_empty(parse_yaml(text)))
    return _describe_env_variables(text) if file.name == ".env" else []


def _describe_settings(data: Mapping[str, Any], *, listing: bool) -> Iterator[str]:
    for event, groups in dict_or_empty(data.get("hooks")).items():
        for group in _to_list(groups):
            for hook in map(dict_or_empty, _to_list(dict_or_empty(group).get("hooks"))):
                yield f"hook {event}: {hook.get('command', hook)}{_describe_other_keys(hook, _FIRST)}"
    for name, server in dict_or_empty(data.get("mcpServers")).items():
        yield f"MCP server {name}: {_describe_server(dict_or_empty(server))}"
    for name, place in dict_or_empty(data.get("graphs")).items() if listing else ():
        yield f"graph {name}: {dict_or_empty(place).get('path', place)}"
    shown = {"hooks", "mcpServers", *(["graphs"] if listing else [])}
    shown -= {name for name in shown if not isinstance(data.get(name), dict)}
    yield from _describe_values({key: value for key, value in data.items() if key not in shown})


def _describe_server_file(file: Path) -> Iterator[str]:
    servers, other_keys = read_server_tables(file)
    for name, server in servers.items():
        yield f"MCP server {name}: {_describe_server(server)}"
    if other_keys:
        yield f"{_NOT_READ}{join_up_to(other_keys, _MOST)}"


def _describe_claude_settings(file: Path) -> Iterator[str]:
    found = read_claude_settings(file)
    if found is None or found.problem:
        raise ConfigError(found.problem if found else "it is gone")
    text = read_file(file).decode("utf-8-sig")
    yield from _describe_settings({"hooks": found.hooks or {}}, listing=False)
    problems: list[str] = []
    list(ClaudeHookReader(str(file), problems).read_hooks(found.hooks or {}))
    yield from (line.removeprefix(f"{file}: ") for line in problems)
    permissions = read_permissions(text, str(file))
    yield from (_describe_permission(entry) for entry in permissions.entries)
    yield from (
        f"permissions.{key} doesn't count: {why or 'unknown'}" for key, why in permissions.unused.items()
    )
    for name, value in found.env.items():
        yield f"variable {name}{', a secret' if is_secret_name(name) else f'={value}'}"
    if found.enabled_servers is not None:
        yield f"of .mcp.json, only: {', '.join(found.enabled_servers) or 'no server'}"
    if found.unread:
        yield f"{_NOT_READ}{join_up_to(found.unread, _MOST)}"


_FATES = {
    "rule": "",
    "hides": " (hides the file from tools)",
    "needless": " (needless: {why})",
    "skipped": " (doesn't count: {why})",
    "asks": " (asks instead: {why})",
}


def _describe_permission(entry: PermissionEntry) -> str:
    return f"permission {entry.decision} {entry.text}{_FATES[entry.fate].format(why=entry.why)}"


def _describe_server(server: Mapping[str, Any]) -> str:
    where = server.get("httpUrl") or server.get("url")
    command = server.get("command", "?")
    words = cast("list[Any]", command) if isinstance(command, list) else [command]
    line = [where] if where else [*words, *_to_list(server.get("args"))]
    free = ["every tool"] if server.get("trust") else [*map(str, _to_list(server.get("alwaysAllow")))]
    said = ("httpUrl" if server.get("httpUrl") else "url",) if where else ("command", "args")
    asks = f" (doesn't ask: {', '.join(free)})" if free else ""
    return " ".join(map(str, line)) + asks + _describe_other_keys(server, (*said, "trust", "alwaysAllow"))


def _describe_other_keys(entry: Mapping[str, Any], described_keys: Iterable[str]) -> str:
    """What else stands there, as `env`, headers and a folder do."""
    rest = [
        f"{name}={_format_value(value, name)}"
        for name, value in _iterate_leaves(entry)
        if name.partition(".")[0] not in described_keys
    ]
    return f" ({'; '.join(rest)})" if rest else ""


def _describe_rules(data: Mapping[str, Any]) -> Iterator[str]:
    """Of a file of rules."""
    for rule in map(dict_or_empty, _to_list(data.get("rule"))):
        about = [
            f"{name}={_format_value(value)}" for name, value in _iterate_leaves(rule) if name != "decision"
        ]
        yield f"rule {rule.get('decision', '?')}: {'; '.join(about)}"
    yield from _describe_values({key: value for key, value in data.items() if key != "rule"})


def _describe_env_variables(text: str) -> Iterator[str]:
    from dotenv.parser import parse_stream

    for binding in parse_stream(StringIO(text)):
        if binding.key:
            hidden = is_secret_name(binding.key)
            yield f"variable {binding.key}" + (", a secret" if hidden else f"={binding.value or ''}")


def _describe_values(data: Mapping[str, Any]) -> list[str]:
    """A line for each value, those first that may run, reach or allow something."""
    found = [(name, value) for name, value in _iterate_leaves(data)]
    found.sort(key=lambda one: _TELLING.search(one[0]) is None)
    return [f"setting {name}: {_format_value(value, name)}" for name, value in found]


def _iterate_leaves(data: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in data.items():
        name = f"{prefix}{key}"
        inner: Any = value
        if isinstance(value, list) and any(isinstance(one, dict | list) for one in cast("list[Any]", value)):
            inner = {str(place): one for place, one in enumerate(cast("list[Any]", value))}
        if isinstance(inner, dict) and inner:
            yield from _iterate_leaves(cast("dict[str, Any]", inner), f"{name}.")
        else:
            yield name, value


def _format_value(value: object, name: str = "") -> str:
    """Return a value as shown; of a secret only that it is one, unless it is a variable."""
    if is_secret_name(name.rpartition(".")[2]) and isinstance(value, str) and not _VARIABLE.search(value):
        return "a secret"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _to_list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


SEEN_FILE = Path(".interlock") / "seen_hooks.json"
"""Below the home directory: directory → hashes of hooks."""


def record_and_report_new_hooks(root: Path, home: Path, hooks: Iterable[Hook]) -> list[str]:
    """Return a line for each project hook that is new or changed since it was last reported, and remember them.

    If that can't be saved, they are reported again the next time.
    """
    own = [hook for hook in hooks if Path(hook.source).is_relative_to(root)]
    marks = {_hook_fingerprint(hook, root): hook for hook in own}
    if not marks:
        return []
    file, key = home / SEEN_FILE, os.path.realpath(root)
    before = (read_json_object(file) or {}).get(key, [])
    new = [hook for mark, hook in marks.items() if mark not in before]
    if new:
        with suppress(OSError), lock_folder(file.parent):  # unwritable home: reported every time
            _write_json_through_link(file, {**(read_json_object(file) or {}), key: sorted(marks)})
    return [
        f"{hook.source}: new or changed hook, which runs from now on: {hook.event}: {hook.display_name}"
        for hook in new
    ]


_MEMORY_SEEN = Path(".interlock") / "seen_memory.json"
"""Below the home directory: directory → memory files that were reported."""


def record_and_report_more_memory(root: Path, home: Path, files: Iterable["MemoryFile"]) -> list[str]:
    """Return a line about the folder's memory files that conversations begin with beside its AGENTS.md or GEMINI.md,
    which alone were read once; only the first time, as for hooks."""
    used = [file for file in files if file.level == "project" and not file.unused]
    more = [file for file in used if file.path.name not in ("AGENTS.md", "AGENTS.override.md", "GEMINI.md")]
    if not more or len(more) == len(used):
        return []
    names = [display_path(file.path, root) for file in more]
    file, key = home / _MEMORY_SEEN, os.path.realpath(root)
    if set(names) <= {*_to_list((read_json_object(file) or {}).get(key))}:
        return []
    with suppress(OSError):  # unwritable home: reported every time
        make_private_directory(file.parent)
        with lock_folder(file.parent):
            _write_json_through_link(file, {**(read_json_object(file) or {}), key: names})
    beside = ", ".join(display_path(file.path, root) for file in used if file not in more)
    tokens = sum(estimate_tokens(file.text) for file in more)
    return [
        f"{join_up_to(names, _MOST)}: read beside {beside}, about {tokens:,} tokens more in each conversation."
        f' To leave them out, set context.fileName to ["AGENTS.md", "GEMINI.md"].'
    ]


def _write_json_through_link(file: Path, entries: Mapping[str, object]) -> None:
    """Write through a link, so that the link is preserved."""
    text = json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    replace_private_file_holding_lock(Path(os.path.realpath(file)), text.encode())


def _hook_fingerprint(hook: Hook, root: Path) -> str:
    """Hash the command and the scripts in the folder that it names, as a pull may change them."""
    digest = hashlib.sha256(f"{hook.event}\0{hook.name}\0{hook.command}".encode())
    for script in find_code_files_and_folders(hook.command, root):
        with suppress(OSError):  # unreadable: then its hook fails too
            digest.update(read_file(script))
    return digest.hexdigest()[:32]


TRUST_FILE = Path(".interlock") / "trusted.json"
"""Below the home directory: a JSON object, directory → "trusted" | "untrusted"."""
GEMINI_FILE = Path(".gemini") / "trustedFolders.json"
_MOST = 8
"""Maximum number of files named in a warning."""
_GEMINI_ANSWERS = {"TRUST_FOLDER": True, "TRUST_PARENT": True, "DO_NOT_TRUST": False}


class TrustDecision(NamedTuple):
    """The decision on a directory and everything below it."""

    directory: Path | None
    """None: every directory."""
    trusted: bool
    source: Path
    """The file that contains it."""


def is_trusted(path: Path, home: Path) -> bool:
    """Whether the nearest decision for `path` trusts it; False without one. Raises `ConfigError` for a bad file."""
    answer = find_trust_decision(path, home)
    return answer is not None and answer.trusted


def find_trust_decision(path: Path, home: Path) -> TrustDecision | None:
    """Return the decision that applies to `path`, or None: of a linked git worktree, that on its repository, unless one
    names the worktree or a folder in it. Raises `ConfigError` for a bad file."""
    if (off := _find_settings_trusting_every_folder(home)) is not None:
        return TrustDecision(None, True, off)
    by_folder = {answer.directory: answer for answer in read_trust_decisions(home)}
    places = _places_that_decide(real_path(path)) if by_folder else ()
    return next((by_folder[place] for place in places if place in by_folder), None)


def _places_that_decide(target: Path) -> Iterator[Path]:
    """Yield the folders whose decision counts for `target`, the nearest first. What was decided on the repository of a
    linked worktree comes before what was decided on folders around the worktree."""
    around = (target, *target.parents)
    if linked := find_linked_worktree(target):
        yield from (place for place in around if place.is_relative_to(linked.top))
        yield from (
            linked.common.parents if linked.common.name == ".git" else (linked.common, *linked.common.parents)
        )
    yield from around


def read_trust_decisions(home: Path) -> list[TrustDecision]:
    """Return all decisions, gemini-cli's file first. Raises `ConfigError` for a bad file."""
    ours = home / TRUST_FILE
    own = [
        TrustDecision(_parse_decision_directory(key, home, ours), _parse_decision(key, value, ours), ours)
        for key, value in (read_json_object(ours) or {}).items()
    ]
    return [*_read_gemini_decisions(home), *own]


def record_trust_decision(directory: Path, home: Path, *, trusted: bool) -> None:
    """Record the decision for a directory's real path, preserving other entries, even under concurrent writes. Raises
    `ConfigError` for a file that can't be read or written."""
    file = home / TRUST_FILE
    key, word = os.path.realpath(directory), "trusted" if trusted else "untrusted"
    try:
        make_private_directory(file.parent)
        with lock_folder(file.parent):
            entries = {
                k: v
                for k, v in (read_json_object(file) or {}).items()
                if str(_parse_decision_directory(k, home, file)) != key
            }
            for entry in entries.items():
                _parse_decision(*entry, file)
            _write_json_through_link(file, {**entries, key: word})
    except OSError as error:
        raise ConfigError(f"{file}: can't be written ({error.strerror}); nothing was changed.") from None


def _find_settings_trusting_every_folder(home: Path) -> Path | None:
    """Return the user's settings file that trusts every folder, if any."""
    off: Path | None = None
    for folder in FOLDERS:
        file = home / folder / "settings.json"
        value: Any = read_json_object(file)
        for key in ("security", "folderTrust", "enabled"):
            value = cast(dict[str, Any], value).get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            off = None if value else file
    return off


def _read_gemini_decisions(home: Path) -> list[TrustDecision]:
    """Return gemini-cli's decisions, as far as we know its words; `TRUST_PARENT` applies to the parent directory."""
    file = home / GEMINI_FILE
    found: list[TrustDecision] = []
    for key, value in (read_json_object(file) or {}).items():
        if value in _GEMINI_ANSWERS and Path(key).is_absolute():
            directory = Path(key).parent if value == "TRUST_PARENT" else Path(key)
            found.append(TrustDecision(real_path(directory), _GEMINI_ANSWERS[str(value)], file))
    return found


def _parse_decision_directory(key: str, home: Path, file: Path) -> Path:
    directory = home / key[2:] if key.startswith("~/") else home if key == "~" else Path(key)
    if not directory.is_absolute():
        raise ConfigError(f"{file}: {key!r} is not an absolute path; write one, or one that begins with ~/.")
    return real_path(directory)


def _parse_decision(key: str, value: object, file: Path) -> bool:
    if value not in ("trusted", "untrusted"):
        raise ConfigError(f"{file}: {key!r} is {value!r}, expected 'trusted' or 'untrusted'.")
    return value == "trusted"


class ProjectFile(NamedTuple):
    """A file, and what it would run, connect to, allow or set, one line each."""

    path: Path
    runs: tuple[str, ...] = ()


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
    more = [*_list_definition_files(root, home), *_list_waiting_instructions(root, home, settings)]
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
    for file in (*loaded.memory, *loaded.rules, *find_nested_instructions(root, chosen, loaded.included)):
        is_memory = isinstance(file, MemoryFile)
        row = describe_memory_file(file, root) if is_memory else describe_rule(file, root)
        base = next((above for above in root.parents if file.path.parent in (above, above / ".claude")), root)
        if isinstance(file, AgentRule):
            base = file.base
        waits = root.is_relative_to(base) and base != root and not is_trusted(base, home)
        more = [f"counts if {base} is trusted, too"] if waits else []
        if file.level == "project":
            found[file.path] = ProjectFile(file.path, (f"instructions for the model: {row}", *more))
    return found


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
    return any(not line.startswith(_NOT_READ) for line in describe_file_effects(file))


def _is_in_home(file: Path, root: Path, home: Path) -> bool:
    """Return whether it is the user's own file, as in the home directory."""
    return real_path(file) == real_path(home / file.relative_to(root))


def _other_agents_files(folder: Path) -> Iterator[Path]:
    """Yield the files of other agents in a folder that run or allow something in a trusted one."""
    yield from (file for name in (*FORMATS, *CLAUDE_SETTINGS) if path_exists(file := folder / name))


def list_files_shown_for_trust(
    root: Path, home: Path, settings: ContextSettings | None = None
) -> list[ProjectFile]:
    """What a person sees before the folder is trusted: those, what of them doesn't count, the memory files that count
    in any folder, and the graphs that could then be run by name."""
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
    notes = [*_notes_on_settings(root, home), *_notes_on_kinds_turned_off(root, read)]
    return [file._replace(runs=(*file.runs, *_notes_about(file.path, notes))) for file in files]


def _name_linked_file(file: ProjectFile, described: Path | None, root: Path) -> ProjectFile:
    """Return a file of which nothing is said with the file that it leads to, if that is described."""
    if file.runs or described is None:
        return file
    return file._replace(runs=(f"the same file as {display_path(described, root)}",))


def _hiding_files(root: Path, read: ReadSettings) -> Iterator[ProjectFile]:
    """Yield the ignore files of other agents, which count in an untrusted folder, too."""
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
_OTHER_KINDS: tuple[AgentFileKind, ...] = ("servers", "hooks", "permissions", "ignore")


def describe_other_agents_files(
    root: Path, home: Path, read: ReadSettings, *, trusted: bool, servers: Mapping[str, Sequence[str]]
) -> Iterator[AgentFileUse]:
    """Yield a folder's files of servers, hooks, permissions and hidden files that other agents read, used or not.

    `servers`: file → its servers that count."""
    on = read.model_dump()
    for kind in _OTHER_KINDS:
        off = "" if on[kind] else f"context.read.{kind} is false"
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
    return names + (f"; of them {join_up_to(unused, _MOST)}" if unused else "")


def _repository_files_needing_trust(root: Path, home: Path) -> Iterator[ProjectFile]:
    """Yield the files of servers of the repository around a folder, which count if its root is trusted."""
    top = next((d for d in (root, *root.parents) if path_exists(d / ".git")), root)
    if top in (root, home):
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
        f"This folder isn't trusted, so these were ignored: {join_up_to(names, _MOST)}. "
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
