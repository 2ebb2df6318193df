"""commands: everything that begins with a slash: the table, and how a typed line finds its command."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from interlock.cli.catalog import nearest
from interlock.cli.session import choices, shell_line, travel
from interlock.cli.session.help import show_help
from interlock.cli.session.printed import show_printed, words
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session

Run = Callable[["Session", str], Awaitable[None]]
Complete = Callable[["Session", str], Iterable[str]]
_NAME = re.compile(r"/(\?|[\w.:-]*)(?:\s+(.*))?$", re.DOTALL)
"""A path is no command: `/etc/hosts is gone` is a prompt."""


@dataclass(frozen=True)
class SessionCommand:
    """One command of the session."""

    name: str
    usage: str
    summary: str
    run: Run
    complete: Complete | None = None
    while_busy: bool = False
    """Doesn't disturb the agent that works."""
    aliases: tuple[str, ...] = ()


def _of_here(name: str, *given: str) -> Run:
    """A command about this folder."""

    async def run(session: "Session", rest: str) -> None:
        folder = ["-C", str(session.workspace)] if name not in ("tools", "doctor") else []
        await show_printed(session, name, [*given, *words(rest), *folder])

    return run


def _of_run(name: str) -> Run:
    """A command about this session's run, or another that is named first."""

    async def run(session: "Session", rest: str) -> None:
        given = words(rest)
        if not given or given[0].startswith("-") or given[0].isdecimal():
            given = [travel.this_run(session), *given]
        if name == "diff" and len(given) == 1:
            given.append("--files")
        await show_printed(session, name, given)

    return run


def _of_all(name: str) -> Run:
    async def run(session: "Session", rest: str) -> None:
        await show_printed(session, name, words(rest))

    return run


def _among(*offered: str) -> Complete:
    def complete(_session: "Session", _typed: str) -> Iterable[str]:
        return offered

    return complete


async def _export(session: "Session", rest: str) -> None:
    run = travel.this_run(session)
    given = words(rest) or [str(session.workspace / f"run-{run}.html")]
    output = [] if any(word in ("-o", "--output") for word in given) else ["-o"]
    await show_printed(session, "export", [run, *output, *given])


async def _init(session: "Session", rest: str) -> None:
    session.begin_beside("init", rest.strip())


async def _quit(session: "Session", _: str) -> None:
    session.leave()


_LISTED = (
    SessionCommand("help", "help [COMMAND]", "the commands and keys", show_help, None, True, ("?",)),
    SessionCommand(
        "model",
        "model [NAME]",
        "which model answers from the next prompt on",
        choices.model,
        choices.models,
        True,
    ),
    SessionCommand(
        "mode", "mode [NAME]", "the mode of work: architect, code, ask, …", choices.mode, choices.modes, True
    ),
    SessionCommand(
        "approval-mode",
        "approval-mode [MODE]",
        "what needs asking: default, auto_edit or plan (Shift-Tab)",
        choices.approval_mode,
        choices.approval_modes,
        True,
    ),
    SessionCommand(
        "plan", "plan [PROMPT]", "plan first: nothing is changed until you approve the plan", choices.plan
    ),
    SessionCommand(
        "compress",
        "compress",
        "the conversation so far becomes a summary, and room for more",
        choices.compress,
        aliases=("compact", "summarize"),
    ),
    SessionCommand(
        "clear",
        "clear",
        "a new conversation; this one can be resumed",
        travel.clear,
        aliases=("new", "reset"),
    ),
    SessionCommand(
        "resume",
        "resume [RUN]",
        "go on with another run of this folder",
        travel.resume,
        travel.runs,
        aliases=("continue", "chat"),
    ),
    SessionCommand(
        "fork", "fork [STEP]", "a second run from here; with STEP in a folder of its own", travel.fork
    ),
    SessionCommand(
        "rewind",
        "rewind [STEP]",
        "back to before one of your prompts, with the files",
        travel.rewind,
    ),
    SessionCommand(
        "undo",
        "undo [CALL|all]",
        "take back the last change to the files, or one call, or all",
        travel.undo,
        aliases=("restore",),
    ),
    SessionCommand(
        "diff",
        "diff [STEP STEP]",
        "what this run changed in the files, or in its state",
        _of_run("diff"),
        None,
        True,
    ),
    SessionCommand(
        "show",
        "show [--calls]",
        "this run: path, calls, tokens, what was decided",
        _of_run("show"),
        None,
        True,
    ),
    SessionCommand("history", "history [--all]", "its steps", _of_run("history"), None, True),
    SessionCommand(
        "stats", "stats", "tokens, requests and cost, by model", choices.stats, None, True, ("cost", "usage")
    ),
    SessionCommand(
        "export", "export [FILE]", "this run as a page: .html, .md or .json", _export, None, True, ("share",)
    ),
    SessionCommand("copy", "copy", "the last answer to the clipboard", choices.copy, None, True),
    SessionCommand(
        "approvals",
        "approvals [RUN]",
        "what waits for you, in all runs",
        _of_all("approvals"),
        travel.runs,
        True,
    ),
    SessionCommand(
        "runs",
        "runs [--all]",
        "all runs; `runs rm RUN` deletes one",
        _of_all("runs"),
        None,
        True,
        ("sessions",),
    ),
    SessionCommand("tools", "tools", "what the model can call", _of_here("tools"), None, True),
    SessionCommand(
        "mcp", "mcp [test SERVER]", "MCP servers, and what they offer", choices.mcp, choices.mcp_words, True
    ),
    SessionCommand(
        "memory",
        "memory [add TEXT]",
        "the files that every conversation begins with",
        _of_here("memory"),
        _among("show", "add", "refresh"),
        True,
    ),
    SessionCommand(
        "init", "init [HINT]", "write GEMINI.md from a look at this repository; asks first", _init
    ),
    SessionCommand("agents", "agents", "sub-agents that the model can ask", _of_here("agents"), None, True),
    SessionCommand("hooks", "hooks [test EVENT]", "which hooks count here", _of_here("hooks"), None, True),
    SessionCommand(
        "policy",
        "policy check TOOL JSON",
        "may this call run, and which rule decides",
        _of_here("policy"),
        None,
        True,
        ("permissions",),
    ),
    SessionCommand(
        "doctor", "doctor", "check this machine, the settings and the store", _of_here("doctor"), None, True
    ),
    SessionCommand("theme", "theme [NAME]", "the colours", choices.theme, choices.themes, True),
    SessionCommand("vim", "vim", "vi keys on or off", choices.vim, None, True),
    SessionCommand("quit", "quit", "leave; the run can be resumed", _quit, None, True, ("exit", "q")),
)
COMMANDS: dict[str, SessionCommand] = {command.name: command for command in _LISTED}
_BY_ALIAS = {alias: command for command in _LISTED for alias in command.aliases}


