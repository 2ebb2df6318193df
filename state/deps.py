"""deps: what nodes reach besides state, as protocols. Never checkpointed; one `Deps` a drive."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from interlock.state.calls import CallKey, CallView
from interlock.state.context import (
    CustomCommand,
    IdeState,
    MemoryText,
    Reference,
    Replacement,
    RuleFile,
    SystemFacts,
)
from interlock.state.events import Emit
from interlock.state.hooks import Hooks
from interlock.state.journal import Approvals, DecisionRecord, Journal
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
    """What a run is, as far as its nodes may know."""

    run: str
    workflow: str
    workspace: Path
    """Absolute, real path."""
    agent: str = ""
    """Path of the sub-agent; empty for the root."""
    interactive: bool = False


class Clock(Protocol):
    """Time, so that tests own it."""

    def now(self) -> float:
        """Unix time, seconds."""
        ...

    def monotonic(self) -> float:
        """Seconds from an unnamed start."""
        ...


class Stopped(BaseException):
    """The run is asked to stop while something is under way, which is unfinished, as after a kill (`engine.md` 24).

    Nobody answers it: what handles errors must not take it for one.
    """


class Transcript(Protocol):
    """The chain: immutable records, each named by the hash of its bytes and its parent."""

    def append(self, head: str, messages: Sequence[Message], *, continues: str = "") -> str:
        """Add records after `head`; the new head. Appending twice gives the same head. `""` starts a new chain.

        `continues` is the head that a new chain stands for from now on (compression, masking).
        """
        ...

    def continued(self, head: str) -> str:
        """The head that the chain of `head` continues; empty: none."""
        ...

    def read(self, head: str) -> list[Message]:
        """All messages up to `head`, oldest first."""
        ...

    def message(self, record: str) -> Message:
        """One record's message."""
        ...

    def ids(self, head: str, count: int | None = None) -> list[str]:
        """Record ids up to `head`, oldest first; with `count` the last so many."""
        ...


class ContextSource(Protocol):
    """What there is to tell a model of the workspace, its memory files and its user's wishes."""

    @property
    def roots(self) -> Sequence[Path]:
        """Workspace directories; the first is the working directory."""
        ...

    def replacement(self, mode: str = "") -> Replacement | None:
        """What stands in place of the generated prompt; of a mode also the file that a trusted project has for it.

        Raises `ConfigError` for a file that can't be read.
        """
        ...

    def facts(self) -> SystemFacts: ...

    async def repository(self) -> str:
        """Branch, changes and last commits; empty outside of git."""
        ...

    async def tree(self) -> str:
        """Names below the workspace directories, within a fixed number of lines."""
        ...

    async def rules(self, mode: str) -> Sequence[RuleFile]:
        """Rule files of a mode and of every mode, in the order in which they are shown."""
        ...

    def commands(self) -> tuple[Mapping[str, CustomCommand], Sequence[str]]:
        """Custom commands by name, and a line for each file that can't be used."""
        ...

    async def file(self, path: str) -> Reference:
        """One file, directory or pattern of the workspace."""
        ...

    @property
    def has_ide(self) -> bool:
        """An editor's context is named by a flag or in settings."""
        ...

    def ide(self, record: str) -> IdeState:
        """As it is now; without a file as it was `given`, in JSON. Raises `ConfigError` for what can't be used."""
        ...

    async def references(self, prompt: str) -> Sequence[Reference]:
        """What `@path`s in a prompt stand for; nothing outside the workspace."""
        ...

    def nearby(self, paths: Sequence[str], seen: Collection[str]) -> Sequence[MemoryText]:
        """Memory files of the sub-directories on the way to these paths, but for those that were shown already."""
        ...

    async def memory(self) -> Sequence[MemoryText]:
        """Memory files, the nearest last."""
        ...


class Steps(Protocol):
    """Times and routes of nodes; the saver keeps them as rows (`engine.md` 3)."""

    def started(self, task: str, namespace: str, node: str, workflow: str) -> None: ...

    def ended(self, task: str, ms: float, keys: Sequence[str]) -> None: ...

    def undone(self, task: str) -> None:
        """What the task began last, a graph, is begun anew in a task of its own."""
        ...

    def handed_on(self, task: str) -> list[dict[str, Any]]:
        """What the task began last, a graph, goes on in a task of its own; what its nodes did."""
        ...

    def taken_up(self, task: str, namespace: str, done: Sequence[Mapping[str, Any]]) -> None:
        """The graph that goes on in this task, and what its nodes did before."""
        ...

    def routed(self, task: str, label: str) -> None: ...

    def reasoned(self, task: str, reason: str) -> None:
        """Why the node decided as it did, for people."""
        ...

    def decided(self, task: str, key: CallKey, what: DecisionRecord) -> None:
        """What the node decided of a call, or somebody through it; once a task."""
        ...

    def spent_s(self, namespace: str) -> float:
        """Seconds in which nodes below a namespace worked; to wait for people is no work, and a kill loses none."""
        ...


