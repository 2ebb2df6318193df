"""threads: runs as LangGraph's API sees them: snapshots of their graphs, updates of their state, further inputs."""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from langgraph.types import PregelTask, StateSnapshot

from interlock.engine.driver.decisions import UNKNOWN_OUTCOME_CHOICES
from interlock.engine.driver.event_bus import EventBus
from interlock.engine.driver.lease import acquire_lease
from interlock.engine.graph_files import recorded_pipeline_class
from interlock.engine.options import Decision, Options
from interlock.engine.read import find_run
from interlock.engine.store import Store, open_reader, queries
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.foreign_saver import list_channels_written_by_root_tasks
from interlock.engine.store.journal import WHOLE
from interlock.engine.store.runs import find_innermost_waiting_subtask, mark_run_done
from interlock.engine.store.saver import Saver, Serde
from interlock.engine.store.steps import StepLog
from interlock.engine.user_code import CodeForbiddenError
from interlock.graphs import foreign_requests
from interlock.graphs.foreign_requests import decision_fields_for_actions, encode_answer
from interlock.graphs.stored_channels import (
    BOOKKEEPING,
    INPUT,
    edge_task_path,
    is_internal_channel,
    is_interrupt_id,
    pending_input,
    pending_nodes,
)
from interlock.graphs.stored_values import OF_PYTHON
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import ApprovalRequest
from interlock.state.errors import InterlockError, RunError, UserError
from interlock.state.messages import Message

Wanted = queries.RunFilter
count_roots, roots, restless, run_names, run_workflows = (
    queries.count_root_runs,
    queries.list_root_run_ids_by_time,
    queries.list_driven_or_queued_runs,
    queries.list_run_ids,
    queries.list_workflow_names,
)


@dataclass(frozen=True)
class OpenedGraph:
    """A run's graph over its checkpoints, for looking."""

    app: Any
    config: Any
    conversation_head: Callable[[Mapping[str, Any]], str | None]
    """The newest record of the conversation that a state holds (`Pipeline.conversation_head`)."""


class StoredGraph:
    """Answers as a compiled graph does, without the graph: no reducer, type, edge or serializer of its author runs.

    Of the tasks, those are known that wrote something or wait; graphs inside them aren't shown.
    """

    def __init__(self, conn: Connection, run: str) -> None:
        self._saver = Saver(conn)
        self._saver.serde = Serde(OF_PYTHON)
        self._nodes = {task: node for _, task, node, _ in list_channels_written_by_root_tasks(conn, run)}

    def get_state(self, config: Any, subgraphs: bool = False) -> StateSnapshot:  # noqa: ARG002 - as LangGraph's
        found = self._saver.get_tuple(config)
        is_live = "checkpoint_id" not in config["configurable"]
        missing = StateSnapshot({}, (), config, None, None, None, (), ())
        return self._make_snapshot(found, is_live) if found else missing

    def get_state_history(
        self, config: Any, *, filter: Any = None, before: Any = None
    ) -> Iterator[StateSnapshot]:
        return map(self._make_snapshot, self._saver.list(config, filter=filter, before=before))

    def _make_snapshot(self, checkpoint_tuple: Any, is_live: bool = False) -> StateSnapshot:
        held: dict[str, Any] = checkpoint_tuple.checkpoint["channel_values"]
        values = {key: value for key, value in held.items() if key == WHOLE or not is_internal_channel(key)}
        tasks = [*self._read_tasks(checkpoint_tuple)]
        over = {task.name for task in tasks if task.result is not None} if is_live else {*()}
        ahead = [node for node in pending_nodes(held) if node not in over]
        ahead += [INPUT] if pending_input(held) else []
        return StateSnapshot(
            values[WHOLE] if values.keys() == {WHOLE} else values,
            tuple(ahead),
            checkpoint_tuple.config,
            checkpoint_tuple.metadata,
            checkpoint_tuple.checkpoint["ts"],
            checkpoint_tuple.parent_config,
            tuple(tasks),
            tuple(one for task in tasks for one in task.interrupts),
        )

    def _read_tasks(self, checkpoint_tuple: Any) -> Iterator[PregelTask]:
        written: list[tuple[str, str, Any]] = [*(checkpoint_tuple.pending_writes or ())]
        written.sort(key=_TASK)
        for task, writes in groupby(written, key=_TASK):
            each = [(channel, value) for _, channel, value in writes]
            if not (node := self._nodes.get(task, "")):
                continue  # what a resume writes
            given: Mapping[str, Any] = {
                name: value for name, value in each if not _is_bookkeeping_channel(name)
            }
            failed = next((value for name, value in each if name == "__error__"), None)
            asked: tuple[Any, ...] = tuple(
                one for name, value in each if name == "__interrupt__" for one in value
            )
            answered = any(name == "__resume__" for name, _ in each)
            open_ = () if given or (answered and not asked) else asked
            yield PregelTask(task, node, edge_task_path(node), failed, open_, None, dict(given) or None)


