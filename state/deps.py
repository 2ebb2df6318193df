"""deps: what nodes reach besides state, as protocols. Never checkpointed; one `Deps` a drive."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from interlock.state.calls import (
    Answer,
    ApprovalRequest,
    CallKey,
    CallView,
    Choice,
    Planned,
    Preview,
    Risk,
    SessionRule,
    ToolResult,
    Verdict,
)
from interlock.state.events import Event
from interlock.state.messages import Message
from interlock.state.settings import Settings


class Emit(Protocol):
    """Hands an event to every renderer; never blocks, never fails."""

    def __call__(self, event: Event, /) -> None: ...


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

    def append(self, head: str, messages: Sequence[Message]) -> str:
        """Add records after `head`; the new head. Appending twice gives the same head. `""` starts a new chain."""
        ...

    def read(self, head: str) -> list[Message]:
        """All messages up to `head`, oldest first."""
        ...

    def message(self, record: str) -> Message:
        """One record's message."""
        ...

    def ids(self, head: str) -> list[str]:
        """Record ids up to `head`, oldest first."""
        ...


class ToolDeclaration(BaseModel):
    """A tool as a model sees it; `parameters` is its JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class ModelCall:
    """One request to a model."""

    task: str
    """Id of the graph task that asks: a reply that was recorded for it before a crash is returned, not paid again."""
    role: str
    """main, classifier, …; maps to an alias in settings."""
    head: str
    """Chain head that the request was made from; the reply is recorded after it."""
    messages: Sequence[Message]
    """System message first (if any), then the curated history."""
    model: str = ""
    """A resolved model name; empty: the role's alias decides."""
    tools: Sequence[ToolDeclaration] = ()
    schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer, for helper calls."""
    temperature: float | None = None
    timeout_s: float | None = None
    attempts: int | None = None
    """Connection attempts; default 10."""


class ThoughtDelta(BaseModel):
    kind: Literal["thought"] = "thought"
    text: str


class TextDelta(BaseModel):
    kind: Literal["text"] = "text"
    text: str


class Usage(BaseModel):
    """Tokens of one request, as the provider counted them."""

    input: int = 0
    output: int = 0
    cached: int = 0
    thoughts: int = 0

    @property
    def total(self) -> int:
        return self.input + self.output


class Reply(BaseModel):
    """A complete answer; always the last item of a stream."""

    kind: Literal["reply"] = "reply"
    record: str
    """Chain record that holds `message`."""
    message: Message
    model: str
    finish_reason: str | None
    """Lower case: stop, length, safety, malformed_function_call, …; null: the stream ended without one."""
    usage: Usage
    duration_ms: int
    problem: str | None = None
    """Set when the provider said that the answer is malformed or blocked; the reason in words."""
    replayed: bool = False
    """Recorded before a crash: the request was not made again."""


ModelItem = ThoughtDelta | TextDelta | Reply


class Models(Protocol):
    """Chat models by role, alias or name, with retries, finish reasons, records and play-back."""

    def stream(self, call: ModelCall, emit: Emit) -> AsyncIterator[ModelItem]:
        """Ask; thoughts and text as they come, the `Reply` last. Raises `ModelError` after the last attempt.

        Retries connection errors (never after the first shown chunk), emits `retry`, and races the cancel token:
        a cancelled stream ends without a `Reply`.
        """
        ...

    def resolve(self, name: str) -> str:
        """Alias → model name. Raises `UserError` with the nearest names for what can't be a model."""
        ...

    def limit(self, model: str) -> int:
        """Context window in tokens (1,048,576 where nothing else is known)."""
        ...


@dataclass(frozen=True)
class ToolInfo:
    """What scheduling must know of a tool."""

    name: str
    risk: Risk
    alone: bool
    """Runs by itself, in order (it writes, executes, or asks)."""
    effect: Literal["none", "file", "other"]
    """`file`: proves itself by its hashes after a crash; `other`: when the outcome is unknown, a person is asked."""


