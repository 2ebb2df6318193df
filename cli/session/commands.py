"""commands: everything that begins with a slash: the table, its help, and how a typed line finds its command."""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.table import Table

from interlock.cli.completions import complete_last_word
from interlock.cli.other_programs import SLASH_COMMANDS, SUBCOMMANDS
from interlock.cli.render.workflow_results import blank_already_shown_text
from interlock.cli.session import command_actions
from interlock.cli.session.command_actions import Complete, Run, build_choice_command
from interlock.cli.session.completion import CommandOffer
from interlock.cli.session.external_programs import (
    render_workflow_result,
    run_and_show_interlock_command,
    run_shell_line_and_attach_output,
    split_shell_words,
)
from interlock.cli.session.session import Session
from interlock.cli.suggestions import nearest_names_hint
from interlock.engine.client import Outcome, travel
from interlock.engine.client.choices import start_plan_mode
from interlock.state.command import NAME
from interlock.state.errors import InterlockError, UserError
from interlock.state.text import to_one_line

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
class SlashCommand:
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


def _add_folder_flag(session: Session, arguments: list[str]) -> list[str]:
    return [*arguments, "-C", str(session.workspace)]


def _add_folder_and_trust_flags(session: Session, arguments: list[str]) -> list[str]:
    """The folder, which counts as trusted where the session was told so."""
    return [*_add_folder_flag(session, arguments), *(["--skip-trust"] if session.options.skip_trust else [])]


def _add_main_folder_flags(session: Session, arguments: list[str]) -> list[str]:
    """The folder that the session began in: its worktree may be the one to merge or remove."""
    folder = (session.options.worktree or {}).get("repository") or str(session.workspace)
    return [*arguments, "-C", folder, *(["--skip-trust"] if session.options.skip_trust else [])]


async def _run_memory_command(session: Session, arguments: str) -> None:
    """What follows `add` is the text as it was typed: `don't use tabs`."""
    action, _, text = arguments.strip().partition(" ")
    if action != "add" or not text.strip():
        await run_and_show_interlock_command(
            session, "memory", _add_folder_flag(session, split_shell_words(arguments))
        )
        return
    own, text = text.strip().startswith("--global "), text.strip().removeprefix("--global ").strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
    flags = _add_folder_flag(session, ["--global"] if own else [])
    await run_and_show_interlock_command(
        session, "memory", ["add", *flags, "--", text[1:-1] if quoted else text]
    )


def _default_to_current_run(session: Session, arguments: list[str]) -> list[str]:
    """Prepend this run, unless the arguments name another."""
    named = arguments and not arguments[0].startswith("-") and not arguments[0].isdecimal()
    return arguments if named else [session.required_run, *arguments]


def _diff_arguments(session: Session, typed: list[str]) -> list[str]:
    arguments = _default_to_current_run(session, typed)
    return arguments if len(arguments) > 1 else [*arguments, "--files"]


def _export_arguments(session: Session, typed: list[str]) -> list[str]:
    run = session.required_run
    arguments = typed or [str(session.workspace / f"run-{run}.html")]
    return [run, *([] if {"-o", "--output"} & {*arguments} else ["-o"]), *arguments]


def _build_cli_command(
    usage: str, summary: str, arguments: Arguments = lambda _, typed: typed, aliases: str = ""
) -> SlashCommand:
    """A command that prints what `interlock NAME` does, completed as in a shell; `arguments` makes its arguments."""
    name = usage.partition(" ")[0]

    async def run_and_show(session: Session, rest: str) -> None:
        await run_and_show_interlock_command(session, name, arguments(session, split_shell_words(rest)))

    def complete_arguments(session: Session, typed: str) -> Iterable[str]:
        *before, word = typed.split(" ")
        of_a_run = arguments in (_default_to_current_run, _diff_arguments, _export_arguments)
        known = _default_to_current_run(session, before) if of_a_run else before
        return [
            found.value
            for found in complete_last_word([name, *known, word[:1] if word[:1] == "-" else ""]).words
        ]

    return SlashCommand(usage, summary, run_and_show, complete_arguments, aliases)


