"""calls: tool calls: keys, verdicts, approval requests, answers, and results."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import Field, JsonValue, model_validator
from typing_extensions import TypedDict

from interlock.state.encodings import ConfirmedEncoding
from interlock.state.errors import ToolError as ToolError  # stands there for programs that need no pydantic
from interlock.state.messages import DataPart, Frozen, ToolStatus
from interlock.state.seen import SeenFile, UnseenTextError

Risk = Literal["read", "write", "execute", "network", "question", "state"]
"""What a call can do. `question` asks a person; `state` changes only the run itself (todos)."""
ApprovalMode = Literal["default", "auto_edit", "plan", "yolo"]
EDITS_ONLY = "edits only"
"""What decides on all but edits where a person allowed those and chose no mode: as `default`, and reasons say so."""
Decision = Literal["allow", "ask", "deny"]
Choice = Literal[
    "proceed_once",
    "proceed_always_edits",
    "proceed_always",
    "proceed_always_tool",
    "proceed_always_server",
    "proceed_always_and_save",
    "modify",
    "reject",
    "cancel",
]
RequestKind = Literal["approval", "question", "outcome"]
"""`approval`: may this call run? `question`: ask_user. `outcome`: a crash hid whether the call took effect."""


class CallKey(Frozen):
    """Identifies one attempt at one call within a run (`docs/internals.md#the-journals-key`)."""

    message: str
    """Id of the assistant record that contains the call."""
    index: int
    """0-based position of the call in that record."""
    attempt: int = 1
    """Incremented when a person, a hook or a helper changes the arguments, and when a person chooses redo."""

    def __str__(self) -> str:
        return f"{self.message}.{self.index}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "CallKey":
        message, index, attempt = text.rsplit(".", 2)
        return cls(message=message, index=int(index), attempt=int(attempt))

    @property
    def next_attempt(self) -> "CallKey":
        return self.model_copy(update={"attempt": self.attempt + 1})


class OneCall(TypedDict, total=False):
    """The call that a graph works on; fields as in `CallKey`."""

    message: str
    index: int
    attempt: int


def call_key_from_state(state: OneCall) -> CallKey:
    return CallKey(message=state["message"], index=state["index"], attempt=state.get("attempt", 1))


class CallView(Frozen):
    """What policy and tools see of a call."""

    id: str
    name: str
    args: dict[str, JsonValue]


class ShellPart(Frozen):
    """One simple command of a shell line, with the policy's verdict on it."""

    text: str
    decision: Decision
    reason: str


class SavedRules(Frozen):
    """The file of always-choices before and after a person's choice."""

    path: str
    before: str
    """Empty: the file didn't exist."""
    after: str


class SessionRule(Frozen):
    """An always-choice, narrowed: never blanket permission for a tool that can do harm."""

    tool: str
    commands: tuple[str, ...] = ()
    """Shell: each approved command, quoted for bash."""
    also: tuple[str, ...] = ()
    """Shell: for each command, what is covered beside it, in words; empty: nothing."""
    line: str = ""
    """Shell: the only line it covers, where what one part does depends on another: pipes and redirections."""
    path: str | None = None
    """Files: the workspace-relative path. Network: the host."""
    server: str | None = None
    program: str = ""
    """MCP: fingerprint of what stands behind the server's name; another program or address isn't covered."""
    modes: tuple[ApprovalMode, ...] = ()
    saved: str = ""
    """Where it will count once it is saved, in words; empty: in this run only."""

    @model_validator(mode="before")
    @classmethod
    def _migrate_command_prefixes(cls, stored: object) -> object:
        """Grants of 0.1 are leading words of commands, with any arguments: they now cover these words alone."""
        if not isinstance(stored, dict) or "command_prefixes" not in stored:
            return cast(object, stored)
        old = dict(cast(dict[str, object], stored))
        commands = old.pop("command_prefixes")
        old.pop("redirection", None)
        return {**old, "commands": commands}

    @property
    def scope_text(self) -> str:
        """The rule's scope in words, shown to the person who chooses it."""
        until = ", until the plan ends" if self.modes == ("plan",) else ""
        return self._covered_calls_description + (f", {self.saved}" if self.saved else until)

    @property
    def _covered_calls_description(self) -> str:
        if self.line:
            return f"exactly `{self.line}`"
        if self.commands:
            more = [*self.also, *[""] * len(self.commands)]
            pairs = [*zip(self.commands, more, strict=False)]
            exact = [f"`{command}`" for command, also in pairs if not also]
            varied = [f"`{command}` (also {also})" for command, also in pairs if also]
            return "; ".join([*([f"exactly {' and '.join(exact)}"] if exact else []), *varied])
        if self.server:
            return f"every tool of the MCP server {self.server}"
        return f"`{self.tool}` on {self.path}" if self.path else f"every call of `{self.tool}`"


