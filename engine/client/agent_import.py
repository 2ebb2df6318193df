"""agent_import: takes over what another agent's home folder holds: memory, servers, permissions and modes.

Skills, commands, sub-agents and rules are read where they are. Nothing of theirs is changed, no secret is copied, and
nothing of ours is written over: what differs is named."""

import json
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from interlock.engine.client.agent_conversations import find_agent_conversations
from interlock.engine.client.agent_homes import (
    AGENTS,
    AgentHome,
    find_agent_home,
    find_opencode_data,
    iterate_other_settings,
)
from interlock.engine.client.folder_contents import check_and_upsert_mcp_server
from interlock.engine.client.imported_rules import ImportedRules
from interlock.engine.client.imported_servers import ImportedServer, read_imported_servers
from interlock.engine.client.views import load_folder_settings
from interlock.services.config.formats import load_dotenv
from interlock.services.config.settings import FOLDERS, read_json_object
from interlock.services.context.memory import FILE_LIMIT, ImportExpansion
from interlock.services.files.agent_files import AgentFileKind, find_agent_files
from interlock.services.files.disk import make_private_directory, read_file, read_text_file
from interlock.services.files.filesystem import (
    UnreadableError,
    lock_folder,
    replace_private_file_holding_lock,
)
from interlock.services.policy.modes import GLOBAL_FILE
from interlock.services.secrets.redaction import Redactor
from interlock.state.errors import ConfigError, InterlockError, UserError

_OWN = FOLDERS[-1]
MEMORY_NAME = "AGENTS.md"
SETTINGS = Path(_OWN) / "settings.json"
State = Literal["new", "there", "same", "differs", "left out"]
Kind = AgentFileKind | Literal["modes", "settings", "conversations"]
_READ_KINDS: tuple[AgentFileKind, ...] = ("memory", "rules", "skills", "commands", "agents")


@dataclass(frozen=True)
class ImportItem:
    """One thing of another agent's home."""

    kind: Kind
    name: str
    source: Path
    state: State
    """`new`: it can be taken over. `there`: Interlock reads it where it is. `same`: it was taken over. `differs`: ours
    has something else of this name, which stays. `left out`: it can't be taken over."""
    target: Path | None = None
    note: str = ""
    variables: tuple[str, ...] = ()
    """Variables that a server needs."""
    write: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class ImportPlan:
    agent: str
    folder: Path
    items: list[ImportItem]
    unset: Mapping[str, bool]
    """Variables that servers need and that aren't set → whether their values stand in the files."""

    @property
    def program(self) -> str:
        return AGENTS[self.agent]

    @property
    def new(self) -> list[ImportItem]:
        return [item for item in self.items if item.state == "new"]


def plan_agent_import(
    agent: str, home: Path, env: Mapping[str, str], conversations_of: Path | None = None
) -> ImportPlan:
    """Return what can be taken over from an agent's home. Raises `UserError` if there is none.

    `conversations_of`: a folder whose conversations are wanted, too."""
    found = find_agent_home(agent, home, env)
    if not found.is_there:
        raise UserError(
            f"{AGENTS[agent]} left nothing in this home: no {_display(found.folder, home)} there."
        )
    servers = list[ImportedServer]()
    items = [
        *_plan_memory(found, home),
        *_plan_servers(found, home, servers),
        *_plan_permissions(found, home),
        *_plan_modes(found, home),
        *_list_read_in_place(found, home),
        *(_plan_conversations(agent, home, env, conversations_of) if conversations_of else ()),
        *(
            ImportItem("settings", key, file, "left out", note=why)
            for file, key, why in iterate_other_settings(found)
        ),
    ]
    known = load_dotenv(start=home, home=home, env=env, trusted=False).values
    needed = [item for item in items if item.kind == "servers" and item.state in ("new", "same")]
    hidden = {name for server in servers for name in server.hidden}
    unset = {n: n in hidden for item in needed for n in item.variables if n not in known}
    return ImportPlan(agent, found.folder, items, unset)


