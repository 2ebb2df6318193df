"""deps: protocols for everything nodes reach besides state. Never checkpointed; one `Deps` per drive."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from interlock.state.calls import CallKey, CallView
from interlock.state.checks import Checks
from interlock.state.context import (
    Commands,
    IdeState,
    MemoryText,
    Reference,
    Replacement,
    RuleFile,
    SystemFacts,
)
from interlock.state.events import Emit
from interlock.state.hooks import Hooks
from interlock.state.journal import Approvals, DecisionRecord, Effects, Journal
from interlock.state.mcp import McpServers
from interlock.state.messages import Message, Models
from interlock.state.mode import Modes
from interlock.state.plan import ApprovedPlan
from interlock.state.search import CodeIndex
from interlock.state.settings import Settings
from interlock.state.subagent import AgentDefinition, AgentInstance
from interlock.state.task import Tasks
from interlock.state.tooling import Outputs, Policy, Toolset

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class RunInfo:
    """What nodes may know about their run."""

    run: str
    workflow: str
    workspace: Path
    """Absolute real path."""
    agent: str = ""
    """Path of the sub-agent; empty: the root."""
    interactive: bool = False
    approval_mode: str = "default"
    """The approval mode that a person chose by its name; the run may be in another. Foreign graphs have only this."""
    guard: bool = False
    """The tools of a foreign graph's `ToolNode`s are guarded, too."""
    brief: bool = False
    """The model gets the small system prompt and few tools."""
    continues: bool = True
    """The run can go on after its end, with a prompt or by another try; others can only be started again."""

    def resume_or_rerun_command(self, flags: str = "") -> str:
        """The command that goes on with the run after its end, or starts another if it can't go on."""
        begin = f"interlock resume {self.run}" if self.continues else f"interlock run {self.workflow} …"
        return f"{begin} {flags}".rstrip()

    def resume_with_prompt_command(self) -> str:
        """The command that tells the model what to do instead."""
        return self.resume_or_rerun_command("-p '…'" if self.continues else "")


class Clock:
    """Time, as a class so that tests control it."""

    def now(self) -> float:
        """Unix time, seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds from an unspecified start."""
        return time.monotonic()


class Stopped(BaseException):
    """The run was asked to stop with work in flight, which stays unfinished, as after a kill.

    `docs/internals.md#a-stop-is-a-polite-kill`.

    A `BaseException`, so that error handlers don't catch it.
    """


class Transcript(Protocol):
    """The chain: immutable records, each named by the hash of its bytes and its parent."""

    def append(self, head: str, messages: Sequence[Message], *, continues: str = "") -> str:
        """Append records after `head`; returns the new head. Idempotent. `""` starts a new chain.

        `continues` is the head that a new chain replaces (compression, masking).
        """
        ...

    def read(self, head: str) -> list[Message]:
        """All messages up to `head`, oldest first."""
        ...

    def read_message(self, record: str) -> Message:
        """One record's message."""
        ...

    def record_ids(self, head: str, count: int | None = None) -> list[str]:
        """Record ids up to `head`, oldest first; with `count`, only the last `count`."""
        ...


class ContextSource(Protocol):
    """Sources for prompts: the workspace, its memory files and the user's settings."""

    @property
    def roots(self) -> Sequence[Path]:
        """Workspace directories; the first is the working directory."""
        ...

    def system_prompt_replacement(self, mode: str = "") -> Replacement | None:
        """Text replacing the generated prompt; for a mode, also the file a trusted project has for it.

        Raises `ConfigError` if a file can't be read.
        """
        ...

    def system_prompt_facts(self) -> SystemFacts: ...

    async def summarize_git_state(self) -> str:
        """Branch, changes and latest commits; empty outside git."""
        ...

    async def render_directory_trees(self) -> str:
        """Names below the workspace directories, within a fixed number of lines."""
        ...

    async def load_mode_rules(self, mode: str) -> Sequence[RuleFile]:
        """Rule files of `mode` and of all modes, in display order."""
        ...

    def load_commands(self) -> Commands:
        """The custom commands as their files are now."""
        ...

    async def resolve_path_reference(self, path: str) -> Reference:
        """One file, directory or pattern of the workspace."""
        ...

    @property
    def has_ide_source(self) -> bool:
        """Whether a flag or settings name a source of editor context."""
        ...

    def read_ide_state(self, recorded_json: str) -> IdeState:
        """The editor's state now or, without a context file, as in `recorded_json` (JSON). Raises `ConfigError` if
        unusable."""
        ...

    async def resolve_prompt_references(self, prompt: str) -> Sequence[Reference]:
        """What each `@path` in a prompt refers to; never outside the workspace."""
        ...

    def load_subdirectory_memory_files(
        self, paths: Sequence[str], seen: Collection[str]
    ) -> Sequence[MemoryText]:
        """Memory files of subdirectories on the way to `paths`, except those in `seen`."""
        ...

    async def load_memory_files(self) -> Sequence[MemoryText]:
        """Memory files, nearest last."""
        ...


