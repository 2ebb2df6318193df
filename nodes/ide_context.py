"""ide_context: what the user has open in an editor: all of it once, then what changed."""

import json
from collections.abc import Sequence
from typing import Any

from langgraph.runtime import Runtime

from interlock.prompts import render
from interlock.state.context import ContextState, IdeState
from interlock.state.deps import Deps, Transcript
from interlock.state.errors import ConfigError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message, TextPart
from interlock.state.node import node
from interlock.state.turn import TurnState

_SECTION = "ide"


@node(reads=("head", "ide_given", "ide_told"), writes=("head", "ide_told"), pure=True)
async def ide_context(state: TurnState, runtime: Runtime[Deps]) -> TurnState:
    """After a compression it is told in full: what was told before is gone with the messages."""
    transcript = runtime.context.transcript
    try:
        now = ide_now(state, runtime.context)
    except ConfigError as error:
        runtime.stream_writer(ErrorEvent(severity="warning", message=str(error)))
        return {}
    known = state.get("ide_told", "") if _is_told(transcript.read(state["head"])) else ""
    before: IdeState | None = json.loads(transcript.message(known).text) if known else None
    if now == before or (before is None and not now["open"]):
        return {}
    text = ide_text(before, now)
    told = Message(role="user", origin="context", content=(TextPart(text=text, section=_SECTION),))
    return {"head": transcript.append(state["head"], [told]), "ide_told": ide_record(now, transcript)}


def has_ide(state: TurnState | ContextState, deps: Deps) -> bool:
    """Nobody looks over a sub-agent's shoulder."""
    return bool(deps.context.has_ide or state.get("ide_given")) and not deps.info.agent


def ide_now(state: TurnState | ContextState, deps: Deps) -> IdeState:
    """Raises `ConfigError`."""
    given = state.get("ide_given", "")
    return deps.context.ide(deps.transcript.message(given).text if given else "")


def ide_record(now: IdeState, transcript: Transcript) -> str:
    """What the next one is compared with."""
    return transcript.append("", [Message(role="user", origin="context", content=json.dumps(now))])


def _is_told(history: Sequence[Message]) -> bool:
    parts = (p for m in history if m.origin == "context" for p in m.content if not isinstance(p, str))
    return any(isinstance(p, TextPart) and p.section == _SECTION for p in parts)


def ide_text(before: IdeState | None, now: IdeState) -> str:
    if before is None:
        return render("context/ide", state=_json({**now}))
    changed: dict[str, Any] = {
        "opened": [path for path in now["open"] if path not in before["open"]],
        "closed": [path for path in before["open"] if path not in now["open"]],
    }
    changed = {name: paths for name, paths in changed.items() if paths}
    if now["active"] != before["active"]:
        changed["active"] = now["active"]
    return render("context/ide_changed", changes=_json(changed))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)