def apply_agent_import(plan: ImportPlan) -> list[ImportItem]:
    """Take over what is new; return what couldn't be, each with why."""
    failed: list[ImportItem] = []
    for item in plan.new:
        try:
            if item.write is not None:
                item.write()
        except (InterlockError, OSError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            failed.append(replace(item, state="left out", note=why))
    return failed


def _display(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)


# ---- memory


def _plan_memory(found: AgentHome, home: Path) -> Iterator[ImportItem]:
    target = home / _OWN / _memory_name(home)
    read = {os.path.realpath(file) for file in _files_read_in_place(found, home)}
    before = _read_or_empty(target)
    for file in found.memory:
        if not file.is_file() or os.path.realpath(file) in read:
            continue
        name = _display(file, home)
        try:
            roots = (Path(os.path.realpath(found.folder)), Path(os.path.realpath(home)))
            text = ImportExpansion(roots, FILE_LIMIT).expand_file(file).strip()
        except UnreadableError as error:
            yield ImportItem("memory", name, file, "left out", note=str(error))
            continue
        masked = Redactor()(text)
        start, end = f"<!-- imported from {name} -->", f"<!-- end of {name} -->"
        block = f"{start}\n{masked}\n{end}\n"
        note = "" if masked == text else "without the secrets in it"
        if not text:
            continue
        if _is_for_some_files(text):
            why = "it is for some files only; copy it into .claude/rules of a project"
            yield ImportItem("memory", name, file, "left out", note=why)
        elif block in before or masked in before:
            yield ImportItem("memory", name, file, "same", target)
        elif start in before:
            why = "it changed since it was taken over; to take it anew, delete its old text"
            yield ImportItem("memory", name, file, "differs", target, why)
        else:
            yield ImportItem(
                "memory", name, file, "new", target, note, write=lambda block=block: _append(target, block)
            )


def _memory_name(home: Path) -> str:
    """Return the name of the user's own memory file, which settings may choose."""
    names = load_folder_settings(home).context.file_names
    return MEMORY_NAME if MEMORY_NAME in names or not names else names[0]


def _is_for_some_files(text: str) -> bool:
    from interlock.services.context.front_matter import parse_front_matter

    return bool(parse_front_matter(text).fields.get("paths"))


def _append(target: Path, block: str) -> None:
    with _locked(target) as real:
        text = _read_or_empty(real)
        if block not in text:
            joined = f"{text.rstrip()}\n\n{block}" if text.strip() else block
            replace_private_file_holding_lock(real, joined.encode())


@contextmanager
def _locked(file: Path) -> Generator[Path]:
    """Yield the file that a link leads to, with its folder held against other writers."""
    real = Path(os.path.realpath(file))
    make_private_directory(real.parent)
    with lock_folder(real.parent):
        yield real


def _create(target: Path, data: bytes) -> None:
    with _locked(target) as real:
        if real.exists() and read_file(real) != data:
            raise ConfigError(f"{target} was written meanwhile. It stays as it is.")
        replace_private_file_holding_lock(real, data)


def _read_or_empty(file: Path) -> str:
    try:
        return read_text_file(file)
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: can't be read ({error}).") from None


# ---- servers


def _plan_servers(found: AgentHome, home: Path, servers: list[ImportedServer]) -> Iterator[ImportItem]:
    ours = {folder: _servers_in(home / folder / "settings.json") for folder in FOLDERS}
    target = home / SETTINGS
    seen: set[str] = set()
    for file, format_name in found.servers:
        for server in read_imported_servers(file, format_name, home):
            if server.problem or not server.name:
                yield ImportItem("servers", server.name or file.name, file, "left out", note=server.problem)
                continue
            if server.name in seen:
                continue
            seen.add(server.name)
            servers.append(server)
            place = next((folder for folder in reversed(FOLDERS) if server.name in ours[folder]), None)
            item = ImportItem("servers", server.name, file, "new", target, variables=server.variables)
            if place is None:

                def write(server: ImportedServer = server) -> None:
                    check_and_upsert_mcp_server(target, server.name, server.settings, home)

                yield replace(item, write=write)
            elif ours[place][server.name] == server.settings:
                yield replace(item, state="same", target=home / place / "settings.json")
            else:
                why = "another server of this name is there, and stays"
                yield replace(item, state="differs", target=home / place / "settings.json", note=why)


def _servers_in(file: Path) -> Mapping[str, Any]:
    found = (read_json_object(file) or {}).get("mcpServers")
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}


# ---- permissions and modes


