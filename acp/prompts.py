"""prompts: a prompt's content blocks as the text, files and notes that a run is given; what one that begins with a
slash does in an editor, besides the user's own commands and skills."""

import base64
import binascii
import mimetypes
import os
import re
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from interlock.acp.session_updates import Update, UpdateRenderer
from interlock.acp.wire import PARAMS, RpcError
from interlock.engine.client import choices, travel
from interlock.engine.client.user_extensions import ExtensionReader
from interlock.state.command import NAME
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.client.conversation import Conversation
    from interlock.engine.client.file_changes import FileChange

Block = Mapping[str, Any]
_LONGEST_FILE = 256_000
"""Bytes of a linked file from outside the workspace that the run is given."""


@dataclass
class PromptContents:
    text: str = ""
    files: list[Path] = field(default_factory=list[Path])
    """Pictures and PDFs, to be attached."""
    notes: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Texts with their names."""
    outside: list[Path] = field(default_factory=list[Path])
    """Linked files beyond the workspace: the person is asked."""


def read_prompt_blocks(
    blocks: Sequence[Block], workspace: Path, roots: Sequence[Path], attachment_folder: Path
) -> PromptContents:
    """Read a prompt's blocks; pictures are put in `attachment_folder`. Raises `RpcError` naming an unusable block."""
    contents, words = PromptContents(), list[str]()
    for number, block in enumerate(blocks):
        try:
            words += _read_block(block, contents, workspace, roots, attachment_folder / str(number))
        except (KeyError, TypeError, ValueError, binascii.Error) as error:
            raise RpcError(
                PARAMS, f"prompt[{number}] ({block.get('type')!r}) is malformed: {error}."
            ) from None
    contents.text = "".join(words).strip()
    return contents


def _read_block(
    block: Block, contents: PromptContents, workspace: Path, roots: Sequence[Path], file_stem: Path
) -> Iterator[str]:
    match block["type"]:
        case "text":
            yield _require_text(block["text"])
        case "image":
            contents.files.append(_store_attachment(block["data"], block["mimeType"], file_stem))
        case "resource_link":
            yield from _link_to_prompt_text(str(block["uri"]), contents, workspace, roots)
        case "resource":
            resource: Block = block["resource"]
            if "text" in resource:
                contents.notes.append(
                    (_relative_path_or_uri(str(resource["uri"]), workspace), _require_text(resource["text"]))
                )
            else:
                kind = resource.get("mimeType") or mimetypes.guess_type(str(resource["uri"]))[0] or ""
                contents.files.append(_store_attachment(resource["blob"], kind, file_stem))
        case kind:
            raise ValueError(f"{kind!r} isn't supported; expected text, image, resource_link or resource")


def _require_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("'text' isn't a text")
    return value


def _store_attachment(data: object, mime_type: str, file_stem: Path) -> Path:
    if not isinstance(data, str):
        raise TypeError("its data isn't valid base64")
    file = file_stem.with_suffix(mimetypes.guess_extension(mime_type) or ".bin")
    file.write_bytes(base64.b64decode(data, validate=True))
    return file


def _link_to_prompt_text(
    uri: str, contents: PromptContents, workspace: Path, roots: Sequence[Path]
) -> Iterator[str]:
    """Yield a file of the workspace as a reference, which the run resolves under its rules; another address as text."""
    path = parse_file_uri(uri)
    if path is None:
        yield f" {uri} "
        return
    real = Path(os.path.realpath(path))
    if any(real.is_relative_to(root) for root in roots):
        named = str(real.relative_to(workspace) if real.is_relative_to(workspace) else real)
        yield f' @"{named}" ' if '"' not in named and "\n" not in named else f" {uri} "
    else:
        contents.outside.append(real)
        yield f" {path} "


def attach_file(path: Path, contents: PromptContents) -> None:
    """Give the run a file that the person agreed to: a picture or PDF as it is, another as its text."""
    from interlock.services.files.filesystem import UnreadableError, read_truncated_text

    kind = mimetypes.guess_type(path)[0] or ""
    if kind.startswith("image/") or kind == "application/pdf":
        contents.files.append(path)
        return
    try:
        contents.notes.append((str(path), read_truncated_text(path, _LONGEST_FILE, path.parent)))
    except UnreadableError as error:
        contents.notes.append((str(path), f"The file can't be read: {error}."))


def parse_file_uri(uri: str) -> Path | None:
    """Return the file that an address names; None: it names none. Raises `ValueError`."""
    parts = urlsplit(uri)
    if parts.scheme != "file":
        return None
    path = unquote(parts.path)
    if parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise ValueError(f"{uri!r} names no file of this machine")
    return Path(path)


def _relative_path_or_uri(uri: str, workspace: Path) -> str:
    path = parse_file_uri(uri)
    return str(path.relative_to(workspace)) if path and path.is_relative_to(workspace) else uri