@dataclass(frozen=True)
class ToolRun:
    """One execution: what a tool may use while it runs."""

    key: CallKey
    call: CallView
    emit: Emit
    planned: Planned | None = None
    """For `effect == "file"`: what the intent row holds. With it a run after a crash gives the same result."""


class Toolset(Protocol):
    """Built-in (later also MCP and discovered) tools, by name."""

    def declarations(self) -> list[ToolDeclaration]: ...

    def info(self, name: str) -> ToolInfo | None:
        """None: no such tool."""
        ...

    def nearest(self, name: str) -> list[str]:
        """Up to three tool names, nearest first."""
        ...

    def invalid(self, call: CallView) -> str | None:
        """Why the arguments can't be used, naming the field; None: they can. Paths are checked here too."""
        ...

    def summary(self, call: CallView) -> str:
        """One line for people."""
        ...

    async def preview(self, call: CallView, earlier: Sequence[CallView]) -> Preview:
        """What the call would do, after the `earlier` calls of its batch were done."""
        ...

    async def plan(self, call: CallView) -> Planned | ToolResult:
        """For `effect == "file"`: what would be written now; a result when it can't be done."""
        ...

    async def run(self, run: ToolRun) -> ToolResult:
        """Do it. Never raises for what a tool can meet: errors are results."""
        ...

    def now(self, planned_path: str) -> str | None:
        """sha256 of a file's bytes as it is now; None: no file."""
        ...


class Policy(Protocol):
    """Decides what may run."""

    def check(self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]) -> Verdict: ...

    def choices(self, call: CallView, risk: Risk, verdict: Verdict) -> tuple[Choice, ...]:
        """What a person may answer."""
        ...

    def narrow(self, call: CallView, risk: Risk, choice: Choice, mode: str) -> SessionRule | None:
        """The rule that an always-choice stands for; None when it can't be narrowed."""
        ...


@dataclass(frozen=True)
class JournalRow:
    """What the journal knows of one attempt."""

    key: CallKey
    state: Literal["scheduled", "intent", "done"]
    tool: str
    args_hash: str
    planned: Planned | None
    result: ToolResult | None
    epoch: int


class Journal(Protocol):
    """The effect journal (`engine.md` 12, 13). Every method is one committed transaction."""

    def find(self, key: CallKey, call: CallView) -> JournalRow | None:
        """Raises `RunError` when the row names another tool or other arguments."""
        ...

    def amend(self, key: CallKey, call: CallView) -> None:
        """Record the arguments of a later attempt, when they aren't those of the chain."""
        ...

    def call(self, key: CallKey) -> CallView:
        """The call as this attempt has it: amended arguments, or the chain's."""
        ...

    def intend(self, key: CallKey, call: CallView, planned: Planned | None = None) -> None:
        """Commit (power-safe) that an effect is about to happen."""
        ...

    def finish(self, key: CallKey, call: CallView, result: ToolResult) -> None:
        """Commit the result."""
        ...


class Approvals(Protocol):
    """Requests to people, and their answers."""

    def ask(self, request: ApprovalRequest) -> str:
        """Write the request, idempotently by its key; its id, which contains the run."""
        ...

    def get(self, key: str) -> ApprovalRequest | None: ...

    def answer(self, key: str) -> Answer | None:
        """The answer to the request with this key, once there is one."""
        ...

    def session_rules(self) -> list[SessionRule]:
        """What always-choices of this run stand for."""
        ...

    def add_session_rule(self, key: str, rule: SessionRule) -> None: ...


class ContextSource(Protocol):
    """System prompt, environment and memory files of the workspace."""

    async def opening(self, tools: Sequence[ToolDeclaration]) -> list[Message]:
        """The messages before the first prompt: one system message, one user message of origin `context`."""
        ...


class Steps(Protocol):
    """Times and routes of nodes; the saver keeps them as rows (`engine.md` 3)."""

    def started(self, task: str, namespace: str, node: str, workflow: str) -> None: ...

    def ended(self, task: str, ms: float, keys: Sequence[str]) -> None: ...

    def routed(self, task: str, label: str) -> None: ...


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
    steps: Steps


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