def _build_plain_command(
    usage: str, summary: str, action: Callable[[Session], Awaitable[None] | None], aliases: str = ""
) -> SlashCommand:
    """A command that takes no argument: what another agent takes there isn't passed over silently."""

    def run(session: Session, arguments: str) -> Awaitable[None] | None:
        if arguments.strip():
            raise UserError(f"/{usage} takes no argument, and {arguments.strip()!r} was given.")
        return action(session)

    return SlashCommand(usage, summary, run, aliases=aliases)


_CONVERSING = ("main", "plan", "task", "init")
"""Workflows that have shown what they say."""


async def _run_named_workflow(session: Session, arguments: str) -> None:
    name, _, more = arguments.strip().partition(" ")
    if not name:
        raise UserError('Which workflow? Expected /run WORKFLOW PROMPT, or /run WORKFLOW {"field": …}')
    given: Any = more.strip()
    if given.startswith("{"):
        try:
            given = json.loads(given)
        except ValueError as error:
            raise UserError(f"The input of /run isn't JSON: {error}") from error

    def show_result(outcome: Outcome) -> None:
        if outcome.display_output and name not in _CONVERSING:
            shown = str(outcome.display_output.get("text") or "")
            session.screen.show_renderable(
                render_workflow_result(name, blank_already_shown_text(outcome.display_output, shown))
            )

    session.run_side_workflow(name, given, show_result)


def _complete_workflows(_: Session, typed: str) -> Iterable[str]:
    return () if " " in typed else [found.value for found in complete_last_word(["run", ""]).words]


async def _show_help(session: Session, argument: str) -> None:
    if name := argument.strip().lstrip("/"):
        command = resolve_slash_command(session, name)
        session.screen.show_renderable(
            _build_two_column_table([(f"/{command.usage}", _describe_command(command))])
        )
        return
    session.screen.show_renderable(
        _build_two_column_table([(f"/{command.usage}", command.summary) for command in COMMANDS.values()])
    )
    own = session.extensions.get_extensions()
    if own.commands:
        rows = [
            (f"/{_build_custom_command(name, summary, own.argument_hints.get(name, '')).usage}", summary)
            for name, summary in own.commands.items()
        ]
        session.screen.show_renderable(_build_two_column_table(rows))
    session.screen.show_renderable(_build_two_column_table(KEYS))