def _plan_permissions(found: AgentHome, home: Path) -> Iterator[ImportItem]:
    target = home / _OWN / "policies" / f"{found.agent}.toml"
    whole, sources = ImportedRules([], []), list[Path]()
    for file, read in found.permissions:
        try:
            rules = read(read_file(file).decode("utf-8-sig"))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            yield ImportItem("permissions", file.name, file, "left out", note=f"it can't be read: {error}")
            continue
        for text, why in rules.left_out:
            yield ImportItem("permissions", text, file, "left out", note=why)
        if rules.rules:
            sources.append(file)
            known = [rule for _, rule in whole.rules]
            whole.rules.extend(one for one in rules.rules if one[1] not in known)
    if not whole.rules:
        return
    text = whole.render_file([_display(file, home) for file in sources])
    rules = "rule" if len(whole.rules) == 1 else "rules"
    item = ImportItem("permissions", f"{len(whole.rules)} {rules}", sources[0], "new", target)
    before = _read_or_empty(target)
    if before == text:
        yield replace(item, state="same")
    elif before:
        yield replace(item, state="differs", note="the file differs, and stays; delete it to take them anew")
    else:
        yield replace(item, write=lambda: _create(target, text.encode()))


def _plan_modes(found: AgentHome, home: Path) -> Iterator[ImportItem]:
    target = home / GLOBAL_FILE
    taken = False
    for file in found.modes:
        try:
            data = read_file(file)
        except OSError:  # most editors have none
            continue
        before = read_file(target) if target.is_file() else b""
        item = ImportItem("modes", file.name, file, "new", target)
        if before == data:
            yield replace(item, state="same")
        elif before or taken:
            yield replace(item, state="differs", note="modes of yours are there, and stay; add these by hand")
        else:
            yield replace(item, write=lambda data=data: _create(target, data))
        taken = True


# ---- conversations


def _plan_conversations(agent: str, home: Path, env: Mapping[str, str], folder: Path) -> Iterator[ImportItem]:
    database = find_opencode_data(home, env) / "opencode.db"
    if agent == "opencode" and database.exists():
        why = "Interlock reads only conversations that earlier versions kept in files"
        yield ImportItem("conversations", _display(database, home), database, "left out", note=why)
    for one in find_agent_conversations(agent, home, env, folder):
        target = home / _OWN / "conversations" / agent / f"{one.name}.json"
        data = f"{json.dumps({'history': one.history}, indent=1, ensure_ascii=False)}\n".encode()
        item = ImportItem("conversations", one.title, one.file, "new", target)
        before = read_file(target) if target.is_file() else b""
        if before == data:
            yield replace(item, state="same")
        elif before:
            yield replace(item, state="differs", note="it went on since; to take it anew, delete the file")
        else:
            yield replace(item, write=lambda target=target, data=data: _create(target, data))


# ---- what is read where it is


def _files_read_in_place(found: AgentHome, home: Path) -> list[Path]:
    return [file for _, files in _iterate_read_in_place(found, home) for file in files]


def _iterate_read_in_place(found: AgentHome, home: Path) -> Iterator[tuple[AgentFileKind, list[Path]]]:
    tops = [home / name for name in found.read_below]
    for kind in _READ_KINDS:
        files = (file for _, file in find_agent_files(kind, home, in_home=True))
        yield kind, [file for file in files if any(file.is_relative_to(top) for top in tops)]


def _list_read_in_place(found: AgentHome, home: Path) -> Iterator[ImportItem]:
    for kind, files in _iterate_read_in_place(found, home):
        folders = dict.fromkeys(_top_folder(file, home, found) for file in files)
        for folder in folders:
            count = sum(_top_folder(file, home, found) == folder for file in files)
            yield ImportItem(kind, _display(folder, home), folder, "there", note=f"{count}")
    if found.folder.is_dir() and found.folder != home / found.read_below[0]:
        why = f"skills, commands and sub-agents are read from ~/{found.read_below[0]}; link it to this folder"
        yield ImportItem("skills", _display(found.folder, home), found.folder, "left out", note=why)
    if found.agent == "gemini":
        for name in ("settings.json", "policies"):
            if (path := found.folder / name).exists():
                yield ImportItem("settings", _display(path, home), path, "there")


def _top_folder(file: Path, home: Path, found: AgentHome) -> Path:
    """Return the folder of a kind that a file lies in: `~/.claude/skills`."""
    top = next(home / name for name in found.read_below if file.is_relative_to(home / name))
    return top / file.relative_to(top).parts[0]
