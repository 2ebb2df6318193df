"""toolset: what nodes ask of tools and of policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from interlock.state.calls import (
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
from interlock.state.events import Emit
from interlock.state.form import FilledForm
from interlock.state.models import ToolDeclaration


@dataclass(frozen=True)
class ToolInfo:
    """What scheduling must know of a tool."""

    name: str
    risk: Risk
    alone: bool
    """Runs by itself, in order (it writes, executes, or asks)."""
    effect: Literal["none", "file", "other"]
    """`file`: proves itself by its hashes after a crash; `other`: when the outcome is unknown, a person is asked."""
    kind: Literal["tool", "agent", "review"] = "tool"
    """How it is executed, see `state/tooling.py`."""


@dataclass(frozen=True)
class ToolRun:
    """One execution: what a tool may use while it runs."""

    key: CallKey
    call: CallView
    emit: Emit
    time_left_s: float | None = None
    """What the sub-agent that makes the call has left of its time; None: no limit."""
    planned: Planned | None = None
    """For `effect == "file"`: what the intent row holds. With it a run after a crash gives the same result."""
    given: tuple[FilledForm, ...] = ()
    """What a person gave of what the call's server asked for."""
    shown: str = ""
    """The preview that a person approved; empty: nobody was asked."""


@dataclass(frozen=True)
class FileNow:
    """A file that a call wants to change, as it is when the call's turn comes."""

    path: str
    """Absolute real path."""
    shown: str
    """As people and models see it."""
    data: bytes | None
    """None: no file."""
    modified_at: float
    """Unix time of its last write, seconds; 0: there is none on the disk."""


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

    def writes(self, call: CallView) -> list[str] | None:
        """Files that a call of this shape changes, relative to the workspace, links followed; None: it names none."""
        ...

    def summary(self, call: CallView) -> str:
        """One line for people."""
        ...

    async def preview(self, call: CallView, earlier: Sequence[CallView]) -> Preview:
        """What the call would do, after the `earlier` calls of its batch were done."""
        ...

    async def file(self, call: CallView, earlier: Sequence[CallView]) -> FileNow | ToolResult:
        """The text file that the call names by `file_path`, after the `earlier` calls of its batch were done."""
        ...

    async def plan(self, call: CallView, run: ToolRun | None = None) -> Planned | ToolResult:
        """For `effect == "file"`: what would be written now; a result when it can't be done. `run`: it is for this."""
        ...

    async def run(self, run: ToolRun) -> ToolResult:
        """Do it. Never raises for what a tool can meet: errors are results."""
        ...

    def now(self, planned_path: str) -> str | None:
        """sha256 of a file's bytes as it is now; None: no file."""
        ...


class Policy(Protocol):
    """Decides what may run."""

    async def decide(self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]) -> Verdict:
        """What the rules say, and then safety checkers, which may be processes."""
        ...

    def only_reads(self, call: CallView) -> bool:
        """Whether a call with effects is a command that is known to change nothing."""
        ...

    def fingerprint(self) -> str:
        """Of the rules in force: with the same a call is decided alike."""
        ...

    def choices(self, call: CallView, risk: Risk, verdict: Verdict) -> tuple[Choice, ...]:
        """What a person may answer."""
        ...

    def narrow(self, call: CallView, risk: Risk, choice: Choice, mode: str) -> SessionRule | None:
        """The rule that an always-choice stands for; None when it can't be narrowed."""
        ...

    def save(self, risk: Risk, rule: SessionRule, note: str) -> None:
        """Keep a narrowed rule for later runs, too. Blocks for the disk; twice is harmless. Raises `RunError`."""
        ...
