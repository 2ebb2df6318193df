"""tooling: what a tool is, what it can use while running, and protocols of the toolset and policy."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from pydantic import AfterValidator, BaseModel, Field, create_model

from interlock.state.calls import (
    CallKey,
    CallView,
    Choice,
    Planned,
    Preview,
    Risk,
    SavedRules,
    SessionRule,
    ToolResult,
    Verdict,
)
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.events import Emit
from interlock.state.forms import FilledForm
from interlock.state.messages import Feature, Message, ToolDeclaration
from interlock.state.search import CodeIndex
from interlock.state.seen import ChangedFile, SeenFile, SeenFiles
from interlock.state.settings import Settings
from interlock.state.workspace import NO_CONVENTIONS, FileConventions, Workspace


@dataclass(frozen=True)
class ProcessEnd:
    """How a process ended, and what it wrote."""

    how: Literal["exited", "timeout", "inactivity", "not_started", "limit", "lost"]
    """`limit`: exceeded a limit, see `excess`; `lost`: its supervisor was killed, so the outcome is unknown."""
    exit_code: int | None
    """Null if killed by a signal."""
    signal: str | None
    output: str
    """Interleaved stdout and stderr, decoded as UTF-8 with replacement; past the limit, the middle is cut."""
    omitted: int
    """Characters cut from `output`."""
    full_output: Path | None
    """File with every byte, if anything was cut."""
    duration_s: float
    note: str = ""
    """Why `full_output` is missing or incomplete; else empty."""
    excess: str = ""
    """The resource it overused, if that is why it was killed."""
    left_running: str = ""
    """Names of the programs that the command left running, and that were ended with it; unknown in a sandbox."""
    hint: str = ""
    """Set when the sandbox may have caused the failure: what it withholds from commands."""


class Processes(Protocol):
    """Supervised processes: none outlives the run (`docs/internals.md#supervised-processes`)."""

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
        on_errors: Callable[[bytes], None] | None = None,  # takes stderr, which else is part of the output
        trusted_helper: bool = False,  # a helper program of a tool, not a command of the model's: never sandboxed
    ) -> ProcessEnd:
        """Run to completion; past the limit, `output` keeps 20 % head and 80 % tail, and a file has all of it."""
        ...

    async def start_in_background(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        label: str,
        env: Mapping[str, str] | None = None,
        trusted_helper: bool = False,
    ) -> int:
        """Start in the background, with output going to a file in `outputs/`; returns the command's pid."""
        ...

    def list_background_processes(self) -> Sequence[Mapping[str, Any]]:
        """This drive's background processes: {pid, label, running, exit_code, output_file}."""
        ...


class ProblemFinder(Protocol):
    """Finds problems that an edit brings, with the project's language servers."""

    def has_server_for(self, path: Path) -> bool:
        """Return whether any server checks files of this name, installed or not."""
        ...

    def start_check(self, path: Path, before: str | None, after: str) -> asyncio.Task[str | None]:
        """Compare a file's text before (None: no file) and after an edit; what is on the disk doesn't matter.

        The task returns lines for the model, or an empty string; None: no server is installed. It doesn't raise.
        """
        ...


class Outputs(Protocol):
    """`outputs/` in the state directory: content-addressed files, fsynced before they are named.

    `docs/internals.md#files-before-rows`.
    """

    @property
    def state_directory(self) -> Path: ...

    def save_bytes(self, data: bytes, suffix: str = ".txt") -> Path: ...

    def create_spool_file(self) -> Path:
        """A fresh file name in `outputs/`, to be written while something runs."""
        ...

    def rename_spool_to_digest(self, spool: Path, digest: str) -> Path:
        """Rename such a file, already synced, to its sha256 (hex)."""
        ...

    def mark_spool_finished(self, spool: Path) -> None:
        """Nothing writes to such a file any more, and it keeps its name."""
        ...


Reach = Literal["approved", "named", "any"]
"""Private addresses (this machine, its network, where clouds keep credentials) that a call may connect to: `approved`:
what a person was shown as such; `named`: also those that the URL itself names; `any`: where nothing is asked."""


@dataclass(frozen=True)
class ToolContext:
    """What a tool can use. `emit_output` streams live output to people."""

    key: CallKey
    workspace: Workspace
    processes: Processes
    outputs: Outputs
    settings: Settings
    emit_output: Callable[[str], None]
    time_left_s: float | None = None
    """Seconds the call may take; None: the tool's own limit."""
    shown: str = ""
    """The preview a person approved; empty: no approval was needed."""
    reach: Reach = "approved"
    instructions: Callable[[str], str] = str
    """Name → text of `prompts/instructions/NAME.md`."""
    index: Callable[[], CodeIndex] | None = None
    """The index of the workspace's code, loaded on first use."""
    seen: SeenFiles | None = None
    """What the conversation knows of files; None: there is no conversation."""
    accepts_guess: bool = False
    """Whether new text may be written in a guessed encoding: when a person is shown what it would be."""
    ask: "AskModel | None" = None
    """Asks the model of a role; None: the call is only being previewed."""


