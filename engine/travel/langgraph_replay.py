"""langgraph_replay: the replay of a LangGraph graph. Its nodes do not run: today's graph applies what they wrote again.
A function given for one of them runs in its place.

Today's edges, reducers and types count, so a step that they take differently is found. The routers of conditional edges
are code like nodes, so where they led is applied, too. A node that changed since, or whose writes aren't kept, ends the
replay there.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from langgraph.errors import GraphInterrupt

from interlock.engine.masking import load_folder_redactor
from interlock.engine.read import RunRow, list_step_rows
from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.checkpoints import decode_checkpoint_to_plain_values
from interlock.engine.store.foreign_saver import (
    list_channels_written_by_root_tasks,
    make_saver,
    read_node_sources,
)
from interlock.engine.store.run_copies import read_answered_requests
from interlock.engine.store.runs import read_run_options
from interlock.engine.store.steps import StepLog
from interlock.graphs.foreign_callbacks import redirect_stdout_and_catch_exits
from interlock.graphs.foreign_interrupts import RecordedAnswers
from interlock.graphs.foreign_node_sources import node_digests_and_fixed_channels
from interlock.graphs.foreign_requests import format_payload_for_display
from interlock.graphs.langgraph_internals import (
    QUESTIONS,
    DueTask,
    apply_writes_to_checkpoint,
    due_tasks,
    patch_interrupt,
    run_function_as_node,
    unconditional_writes,
)
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import BOOKKEEPING, is_internal_channel
from interlock.state.calls import Answer, ApprovalRequest
from interlock.state.errors import THEIR_ERRORS, UserError
from interlock.state.names import is_hidden_node
from interlock.state.text import to_jsonable


@dataclass(frozen=True)
class Superstep:
    """What followed a checkpoint: as recorded, and by today's graph."""

    step: int
    recorded: tuple[str, ...]
    """Nodes, sorted: the order in which parallel ones ended says nothing."""
    values: Mapping[str, Any]
    """The recorded state after it."""
    replayed: tuple[str, ...]
    now: Mapping[str, Any] | None
    """The state after it by today's graph; None: it ends there."""
    why: str = ""
    """Why it ends there."""
    kind: str = ""
    """`changed` or `record`: only running the node would tell what follows; `node`: today's graph raised."""


@dataclass(frozen=True)
class NodeReplacement:
    """A function that runs in place of a node."""

    node: str
    function: Any
    since: int | None
    """The root step from which it does; None: the first."""

    def is_used_for(self, node: str, step: int) -> bool:
        """Whether it runs as this node, leading to a step."""
        return node == self.node and (self.since is None or step > self.since)


async def replay_recorded_supersteps(
    home: Path, row: RunRow, chosen: Pipeline, until: int | None, replacement: NodeReplacement | None = None
) -> list[Superstep]:
    """Apply a run's recorded writes, from its start to the first difference, or to a step.

    Raises `UserError` if the graph lacks the node to replace.
    """
    store = Store(home)
    with closing(store.connect()) as conn:
        saver: Any = make_saver(chosen, conn, StepLog(), SqlApprovals(conn, row.run), store.path)
        app: Any = chosen.build_uncompiled_graph().compile(saver)
        if replacement and replacement.node not in app.nodes:
            has = ", ".join(name for name in app.nodes if not is_hidden_node(name))
            raise UserError(f"{chosen.name!r} has no node {replacement.node!r}. It has the nodes: {has}.")
        record = _RecordedRun(home, row, conn, chosen, app, replacement)
        found: list[Superstep] = []
        before = None
        for one in _list_newest_branch_checkpoints(saver, row.run):
            step = one.metadata.get("step", 0)
            if until is not None and step > until:
                break
            made = await record.replay_superstep(app, saver, before, one)
            found.append(made)
            if made.now is None or not is_same_as_recorded(made):
                break
            before = one
        return found


def _list_newest_branch_checkpoints(saver: Any, run: str) -> list[Any]:
    """The run's checkpoints from the first to the newest, without those of branches that it left."""
    place = {"configurable": {"thread_id": run, "checkpoint_ns": ""}}
    known = {one.config["configurable"]["checkpoint_id"]: one for one in saver.list(place)}
    line: list[Any] = []
    name = max(known, default=None)
    while name in known:
        line.append(known[name])
        above = line[-1].parent_config
        name = above["configurable"]["checkpoint_id"] if above else None
    return line[::-1]


