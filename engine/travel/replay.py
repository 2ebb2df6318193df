"""replay: executes a run's graph again, offline, from its record, and reports where it diverges.

It uses a temporary store, so the run and its workspace aren't touched. One of the nodes may be swapped for a function
from a user's file. Rule: `docs/internals.md#a-replay-reaches-nothing`.
"""

import gc
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from interlock.engine.driver import runner
from interlock.engine.driver.compose import DriveServices
from interlock.engine.driver.decision_loop import Decider, run_decision_loop
from interlock.engine.driver.run_definition import restore_options
from interlock.engine.driver.stop import Stop, provide_stop
from interlock.engine.options import Decision, Options, Outcome, Pending
from interlock.engine.read import (
    RunRow,
    Step,
    count_consecutive_root_nodes,
    find_run,
    list_root_step_rows,
    steps_from_rows,
)
from interlock.engine.store import Store, open_reader
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.checkpoints import list_root_checkpoints
from interlock.engine.store.run_copies import (
    find_parent_run,
    read_answered_requests,
    read_first_input,
    read_request_hashes,
    seed_replay_store,
)
from interlock.engine.store.runs import read_run_options
from interlock.engine.store.steps import StepLog
from interlock.engine.travel.fork import find_fork_point
from interlock.engine.travel.langgraph_replay import (
    NodeReplacement,
    is_same_as_recorded,
    list_differing_keys,
    list_differing_state_keys,
    replay_recorded_supersteps,
    text_without_random_ids,
)
from interlock.engine.travel.replay_services import (
    RecordedNodeWrites,
    ReplayRecord,
    make_script_entries,
    read_replay_record,
    replace_tools_and_hooks_with_record,
)
from interlock.engine.workflows import error_line_number, execute_file_as_module, load_recorded_workflow
from interlock.graphs.graph_changes import replace_node_when
from interlock.graphs.langgraph_node import Node
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import pending_input
from interlock.services.models.script import write_script
from interlock.services.transcript import ChainTranscript
from interlock.state.errors import THEIR_ERRORS, ConfigError, SetupError, StoppedError, UserError
from interlock.state.names import RAISED, is_hidden_node
from interlock.state.node import find_node_spec
from interlock.state.text import did_you_mean

_FORM = "expected NODE=FILE.py:FUNCTION, as in: --swap draft=new.py:draft"


@dataclass
class NodeSwap:
    """A replacement for one node's function, from a given step on."""

    place: str
    """In the form `with_node` takes."""
    function: Node
    source: str
    since: int | None = None
    """Root step from which the replacement is used; earlier nodes keep their own function. None: from the start."""
    _steps: StepLog | None = None

    def apply_to_workflow(self, pipeline: Pipeline) -> Pipeline:
        """The workflow with the swap. Raises `UserError` if it doesn't fit."""
        try:
            return replace_node_when(pipeline, self.place, self.function, self._is_swap_due)
        except SetupError as error:
            raise UserError(f"{self.source} doesn't fit {pipeline.name!r}: {error}") from error

    def track_steps_of_services(self, services: DriveServices) -> DriveServices:
        if isinstance(services.deps.steps, StepLog):
            self._steps = services.deps.steps
        return services

    def _is_swap_due(self) -> bool:
        return self.since is None or self._steps is None or self._steps.root_step >= self.since


def load_node_swap(text: str, since: int | None) -> NodeSwap:
    """Parse `NODE=FILE.py:FUNCTION`. Raises `UserError` for another form, `ConfigError` for an unusable file."""
    place, function = _load_place_and_function(text, find_node_spec)
    return NodeSwap(place, function, text.partition("=")[2], since)


def _load_place_and_function(text: str, is_node: Callable[[Any], object] | None) -> tuple[str, Any]:
    place, _, source = text.partition("=")
    name, _, function = source.rpartition(":")
    if not (place and name and function):
        raise UserError(f"--swap {text!r}: {_FORM}.")
    return place, _load_function(Path(name).expanduser().absolute(), function, is_node)