class Verdict(Frozen):
    """The policy's verdict on a call."""

    decision: Decision
    rule: str
    """The deciding rule, with file and line if it has them."""
    reason: str
    """One line for people: why the call needs approval or is denied."""
    deny_message: str | None = None
    """Sent to the model when the call is denied."""
    parts: tuple[ShellPart, ...] = ()
    session: SessionRule | None = None
    """The always-choice that overrode an ask."""
    by_checker: bool = False
    """Decided by a safety checker, or since an address is private or an encoding guessed: no always-choice overrides
    it."""


class FileState(Frozen):
    """A file that a call touches: sha256 of its bytes in hex, or null if it doesn't exist."""

    path: str
    """Absolute real path, as `format_file_name` writes it."""
    sha256: str | None
    """State the call will find: after the earlier calls of its batch."""
    on_disk: str | None = None
    """State on disk when the request was made."""


class Preview(Frozen):
    """What a person sees when deciding on a call."""

    text: str
    """A unified diff for edits, the command for shell, the URL for a fetch."""
    files: tuple[FileState, ...] = ()
    """Files the call touches, as of the preview, with earlier edits of the batch applied."""
    problem: str | None = None
    """Set when the call would fail; it is then neither shown for approval nor run."""
    code: str = ""
    """The problem's error type, if it has one."""
    seen: tuple[SeenFile, ...] = ()
    """Files that the problem's text shows."""
    done: str = ""
    """What the model reads if the call would change nothing; it is then neither shown for approval nor run."""
    questions: tuple[dict[str, JsonValue], ...] = ()
    """For calls that ask a person: same as `ApprovalRequest.questions`."""
    confirms: ConfirmedEncoding | None = None
    """Set when the call writes new text in a guessed encoding, so that its approval confirms it."""


class ApprovalRequest(Frozen):
    """A request pending with a person. Persisted before the run stops (`docs/internals.md#requests-and-decisions`)."""

    key: str = ""
    """If absent, derived from the next three fields."""
    attempt: CallKey | None = None
    """The attempt in question; null if the request is about hooks or was written by an earlier version."""
    what: Literal["approval", "review", "question", "input", "outcome", "guidance", "completion", "tests"] = (
        "approval"
    )
    asked: int = 1
    """How many times this has been asked for the attempt."""
    kind: RequestKind
    call: CallView
    reason: str
    preview: str
    parts: tuple[ShellPart, ...] = ()
    files: tuple[FileState, ...] = ()
    choices: tuple[Choice, ...]
    always: dict[str, str] = Field(default_factory=dict[str, str])
    """Always-choice → what it would cover, in words."""
    parameters: tuple[str, ...] = ()
    """Arguments that an edit may name; empty: any."""
    agent: str = ""
    """Path of the calling sub-agent; empty: the main agent."""
    program: str = ""
    """MCP: fingerprint of the server's definition when the request was made (`Policy.server_fingerprint`)."""
    note: str | None = None
    """Set when asked again: what changed since the first time."""
    questions: tuple[dict[str, JsonValue], ...] = ()
    confirms: ConfirmedEncoding | None = None
    """The encoding that an approval confirms (`Preview.confirms`)."""
    alike: int = 1
    """How many parallel questions of a graph this one stands for, as nothing tells them apart."""

    @model_validator(mode="after")
    def _derive_missing_key(self) -> "ApprovalRequest":
        if not self.key:
            object.__setattr__(self, "key", f"{self.attempt}:{self.what}:{self.asked}")
        return self


