"""command: expand a prompt that names a custom command or a skill: its shell lines run first, as a batch of calls."""

from collections.abc import Sequence
from typing import Literal

from langgraph.runtime import Runtime

from interlock.prompts import load_prompt, render_prompt
from interlock.state.command import (
    MOST_PIECES,
    CommandOut,
    CommandState,
    FilledTemplate,
    fill_template,
    split_slash_command,
)
from interlock.state.context import CustomCommand
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message, Part, TextPart, ToolCall
from interlock.state.node import node
from interlock.state.text import replace_surrogates

OUTPUT_HEADING = "Output:\n"
"""Prefix of the shell tool's output, stripped because the command's text introduces its own output."""


@node(
    reads=("prompt", "approval_mode", "mode"),
    writes=(
        "head",
        "prompt",
        "asked",
        "command",
        "mode",
        "skill_denies",
        "skill_allows",
        "stop",
        "stopped_by",
    ),
    labels=("shell", "text"),
    nondeterministic=True,
)
async def expand(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """Its shell lines become calls like a model's, decided by rules, hooks and people."""
    deps = runtime.context
    command, args = _read_command_and_args(state, deps)
    fresh: CommandState = {
        "stop": "",
        "stopped_by": "",
        "command": deps.transcript.append("", [Message(role="system", content=command.model_dump_json())]),
        **_command_restrictions(command, state, runtime),
    }
    lines = [piece.text for piece in _fill_command(command, args, deps).pieces if piece.kind == "shell"]
    if not lines:
        text = await _expand_command_template(state["prompt"], command, args, [], deps)
        return {**fresh, "label": "text", **text}
    has_main_tools = deps.toolset.find_tool_info("run_shell_command") is not None
    shell = "run_shell_command" if has_main_tools else "execute_command"  # as the task loop calls it
    calls = tuple(
        ToolCall(id=f"command.{place}", name=shell, args={"command": line})
        for place, line in enumerate(lines)
    )
    head = deps.transcript.append(state["prompt"], [Message(role="assistant", tool_calls=calls)])
    return {**fresh, "label": "shell", "head": head}


def _command_restrictions(
    command: CustomCommand, state: CommandState, runtime: Runtime[Deps]
) -> CommandState:
    """The mode of work and the tools that a command restricts a prompt to, and what the user's own command allows. A
    mode that was chosen stays."""
    found: CommandState = {}
    if command.denied_tools:
        found["skill_denies"] = ",".join(command.denied_tools)
    if command.allowed_tools:
        found["skill_allows"] = "\n".join(command.allowed_tools)
    if command.mode and command.mode != state.get("mode"):
        known = runtime.context.modes.find_mode(command.mode) is not None
        if known and not state.get("mode"):
            return {**found, "mode": command.mode}
        why = f"this run is in mode {state.get('mode')!r}" if known else "no mode has this name"
        text = f"/{command.name} asks for mode {command.mode!r}, but {why}. It runs without it."
        runtime.stream_writer(ErrorEvent(severity="warning", message=text))
    return found


@node(reads=("prompt", "command", "head"), writes=("prompt", "asked"), nondeterministic=True)
async def fill(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """Put the output of its shell lines into the text; a refused line says so in its place."""
    deps = runtime.context
    command, args = _read_command_and_args(state, deps)
    found = [m for m in deps.transcript.read(state["head"]) if m.role == "tool"]
    answers = [m.text.removeprefix(OUTPUT_HEADING).rstrip("\n") for m in found]
    return await _expand_command_template(state["prompt"], command, args, answers, deps)


def route_after_command(state: CommandOut) -> Literal["filled", "stop"]:
    return "stop" if state.get("stop") else "filled"


def _read_command_and_args(state: CommandState, deps: Deps) -> tuple[CustomCommand, str]:
    """The command as it was when its prompt was opened, else as its file is now."""
    name, args = split_slash_command(deps.transcript.read_message(state["prompt"]).text)
    if record := state.get("command"):
        return CustomCommand.model_validate_json(deps.transcript.read_message(record).text), args
    command = deps.context.load_commands().find_command(name)
    if command is None:
        raise RunError(
            f"Command {'/' + name!r} was removed after its prompt was given. Put it back, then resume."
        )
    return command, args


def _fill_command(command: CustomCommand, args: str, deps: Deps) -> FilledTemplate:
    folder = str(deps.info.workspace)
    variables = {
        "CLAUDE_SKILL_DIR": command.skill_folder,
        "CLAUDE_PROJECT_DIR": folder,
        "CLAUDE_SESSION_ID": deps.info.run,
        "workspaceFolder": folder,
        "workspaceFolderBasename": deps.info.workspace.name,
    }
    return fill_template(command, args, variables)


async def _expand_command_template(
    prompt: str, command: CustomCommand, args: str, answers: Sequence[str], deps: Deps
) -> CommandState:
    """The expanded prompt. Inserted text isn't expanded again: a file can't refer to another."""
    left = iter(answers)
    filled = _fill_command(command, args, deps)
    texts: list[str] = []
    if folder := command.skill_folder:
        texts.append(load_prompt("context/skill").render(name=command.name, folder=folder) + "\n")
    for piece in filled.pieces:
        if piece.kind == "text":
            texts.append(piece.text)
        elif piece.kind == "shell":
            texts.append(next(left, ""))
        elif piece.kind == "file":
            texts.append(await _insert_file(piece.text, deps))
        else:
            texts.append(f"@{piece.text}")
    texts.append(command.appendix)
    if not filled.has_all_arguments:
        texts.append("\n\n" + load_prompt("context/command").render(name=command.name, args=args))
    text = TextPart(text=replace_surrogates("".join(texts)), section=f"/{command.name}")
    before = deps.transcript.read(prompt)[:-1]
    mentioned = [piece.text for piece in filled.pieces if piece.kind == "mention"]
    content = (text, *await _attach_named_files(mentioned, args, deps))
    record = deps.transcript.append("", [*before, Message(role="user", origin="person", content=content)])
    return {"prompt": record, "asked": record}


async def _insert_file(path: str, deps: Deps) -> str:
    """The text of a file that a command names."""
    reference = await deps.context.resolve_path_reference(path)
    shown = "".join(part.text for part in reference.parts if isinstance(part, TextPart)).strip()
    return shown or f"[{path} isn't shown: {reference.reason}]"


async def _attach_named_files(mentions: Sequence[str], args: str, deps: Deps) -> Sequence[Part]:
    """The files that a command mentions by `@path`, as far as there are such files, and those that a person names."""
    distinct = [*dict.fromkeys(mentions)][:MOST_PIECES]
    found = [await deps.context.resolve_path_reference(path) for path in distinct]
    found = [one for one in found if one.status not in ("directory", "missing", "refused")]
    found += await deps.context.resolve_prompt_references(args)
    parts = [part for one in found for part in one.parts]
    heading = TextPart(text=f"\n\n{render_prompt('context/files', problems='')}\n", section="files")
    return [heading, *parts] if parts else []
