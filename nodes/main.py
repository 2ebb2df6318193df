"""main: the agent loop around turns and tools: open a prompt, expand a custom command, continue, nudge, finish."""

from collections.abc import Collection
from typing import Literal, get_args

from langgraph.runtime import Runtime
from pydantic import JsonValue

from interlock.nodes.check import append_check_rule_once, relabel_accepted_answer_for_check
from interlock.nodes.hooks import end_prompt_if_hook_refuses, fire_hooks, hook_context_message, hook_node
from interlock.nodes.mcp import expand_if_server_prompt
from interlock.prompts import load_prompt, render_prompt
from interlock.state.charts import ApprovalModeChart, next_state
from interlock.state.command import (
    is_command_name,
    split_slash_command,
)
from interlock.state.context import Commands
from interlock.state.conversation import (
    BatchEnd,
    Refused,
    find_open_refusal,
    format_refusal,
    initial_prompt_state,
    refusals_from_state,
)
from interlock.state.deps import Deps, RunInfo, Transcript
from interlock.state.errors import InputError, RunError, UntrustedError, UserError
from interlock.state.events import AgentBlocked, ErrorEvent
from interlock.state.hooks import NO_REASON, HookedPrompt, HookOutcome
from interlock.state.loop_check import RAN_ON
from interlock.state.main import MainState
from interlock.state.messages import Message, Origin
from interlock.state.names import mcp_server_key
from interlock.state.node import node, require_task_id
from interlock.state.plan import MOVES_MARK, PLAN_NAME
from interlock.state.repair import ATTEMPTS, NOT_LOCATED
from interlock.state.run import is_hooked
from interlock.state.text import did_you_mean, has_visible_text

_SILENT = "[no response text]"
"""Sent to the hook if the model said nothing (gemini-cli's words)."""
_STATUS = {
    "ok": "done",
    "context_overflow": "context_overflow",
    "session_limit": "turn_limit",
    "invalid_stream": "invalid_stream",
    "loop_detected": "loop_detected",
    "stopped_by_hook": "stopped_by_hook",
    "blocked_by_hook": "blocked_by_hook",
    "error": "failed",
}
"""Status of the last turn → status of `main`."""
TurnEnd = Literal["overflow", "limit", "second loop", "invalid", "stopped", "blocked", "failed"]
"""How a turn ends the prompt."""
TURN_ENDS: tuple[TurnEnd, ...] = get_args(TurnEnd)
_TURN_ENDS: dict[str, TurnEnd] = {
    "context_overflow": "overflow",
    "session_limit": "limit",
    "loop_detected": "second loop",
    "invalid_stream": "invalid",
    "stopped_by_hook": "stopped",
    "blocked_by_hook": "blocked",
    "error": "failed",
}
_NEXT = {"policy": "Change the rule", "person": "Approve it next time", "hook": "Change the hook"}


