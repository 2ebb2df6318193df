"""passes: the state that a pass through a run's graph begins with: its first, another prompt's, a retry's."""

import time
from collections.abc import Mapping
from typing import Any, cast

from interlock.engine.driver.drive import Drive
from interlock.engine.driver.prepare import RunConfig
from interlock.engine.read import RunRow
from interlock.engine.store.approvals import supersede
from interlock.engine.store.model_calls import usage_of, usage_stats
from interlock.graphs._pipeline import Pipeline
from interlock.graphs.foreign import Foreign
from interlock.prompts import load
from interlock.services.context.references import attachments
from interlock.state.charts import ApprovalModeChart, mode_of, step
from interlock.state.errors import InputError, UserError
from interlock.state.events import ErrorEvent
from interlock.state.messages import Message, TextPart
from interlock.state.run import WorkflowInput, is_hooked
from interlock.state.text import clean
from interlock.state.workflow import WorkflowContext


def context_of(drive: Drive, prepared: RunConfig) -> WorkflowContext:
    """The context for the workflow's `enter` and `leave`."""
    run, started = drive.lease.run, time.monotonic()

    def stats() -> dict[str, Any]:
        return {**usage_stats(drive.conn, run), "elapsed_ms": round((time.monotonic() - started) * 1000)}

    return WorkflowContext(
        drive.services.transcript,
        drive.services.journal,
        prepared.model,
        prepared.approval_mode,
        prepared.limits,
        stats,
        lambda record: usage_of(drive.conn, run, record),
        list(prepared.agents),
        [mode.model_dump(mode="json") for mode in prepared.modes.all()],
        _attached(prepared),
        prepared.options.compress,
    )


def _attached(prepared: RunConfig) -> list[Message]:
    """Raises `InputError` naming a file that can't be shown."""
    options = prepared.options
    if not (options.attach or options.notes):
        return []
    heading = TextPart(text=load("context/attached").text() + "\n", section="attached")
    parts = attachments(options.attach, options.notes)
    return [Message(role="user", origin="context", content=(heading, *parts))]


def first_state(
    chosen: Pipeline, input: WorkflowInput, drive: Drive, context: WorkflowContext, prepared: RunConfig
) -> dict[str, Any]:
    if isinstance(chosen, Foreign):
        return chosen.enter(input, context)
    return {**chosen.enter(input, context), **_channels(prepared), **hooked(drive, "startup")}


def graph_input(chosen: Pipeline, first: dict[str, Any], drive: Drive, session: str) -> Any:
    """What a graph begins with, of the state that its run's row holds."""
    return chosen.started(first) if isinstance(chosen, Foreign) else {**first, **hooked(drive, session)}


def check_context(chosen: Pipeline, context: Mapping[str, Any] | None) -> None:
    """Raises `InputError` if a LangGraph graph's own context doesn't fit, or another workflow is given one."""
    if isinstance(chosen, Foreign):
        chosen.contextual(context)
    elif context:
        raise InputError(f"{chosen.name!r} takes no context: only graphs of LangGraph do.", "context")


def check_guard(chosen: Pipeline, guard: bool) -> None:
    """Raises `InputError` if the workflow has no tools that could be guarded."""
    if guard and not isinstance(chosen, Foreign):
        raise InputError(
            f"{chosen.name!r} guards its calls without --guard: that is for graphs of LangGraph.", "guard"
        )
    if guard and isinstance(chosen, Foreign) and not chosen.guarded():
        raise InputError(
            f"--guard finds no ToolNode in {chosen.name!r}. Put the tools that its nodes call under guarded(…), from "
            "interlock.workflow.",
            "guard",
        )


def _channels(prepared: RunConfig) -> dict[str, str]:
    wanted = prepared.options.protocol or prepared.settings.tools.protocol
    return {"mode": "", **modes_asked(prepared), "protocol": prepared.protocol_of(wanted)}


def modes_asked(prepared: RunConfig, **more: str | None) -> dict[str, str]:
    """Mode and protocol passed now; otherwise a run keeps its own."""
    protocol = prepared.options.protocol
    asked = {"mode": prepared.options.mode, "protocol": protocol and prepared.protocol_of(protocol), **more}
    return {name: value for name, value in asked.items() if value}


def switched(asked: Mapping[str, str], now: Mapping[str, Any]) -> Mapping[str, str]:
    """What is asked, if the person may switch the run's approval mode to it. Raises `RunError`."""
    mode, before = asked.get("approval_mode"), mode_of(now)
    if mode and before and mode != before.partition(".")[0]:
        step(ApprovalModeChart, before, f"use_{mode}")
    return asked


def postponed(drive: Drive, asked: Mapping[str, str], now: Mapping[str, Any]) -> None:
    """Warn of what was passed now and differs, while a pass is under way."""
    for name in (name for name, value in asked.items() if now.get(name) != value):
        line = f"{name.replace('_', ' ')} {asked[name]!r} counts from the next prompt: this one goes on as it began."
        drive.bus(ErrorEvent(severity="warning", message=line))


def hooked(drive: Drive, session: str) -> dict[str, str]:
    """Channels set with each prompt, even if no hooks are configured: the previous prompt's may be stale."""
    configured = drive.services.deps.hooks.configured
    return {
        "hooked": configured,
        **({"session": session} if is_hooked({"hooked": configured}, "SessionStart") else {}),
    }


def next_pass(
    chosen: Pipeline, row: RunRow, prompt: str | None, context: WorkflowContext
) -> dict[str, Any] | None:
    """State for another prompt or a retry after the graph has ended; None: just report its end again."""
    if chosen.follow_up is None and prompt:
        raise UserError(f"Run {row.run!r} of {row.workflow!r} takes no further prompt; start another.")
    if chosen.follow_up is None or (row.outcome == "done" and not prompt and not context.compress):
        return None
    message = Message(role="user", origin="person", content=clean(prompt)) if prompt else None
    more = chosen.follow_up(message, context)
    if context.compress and not more.get("force"):
        raise UserError(f"Run {row.run!r} can't be compressed now: only `main` is, and without a prompt.")
    return more


async def taken_up(
    chosen: Pipeline,
    prepared: RunConfig,
    given: Any,
    at: Mapping[str, Any],
    drive: Drive,
    context: WorkflowContext,
) -> Any:
    """What a LangGraph graph goes on with: a further input of its own, which ends what waits, or as it is given.

    `at`: the checkpoint to go on from instead of the newest. Raises `InputError`.
    """
    drive.config["configurable"].update(at)
    await drive.resume_input()
    if given is not None:
        supersede(drive.conn, drive.lease.run)
    if not isinstance(given, Mapping):
        return given
    input = chosen.validated(cast("Mapping[str, Any]", given))
    return graph_input(chosen, first_state(chosen, input, drive, context, prepared), drive, "")
