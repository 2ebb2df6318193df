"""calls: a tool call's key, verdict, approval request, answer, what its server asks for, and its result."""

from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

from pydantic import Field, JsonValue, model_validator
from typing_extensions import TypedDict

from interlock.state.messages import DataPart, Frozen, ToolStatus

Risk = Literal["read", "write", "execute", "network", "question", "state"]
"""What a call can do. `question` asks a person; `state` changes only the run itself (todos)."""
ApprovalMode = Literal["default", "auto_edit", "plan", "yolo"]
Decision = Literal["allow", "ask", "deny"]
Choice = Literal[
    "proceed_once",
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
    """Names one attempt at one call, within a run: the journal's key (`engine.md` 12)."""

    message: str
    """Id of the assistant record that holds the call."""
    index: int
    """0-based place of the call in that record."""
    attempt: int = 1
    """Grows when a decision or a hook changes the arguments, and when a person says redo."""

    def __str__(self) -> str:
        return f"{self.message}.{self.index}.{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "CallKey":
        message, index, attempt = text.rsplit(".", 2)
        return cls(message=message, index=int(index), attempt=int(attempt))

    @property
    def next(self) -> "CallKey":
        """The attempt after this one."""
        return self.model_copy(update={"attempt": self.attempt + 1})


class OneCall(TypedDict, total=False):
    """What a graph that is about one call knows of it, as in `CallKey`."""

    message: str
    index: int
    attempt: int


def key_of(state: OneCall) -> CallKey:
    return CallKey(message=state["message"], index=state["index"], attempt=state.get("attempt", 1))


class CallView(Frozen):
    """What policy and tools see of a call."""

    id: str
    name: str
    args: dict[str, JsonValue]


class ShellPart(Frozen):
    """One simple command of a shell line, and what policy says of it."""

    text: str
    decision: Decision
    reason: str


class SavedRules(Frozen):
    """The file of always-choices, as a person's choice changed it."""

    path: str
    before: str
    """Empty: there was none."""
    after: str


class SessionRule(Frozen):
    """An always-choice, narrowed: never a blanket permission for a tool that can do harm."""

    tool: str
    command_prefixes: tuple[str, ...] = ()
    """Shell: the leading words of each simple command that was approved, e.g. `git status`."""
    path: str | None = None
    """Files: the workspace-relative path. Network: the host."""
    server: str | None = None
    redirection: bool = False
    modes: tuple[ApprovalMode, ...] = ()

    @property
    def covers(self) -> str:
        """In words for the person who chooses it."""
        if self.command_prefixes:
            begin = " or ".join(f"`{prefix}`" for prefix in self.command_prefixes)
            return f"commands that begin with {begin}" + (", redirections too" if self.redirection else "")
        if self.server:
            return f"every tool of the MCP server {self.server}"
        return f"{self.tool} with {self.path}" if self.path else f"every call of {self.tool}"


class Verdict(Frozen):
    """What policy says of a call."""

    decision: Decision
    rule: str
    """The deciding rule, with its file and line where it has one."""
    reason: str
    """One line for people: why this is asked or denied."""
    deny_message: str | None = None
    """For the model, when denied."""
    parts: tuple[ShellPart, ...] = ()
    session: SessionRule | None = None
    """The always-choice of a person that lifted an ask."""
    by_checker: bool = False
    """A safety checker decided it: no rule lifts that."""


class FileState(Frozen):
    """A file that a call touches: sha256 of its bytes in hex, or null where there is no file."""

    path: str
    """Absolute real path."""
    sha256: str | None
    """As the call will find it: after the earlier calls of its batch."""
    on_disk: str | None = None
    """As it was on the disk when the request was made."""


class Preview(Frozen):
    """What a person decides on."""

    text: str
    """A unified diff for edits, the command for shell, the URL for a fetch."""
    files: tuple[FileState, ...] = ()
    """The files that the call touches, as they are when the preview is made; earlier edits of the batch applied."""
    problem: str | None = None
    """Set when the call would fail as it stands; then nobody is asked, and it isn't run."""
    code: str = ""
    """The problem's error type, where it has one."""
    questions: tuple[dict[str, JsonValue], ...] = ()
    """Of a call that asks a person: as `ApprovalRequest.questions`."""


class ApprovalRequest(Frozen):
    """What waits for a person. Written before the run stops; `engine.md` 14."""

    key: str = ""
    """Absent: made of the three that follow."""
    attempt: CallKey | None = None
    """At the call that it is about; null: it is about hooks, or an earlier version wrote it."""
    what: Literal["approval", "review", "question", "input", "outcome", "guidance", "completion"] = "approval"
    asked: int = 1
    """How often this was asked of the attempt."""
    kind: RequestKind
    call: CallView
    reason: str
    preview: str
    parts: tuple[ShellPart, ...] = ()
    files: tuple[FileState, ...] = ()
    choices: tuple[Choice, ...]
    always: dict[str, str] = Field(default_factory=dict[str, str])
    """Always-choice → what it would cover, in words."""
    agent: str = ""
    """Path of the sub-agent whose call it is; empty: the main agent's."""
    note: str | None = None
    """Set when it is asked again: what changed since it was first shown."""
    questions: tuple[dict[str, JsonValue], ...] = ()

    @model_validator(mode="after")
    def _with_key(self) -> "ApprovalRequest":
        if not self.key:
            object.__setattr__(self, "key", f"{self.attempt}:{self.what}:{self.asked}")
        return self


class Answer(Frozen):
    """A person's decision. Immutable once written."""

    choice: Choice
    feedback: str | None = None
    args: dict[str, JsonValue] | None = None
    """New arguments, for `modify`."""
    text: str | None = None
    """The answer to a question; for an outcome `redo` or `skip`."""
    by: str = ""
    at: float = 0.0
    """Unix time, seconds."""


class ToolResult(Frozen):
    """What a call came to. `content` is what the model reads."""

    status: ToolStatus
    content: str
    error: dict[str, str] | None = None
    """`{type, message}` when status isn't success."""
    meta: dict[str, JsonValue] = Field(default_factory=dict)
    """For people and renderers: summary, diff, exit code, path of the full output."""
    stop: str | None = None
    """Set when the run must end after this batch; the reason."""
    data: tuple[DataPart, ...] = ()
    """Pictures and files that models are shown beside the text, which names them."""


class Planned(Frozen):
    """A file change that was computed but not made: what the intent row needs to prove itself afterwards."""

    path: str
    before: str | None
    after: str | None
    """sha256 of the bytes, hex; null: no file."""
    message: str = ""
    """What the model is told once it is written; kept, so that a crash after the write changes no word of it."""
    diff: str = ""


def failure(kind: str, message: str, **meta: JsonValue) -> ToolResult:
    """An error result; the model reads `message`."""
    return ToolResult(status="error", content=message, error={"type": kind, "message": message}, meta=meta)


class ToolError(Exception):
    """Why a call can't be done, as the result that answers it: raised from anywhere below a tool's functions."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.result = kind, failure(kind, message)


def cancelled(message: str) -> ToolResult:
    """The answer of a call that never ran, or was stopped."""
    return ToolResult(status="cancelled", content=message, error={"type": "cancelled", "message": message})


class CallOutcome(TypedDict, total=False):
    """What deciding a call came to, and later what executing it did."""

    word: Literal["ready", "answered", "cancel", "done", "stop"]
    """After decide: it may run, it is answered without, or a person cancelled its whole batch. After execute: it is
    done, or done and a hook ends the run."""
    attempt: int
    approval: str
    """Of one that is ready: key of the request that was approved; empty: nobody was asked."""
    by_hook: bool
    """Of one that is ready: a hook made its arguments."""
    record: str
    """Of one that is over: chain record of what the model is sent in place of the result; empty: the result."""


def outcome_of(stored: CallOutcome | str) -> CallOutcome:
    """Runs of 0.1 hold `WORD ATTEMPT APPROVAL-OR-RECORD`, and `changed` for one that is ready by a hook."""
    if not isinstance(stored, str):
        return stored
    word, attempt, more = f"{stored}  ".split(" ")[:3]
    if word in ("ready", "changed"):
        by_hook = word == "changed"
        return {"word": "ready", "attempt": int(attempt), "approval": more, "by_hook": by_hook}
    return {"word": cast(Any, word), "attempt": int(attempt), "record": more}


T = TypeVar("T")


def merge_by_key(old: Mapping[str, T] | None, new: Mapping[str, T] | None) -> dict[str, T]:
    """Reducer: call index → what is known of it; `None` empties it (the join's reset)."""
    return {} if new is None else {**(old or {}), **new}


class Form(Frozen):
    """One request for input."""

    message: str
    """The server's own words; what is shown of them is made visible."""
    fields: dict[str, dict[str, JsonValue]] = Field(default_factory=dict[str, dict[str, JsonValue]])
    """Name → JSON schema of a single value, as the server gave it; none: only a yes is asked for."""
    needed: tuple[str, ...] = ()
    url: str = ""
    """A page that the person is to visit."""


class FilledForm(Frozen):
    """A form, with what a person gave for each field."""

    form: Form
    values: dict[str, JsonValue]