def known(session: "Session") -> Mapping[str, SessionCommand]:
    """With what the user and the project add, which never hides one of the session's own."""
    own = session.available.own()
    skills = {
        name: SessionCommand(name, name, summary, partial(_skill, name))
        for name, summary in own.skills.items()
    }
    added = {
        name: SessionCommand(name, name, summary, partial(_prompt, name))
        for name, summary in own.commands.items()
    }
    return {**skills, **added, **COMMANDS}


async def _prompt(name: str, session: "Session", rest: str) -> None:
    """The run expands it (`nodes/command.py`)."""
    session.submit(f"/{name} {rest}".strip())


async def _skill(name: str, session: "Session", rest: str) -> None:
    session.submit(f"Use the skill {name!r}. {rest}".strip())


@dataclass(frozen=True)
class Offered:
    """A command as the completion shows it."""

    session: "Session"
    command: SessionCommand

    @property
    def summary(self) -> str:
        return self.command.summary

    def arguments(self, typed: str) -> Iterable[str]:
        return self.command.complete(self.session, typed) if self.command.complete else ()


def offers(session: "Session", typed: str) -> Mapping[str, Offered]:
    """What a name that is being typed can become: with the prompts of the MCP server that it begins with."""
    there = dict(known(session))
    server, colon, _ = typed.partition(":")
    for name in session.available.own().servers:
        found = (
            session.available.prompts(name)
            if colon and name == server
            else {"": "prompts of this MCP server"}
        )
        there |= {
            f"{name}:{prompt}": _of_server(f"{name}:{prompt}", about) for prompt, about in found.items()
        }
    return {name: Offered(session, command) for name, command in there.items()}


def _of_server(name: str, summary: str = "a prompt of an MCP server") -> SessionCommand:
    return SessionCommand(name, name, summary, partial(_prompt, name))


def find(session: "Session", name: str) -> SessionCommand:
    """By its name, an alias, or a beginning that only one has. Raises `UserError`."""
    there = known(session)
    if found := there.get(name) or _BY_ALIAS.get(name):
        return found
    server = name.partition(":")[0]
    if ":" in name and server in session.available.own().servers:
        return _of_server(name)
    begun = [n for n in there if n.startswith(name)] if name else []
    if len(begun) == 1:
        return there[begun[0]]
    hint = (
        f" It could be {', '.join(f'/{n}' for n in begun)}." if begun else nearest(name, [*there, *_BY_ALIAS])
    )
    raise UserError(f"No command '/{name}'.{hint} All of them: /help")


def typed(session: "Session", line: str) -> None:
    """What was sent: a command, a shell line, or a prompt. What would disturb the agent that works waits in line."""
    if line.startswith("!") and line[1:].strip() and not session.busy:
        session.pursue(lambda: shell_line.run(session, line[1:].strip()))
        return
    if not (found := _NAME.match(line.strip())):
        session.submit(line)
        return
    try:
        command = find(session, found[1])
    except InterlockError as error:
        session.failed(error)
        return
    if session.busy and not command.while_busy:
        session.submit(line.strip())
    else:
        session.aside(_executed(session, command, found[2] or ""))


async def _executed(session: "Session", command: SessionCommand, rest: str) -> None:
    session.screen.note(f"/{command.name} {rest}".rstrip())
    await command.run(session, rest)
