"""outcome: how a drive ended, for programs and renderers, and what a run gave back; how a pass interrupted by a new
prompt is closed."""

import traceback
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from langgraph.types import StateSnapshot

from interlock.engine.driver.drive import Drive
from interlock.engine.driver.run_definition import WORKER_DOOR
from interlock.engine.graph_files import recorded_pipeline_class
from interlock.engine.masking import load_folder_redactor, mask_secrets
from interlock.engine.options import Decision, Options, Outcome, Pending
from interlock.engine.read import RunRow, list_waiting_requests
from interlock.engine.store import Store, open_reader
from interlock.engine.store.approvals import (
    assign_request_numbers,
    read_request_keys_by_answered_interrupt,
    withdraw_open_requests,
)
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.connection import Connection
from interlock.engine.store.diagnosis import explain_store_errors_and_damage
from interlock.engine.store.journal import SqlJournal
from interlock.engine.store.model_calls import read_reply_usage, sum_usage_with_subtasks
from interlock.engine.store.runs import (
    find_root_task,
    read_options,
    set_run_error,
    stopped_run_error,
)
from interlock.engine.workflows import load_recorded_workflow
from interlock.graphs.pipeline import Ending, Pipeline
from interlock.prompts import load_prompt
from interlock.services.secrets.redaction import Redactor
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import ToolResult, cancelled_result
from interlock.state.errors import (
    ENDED_WELL,
    EXIT_CODES,
    STOPPED,
    BusyError,
    InterlockError,
    StoreError,
    exception_line,
)
from interlock.state.events import Result
from interlock.state.messages import Message, unanswered_calls
from interlock.state.run import OF_CHAIN, Limits, WorkflowOutput
from interlock.state.text import clean_json, dict_or_empty
from interlock.state.workflow import WorkflowContext


def conclude_drive(drive: Drive, snapshot: StateSnapshot | None, error: Exception | None) -> Outcome:
    """Read the outcome off the last snapshot; an error is noted in the run's row. `snapshot` None: `error` says why."""
    run, pipeline, redact = drive.lease.run, drive.pipeline, drive.services.transcript.redact
    details = redact.redact_json(_error_fields(error, drive))
    output, waiting, ending = dict[str, Any](), list[Pending](), Ending()
    if error is not None or snapshot is None:
        status, code = "failed", error.exit_code if isinstance(error, InterlockError) else 1
    elif drive.stop.why and (snapshot.tasks or not snapshot.values):  # otherwise it ended before the stop
        status = "failed" if drive.stop.why == "lost" else drive.stop.why
        code = EXIT_CODES[status]
        if not details and status in STOPPED:
            details = stopped_run_error(status, find_root_task(drive.conn, run))
    elif snapshot.tasks:
        status, code = "waiting", EXIT_CODES["waiting"]
        waiting = redact.redact_json(_number_and_list_pending_requests(drive, snapshot))
    else:
        output = _dump_output(pipeline.leave(snapshot.values, drive.context))
        ending = pipeline.ending_from_final_state(snapshot.values, output)
        status, details = ending.status, _normalize_workflow_error(ending.error) or details
        code = EXIT_CODES.get(details["type"] if details else status, EXIT_CODES.get(status, 1))
    can_resume = status not in ENDED_WELL and (pipeline.can_continue_after_end or not output)
    _record_drive_end(drive, status, details)
    return Outcome(
        run=run,
        workflow=pipeline.name,
        status=status,
        exit_code=code,
        output=output,
        masked=_mask_output_of_user_code(pipeline, output, redact),
        error=details,
        stats=drive.context.stats(),
        pending=waiting,
        resume_command=f"interlock resume {run}" if can_resume else None,
        carried_on_by=ending.carried_on_by,
        trace=redact("".join(traceback.format_exception(error)) if error else ""),
        warnings=redact.redact_json([*drive.prepared.warnings, *ending.warnings]),
    )


def _record_drive_end(drive: Drive, status: str, details: dict[str, str] | None) -> None:
    if not drive.lease.held:  # another process has the run and its row
        return
    is_stopped, by_worker = drive.stop.why in STOPPED, drive.prepared.options.door == WORKER_DOOR
    # Whoever cancelled the run said why; a worker that stops leaves nothing.
    if not (is_stopped and by_worker):
        set_run_error(drive.conn, drive.lease.run, details)
    if is_stopped and not by_worker:
        from interlock.engine.store.queue import mark_run_and_root_task_stopped

        with drive.conn.transaction() as conn:
            mark_run_and_root_task_stopped(conn, drive.lease.run, drive.stop.why)
    if status == "done":
        drive.mark_run_done()


