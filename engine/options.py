"""options: how a run is driven. Plain data, so that the fast commands can use it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.state.calls import Choice, RequestKind
    from interlock.state.events import Event

Renderer = Callable[["Event"], None]
"""Consumes events on a thread of its own; may block or raise without harm to the run.

One that has a method `flush` may keep what it shows until that is called: after the last of several events."""

WORKFLOWS_FOLDER = Path(".interlock") / "workflows"
"""Where users' workflows are looked for: below a workspace or the user's home."""
WORKFLOWS_GROUP = "interlock.workflows"
"""Of entry points."""

HEARTBEAT_STALE_S = 30.0
"""Seconds without a heartbeat, by the challenger's monotonic clock, until a living owner is replaced (`engine.md` 17).

C code that holds the interpreter for longer stops the heartbeats and so loses the run."""


@dataclass(frozen=True)
class Options:
    """What the door says about a drive. None means: the settings decide."""

    home: Path
    """State directory: store, outputs."""
    user_home: Path = field(default_factory=Path.home)
    """Where the user's settings and memory files lie."""
    workspace: Path | None = None
    model: str | None = None
    approval_mode: str | None = None
    mode: str | None = None
    """Of work; None: the run's own."""
    protocol: str | None = None
    task_path: str = ""
    """Of a subtask: ids of the calls that it was asked for by; its scripted replies are chosen by that."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings from flags, in Gemini's nested keys."""
    include_directories: tuple[Path, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    policy_files: tuple[Path, ...] = ()
    admin_policies: tuple[Path, ...] | None = None
    """Folders of the admin's rules, instead of those of this machine."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    record_to: Path | None = None
    fake: Path | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    compress: bool = False
    """The conversation of a run that has ended is compressed now; in a prompt's place."""
    rights: Mapping[str, Any] | None = None
    """The rules that the run began with (`engine/driver/rights.py`); None: it begins now."""
    source: Mapping[str, str] | None = None
    """Where the run's workflow is declared, and the hash of that (`engine/workflows.py`); None: it is one of ours."""
    new_rules: bool = False
    """A person confirmed the rules as they are now."""
    ide_context: Path | None = None
    """JSON file in which an editor keeps what is open."""
    attach: tuple[Path, ...] = ()
    """Files that go with the prompt."""
    notes: tuple[tuple[str, str], ...] = ()
    """Texts that go with it, too, each with what it is: what the user did meanwhile."""
    skip_trust: bool = False
    sandbox: bool = False
    """False: settings and environment decide; a run that began with one keeps it."""
    interactive: bool = False
    debug: bool = False
    """The command line shows where an error came from."""
    env: Mapping[str, str] = field(default_factory=dict[str, Any])
    stale_after_s: float = HEARTBEAT_STALE_S


class Pending(TypedDict):
    """A request that waits for a person, as `pending_approvals` shows it."""

    id: str
    """What `Decision.approval` names; it contains the run."""
    number: int
    """Its short name among those that wait with it, from 1; 0: it has none."""
    kind: "RequestKind"
    agent: str
    """Path of the sub-agent that asks; empty: the run itself."""
    tool_name: str
    args: dict[str, Any]
    reason: str
    preview: str
    """What would happen: a diff, a command, a text."""
    parts: list[dict[str, Any]]
    choices: "list[Choice]"
    """What `Decision.choice` may be."""
    always: "dict[Choice, str]"
    note: str | None
    questions: list[dict[str, Any]]
    checkpoint_id: NotRequired[str]


@dataclass(frozen=True)
class Decision:
    """A person's answer to one request, or to all that wait (`approval == "all"`)."""

    approval: str
    choice: "Choice"
    """One of the request's `choices`."""
    feedback: str | None = None
    """With `reject`: why."""
    args: Mapping[str, Any] | None = None
    """With `modify`: all of the arguments that it is to run with."""
    text: str | None = None
    """The answer to a question; to an unknown outcome `redo` or `skip`."""


@dataclass(frozen=True)
class Outcome:
    """How a drive ended."""

    run: str
    workflow: str
    status: str
    exit_code: int
    output: dict[str, Any] = field(default_factory=dict[str, Any])
    error: dict[str, str] | None = None
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    pending: list[Pending] = field(default_factory=list[Pending])
    """What waits for a person, where the status is `waiting`."""
    resume_command: str | None = None
    warnings: list[str] = field(default_factory=list[str])
    trace: str = ""
    """Where the error came from, for who looks for a bug."""
    notifying: "Future[list[str]] | None" = None
    """Notifications that are still being sent; the result is what went wrong with them."""
    drained: bool = True
    """False: a renderer still blocks on its reader, and a normal exit of the process would wait for it."""