class Snapshots(Protocol):
    """The workspace's files as they stood around each call that changes something."""

    async def before(self, key: CallKey) -> None:
        """Right before the call's effect; a second time, after a kill, changes nothing."""
        ...

    async def after(self, key: CallKey, changed: str = "") -> None:
        """Once it has ended; nothing where there was no `before`, or an `after` already.

        `changed`: the one file, relative to the workspace, that it can have changed; empty: any.
        """
        ...

    def close(self) -> None:
        """Keep what is known of the files, for the next drive."""
        ...


class Agents(Protocol):
    """The kinds of sub-agents, and what nodes of one of them reach."""

    def definition(self, name: str) -> AgentDefinition | None: ...

    def names(self) -> list[str]: ...

    def open(self, instance: AgentInstance) -> str:
        """Record a sub-agent that starts; its id, the same when called twice."""
        ...

    def instance(self, agent: str) -> AgentInstance:
        """The sub-agent with this id, as it was when it started."""
        ...

    def scope(self, agent: str) -> "Deps":
        """`Deps` of the sub-agent with this id: its own models, tools, policy and agent path."""
        ...


class Plans(Protocol):
    """The run's plan files: `plans/RUN/` in the state directory."""

    @property
    def folder(self) -> Path: ...

    def placed(self, call: CallView) -> CallView | None:
        """A call that writes a Markdown file by a relative path, with that file in the plans folder; else None."""
        ...

    def find(self, name: str) -> Path | None:
        """The real path of a plan file by its name or path; None: it is no `*.md` of the folder."""
        ...

    def write(self, path: Path, text: str, token: str) -> None:
        """Replace a plan's text, at once; `token` names the leftover of a write that was killed."""
        ...

    def hand_over(self, prompt: str, mode: str, plan: ApprovedPlan) -> str:
        """Begin the linked `main` run that carries the plan out; its id, the same when called twice."""
        ...


@dataclass(frozen=True)
class Deps:
    """Everything that isn't data. Reached by `Runtime[Deps]`."""

    info: RunInfo
    settings: Settings
    clock: Clock
    cancel: "Token"
    transcript: Transcript
    models: Models
    toolset: Toolset
    policy: Policy
    journal: Journal
    approvals: Approvals
    context: ContextSource
    outputs: Outputs
    steps: Steps
    snapshots: Snapshots
    agents: Agents
    plans: Plans
    tasks: Tasks
    hooks: Hooks
    mcp: McpServers
    index: Callable[[], CodeIndex]
    """Loaded when it is first asked for."""
    modes: Modes
    emit: Emit


class Token:
    """Whether the run is asked to stop: one a drive, set from the loop's thread. Cancels as `asyncio.timeout` does.

    Whatever a node waits for then is cancelled; no node has to look.
    """

    def __init__(self) -> None:
        self.requested = False
        self._under_way: dict[asyncio.Task[Any], bool] = {}
        """Tasks inside `guarded`, and whether they were told."""

    def request(self) -> None:
        """Cancel what is under way, and let nothing more begin."""
        self.requested = True
        for task, requested in self._under_way.items():
            if not requested and task is not asyncio.current_task():
                self._under_way[task] = task.cancel()

    @contextmanager
    def guarded(self) -> Generator[None]:
        """What runs inside is cancelled by a stop, and leaves it as `Stopped`."""
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
            raise  # somebody else cancelled it, too
        finally:
            del self._under_way[task]


async def to_its_end(work: Awaitable[T]) -> T:
    """Wait for what can't be cut short, like a write in a thread, also when cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait({task})
        raise


class Stop:
    """A thread can't be ended from outside, so work that may be long asks now and then."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    def check(self) -> None:
        if self._asked.is_set():
            raise Stopped


async def in_thread(work: Callable[Concatenate[Stop, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `work(stop, ...)`. When the awaiting task is cancelled, the work is asked to stop."""
    stop = Stop()
    try:
        return await asyncio.to_thread(work, stop, *args, **kwargs)
    except asyncio.CancelledError:
        stop.ask()
        raise