def store_error_outcome(drive: Drive, error: StoreError) -> Outcome:
    """The outcome of a drive whose store became unusable: reported here and nowhere else."""
    run, redact = drive.lease.run, drive.prepared.redact
    return Outcome(
        run=run,
        workflow=drive.pipeline.name,
        status="failed",
        exit_code=error.exit_code,
        error=redact.redact_json({"type": error.kind, "message": str(error)}),
        trace=redact("".join(traceback.format_exception(error))),
        resume_command=f"interlock resume {run}",
        warnings=redact.redact_json(drive.prepared.warnings),
    )


def busy_outcome_or_raise(row: RunRow, decisions: Sequence[Decision], error: BusyError) -> Outcome:
    """The decision is persisted already; the process driving the run picks it up."""
    if not decisions:
        raise error
    note = f"The decision is recorded, and taken up by the process that drives the run. {error}"
    return Outcome(row.run, row.workflow, "running", 0, warnings=[note])


def cancel_request_outcome(row: RunRow, drive_outcome: Outcome | None = None) -> Outcome:
    """The outcome of a run that somebody cancelled at its request; `drive_outcome`: that of its last drive."""
    found = drive_outcome or Outcome(row.run, row.workflow, "cancelled", EXIT_CODES["cancelled"])
    if row.status == "running":
        note = f"The process that drives it ({row.owner}) was asked to stop."
        return replace(found, status="running", exit_code=0, warnings=[note])
    code = EXIT_CODES["cancelled"]
    return replace(
        found, status="cancelled", exit_code=code, error=row.error, pending=[], resume_command=None
    )


def read_answered_interrupts(store: Store, run: str) -> set[str]:
    """Interrupts that have an answer. One may have come after the drive last looked, while it was closing."""
    with explain_store_errors_and_damage(store.path), closing(store.connect()) as conn:
        return {*read_request_keys_by_answered_interrupt(conn, run)}


def _dump_output(result: WorkflowOutput) -> dict[str, Any]:
    """Dump the result; null fields are omitted if optional, kept if required or values of somebody's graph."""
    kept = {name: None for name, field in type(result).model_fields.items() if field.is_required()}
    kept |= dict.fromkeys(result.model_extra or ())
    fields = type(result).model_fields.items()
    messages = {name: getattr(result, name) for name, field in fields if OF_CHAIN in field.metadata}
    shown = {**kept, **result.model_dump(mode="json", exclude_none=True, exclude={*messages})}
    return {**dict_or_empty(clean_json(shown)), **messages}  # NaN is a word: JSON would have it as null


def _mask_output_of_user_code(pipeline: Pipeline, output: dict[str, Any], redact: Redactor) -> dict[str, Any]:
    """The output without secrets, if nodes of the user's own wrote it: what ours return is redacted before, or is
    returned as it is on purpose.
    """
    return mask_secrets(output, redact) if pipeline.runs_user_code else output


def result_event(outcome: Outcome) -> Result:
    """The last event of a drive."""
    return Result(
        status=outcome.status,
        response=str(outcome.display_output.get("response") or outcome.display_output.get("text") or ""),
        error=outcome.error,
        stats=outcome.stats,
        pending_approvals=[{**request} for request in outcome.pending],
        resume_command=outcome.resume_command,
        output=outcome.display_output,
        exit_code=outcome.exit_code,
        warnings=outcome.warnings,
    )


def _number_and_list_pending_requests(drive: Drive, snapshot: StateSnapshot) -> list[Pending]:
    checkpoint = str(snapshot.config.get("configurable", {}).get("checkpoint_id", ""))
    if drive.lease.held:
        assign_request_numbers(drive.conn, drive.lease.run)
    waiting = list_waiting_requests(drive.store.home, drive.lease.run)
    return [{**request.fields, "checkpoint_id": checkpoint} for request in waiting]


def _normalize_workflow_error(error: Mapping[str, str] | None) -> dict[str, str] | None:
    """A workflow's error in the run's format: `edit` calls its type `code`."""
    return {"type": error.get("type") or error["code"], "message": error["message"]} if error else None