@node(
    reads=("prompt", "hook_stage", "head", "unavailable", "approval_mode", "plan_phase", "force"),
    writes=(
        *initial_prompt_state(),
        *("prompt", "asked", "hook_stage", "said", "fed_back", "refused", "head", "stop", "status"),
        *("unavailable", "next_speaker_check", "plan_phase", "skill_denies", "skill_allows"),
        *("tries_repair", "task", "max_attempts", "check_timeout_s"),
    ),
    labels=("prompt", "command", "unusable", "answered", "compress"),
    nondeterministic=True,
)
async def open_prompt(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Start a prompt: reset limits, sticky model and loop detection. Without one the conversation just continues."""
    if state.get("force"):
        return {"label": "compress", "status": "running"}
    deps = runtime.context
    rules, phase = _plan_mode_rules_and_phase(deps, state)
    opened: MainState = {
        **initial_prompt_state(),
        "stop": "",
        "status": "running",
        "skill_denies": "",
        "skill_allows": "",
        "unavailable": {m: how for m, how in state.get("unavailable", {}).items() if how == "run"},
        "plan_phase": phase,
        # A server for one conversation would have to read that again after the check's own request.
        "next_speaker_check": not (deps.settings.model.skip_next_speaker_check or deps.info.brief),
        "tries_repair": False,
    }
    if rules:
        opened["head"] = deps.transcript.append(state["head"], rules)
    if deps.checks.must_pass_with_original_tests:
        opened["head"] = append_check_rule_once(opened.get("head", state["head"]), deps)
    if not state["prompt"]:
        # If only its answer was refused, only the answer's hooks remain.
        return {**opened, "label": "answered" if state.get("hook_stage") == "answered" else "prompt"}
    # Hook state is reset for each new prompt, but not for a retry of one.
    anew: MainState = {"hook_stage": "", "said": "", "fed_back": False, "refused": {}}
    try:
        kind, prompt = await resolve_typed_prompt(state["prompt"], runtime)
    except UserError as error:  # the prompt stays, for a resume once the command is there
        failed: MainState = {"turn_status": "error", "error": {"type": error.kind, "message": str(error)}}
        return {**opened, **anew, **failed, "label": "unusable"}
    return {
        **opened,
        **anew,
        **_repair_request(deps, state, prompt),
        "asked": prompt,
        "prompt": prompt,
        "label": kind,
    }


def _repair_request(deps: Deps, state: MainState, prompt: str) -> MainState:
    """Let `repair` try first where a small model has a check: it mends more than it would in a loop of turns."""
    is_for_repair = (
        deps.info.brief
        and bool(deps.checks.command)
        and state["approval_mode"] != "plan"
        and not deps.checks.is_test_change_requested(deps.transcript.read_message(prompt).text)
    )
    return {"tries_repair": is_for_repair, "task": prompt, "max_attempts": ATTEMPTS, "check_timeout_s": 0.0}


async def resolve_typed_prompt(
    prompt: str, runtime: Runtime[Deps]
) -> tuple[Literal["prompt", "command"], str]:
    """A command or a prompt, and its record; a server's prompt is spelled out.

    Raises `UserError` for the name of a command that isn't there or can't be used.
    """
    deps = runtime.context
    typed = deps.transcript.read_message(prompt).content
    name, _ = split_slash_command(typed if isinstance(typed, str) else "")
    if not name:
        return "prompt", prompt
    commands = deps.context.load_commands()
    for problem in (problem for other, problem in commands.broken.items() if other != name):
        runtime.stream_writer(ErrorEvent(severity="warning", message=problem))
    if commands.find_command(name):
        return "command", prompt
    if (found := await expand_if_server_prompt(prompt, deps)) != prompt:
        return "prompt", found
    if is_command_name(name):
        raise _unknown_command_error(name, commands, deps.mcp.enabled_server_names())
    return "prompt", prompt


def _unknown_command_error(name: str, commands: Commands, servers: Collection[str]) -> UserError:
    if problem := commands.broken.get(name):
        return InputError(f"Command {'/' + name!r} can't be used: {problem}", "prompt")
    if problem := commands.untrusted.get(name):
        return UntrustedError(f"Command {'/' + name!r} can't be used: {problem}")
    prompts = (f"{mcp_server_key(server)}:" for server in servers)
    if problem := commands.hidden.get(name):
        return InputError(f"Skill {name!r} can't be called by a prompt: {problem}", "prompt")
    known = [*commands.usable, *commands.broken, *prompts]
    how = "A session's own commands work only there. To send this as a prompt, begin it with another word."
    return InputError(f"No command {'/' + name!r}.{did_you_mean(name, known, 3)} {how}", "prompt")


def route_after_context(state: HookedPrompt) -> Literal["plain", "hooked"]:
    """An admitted prompt isn't checked by hooks again."""
    waits = not state.get("hook_stage") and state.get("asked")
    return "hooked" if waits and is_hooked(state, "BeforeAgent") else "plain"


def route_after_main_context(state: MainState) -> Literal["plain", "hooked", "repair"]:
    """As `route_after_context`; hooks that admit a prompt admit it to the turns, not to a repair."""
    if (found := route_after_context(state)) == "hooked":
        return found
    return "repair" if state.get("tries_repair") else "plain"


@node(
    reads=("head", "repair_status", "told", "error"),
    writes=("head", "reply", "turn_status", "error", "tries_repair"),
    labels=("answered", "turn", "failed"),
)
async def take_repair(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """What was repaired is the answer. A task that is no repair goes on to the first turn; a failed one ends here."""
    error, transcript = state.get("error") or {}, runtime.context.transcript
    done: MainState = {"tries_repair": False}
    if error.get("type") in ("no_tests", NOT_LOCATED) or not (error or state["told"]):
        return {**done, "label": "turn", "error": {}}
    text = transcript.read_message(state["told"]).text or error["message"]
    head = transcript.append(state["head"], [Message(role="assistant", content=text)])
    if state["repair_status"] == "done":
        return {**done, "label": "answered", "head": head, "reply": head, "turn_status": "ok", "error": {}}
    if state["repair_status"] == "not_repaired":
        error = {"type": "not_repaired", "message": error["message"]}
    return {**done, "label": "failed", "head": head, "turn_status": "error", "error": error}


def _plan_mode_rules_and_phase(deps: Deps, state: MainState) -> tuple[list[Message], str]:
    """The rules of plan mode, if a prompt starts in it, and the current phase."""
    phase = state.get("plan_phase", "")
    if state["approval_mode"] != "plan":
        return [], ""
    if phase:
        return [], phase
    text = render_prompt("plan/mode", folder=str(deps.plans.folder), file=PLAN_NAME)
    return [Message(role="user", origin="context", content=text)], "requirements"


@hook_node(
    reads=("head", "asked"),
    writes=("head", "prompt", "hook_stage", "turn_status", "error"),
    labels=("passed", "stopped", "blocked"),
)
async def before_agent(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """A stopped prompt stays in the conversation; a blocked one is removed and can be retried."""
    transcript = runtime.context.transcript
    payload = {"prompt": transcript.read_message(state["asked"]).text}
    outcome = await fire_hooks("BeforeAgent", payload, state, runtime)
    if end := end_prompt_if_hook_refuses("BeforeAgent", outcome, "the prompt", runtime):
        if end["turn_status"] == "stopped_by_hook":
            return {**end}
        without, *removed = _records_from_before_prompt(state["head"], transcript)
        runtime.context.journal.seen.forget(removed)
        return {**end, "head": without, "prompt": state["asked"]}
    passed: MainState = {"label": "passed", "hook_stage": "admitted"}
    if outcome.context:
        passed["head"] = transcript.append(state["head"], [hook_context_message(outcome.context)])
    return passed


def _records_from_before_prompt(head: str, transcript: Transcript) -> list[str]:
    """The record before the prompt, the prompt, and what came with it: files, and what changed."""
    ids = transcript.record_ids(head, 5)
    prompt = max(n for n, one in enumerate(ids) if transcript.read_message(one).origin != "context")
    return ids[prompt - 1 :]


@node(reads=("head",), writes=("head",))
async def go_on(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Costs a turn, like any other message, so the turn limit applies."""
    return {
        "head": append_program_message(
            runtime, state["head"], load_prompt("next_speaker/go_on").render(), "continue"
        )
    }


@node(reads=("head", "loop_found"), writes=("head",), group="errors")
async def nudge(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Costs a turn, like any other message."""
    found = state["loop_found"]
    name = "ran_on" if found["kind"] in RAN_ON else "nudge"
    text = load_prompt(f"loop_check/{name}").render(detail=found["detail"])
    return {"head": append_program_message(runtime, state["head"], text)}


@hook_node(
    reads=("head", "asked", "said", "reply", "fed_back"),
    writes=("head", "hook_stage", "fed_back", "turn_status", "error"),
    labels=("feedback", "passed", "stopped", "blocked", "check"),
)
async def after_agent(state: MainState, runtime: Runtime[Deps]) -> MainState:
    return relabel_accepted_answer_for_check(await fire_after_agent_hooks(state, runtime), runtime.context)


async def fire_after_agent_hooks(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Fire the hooks on the prompt's answers. No answer is an error, which they aren't asked about."""
    transcript = runtime.context.transcript
    if not has_visible_text(transcript.read_message(state["reply"]).text):
        return {"label": "passed", "turn_status": "ok"}
    answers = [m.text for m in transcript.read(state["said"])] if state["said"] else []
    return await fire_hooks_on_answer("\n".join(answers), state, runtime)


async def fire_hooks_on_answer(answer: str, state: MainState, runtime: Runtime[Deps]) -> MainState:
    """Fire the hooks on an answer. A block with a reason requests another turn."""
    transcript = runtime.context.transcript
    payload: dict[str, JsonValue] = {
        "prompt": transcript.read_message(state["asked"]).text,
        "prompt_response": answer or _SILENT,
        "stop_hook_active": state["fed_back"],
    }
    outcome = await fire_hooks("AfterAgent", payload, state, runtime)
    if reason := _hook_feedback(outcome):
        runtime.stream_writer(AgentBlocked(reason=reason))
        head = transcript.append(state["head"], [Message(role="user", origin="hook", content=reason)])
        anew: MainState = {"hook_stage": "admitted", "fed_back": True, "turn_status": ""}
        return {**anew, "label": "feedback", "head": head}
    if end := end_prompt_if_hook_refuses("AfterAgent", outcome, "the answer", runtime):
        return {**end, "hook_stage": "answered"}
    return {"label": "passed", "hook_stage": "admitted", "turn_status": "ok"}


def _hook_feedback(outcome: HookOutcome) -> str:
    """What the model still has to do; empty: nothing. A required hook's failure tells it nothing useful."""
    failed = any(v.decision == "block" and v.warning for v in outcome.verdicts)
    blocks = outcome.stop is None and outcome.decision == "block" and not failed
    return outcome.reason.strip() if blocks and outcome.reason != NO_REASON else ""


@node(
    reads=("turn_status", "reply", "stop", "stopped_by", "refused", "approval_mode", "plan_verdict"),
    writes=("status", "error", "approval_mode", "plan_verdict"),
    moves=("carried_out",),
)
async def finish(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """A batch that requested the end ends the run, whatever the turn's status. No answer isn't a success."""
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "stopped_by_hook", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state["turn_status"] == "ok" and not has_visible_text(
        runtime.context.transcript.read_message(state["reply"]).text
    ):
        message = f"The model ended without an answer. Try again with: {runtime.context.info.resume_or_rerun_command()}"
        return {"status": "invalid_stream", "error": {"type": "invalid_stream", "message": message}}
    if state["turn_status"] == "ok" and (refused := find_open_refusal(refusals_from_state(state))):
        error = refusal_error(refused, runtime.context.info)
        return {"status": "failed", "error": error, **reset_auto_edit_after_plan(state, runtime)}
    return {"status": _STATUS[state["turn_status"]], **reset_auto_edit_after_plan(state, runtime)}


def reset_auto_edit_after_plan(state: MainState, runtime: Runtime[Deps]) -> MainState:
    """The mode after a plan was carried out: edits are asked about again if they were allowed for the plan only."""
    if (state["turn_status"], state.get("plan_verdict")) != ("ok", "approve_auto_edit"):
        return {}
    if state["approval_mode"] != "auto_edit":
        return {"plan_verdict": ""}
    runtime.context.steps.record_reason(require_task_id(runtime, "A mode's move"), f"{MOVES_MARK}carried_out")
    return {"approval_mode": next_state(ApprovalModeChart, "auto_edit", "carried_out"), "plan_verdict": ""}


def append_program_message(runtime: Runtime[Deps], head: str, text: str, origin: Origin = "nudge") -> str:
    """The new head after appending a message of ours to the model."""
    return runtime.context.transcript.append(head, [Message(role="user", origin=origin, content=text)])


def turn_end_label(status: str) -> Literal["calls", "ok", "first loop", TurnEnd]:
    """Return what remains to be done given the turn's status."""
    match status:
        case "calls" | "ok":
            return status
        case "loop_nudge":
            return "first loop"
        case _ if status in _TURN_ENDS:
            return _TURN_ENDS[status]
        case _:
            raise RunError(f"A turn ended as {status!r}, which nothing follows.")


def route_after_turn(
    state: MainState,
) -> Literal["calls", "no calls", "answered", "done", "first loop", TurnEnd]:
    match turn_end_label(state["turn_status"]):
        case "ok" if state.get("next_speaker_check"):
            return "no calls"
        case "ok":
            return "answered" if is_hooked(state, "AfterAgent") else "done"
        case other:
            return other


def route_after_tools(state: BatchEnd) -> Literal["results", "stop"]:
    return "stop" if state.get("stop") else "results"


def route_after_next_speaker(state: MainState) -> Literal["model", "answered", "user or nobody"]:
    if state["next_speaker"] == "model":
        return "model"
    return "answered" if is_hooked(state, "AfterAgent") else "user or nobody"


def refusal_error(refused: Refused, info: RunInfo) -> dict[str, str]:
    """`{type, message}`: what was refused and by whom, and how to continue."""
    message = (
        f"{format_refusal(refused)}. The run ended without it. {_NEXT[refused['who']]}, or say what to do "
        f"instead: {info.resume_with_prompt_command()}"
    )
    return {"type": "refused", "message": message}
