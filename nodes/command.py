"""command: a custom command's text: the files and the output of the shell lines that it names, and its arguments."""

from collections.abc import Sequence
from typing import Literal

from langgraph.runtime import Runtime

from interlock.prompts import load
from interlock.state.command import ARGS, CommandOut, CommandState, pieces, shell_lines, split_prompt
from interlock.state.context import CustomCommand
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.messages import Message, TextPart, ToolCall
from interlock.state.run import node
from interlock.state.text import clean

OUTPUT_HEADING = "Output:\n"
"""How the shell tool begins; the command's text says itself what it shows."""


@node(
    reads=("prompt", "approval_mode"),
    writes=("head", "prompt", "asked", "stop", "stopped_by"),
    labels=("shell", "text"),
    outside=True,
)
async def expand(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """Its shell lines are calls like a model's: rules, hooks and people decide them."""
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


@node(reads=("prompt", "head"), writes=("prompt", "asked"), outside=True)
async def fill(state: CommandState, runtime: Runtime[Deps]) -> CommandState:
    """What was refused says so in its place."""
    deps = runtime.context
    command, args = _command(state["prompt"], deps)
    found = [m for m in deps.transcript.read(state["head"]) if m.role == "tool"]
    answers = [m.text.removeprefix(OUTPUT_HEADING).rstrip("\n") for m in found]
    return await _filled(state["prompt"], command, args, answers, deps)


def after_tools(state: CommandOut) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"


def after_command(state: CommandOut) -> Literal["filled", "stop"]:
    return "stop" if state.get("stop") else "filled"


def _command(prompt: str, deps: Deps) -> tuple[CustomCommand, str]:
    name, args = split_prompt(deps.transcript.message(prompt).text)
    command = deps.context.commands()[0].get(name)
    if command is None:
        raise RunError(f"Command {'/' + name!r} is gone since its prompt was given. Resume when it is back.")
    return command, args


async def _filled(
    prompt: str, command: CustomCommand, args: str, answers: Sequence[str], deps: Deps
) -> CommandState:
    """The prompt as the command has it. What is put in isn't looked at again: a file can't name another one."""
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
