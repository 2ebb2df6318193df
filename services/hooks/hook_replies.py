"""hook_replies: runs hooks, parses their replies and merges those for one event."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from pydantic import BaseModel, Field, JsonValue, StrictBool, StrictStr, ValidationError

from interlock.services.hooks.claude_dialect import (
    from_claude_arguments,
    is_context_of_plain_text,
    is_only_told,
    to_claude_input,
)
from interlock.services.hooks.hook_settings import Hook
from interlock.services.hooks.scripts import can_run_python_isolated
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.hooks import NO_REASON, HookDecision, HookOutcome, HookVerdict
from interlock.state.messages import Frozen
from interlock.state.run import HookEvent
from interlock.state.text import clean_json, first_validation_error, replace_surrogates
from interlock.state.tooling import ProcessEnd, Processes

BLOCKS = 2
"""The exit code by which a hook blocks."""
OUTPUT_CHARS = 1_000_000
"""Maximum stdout; longer output is rejected."""
REASON_CHARS = 10_000
"""Maximum of stderr and of plain-text output shown to people and models."""
_DEPTH = 3
"""How many times JSON may be nested in JSON strings."""

_WORDS: dict[str, HookDecision] = {
    "allow": "allow",
    "approve": "allow",
    "ask": "ask",
    "deny": "block",
    "block": "block",
}
_ORDER: tuple[HookDecision, ...] = ("none", "allow", "ask", "block")
_Word = Literal["allow", "approve", "ask", "defer", "deny", "block"]
"""`defer`: it doesn't decide."""


class HookReply(Frozen):
    """The effective part of a hook's reply."""

    decision: HookDecision = "none"
    reason: str = ""
    stop: str | None = None
    message: str = ""
    context: str = ""
    output: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    warning: str = ""
    """Why the rest is ignored; only restrictions remain in effect."""
    lost: bool = False
    """Its supervisor was killed, so whether the hook completed is unknown."""
    exit_code: int | None = None
    duration_ms: int = 0
    has_json: bool = Field(default=False, exclude=True)
    """Its stdout was JSON."""


class _ToolConfig(BaseModel, extra="allow", defer_build=True):
    mode: Literal["AUTO", "ANY", "NONE"] = "AUTO"
    allowedFunctionNames: list[StrictStr] = []


class _Specific(BaseModel, extra="allow", defer_build=True):
    """`hookSpecificOutput`: gemini-cli's names, and three of Claude Code's."""

    additionalContext: StrictStr | None = None
    tool_input: dict[str, JsonValue] | None = None
    llm_request: dict[str, JsonValue] | None = None
    llm_response: dict[str, JsonValue] | None = None
    toolConfig: _ToolConfig | None = None
    tailToolCallRequest: dict[str, JsonValue] | None = None
    clearContext: StrictBool | None = None
    permissionDecision: _Word | None = None
    permissionDecisionReason: StrictStr | None = None
    updatedInput: dict[str, JsonValue] | None = None


_CLAUDES = {"permissionDecision", "permissionDecisionReason", "updatedInput", "hookEventName"}


class _Answer(BaseModel, defer_build=True):
    goes_on: StrictBool = Field(True, alias="continue")
    stop_reason: StrictStr | None = Field(None, alias="stopReason")
    message: StrictStr | None = Field(None, alias="systemMessage")
    decision: _Word | None = None
    reason: StrictStr | None = None
    specific: _Specific | None = Field(None, alias="hookSpecificOutput")


def strictest_hook_decision(*decisions: HookDecision) -> HookDecision:
    """Return the strictest decision: block over ask, ask over allow."""
    return max(decisions, key=_ORDER.index)


