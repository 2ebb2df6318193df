"""commands: everything that begins with a slash: the table, its help, and how a typed line finds its command."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.table import Table

from interlock.cli.candidates import candidates
from interlock.cli.near import nearest
from interlock.cli.render.results import without_text
from interlock.cli.session import choices
from interlock.cli.session.choices import Complete, Run, choice
from interlock.cli.session.completion import Offer
from interlock.cli.session.programs import drawn_result, run_shell_line, show_printed, words
from interlock.cli.session.session import Session
from interlock.engine.client import Outcome, travel
from interlock.engine.client.choices import start_plan_mode
from interlock.state.command import NAME
from interlock.state.errors import InterlockError, UserError

Arguments = Callable[["Session", list[str]], list[str]]
_NAME = re.compile(rf"/(\?|{NAME}|)(?:\s+(.*))?$", re.DOTALL)
"""A path isn't a command: `/etc/hosts is gone` is a prompt."""


KEYS = (
    ("Enter", "Send; while the agent works, queue"),
    ("Alt-Enter, Ctrl-J, \\ Enter", "Start a new line"),
    ("@", "Name a file or folder of the workspace"),
    ("!", "Run a shell command yourself; the model sees it with your next prompt"),
    ("Shift-Tab", "Switch the approval mode: default, auto_edit, plan"),
    ("Esc, Ctrl-C", "Stop the agent; Ctrl-C twice, or Ctrl-D: leave"),
    ("Esc Esc", "Clear the line"),
    ("↑ ↓, Ctrl-R", "Browse or search the input history"),
    ("Ctrl-G, Ctrl-X Ctrl-E", "Edit the line in $EDITOR"),
    ("Ctrl-V", "Attach the image in the clipboard"),
)
"""Keys of the input line."""


@dataclass(frozen=True)
class Slash:
    usage: str
    summary: str
    run: Run
    complete: Complete | None = None
    aliases: str = ""
    waits: bool = False
    """Waits while the agent works, which it would disturb."""

    @property
    def name(self) -> str:
        return self.usage.partition(" ")[0]


def _here(session: Session, typed: list[str]) -> list[str]:
    return [*typed, "-C", str(session.workspace)]


def _trusting(session: Session, typed: list[str]) -> list[str]:
    """The folder, which counts as trusted where the session was told so."""
    return [*_here(session, typed), *(["--skip-trust"] if session.options.skip_trust else [])]


async def _memory(session: Session, rest: str) -> None:
    """What follows `add` is the text as it was typed: `don't use tabs`."""
    action, _, text = rest.strip().partition(" ")
    if action != "add" or not text.strip():
        await show_printed(session, "memory", _here(session, words(rest)))
        return
    own, text = text.strip().startswith("--global "), text.strip().removeprefix("--global ").strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    flags = _here(session, ["--global"] if own else [])
    await show_printed(session, "memory", ["add", *flags, "--", text[1:-1] if quoted else text])


def _this_run(session: Session, typed: list[str]) -> list[str]:
    """Prepend this run, unless the arguments name another."""
    named = typed and not typed[0].startswith("-") and not typed[0].isdecimal()
    return typed if named else [session.this_run, *typed]


def _diff(session: Session, typed: list[str]) -> list[str]:
    arguments = _this_run(session, typed)
    return arguments if len(arguments) > 1 else [*arguments, "--files"]


def _export(session: Session, typed: list[str]) -> list[str]:
    run = session.this_run
    arguments = typed or [str(session.workspace / f"run-{run}.html")]
    return [run, *([] if {"-o", "--output"} & {*arguments} else ["-o"]), *arguments]


def _printing(
    usage: str, summary: str, arguments: Arguments = lambda _, typed: typed, aliases: str = ""
) -> Slash:
    """A command that prints what `interlock NAME` does, completed as in a shell; `arguments` makes its arguments."""
    name = usage.partition(" ")[0]

    async def run(session: Session, rest: str) -> None:
        await show_printed(session, name, arguments(session, words(rest)))

    def complete(session: Session, typed: str) -> Iterable[str]:
        *before, word = typed.split(" ")
        of_a_run = arguments in (_this_run, _diff, _export)
        known = _this_run(session, before) if of_a_run else before
        return [
            found.value for found in candidates([name, *known, word[:1] if word[:1] == "-" else ""]).words
        ]

    return Slash(usage, summary, run, complete, aliases)


_CONVERSING = ("main", "plan", "task", "init")
"""Workflows that have shown what they say."""