def _load_function(file: Path, name: str, is_node: Callable[[Any], object] | None) -> Any:
    """`is_node`: whether a function is a node; None: any is one."""
    code = b""
    try:
        code = file.read_bytes()
        found: Any = execute_file_as_module(file, code).__dict__
    except OSError as error:
        raise ConfigError(f"{str(file)!r} can't be read ({error.strerror}); {_FORM}.") from error
    except THEIR_ERRORS as error:
        what = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(f"{file}:{error_line_number(file, code, error, name)}: {what}.") from error
    if callable(function := found.get(name)) and (is_node is None or is_node(function)):
        return function
    if is_node is None:
        raise ConfigError(f"{file}: no function {name!r}.")
    nodes = [key for key, value in found.items() if callable(value) and is_node(value)]
    has = ", ".join(nodes) or "none"
    raise ConfigError(f"{file}: no function {name!r} under @node.{did_you_mean(name, nodes)} It has: {has}.")


class ReplayPoint(NamedTuple):
    """A root step: the nodes that led to it, and the state after it."""

    step: int
    nodes: tuple[str, ...]
    state: str
    """Hash, hex."""
    values: Mapping[str, Any]


class Paths(NamedTuple):
    """Nodes of the root graph in execution order, each with its number of consecutive repetitions."""

    recorded: list[tuple[str, int]]
    replayed: list[tuple[str, int]]


@dataclass(frozen=True)
class ReplayResult:
    run: str
    points: list[ReplayPoint]
    """As replayed."""
    recorded: list[ReplayPoint]
    divergence: dict[str, Any] | None
    """The first step that differs: `step`, nodes `recorded` and `replayed`, `keys`, `requests`, `error`."""
    paths: "Paths"
    recorded_s: float
    replayed_s: float


async def replay_run(
    home: Path, name: str, until: int | None = None, swap_text: str | None = None, *, live: bool = False
) -> ReplayResult:
    """Replay a run. `until`: replay and compare no later steps, unless swapping. `swap_text`: NODE=FILE.py:FUNCTION.

    What the nodes of a LangGraph graph wrote is applied again; `live`: they run, with all their effects. Raises
    `UserError` if there is nothing to replay, `StoppedError` if it was stopped before it found a difference.
    """
    row, chosen, recorded = load_recorded_run(home, name)
    if until is not None:
        find_fork_point(home, row, until)
    if not chosen.should_run_nodes_in_replay(live):
        return await _replay_langgraph(home, row, chosen, recorded, until, swap_text)
    swap = load_node_swap(swap_text, until) if swap_text else None
    last = None if swap else _last_comparable_step(row, recorded, until)
    with TemporaryDirectory(prefix="interlock-replay-") as folder, provide_stop() as stop:
        store = Store(Path(folder, "home")).create_or_migrate()
        script = Path(folder, "script.json")
        _fill_replay_store_and_script(home, store, row.run, script)
        started = time.monotonic()
        end = _ReplayEnd(row.run, last, stop)
        taken = _list_root_steps(home, row.run)
        seen = RecordedNodeWrites(home, row, {point.step: point.values for point in recorded}, taken)
        with _collect_garbage_less_often():
            outcome = await _drive_replay(home, store, row, chosen, script, swap, end, seen)
        took = time.monotonic() - started
        made = list_replay_points(store.home, row.run, chosen)
        if end.is_interrupted:
            last = made[-1].step if made else 0
        within = [p for p in made if last is None or p.step <= last]
        kept = [p for p in recorded if last is None or p.step <= last]
        found = find_divergence(kept, within)
        if found is None and end.is_interrupted:
            raise StoppedError(
                f"The replay of run {row.run!r} was stopped at step {last} of {recorded[-1].step}, without a difference"
                f" until then. To repeat it up to a step: interlock replay {row.run} --until STEP"
            )
        if found is not None:
            found["requests"] = _describe_first_differing_requests_by_role(home, store.home, row.run)
            error = outcome.error if outcome else None
            is_script = error and error.get("type") == "script"
            found["error"] = {**error, "message": _NO_REPLY} if error and is_script else error
        ways = Paths(_root_node_path_until_step(taken, last), read_root_node_path(store.home, row.run, last))
    roots = (step for step in taken if not step.failed)
    ran = sum(step.ms for step in roots if last is None or step.step <= last) / 1000
    return ReplayResult(row.run, within, recorded, found, ways, ran, took)


