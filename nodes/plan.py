"""plan: plan mode: open, remind, track phases, and hand over to main."""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

from langgraph.runtime import Runtime

from interlock.nodes.hooks import hook_node
from interlock.nodes.main import TurnEnd, append_program_message, fire_after_agent_hooks, turn_end_label
from interlock.prompts import render_prompt
from interlock.state.calls import CallView, ToolResult
from interlock.state.charts import ApprovalModeChart, approval_mode_state, next_state
from interlock.state.conversation import initial_conversation_state
from interlock.state.deps import Deps, await_despite_cancel
from interlock.state.events import HandOver
from interlock.state.main import MainState
from interlock.state.messages import Message
from interlock.state.node import node, require_task_id
from interlock.state.plan import MOVES_MARK, PLAN_NAME, REMINDERS, ApprovedPlan, PlanMode, PlanState, PlanStep
from interlock.state.run import is_hooked

_WRITES = ("write_file", "replace")
_KEPT = ("approval_mode", "chosen_mode", "mode", "protocol")
_BOX = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+\[([ xX])\]\s+(.+)$")
_NUMBER = re.compile(r"^\d+[.)]\s+(.+)$")
_BULLET = re.compile(r"^[-*+]\s+(.+)$")
_HEADING = re.compile(
    r"^#{1,6}\s+(.*\b(?:steps?|plan|tasks?|todos?|implementation|changes)\b.*)$", re.IGNORECASE
)
_ANY_HEADING = re.compile(r"^#{1,6}\s")
_FENCE = re.compile(r"^\s*(```|~~~)")
_WORD = re.compile(r"\w+")
_FRESH: PlanState = {
    "approval_mode": "plan",
    "plan_phase": "requirements",
    "plan_file": "",
    "plan_steps": [],
    "plan_verdict": "",
    "approved_plan": False,
    "stop": "",
    "reminders": 0,
    "main_run": "",
    "said": "",
    "fed_back": False,
    "status": "running",
}


@node(
    reads=("prompt", "plan_name"),
    writes=(*initial_conversation_state(), *_FRESH, "asked", "head"),
    moves=("use_plan",),
)
async def open_plan(state: PlanState, runtime: Runtime[Deps]) -> PlanState:
    """The rules go right before the prompt; policy enforces them."""
    deps = runtime.context
    record_mode_events(runtime, ["use_plan"])
    rules = render_prompt("plan/mode", folder=str(deps.plans.folder), file=state["plan_name"] or PLAN_NAME)
    return {
        "asked": state["prompt"],
        "head": deps.transcript.append("", [Message(role="user", origin="context", content=rules)]),
        **initial_conversation_state(),
        **_FRESH,
    }


@node(
    reads=("head", "plan_name", "reminders"),
    writes=("head", "reminders", "error"),
    labels=("once more", "give up"),
    group="errors",
)
async def remind(state: PlanState, runtime: Runtime[Deps]) -> PlanState:
    """Remind a few times; then the run ends without a plan."""
    if state["reminders"] >= REMINDERS:
        message = (
            f"The model stopped without a plan, after {REMINDERS} reminders. Say more of what is wanted."
        )
        return {"label": "give up", "error": {"type": "no_plan", "message": message}}
    text = render_prompt("plan/remind", file=state["plan_name"] or PLAN_NAME)
    return {
        "label": "once more",
        "head": append_program_message(runtime, state["head"], text),
        "reminders": state["reminders"] + 1,
    }


@node(reads=("asked", *_KEPT, "plan_file", "plan_steps", "plan_text"), writes=("main_run",))
async def hand_over(state: PlanState, runtime: Runtime[Deps]) -> PlanState:
    """Only creates the run: the process driving this run drives it next, or a person resumes it.

    It gets the approved text, even if the file has changed since, and what restricts this run restricts it, too.
    """
    deps = runtime.context
    prompt, text = (deps.transcript.read_message(state[key]).text for key in ("asked", "plan_text"))
    plan = ApprovedPlan(state["plan_file"], text, state["plan_steps"])
    modes = {name: state.get(name, "") for name in _KEPT}
    run = await await_despite_cancel(asyncio.to_thread(deps.plans.create_main_run, prompt, modes, plan))
    runtime.stream_writer(HandOver(run=run, workflow="main"))
    return {"main_run": run}


