"""studio: workflows as ordinary graphs for LangGraph's server (`langgraph dev`, extra `[studio]`), without our saver.

The server keeps checkpoints, threads and interrupts; chain, journal and requests have a store of their own, because
nodes need them. The input is the workflow's, as for `interlock run WORKFLOW --input`. Answer an interrupt with the
fields of `Decision`, `{"choice": "proceed_once"}`, or with a text: `approve`, `reject`, or the answer to a question.
Events go to the stream's `custom` part.

What carries on an ended run's work isn't driven here: it is a run of its own, the server knows no thread for it, and
only the server's client can begin one. The plan's output names it as `main_run`; it waits in this store, and goes on
with `INTERLOCK_HOME=STUDIO_HOME interlock resume RUN`.
"""

import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from langgraph.config import get_stream_writer
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from interlock.engine.client.threads import WaitingRequest, decision_from_answer
from interlock.engine.driver.drive import Drive, pending_interrupts
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import acquire_lease
from interlock.engine.driver.run_config import merge_input_into_options, prepare_run
from interlock.engine.driver.run_definition import options_to_store, restore_options
from interlock.engine.driver.stop import Stop
from interlock.engine.options import Options
from interlock.engine.read import RunRow, find_exact_run
from interlock.engine.store import Store, resolve_state_directory
from interlock.engine.store.approvals import record_decision
from interlock.engine.store.runs import NewRun, insert_run, read_run_options
from interlock.engine.workflows import WorkflowSource
from interlock.graphs import PIPELINES, load_pipeline
from interlock.graphs.graph import Compiled
from interlock.graphs.pipeline import Pipeline
from interlock.state.calls import Answer
from interlock.state.clock import unix_time
from interlock.state.deps import Deps
from interlock.state.events import Event


class StudioGraph(CompiledStateGraph[Any, Deps, Any, Any]):
    """A workflow's compiled graph with its own `Deps`. The server copies it with its own saver."""

    workflow: Pipeline
    """Set on the class, one per workflow, because copying keeps only instance attributes."""

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Raises `UserError` for an unusable answer, `InputError` for an invalid input."""
        run = str(config["configurable"]["thread_id"])
        waiting = (
            []
            if not isinstance(input, Command)
            else pending_interrupts(await self.aget_state(config, subgraphs=True))
        )
        async with _open_drive(self.workflow, run, input) as drive:
            for item in waiting:
                _record_answer_if_unanswered(
                    drive, item.value, _resume_value(cast(Command[Any], input).resume, item.id, len(waiting))
                )
            if isinstance(input, Mapping):
                own = self.workflow.validate_input(cast(Mapping[str, Any], input))
                input = drive.build_first_state(own)
            kwargs["context"] = _emit_to_server_stream(drive.services.deps)
            stream = cast(Any, super()).astream
            async for part in stream(input, config, **kwargs):
                yield part

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:  # noqa: ARG002 - LangGraph's signature
        return self.workflow.input.model_json_schema()

    def get_context_jsonschema(self, **_: Any) -> dict[str, Any] | None:
        """None: the graph brings its own context."""
        return None


def graph(workflow: str | Path | Pipeline) -> Compiled:
    """Return a workflow, by name, file or object, as a graph for `langgraph.json`."""
    if isinstance(workflow, Path):
        workflow = WorkflowSource(workflow.stem.replace("_", "-"), workflow).load()
    found = load_pipeline(workflow) if isinstance(workflow, str) else workflow
    compiled = found.compile()
    compiled.__class__ = type(f"{found.name} graph", (StudioGraph,), {"workflow": found})
    return compiled


@asynccontextmanager
async def _open_drive(workflow: Pipeline, run: str, input: Any) -> AsyncGenerator[Drive]:
    """Open a run's connections. The run is the server's thread; `input` starts it unless it exists."""
    store = Store(
        Path(os.environ.get("INTERLOCK_STUDIO_HOME") or resolve_state_directory() / "studio")
    ).create_or_migrate()
    lease = await acquire_lease(store, run)
    try:
        begun = find_exact_run(store.home, run)
        prepared = prepare_run(_run_options(store, begun, workflow, input), workflow.needs_model)
        drive = Drive(store, lease, workflow, prepared, EventBus([], redact=prepared.redact), Stop())
        try:
            if begun is None:
                kept = prepared.redact.redact_json(options_to_store(prepared.options))
                insert_run(drive.conn, NewRun(run, workflow.name, str(prepared.workspace.root), "", kept, {}))
            yield drive
        finally:
            drive.conn.flush(drop_on_failure=True)
            await drive.close()
    finally:
        lease.release()


def _run_options(store: Store, existing_run: RunRow | None, workflow: Pipeline, input: Any) -> Options:
    """Options from the input, or those the run started with."""
    options = Options(home=store.home, env=dict(os.environ))
    if existing_run is None:
        return merge_input_into_options(
            replace(options, workspace=Path.cwd()), workflow.validate_input(input)
        )
    return restore_options(options, read_run_options(store.home, existing_run.run), existing_run.workspace)


def _emit_to_server_stream(deps: Deps) -> Deps:
    """Deps whose events go to the server's stream."""

    def emit(event: Event) -> None:
        get_stream_writer()(event.model_dump(mode="json"))

    return replace(deps, emit=emit)


def _resume_value(resume: Any, interrupt: str, waiting_count: int) -> Any:
    """The answer to one interrupt, by its id or because it is the only one; None: no answer."""
    if isinstance(resume, Mapping) and interrupt in resume:
        return cast(Mapping[str, Any], resume)[interrupt]
    return cast(Any, resume) if waiting_count == 1 else None


def _record_answer_if_unanswered(drive: Drive, key: str, reply: Any) -> None:
    approvals = drive.services.deps.approvals
    request = approvals.find_request(key)
    if reply is None or request is None or approvals.find_answer(key) is not None:
        return
    name = approvals.write_request(request)
    made = decision_from_answer(WaitingRequest(name, key, request), reply)
    given = {part: getattr(made, part) for part in ("choice", "feedback", "args", "text")}
    answer = Answer.model_validate({**given, "by": "studio", "at": unix_time()})
    record_decision(drive.conn, drive.lease.run, name, answer)


globals().update({name.replace("-", "_"): graph(name) for name in PIPELINES})
"""Each built-in workflow under its name, for `langgraph.json`."""
