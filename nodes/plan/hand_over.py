"""hand_over: begin the linked run that carries the approved plan out."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.state.deps import Deps
from interlock.state.events import HandOver
from interlock.state.plan import PlanStep


class HandOverIn(TypedDict, total=False):
    prompt: str
    approval_mode: str
    plan_file: str
    plan_steps: list[PlanStep]


class HandOverOut(TypedDict, total=False):
    main_run: str


async def hand_over(state: HandOverIn, runtime: Runtime[Deps]) -> HandOverOut:
    """Only begun here: whoever drives this run drives that one next, or a person resumes it."""
    deps = runtime.context
    prompt = deps.transcript.message(state["prompt"]).text
    run = await asyncio.to_thread(
        deps.plans.hand_over, prompt, state["approval_mode"], state["plan_file"], state["plan_steps"]
    )
    runtime.stream_writer(HandOver(run=run, workflow="main"))
    return {"main_run": run}