@node(
    reads=("approved_plan", "plan_verdict", "turn_status", "stop", "stopped_by", "error"),
    writes=("status", "error"),
)
async def finish(state: PlanState) -> PlanState:
    if state["approved_plan"]:
        return {"status": "approved"}
    if reason := state.get("stop"):
        if state.get("stopped_by") == "hook":
            return {"status": "failed", "error": {"type": "stopped_by_hook", "message": reason}}
        return {"status": "cancelled"}
    if state["plan_verdict"] == "reject_silently":
        return {"status": "rejected"}
    unknown = {"type": state["turn_status"], "message": f"The turn ended as {state['turn_status']!r}."}
    return {"status": "failed", "error": state.get("error") or unknown}


def route_after_turn(state: PlanState) -> Literal["calls", "no calls", "answered", "first loop", TurnEnd]:
    found = turn_end_label(state["turn_status"])
    if found == "ok":
        return "answered" if is_hooked(state, "AfterAgent") else "no calls"
    return found


@hook_node(
    reads=("head", "asked", "said", "reply", "fed_back"),
    writes=("head", "hook_stage", "fed_back", "turn_status", "error"),
    labels=("feedback", "passed", "stopped", "blocked"),
)
async def after_agent(state: PlanState, runtime: Runtime[Deps]) -> PlanState:
    """As in `main`: fires on an answer without calls. An approved plan's last answer is `main`'s, which fires there."""
    return cast(PlanState, await fire_after_agent_hooks(cast(MainState, state), runtime))


def route_after_tools(
    state: PlanState,
) -> Literal["requirements", "exploration", "design", "revision", "approved", "rejected", "stopped"]:
    """Return the phase of plan mode that the next turn is in, or how the review ended the plan."""
    if state["approved_plan"]:
        return "approved"
    if state.get("stop"):
        return "stopped"
    if state["plan_verdict"] == "reject_silently":
        return "rejected"
    match state.get("plan_phase"):
        case "exploration":
            return "exploration"
        case "design":
            return "revision" if state["plan_verdict"] == "reject" else "design"
        case _:
            return "requirements"


_REVIEWED = (
    f"exit_plan_mode>{end}"
    for end in ["reject", "cancel", "no_review", "approve_default", "approve_auto_edit"]
)
PLANNED = " ".join(("enter_plan_mode read write_plan no_review", *_REVIEWED)) + "*"
"""Moves of the node that follows a whole batch, call by call: it leaves no plan in review."""


class _TrackedPlan(PlanMode, total=False):
    """Plan mode on its way through a batch."""

    moves: list[str]
    """Events of `ApprovalModeChart`, oldest first."""


def record_mode_events(runtime: Runtime[Deps], events: Sequence[str]) -> None:
    """Record the chart's events with the step, so that a diagram can draw the way."""
    if events:
        runtime.context.steps.record_reason(
            require_task_id(runtime, "A mode's move"), MOVES_MARK + ", ".join(events)
        )


def compute_plan_mode_changes(
    before: PlanMode, batch: Sequence[tuple[CallView, ToolResult]], risk_of: Callable[[str], str]
) -> tuple[PlanMode, list[str]]:
    """The keys that changed, and the chart's events, call by call. Only successful calls count."""
    # The phase was held during a review: replay what came before it in the batch, and its outcome.
    reviewed = before.get("plan_phase") == "review"
    now: _TrackedPlan = _apply_chart_event({**before}, "no_review") if reviewed else {**before}
    for call, result in batch:
        if result.status == "success" or result.meta.get("plan") == "cancel":
            now = _apply_call_to_plan(now, call, result.meta, risk_of(call.name))
    moves = now.pop("moves", [])
    if moves[:2] == ["no_review", "exit_plan_mode"]:  # only replayed: the review began in its group
        moves = moves[2:]
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    return PlanMode(**changed), moves  # pyright: ignore[reportArgumentType]


