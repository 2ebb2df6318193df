"""studio: workflows as ordinary graphs of LangGraph's server (`langgraph dev`, extra `[studio]`), without our saver.

The server keeps checkpoints, threads and interrupts; chain, journal and requests lie in a store of their own, for nodes
need them. Input is the workflow's, as `interlock run WORKFLOW --input` takes it. An interrupt is answered with what
`Decision` holds, `{"choice": "proceed_once"}`, or with a text: `approve`, `reject`, or the answer to a question. Events
are the stream's `custom` part.
"""

import os
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from langgraph.config import get_stream_writer
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from interlock.engine.driver.drive import Drive, Stop, pending
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import acquire
from interlock.engine.driver.prepare import RunConfig, kept_options, prepare, restored, with_input
from interlock.engine.driver.runner import context_of, first_state
from interlock.engine.options import Options
from interlock.engine.read import RunRow, list_runs
from interlock.engine.store import Store, read_options, state_home
from interlock.engine.store.approvals import decide
from interlock.engine.store.runs import NewRun, insert_run
from interlock.engine.workflows import Source
from interlock.graphs import PIPELINES, pipeline
from interlock.graphs._pipeline import Compiled, Pipeline
from interlock.state.calls import Answer, Choice
from interlock.state.deps import Deps
from interlock.state.errors import UserError
from interlock.state.events import Event

_WORDS: Mapping[str, Choice] = {
    "approve": "proceed_once",
    "yes": "proceed_once",
    "reject": "reject",
    "no": "reject",
}


class StudioGraph(CompiledStateGraph[Any, Deps, Any, Any]):
    """The compiled graph of a workflow; it brings its own `Deps`. The server copies it with its own saver."""

    workflow: Pipeline
    """Of the class, which is made for one workflow: a copy is made of the instance's attributes alone."""

    async def astream(self, input: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Raises `UserError` for an answer that can't be used, `InputError` for an input."""
        run = str(config["configurable"]["thread_id"])
        waiting = (
            [] if not isinstance(input, Command) else pending(await self.aget_state(config, subgraphs=True))
        )
        async with _driven(self.workflow, run, input) as (drive, prepared):
            for item in waiting:
                _answer(
                    drive, item.value, _resume_value(cast(Command[Any], input).resume, item.id, len(waiting))
                )
            if isinstance(input, Mapping):
                own = self.workflow.validated(cast(Mapping[str, Any], input))
                input = first_state(self.workflow, own, drive, context_of(drive, prepared), prepared)
            kwargs["context"] = _with_emit(drive.services.deps)
            stream = cast(Any, super()).astream
            async for part in stream(input, config, **kwargs):
                yield part

    def get_input_jsonschema(self, config: Any = None) -> dict[str, Any]:  # noqa: ARG002 - LangGraph's signature
        return self.workflow.input.model_json_schema()

    def get_context_jsonschema(self, **_: Any) -> dict[str, Any] | None:
        """None: it brings its own."""
        return None


def graph(workflow: str | Path | Pipeline) -> Compiled:
    """A workflow, by name, by its file or itself, as a graph for `langgraph.json`."""
    if isinstance(workflow, Path):
        workflow = Source(workflow.stem.replace("_", "-"), workflow).load()
    found = pipeline(workflow) if isinstance(workflow, str) else workflow
    compiled = found.compile()
    compiled.__class__ = type(f"{found.name} graph", (StudioGraph,), {"workflow": found})
    return compiled


@asynccontextmanager
async def _driven(workflow: Pipeline, run: str, input: Any) -> AsyncGenerator[tuple[Drive, RunConfig]]:
    """The connections of a run, which is the server's thread; `input` begins it, or it goes on."""
    store = Store(Path(os.environ.get("INTERLOCK_STUDIO_HOME") or state_home() / "studio"))
    store.open()
    lease = await acquire(store, run)
    try:
        begun = next((row for row in list_runs(store.home) if row.run == run), None)
        prepared = prepare(_options(store, begun, workflow, input), workflow.needs_model)
        drive = Drive(store, lease, workflow, prepared, EventBus([], redact=prepared.redact), Stop())
        try:
            if begun is None:
                kept = prepared.redact.json(kept_options(prepared.options))
                insert_run(drive.conn, NewRun(run, workflow.name, str(prepared.workspace.root), "", kept, {}))
            yield drive, prepared
        finally:
            drive.conn.end_waiting()
            await drive.close()
    finally:
        lease.release()


def _options(store: Store, begun: RunRow | None, workflow: Pipeline, input: Any) -> Options:
    """Those of the input, or those that the run began with."""
    options = Options(home=store.home, env=dict(os.environ))
    if begun is None:
        return with_input(replace(options, workspace=Path.cwd()), workflow.validated(input))
    with closing(store.connect()) as conn:
        return restored(options, read_options(conn, begun.run), begun.workspace)


def _with_emit(deps: Deps) -> Deps:
    """With events in the server's stream."""

    def emit(event: Event) -> None:
        get_stream_writer()(event.model_dump(mode="json"))

    return replace(deps, emit=emit)


def _resume_value(resume: Any, interrupt: str, waiting: int) -> Any:
    """The answer to one interrupt, by its id or as the only one; None: there is none."""
    if isinstance(resume, Mapping) and interrupt in resume:
        return cast(Mapping[str, Any], resume)[interrupt]
    return cast(Any, resume) if waiting == 1 else None


def _answer(drive: Drive, key: str, reply: Any) -> None:
    approvals = drive.services.deps.approvals
    request = approvals.get(key)
    if reply is None or request is None or approvals.answer(key) is not None:
        return
    asked = request.kind == "question"
    fields: dict[str, Any] = dict(reply) if isinstance(reply, Mapping) else {"text": str(reply)}  # pyright: ignore[reportUnknownArgumentType]
    word = str(fields.get("choice") or _WORDS.get(fields.get("text", ""), "proceed_once" if asked else ""))
    if word not in request.choices:
        raise UserError(f"Request {key!r} takes {', '.join(request.choices)}; got {reply!r}.")
    answer = Answer.model_validate({**fields, "choice": word, "by": "studio", "at": time.time()})
    decide(drive.conn, drive.lease.run, approvals.ask(request), answer)


globals().update({name.replace("-", "_"): graph(name) for name in PIPELINES})
"""Each of ours under its name, for `langgraph.json`."""