async def _run(session: Session, rest: str) -> None:
    name, _, more = rest.strip().partition(" ")
    if not name:
        raise UserError('Which workflow? Expected /run WORKFLOW PROMPT, or /run WORKFLOW {"field": …}')
    given: Any = more.strip()
    if given.startswith("{"):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise UserError(f"The input of /run isn't JSON: {error}") from error

    def done(outcome: Outcome) -> None:
        if outcome.shown and name not in _CONVERSING:
            shown = str(outcome.shown.get("text") or "")
            session.screen.show(drawn_result(name, without_text(outcome.shown, shown)))

    session.run_beside(name, given, done)


def _workflows(_: Session, typed: str) -> Iterable[str]:
    return () if " " in typed else [found.value for found in candidates(["run", ""]).words]


async def _help(session: Session, rest: str) -> None:
    if name := rest.strip().lstrip("/"):
        command = find(session, name)
        session.screen.show(_table([(f"/{command.usage}", _described(command))]))
        return
    session.screen.show(_table([(f"/{command.usage}", command.summary) for command in COMMANDS.values()]))
    own = session.available.own()
    if added := [*own.commands.items(), *own.skills.items()]:
        session.screen.show(_table([(f"/{name}", summary) for name, summary in added]))
    session.screen.show(_table(KEYS))


_LISTED = (
    Slash("help [COMMAND]", "List commands and keys", _help, aliases="?"),
    Slash("model [NAME]", "Show or choose the model, from the next prompt on", *choice("model")),
    Slash("mode [NAME]", "Show or choose the mode of work: architect, code, ask, …", *choice("mode")),
    Slash(
        "approval-mode [MODE]",
        "Show or choose the approval mode: default, auto_edit or plan",
        *choice("approval-mode"),
    ),
    Slash(
        "plan [PROMPT]",
        "Plan first, and change nothing until you approve the plan",
        lambda session, rest: start_plan_mode(session, rest.strip()),
    ),
    Slash("loops [on|off]", "Turn loop detection on or off for this conversation", *choice("loops")),
    Slash(
        "compress",
        "Compress the conversation into a summary",
        lambda session, _: travel.compress_conversation(session),
        aliases="compact summarize",
    ),
    Slash(
        "clear",
        "Start a new conversation; /resume returns to this one",
        lambda session, _: travel.start_new_conversation(session),
        aliases="new reset",
    ),
    Slash(
        "resume [RUN]",
        "Resume another run of this folder",
        choices.resume,
        choices.runs,
        aliases="continue chat",
    ),
    Slash("fork [STEP]", "Fork this run here; with STEP in a folder of its own", choices.fork),
    Slash("rewind [STEP]", "Go back to one of your prompts, with the files", choices.rewind),
    Slash(
        "undo [CALL|all]",
        "Undo the last file change, one call, or all changes",
        choices.undo,
        aliases="restore",
    ),
    _printing("diff [STEP STEP]", "Show file changes of this run, or compare two steps", _diff),
    _printing("show [--calls]", "Show path, calls, tokens and decisions of this run", _this_run),
    _printing("history [--all]", "List the steps of this run", _this_run),
    Slash("context", "Show what fills the context window, by source", choices.context),
    Slash("stats", "Show tokens, requests and cost, by model", choices.stats, aliases="cost usage"),
    _printing("export [FILE]", "Export this run as .html, .md or .json", _export, aliases="share"),
    Slash("editor", "Write a prompt in $EDITOR (also Ctrl-G)", choices.editor),
    Slash(
        "auth [test|set|remove PROVIDER]",
        "Show, test, change or remove keys and servers",
        choices.auth,
        choices.auth_words,
    ),
    Slash("copy", "Copy the last answer to the clipboard", choices.copy),
    _printing("approvals [RUN]", "List open requests, across all runs"),
    _printing("runs [--all]", "List runs; `/runs rm RUN` deletes one", aliases="sessions"),
    _printing("tools", "List the tools available to the model"),
    Slash("mcp [test SERVER]", "List MCP servers and what they offer", choices.mcp, choices.mcp_words),
    replace(
        _printing("memory [add TEXT]", "Show or extend the memory files, such as GEMINI.md"), run=_memory
    ),
    Slash(
        "init [HINT]",
        "Explore this repository and write GEMINI.md; asks first",
        lambda session, rest: session.run_beside("init", rest.strip()),
    ),
    Slash(
        "run WORKFLOW [PROMPT|JSON]",
        "Run another workflow, then come back to this conversation",
        _run,
        _workflows,
    ),
    _printing("agents", "List sub-agents", _trusting),
    _printing("hooks [test EVENT]", "List hooks, or show which hooks an event runs", _trusting),
    _printing(
        "policy check TOOL JSON",
        "Show whether a call may run, and which rule decides",
        _trusting,
        aliases="permissions",
    ),
    _printing("doctor", "Check this machine, the settings and the store"),
    Slash("theme [NAME]", "Show or choose the colours", *choice("theme")),
    Slash("vim", "Turn vi keys on or off", choices.vim),
    Slash(
        "quit",
        "Leave the session; the run can be resumed",
        lambda session, _: session.leave(),
        aliases="exit q",
    ),
)

