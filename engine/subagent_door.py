"""subagent_door: the doors of `subagent` and `investigate`: an input becomes the call that a parent would make."""

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from interlock.engine.outside import Outside
from interlock.state.calls import CallKey, ToolResult
from interlock.state.errors import InputError, RunError
from interlock.state.investigate import INVESTIGATOR, InvestigateInput, InvestigateOutput, Report
from interlock.state.messages import Message, ToolCall
from interlock.state.subagent import SubagentInput, SubagentOutput
from interlock.state.text import clean_json


def enter_subagent(given: SubagentInput, out: Outside) -> dict[str, Any]:
    _check_agent(given.agent, out)
    if given.prompt is None and not given.inputs:
        raise InputError("Input field 'prompt': say what the agent shall do, or give 'inputs'.", "prompt")
    args: dict[str, JsonValue] = {"agent_name": given.agent, "prompt": given.prompt or ""}
    if given.inputs:
        args["inputs"] = given.inputs
    return _called("invoke_agent", args, out)


def enter_investigate(given: InvestigateInput, out: Outside) -> dict[str, Any]:
    return _called(INVESTIGATOR, {"objective": given.objective}, out)


def _check_agent(name: str, out: Outside) -> None:
    if name not in out.agents:
        from difflib import get_close_matches

        near = get_close_matches(name, out.agents, 1, 0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InputError(
            f"Input field 'agent': no agent {name!r}.{hint} There are {', '.join(out.agents)}.", "agent"
        )


def _called(tool: str, args: dict[str, JsonValue], out: Outside) -> dict[str, Any]:
    call = ToolCall.model_validate({"id": "0", "name": tool, "args": clean_json(args)})
    message = out.transcript.append("", [Message(role="assistant", tool_calls=(call,))])
    return {"message": message, "index": 0, "attempt": 1, "approval_mode": out.approval_mode}


def _result(values: Mapping[str, Any], out: Outside) -> ToolResult:
    key = CallKey.parse(values["call"])
    row = out.journal.find(key, out.journal.call(key))
    if row is None or row.result is None:
        raise RunError(f"Call {str(key)!r} is over but the journal holds no result of it.")
    return row.result


def leave_subagent(values: Mapping[str, Any], out: Outside) -> SubagentOutput:
    meta: dict[str, Any] = dict(_result(values, out).meta)
    return SubagentOutput(
        status=meta["reason"],
        result=meta["result"],
        reason=meta["why"],
        turns=meta["turns"],
        duration_s=meta["duration_ms"] / 1000,
    )


def leave_investigate(values: Mapping[str, Any], out: Outside) -> InvestigateOutput:
    meta: dict[str, Any] = dict(_result(values, out).meta)
    if meta["reason"] == "goal":
        report = Report.model_validate(json.loads(meta["result"]))
        return InvestigateOutput(status="goal", report=report)
    return InvestigateOutput(status=meta["reason"], partial=meta["result"], reason=meta["why"])
