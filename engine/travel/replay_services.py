"""replay_services: services and nodes of a replay. They answer from a run's rows and reach nothing outside."""

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path, PurePath
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from interlock.engine.driver.budget import RunBudget
from interlock.engine.driver.checks import SUBJECT
from interlock.engine.driver.compose import DriveServices
from interlock.engine.driver.delegation import RunAgents
from interlock.engine.read import RunRow, Step
from interlock.engine.store import open_reader
from interlock.engine.store.approvals import list_encoding_requests
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.journal import SqlJournal
from interlock.engine.store.recorded_effects import RecordedEffects
from interlock.engine.store.run_copies import (
    list_calls_without_intent,
    read_recorded_hook_replies,
    read_recorded_replies,
    read_recorded_server_replies,
)
from interlock.engine.store.runs import read_options, read_run_options
from interlock.graphs.graph_changes import (
    nondeterministic_nodes_and_subgraphs,
    replace_node_when,
    replay_subgraph,
)
from interlock.graphs.langgraph_node import Node
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.user_nodes import run_or_replay_node
from interlock.prompts import hash_prompts
from interlock.services.checks.repair_files import RepairFiles
from interlock.services.checks.test_table import CheckTable
from interlock.services.hooks.hook_replies import HookReply, SourcedReply, merge_replies
from interlock.services.models.script import ScriptEntry, to_script_entry
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey, CallView, Planned, Preview, ToolResult, error_result
from interlock.state.checks import CheckEnd, Checks, TestChanges
from interlock.state.context import (
    CHANGED,
    MEMORY,
    UNDONE,
    MemoryText,
    SystemFacts,
    format_trigger,
    parse_shown_trigger,
)
from interlock.state.deps import ContextSource
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.errors import RunError
from interlock.state.events import Emit
from interlock.state.hooks import HookOutcome, InterruptedFiring
from interlock.state.journal import JournalRow
from interlock.state.messages import Message, TextPart, Usage
from interlock.state.node import find_node_spec, node
from interlock.state.repair import Suspects
from interlock.state.run import HookEvent
from interlock.state.seen import SeenFiles
from interlock.state.subagent import AgentDefinition, AgentInstance
from interlock.state.tooling import Tool, ToolRun, Toolset

_NOT_RECORDED = "The run made no such call, so a replay has no result of it."


def make_script_entries(conn: Connection, transcript: ChainTranscript, run: str) -> list[ScriptEntry]:
    """Return the run's replies as entries of a script, as `--record-responses` writes them."""
    found = list[ScriptEntry]()
    filled = Counter[tuple[str, str]]()
    for agent, role, ordinal, record, finish_reason, problem, *tokens in read_recorded_replies(conn, run):
        for unfilled in range(filled[agent, role], ordinal):  # of the run before, or without a reply
            found.append(ScriptEntry(role=role, agent=agent, ordinal=unfilled, usage=Usage()))
        filled[agent, role] = ordinal + 1
        entry = to_script_entry(
            transcript.read_message(record),
            role=role,
            agent=agent,
            ordinal=ordinal,
            usage=Usage(**dict(zip(("input", "output", "cached", "thoughts"), tokens, strict=True))),
            finish_reason=finish_reason,
            problem=problem,
        )
        found.append(entry)
    return found


class ReplayRecord(NamedTuple):
    """What a run's drives are answered from, read once: each answer is given once, whichever drive asks."""

    context: "ContextRecord"
    undone: Mapping[str, Sequence[str]]
    """Record → the notes about undone files that follow it."""
    changed: Mapping[str, str]
    """Record → the note about changed files that follows it."""
    results: Mapping[str, ToolResult]
    """Of `read_results_without_intent`."""
    confirms: Mapping[str, ConfirmedEncoding]
    """Call → the encoding that a request about it asked to confirm."""
    hooks: "RecordedHooks"
    agents: Mapping[str, AgentDefinition]
    """Sub-agents by name, as they were when the run first started each."""