_WAITING = ("plan", "loops", "compress", "clear", "resume", "fork", "rewind", "undo", "init", "run")
"""Commands that wait while the agent works, which they would disturb."""
COMMANDS: dict[str, Slash] = {one.name: replace(one, waits=one.name in _WAITING) for one in _LISTED}
_BY_ALIAS = {alias: command for command in COMMANDS.values() for alias in command.aliases.split()}


def known(session: Session) -> Mapping[str, Slash]:
    """All commands; the user's and the project's never hide a built-in one."""
    own = session.available.own()
    skills = {name: _own(name, summary, _skill) for name, summary in own.skills.items()}
    added = {name: _own(name, summary, _prompt) for name, summary in own.commands.items()}
    return {**skills, **added, **COMMANDS}


def _own(name: str, summary: str, run: Callable[[str, Session, str], None]) -> Slash:
    return Slash(name, summary, partial(run, name), waits=True)


def _prompt(name: str, session: Session, rest: str) -> None:
    """Submit a custom command; the run expands it (`nodes/main.py`)."""
    session.submit(f"/{name} {rest}".strip())


def _skill(name: str, session: Session, rest: str) -> None:
    session.submit(f"Use the skill {name!r}. {rest}".strip())


def offers(session: Session, typed: str) -> Mapping[str, Offer]:
    """Completions for a name being typed, including an MCP server's prompts after `SERVER:`."""
    there = dict(known(session))
    server, colon, _ = typed.partition(":")
    for name in session.available.own().servers:
        asked = colon and name == server
        found = session.available.prompts(name) if asked else {"": "prompts of this MCP server"}
        there |= {f"{name}:{one}": _own(f"{name}:{one}", about, _prompt) for one, about in found.items()}
    return {
        name: Offer(c.summary, partial(c.complete, session) if c.complete else None)
        for name, c in there.items()
    }


def find(session: Session, name: str) -> Slash:
    """Find a command by name, alias or unique prefix. Raises `UserError`."""
    there = known(session)
    if found := there.get(name) or _BY_ALIAS.get(name):
        return found
    server = name.partition(":")[0]
    if ":" in name and server in session.available.own().servers:
        return _own(name, "a prompt of an MCP server", _prompt)
    if problem := session.available.own().problems.get(name):
        raise UserError(f"Command '/{name}' can't be used: {problem}")
    begun = [n for n in there if n.startswith(name)] if name else []
    if len(begun) == 1:
        return there[begun[0]]
    hint = (
        f" It could be {', '.join(f'/{n}' for n in begun)}." if begun else nearest(name, [*there, *_BY_ALIAS])
    )
    raise UserError(f"No command '/{name}'.{hint} All of them: /help")


def is_command(line: str) -> bool:
    return _NAME.match(line.strip()) is not None


def typed(session: Session, line: str) -> None:
    """Handle a sent line: a command, a shell line or a prompt. What would disturb a working agent is queued."""
    if line.startswith("!") and line[1:].strip() and not session.busy:
        session.do_in_place(lambda: run_shell_line(session, line[1:].strip()))
        return
    if not (found := _NAME.match(line.strip())):
        session.submit(line)
        return
    try:
        command = find(session, found[1])
    except InterlockError as error:
        session.failed(error)
        return
    if session.busy and command.waits:
        session.submit(line.strip())
    else:
        session.aside(_executed(session, command, found[2] or ""))


async def _executed(session: Session, command: Slash, rest: str) -> None:
    session.screen.note(f"/{command.name} {rest}".rstrip())
    if running := command.run(session, rest):
        await running


def _described(command: "Slash") -> str:
    also = " or ".join(f"/{name}" for name in command.aliases.split())
    return f"{command.summary} (also {also})" if also else command.summary


def _table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="accent", no_wrap=False)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(left, right)
    return table


def page() -> str:
    """The commands and keys as Markdown, for README."""

    commands = [(f"`/{command.usage}`", _described(command)) for command in COMMANDS.values()]
    keys = [(f"`{key}`" if len(key) == 1 else key, what) for key, what in KEYS]
    rows = [(left.replace("|", "\\|"), right.replace("|", "\\|")) for left, right in (*commands, *keys)]
    return "\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]) + "\n"
