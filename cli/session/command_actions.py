"""command_actions: what slash commands do: choose a run, model or mode, and change how the session looks."""

import base64
import shlex
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import EditingMode
from rich.text import Text

from interlock.cli.catalog import execute_command
from interlock.cli.driving import is_plain_terminal_or_screen_reader
from interlock.cli.render.export import model_usage_lines
from interlock.cli.render.output import CHANGE_COLOURS, abbreviate_home, format_age, to_one_line
from interlock.cli.session.external_programs import run_and_show_interlock_command, split_shell_words
from interlock.cli.session.picker import Row
from interlock.cli.session.session import Session
from interlock.cli.session.theme import THEMES, find_theme
from interlock.cli.suggestions import nearest_names_hint
from interlock.engine.client import RunRow, choices, travel
from interlock.engine.client.context_window import measure_context_window
from interlock.engine.client.file_changes import FileChange
from interlock.engine.client.requests import summarize_arguments
from interlock.engine.client.user_extensions import ExtensionReader
from interlock.services.config.formats import edit_json_settings
from interlock.state.errors import InterlockError, UserError

Run = Callable[[Session, str], Awaitable[None] | None]
Complete = Callable[[Session, str], Iterable[str]]
Found = Callable[[Session], Mapping[str, str]]


def build_choice_command(name: str) -> tuple[Run, Complete]:
    """How `/NAME` chooses, and completes what can be chosen."""
    title, found, now, take = _CHOICES[name]

    async def choose_or_ask(session: Session, rest: str) -> None:
        known = await to_thread(found, session)
        chosen = rest.strip()
        if not chosen:
            rows = [Row(one, about, one) for one, about in known.items()]
            at = next((place for place, row in enumerate(rows) if row.value == now(session)), 0)
            if (picked := await session.terminal.pick_row(title, rows, at)) is None:
                return
            chosen = picked.value
        if taking := take(session, chosen):
            await taking

    return choose_or_ask, lambda session, _: found(session)


async def show_statistics(session: Session) -> None:
    run = session.client.find_run(session.required_run)
    used = await to_thread(lambda: session.client.model_costs(run.run))
    lines = [f"run {run.run} · {run.workflow} · step {run.step}", *model_usage_lines(used)]
    session.screen.show_renderable(Text("\n".join(lines)))


async def show_context_window(session: Session) -> None:
    found = await to_thread(lambda: measure_context_window(session))
    of = f" of {found.size:,}" if found.size else ""
    lines = [f"{found.used_tokens:,}{of} tokens, estimated · {found.model}"]
    for source, tokens in found.sources:
        percent = round(100 * tokens / found.size) if found.size else 0
        share = f"{percent or '<1'}%" if found.size else ""
        lines.append(
            f"  {source:<36} {tokens:>9,} {share:>4}  {'█' * round(20 * tokens / max(found.used_tokens, 1))}"
        )
    if found.size:
        lines.append(f"  {'free':<36} {max(found.size - found.used_tokens, 0):>9,}")
    if not session.used.tools:
        lines.append("  Tools are counted from the next request on.")
    session.screen.show_renderable(Text("\n".join(line.rstrip() for line in lines)))


async def write_prompt_in_editor(session: Session, draft: str) -> None:
    if text := await session.edit_text_in_editor(draft, ".md"):
        session.terminal.suggest_prompt(text.rstrip("\n"))


def complete_auth_words(_session: Session, typed: str) -> Iterable[str]:
    from interlock.engine.client.credentials import provider_names

    return ("test", "set", "remove") if " " not in typed.lstrip() else provider_names()


async def run_auth_command(session: Session, arguments: str) -> None:
    """Run `interlock auth`; a key is typed in the whole terminal."""
    typed = [*split_shell_words(arguments), "-C", str(session.workspace)]
    if typed[0] == "set":
        await session.terminal.run_with_exclusive_terminal(lambda: execute_command("auth", typed))
    else:
        await run_and_show_interlock_command(session, "auth", typed)