def parse_reply(ended: ProcessEnd, stderr: str, *, required: bool, timeout_s: float = 60.0) -> HookReply:
    """Parse a hook's result. Exit 0: stdout is the reply; 2: block, stderr says why; else warn (block if required)."""
    answer, unread = _parse_stdout(ended)
    reply, unfit = _build_reply_or_problem(answer) if answer is not None else (HookReply(), "")
    if ended.exit_code == BLOCKS:
        text = stderr.strip() or reply.reason or ("" if answer else ended.output.strip())
        reply = reply.model_copy(
            update={"decision": "block", "reason": replace_surrogates(text)[:REASON_CHARS]}
        )
    elif problem := _hook_failure_reason(ended, stderr, timeout_s) or unread or unfit:
        reply = _reduce_to_restrictions(answer or {}, problem, required)
    elif answer is None:
        reply = HookReply(message=replace_surrogates(ended.output.strip())[:REASON_CHARS])
    if reply.decision == "block" and not reply.reason:
        reply = reply.model_copy(update={"reason": NO_REASON})
    took = round(ended.duration_s * 1000)
    return reply.model_copy(
        update={
            "exit_code": ended.exit_code,
            "duration_ms": took,
            "lost": ended.how == "lost",
            "has_json": answer is not None,
        }
    )


def _parse_stdout(ended: ProcessEnd) -> tuple[dict[str, Any] | None, str]:
    """Return the JSON object on stdout, if any, and why stdout can't be parsed."""
    text = ended.output.strip()
    if ended.how == "not_started" or not text:
        return None, ""
    if ended.omitted:
        return None, f"it printed more than {OUTPUT_CHARS:,} characters"
    if not any(line.lstrip().startswith(("{", '"{', '"\\')) for line in text.splitlines()):
        return None, ""
    try:
        value: object = text
        for _ in range(_DEPTH):
            if not isinstance(value, str):
                break
            value = json.loads(value)
    except (ValueError, RecursionError):
        return None, "its output isn't one JSON object and nothing else"
    if not isinstance(value, dict):
        return None, "its output is JSON, but not an object"
    return cast(dict[str, Any], clean_json(cast(dict[str, Any], value))), ""


def _build_reply_or_problem(fields: Mapping[str, Any]) -> tuple[HookReply, str]:
    """Build a reply from the fields, or say why they can't be used."""
    try:
        answer = _Answer.model_validate(fields)
    except ValidationError as error:
        return HookReply(), f"its output can't be used: {': '.join(first_validation_error(error))}"
    specific = answer.specific or _Specific()
    reason = answer.reason or specific.permissionDecisionReason or ""
    reply = HookReply(
        decision=strictest_hook_decision(
            _to_decision(answer.decision), _to_decision(specific.permissionDecision)
        ),
        reason=reason,
        stop=None if answer.goes_on else answer.stop_reason or reason or NO_REASON,
        message=answer.message or "",
        context=specific.additionalContext or "",
        output=_to_gemini_output(specific),
    )
    return reply, ""


def _to_gemini_output(specific: _Specific) -> dict[str, JsonValue]:
    """Convert to gemini-cli's field names."""
    output = specific.model_dump(exclude_none=True, exclude={"additionalContext", *_CLAUDES})
    if specific.updatedInput is not None and specific.tool_input is None:
        output["tool_input"] = specific.updatedInput
    return output


def _to_decision(word: object) -> HookDecision:
    return _WORDS.get(word.lower(), "none") if isinstance(word, str) else "none"


def _hook_failure_reason(ended: ProcessEnd, stderr: str, timeout_s: float) -> str:
    """Return why the hook failed, or an empty string."""
    detail = next((line.strip() for line in stderr.strip().splitlines()[-1:]), "")[:500]
    tail = f": {replace_surrogates(detail)}" if detail else ""
    match ended.how:
        case "not_started":
            return f"it could not be started: {ended.output or 'its supervisor ended'}"
        case "timeout" | "inactivity":
            return f"it took longer than {timeout_s:g} s"
        case "limit":
            return f"it used {ended.excess}"
        case "lost":
            return "its supervisor was killed"
        case "exited":
            if ended.exit_code is None:
                return f"it was ended by {ended.signal}{tail}"
            return f"it exited with {ended.exit_code}{tail}" if ended.exit_code else ""


def _reduce_to_restrictions(answer: Mapping[str, Any], problem: str, required: bool) -> HookReply:
    """Reduce a failed hook's reply to its restrictions; a required hook blocks by failing."""
    specific: Any = answer.get("hookSpecificOutput")
    permission: object = cast(Any, specific).get("permissionDecision") if isinstance(specific, dict) else None
    decision = strictest_hook_decision(_to_decision(answer.get("decision")), _to_decision(permission))
    reason = answer.get("reason")
    text = reason if isinstance(reason, str) else ""
    if required and decision != "block":
        decision, text = "block", f"A hook that must answer failed: {problem}."
    return HookReply(
        decision="none" if decision == "allow" else decision,
        reason="" if decision == "allow" else text,
        stop=text or NO_REASON if answer.get("continue") is False else None,
        warning=problem,
    )


