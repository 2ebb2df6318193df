"""run_output: what an ended run gave back: the output that its workflow makes of the final state."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.engine.driver.outcome import dump_output, masked_output
from interlock.engine.graph_files import recorded_pipeline_class
from interlock.engine.masking import load_folder_redactor, mask_secrets
from interlock.engine.options import Options
from interlock.engine.read import RunRow
from interlock.engine.store import open_reader
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.connection import Connection
from interlock.engine.store.journal import SqlJournal
from interlock.engine.store.model_calls import read_usage, sum_usage
from interlock.engine.store.runs import read_options
from interlock.engine.workflows import load_recorded_workflow
from interlock.services.transcript import ChainTranscript
from interlock.state.errors import InterlockError
from interlock.state.run import Limits
from interlock.state.workflow import WorkflowContext


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
        output = dump_output(pipeline.leave(values, _leave_context(home, run, conn)))
        return masked_output(pipeline, output, load_folder_redactor(Path(run.workspace), home))


def _leave_context(home: Path, run: RunRow, conn: Connection) -> WorkflowContext:
    transcript = ChainTranscript(SqlChain(conn), home / "outputs", run.run)
    return WorkflowContext(
        transcript,
        SqlJournal(conn, transcript, home / "outputs", run.run, epoch=0),
        model="",
        approval_mode="default",
        limits=Limits.model_validate({}),
        stats=lambda: sum_usage(conn, run.run),
        usage=lambda record: read_usage(conn, run.run, record),
    )
