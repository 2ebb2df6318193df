"""choices: what the next prompt runs with (model, modes), and how the session looks and takes input."""

import base64
from asyncio import to_thread
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from prompt_toolkit.application import get_app
from prompt_toolkit.enums import EditingMode
from rich.text import Text

from interlock.cli.catalog import execute, nearest
from interlock.cli.driving import is_plain
from interlock.cli.render.output import place
from interlock.cli.session.asking import Row
from interlock.cli.session.programs import show_printed, words
from interlock.state.errors import InterlockError, UserError

if TYPE_CHECKING:
    from interlock.cli.session.session import Session
    from interlock.state.settings import Settings

APPROVAL_MODES = {
    "default": "asks before anything is changed or run",
    "auto_edit": "edits files without asking; asks before commands",
    "plan": "reads, and writes a plan that you approve",
}
"""What Shift-Tab cycles through. `yolo` is only for sessions started with it."""


def _settings(session: "Session") -> "Settings":
    from interlock.engine.travel.files import settings_of

    return settings_of(session.workspace)


async def _chosen(session: "Session", title: str, rows: Sequence[Row], now: str, rest: str) -> str | None:
    """The name typed, or the one picked."""
    if rest.strip():
        return rest.strip()
    at = next((place for place, row in enumerate(rows) if row.value == now), 0)
    picked = await session.terminal.pick(title, rows, at)
    return picked and picked.value


def models(session: "Session", _: str) -> Iterable[str]:
    return ["auto", *_settings(session).model.aliases]


async def model(session: "Session", rest: str) -> None:
    from interlock.engine.driver.prepare import prepare
    from interlock.services.models.names import limit

    settings = await to_thread(lambda: _settings(session))
    rows = [Row("auto", "chosen for each prompt", "auto")]
    for alias, name in settings.model.aliases.items():
        rows.append(Row(alias, f"{name}, {limit(settings, name):,} tokens", alias))
    if session.model and session.model not in [row.value for row in rows]:
        rows.insert(0, Row(session.model, "now", session.model))
    name = await _chosen(session, "Which model? Or: /model provider:model", rows, session.model, rest)
    if name is None:
        return
    options = replace(session.options, model=name, workspace=session.workspace)
    await to_thread(lambda: prepare(options, needs_model=True))  # raises if the model can't be used
    session.options, session.model = replace(session.options, model=name), name
    session.screen.note(f"From the next prompt on {name} answers.")


def modes(session: "Session", _: str) -> Iterable[str]:
    return [row.value for row in _modes(session)]


def _modes(session: "Session") -> list[Row]:
    from interlock.services.policy.modes import load_modes
    from interlock.services.trust import is_trusted

    home = session.options.user_home
    trusted = session.options.skip_trust or is_trusted(session.workspace, home)
    found, _ = load_modes(session.workspace, home, trusted)
    return [Row(mode.slug, mode.when_to_use or mode.name, mode.slug) for mode in found.all()]


async def mode(session: "Session", rest: str) -> None:
    rows = await to_thread(lambda: _modes(session))
    name = await _chosen(session, "Which mode of work?", rows, session.mode, rest)
    if name is None:
        return
    _one_of(name, [row.value for row in rows], "mode")
    session.options, session.mode = replace(session.options, mode=name), name
    session.screen.note(f"From the next prompt on: mode {name}.")


def approval_modes(session: "Session", _: str) -> Iterable[str]:
    yolo = ["yolo"] if session.may_yolo else []
    return [*APPROVAL_MODES, *yolo]


async def approval_mode(session: "Session", rest: str) -> None:
    modes = {**APPROVAL_MODES, **({"yolo": "asks nothing"} if session.may_yolo else {})}
    rows = [Row(name, about, name) for name, about in modes.items()]
    name = await _chosen(session, "What needs asking?", rows, session.approval_mode, rest)
    if name is None:
        return
    if name == "yolo" and not session.may_yolo:
        raise UserError("yolo is only for sessions that are started with it: interlock --yolo")
    _one_of(name, [*modes], "approval mode")
    set_approval_mode(session, name)
    session.screen.note(f"Approval mode {name}: {modes[name]}.")


def set_approval_mode(session: "Session", name: str) -> None:
    """Set the mode from the next prompt on."""
    session.approval_mode = name
    session.options = replace(session.options, approval_mode=name)


def next_approval_mode(session: "Session") -> None:
    """Switch to the next mode (Shift-Tab)."""
    there = [*approval_modes(session, "")]
    now = there.index(session.approval_mode) if session.approval_mode in there else -1
    set_approval_mode(session, there[(now + 1) % len(there)])


def _one_of(name: str, known: list[str], what: str) -> None:
    if name not in known:
        raise UserError(f"No {what} {name!r}.{nearest(name, known)} There are {', '.join(known)}.")


async def plan(session: "Session", rest: str) -> None:
    set_approval_mode(session, "plan")
    session.screen.note("Plan mode: the agent reads, and writes a plan that you approve.")
    if rest.strip():
        session.submit(rest.strip())


