"""adopt: a run made of a thread that LangGraph drove elsewhere, of which a file of SqliteSaver's or PostgreSQL has the
checkpoints; that database isn't changed.
"""

from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import datetime
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.jsonplus import EXT_DELTA_SNAPSHOT, EXT_NUMPY_ARRAY, JsonPlusSerializer

from interlock.engine.driver.drive import check_resumable, pending_interrupts
from interlock.engine.driver.run_config import prepare_run
from interlock.engine.driver.run_definition import options_to_store
from interlock.engine.options import Options
from interlock.engine.store import Store, explain_store_errors, is_server_address, mask_password
from interlock.engine.store.approvals import SqlApprovals, assign_request_numbers
from interlock.engine.store.connection import Connection
from interlock.engine.store.foreign_saver import ForeignSaver, LazyMemoryStore
from interlock.engine.store.runs import NewRun, insert_run, new_run_id, set_run_status
from interlock.engine.store.sqlite import SqliteConnection, open_sqlite_read_only
from interlock.engine.store.steps import StepLog, StepRow, write_step_rows
from interlock.engine.workflows import find_workflow, require_only_graph_name
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_values import Names, make_type_loader
from interlock.state.errors import RunError, UserError


def adopt_thread(workflow: str, url: str, thread: str, options: Options) -> str:
    """Make a run of a thread of a LangGraph graph; returns its id. What the thread waits for become requests.

    Raises `UserError` for a thread that isn't there, holds what the graph's types don't name, or stands where this
    graph can't go on. `workflow`: empty: the one that the folder's `langgraph.json` names.
    """
    workflow = workflow or require_only_graph_name(options)
    chosen, source = find_workflow(workflow, options)
    form = chosen.require_thread_format()
    prepared = prepare_run(replace(options, source=source), chosen.needs_model)
    store, run = Store(options.home), new_run_id()
    store.create_or_migrate()
    with explain_store_errors(store.path), closing(store.connect("FULL")) as conn:
        steps, approvals = StepLog(prepared.redact, conn, run), SqlApprovals(conn, run, prepared.redact)
        saver = ForeignSaver(conn, steps, form, approvals, LazyMemoryStore(store.path))
        found = _read_thread_checkpoints(
            url, thread, form.serde if form.hides else _ThreadSerde({*form.types}, saver.known)
        )
        kept = prepared.redact.redact_json(options_to_store(prepared.options))
        title, root = f"thread {thread}", str(prepared.workspace.root)
        with conn.transaction():
            insert_run(conn, NewRun(run, chosen.name, root, title, kept, {}))
            for one in found:
                saver.import_checkpoint(run, one)
            try:
                _write_rows_from_checkpoints(conn, chosen, saver, run)
            except RunError as misfit:
                why = str(misfit).partition(": ")[2].partition(", which")[0]
                raise UserError(
                    f"Thread {thread!r} doesn't fit {workflow!r}: {why}, which this graph doesn't have. Give the graph "
                    "that drove it."
                ) from misfit
    return run


def _write_rows_from_checkpoints(conn: Connection, chosen: Pipeline, saver: ForeignSaver, run: str) -> None:
    """Derive from the checkpoints what the run's lists and pages show."""
    graph = chosen.build_uncompiled_graph()
    app: Any = graph.compile(saver)
    config = {"configurable": {"thread_id": run}}
    check_resumable(run, graph, app, cast(Any, SimpleNamespace(config=config, tasks=())), saver)
    snapshot: Any = app.get_state(config, subgraphs=True)
    check_resumable(run, graph, app, snapshot, saver)
    _write_steps_timed_by_checkpoints(conn, run, [*app.get_state_history(config)][::-1], chosen.name)
    for task in _list_innermost_tasks(snapshot):
        for item in task.interrupts:
            saver.write_interrupt_requests(run, item, task.name)
    waits = {item.id for item in pending_interrupts(snapshot)}
    status = "waiting" if waits else "open" if snapshot.tasks else "done"
    set_run_status(conn, run, status, "done" if status == "done" else "", snapshot.metadata["step"])
    assign_request_numbers(conn, run)


def _list_innermost_tasks(snapshot: Any) -> list[Any]:
    found: list[Any] = []
    for task in snapshot.tasks:
        found += _list_innermost_tasks(task.state) if hasattr(task.state, "tasks") else [task]
    return found


def _write_steps_timed_by_checkpoints(
    conn: Connection, run: str, history: Sequence[Any], workflow: str
) -> None:
    """Each node that ended, timed by the checkpoints around it."""
    steps: list[StepRow] = []
    for before, after in pairwise(history):
        started, ended = (datetime.fromisoformat(one.created_at).timestamp() for one in (before, after))
        name = before.config["configurable"]["checkpoint_id"]
        for task in before.tasks:
            if task.name.startswith("__"):
                continue
            keys, step = ",".join(task.result or ()), (before.metadata["step"], name[-12:])
            place = (run, len(steps), "", task.id.partition("-")[0], workflow, task.name)
            steps.append(StepRow(*place, started, (ended - started) * 1000, keys, None, None, *step))
    write_step_rows(conn, steps, set())