def read_replay_record(home: Path, services: DriveServices, hooked_events: str) -> ReplayRecord:
    """Read the record. `home`: the state directory of the recorded run; `hooked_events`: the events that had hooks."""
    journal = services.journal
    with open_reader(home) as conn:
        asked = list_encoding_requests(conn, journal.run) if conn else []
    confirms = {
        _call_identity(journal.read_call(request.attempt)): request.confirms
        for request, _ in asked
        if request.attempt and request.confirms
    }
    hooks = RecordedHooks(hooked_events, journal.conn, journal.outputs, journal.run)
    chain = SqlChain(journal.conn).list_message_records_with_parents(journal.run)
    messages = [(parent, services.transcript.read_message(name)) for name, parent in chain]
    undone: dict[str, list[str]] = {}
    changed: dict[str, str] = {}
    for parent, message in messages:
        if text := message.part(UNDONE):
            undone.setdefault(parent, []).append(text)
        if text := message.part(CHANGED):
            changed.setdefault(parent, text)
    context, agents = collect_recorded_context(messages), collect_recorded_agents(m for _, m in messages)
    results = read_results_without_intent(journal)
    return ReplayRecord(context, undone, changed, results, confirms, hooks, agents)


def collect_recorded_agents(messages: Iterable[Message]) -> dict[str, AgentDefinition]:
    """Return the definitions that the sub-agents of a run began with, by name."""
    found: dict[str, AgentDefinition] = {}
    for message in messages:
        if message.role == "system" and message.origin == "agent":
            definition = AgentInstance.model_validate_json(message.text).definition
            found.setdefault(definition.name, definition)
    return found


def replace_tools_and_hooks_with_record(services: DriveServices, record: ReplayRecord) -> DriveServices:
    """The drive's services, with the record in place of tools, hooks and the workspace."""
    journal = services.journal
    services.mcp().switch_to_replay(read_recorded_server_replies(journal.conn))
    if isinstance(budget := services.models().budget, RunBudget):
        budget.usage = replace(budget.usage, outlives_kills=False)
    transcript = services.transcript
    same_context = read_options(journal.conn, journal.run).get("context_prompts") in (
        None,
        hash_prompts("context"),
    )
    transcript.recorded = partial(_use_recorded_context_message, record.context.messages, same_context)
    parts = {name: getattr(journal, name) for name in _JOURNAL}
    kept = RecordedJournal(**parts, recorded=record.undone)
    kept.seen.recorded_notes = record.changed
    toolset = RecordedToolset(services.deps.toolset, record.results, record.confirms)
    hooks = record.hooks
    deps = replace(services.deps, journal=kept, toolset=toolset, hooks=hooks, snapshots=NoSnapshots())
    deps = replace(deps, checks=hooks.make_recorded_checks(services.deps.checks))
    deps = replace(deps, effects=RecordedEffects(journal.conn, journal.run, deps.effects.serde))
    deps = replace(deps, context=RecordedContext(deps.context, record.context.memory, record.context.in_git))
    if isinstance(deps.agents, RunAgents):
        real = deps.agents.toolset

        def recorded(chosen: Mapping[str, Tool], counts: Callable[[str], bool]) -> Toolset:
            return cast(Toolset, RecordedToolset(real(chosen, counts), record.results, record.confirms))

        deps.agents.toolset = recorded
        deps.agents.definitions = {**deps.agents.definitions, **record.agents}
        deps.agents.explain_unusable_model = lambda _: ""
        deps.agents.hooks = hooks  # pyright: ignore[reportAttributeAccessIssue] - asked for its agents only
        deps.agents.root = deps
    return replace(services, deps=deps, journal=kept)


_JOURNAL = ("conn", "transcript", "outputs", "run", "epoch", "redact")


def _use_recorded_context_message(
    contexts: Mapping[str, Message], has_same_prompts: bool, parent: str, message: Message
) -> Message:
    """Replace a context message (workspace, repository, date) by the recorded one.

    `contexts`: by the record before. Without `has_same_prompts`, the prompts that make it have changed since, so its
    structured form is kept.
    """
    if (not has_same_prompts and not isinstance(message.content, str)) or message.origin != "context":
        return message
    return contexts.get(parent, message)