async def compress(session: "Session", _: str) -> None:
    from interlock.cli.session.travel import this_run
    from interlock.engine.store.checkpoints import state_at

    run = this_run(session)

    async def compressed() -> None:
        before = state_at(session.home, run).get("head")
        session.options = replace(session.options, compress=True)
        await session.go_on()
        if session.run == run and state_at(session.home, run).get("head") == before:
            session.screen.note("Nothing was compressed: there is too little to leave out.")

    session.pursue(compressed)


async def stats(session: "Session", _: str) -> None:
    from interlock.cli.render.export import usage_lines
    from interlock.cli.session.travel import this_run
    from interlock.engine.read import find_run, models
    from interlock.engine.travel.record import costs

    run = find_run(session.home, this_run(session))
    used = await to_thread(lambda: costs(run, models(session.home, run.run)))
    lines = [f"run {run.run} · {run.workflow} · step {run.step}", *usage_lines(used)]
    session.screen.show(Text("\n".join(lines)))


def _last_answer(session: "Session") -> str:
    from interlock.cli.session.travel import this_run
    from interlock.engine.store.checkpoints import state_at
    from interlock.engine.store.runs import messages_at

    run = this_run(session)
    messages = messages_at(session.home, run, str(state_at(session.home, run).get("head") or ""))
    return next((m.text for m in reversed(messages) if m.role == "assistant" and m.text.strip()), "")


async def copy(session: "Session", _: str) -> None:
    """Copy the last answer through the terminal (OSC 52), which works over ssh, too."""
    if is_plain():
        raise UserError("This terminal has no clipboard that a program can reach.")
    text = await to_thread(lambda: _last_answer(session))
    if not text:
        raise UserError("There is no answer to copy yet.")
    output = get_app().output
    output.write_raw(f"\x1b]52;c;{base64.b64encode(text.encode()).decode()}\x07")
    output.flush()
    session.screen.note(f"Sent {len(text):,} characters to the terminal's clipboard.")


def mcp_words(session: "Session", typed: str) -> Iterable[str]:
    servers = session.available.own().servers
    return servers if typed.startswith(("test ", "auth ")) else ("list", "test", "auth")


async def mcp(session: "Session", rest: str) -> None:
    """Run an `mcp` command; signing in needs the whole terminal."""

    typed = words(rest)
    if typed[:1] == ["serve"]:
        raise UserError("`serve` speaks to another program on stdin; start it there: interlock mcp serve")
    if typed[:1] == ["auth"]:
        await session.terminal.handed_over(lambda: execute("mcp", [*typed, "-C", str(session.workspace)]))
    else:
        await show_printed(session, "mcp", ["-C", str(session.workspace), *typed])


def themes(_session: "Session", _: str) -> Iterable[str]:
    from interlock.cli.session.theme import THEMES

    return THEMES


async def theme(session: "Session", rest: str) -> None:
    from interlock.cli.session.theme import THEMES, find_theme

    rows = [Row(name, "", name) for name in THEMES]
    name = await _chosen(session, "Which colours?", rows, session.screen.theme.name, rest)
    if name is None:
        return
    found = find_theme(name)
    if found is None:
        raise UserError(f"No theme {name!r}.{nearest(name, [*THEMES])} There are {', '.join(THEMES)}.")
    session.screen.theme = found
    await _keep(session, "ui", "theme", found.name)
    session.screen.note(f"Theme {found.name}; kept in your settings.")


async def dress(session: "Session") -> None:
    """Apply the settings; a run reports those that can't be read."""
    from interlock.cli.session.theme import THEMES, find_theme

    if session.run is None and not session.busy:
        folder = place(str(session.workspace))
        session.screen.note(f"Interlock in {folder}. Commands and keys: /help")
    with suppress(InterlockError):
        settings = await to_thread(lambda: _settings(session))
        ui = settings.ui
        session.model = session.model or settings.model.name
        if session.options.approval_mode is None and session.run is None:
            session.approval_mode = settings.general.default_approval_mode
        if settings.general.vim_mode:
            get_app().editing_mode = EditingMode.VI
        session.screen.thoughts = ui.thinking == "full"
        if found := find_theme(ui.theme):
            session.screen.theme = found
        else:
            session.screen.note(f"No theme {ui.theme!r} (`ui.theme`). There are {', '.join(THEMES)}.", "warn")


async def vim(session: "Session", _: str) -> None:
    app = get_app()
    on = app.editing_mode is not EditingMode.VI
    app.editing_mode = EditingMode.VI if on else EditingMode.EMACS
    await _keep(session, "general", "vimMode", on)
    session.screen.note(f"vi keys are {'on' if on else 'off'}; kept in your settings.")


async def _keep(session: "Session", section: str, key: str, value: object) -> None:
    """Save a value in the user's own settings. Raises `ConfigError`."""
    from interlock.services.config.formats import changed_settings

    def write() -> None:
        file = session.options.user_home / ".interlock" / "settings.json"
        with changed_settings(file, f"{section}.{key}") as settings:
            settings.setdefault(section, {})[key] = value

    await to_thread(write)