_TASK: Callable[[tuple[str, str, Any]], str] = itemgetter(0)


def _is_bookkeeping_channel(channel: str) -> bool:
    return channel in BOOKKEEPING or is_internal_channel(channel)


def _clear_run_specific_options(options: Options) -> Options:
    return replace(options, workspace=None, approval_mode=None, mode=None, model=None)


@contextmanager
def open_graph(options: Options, run: str) -> Generator[OpenedGraph]:
    """Open a run's graph, in the thread that uses it; where its code may not run, what its checkpoints hold.

    Raises `InterlockError`.
    """
    from interlock.engine.driver.run_definition import (
        add_user_processors,
        check_run_code_trusted,
        load_workflow_and_config,
        read_recorded_workflow_source,
    )
    from interlock.engine.store.approvals import SqlApprovals
    from interlock.engine.store.foreign_saver import make_saver

    store = Store(options.home)
    row = find_run(options.home, run)
    try:
        check_run_code_trusted(row, options)
        chosen, prepared = load_workflow_and_config(row, _clear_run_specific_options(options))
    except CodeForbiddenError:
        kind = recorded_pipeline_class(read_recorded_workflow_source(options.home, run))
        with closing(store.connect()) as conn:
            app = StoredGraph(conn, run)
            yield OpenedGraph(app, {"configurable": {"thread_id": run}}, kind.conversation_head)
        return
    chosen = add_user_processors(chosen, prepared)
    with closing(store.connect()) as conn:
        saver = make_saver(chosen, conn, StepLog(), SqlApprovals(conn, run), store.path)
        app = chosen.build_uncompiled_graph(prepared.settings.agents.max_depth).compile(saver)
        yield OpenedGraph(app, {"configurable": {"thread_id": run}}, chosen.conversation_head)


def _checkpoint_config(run_config: Any, checkpoint: Mapping[str, Any]) -> Any:
    """Raises `UserError`."""
    for key in ("checkpoint_id", "checkpoint_ns"):
        if not isinstance(checkpoint.get(key) or "", str):
            raise UserError(f"`{key}` must be a string, not {checkpoint[key]!r}.")
    where = {key: value for key, value in checkpoint.items() if key != "thread_id" and value is not None}
    return {"configurable": {**run_config["configurable"], **where}}


def read_snapshot(opened_graph: OpenedGraph, checkpoint: Mapping[str, Any], subgraphs: bool = False) -> Any:
    """LangGraph's snapshot of a run, at a checkpoint or now."""
    return opened_graph.app.get_state(
        _checkpoint_config(opened_graph.config, checkpoint), subgraphs=subgraphs
    )


def read_state_history(
    opened_graph: OpenedGraph,
    limit: int,
    before: Mapping[str, Any],
    checkpoint: Mapping[str, Any],
    metadata: Mapping[str, Any],
) -> list[Any]:
    """Snapshots, the newest first."""
    until = _checkpoint_config(opened_graph.config, before) if before else None
    at = _checkpoint_config(opened_graph.config, checkpoint)
    return [*islice(opened_graph.app.get_state_history(at, filter={**metadata} or None, before=until), limit)]


