"""options: how a run is driven. Plain data, so the fast commands can import it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

from interlock.state.names import LISTING as LISTING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.engine.store.connection import Connection
    from interlock.engine.store.rate_limits import FleetLimits
    from interlock.services.configuration import Configuration
    from interlock.state.calls import Choice, RequestKind
    from interlock.state.events import Event
    from interlock.state.tooling import Tool
    from interlock.state.workspace import Buffers

Renderer = Callable[["Event"], None]
"""Consumes events on its own thread; may block or raise without affecting the run.

A renderer with a `flush` method may buffer output until it is called, after the last event of a batch.
"""

WORKFLOWS_FOLDER = Path(".interlock") / "workflows"
"""Where users' workflows live, relative to a workspace or the user's home."""
WORKFLOWS_GROUP = "interlock.workflows"
"""Entry-point group."""

HEARTBEAT_STALE_S = 30.0
"""Seconds without a heartbeat, on the challenger's monotonic clock, before a live owner is replaced.

`docs/internals.md#one-driver`.

C code that holds the interpreter for longer stops the heartbeats and so loses the run.
"""


@dataclass(frozen=True)
class Options:
    """Options of one drive. None leaves the choice to the settings."""

    home: Path
    """State directory: store and outputs."""
    user_home: Path = field(default_factory=Path.home)
    """Holds the user's settings and memory files."""
    door: str = "program"
    """Where people decide: terminal, page, editor or program; recorded with each decision."""
    workspace: Path | None = None
    model: str | None = None
    approval_mode: str | None = None
    edits_granted: bool = False
    """A person allowed all edits with a request, and chose no mode: `auto_edit` allows edits and nothing else."""
    mode: str | None = None
    """Working mode; None keeps the run's own."""
    protocol: str | None = None
    prompt_profile: str | None = None
    task_path: str = ""
    """For a subtask: ids of the calls that started it; selects its scripted replies."""
    overrides: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings from flags, under Gemini's nested keys."""
    check: str = ""
    """A command that must succeed before an answer counts; empty: none."""
    check_tests: str = ""
    """Whether it must succeed with the tests of the run's start, too: `as-before` or `may-change`; empty: the settings
    decide."""
    include_directories: tuple[Path, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    policy_files: tuple[Path, ...] = ()
    admin_policies: tuple[Path, ...] | None = None
    """Folders with the admin's rules; None: this machine's."""
    limits: Mapping[str, Any] = field(default_factory=dict[str, Any])
    record_to: Path | None = None
    fake: Path | None = None
    system_prompt: str | None = None
    append_system_prompt: str | None = None
    compress: bool = False
    """Compress the conversation of an ended run, instead of a prompt."""
    rights: Mapping[str, Any] | None = None
    """Rules the run started with (`engine/driver/run_rules.py`); None: a new run."""
    source: Mapping[str, str] | None = None
    """Where the run's workflow is declared, with its hash (`engine/workflows.py`); None: a built-in."""
    context: Mapping[str, Any] | None = None
    """For a LangGraph graph: what its nodes find as `runtime.context`, or in `config["configurable"]`. None: a resumed
    run keeps its own; empty: none, from now on.
    """
    guard: bool = False
    """For a LangGraph graph: the tools of its `ToolNode`s are guarded, as by `guarded`."""
    new_rules: bool = False
    """A person confirmed the current rules."""
    ide_context: Path | None = None
    """JSON file in which an editor records what is open."""
    attach: tuple[Path, ...] = ()
    """Files attached to the prompt."""
    buffers: "Buffers | None" = None
    """An editor's unsaved files; file tools read and write through it."""
    notes: tuple[tuple[str, str], ...] = ()
    """Texts attached to the prompt, each with a label: what the user did in between."""
    skip_trust: bool = False
    sandbox: bool = False
    """False: settings and environment decide. A run started in a sandbox keeps it."""
    interactive: bool = False
    debug: bool = False
    """Make the command line show where an error came from."""
    env: Mapping[str, str] = field(default_factory=dict[str, Any])
    repository: Mapping[str, str] | None = None
    """For a run on a git repository: its `url` and `ref`, and how it is delivered (`deliver`); once a worker has
    cloned it also its `commit`, and where the files are (`at`)."""
    worktree: Mapping[str, str] | None = None
    """For a run in a git worktree: the `name` that was asked for, empty for a new one. Once the worktree is there also
    its `path`, its `branch` and the `repository` that it belongs to."""
    placed: "Callable[[Connection], None] | None" = None
    """Called in a transaction of each drive, before anything moves."""
    commits: "Callable[[], tuple[str, bytes] | None] | None" = None
    """For a drive in a clone: the clone's name, and what was done in its own git repository, if that has changed."""
    own_tools: "Mapping[str, Tool]" = field(default_factory=dict[str, Any])
    """For a drive of the workflow `tools`: these take the place of ours with their names."""
    stale_after_s: float = HEARTBEAT_STALE_S
    submitted: Mapping[str, Any] | None = None
    """Of a run that workers drive: its `user`, and its `priority`."""
    schedule: Mapping[str, str] | None = None
    """The run is started again and again by workers: `name`, `cron` and `zone` of its schedule."""
    limited: "FleetLimits | None" = None
    """For a worker's drive: the limits over all workers."""
    queue: str = ""
    """A worker of this queue drives the run (`fleet`); empty: one of the queue that it has, or this process."""
    batch: Mapping[str, str] | None = None
    """Of a run that is a line of a batch: which one (`engine/client/batches.py`)."""
    serves_others: bool = False
    """For a process that drives runs at the word of people or programs that it serves: only those that this host
    defined, of a store whose rows others may write."""
    moves_queue: bool = False
    """Whether a run that has a queue already goes to `queue`, too."""

    def trusts(self, folder: Path) -> bool:
        """Whether a folder's own settings, rules, hooks, commands and workflows count."""
        return self.skip_trust or self.configuration(folder).is_workspace_trusted

    def configuration(self, folder: Path) -> "Configuration":
        """Return what configures runs of a folder, without the flags that aren't settings."""
        from interlock.services.configuration import (  # deferred: fast commands don't ask
            ConfigurationSources,
            load_or_reuse_configuration,
        )

        return load_or_reuse_configuration(
            ConfigurationSources(
                folder, self.user_home, self.env, self.overrides, trusted=self.skip_trust or None
            )
        )


class Pending(TypedDict):
    """A request pending a person's decision, as `pending_approvals` shows it."""

    id: str
    """For `Decision.approval`; contains the run's id."""
    number: int
    """Short name, from 1, never used for another request; 0: the run hasn't parked yet."""
    kind: "RequestKind"
    agent: str
    """Path of the sub-agent that asks; empty: the run itself."""
    call: str
    """Id of the call that it is about."""
    tool_name: str
    args: dict[str, Any]
    reason: str
    preview: str
    """The expected effect: a diff, a command, a text."""
    parts: list[dict[str, Any]]
    choices: "list[Choice]"
    """Valid values of `Decision.choice`."""
    always: "dict[Choice, str]"
    note: str | None
    questions: list[dict[str, Any]]
    parameters: list[str]
    """Arguments that an edit may name; empty: any."""
    checkpoint_id: NotRequired[str]


@dataclass(frozen=True)
class Decision:
    """A person's answer to one request, or to all pending ones (`approval == "all"`)."""

    approval: str
    choice: "Choice"
    """One of the request's `choices`."""
    feedback: str | None = None
    """With `reject`: why."""
    args: Mapping[str, Any] | None = None
    """With `modify`: the complete arguments to run with."""
    text: str | None = None
    """The answer to a question; for an unknown outcome `redo` or `skip`."""
    door: str = field(default="", compare=False)
    """The flag that gave it; empty: `Options.door`."""


@dataclass(frozen=True)
class Outcome:
    """How a drive ended."""

    run: str
    workflow: str
    status: str
    exit_code: int
    output: dict[str, Any] = field(default_factory=dict[str, Any])
    """For programs: as the workflow made it."""
    masked: dict[str, Any] | None = None
    """The output without secrets; None: it has none, or returning it as it is is the workflow's purpose."""
    error: dict[str, str] | None = None
    stats: dict[str, Any] = field(default_factory=dict[str, Any])
    pending: list[Pending] = field(default_factory=list[Pending])
    """Requests pending a person's decision, if the status is `waiting`."""
    resume_command: str | None = None
    carried_on_by: str | None = None
    """The run that carries on this one's work; None: there is none, or it was driven, and this is its outcome."""
    warnings: list[str] = field(default_factory=list[str])
    trace: str = ""
    """The error's traceback, for debugging."""
    notifying: "Future[list[str]] | None" = None
    """Notifications still being sent; resolves to what went wrong with them."""
    drained: bool = True
    """False: a renderer still blocks on its reader, and a normal exit of the process would wait for it."""

    @property
    def display_output(self) -> dict[str, Any]:
        """The output for people, files and pipes."""
        return self.output if self.masked is None else self.masked