@contextmanager
def _collect_garbage_less_often() -> Generator[None]:
    """Look for garbage less often: a long run's record is much to look through, and took a seventh of a replay."""
    usual = gc.get_threshold()
    gc.set_threshold(100_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def _load_current_workflow(home: Path, row: RunRow) -> Pipeline:
    """Return a run's workflow as it is today. Raise `InterlockError` if it can't be loaded."""
    folder = Path(row.workspace) if Path(row.workspace).is_dir() else home
    options = Options(home=home, workspace=folder, env=dict(os.environ))
    kept = {**read_run_options(home, row.run), "fake": None, "record_to": None}
    chosen, _ = load_recorded_workflow(row.run, row.workflow, restore_options(options, kept, row.workspace))
    return chosen


def list_nodes_of_live_replay(home: Path, name: str, until: int | None = None) -> list[tuple[str, int]]:
    """Return the nodes that a live replay of a run runs. Raise `UserError` if its workflow has none."""
    row, chosen, _ = load_recorded_run(home, name)
    chosen.should_run_nodes_in_replay(live=True)
    return read_root_node_path(home, row.run, until)


async def _replay_langgraph(
    home: Path,
    row: RunRow,
    chosen: Pipeline,
    recorded: list[ReplayPoint],
    until: int | None,
    swap_text: str | None,
) -> ReplayResult:
    instead = NodeReplacement(*_load_place_and_function(swap_text, None), until) if swap_text else None
    started = time.monotonic()
    made = await replay_recorded_supersteps(home, row, chosen, None if instead else until, instead)
    took = time.monotonic() - started
    points = [
        _make_replay_point(one.step, one.replayed, chosen.replay_comparable_state(one.now))
        for one in made
        if one.now is not None
    ]
    found: dict[str, Any] | None = None
    if made and not is_same_as_recorded(made[-1]):
        last = made[-1]
        sides = {"recorded": last.recorded, "replayed": last.replayed}
        error = {"type": last.kind, "message": last.why} if last.why else None
        found = {
            "step": last.step,
            **sides,
            "keys": list_differing_state_keys(last),
            "requests": [],
            "error": error,
        }
    ways = Paths(
        *(
            _count_consecutive_nodes(side)
            for side in ([one.recorded for one in made], [one.replayed for one in made])
        )
    )
    within = {one.step for one in made}
    ran = sum(step.ms for step in _list_root_steps(home, row.run) if step.step in within) / 1000
    return ReplayResult(row.run, points, recorded, found, ways, ran, took)


def _count_consecutive_nodes(supersteps: Sequence[Sequence[str]]) -> list[tuple[str, int]]:
    nodes = groupby(chain.from_iterable(supersteps))
    return [(node, len([*times])) for node, times in nodes]


def _make_replay_point(step: int, nodes: tuple[str, ...], state: Mapping[str, Any]) -> ReplayPoint:
    digest = hashlib.sha256(text_without_random_ids(state).encode()).hexdigest()
    return ReplayPoint(step, nodes, digest, state)


_NO_REPLY = "The record has no further reply of the model."
_WHOLE = ("done", "failed", "waiting")


def _last_comparable_step(row: RunRow, recorded: Sequence[ReplayPoint], until: int | None) -> int | None:
    """The last step to compare; None: all. What stopped midway has no record of what would have come."""
    if until is None and row.status not in _WHOLE:
        return recorded[-1].step
    return until


def load_recorded_run(home: Path, name: str) -> tuple[RunRow, Pipeline, list[ReplayPoint]]:
    """Return a run, its workflow as it is today, and its root steps. Raise `UserError` if it has none."""
    row = find_run(home, name)
    Store(home).create_or_migrate()  # adds tables missing from an older store
    if not list_root_checkpoints(home, row.run):
        raise UserError(f"Run {row.run!r} has no checkpoint yet, so there is nothing to replay.")
    chosen = _load_current_workflow(home, row)
    return row, chosen, list_replay_points(home, row.run, chosen)


def read_root_node_path(home: Path, run: str, until: int | None = None) -> list[tuple[str, int]]:
    """The path of a run, up to a root step."""
    return _root_node_path_until_step(_list_root_steps(home, run), until)


def _list_root_steps(home: Path, run: str) -> list[Step]:
    return steps_from_rows(home, run, list_root_step_rows(home, run))


def _root_node_path_until_step(taken: Sequence[Step], until: int | None) -> list[tuple[str, int]]:
    within = (step for step in taken if until is None or step.step <= until)
    return count_consecutive_root_nodes([step for step in within if not is_hidden_node(step.node)])


def list_replay_points(home: Path, run: str, chosen: Pipeline) -> list[ReplayPoint]:
    """Return the root steps of a run; of one repeated after a kill, the newer."""
    nodes = _list_nodes_by_step(home, run)
    found: dict[int, ReplayPoint] = {}
    for one in list_root_checkpoints(home, run):
        found[one.step] = _make_replay_point(
            one.step, nodes.get(one.step, ()), chosen.replay_comparable_state(one.values)
        )
    return [found[number] for number in sorted(found)]


def _list_nodes_by_step(home: Path, run: str) -> dict[int, tuple[str, ...]]:
    """The nodes of the root graph that led to each step. Parallel tasks are sorted: people answer them in any order."""
    tasks: dict[int, dict[str, list[str]]] = {}
    for row in list_root_step_rows(home, run):
        if row["route"] != RAISED and not is_hidden_node(row["node"]):
            task, _, _ = row["task"].partition(".")
            tasks.setdefault(row["root_step"] + 1, {}).setdefault(task, []).append(row["node"])
    return {step: (*chain.from_iterable(sorted(found.values())),) for step, found in tasks.items()}


def find_divergence(recorded: list[ReplayPoint], made: list[ReplayPoint]) -> dict[str, Any] | None:
    """The first step at which nodes or states differ.

    Where a label leads shows in the nodes that follow. A difference in it alone is none: nodes of today write labels
    where those of earlier versions wrote none.
    """
    for old, new in zip_longest(recorded, made):
        if old is None or new is None:
            return {**describe_divergent_step(old, new), "keys": []}
        if (old.nodes, old.state) != (new.nodes, new.state):
            keys = [key for key in list_differing_keys(old.values, new.values) if key != "label"]
            if keys or old.nodes != new.nodes:
                return {**describe_divergent_step(old, new), "keys": keys}
    return None


def describe_divergent_step(old: ReplayPoint | None, new: ReplayPoint | None) -> dict[str, Any]:
    """A step at which two paths part; None: that one has ended before."""
    sides = {"recorded": old.nodes if old else (), "replayed": new.nodes if new else ()}
    return {"step": one.step if (one := old or new) else 0, **sides}


def _describe_first_differing_requests_by_role(home: Path, other: Path, run: str) -> list[str]:
    """The first request of each role that differs from the recorded one."""
    was, found = read_request_hashes(home, run), dict[str, str]()
    for (agent, role, ordinal), digest in read_request_hashes(other, run).items():
        if was.get((agent, role, ordinal)) != digest:
            found.setdefault(role, f"request {ordinal} of {agent or 'the run'}, role {role}")
    return [*found.values()]


def _fill_replay_store_and_script(home: Path, store: Store, run: str, script: Path) -> None:
    """Copy what the replay may know, and write its models' replies as a script."""
    seed_replay_store(home, store, run, script)
    with closing(store.connect()) as conn:
        write_script(
            script, make_script_entries(conn, ChainTranscript(SqlChain(conn), store.outputs, run), run)
        )


class _ReplayEnd:
    """Ends a replay behind its last step."""

    def __init__(self, run: str, last: int | None, stop: Stop) -> None:
        self._run, self._last, self.stop = run, last, stop
        self._reached = False

    @property
    def is_interrupted(self) -> bool:
        """Whether a person or a signal ended it before."""
        return bool(self.stop.why) and not self._reached

    def install_stop_at_last_step(self, services: DriveServices) -> DriveServices:
        if services.journal.run == self._run and isinstance(services.deps.steps, StepLog):
            services.deps.steps.on_root_step = self._stop_at_last_step
        return services

    def _stop_at_last_step(self, step: int) -> None:
        if self._last is not None and step >= self._last and not self.stop.why:
            self._reached = True
            self.stop.request_drain("cancelled")


async def _drive_replay(
    home: Path,
    store: Store,
    row: RunRow,
    chosen: Pipeline,
    script: Path,
    swap: NodeSwap | None,
    end: _ReplayEnd,
    recorded_writes: RecordedNodeWrites,
) -> Outcome | None:
    """Drive to the end, to the last step asked for, or to a request with no recorded answer; None: stopped before."""

    def services(own: DriveServices) -> DriveServices:
        own.transcript.origins = origins
        if begun:
            own.transcript.reuse_cache_of(begun[-1].transcript)
            own.models().reuse_caches_of(begun[-1].models())
        begun[:] = [own]
        if own.journal.run not in records:
            records[own.journal.run] = read_replay_record(home, own, hooked)
        rewired = swap.track_steps_of_services(own) if swap else end.install_stop_at_last_step(own)
        return replace_tools_and_hooks_with_record(rewired, records[own.journal.run])

    origins = [*_list_fork_origins(home, row)]
    begun: list[DriveServices] = []  # the drive before: the next one needn't read its messages again
    records: dict[
        str, ReplayRecord
    ] = {}  # the same for every drive: what one was given, the next isn't given again
    workflows: dict[str, tuple[Pipeline, Pipeline]] = {}
    hooked = read_first_input(store.home, row.run).get("hooked", "")
    options = Options(
        home=store.home,
        workspace=_choose_or_create_replay_folder(row, store),
        fake=script,
        env=dict(os.environ),
    )

    def workflow(own: Pipeline) -> Pipeline:
        """Declaring it takes as long as five turns, so it is done once, not for each prompt."""
        if own.name not in workflows or workflows[own.name][0] != own:
            workflows[own.name] = (
                own,
                swap.apply_to_workflow(recorded_writes.apply_to_workflow(own))
                if swap
                else recorded_writes.apply_to_workflow(own),
            )
        return workflows[own.name][1]

    async def resume(run: str, decisions: Sequence[Decision], prompt: Prompt | None = None) -> Outcome:
        rewire = runner.ReplaySubstitutes(services, workflow, prompt.asked if prompt else {})
        return await runner.resume_run(run, decisions, prompt and prompt.text, options, (), end.stop, rewire)

    def goes_on(outcome: Outcome) -> bool:
        over = end.stop.why or outcome.status == "waiting"
        return not over and (outcome.error or {}).get("type") != "script"

    people = RecordedPeople(home, row.run, partial(_request_identity, chosen))
    prompts = list_later_prompts(home, row.run)
    try:
        return await drive_with_recorded_prompts(store.home, row.run, people, resume, prompts, goes_on)
    except StoppedError:
        return None


def _request_identity(chosen: Pipeline, request: Mapping[str, Any]) -> str:
    """Return what a request asks: its number is another one where parallel calls ask in another order."""
    shown = {key: request.get(key) or None for key in ("kind", "tool_name", "args", "questions", "agent")}
    return json.dumps([shown, *chosen.request_identity_across_replays(request)], sort_keys=True)


def _choose_or_create_replay_folder(row: RunRow, store: Store) -> Path:
    """The run's own, for its workflow and its settings; where that is gone, or on another host, an empty one."""
    if (own := Path(row.workspace)).is_dir():
        return own
    (empty := store.home.with_name("workspace")).mkdir()
    return empty


class Prompt(NamedTuple):
    """A person's further prompt."""

    text: str
    asked: Mapping[str, str]
    """The modes and the protocol that were given with it."""


async def drive_with_recorded_prompts(
    home: Path,
    run: str,
    people: Decider,
    resume: Callable[..., Awaitable[Outcome]],
    prompts: Iterable[Prompt],
    should_continue: Callable[[Outcome], bool],
) -> Outcome:
    """Drive a run to the end, with recorded further prompts, or until a request comes up that has no answer.

    `resume`: takes the run, decisions and perhaps a prompt. `should_continue`: whether the next prompt is sent after
    this.
    """
    outcome = await run_decision_loop(home, await resume(run, ()), people, resume)
    for prompt in prompts:
        if not should_continue(outcome):
            break
        outcome = await run_decision_loop(home, await resume(run, (), prompt), people, resume)
    return outcome


class RecordedPeople:
    """Answers as people did in a run, each answer once (`Decider`)."""

    def __init__(self, home: Path, run: str, name: Callable[[Mapping[str, Any]], str]) -> None:
        """`name`: what a request asks; an answer is given to another request that asks the same."""
        self._name = name
        self._answers: dict[str, list[Mapping[str, Any]]] = {}
        for _, request, answer in read_answered_requests(home, run):
            call = request["call"]
            asked = {**request, "tool_name": call["name"], "args": call["args"], "call": call["id"]}
            self._answers.setdefault(name(asked), []).append(answer)

    async def decide(self, _outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:
        found = ((request["id"], self._answers.get(self._name(request))) for request in requests)
        return [answer_to_decision(name, answers.pop(0)) for name, answers in found if answers]

    def on_decisions_refused(self, error: UserError) -> None:
        raise error


def _list_fork_origins(home: Path, row: RunRow) -> Iterator[str]:
    """The runs this one was forked from, the nearest first."""
    parent = row.parent
    while parent:
        yield parent
        parent = find_parent_run(home, parent)


def answer_to_decision(request: str, answer: Mapping[str, Any]) -> Decision:
    """The recorded answer as a decision; a saved always-choice is limited to this run."""
    fields: dict[str, Any] = {key: answer.get(key) for key in ("feedback", "args", "text")}
    choice = answer["choice"]
    return Decision(request, "proceed_always" if choice == "proceed_always_and_save" else choice, **fields)


_ASKED = ("approval_mode", "chosen_mode", "mode", "protocol")


def list_later_prompts(home: Path, run: str, step: int | None = None) -> Iterator[Prompt]:
    """The person's prompts after the first; with `step`, only those after that root step."""
    inputs = [one for one in list_root_checkpoints(home, run) if one.source == "input"]
    with open_reader(home) as conn:
        chain = ChainTranscript(SqlChain(conn), home / "outputs", run) if conn else None
        for one in inputs[1:] if chain else ():
            start = pending_input(one.values) or one.values
            if chain and start.get("prompt") and (step is None or one.step > step):
                asked = {name: start[name] for name in _ASKED if name in start}
                yield Prompt(chain.read_message(start["prompt"]).text, asked)
