"""outcome: how a drive ended, for programs and renderers."""

import traceback
from collections.abc import Sequence
from typing import Any

from langgraph.types import StateSnapshot

from interlock.engine.driver.drive import Drive
from interlock.engine.driver.prepare import RunConfig
from interlock.engine.options import Outcome, Pending
from interlock.engine.read.runs import waiting_requests
from interlock.engine.store.runs import note_error
from interlock.graphs._pipeline import Pipeline
from interlock.state.conversation import refusals_in, warnings_of
from interlock.state.errors import ENDED_WELL, EXIT_CODES, InterlockError, StoreError
from interlock.state.events import Result
from interlock.state.run import WorkflowOutput
from interlock.state.workflow import WorkflowContext


def conclude(
    drive: Drive,
    pipeline: Pipeline,
    snapshot: StateSnapshot,
    context: WorkflowContext,
    error: Exception | None,
    warnings: Sequence[str],
) -> Outcome:
    """Read the end off the last snapshot; the run's row learns of an error."""
    run, redact = drive.lease.run, drive.services.transcript.redact
    told = redact.json(_told(error, drive))
    output, waiting = dict[str, Any](), list[Pending]()
    if error is not None:
        status, code = "failed", error.exit_code if isinstance(error, InterlockError) else 1
    elif drive.stop.why and (snapshot.tasks or not snapshot.values):  # else the end came first
        status = "failed" if drive.stop.why == "lost" else drive.stop.why
        code = EXIT_CODES[status]
    elif snapshot.tasks:
        status, code = "waiting", EXIT_CODES["waiting"]
        waiting = redact.json(_requests(drive, snapshot))
    else:
        output = _dumped(pipeline.leave(snapshot.values, context))
        status = output.get("status", "done")
        told = _named(output.get("error")) or told
        code = EXIT_CODES.get(told["type"] if told else status, EXIT_CODES.get(status, 1))
    if drive.lease.held:  # else another process has the run, and its row
        note_error(drive.conn, run, told)
    return Outcome(
        run=run,
        workflow=pipeline.name,
        status=status,
        exit_code=code,
        output=output,
        error=told,
        stats=context.stats(),
        pending=waiting,
        resume_command=f"interlock resume {run}" if _goes_on(pipeline, status, output) else None,
        trace=redact(_trace(error)),
        warnings=redact.json([*warnings, *(warnings_of(refusals_in(snapshot.values)) if output else ())]),
    )


def _trace(error: Exception | None) -> str:
    return "".join(traceback.format_exception(error)) if error else ""


def unrecorded(run: str, pipeline: Pipeline, error: StoreError, prepared: RunConfig) -> Outcome:
    """The end of a drive whose store can't be used any more: told here, and nowhere else."""
    redact = prepared.redact
    return Outcome(
        run=run,
        workflow=pipeline.name,
        status="failed",
        exit_code=error.exit_code,
        error=redact.json({"type": error.kind, "message": str(error)}),
        trace=redact(_trace(error)),
        resume_command=f"interlock resume {run}",
        warnings=redact.json(prepared.warnings),
    )


def _dumped(result: WorkflowOutput) -> dict[str, Any]:
    """Fields that may be absent are left out when they are null; others are shown so."""
    required = {name: None for name, field in type(result).model_fields.items() if field.is_required()}
    return {**required, **result.model_dump(mode="json", exclude_none=True)}


def result_event(outcome: Outcome) -> Result:
    """The last event of a drive."""
    return Result(
        status=outcome.status,
        response=str(outcome.output.get("response") or outcome.output.get("text") or ""),
        error=outcome.error,
        stats=outcome.stats,
        pending_approvals=[{**request} for request in outcome.pending],
        resume_command=outcome.resume_command,
        output=outcome.output,
        exit_code=outcome.exit_code,
        warnings=outcome.warnings,
    )


def _requests(drive: Drive, snapshot: StateSnapshot) -> list[Pending]:
    checkpoint = str(snapshot.config.get("configurable", {}).get("checkpoint_id", ""))
    waiting = waiting_requests(drive.store.home, drive.lease.run)
    return [{**request.fields, "checkpoint_id": checkpoint} for request in waiting]


def _goes_on(pipeline: Pipeline, status: str, output: dict[str, Any]) -> bool:
    """Whether a resume has something to do."""
    return status not in ENDED_WELL and (pipeline.resumes_after_end or not output)


def _named(error: dict[str, str] | None) -> dict[str, str] | None:
    """A workflow's error as a run's: `edit` calls its type `code`."""
    return {"type": error.get("type") or error["code"], "message": error["message"]} if error else None


def _told(error: Exception | None, drive: Drive) -> dict[str, str] | None:
    if error is None:
        return {"type": "budget", "message": drive.refusal} if drive.stop.why == "budget" else None
    if isinstance(error, InterlockError):
        return {"type": error.kind, "message": str(error)}
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno}). This is a bug in Interlock."
    return {"type": "bug", "message": message}