class ContextRecord(NamedTuple):
    messages: Mapping[str, Message]
    """Record → the context message that follows it."""
    memory: Mapping[str, str]
    """Name of each memory or rule file that the run came across → the level of a rule that a path brought along."""
    in_git: bool
    """Whether the model was told of a git repository."""


def collect_recorded_context(messages: Iterable[tuple[str, Message]]) -> ContextRecord:
    """Return what messages tell of the context. `messages`: each with the record before it."""
    found, memory, in_git = dict[str, Message](), dict[str, str](), False
    for parent, message in messages:
        in_git = in_git or (message.role == "system" and bool(message.part("git")))
        if message.origin == "context":
            found.setdefault(parent, message)
            parts = [part for part in message.content if isinstance(part, TextPart) and part.section]
            for part in parts:
                name = (part.section or "").removeprefix(MEMORY)
                if name != part.section:
                    memory[name] = parse_shown_trigger(name, part.text)
    return ContextRecord(found, memory, in_git)


def _stands_in(name: str, folders: Set[str]) -> bool:
    """Return whether a memory file stands in one of some folders, or in its folder `.claude`."""
    folder = PurePath(name).parent
    return folder.as_posix() in folders or (folder.name == ".claude" and folder.parent.as_posix() in folders)


class RecordedContext:
    """Today's context, but memory files near a call, and a repository that is gone, are the recorded ones."""

    def __init__(self, inner: ContextSource, shown: Mapping[str, str], was_in_git: bool) -> None:
        self._inner, self._shown, self._was_in_git = inner, shown, was_in_git

    def system_prompt_facts(self) -> SystemFacts:
        facts = self._inner.system_prompt_facts()
        return replace(facts, in_git=facts.in_git or self._was_in_git)

    def load_subdirectory_memory_files(
        self, paths: Sequence[str], seen: Collection[str]
    ) -> Sequence[MemoryText]:
        """The files by name; their texts come from the record when they are appended."""
        met = {folder.as_posix() for path in paths for folder in (PurePath(path), *PurePath(path).parents)}
        triggers = {format_trigger(path) for path in paths}
        named = sorted(
            name
            for name, trigger in self._shown.items()
            if name not in seen and (trigger in triggers if trigger else _stands_in(name, met))
        )
        return [MemoryText(name, "", "") for name in named]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@dataclass