AskModel = Callable[[str, Sequence[Message], Feature], Awaitable[Message]]
"""Role, messages, extra feature → the model's answer; replayed if the same call asks again. Raises `ToolError`."""


class Args(BaseModel, extra="forbid", defer_build=True):
    """Base of a tool's arguments; the descriptions of their fields are what the model reads."""


FilePath = Annotated[
    str, Field(min_length=1, description="Path of the file, relative to the workspace or absolute inside it.")
]


@cache
def restrict_field(
    args: type[BaseModel], field: str, allowed: tuple[str, ...], error_prefix: str
) -> type[BaseModel]:
    """`args` with one field restricted to these names. `error_prefix` starts the error for any other name."""

    def known(name: str) -> str:
        if name not in allowed:
            raise ValueError(f"{error_prefix}; there are {', '.join(allowed)}")
        return name

    listed = Field(
        description=args.model_fields[field].description, json_schema_extra={"enum": list(allowed)}
    )
    fields: Any = {field: (Annotated[str, AfterValidator(known)], listed)}
    return create_model(args.__name__, __base__=args, **fields)


class FileChange(BaseModel, defer_build=True):
    """What a file tool wants to write. `before` is null for a new file."""

    path: str
    before: bytes | None
    after: bytes
    message: str
    """What the model reads after the write."""
    diff: str
    how: str = ""
    """What found the place of the change."""
    part: bool = False
    """The model knows only some of the file's text."""