class Steps(Protocol):
    """Times and routes of nodes; the saver persists them as rows (`docs/internals.md#small-checkpoints`)."""

    def record_start(self, task: str, namespace: str, node: str, workflow: str) -> None: ...

    def record_end(self, task: str, ms: float, keys: Sequence[str]) -> None: ...

    def invalidate_replies_of_failed_node(self, task: str) -> None:
        """The node raised: its next try isn't given the replies of models that this one got."""
        ...

    def next_occurrence_index(self, task: str, name: str) -> int:
        """How often `name` was numbered since the task's node started; 0 at first, the same when it runs again."""
        ...

    def detach_graph_steps(self, task: str) -> list[dict[str, Any]]:
        """The graph the task last started continues in a task of its own; returns what its nodes did."""
        ...

    def attach_graph_steps(self, task: str, namespace: str, step_notes: Sequence[Mapping[str, Any]]) -> None:
        """Record the graph that continues in this task, and what its nodes did before."""
        ...

    def record_route(self, task: str, label: str) -> None: ...

    def record_reason(self, task: str, reason: str) -> None:
        """Record, for people, why the node decided as it did."""
        ...

    def record_decision(self, task: str, key: CallKey, decision: DecisionRecord) -> None:
        """Record a decision on a call, made by the node or through it; once per task."""
        ...

    def commit_progress(self) -> None:
        """Commit what the run has done so far: a wait follows."""
        ...

    def working_seconds(self, namespace: str) -> float:
        """Seconds worked by nodes below a namespace, excluding waits for people; survives kills."""
        ...


class Snapshots(Protocol):
    """The workspace's files before and after each call that changes something."""

    async def snapshot_before_call(self, key: CallKey, changes: str = "") -> None:
        """Call right before the effect; idempotent, so a repeat after a kill changes nothing.

        `changes`: the only file, relative to the workspace, that the call can change; empty: any.
        """
        ...

    async def snapshot_after_call(self, key: CallKey, changed: str = "") -> None:
        """Call once the effect has ended; no-op without a `snapshot_before_call`, or after another
        `snapshot_after_call`.

        `changed`: the only file, relative to the workspace, that it can have changed; empty: any.
        """
        ...

    def save_and_close(self) -> None:
        """Persist what is known of the files, for the next drive."""
        ...


class Agents(Protocol):
    """The kinds of sub-agents, and the `Deps` of each instance."""

    def find_agent_definition(self, name: str) -> AgentDefinition | None: ...

    def find_model_problem(self, definition: AgentDefinition) -> str:
        """Why the model that the agent names can't be asked here; empty: it can, or it names none."""
        ...

    def record_instance(self, instance: AgentInstance) -> str:
        """Record a sub-agent that starts; returns its id. Idempotent."""
        ...

    def load_instance(self, agent: str) -> AgentInstance:
        """The sub-agent with this id, as it was at its start."""
        ...

    def deps_for_agent(self, agent: str) -> "Deps":
        """`Deps` for the sub-agent with this id: its own models, tools, policy and agent path."""
        ...


class Plans(Protocol):
    """The run's plan files: `plans/RUN/` in the state directory."""

    @property
    def folder(self) -> Path: ...

    def redirect_to_plans_folder(self, call: CallView) -> CallView | None:
        """`call` redirected to the plans folder if it writes a Markdown file by a relative path; else None."""
        ...

    def find_plan(self, name: str) -> Path | None:
        """The real path of a plan file, by name or path; None if it isn't a `*.md` in the folder."""
        ...

    def write_plan(self, path: Path, text: str, token: str) -> None:
        """Replace a plan's text atomically; `token` names the temporary file that a kill leaves behind."""
        ...

    def create_main_run(self, prompt: str, modes: Mapping[str, str], plan: ApprovedPlan) -> str:
        """Start the linked `main` run that carries out the plan; returns its id. Idempotent.

        `modes`: its approval mode, mode of work and protocol.
        """
        ...


