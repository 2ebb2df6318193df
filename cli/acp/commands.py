"""commands: what a prompt that begins with a slash does in an editor, besides the user's own commands and skills."""

import re
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from interlock.cli.acp.drawing import Update
from interlock.engine.client import choices, travel
from interlock.engine.client.own import Available
from interlock.state.command import NAME
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client.changes import Change
    from interlock.engine.client.conversation import Conversation

_TYPED = re.compile(rf"/({NAME})(?:\s+(.*))?$", re.DOTALL)
_OFFERED = 20
"""Prompts that `/rewind` offers: the newest."""


class Session(Protocol):
    """What commands need of an editor's session."""

    talk: "Conversation"

    def say(self, text: str) -> None: ...

    async def choose(self, title: str, about: str, names: Sequence[str]) -> int | None: ...

    async def moved_by(self, go: Callable[[], Awaitable[object]]) -> None:
        """Let a command go to another run, without showing its conversation again."""
        ...


class Command(NamedTuple):
    about: str
    hint: str
    """What may be typed after its name; empty: nothing."""
    run: Callable[[Session, str], Awaitable[None]]


async def _undo(session: Session, rest: str) -> None:
    talk, call = session.talk, rest
    run = talk.this_run
    if not call:
        call, _ = await to_thread(lambda: talk.client.last_change(run))
    changed = await travel.undo(talk, None if call == "all" else call)
    session.say(_listed(changed) or "Nothing to undo: the files are as they were.")


async def _rewind(session: Session, rest: str) -> None:
    points = await to_thread(lambda: travel.prompts(session.talk)[:_OFFERED])
    if not rest:
        names = [" ".join(point.text.split())[:70] for point in points]
        chosen = await session.choose("Go back to before which prompt?", "", names)
    elif rest.isdecimal() and 0 < int(rest) <= len(points):
        chosen = int(rest) - 1
    else:
        raise UserError(f"/rewind takes the number of prompts to go back, 1 to {len(points)}, got {rest!r}.")
    if chosen is None:
        return

    async def agrees(changes: "Sequence[Change]") -> bool:
        return await session.choose("Change the files, and go back?", _listed(changes), ["yes"]) == 0

    before = points[chosen].before
    await session.moved_by(lambda: travel.rewind(session.talk, before, agrees))


async def _fork(session: Session, _: str) -> None:
    await session.moved_by(lambda: travel.fork(session.talk))


async def _compress(session: Session, _: str) -> None:
    travel.compress(session.talk)


async def _plan(session: Session, rest: str) -> None:
    choices.plan(session.talk, rest)


async def _continue(session: Session, _: str) -> None:
    if not session.talk.status:
        raise UserError("Nothing to continue: the last turn has ended. Say what to do.")
    session.talk.submit("")


COMMANDS: Mapping[str, Command] = {
    "undo": Command("Undo the last file change, one call, or all changes", "CALL, or all", _undo),
    "rewind": Command("Go back to one of your prompts, with the files", "prompts to go back", _rewind),
    "fork": Command("Continue in a fork of this run, in the same folder", "", _fork),
    "compress": Command("Compress the conversation into a summary", "", _compress),
    "plan": Command("Plan first, and change nothing until you approve the plan", "prompt", _plan),
    "continue": Command("Resume a run that stopped midway", "", _continue),
}


def typed(text: str) -> tuple[Command, str] | None:
    """The command that a prompt names, and the rest of it; None: it is for the run, which knows the user's own."""
    found = _TYPED.match(text.strip())
    return (COMMANDS[found[1]], (found[2] or "").strip()) if found and found[1] in COMMANDS else None


def skill(text: str, own: Available) -> str:
    """A prompt as the run is given it: a skill's name becomes a request to use the skill."""
    found = _TYPED.match(text.strip())
    known = found and found[1] in own.own().skills and found[1] not in own.own().commands
    return f"Use the skill {found[1]!r}. {found[2] or ''}".strip() if found and known else text


def offered(own: Available) -> Update:
    """All commands, as the client completes them."""
    found = own.own()
    rows = {name: (command.about, command.hint) for name, command in COMMANDS.items()}
    rows = {name: (about, "what to add") for name, about in {**found.skills, **found.commands}.items()} | rows
    commands = [
        {"name": name, "description": about, **({"input": {"hint": hint}} if hint else {})}
        for name, (about, hint) in rows.items()
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}


def _listed(changes: "Sequence[Change]") -> str:
    return "\n".join(f"- {change.mark} `{change.path}`" for change in changes)