_TYPED = re.compile(rf"/({NAME})(?:\s+(.*))?$", re.DOTALL)
_OFFERED = 20
"""Prompts that `/rewind` offers: the newest."""


class CommandSession(Protocol):
    """What commands need of an editor's session."""

    conversation: "Conversation"
    renderer: UpdateRenderer

    def send_agent_message(self, text: str) -> None:
        """Show a text as the agent's."""

    async def ask_for_choice(self, title: str, details: str, labels: Sequence[str]) -> int | None:
        """Ask which of these the person chooses; None: none of them."""

    async def switch_run_quietly(self, switch: Callable[[], Awaitable[object]]) -> None:
        """Let a command go to another run, without showing its conversation again."""


class SlashCommand(NamedTuple):
    summary: str
    hint: str
    """What may be typed after its name; empty: nothing."""
    run: Callable[[CommandSession, str], Awaitable[None]]


async def _undo_changes(session: CommandSession, argument: str) -> None:
    talk, call = session.conversation, argument
    run = talk.required_run
    if not call:
        call, _ = await to_thread(lambda: talk.client.find_last_undoable_call_with_number(run))
    changed = await travel.undo_changes(talk, None if call == "all" else call)
    session.send_agent_message(_format_changes(changed) or "Nothing to undo: the files are as they were.")


async def _rewind_to_prompt(session: CommandSession, argument: str) -> None:
    points = await to_thread(lambda: travel.list_prompts(session.conversation)[:_OFFERED])
    if not argument:
        names = [" ".join(point.text.split())[:70] for point in points]
        chosen = await session.ask_for_choice("Go back to before which prompt?", "", names)
    elif argument.isdecimal() and 0 < int(argument) <= len(points):
        chosen = int(argument) - 1
    else:
        raise UserError(
            f"/rewind takes the number of prompts to go back, 1 to {len(points)}, got {argument!r}."
        )
    if chosen is None:
        return

    async def confirm_changes(changes: "Sequence[FileChange]") -> bool:
        return (
            await session.ask_for_choice("Change the files, and go back?", _format_changes(changes), ["yes"])
            == 0
        )

    before = points[chosen].before
    await session.switch_run_quietly(
        lambda: travel.rewind_conversation(session.conversation, before, confirm_changes)
    )


async def _fork_run(session: CommandSession, _: str) -> None:
    await session.switch_run_quietly(lambda: travel.fork_conversation(session.conversation))


async def _start_in_worktree(session: CommandSession, name: str) -> None:
    await travel.start_in_worktree(session.conversation, name)
    session.renderer.workspace = session.conversation.workspace


async def _compress_conversation(session: CommandSession, _: str) -> None:
    travel.compress_conversation(session.conversation)


async def _start_plan(session: CommandSession, argument: str) -> None:
    choices.start_plan_mode(session.conversation, argument)


async def _continue_run(session: CommandSession, _: str) -> None:
    if not session.conversation.status:
        raise UserError("Nothing to continue: the last turn has ended. Say what to do.")
    session.conversation.submit_prompt("")


COMMANDS: Mapping[str, SlashCommand] = {
    "undo": SlashCommand(
        "Undo the last file change, one call, or all changes", "CALL, or all", _undo_changes
    ),
    "rewind": SlashCommand(
        "Go back to one of your prompts, with the files", "prompts to go back", _rewind_to_prompt
    ),
    "fork": SlashCommand("Continue in a fork of this run, in the same folder", "", _fork_run),
    "worktree": SlashCommand(
        "Start a new conversation in a git worktree on a branch of its own", "name", _start_in_worktree
    ),
    "compress": SlashCommand("Compress the conversation into a summary", "", _compress_conversation),
    "plan": SlashCommand("Plan first, and change nothing until you approve the plan", "prompt", _start_plan),
    "continue": SlashCommand("Resume a run that stopped midway", "", _continue_run),
}


def parse_builtin_command(text: str) -> tuple[SlashCommand, str] | None:
    """Return the command that a prompt names, and its argument; None: it is for the run, which knows the user's own."""
    found = _TYPED.match(text.strip())
    return (COMMANDS[found[1]], (found[2] or "").strip()) if found and found[1] in COMMANDS else None


def available_commands_update(extensions: ExtensionReader) -> Update:
    """Return the update that lists all commands, for the client to complete."""
    found = extensions.get_extensions()
    rows = {name: (command.summary, command.hint) for name, command in COMMANDS.items()}
    own = {
        name: (about, found.argument_hints.get(name, "what to add")) for name, about in found.commands.items()
    }
    rows = {**own, **rows}
    commands = [
        {"name": name, "description": about, **({"input": {"hint": hint}} if hint else {})}
        for name, (about, hint) in rows.items()
    ]
    return {"sessionUpdate": "available_commands_update", "availableCommands": commands}


def _format_changes(changes: "Sequence[FileChange]") -> str:
    return "\n".join(f"- {change.mark} `{change.path}`" for change in changes)