_JOINED = ("tool_input", "llm_request")
"""Changes to an event's input: partial objects that are merged, with later hooks winning."""
_MODES = ("AUTO", "ANY", "NONE")
_TOLD = HookVerdict.model_fields.keys() & HookReply.model_fields.keys()


class SourcedReply(NamedTuple):
    name: str
    source: str
    reply: HookReply


def merge_replies(event: HookEvent, replies: Sequence[SourcedReply]) -> HookOutcome:
    """Merge replies in settings order: texts are joined, later outputs win, the strictest decision applies."""
    decisions: list[HookDecision] = [one.reply.decision for one in replies]
    decision = strictest_hook_decision("none", *decisions)
    stops = [one.reply.stop for one in replies if one.reply.stop is not None]
    return HookOutcome(
        decision=decision,
        reason=_join_distinct(
            one.reply.reason for one in replies if one.reply.decision == decision != "none"
        ),
        stop=_join_distinct(stops) if stops else None,
        messages=tuple(one.reply.message for one in replies if one.reply.message),
        context=_join_distinct(one.reply.context for one in replies),
        output=_merge_outputs(event, [one.reply.output for one in replies]),
        verdicts=tuple(
            HookVerdict(name=name, source=source, **reply.model_dump(include=_TOLD))
            for name, source, reply in replies
        ),
    )


def next_hook_input(
    payload: dict[str, JsonValue], event: HookEvent, reply: HookReply
) -> dict[str, JsonValue]:
    """Return the next sequential hook's input, including what this hook changed or added."""
    match event:
        case "BeforeTool":
            return _merge_into_field(payload, "tool_input", reply.output.get("tool_input"))
        case "BeforeModel":
            return _merge_into_field(payload, "llm_request", reply.output.get("llm_request"))
        case "BeforeAgent" if reply.context:
            return {**payload, "prompt": f"{payload.get('prompt', '')}\n\n{reply.context}"}
        case _:
            return payload


def _merge_into_field(payload: dict[str, JsonValue], key: str, change: JsonValue) -> dict[str, JsonValue]:
    old = payload.get(key)
    if not isinstance(change, dict):
        return payload
    return {**payload, key: {**(old if isinstance(old, dict) else {}), **change}}


def _join_distinct(texts: Any) -> str:
    """Join the distinct texts, one per line."""
    return "\n".join(dict.fromkeys(text for text in texts if text))