def _apply_call_to_plan(
    tracked: _TrackedPlan, call: CallView, meta: Mapping[str, Any], risk: str
) -> _TrackedPlan:
    if call.name == "enter_plan_mode":
        return _apply_chart_event(tracked, "enter_plan_mode")
    if call.name == "write_todos" and tracked.get("plan_steps"):
        todos = [(str(t.get("description", "")), str(t.get("status", ""))) for t in _todos_from_call(call)]
        return {**tracked, "plan_steps": mark_finished_steps(tracked["plan_steps"], todos)}
    if tracked.get("approval_mode") != "plan":
        return tracked
    phase = tracked.get("plan_phase") or "requirements"
    if call.name in _WRITES:
        moved = tracked if phase == "design" else _apply_chart_event(tracked, "write_plan")
        return {
            **moved,
            "plan_file": str(meta.get("file") or meta.get("path") or tracked.get("plan_file", "")),
        }
    if call.name == "exit_plan_mode":
        return _apply_review_result(tracked, str(meta.get("plan") or ""), meta)
    return _apply_chart_event(tracked, "read") if risk == "read" and phase == "requirements" else tracked


def _apply_review_result(tracked: _TrackedPlan, event: str, meta: Mapping[str, Any]) -> _TrackedPlan:
    if not event:  # there was no plan to review
        return tracked
    silent = event == "reject" and not meta.get("feedback")
    decided: _TrackedPlan = {
        **_apply_chart_event(_apply_chart_event(tracked, "exit_plan_mode"), event),
        "plan_verdict": event,
    }
    if silent:
        decided = {**decided, "plan_verdict": "reject_silently"}
    if "plan_file" not in meta:
        return decided
    steps: list[PlanStep] = list(meta["plan_steps"])
    file = str(meta["plan_file"])
    text = str(meta["plan_text"])
    return {**decided, "plan_file": file, "approved_plan": True, "plan_steps": steps, "plan_text": text}


def phase_during_review(plan_mode: PlanMode) -> str:
    """The phase while a person reviews the plan."""
    in_review = plan_mode.get("plan_phase") == "review"
    return (
        "review" if in_review else _apply_chart_event({**plan_mode}, "exit_plan_mode").get("plan_phase", "")
    )


def _apply_chart_event(tracked: _TrackedPlan, event: str) -> _TrackedPlan:
    mode, _, phase = next_state(
        ApprovalModeChart, approval_mode_state(tracked) or "default", event
    ).partition(".")
    return {
        **tracked,
        "approval_mode": mode,
        "plan_phase": phase,
        "moves": [*tracked.get("moves", ()), event],
    }


def _todos_from_call(call: CallView) -> list[Mapping[str, Any]]:
    found = call.args.get("todos")
    return [t for t in found if isinstance(t, dict)] if isinstance(found, list) else []


def parse_plan_steps(plan: str) -> list[PlanStep]:
    """Parse check boxes; else numbered lines; else bullets below a heading with "steps" or "plan"."""
    lines = _lines_outside_code(plan.splitlines())
    boxes = [m for line in lines if (m := _BOX.match(line))]
    if boxes:
        return [PlanStep(text=_strip_markup(m[2]), done=m[1] != " ") for m in boxes]
    numbered = [m[1] for line in lines if (m := _NUMBER.match(line))]
    return [
        PlanStep(text=_strip_markup(text), done=False)
        for text in numbered or _bullets_below_plan_heading(lines)
    ]


def _bullets_below_plan_heading(lines: Sequence[str]) -> list[str]:
    found: list[str] = []
    inside = False
    for line in lines:
        if _ANY_HEADING.match(line):
            inside = _HEADING.match(line) is not None
        elif inside and (bullet := _BULLET.match(line)):
            found.append(bullet[1])
    return found


def _lines_outside_code(lines: Iterable[str]) -> list[str]:
    kept: list[str] = []
    fenced = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            kept.append(line)
    return kept


def _strip_markup(text: str) -> str:
    return text.replace("**", "").replace("`", "").strip()


def mark_finished_steps(steps: Sequence[PlanStep], todos: Iterable[tuple[str, str]]) -> list[PlanStep]:
    """Mark steps done whose text matches a completed todo; a step is never unmarked."""
    finished = {_normalize_words(text) for text, status in todos if status == "completed"}
    return [
        PlanStep(text=s["text"], done=s["done"] or _normalize_words(s["text"]) in finished) for s in steps
    ]


def _normalize_words(text: str) -> str:
    return " ".join(_WORD.findall(text.casefold()))