class RecordedJournal(SqlJournal):
    """Never repeats a call or replaces a result."""

    recorded: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    """Record → the notes about undone files that follow it."""

    def record_result(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        row: JournalRow | None = self.find_row(key, call)
        if row is None or row.state != "done":
            super().record_result(key, call, result)

    def _select_unreported_undos(self, head: str) -> list[tuple[int, str]]:
        """What the recorded conversation tells there."""
        return [(0, text) for text in self.recorded.get(head, ())]


def read_results_without_intent(journal: SqlJournal) -> dict[str, ToolResult]:
    """Results of calls that never ran, to tell what was wrong with them; by call without its attempt."""
    found: dict[str, ToolResult] = {}
    for message, index, attempt in list_calls_without_intent(journal.conn, journal.run):
        key = CallKey(message=message, index=index, attempt=attempt)
        call = journal.read_call(key)
        row = journal.find_row(key, call)
        if row is not None and row.result is not None:
            found[_call_identity(call)] = row.result
    return found


def _call_identity(call: CallView) -> str:
    return json.dumps([call.id, call.name, call.args])


@dataclass
class RecordedToolset:
    """Tools by name and declaration; their effects come only from the record."""

    inner: Toolset
    results: Mapping[str, ToolResult]
    confirms: Mapping[str, ConfirmedEncoding]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def find_call_problem(self, call: CallView) -> str | None:
        error = self._recorded_error(call)
        return str(error["message"]) if error.get("type") == "invalid_tool_params" else None

    async def preview_call(
        self,
        call: CallView,
        earlier: Sequence[CallView],  # noqa: ARG002 - as Toolset
        seen: SeenFiles | None = None,  # noqa: ARG002 - as Toolset
    ) -> Preview:
        error = self._recorded_error(call)
        refused = error.get("type") in (
            None,
            "policy_violation",
            "rejected",
            "blocked_by_hook",
            "stopped_by_hook",
        )
        problem = None if refused else str(error.get("message"))
        confirms = self.confirms.get(_call_identity(call))
        return Preview(
            text="", problem=problem, code=str(error["type"]) if problem else "", confirms=confirms
        )

    async def plan_change(self, call: CallView, run: ToolRun | None = None) -> Planned | ToolResult:  # noqa: ARG002 - as Toolset
        return error_result("not_recorded", _NOT_RECORDED)

    async def run_call(self, run: ToolRun) -> ToolResult:  # noqa: ARG002 - as Toolset
        return error_result("not_recorded", _NOT_RECORDED)

    def current_file_digest(self, planned_path: str) -> str | None:  # noqa: ARG002 - as Toolset
        return None

    def _recorded_error(self, call: CallView) -> dict[str, Any]:
        result = self.results.get(_call_identity(call))
        return dict(result.error or {}) if result else {}


@dataclass
class RecordedHooks:
    """Recorded hook replies, in firing order."""

    hooked_events: str
    conn: Connection
    outputs: Path
    run: str

    def __post_init__(self) -> None:
        self._replies: dict[tuple[str, str], list[list[SourcedReply]]] = {}
        rows = read_recorded_hook_replies(self.conn)
        for (event, subject, _), firing in groupby(rows, lambda row: row[:3]):
            replies = [
                SourcedReply(name, source, self._load_reply(text, file))
                for *_, name, source, text, file in firing
            ]
            self._replies.setdefault((event, subject), []).append(replies)
        checked = (reply for firing in self._replies.get(("AfterAgent", SUBJECT), []) for reply in firing)
        self._ends = [CheckEnd.model_validate(reply.reply.output["check"]) for reply in checked]

    def _load_reply(self, text: str | None, file: str | None) -> HookReply:
        return HookReply.model_validate_json((self.outputs / file).read_bytes() if file else text or "{}")

    def make_recorded_checks(self, real: Checks) -> "RecordedChecks":
        """The run's check, answered from the record."""
        return RecordedChecks(real.command, real.must_pass_with_original_tests, self._ends)

    async def fire(
        self,
        event: HookEvent,
        key: str,  # noqa: ARG002 - as Hooks
        payload: Mapping[str, JsonValue],  # noqa: ARG002 - as Hooks
        *,
        subject: str = "",
        emit: Emit,  # noqa: ARG002 - as Hooks
    ) -> HookOutcome:
        firings = self._replies.get((event, subject), [])
        return merge_replies(event, firings.pop(0)) if firings else HookOutcome()

    def load_interrupted_firing(self, request_key: str) -> InterruptedFiring:
        raise KeyError(request_key)

    def for_agent(self, _: str) -> "RecordedHooks":
        return self


@dataclass
class RecordedChecks:
    """How the run's checks ended, in their order; a replay runs none."""

    command: str
    must_pass_with_original_tests: bool
    ends: list[CheckEnd]

    def is_test_or_settings(self, path: str) -> bool:
        return CheckTable(self.command).is_test_or_settings(path)

    async def run_check(self, key: str) -> CheckEnd:  # noqa: ARG002 - as Checks
        if not self.ends:
            raise RunError("The record has no further check: the replay would run one.")
        return self.ends.pop(0)

    async def find_test_changes(self) -> TestChanges:
        return TestChanges()

    def for_command(self, command: str, timeout_s: float) -> "RecordedChecks":  # noqa: ARG002 - as Checks
        return replace(self, command=command)

    def is_test_change_requested(self, task: str) -> bool:
        return RepairFiles(Path("/"), CheckTable(self.command)).is_test_change_requested(task)

    async def find_test_command(self) -> str:
        return ""

    async def find_suspects(self, end: CheckEnd, task: str) -> Suspects:  # noqa: ARG002 - as Checks
        return Suspects()

    def restore_tests(self, path: str, before: str, after: str) -> str | None:  # noqa: ARG002 - as Checks
        return after

    async def run_check_with_files(self, key: str, files: Mapping[str, str]) -> CheckEnd:  # noqa: ARG002 - as Checks
        return await self.run_check(key)

    async def run_check_with_original_tests(self, key: str, changes: TestChanges) -> CheckEnd:  # noqa: ARG002 - as Checks
        return await self.run_check(key)


class NoSnapshots:
    """Does nothing: a replay changes no files."""

    async def snapshot_before_call(self, key: CallKey, changes: str = "") -> None: ...

    async def snapshot_after_call(self, key: CallKey, changed: str = "") -> None: ...

    def save_and_close(self) -> None: ...


class RecordedNodeWrites:
    """Recorded writes of the nodes that read files, an index or a clock."""

    def __init__(
        self, home: Path, row: RunRow, states: Mapping[int, Mapping[str, Any]], steps: Sequence[Step]
    ) -> None:
        """`states`: by root step. `steps`: those of the root graph."""
        self._row = row
        self._alike = read_run_options(home, row.run).get("context_prompts") in (
            None,
            hash_prompts("context"),
        )
        self._written: dict[str, list[_RecordedWrite]] = {}
        later: dict[int, set[str]] = {}
        taken = [step for step in steps if not step.failed]
        lone = {number for number, count in Counter(step.step for step in taken).items() if count == 1}
        for step in reversed(taken):
            if (values := states.get(step.step)) is not None:
                over = later.setdefault(step.step, set())
                keys = step.keys
                if not keys and step.step in lone:
                    keys = _changed_keys(states.get(step.step - 1, {}), values)
                known = {key: values[key] for key in keys if key in values and key not in over}
                label = {"label": step.route} if step.route and step.keys else {}
                written = _RecordedWrite({**known, **label}, over.isdisjoint({*keys} - {"label"}))
                self._written.setdefault(step.node, []).insert(0, written)
                over |= {*keys}

    def apply_to_workflow(self, pipeline: Pipeline) -> Pipeline:
        """Substitute the recorded writes for these nodes, once for each time they ran."""
        if pipeline.name != self._row.workflow or (pipeline.name == "context" and not self._alike):
            return pipeline
        for name, function in nondeterministic_nodes_and_subgraphs(pipeline).items():
            written = self._written.get(name, [])
            if function:
                pipeline = replace_node_when(
                    pipeline, name, *_make_recorded_node_and_condition(function, written)
                )
            else:
                pipeline = replay_subgraph(pipeline, name, partial(_pop_complete_writes, written))
        return pipeline


def _changed_keys(before: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[str, ...]:
    """Keys changed by a part with supersteps of its own, which have separate rows."""
    changed = (key for key, value in values.items() if before.get(key, ...) != value)
    return tuple(key for key in changed if not key.startswith("branch:"))


class _RecordedWrite(NamedTuple):
    keys: dict[str, Any]
    whole: bool
    """False: a later node of the superstep overwrote one of its keys, so its own value is unknown."""


def _make_recorded_node_and_condition(
    function: Node, written: list[_RecordedWrite]
) -> tuple[Node, Callable[[], bool]]:
    spec = find_node_spec(function)
    assert spec is not None

    @node(reads=spec.reads, writes=spec.writes, labels=spec.labels, nondeterministic=True)
    async def again(state: Any, runtime: Any) -> Any:
        found = written.pop(0)
        known = {key: value for key, value in found.keys.items() if key in spec.writes}
        return known if found.whole else {**await run_or_replay_node(function, state, runtime), **known}

    return again, lambda: bool(written)


def _pop_complete_writes(written: list[_RecordedWrite]) -> dict[str, Any] | None:
    """None: not everything the part wrote is known, so it must run."""
    found = written.pop(0) if written else None
    return found.keys if found and found.whole else None