async def update_state(
    options: Options, run: str, values: Any, as_node: str | None, checkpoint: Mapping[str, Any]
) -> Any:
    """Write to the state of a LangGraph graph's run, as one of its nodes; returns the new checkpoint's config.

    Raises `UserError` for what the graph refuses, and for another workflow: its state has rules of its own. Raises
    `BusyError` while it is driven.
    """
    from interlock.engine.driver.drive import open_drive
    from interlock.engine.driver.run_definition import load_drivable_run, load_workflow_and_config
    from interlock.engine.driver.stop import Stop
    from interlock.engine.store.approvals import withdraw_open_requests

    store = Store(options.home)
    row, defined, _ = load_drivable_run(find_run(options.home, run), _clear_run_specific_options(options))
    chosen, prepared = load_workflow_and_config(row, _clear_run_specific_options(options), defined)
    chosen.check_state_writable()
    lease = await acquire_lease(store, run, wait_if_alive=False)
    bus = EventBus([], redact=prepared.redact)
    async with open_drive(store, lease, chosen, prepared, bus, Stop(), release_in_thread=True) as drive:
        config = {**_checkpoint_config(drive.config, checkpoint), "metadata": {"graph_id": chosen.name}}
        made = await _write_state(drive.app, config, values, as_node)
        withdraw_open_requests(drive.conn, run)
        if not (await drive.app.aget_state(drive.config)).next:
            mark_run_done(drive.conn, run)
        drive.conn.flush(drop_on_failure=True)
        return made


async def _write_state(app: Any, config: Any, values: Any, as_node: str | None) -> Any:
    from langgraph.errors import InvalidUpdateError

    try:
        return await app.aupdate_state(config, values, as_node)
    except InterlockError:
        raise
    except InvalidUpdateError as error:
        raise InterlockError(f"The state can't be written: {str(error).partition(chr(10))[0]}") from error
    except Exception as error:  # LangGraph's, a reducer's, or of a type of theirs
        why = str(error).partition("\n")[0]
        raise UserError(f"The state can't be written: {type(error).__name__}: {why}") from error


def query_memory_store(home: Path, query: Callable[[Any], Any]) -> Any:
    """What `query` finds in the store that LangGraph graphs keep memories in (`runtime.store`)."""
    from interlock.engine.store.foreign_saver import open_memory_store

    Store(home).create_or_migrate()
    with open_memory_store(home / "interlock.db") as store:
        return query(store)


@dataclass(frozen=True)
class WaitingRequest:
    """A request that waits, and the interrupt that it came with."""

    id: str
    interrupt: str
    request: ApprovalRequest


def load_waiting_requests(options: Options, run: str) -> list[WaitingRequest]:
    """What a run waits for, or the subtask that it waits for, in the order asked."""
    rows = queries.list_waiting_interrupts(options.home, find_innermost_waiting_subtask(options.home, run))
    return [
        WaitingRequest(name, item, ApprovalRequest.model_validate_json(text)) for name, item, text in rows
    ]


def find_request_by_interrupt_key(
    options: Options, run: str, interrupt_key: str
) -> tuple[str, ApprovalRequest] | None:
    """The request that an interrupt of Interlock's own workflow stands for, with its id."""
    rows = queries.select_request(options.home, run, interrupt_key)
    return (rows[0][0], ApprovalRequest.model_validate_json(rows[0][1])) if rows else None


def read_conversation(home: Path, run: str, head: str) -> list[tuple[str, Message]]:
    """The messages up to a record, each with its own record's id."""
    with open_reader(home) as conn:
        if conn is None or not head:
            return []
        chain = ChainTranscript(SqlChain(conn), home / "outputs", run)
        return [(name, chain.read_message(name)) for name in chain.record_ids(head)]


def read_answered_interrupt_ids(options: Options, run: str) -> set[str]:
    """The ids of interrupts that were answered."""
    return {
        name
        for (name,) in queries.list_answered_interrupts(
            options.home, find_innermost_waiting_subtask(options.home, run)
        )
    }


