"""open_plan: begin a conversation under the rules of plan mode."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.loop_check import FIRST_CHECK, INTERVAL
from interlock.state.messages import Message
from interlock.state.plan import PLAN_NAME, PlanStep


class OpenPlanIn(TypedDict, total=False):
    prompt: str
    plan_name: str


class OpenPlanOut(TypedDict, total=False):
    asked: str
    head: str
    approval_mode: str
    plan_phase: str
    plan_file: str
    plan_steps: list[PlanStep]
    plan_verdict: str
    approved_plan: bool
    turn_no: int
    session_turns: int
    sticky_model: str
    last_prompt_tokens: int
    unavailable: dict[str, str]
    loop_keys: list[str]
    loop_count: int
    loop_interval: int
    loop_next: int
    loop_found: dict[str, str]
    turn_status: str
    error: dict[str, str]
    stop: str
    reminders: int
    main_run: str
    status: str


async def open_plan(state: OpenPlanIn, runtime: Runtime[Deps]) -> OpenPlanOut:
    """The rules stand in the system prompt; policy holds them."""
    deps = runtime.context
    opening = await deps.context.opening(deps.toolset.declarations())
    rules = render("plan/mode", folder=str(deps.plans.folder), file=state["plan_name"] or PLAN_NAME)
    system = "\n\n".join([*(m.text for m in opening if m.role == "system"), rules])
    rest = [m for m in opening if m.role != "system"]
    prompt = deps.transcript.message(state["prompt"])
    return {
        "asked": state["prompt"],
        "head": deps.transcript.append("", [Message(role="system", content=system), *rest, prompt]),
        "approval_mode": "plan",
        "plan_phase": "requirements",
        "plan_file": "",
        "plan_steps": [],
        "plan_verdict": "",
        "approved_plan": False,
        "turn_no": 0,
        "session_turns": 0,
        "sticky_model": "",
        "last_prompt_tokens": 0,
        "unavailable": {},
        "loop_keys": [],
        "loop_count": 0,
        "loop_interval": INTERVAL,
        "loop_next": FIRST_CHECK,
        "loop_found": {},
        "turn_status": "",
        "error": {},
        "stop": "",
        "reminders": 0,
        "main_run": "",
        "status": "running",
    }