def make_run_that_returns(result: ToolResult) -> "Run":
    """`run` of a tool whose calls the graph reads or answers itself."""

    async def run(args: Any, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
        return result

    return run


ToolKind = Literal["tool", "agent", "review"]
"""How a call is executed: by its tool, as a sub-agent, or as a person's review of a plan."""
Run = Callable[[Any, ToolContext], Awaitable[ToolResult]]
Plan = Callable[[Any, ToolContext, Mapping[str, bytes]], Awaitable[FileChange]]
"""Computes a change without making it; the mapping has files as earlier calls of the batch will leave them."""
PreviewText = Callable[[Any, ToolContext], Awaitable[Preview]]
"""May raise `ToolError`, like the others."""


@dataclass(frozen=True)
class Tool:
    """One tool a model can call. Exactly one of `run` and `plan` is set."""

    name: str
    description: str
    args: type[BaseModel]
    """The model reads its field descriptions."""
    risk: Risk
    summary: Callable[[Any], str]
    """One line for people, from the parsed arguments."""
    run: Run | None = None
    plan: Plan | None = None
    """For tools that write one file: computes the change, which the caller journals and writes."""
    preview: PreviewText | None = None
    """With `plan`: used when the content isn't known until the call is approved."""
    paths: Callable[[Any], Sequence[tuple[str, Literal["read", "write"]]]] = lambda _: ()
    """Paths among the arguments, checked first."""
    kind: ToolKind = "tool"
    idempotent: bool = False
    """May be rerun after a crash without asking (only for tools with effects)."""
    aliases: tuple[str, ...] = ()
    installed: Callable[[], bool] = lambda: True
    """Whether its requirements are installed; if not, models aren't offered it."""

    def make_renamed_copy(
        self, name: str, args: type[BaseModel], convert_args: Callable[[Any], BaseModel]
    ) -> "Tool":
        """The same tool by another name and with other arguments, which `convert_args` converts to its own."""

        def taking(function: Callable[..., Any]) -> Callable[..., Any]:
            def call(given: Any, *rest: Any) -> Any:
                return function(convert_args(given), *rest)

            return call

        ways = {way: getattr(self, way) for way in ("run", "plan", "preview", "summary", "paths")}
        taken = {way: function and taking(function) for way, function in ways.items()}
        return replace(self, name=name, args=args, aliases=(), **taken)


@dataclass(frozen=True)
class ToolInfo:
    """What scheduling needs to know about a tool."""

    name: str
    risk: Risk
    alone: bool
    """Runs alone and in order (it writes, executes or asks)."""
    effect: Literal["none", "file", "other"]
    """`file`: after a crash, hashes show if it was written; `other`: if the outcome is unknown, a person is asked."""
    kind: Literal["tool", "agent", "review"] = "tool"
    """How it is executed, see `ToolKind`."""


@dataclass(frozen=True)
class ToolRun:
    """One execution of a call."""

    key: CallKey
    call: CallView
    emit: Emit
    time_left_s: float | None = None
    """Time left for the calling sub-agent; None: no limit."""
    planned: Planned | None = None
    """For `effect == "file"`: contents of the intent row, so that a rerun after a crash gives the same result."""
    given: tuple[FilledForm, ...] = ()
    """Forms a person filled in for the call's server."""
    shown: str = ""
    """The preview a person approved; empty: no approval was needed."""
    reach: Reach = "approved"
    seen: SeenFiles | None = None
    """What the conversation knows of files; None: there is no conversation."""


@dataclass(frozen=True)
class TargetFile:
    """A file that a call wants to change, as of the call's turn."""

    path: str
    """Absolute real path."""
    shown: str
    """As shown to people and models."""
    data: bytes | None
    """None: no file."""
    modified_at: float
    """Last modification in Unix seconds; 0: not on disk."""
    conventions: FileConventions = NO_CONVENTIONS


class Toolset(Protocol):
    """Tools by name: built-in, discovered, and from MCP servers."""

    def declare_tools(self) -> list[ToolDeclaration]: ...

    def find_tool_info(self, name: str) -> ToolInfo | None:
        """Scheduling facts about a tool; None: no such tool."""
        ...

    def nearest_tool_names(self, name: str) -> list[str]:
        """Up to three tool names, nearest first."""
        ...

    def find_call_problem(self, call: CallView) -> str | None:
        """Why the arguments are invalid, naming the field; None: valid. Paths are checked here too."""
        ...

    def written_paths(self, call: CallView) -> list[str] | None:
        """Files such a call changes, relative to the workspace, links resolved; None: it names none."""
        ...

    def summarize_call(self, call: CallView) -> str:
        """One line for people."""
        ...

    async def preview_call(
        self, call: CallView, earlier: Sequence[CallView], seen: SeenFiles | None = None
    ) -> Preview:
        """What the call would do after the `earlier` calls of its batch. `seen`: as in `ToolRun`."""
        ...

    async def find_encoding_to_confirm(
        self, call: CallView, earlier: Sequence[CallView], seen: SeenFiles | None = None
    ) -> ConfirmedEncoding | None:
        """The guessed encoding in which the call would write new text; None: it wouldn't. As `preview_call`, but quick
        where the file's encoding is known."""
        ...

    async def read_file_to_edit(self, call: CallView, earlier: Sequence[CallView]) -> TargetFile | ToolResult:
        """The text file named by `file_path`, as the `earlier` calls of the batch leave it."""
        ...

    async def plan_change(self, call: CallView, run: ToolRun | None = None) -> Planned | ToolResult:
        """For `effect == "file"`: what would be written now, or a result if it can't be. `run`: the run it is for."""
        ...

    async def run_call(self, run: ToolRun) -> ToolResult:
        """Execute. Expected failures are results, never exceptions."""
        ...

    def confirm_encoding(self, confirmed: ConfirmedEncoding) -> None:
        """Write new text in an encoding from now on, as a person confirmed it."""
        ...

    def current_file_digest(self, planned_path: str) -> str | None:
        """sha256 of a file's current bytes; None: no file."""
        ...

    async def find_changed_files(
        self, known: Sequence[SeenFile], seen_files: SeenFiles
    ) -> Sequence[ChangedFile]:
        """Those of the files that are no longer as they were last seen, or as a model was told."""
        ...


class Policy(Protocol):
    async def decide_by_rules_and_checkers(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]
    ) -> Verdict:
        """Apply the rules, then safety checkers, which may be processes."""
        ...

    async def decide_by_rules(
        self, call: CallView, risk: Risk, mode: str, session: Sequence[SessionRule]
    ) -> Verdict:
        """Apply the rules alone, to the files as they are now."""
        ...

    def with_skill_rules(self, allowed: str) -> "Policy":
        """Return the same rules with what the user's own skills of this prompt allow, an entry a line."""
        ...

    def is_read_only_command(self, call: CallView) -> bool:
        """Whether a call with effects is a command known to change nothing. May block for seconds."""
        ...

    def allowed_private_network_reach(self, call: CallView, risk: Risk, mode: str) -> Reach:
        """Which private addresses a call may connect to."""
        ...

    def rules_fingerprint(self) -> str:
        """Hash of the rules in force: equal hashes mean equal decisions."""
        ...

    def server_fingerprint(self, tool: str) -> str:
        """Fingerprint of the definition of the MCP server that a tool belongs to; empty for other tools."""
        ...

    def offered_choices(
        self, call: CallView, risk: Risk, verdict: Verdict, mode: str = "default"
    ) -> tuple[Choice, ...]:
        """The answers a person may give. In plan mode, always means until the plan ends, and isn't saved.

        May block for seconds.
        """
        ...

    def session_rule_for_choice(
        self, call: CallView, risk: Risk, choice: Choice, mode: str
    ) -> SessionRule | None:
        """The narrowed rule for an always-choice; None if it can't be narrowed."""
        ...

    def save_rule(self, risk: Risk, rule: SessionRule, note: str) -> SavedRules | None:
        """Save a narrowed rule for later runs; null if already saved.

        Blocks on disk I/O; idempotent. Raises `RunError`.
        """
        ...


SHELL = frozenset({"run_shell_command", "execute_command"})
"""Tools whose argument `command` is a line of bash."""