def decisions_from_resume_value(
    waiting_requests: Sequence[WaitingRequest], resume_value: Any, answered_interrupts: Collection[str] = ()
) -> list[Decision]:
    """The decisions that a resume value makes: one value, or interrupt id → value.

    A map whose keys all look like ids of interrupts, or that holds the id of one that waits, names interrupts; any
    other map is a value. `answered_interrupts`: further ids, of breakpoints, too. Raises
    `InterlockError`, also for an id that doesn't wait: its answer is to another question.
    """
    items = {
        one.interrupt: [other for other in waiting_requests if other.interrupt == one.interrupt]
        for one in waiting_requests
    }
    if _is_keyed_by_interrupt_id(resume_value, {*items, *answered_interrupts}):
        answers: dict[str, Any] = {**resume_value}
        if unknown := [name for name in answers if name not in items]:
            raise UnknownInterruptError(f"Unknown or already-consumed interrupt: {unknown[0]}")
    elif len(items) > 1:
        raise RunError(
            "When there are multiple pending interrupts, you must specify the interrupt id when resuming. "
            "Docs: https://docs.langchain.com/oss/python/langgraph/interrupts#handling-multiple-interrupts."
        )
    elif not items and isinstance(resume_value, dict) and "request" in resume_value:
        raise UnknownInterruptError("The interrupt that this answers doesn't wait any more.")
    else:  # as LangGraph: a value decides nothing where nothing waits
        answers = {name: cast(Any, resume_value) for name in items}
    return [one for name, answer in answers.items() for one in _decisions_on_interrupt(items[name], answer)]


def _is_keyed_by_interrupt_id(resume: Any, known_interrupts: Collection[str]) -> bool:
    if not isinstance(resume, Mapping) or not resume:
        return False
    names = [str(key) for key in cast("Mapping[Any, Any]", resume)]
    return all(map(is_interrupt_id, names)) or any(name in known_interrupts for name in names)


class UnknownInterruptError(UserError):
    """A resume names an interrupt that doesn't wait."""


_WORDS = {"approve": "proceed_once", "yes": "proceed_once", "reject": "reject", "no": "reject"}


def is_breakpoint(waiting: WaitingRequest) -> bool:
    """Return whether what waits is a breakpoint of a LangGraph graph: to go on is all that it takes."""
    return foreign_requests.is_breakpoint_request(waiting.request)


def _decisions_on_interrupt(waiting: Sequence[WaitingRequest], answer: Any) -> list[Decision]:
    first = waiting[0].request
    if not foreign_requests.is_interrupt_request(first):
        return [decision_from_answer(waiting[0], answer)]
    if first.kind == "question":
        return [Decision(waiting[0].id, "proceed_once", text=encode_answer(first, answer))]
    if is_breakpoint(waiting[0]):
        return [Decision(waiting[0].id, "proceed_once")]
    made = decision_fields_for_actions([one.request for one in waiting], answer)
    return [Decision(one.id, **fields) for one, fields in zip(waiting, made, strict=True)]


def decision_from_answer(waiting: WaitingRequest, answer: Any) -> Decision:
    """A decision on a request of Interlock's own workflows: the fields of `Decision`, a word, or the answer's text."""
    request = waiting.request
    fields: dict[str, Any] = {**answer} if isinstance(answer, Mapping) else {"text": str(answer)}
    if "choice" not in fields:
        said = str(fields.get("text", "")).strip()
        words = UNKNOWN_OUTCOME_CHOICES if request.kind == "outcome" else _WORDS
        word = "proceed_once" if request.kind == "question" else words.get(said.lower(), "")
        fields = {**fields, "choice": word, "text": said if request.kind == "question" else None}
    if (meant := fields.get("request", waiting.id)) != waiting.id:
        raise UserError(f"Request {meant!r} no longer waits; {waiting.id!r} does. Nothing was decided.")
    if (choice := fields["choice"]) not in request.choices:
        raise UserError(f"Request {waiting.id!r} takes {', '.join(request.choices)}; got {answer!r}.")
    return Decision(waiting.id, choice, fields.get("feedback"), fields.get("args"), fields.get("text"))