def _merge_outputs(event: HookEvent, outputs: Sequence[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    result: dict[str, JsonValue] = {}
    for output in outputs:
        for key, value in output.items():
            result = _merge_into_field(result, key, value) if key in _JOINED else {**result, key: value}
    if event == "BeforeToolSelection":
        configs = [output["toolConfig"] for output in outputs if "toolConfig" in output]
        if configs:
            result["toolConfig"] = _merge_tool_configs(configs)
    return result


def _merge_tool_configs(configs: Sequence[JsonValue]) -> JsonValue:
    """Merge tool configurations: NONE over ANY over AUTO; names are combined and sorted, and dropped under NONE."""
    tool_configs = [cast(dict[str, Any], config) for config in configs]
    mode = max((config.get("mode", "AUTO") for config in tool_configs), key=_MODES.index)
    names = {name for config in tool_configs for name in config.get("allowedFunctionNames", ())}
    allowed: list[JsonValue] = [] if mode == "NONE" else sorted(names)
    return {"mode": mode, "allowedFunctionNames": allowed}


_ARGUMENTS = frozenset({"tool_input", "updatedInput", "tailToolCallRequest"})
"""Fields of `hookSpecificOutput` that get executed."""
_KEPT = REASON_CHARS * 4
"""In bytes: a character has at most four."""


@dataclass(frozen=True)
class HookEnvironment:
    """The run that hooks belong to, as exposed to them."""

    session: str
    workspace: Path
    plans: Path | None
    agent: str = ""
    """Path of the sub-agent the event is about; empty for the main agent."""
    redact: Redactor = SHAPES
    """Redacts replies, which are stored and displayed; tool arguments that hooks change are kept verbatim."""
    servers: frozenset[str] = frozenset()
    """Names of the MCP servers in settings."""

    def build_input(self, event: HookEvent, payload: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the fields common to all events, followed by the event's own."""
        own: dict[str, JsonValue] = {"agent": self.agent} if self.agent else {}
        return {
            "session_id": self.session,
            "cwd": str(self.workspace),
            "hook_event_name": event,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **own,
            **payload,
        }

    def translate_input(self, hook: Hook, payload: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Return an event's fields in the names that a hook was written for."""
        if not hook.is_claudes:
            return payload
        return to_claude_input(hook.event, payload, self.workspace, self.servers)

    def environment_variables(self) -> dict[str, str]:
        """Return the variables under gemini-cli's and Claude Code's names."""
        return {
            "GEMINI_PROJECT_DIR": str(self.workspace),
            "GEMINI_CWD": str(self.workspace),
            "GEMINI_SESSION_ID": self.session,
            "GEMINI_PLANS_DIR": str(self.plans or ""),
            "CLAUDE_PROJECT_DIR": str(self.workspace),
            "INTERLOCK_RUN": self.session,
            "INTERLOCK_AGENT": self.agent,
        }


async def run_hook(
    hook: Hook, payload: Mapping[str, JsonValue], processes: Processes, environment: HookEnvironment
) -> HookReply:
    """Run a hook. Never raises: the reply reports any failure."""
    if hook.broken:
        why = f"A required hook can't be run: {hook.broken}"
        return HookReply(decision="block", reason=why, warning=hook.broken)
    given = environment.translate_input(hook, payload)
    stdin = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
    stderr = bytearray()
    ended = await processes.run(
        ["bash", "-c", hook.command],
        cwd=environment.workspace,
        timeout_s=hook.timeout_s,
        limit_chars=OUTPUT_CHARS,
        env={
            **environment.environment_variables(),
            **python_isolation_variables(hook.command, environment.workspace),
            **hook.env,
        },
        stdin=stdin,
        on_errors=lambda chunk: stderr.extend(chunk[: max(0, _KEPT - len(stderr))]),
    )
    reply = parse_reply(
        ended, bytes(stderr).decode("utf-8", "replace"), required=hook.required, timeout_s=hook.timeout_s
    )
    if hook.is_claudes:
        reply = _from_claude_reply(hook.event, reply, payload, environment.workspace)
    fields = reply.model_dump(exclude={"output"})
    output = {k: v if k in _ARGUMENTS else environment.redact.redact_json(v) for k, v in reply.output.items()}
    return HookReply(**environment.redact.redact_json(fields), output=output)


def _from_claude_reply(
    event: HookEvent, reply: HookReply, payload: Mapping[str, JsonValue], workspace: Path
) -> HookReply:
    """Return a reply as Claude Code means it: what text on stdout, and a refusal, come to depends on the event."""
    changes: dict[str, Any] = {}
    if reply.message and not reply.has_json:
        text = reply.message if is_context_of_plain_text(event) else ""
        changes |= {"message": "", "context": text}
    if reply.decision == "block" and event == "AfterTool":
        changes |= {"decision": "none", "reason": "", "context": f"{reply.context}\n{reply.reason}".strip()}
    elif reply.decision == "block" and is_only_told(event):
        said = "" if reply.reason == NO_REASON else reply.reason
        changes |= {"decision": "none", "reason": "", "message": said}
    changed, tool, args = reply.output.get("tool_input"), payload.get("tool_name"), payload.get("tool_input")
    if isinstance(changed, dict) and isinstance(tool, str) and isinstance(args, dict):
        own = from_claude_arguments(tool, args, changed, workspace)
        changes["output"] = {**reply.output, "tool_input": own}
    return reply.model_copy(update=changes)


def python_isolation_variables(command: str, workspace: Path) -> dict[str, str]:
    """Keep Python from importing what lies in the workspace, where the model writes, if the hook needs none of it."""
    return {"PYTHONSAFEPATH": "1"} if can_run_python_isolated(command, workspace) else {}