_LISTED = (
    SlashCommand("help [COMMAND]", "List commands and keys", _show_help, aliases="?"),
    SlashCommand(
        "model [NAME]",
        "Show or choose the model, from the next prompt on",
        *build_choice_command("model"),
        aliases="models",
    ),
    SlashCommand(
        "mode [NAME]",
        "Show or choose the mode of work: architect, code, ask, …",
        *build_choice_command("mode"),
    ),
    SlashCommand(
        "approval-mode [MODE]",
        "Show or choose the approval mode: default, auto_edit or plan",
        *build_choice_command("approval-mode"),
    ),
    SlashCommand(
        "plan [PROMPT]",
        "Plan first, and change nothing until you approve the plan",
        lambda session, rest: start_plan_mode(session, rest.strip()),
    ),
    SlashCommand(
        "loops [on|off]",
        "Turn loop detection on or off for this conversation",
        *build_choice_command("loops"),
    ),
    _build_plain_command(
        "compress",
        "Compress the conversation into a summary",
        travel.compress_conversation,
        aliases="compact summarize",
    ),
    _build_plain_command(
        "clear",
        "Start a new conversation; /resume returns to this one",
        travel.start_new_conversation,
        aliases="new reset",
    ),
    SlashCommand(
        "worktree [NAME]",
        "Start a new conversation in a git worktree on a branch of its own",
        command_actions.start_in_worktree,
    ),
    SlashCommand(
        "resume [RUN]",
        "Resume another run of this folder",
        command_actions.resume_named_or_picked_run,
        command_actions.complete_run_ids,
        aliases="continue chat",
    ),
    SlashCommand(
        "fork [STEP]", "Fork this run here; with STEP in a folder of its own", command_actions.fork_run
    ),
    SlashCommand(
        "rewind [STEP]", "Go back to one of your prompts, with the files", command_actions.rewind_run
    ),
    SlashCommand(
        "undo [CALL|all]",
        "Undo the last file change, one call, or all changes",
        command_actions.undo_changes,
        aliases="restore",
    ),
    _build_cli_command(
        "diff [STEP STEP]", "Show file changes of this run, or compare two steps", _diff_arguments
    ),
    _build_cli_command(
        "show [--calls]", "Show path, calls, tokens and decisions of this run", _default_to_current_run
    ),
    _build_cli_command("history [--all]", "List the steps of this run", _default_to_current_run),
    _build_plain_command(
        "context", "Show what fills the context window, by source", command_actions.show_context_window
    ),
    _build_plain_command(
        "stats",
        "Show tokens, requests and cost, by model",
        command_actions.show_statistics,
        aliases="cost usage",
    ),
    _build_cli_command(
        "export [FILE]", "Export this run as .html, .md or .json", _export_arguments, aliases="share"
    ),
    SlashCommand("editor", "Write a prompt in $EDITOR (also Ctrl-G)", command_actions.write_prompt_in_editor),
    SlashCommand(
        "auth [test|set|remove PROVIDER]",
        "Show, test, change or remove keys and servers",
        command_actions.run_auth_command,
        command_actions.complete_auth_words,
    ),
    _build_plain_command("copy", "Copy the last answer to the clipboard", command_actions.copy_last_answer),
    _build_cli_command("approvals [RUN]", "List open requests, across all runs"),
    _build_cli_command(
        "worktrees [merge|remove NAME]",
        "List, merge or remove the git worktrees of this repository",
        _add_main_folder_flags,
    ),
    _build_cli_command("runs [--all]", "List runs; `/runs rm RUN` deletes one", aliases="sessions"),
    _build_cli_command("tools", "List the tools available to the model"),
    SlashCommand(
        "mcp [test SERVER]",
        "List MCP servers and what they offer",
        command_actions.run_mcp_command,
        command_actions.complete_mcp_words,
    ),
    replace(
        _build_cli_command("memory [add TEXT]", "Show or extend the memory files, such as GEMINI.md"),
        run=_run_memory_command,
    ),
    SlashCommand(
        "init [HINT]",
        "Explore this repository and write GEMINI.md; asks first",
        lambda session, rest: session.run_side_workflow("init", rest.strip()),
    ),
    SlashCommand(
        "run WORKFLOW [PROMPT|JSON]",
        "Run another workflow, then come back to this conversation",
        _run_named_workflow,
        _complete_workflows,
    ),
    _build_cli_command("agents", "List sub-agents", _add_folder_and_trust_flags),
    _build_cli_command(
        "hooks [test EVENT]", "List hooks, or show which hooks an event runs", _add_folder_and_trust_flags
    ),
    _build_cli_command(
        "policy check TOOL JSON",
        "Show whether a call may run, and which rule decides",
        _add_folder_and_trust_flags,
    ),
    _build_cli_command("doctor", "Check this machine, the settings and the store"),
    SlashCommand("theme [NAME]", "Show or choose the colours", *build_choice_command("theme")),
    _build_plain_command("vim", "Turn vi keys on or off", command_actions.toggle_and_save_vi_keys),
    _build_plain_command(
        "detach", "Leave the session; a worker goes on with the run", command_actions.detach_run
    ),
    _build_plain_command(
        "quit",
        "Leave the session; the run can be resumed",
        lambda session: session.leave_session(),
        aliases="exit q",
    ),
)

_WAITING = (
    "plan",
    "loops",
    "compress",
    "clear",
    "worktree",
    "resume",
    "fork",
    "rewind",
    "undo",
    "init",
    "run",
)
"""Commands that wait while the agent works, which they would disturb."""
COMMANDS: dict[str, SlashCommand] = {one.name: replace(one, waits=one.name in _WAITING) for one in _LISTED}
_BY_ALIAS = {alias: command for command in COMMANDS.values() for alias in command.aliases.split()}


def commands_by_name(session: Session) -> Mapping[str, SlashCommand]:
    """All commands; the user's and the project's never hide a built-in one."""
    own = session.extensions.get_extensions()
    added = {
        name: _build_custom_command(name, summary, own.argument_hints.get(name, ""))
        for name, summary in own.commands.items()
    }
    return {**added, **COMMANDS}


def _build_custom_command(name: str, summary: str, hint: str = "") -> SlashCommand:
    usage = f"{name} {to_one_line(hint)}".strip()
    return SlashCommand(usage, summary, partial(_submit_custom_command, name), waits=True)


