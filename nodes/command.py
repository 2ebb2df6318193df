"""command: expand a custom command: the files and shell output it refers to, and its arguments."""

from collections.abc import Sequence
from typing import Literal

from langgraph.runtime import Runtime

from interlock.prompts import load
from interlock.state.command import ARGS, CommandOut, CommandState, pieces, shell_lines, split_prompt
from interlock.state.context import CustomCommand
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.messages import Message, TextPart, ToolCall
from interlock.state.node import node
from interlock.state.text import clean

OUTPUT_HEADING = "Output:\n"
"""Prefix of the shell tool's output, stripped because the command's text introduces its own output."""


@node(
    reads=("prompt", "approval_mode"),
    writes=("head", "prompt", "asked", "stop", "stopped_by"),
    labels=("shell", "text"),
    nondeterministic=True,
)
async def expand(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """Its shell lines become calls like a model's, decided by rules, hooks and people."""
    deps = runtime.context
    command, args = _command(state["prompt"], deps)
    lines = shell_lines(command.prompt, args)
    fresh: CommandState = {"stop": "", "stopped_by": ""}
    if not lines:
        return {**fresh, "label": "text", **await _filled(state["prompt"], command, args, [], deps)}
    calls = tuple(
        ToolCall(id=f"command.{place}", name="run_shell_command", args={"command": line})
        for place, line in enumerate(lines)
    )
    head = deps.transcript.append(state["prompt"], [Message(role="assistant", tool_calls=calls)])
    return {**fresh, "label": "shell", "head": head}


@node(reads=("prompt", "head"), writes=("prompt", "asked"), nondeterministic=True)
async def fill(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """Put the output of its shell lines into the text; a refused line says so in its place."""
    deps = runtime.context
    command, args = _command(state["prompt"], deps)
    found = [m for m in deps.transcript.read(state["head"]) if m.role == "tool"]
    answers = [m.text.removeprefix(OUTPUT_HEADING).rstrip("\n") for m in found]
    return await _filled(state["prompt"], command, args, answers, deps)


def after_command(state: CommandOut) -> Literal["filled", "stop"]:
    return "stop" if state.get("stop") else "filled"


def _command(prompt: str, deps: Deps) -> tuple[CustomCommand, str]:
    name, args = split_prompt(deps.transcript.message(prompt).text)
    command = deps.context.commands().usable.get(name)
    if command is None:
        raise RunError(f"Command {'/' + name!r} is gone since its prompt was given. Resume when it is back.")
    return command, args


async def _filled(
    prompt: str, command: CustomCommand, args: str, answers: Sequence[str], deps: Deps
) -> CommandState:
    """The expanded prompt. Inserted text isn't expanded again: a file can't refer to another."""
    left = iter(answers)
    texts: list[str] = []
    for piece in pieces(command.prompt):
        if piece.kind == "text":
            texts.append(piece.text.replace(ARGS, args))
        elif piece.kind == "shell":
            texts.append(next(left, ""))
        else:
            reference = await deps.context.file(piece.text.replace(ARGS, args))
            shown = "".join(part.text for part in reference.parts if isinstance(part, TextPart))
            texts.append(shown.strip() or f"[{piece.text} isn't shown: {reference.reason}]")
    if args and ARGS not in command.prompt:
        texts.append("\n\n" + load("context/command").text(name=command.name, args=args))
    part = TextPart(text=clean("".join(texts)), section=f"/{command.name}")
    before = deps.transcript.read(prompt)[:-1]
    record = deps.transcript.append("", [*before, Message(role="user", origin="person", content=(part,))])
    return {"prompt": record, "asked": record}
