"""merge: what the hooks of one event said together. Any block wins, whatever comes before or after it."""

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from interlock.services.hooks.reply import Reply, stricter
from interlock.state.hooks import HookDecision, HookEvent, HookOutcome, HookVerdict

_JOINED = ("tool_input", "llm_request")
"""Changes to what the event is about: each hook names what it changes, the later one wins where both do."""
_MODES = ("AUTO", "ANY", "NONE")


class Said(NamedTuple):
    """One hook, and what it said."""

    name: str
    source: str
    reply: Reply


def merged(event: HookEvent, said: Sequence[Said]) -> HookOutcome:
    """In the order of settings: texts are joined, later outputs win, the strictest decision stands."""
    decisions: list[HookDecision] = [one.reply.decision for one in said]
    decision = stricter("none", *decisions)
    stops = [one.reply.stop for one in said if one.reply.stop is not None]
    return HookOutcome(
        decision=decision,
        reason=_lines(one.reply.reason for one in said if one.reply.decision == decision != "none"),
        stop=_lines(stops) if stops else None,
        messages=tuple(one.reply.message for one in said if one.reply.message),
        context=_lines(one.reply.context for one in said),
        output=_output(event, [one.reply.output for one in said]),
        verdicts=tuple(_verdict(one) for one in said),
    )


def changed(given: dict[str, JsonValue], event: HookEvent, reply: Reply) -> dict[str, JsonValue]:
    """The next hook's input, where hooks run one after the other: with what this one changed or added."""
    match event:
        case "BeforeTool":
            return _with(given, "tool_input", reply.output.get("tool_input"))
        case "BeforeModel":
            return _with(given, "llm_request", reply.output.get("llm_request"))
        case "BeforeAgent" if reply.context:
            return {**given, "prompt": f"{given.get('prompt', '')}\n\n{reply.context}"}
        case _:
            return given


def _with(given: dict[str, JsonValue], key: str, change: JsonValue) -> dict[str, JsonValue]:
    old = given.get(key)
    if not isinstance(change, dict):
        return given
    return {**given, key: {**(old if isinstance(old, dict) else {}), **change}}


def _lines(texts: Any) -> str:
    """Each once, a line each."""
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _output(event: HookEvent, outputs: Sequence[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for output in outputs:
        for key, value in output.items():
            result = _with(result, key, value) if key in _JOINED else {**result, key: value}
    if event == "BeforeToolSelection":
        configs = [output["toolConfig"] for output in outputs if "toolConfig" in output]
        if configs:
            result["toolConfig"] = _tool_config(configs)
    return result


def _tool_config(configs: Sequence[JsonValue]) -> JsonValue:
    """NONE over ANY over AUTO; names united and sorted, none of them left under NONE."""
    given = [cast(dict[str, Any], config) for config in configs]
    mode = max((config.get("mode", "AUTO") for config in given), key=_MODES.index)
    names = {name for config in given for name in config.get("allowedFunctionNames", ())}
    allowed: list[JsonValue] = [] if mode == "NONE" else sorted(names)
    return {"mode": mode, "allowedFunctionNames": allowed}


def _verdict(one: Said) -> HookVerdict:
    reply = one.reply
    return HookVerdict(
        name=one.name,
        source=one.source,
        decision=reply.decision,
        reason=reply.reason,
        warning=reply.warning,
        exit_code=reply.exit_code,
        duration_ms=reply.duration_ms,
    )