async def copy_last_answer(session: Session) -> None:
    """Copy the last answer through the terminal (OSC 52), which works over ssh, too."""
    if is_plain_terminal_or_screen_reader():
        raise UserError("This terminal has no clipboard that a program can reach.")
    text = await to_thread(lambda: travel.newest_model_text(session))
    if not text:
        raise UserError("There is no answer to copy yet.")
    output = get_app().output
    output.write_raw(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")
    output.flush()
    session.screen.show_note(f"Sent {len(text):,} characters to the terminal's clipboard.")


def complete_mcp_words(session: Session, typed: str) -> Iterable[str]:
    servers = session.extensions.get_extensions().servers
    names = [shlex.quote(name) for name in servers.values()]
    return names if typed.startswith(("test ", "auth ")) else ("list", "test", "auth")


async def run_mcp_command(session: Session, arguments: str) -> None:
    """Run an `mcp` command; signing in needs the whole terminal."""

    typed = split_shell_words(arguments)
    if typed[:1] == ["serve"]:
        raise UserError("`serve` speaks to another program on stdin; start it there: interlock mcp serve")
    here = ["-C", str(session.workspace), *(["--skip-trust"] if session.options.skip_trust else [])]
    if typed[:1] == ["auth"]:
        await session.terminal.run_with_exclusive_terminal(lambda: execute_command("mcp", [*typed, *here]))
    else:
        await run_and_show_interlock_command(session, "mcp", [*here, *typed])


async def _apply_and_save_theme(session: Session, name: str) -> None:
    found = find_theme(name)
    if found is None:
        raise UserError(
            f"No theme {name!r}.{nearest_names_hint(name, [*THEMES])} There are {', '.join(THEMES)}."
        )
    session.screen.theme = found
    await _save_setting(session, "ui", "theme", found.name)
    session.screen.show_note(f"Theme {found.name}; kept in your settings.")


_CHOICES: Mapping[str, tuple[str, Found, Callable[[Session], str], Run]] = {
    "model": (
        "Which model? Or: /model provider:model",
        choices.list_models,
        lambda session: session.model,
        lambda session, name: to_thread(choices.choose_model, session, name),
    ),
    "mode": ("Which mode of work?", choices.list_modes, lambda session: session.mode, choices.choose_mode),
    "approval-mode": (
        "Which approval mode?",
        choices.list_approval_modes,
        lambda session: session.approval_mode,
        choices.choose_approval_mode,
    ),
    "loops": ("Loop detection?", lambda _: choices.LOOPS, lambda _: "on", choices.set_loop_detection),
    "theme": (
        "Which colours?",
        lambda _: dict.fromkeys(THEMES, ""),
        lambda session: session.screen.theme.name,
        _apply_and_save_theme,
    ),
}
"""Command → the question, what can be chosen and what each means, what counts now, and how it is taken."""


async def greet_and_apply_settings(session: Session) -> None:
    """Apply the settings; a run reports those that can't be read."""
    if session.run is None and not session.busy:
        folder = abbreviate_home(str(session.workspace))
        session.screen.show_note(f"Interlock in {folder}. Commands and keys: /help")
    with suppress(InterlockError):
        settings = await to_thread(lambda: session.client.settings(session.workspace))
        ui = settings.ui
        session.model = session.model or settings.model.name
        if session.options.approval_mode is None and session.run is None:
            session.approval_mode = settings.general.default_approval_mode
        if settings.general.vim_mode:
            get_app().editing_mode = EditingMode.VI
        session.detaches_when_closed = settings.general.detach_when_closed
        session.screen.show_thoughts = ui.thinking == "full"
        if found := find_theme(ui.theme):
            session.screen.theme = found
        else:
            session.screen.show_note(
                f"No theme {ui.theme!r} (`ui.theme`). There are {', '.join(THEMES)}.", "warn"
            )


async def toggle_and_save_vi_keys(session: Session) -> None:
    app = get_app()
    on = app.editing_mode is not EditingMode.VI
    app.editing_mode = EditingMode.VI if on else EditingMode.EMACS
    await _save_setting(session, "general", "vimMode", on)
    session.screen.show_note(f"vi keys are {'on' if on else 'off'}; kept in your settings.")


async def _save_setting(session: Session, section: str, key: str, value: object) -> None:
    """Save a value in the user's own settings. Raises `ConfigError`."""

    def write_setting() -> None:
        file = session.options.user_home / ".interlock" / "settings.json"
        with edit_json_settings(file, f"{section}.{key}") as settings:
            settings.setdefault(section, {})[key] = value

    await to_thread(write_setting)


_SHOWN = 20


def complete_run_ids(session: Session, _: str) -> Iterable[str]:
    return [row.run for row in travel.list_workspace_runs(session)]


async def resume_named_or_picked_run(session: Session, argument: str) -> None:
    name = argument.strip()
    if not name:
        found = await to_thread(lambda: travel.list_workspace_runs(session))
        rows = [_run_to_picker_row(row) for row in found if row.run != session.run]
        if not rows:
            raise UserError(f"No other run in {str(session.workspace)!r}. Those of other folders: /runs")
        chosen = await session.terminal.pick_row(
            "Go on with which run?", rows, text_reader=fill_row_texts_stepwise(session, rows)
        )
        if chosen is None:
            return
        name = chosen.value
    travel.switch_to_run(session, name)


_SEARCHED = 200
"""Runs whose conversations the picker searches: the newest."""


def fill_row_texts_stepwise(session: Session, rows: Sequence[Row]) -> Iterator[None]:
    """Read what was said in each run, one at each step."""
    for row in rows[:_SEARCHED]:
        with suppress(InterlockError, OSError):
            row.text.extend(travel.read_conversation_texts(session, row.value))
        yield


def _run_to_picker_row(row: RunRow) -> Row:
    return Row(
        to_one_line(row.title) or row.workflow,
        f"{row.status_text} · {format_age(row.updated)} · {row.run}",
        row.run,
    )


async def detach_run(session: Session) -> None:
    """Leave the run to a worker, and end the session."""
    await session.detach_run()
    run = session.required_run
    session.screen.show_note(
        f"Run {run} goes on without this session. Open it again with: interlock attach {run}"
    )
    session.leave_session()


async def start_in_worktree(session: Session, argument: str) -> None:
    await travel.start_in_worktree(session, argument.strip())
    session.extensions = ExtensionReader(session.options, session.workspace)


async def fork_run(session: Session, argument: str) -> None:
    """Without a step, fork in place and switch; files here don't match an earlier step, so that fork has a folder."""
    if not argument.strip():
        await travel.fork_conversation(session)
        return
    run, step = session.required_run, _parse_step(argument, "/fork")
    made = await to_thread(lambda: session.client.fork_run(run, step))
    session.screen.show_note(
        f"Run {made.run} is forked from {run} at step {step}, in {abbreviate_home(made.workspace)}.\n"
        f"Go on: interlock resume {made.run}"
    )


def _parse_step(text: str, command: str) -> int:
    if not text.strip().removeprefix("-").isdecimal():
        raise UserError(f"{command} takes a step, got {text.strip()!r}. See the steps: /history")
    return int(text)


async def rewind_run(session: Session, argument: str) -> None:
    if argument.strip():
        point = travel.PastPrompt("", _parse_step(argument, "/rewind"))
    else:
        found = await to_thread(lambda: travel.list_prompts(session))
        rows = [
            Row(to_one_line(p.text), f"step {p.before}" if p.before is not None else "the beginning", p)
            for p in found
        ]
        chosen = await session.terminal.pick_row("Back to before which prompt?", rows)
        if chosen is None:
            return
        point = chosen.value

    async def confirm_changes(changes: Sequence[FileChange]) -> bool:
        _show_changes(session, changes)
        question = "Change these files, and go back?" if changes else "Go back? No file will change."
        return await session.terminal.ask_yes_or_no(question)

    if await travel.rewind_conversation(session, point.before, confirm_changes):
        session.terminal.suggest_prompt(point.text)


def _show_changes(session: Session, changes: Sequence[FileChange]) -> None:
    lines = Text("\n").join(Text(f"  {mark} {path}", CHANGE_COLOURS[mark]) for mark, path in changes[:_SHOWN])
    if len(changes) > _SHOWN:
        lines.append(f"\n  … and {len(changes) - _SHOWN} more", "dim")
    if changes:
        session.screen.show_renderable(lines)


async def undo_changes(session: Session, argument: str) -> None:
    run, call = session.required_run, None if argument.strip() == "all" else argument.strip()
    if call is not None:
        about = call
        if not call:
            call, last = await to_thread(lambda: session.client.find_last_undoable_call_with_number(run))
            about = f"the last change ({to_one_line(f'{last.tool} {summarize_arguments(last.args)}', 60)})"
        session.screen.show_note(f"Undoing {about}:")
    if unkept := await to_thread(lambda: session.client.unrestorable_changes_line(run)):
        session.screen.show_note(unkept)
    changed = await travel.undo_changes(session, call)
    _show_changes(session, changed)
    if not changed:
        session.screen.show_note("Nothing to undo: the files are as they were.")
