"""deps: what nodes reach besides state, as protocols. Never checkpointed; one `Deps` a drive."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from interlock.state.agents import Agents, Plans
from interlock.state.calls import CallKey
from interlock.state.decided import Decided
from interlock.state.hooks import Hooks
from interlock.state.journal import Approvals, Journal
from interlock.state.messages import Message
from interlock.state.models import Models, ToolDeclaration
from interlock.state.settings import Settings
from interlock.state.tooling import Outputs
from interlock.state.toolset import Policy, Toolset


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


class Cancel(Protocol):
    """The run's cancel token (`engine.md` 18). Nodes that wait race it and answer normally."""

    @property
    def requested(self) -> bool: ...

    async def wait(self) -> None:
        """Return when cancellation was requested."""
        ...

    async def sleep(self, seconds: float) -> bool:
        """Sleep; True when cancelled before the time was over."""
        ...


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
    """System prompt, environment and memory files of the workspace."""

    async def opening(self, tools: Sequence[ToolDeclaration], agent: str | None = None) -> list[Message]:
        """The messages before the first prompt: one system message, one user message of origin `context`.

        `agent`: a sub-agent's own prompt, which the sections that its tools need follow.
        """
        ...


class Steps(Protocol):
    """Times and routes of nodes; the saver keeps them as rows (`engine.md` 3)."""

    def started(self, task: str, namespace: str, node: str, workflow: str) -> None: ...

    def ended(self, task: str, ms: float, keys: Sequence[str]) -> None: ...

    def routed(self, task: str, label: str) -> None: ...

    def reasoned(self, task: str, reason: str) -> None:
        """Why the node decided as it did, for people."""
        ...

    def decided(self, task: str, key: CallKey, what: Decided) -> None:
        """What the node decided of a call, or somebody through it; once a task."""
        ...

    def spent_s(self, namespace: str) -> float:
        """Seconds in which nodes below a namespace worked; to wait for people is no work, and a kill loses none."""
        ...


@dataclass(frozen=True)
class Deps:
    """Everything that isn't data. Reached by `Runtime[Deps]`."""

    info: RunInfo
    settings: Settings
    clock: Clock
    cancel: Cancel
    transcript: Transcript
    models: Models
    toolset: Toolset
    policy: Policy
    journal: Journal
    approvals: Approvals
    context: ContextSource
    outputs: Outputs
    steps: Steps
    agents: Agents
    plans: Plans
    hooks: Hooks


class Token:
    """The cancel token of a run in this process; set from the loop's thread."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def requested(self) -> bool:
        return self._event.is_set()

    def request(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    async def sleep(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(self._event.wait(), seconds)
        except TimeoutError:
            return False
        return True
