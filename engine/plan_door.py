"""plan_door: the doors of `plan`."""

from collections.abc import Mapping
from typing import Any

from interlock.engine.outside import Outside
from interlock.state.messages import Message
from interlock.state.plan import PlanInput, PlanOutput
from interlock.state.run import ErrorInfo
from interlock.state.text import clean_json


def enter_plan(given: PlanInput, out: Outside) -> dict[str, Any]:
    prompt = Message(role="user", origin="person", content=str(clean_json(given.prompt)))
    return {
        "prompt": out.transcript.append("", [prompt]),
        "plan_name": given.plan_file or "",
        "model": out.model,
        "max_turns": out.limits.max_turns,
        "max_session_turns": out.limits.max_session_turns,
    }


def leave_plan(values: Mapping[str, Any], out: Outside) -> PlanOutput:  # noqa: ARG001 - doors have one shape
    approved = values["status"] == "approved"
    error = values.get("error") if values["status"] == "failed" else None
    return PlanOutput(
        status=values["status"],
        plan_file=values.get("plan_file") or None,
        steps=values.get("plan_steps") or [],
        next_mode=values["approval_mode"] if approved else None,
        main_run=values.get("main_run") or None,
        error=ErrorInfo(**error) if error else None,
    )