def is_same_as_recorded(superstep: Superstep) -> bool:
    return (
        superstep.recorded == superstep.replayed
        and superstep.now is not None
        and not list_differing_keys(superstep.values, superstep.now)
    )


def list_differing_keys(recorded: Mapping[str, Any], replayed: Mapping[str, Any]) -> list[str]:
    """Return the keys whose values differ, but for random ids of messages."""
    return sorted(
        key
        for key in {**recorded, **replayed}
        if text_without_random_ids(recorded.get(key, ...)) != text_without_random_ids(replayed.get(key, ...))
    )


class _RecordedRun:
    def __init__(
        self, home: Path, row: RunRow, conn: Any, chosen: Pipeline, app: Any, instead: NodeReplacement | None
    ) -> None:
        options = read_run_options(home, row.run)
        self._instead, self._chosen, self._given = instead, chosen, options.get("context")
        self._answers = RecordedAnswers(
            (
                (ApprovalRequest.model_validate(request), Answer.model_validate(answer))
                for _, request, answer in read_answered_requests(home, row.run)
            ),
            load_folder_redactor(Path(row.workspace), home).redact_request,
        )
        self._sources = read_node_sources(options)
        self._today = node_digests_and_fixed_channels(app)
        steps = list_step_rows(home, row.run)
        self._started = {step["task"]: step["started"] for step in steps}
        self._nodes = {step["task"]: step["node"] for step in steps}
        self._tasks: dict[str, dict[str, str]] = {}
        """Checkpoint → task → node, of those that wrote an update."""
        for (name, task), rows in groupby(
            list_channels_written_by_root_tasks(conn, row.run), lambda row: row[:2]
        ):
            wrote = [
                (node, channel) for *_, node, channel in rows if channel not in (*BOOKKEEPING, _RETURNED)
            ]
            if wrote:
                node = wrote[0][0] or self._nodes.get(task[:8], "")
                self._tasks.setdefault(name, {})[task] = node

    async def replay_superstep(self, app: Any, saver: Any, before: Any, after: Any) -> Superstep:
        step, values = after.metadata.get("step", 0), _plain_channel_values(saver, after.checkpoint)
        if (
            before is None or after.metadata.get("source") != "loop"
        ):  # an input, or an update from outside: as it was
            return Superstep(step, (), values, (), values)
        recorded = self._tasks.get(before.config["configurable"]["checkpoint_id"], {})
        names = _sort_visible_nodes(recorded.values())
        due = _replace_failed_nodes_with_handlers(app, due_tasks(app, before), recorded)
        today = _sort_visible_nodes(task.name for task in due)
        if names != today:
            unknown = not recorded
            return Superstep(
                step, names, values, today, None, _MISSING.format(today) if unknown else "", "record"
            )
        if changed := self._find_changed_node(recorded, step):
            why = f"Node {changed!r} has changed since it ran."
            return Superstep(step, names, values, today, None, why, "changed")
        try:
            made = apply_writes_to_checkpoint(
                app, before, await self._collect_writes(app, before, recorded, due)
            )
        except GraphInterrupt as asked:
            shown = format_payload_for_display(asked.args[0][0].value)
            why = f"The function asks what nobody was asked: {shown}"
            return Superstep(step, names, values, today, None, why, "node")
        except THEIR_ERRORS as error:
            why = f"{type(error).__name__}: {' '.join(str(error).split())}"
            return Superstep(step, names, values, today, None, why, "node")
        done = Superstep(step, names, values, today, _plain_channel_values(saver, made))
        if is_same_as_recorded(done) or list_differing_state_keys(done):
            return done
        # The state is the same, and leads elsewhere.
        ahead = after._replace(checkpoint=made, pending_writes=[])
        follows = _sort_visible_nodes(
            self._tasks.get(after.config["configurable"]["checkpoint_id"], {}).values()
        )
        return Superstep(
            step + 1, follows, values, _sort_visible_nodes(task.name for task in due_tasks(app, ahead)), None
        )

    def _find_changed_node(self, recorded: Mapping[str, str], step: int) -> str:
        """The first of these tasks' nodes whose code isn't what it was; empty: none."""
        for task, node in recorded.items():
            then = self._node_sources_when_task_ran(task).get(node)
            if self._instead and self._instead.is_used_for(node, step):
                continue
            if then and node in self._today and then["source"] != self._today[node]["source"]:
                return node
        return ""

    def _node_sources_when_task_ran(self, task: str) -> Mapping[str, Any]:
        """What the nodes were made of when a task ran."""
        started = self._started.get(task[:8])
        known = [one["nodes"] for one in self._sources if started is None or one["since"] <= started]
        return known[-1] if known else {}

    async def _collect_writes(
        self, app: Any, before: Any, recorded: Mapping[str, str], due: Sequence[DueTask]
    ) -> list[tuple[DueTask, list[tuple[str, Any]]]]:
        """What each task wrote, with today's edges in place of those that the node had then."""
        left = {name: [t for t, node in recorded.items() if node == name] for name in {*recorded.values()}}
        found: list[tuple[DueTask, list[tuple[str, Any]]]] = []
        for task in due:
            if self._instead and self._instead.is_used_for(task.name, before.metadata.get("step", 0) + 1):
                found.append((task, await self._run_replacement(self._instead.function, app, before, task)))
                continue
            ids = left[task.name]
            own = ids.pop(ids.index(task.id)) if task.id in ids else ids.pop(0)
            wrote = [(channel, value) for t, channel, value in before.pending_writes if t == own]
            then = self._node_sources_when_task_ran(own).get(task.name)
            if then is not None:
                fixed = [pair for pair in wrote if pair[0] not in then["fixed"]]
                wrote = [*fixed, *unconditional_writes(app, task.name)]
            found.append((task, wrote))
        return found

    async def _run_replacement(self, function: Any, app: Any, before: Any, task: DueTask) -> list[Any]:
        """What a function writes as a task's node; what it asks is answered as recorded."""
        context = self._chosen.validate_context(
            self._given
        )  # made for who runs alone: its class is code of theirs
        patch_interrupt()
        token = QUESTIONS.set(self._answers)
        try:
            with redirect_stdout_and_catch_exits():
                return await run_function_as_node(app, before, task, function, context)
        finally:
            QUESTIONS.reset(token)


