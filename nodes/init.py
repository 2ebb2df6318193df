"""init: write a repository's memory file: choose it, instruct the model, check that it was written."""

from typing import Literal

from langgraph.runtime import Runtime

from interlock.nodes.main import TurnEnd, append_program_message, refusal_error, turn_end_label
from interlock.prompts import render_prompt
from interlock.state.conversation import find_open_refusal, initial_conversation_state, refusals_from_state
from interlock.state.deps import Deps
from interlock.state.errors import InputError
from interlock.state.init import MODE, REMINDERS, InitState
from interlock.state.messages import Message
from interlock.state.node import node

_NEW = "There is none yet."
_STANDS = (
    "One stands there already and was shown to you: keep what is right in it and what only people can know, correct "
    "what the files contradict, add what is missing. If nothing needs to change, change nothing and say so."
)
_NOTHING = "The folder {folder!r} holds no files to look at. Put some there, then: interlock init"
_EMPTY = "(empty)"
"""Last line of an empty directory's listing."""


@node(
    reads=("prompt", "file"),
    writes=(
        *initial_conversation_state(),
        *("head", "mode", "prompt", "file", "stood", "reminders", "stop", "refused"),
    ),
    labels=("look", "nothing here"),
    nondeterministic=True,
)
async def open_init(state: InitState, runtime: Runtime[Deps]) -> InitState:
    """An existing file is updated, whichever of the possible names it has."""
    deps = runtime.context
    names = deps.settings.context.file_names
    if state["file"] and state["file"] not in names:
        known = " or ".join(map(repr, names))
        raise InputError(
            f"Input field 'file': {state['file']!r} isn't one of the files that conversations begin with: {known}. Add "
            "it to context.fileName in settings.",
            "file",
        )
    file = state["file"] or next((name for name in names if _find_file_digest(deps, name)), names[0])
    stood = _find_file_digest(deps, file)
    hint = deps.transcript.read_message(state["prompt"]).text if state["prompt"] else ""
    request = render_prompt(
        "init/look",
        file=file,
        standing=_STANDS if stood else _NEW,
        hint=f"\n\nThe user adds: {hint}" if hint else "",
    )
    opened: InitState = {
        **initial_conversation_state(),
        "head": "",
        "mode": MODE,
        "prompt": deps.transcript.append("", [Message(role="user", origin="person", content=request)]),
        "file": file,
        "stood": stood,
        "reminders": 0,
        "stop": "",
        "refused": {},
    }
    if all(
        line == _EMPTY
        for line in (await deps.context.render_directory_trees()).splitlines()
        if not line.endswith("/")
    ):
        error = {"type": "nothing_to_describe", "message": _NOTHING.format(folder=str(deps.info.workspace))}
        return {**opened, "label": "nothing here", "error": error}
    return {**opened, "label": "look"}


def _find_file_digest(deps: Deps, name: str) -> str:
    """Return the digest of a file of the workspace, trusted or not; empty if there is none."""
    return deps.toolset.current_file_digest(str(deps.info.workspace / name)) or ""


@node(
    reads=("head", "file", "stood", "reminders", "refused", "error"),
    writes=("head", "reminders", "status", "error"),
    labels=("over", "once more"),
    nondeterministic=True,
)
async def check_file(state: InitState, runtime: Runtime[Deps]) -> InitState:
    """A refusal is final; a model that stopped silently is reminded, a few times."""
    deps = runtime.context
    now = _find_file_digest(deps, state["file"])
    if now and now != state["stood"]:
        return {"label": "over", "status": "done"}
    if refused := find_open_refusal(refusals_from_state(state)):
        return {"label": "over", "status": "failed", "error": refusal_error(refused, deps.info)}
    if now:
        return {"label": "over", "status": "unchanged"}
    if state["reminders"] >= REMINDERS:
        message = f"The model stopped before {state['file']!r} was written, after {REMINDERS} reminders."
        return {"label": "over", "status": "failed", "error": {"type": "not_written", "message": message}}
    text = render_prompt("init/remind", file=state["file"])
    head = append_program_message(runtime, state["head"], text)
    return {"label": "once more", "head": head, "reminders": state["reminders"] + 1}


@node(reads=("status", "turn_status", "stop", "stopped_by", "error"), writes=("status", "error"))
async def finish(state: InitState) -> InitState:
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "stopped_by_hook", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state.get("status"):
        return {}
    unknown = {"type": state["turn_status"], "message": f"The turn ended as {state['turn_status']!r}."}
    return {"status": "failed", "error": state.get("error") or unknown}


def route_after_turn(state: InitState) -> Literal["calls", "no calls", "first loop", TurnEnd]:
    found = turn_end_label(state["turn_status"])
    return "no calls" if found == "ok" else found