_SHOWN = 5
"""Threads that an error lists."""


def _read_thread_checkpoints(url: str, thread: str, serde: Any) -> list[CheckpointTuple]:
    """All checkpoints of a thread, oldest first. Raises `UserError`."""
    with _open_saver(url, serde) as saver:
        found = [*saver.list({"configurable": {"thread_id": thread}})]
        if found:
            return found[::-1]
        others = [one.config["configurable"]["thread_id"] for one in saver.list(None)]
    known = ", ".join([*dict.fromkeys(others)][:_SHOWN])
    raise UserError(
        f"No thread {thread!r} in {mask_password(url)}. {f'The newest are: {known}.' if known else 'It has none.'}"
    )


class _ThreadSerde(JsonPlusSerializer):
    """Loads the graph's own classes as this process knows them, and no class that it doesn't know."""

    def __init__(self, types: set[tuple[str, ...]], known: Names) -> None:
        """`types`: classes of the graph, which another program may have known by another module: `__main__`, say.
        `known`: all that the checkpoints may hold."""
        super().__init__(allowed_msgpack_modules=None, __unpack_ext_hook__=make_type_loader(known))
        self._known = known
        names = [name for _, name in types]
        self._module = {name: module for module, name in types if names.count(name) == 1}
        self._lost: list[str] = []

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, saved = data
        return super().loads_typed((kind, self._rename_classes(saved)) if kind == "msgpack" else data)

    def _rename_classes(self, saved: bytes) -> bytes:
        plain = self._unpack(saved)
        for lost in self._lost:  # an error inside `_rename_object_class` would lose its text
            raise UserError(
                f"The thread holds a {lost}; neither the graph's types nor its file name such a class."
            )
        return ormsgpack.packb(plain, option=ormsgpack.OPT_NON_STR_KEYS)

    def _unpack(self, saved: bytes) -> Any:
        return ormsgpack.unpackb(saved, ext_hook=self._rename_object_class, option=ormsgpack.OPT_NON_STR_KEYS)

    def _rename_object_class(self, code: int, saved: bytes) -> ormsgpack.Ext:
        """An object is a list of module, class and what it is made of."""
        if code == EXT_NUMPY_ARRAY:
            return ormsgpack.Ext(code, saved)
        inner = self._unpack(saved)
        if code != EXT_DELTA_SNAPSHOT:
            module, name, *made = cast("list[Any]", inner)
            if (module, name) not in self._known:
                if name not in self._module:
                    self._lost.append(f"{module}.{name}")
                module = self._module.get(name, module)
            inner = [module, name, *made]
        return ormsgpack.Ext(code, ormsgpack.packb(inner, option=ormsgpack.OPT_NON_STR_KEYS))


@contextmanager
def _open_saver(url: str, serde: Any) -> Generator[BaseCheckpointSaver[Any]]:
    if is_server_address(url):
        with _open_postgres_saver(url, serde) as saver:
            yield saver
        return
    path = Path(url.removeprefix("sqlite:///")).expanduser()
    if not path.is_file():
        raise UserError(
            f"No file {url!r}. Expected one of SqliteSaver's, or postgresql://USER@HOST/DATABASE."
        )
    try:
        from langgraph.checkpoint.sqlite import SqliteSaver
    except ImportError:
        raise UserError(
            "Reading SqliteSaver's file needs the extra `memory`. Run: interlock install memory"
        ) from None
    with open_sqlite_read_only(path) as conn:
        saver = SqliteSaver(conn, serde=serde)
        saver.is_setup = True  # it would write its tables
        try:
            yield saver
        except SqliteConnection.errors as error:
            raise UserError(f"{path} isn't a SqliteSaver database: {error}.") from error


@contextmanager
def _open_postgres_saver(url: str, serde: Any) -> Generator[BaseCheckpointSaver[Any]]:
    try:
        savers: Any = import_module("langgraph.checkpoint.postgres")
        driver: Any = import_module("psycopg")
    except ImportError as error:
        raise UserError(
            f"Reading PostgreSQL needs the extra `fleet` ({error.name} is missing). Run: interlock install fleet"
        ) from error
    try:
        with savers.PostgresSaver.from_conn_string(url) as saver:
            saver.serde = serde
            yield saver
    except driver.Error as error:
        raise UserError(f"{mask_password(url)} can't be read: {' '.join(str(error).split())}") from error