_MISSING = "The record has nothing that node {0[0]!r} wrote."


_RETURNED = "__return__"
"""What a `@task` writes: it is a part of the node that called it."""


def _replace_failed_nodes_with_handlers(
    app: Any, due: Sequence[DueTask], recorded: Mapping[str, str]
) -> list[DueTask]:
    """The tasks, with its error handler in place of a node that raised when the run was recorded."""
    ran = {*recorded.values()}
    handlers = [app.nodes[task.name].error_handler_node for task in due]
    return [
        task._replace(name=handler) if handler in ran and task.id not in recorded else task
        for task, handler in zip(due, handlers, strict=True)
    ]


def _sort_visible_nodes(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in nodes if not is_hidden_node(name)))


def _plain_channel_values(saver: Any, checkpoint: Any) -> dict[str, Any]:
    """The values of a checkpoint, with the contents of objects in their place."""
    return decode_checkpoint_to_plain_values(*saver.serde.dumps_typed(checkpoint))["channel_values"]


def list_differing_state_keys(superstep: Superstep) -> list[str]:
    """Keys of the state whose values differ after a superstep."""
    keys = list_differing_keys(superstep.values, superstep.now) if superstep.now is not None else []
    return [key for key in keys if not is_internal_channel(key) and not key.startswith("join:")]


_HEX = "[0-9a-f]{8}-[0-9a-f]{4}-%s[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"
_RANDOM_ID = re.compile(rf'"id": "(?:{_HEX % 4}|(?:lc_)?run-+{_HEX % "[0-9a-f]"}(?:-\d+)?)"')
"""Of a message: LangGraph's, or LangChain's, which names the model's run."""


def text_without_random_ids(value: Any) -> str:
    """The value as text, without the random ids that LangGraph and LangChain give to messages."""
    try:
        text = json.dumps(value, sort_keys=True, default=_to_text, allow_nan=False)
    except (ValueError, TypeError):  # what JSON lacks: such numbers and keys
        text = json.dumps(to_jsonable(value), sort_keys=True, default=str)
    return _RANDOM_ID.sub('"id": ""', text)


def _to_text(value: object) -> str:
    return str(to_jsonable(value))