def _submit_custom_command(name: str, session: Session, arguments: str) -> None:
    """Submit a custom command; the run expands it (`nodes/main.py`)."""
    session.submit_prompt(f"/{name} {arguments}".strip())


def command_offers_by_name(session: Session, typed: str) -> Mapping[str, CommandOffer]:
    """Completions for a name being typed, including an MCP server's prompts after `SERVER:`."""
    there = dict(commands_by_name(session))
    server, colon, _ = typed.partition(":")
    for name in session.extensions.get_extensions().servers:
        asked = colon and name == server
        found = session.extensions.get_server_prompts(name) if asked else {"": "prompts of this MCP server"}
        there |= {
            f"{name}:{one}": _build_custom_command(f"{name}:{one}", about) for one, about in found.items()
        }
    return {
        name: CommandOffer(c.summary, partial(c.complete, session) if c.complete else None)
        for name, c in there.items()
    }


def resolve_slash_command(session: Session, name: str) -> SlashCommand:
    """Find a command by name, alias or unique prefix. Raises `UserError`."""
    there = commands_by_name(session)
    if found := there.get(name) or _BY_ALIAS.get(name):
        return found
    server = name.partition(":")[0]
    if ":" in name and server in session.extensions.get_extensions().servers:
        return _build_custom_command(name, "a prompt of an MCP server")
    if other := session.extensions.get_extensions().other_names.get(name):
        return there[other]
    if problem := session.extensions.get_extensions().problems.get(name):
        raise UserError(f"Command '/{name}' can't be used: {problem}")
    if theirs := SLASH_COMMANDS.get(name):
        raise UserError(f"No command '/{name}'. {theirs}.")
    begun = [n for n in there if n.startswith(name)] if name else []
    if len(begun) == 1:
        return there[begun[0]]
    hint = (
        f" It could be {', '.join(f'/{n}' for n in begun)}."
        if begun
        else nearest_names_hint(name, [*there, *_BY_ALIAS])
    )
    raise UserError(f"No command '/{name}'.{hint} All of them: /help")


def require_no_other_programs_words(name: str, arguments: str) -> None:
    """Raise `UserError` for a command of ours with another agent's word after it: `/chat save one`."""
    words = " ".join([name, *arguments.split()[:1]])
    if " " in words and (theirs := SLASH_COMMANDS.get(words) or SUBCOMMANDS.get(words)):
        raise UserError(f"No command '/{words}'. {theirs}.")


def is_slash_command(line: str) -> bool:
    return _NAME.match(line.strip()) is not None


def handle_line(session: Session, line: str) -> None:
    """Handle a sent line: a command, a shell line or a prompt. What would disturb a working agent is queued."""
    if line.startswith("!") and line[1:].strip() and not session.busy:
        session.run_exclusively(lambda: run_shell_line_and_attach_output(session, line[1:].strip()))
        return
    if not (found := _NAME.match(line.strip())):
        session.submit_prompt(line)
        return
    try:
        require_no_other_programs_words(*found.groups(""))
        command = resolve_slash_command(session, found[1])
    except InterlockError as error:
        session.report_error(error)
        return
    if session.busy and command.waits:
        session.submit_prompt(line.strip())
    else:
        session.run_in_background(_execute_slash_command(session, command, found[2] or ""))


async def _execute_slash_command(session: Session, command: SlashCommand, arguments: str) -> None:
    session.screen.show_note(f"/{command.name} {arguments}".rstrip())
    if running := command.run(session, arguments):
        await running


def _describe_command(command: "SlashCommand") -> str:
    also = " or ".join(f"/{name}" for name in command.aliases.split())
    return f"{command.summary} (also {also})" if also else command.summary


def _build_two_column_table(rows: Iterable[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="accent", no_wrap=False)
    table.add_column(overflow="fold")
    for left, right in rows:
        table.add_row(left, right)
    return table


def commands_and_keys_as_markdown() -> str:
    """The commands and keys as Markdown, for README."""

    commands = [(f"`/{command.usage}`", _describe_command(command)) for command in COMMANDS.values()]
    keys = [(f"`{key}`" if len(key) == 1 else key, what) for key, what in KEYS]
    rows = [(left.replace("|", "\\|"), right.replace("|", "\\|")) for left, right in (*commands, *keys)]
    return "\n".join(["| | |", "|---|---|", *(f"| {left} | {right} |" for left, right in rows)]) + "\n"
