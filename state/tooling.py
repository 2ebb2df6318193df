"""tooling: what a tool is, what it may use while it runs, and what nodes ask of tools and of policy."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, create_model

from interlock.state.calls import (
    CallKey,
    CallView,
    Choice,
    FilledForm,
    Planned,
    Preview,
    Risk,
    SavedRules,
    SessionRule,
    ToolResult,
    Verdict,
)
from interlock.state.events import Emit
from interlock.state.messages import Feature, Message, ToolDeclaration
from interlock.state.search import CodeIndex
from interlock.state.settings import Settings
from interlock.state.workspace import PathRefused, Place, Workspace


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    how: Literal["exited", "timeout", "inactivity", "not_started", "limit", "lost"]
    """`limit`: it used too much, as `excess` says; `lost`: its supervisor was killed, so what came of it is unknown."""
    exit_code: int | None
    """Null when a signal ended it."""
    signal: str | None
    output: str
    """stdout and stderr as they came, decoded as UTF-8 with replacement; past the limit without its middle."""
    omitted: int
    """Characters left out of `output`."""
    full_output: Path | None
    """File with every byte, when something was left out."""
    duration_s: float
    note: str = ""
    """Set when `full_output` is missing or not complete: why."""
    excess: str = ""
    """What it used too much of, where that is why it was ended."""
    hint: str = ""
    """Set when the sandbox may be why the command failed: what it keeps from commands."""


class Processes(Protocol):
    """Supervised processes: whatever becomes of the run, none outlives it (`engine.md` 16)."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        inactivity_s: float = 0,
        limit_chars: int = 40_000,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[str], None] | None = None,
        ours: bool = False,  # a program that does a tool's work, not a command of the model's: never sandboxed
    ) -> Ended:
        """Run to the end; 20 % head and 80 % tail of the output are kept past the limit, the rest is in a file."""
        ...

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        label: str,
        env: Mapping[str, str] | None = None,
        ours: bool = False,
    ) -> int:
        """Start in the background; the pid of the command. Output goes to a file in `outputs/`."""
        ...

    def background(self) -> Sequence[Mapping[str, Any]]:
        """Background processes of this drive: {pid, label, running, exit_code, output_file}."""
        ...


class Outputs(Protocol):
    """`outputs/` in the state directory: content-addressed files, fsynced before they are named (`engine.md` 10)."""

    def save(self, data: bytes, suffix: str = ".txt") -> Path: ...

    def new_spool(self) -> Path:
        """A fresh file name in `outputs/` to write while something runs."""
        ...


@dataclass(frozen=True)
class ToolContext:
    """What a tool may use. `emit_output` streams live output to people."""

    key: CallKey
    workspace: Workspace
    processes: Processes
    outputs: Outputs
    settings: Settings
    emit_output: Callable[[str], None]
    call_id: str = ""
    time_left_s: float | None = None
    """Seconds that the call may take; None: as long as the tool lets it."""
    shown: str = ""
    """The preview that a person approved; empty: nobody was asked."""
    instructions: Callable[[str], str] = str
    """The text of `prompts/instructions/NAME.md`."""
    index: Callable[[], CodeIndex] | None = None
    """The index of the workspace's code; it is loaded when it is first asked for."""
    ask: "Ask | None" = None
    """Puts a question to the model of a role; None: the call is only previewed."""


Ask = Callable[[str, Sequence[Message], Feature], Awaitable[Message]]
"""Role, messages, what the model may do besides → its answer. Asked again by the same call, it is not paid again.
Raises `ToolError`."""


class Args(BaseModel):
    """Base of a tool's arguments; the descriptions of their fields are what the model reads."""

    model_config = ConfigDict(extra="forbid")


@cache
def naming(args: type[BaseModel], field: str, names: tuple[str, ...], missing: str) -> type[BaseModel]:
    """The same arguments, one of which takes only these names. `missing`: told of any other, before what there is."""

    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"{missing}; there are {', '.join(names)}")
        return name

    listed = Field(description=args.model_fields[field].description, json_schema_extra={"enum": list(names)})
    fields: Any = {field: (Annotated[str, AfterValidator(known)], listed)}
    return create_model(args.__name__, __base__=args, **fields)


class FileChange(BaseModel):
    """What a file tool wants to write. `before` null: there is no file yet."""

    path: str
    before: bytes | None
    after: bytes
    message: str
    """What the model is told once it is written."""
    diff: str


def always(result: ToolResult) -> "Run":
    """What a tool does whose calls the graph reads or answers itself."""

    async def run(args: Any, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
        return result

    return run


ToolKind = Literal["tool", "agent", "review"]
"""How a call is executed: by its tool, as a sub-agent, or by a person who reviews a plan."""
Run = Callable[[Any, ToolContext], Awaitable[ToolResult]]
Plan = Callable[[Any, ToolContext, Mapping[str, bytes]], Awaitable[FileChange]]
"""Computes a change without making it; the mapping holds files as earlier calls of the batch will leave them."""
PreviewText = Callable[[Any, ToolContext], Awaitable[Preview]]
"""Like the others it may raise `ToolError`."""


@dataclass(frozen=True)
class Tool:
    """One tool: what a model can call. Exactly one of `run` and `plan` is set."""

    name: str
    description: str
    args: type[BaseModel]
    """Its field descriptions are what the model reads."""
    risk: Risk
    summary: Callable[[Any], str]
    """One line for people, from the parsed arguments."""
    run: Run | None = None
    plan: Plan | None = None
    """For tools that write one file: the caller journals and writes."""
    preview: PreviewText | None = None
    """With `plan`: what it will write can't be known before somebody has allowed it."""
    paths: Callable[[Any], Sequence[tuple[str, Literal["read", "write"]]]] = lambda _: ()
    """Paths among the arguments, checked before anything else happens."""
    kind: ToolKind = "tool"
    idempotent: bool = False
    """May be done again after a crash without asking (tools with effects only)."""
    aliases: tuple[str, ...] = ()
    installed: Callable[[], bool] = lambda: True
    """Models are only told of it where what it needs is there."""


__all__ = [
    "CallKey",
    "Ended",
    "FileChange",
    "Outputs",
    "PathRefused",
    "Place",
    "Planned",
    "Processes",
    "Tool",
    "ToolContext",
    "ToolResult",
    "Workspace",
]


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

    def save(self, risk: Risk, rule: SessionRule, note: str) -> SavedRules | None:
        """Keep a narrowed rule for later runs, too; null where it is there already.

        Blocks for the disk; twice is harmless. Raises `RunError`.
        """
        ...