@dataclass(frozen=True)
class Deps:
    """Everything that isn't data. Accessed via `Runtime[Deps]`."""

    info: RunInfo
    settings: Settings
    clock: Clock
    cancel: "Token"
    transcript: Transcript
    models: Models
    toolset: Toolset
    policy: Policy
    journal: Journal
    effects: Effects
    approvals: Approvals
    context: ContextSource
    outputs: Outputs
    steps: Steps
    snapshots: Snapshots
    agents: Agents
    plans: Plans
    tasks: Tasks
    hooks: Hooks
    checks: Checks
    mcp: McpServers
    index: Callable[[], CodeIndex]
    """Loaded on first use."""
    modes: Modes
    emit: Emit


class Token:
    """Stop request for one drive, set from the loop's thread. Cancels like `asyncio.timeout`.

    Whatever a node is waiting for is cancelled; nodes needn't check.
    """

    def __init__(self) -> None:
        self.requested = False
        self._under_way: dict[asyncio.Task[Any], bool] = {}
        """Tasks inside `cancel_on_stop`, and whether each was cancelled by a stop."""
        self.overdue: Callable[[float], threading.Timer | None] = lambda seconds: None  # noqa: ARG005
        """Lets somebody's code, if it blocks, end the process some time after these seconds."""
        self.loop: asyncio.AbstractEventLoop | None = None
        """Of the drive."""
        self.left = set[asyncio.Future[Any]]()
        """Nodes under way that nothing else may wait for."""
        self.is_held = False
        """Whether the drive is over but for work that nothing can stop."""

    def request_stop_and_cancel_work(self) -> None:
        """Cancel work in flight and refuse to start more."""
        self.requested = True
        for task, requested in self._under_way.items():
            if not requested and task is not asyncio.current_task():
                self._under_way[task] = task.cancel()

    @contextmanager
    def cancel_on_stop(self) -> Generator[None]:
        """Work inside is cancelled by a stop, which raises `Stopped`."""
        if self.requested:
            raise Stopped
        task = asyncio.current_task()
        if task is None or task in self._under_way:
            yield
            return
        before = task.cancelling()
        self._under_way[task] = False
        try:
            yield
        except asyncio.CancelledError:
            if self._under_way[task] and task.uncancel() <= before:
                raise Stopped from None
            raise  # cancelled by someone else too
        finally:
            del self._under_way[task]

    @contextmanager
    def flag_unstoppable_work(self) -> Generator[None]:
        """Inside, the drive only waits for work to end that nothing can stop, to keep what it returns."""
        self.is_held = True
        try:
            yield
        finally:
            self.is_held = False


GRACE_S = 5.0
"""Seconds that work under way has to end by itself once its run stops."""


async def await_despite_cancel(
    work: Awaitable[T], grace_s: float | None = None, on_cancelled: Callable[[], None] = lambda: None
) -> T:
    """Await work that can't be interrupted, such as a write in a thread, however often the caller is cancelled.

    `grace_s`: work that is still under way so long after the last cancellation is cancelled, too; None: never.
    `on_cancelled`: called at the first one.
    """
    task = asyncio.ensure_future(work)
    stop: asyncio.CancelledError | None = None
    while not task.done():
        try:
            ended, _ = await asyncio.wait({task}, timeout=grace_s if stop else None)
            if not ended:
                grace_s = None
                task.cancel()
        except asyncio.CancelledError as asked:
            if stop is None:
                stop = asked
                on_cancelled()
    if stop:
        if not task.cancelled():
            task.exception()  # else asyncio complains that nobody took it
        raise stop
    return task.result()


async def await_with_notices(work: Awaitable[T], notify: Callable[[], None], patience_s: float = 1.0) -> T:
    """Await work, and call `notify` again and again while it takes longer than people wait without asking why."""
    task = asyncio.ensure_future(work)
    try:
        while not (await asyncio.wait({task}, timeout=patience_s))[0]:
            notify()
    except asyncio.CancelledError:
        task.cancel()
        raise
    return task.result()


class StopFlag:
    """Stop flag for threads, which can't be ended from outside: long work polls it."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def request_stop(self) -> None:
        self._asked.set()

    def raise_if_stopped(self) -> None:
        if self._asked.is_set():
            raise Stopped


async def run_in_thread(work: Callable[Concatenate[StopFlag, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work(stop, ...)` run in a thread. If the awaiting task is cancelled, `stop` is set."""
    stop = StopFlag()
    try:
        return await asyncio.to_thread(work, stop, *args, **kwargs)
    except asyncio.CancelledError:
        stop.request_stop()
        raise