class Answer(Frozen):
    """A person's decision. Immutable once written."""

    choice: Choice
    feedback: str | None = None
    args: dict[str, JsonValue] | None = None
    """New arguments for `modify`."""
    text: str | None = None
    """The answer to a question; for an outcome, `redo` or `skip`."""
    by: str = ""
    door: str = ""
    """Where it was given: terminal, page, editor, program, or a flag such as `--approve`."""
    at: float = 0.0
    """Unix time, seconds."""


class ToolResult(Frozen):
    """The result of a call. `content` is what the model reads."""

    status: ToolStatus
    content: str
    error: dict[str, str] | None = None
    """`{type, message}` unless status is success."""
    meta: dict[str, JsonValue] = Field(default_factory=dict)
    """For people and renderers: summary, diff, exit code, path of the full output."""
    stop: str | None = None
    """Set when the run must end after this batch: the reason."""
    data: tuple[DataPart, ...] = ()
    """Images and files sent to the model along with the text, which names them."""
    seen: tuple[SeenFile, ...] = Field(default=(), exclude=True)
    """Files that the result shows; the journal keeps them beside it."""


class Planned(Frozen):
    """A file change computed but not yet made; the intent row needs it to verify the write after a crash."""

    path: str
    """Absolute real path, as `format_file_name` writes it."""
    before: str | None
    after: str | None
    """sha256 of the bytes in hex; null: no file."""
    message: str = ""
    """Message for the model after the write; stored so that a crash after the write doesn't change its wording."""
    diff: str = ""
    how: str = Field("", exclude=True)
    """What found the place of the change; not stored."""
    part: bool = False
    """The model knows only some of the file's text."""


def error_result(kind: str, message: str, **meta: JsonValue) -> ToolResult:
    """An error result; the model reads `message`."""
    return ToolResult(status="error", content=message, error={"type": kind, "message": message}, meta=meta)


def tool_error_result(error: ToolError) -> ToolResult:
    """The result that answers a call which failed so."""
    seen = error.seen if isinstance(error, UnseenTextError) else ()
    return error_result(error.kind, str(error)).model_copy(update={"seen": seen})


def cancelled_result(message: str) -> ToolResult:
    """The result of a call that never ran or was stopped."""
    return ToolResult(status="cancelled", content=message, error={"type": "cancelled", "message": message})


class CallOutcome(TypedDict, total=False):
    """Outcome of deciding a call and, later, of executing it."""

    word: Literal["ready", "answered", "cancel", "done", "stop"]
    """After decide: the call may run (`ready`), is answered without running, or a person cancelled its whole batch.
    After execute: it is done, or done and a hook ends the run."""
    attempt: int
    approval: str
    """If ready: key of the approved request; empty: no approval was needed."""
    by_hook: bool
    """If ready: a hook produced the arguments."""
    by_person: bool
    """If ready: a person wrote the arguments, which approves them."""
    record: str
    """If finished: chain record sent to the model in place of the result; empty: the result itself."""


def parse_call_outcome(stored: CallOutcome | str) -> CallOutcome:
    """Parse an outcome. Runs of 0.1 store `WORD ATTEMPT APPROVAL-OR-RECORD`, with `changed` for `ready` by a hook."""
    if not isinstance(stored, str):
        return stored
    word, attempt, more = f"{stored}  ".split(" ")[:3]
    if word in ("ready", "changed"):
        by_hook = word == "changed"
        return {"word": "ready", "attempt": int(attempt), "approval": more, "by_hook": by_hook}
    return {"word": cast(Any, word), "attempt": int(attempt), "record": more}


T = TypeVar("T")


def merge_by_key(old: Mapping[str, T] | None, new: Mapping[str, T] | None) -> dict[str, T]:
    """Reducer: merges outcomes by call index; `None` clears them (the join resets)."""
    return {} if new is None else {**(old or {}), **new}