def _error_fields(error: Exception | None, drive: Drive) -> dict[str, str] | None:
    if error is None:
        kind, why = drive.refusal
        return {"type": kind, "message": why} if drive.stop.why == "budget" else None
    if isinstance(error, InterlockError):
        return {"type": error.kind, "message": str(error)}
    last = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{exception_line(error, 1_000)} ({last.filename}:{last.lineno}). This is a bug in Interlock."
    return {"type": "bug", "message": message}


def close_open_calls_and_merge_prompt(drive: Drive, snapshot: StateSnapshot, prompt: str) -> tuple[str, str]:
    """Close the interrupted pass at `snapshot`; return the next prompt, and a head without open calls.

    The prompt includes what the user said but the conversation doesn't hold yet, as LangGraph drops the remaining
    tasks when a pass starts. Finished calls keep their results; all others are answered as cancelled.
    """
    head = _append_open_call_answers(drive, _newest_conversation_head(drive, snapshot))
    withdraw_open_requests(drive.conn, drive.lease.run)
    waits = str(snapshot.values.get("prompt") or "")
    unheard = drive.services.transcript.read_message(waits).text if waits else ""
    return f"{unheard}\n\n{prompt}" if unheard else prompt, head


def _newest_conversation_head(drive: Drive, snapshot: StateSnapshot) -> str:
    """The conversation's head, or a later one reached by the part in progress."""
    transcript = drive.services.transcript
    head = str(snapshot.values.get("head") or "")
    for task in snapshot.tasks:
        inner = str(task.state.values.get("head") or "") if isinstance(task.state, StateSnapshot) else ""
        if inner and head in transcript.record_ids(inner):
            head = inner
    return head


def _append_open_call_answers(drive: Drive, head: str) -> str:
    """Answer every open call: no request is made while one has no answer."""
    transcript = drive.services.transcript
    if not head or not (left := unanswered_calls(transcript.read(head))):
        return head
    asked = next(r for r in reversed(transcript.record_ids(head)) if transcript.read_message(r).tool_calls)
    calls = [*transcript.read_message(asked).tool_calls]
    answers: list[Message] = []
    for call in left:
        result = _find_or_record_cancelled_result(drive, asked, calls.index(call))
        answers.append(
            Message(
                role="tool",
                tool_call_id=call.id,
                name=call.name,
                content=result.content,
                status=result.status,
            )
        )
    return transcript.append(head, answers)


def _find_or_record_cancelled_result(drive: Drive, record: str, index: int) -> ToolResult:
    journal = drive.services.journal
    key = journal.find_latest_attempt(record, index)
    call = journal.read_call(key)
    row = journal.find_row(key, call)
    if row is not None and row.result is not None:
        return row.result
    if row is not None and row.state == "intent":
        text = load_prompt("run/call_cut_short").render()
    else:
        text = load_prompt("run/call_cancelled").render(reason="the user stopped the agent")
    journal.record_result(key, call, result := cancelled_result(text))
    return result


def load_output(home: Path, run: RunRow) -> Mapping[str, Any]:
    """The output of a run that ended well, as it is shown; empty for another, and if its workflow can't be loaded."""
    if run.status != "done":
        return {}
    with open_reader(home) as conn:
        if conn is None:
            return {}
        values, source = read_state_at_step(home, run.run), read_options(conn, run.run).get("source")
        if (stored := recorded_pipeline_class(source or {}).stored_output(values)) is not None:
            return mask_secrets(stored, load_folder_redactor(Path(run.workspace), home))
        try:
            pipeline, _ = load_recorded_workflow(
                run.run, run.workflow, Options(home, workspace=Path(run.workspace), source=source)
            )
        except InterlockError:  # its file is gone, broken or no longer trusted: the rest of the run is shown
            return {}
        output = _dump_output(pipeline.leave(values, _context_for_output(home, run, conn)))
        return _mask_output_of_user_code(pipeline, output, load_folder_redactor(Path(run.workspace), home))


def _context_for_output(home: Path, run: RunRow, conn: Connection) -> WorkflowContext:
    transcript = ChainTranscript(SqlChain(conn), home / "outputs", run.run)
    return WorkflowContext(
        transcript,
        SqlJournal(conn, transcript, home / "outputs", run.run, epoch=0),
        model="",
        approval_mode="default",
        limits=Limits.model_validate({}),
        stats=lambda: sum_usage_with_subtasks(conn, run.run),
        usage=lambda record: read_reply_usage(conn, run.run, record),
    )
