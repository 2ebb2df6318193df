"""errors: exception types and their exit codes. Imported by the fast commands, so no pydantic here."""

import re

_STOPS = re.compile(r"(?<=[\w)'\"”])\.\.(?=\s|$)")
"""Two full stops at the end of a sentence; neither an ellipsis nor a path."""


class InterlockError(Exception):
    """Its text is one line for people: what, which (`!r`), what was expected, the next command."""

    exit_code = 1
    kind = "error"
    shown = False
    """Whether the output for programs holds it already."""

    def __str__(self) -> str:
        """Return the text with one full stop where it quotes a sentence that had its own."""
        return _STOPS.sub(".", super().__str__())


class BugError(InterlockError):
    """Stands in programs' output for an exception that isn't an `InterlockError`."""

    kind = "bug"


def exception_line(error: BaseException, max_chars: int = 300) -> str:
    """Return an exception's class and text in one line of at most `max_chars` characters; its text may itself raise."""
    try:
        text = " ".join(str(error).split())
    except Exception as broken:
        text = f"its text can't be read ({type(broken).__name__})"
    line = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return line if len(line) <= max_chars else f"{line[: max_chars - 1]}…"


def as_bug_error(error: object) -> BugError:
    """A one-line error for an exception that isn't ours."""
    what = exception_line(error, 1_000) if isinstance(error, BaseException) else error
    return BugError(f"a bug: {what}. See where with -d")


class SetupError(InterlockError):
    """A graph, prompt or tool is malformed; raised before any run."""

    kind = "setup"


class ConfigError(InterlockError):
    """Settings that can't be used."""

    exit_code = 52
    kind = "config"


class ToolError(Exception):
    """Raised anywhere below a tool's functions to fail the call; `calls.error_result_of` makes its answer."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class RunError(InterlockError):
    """A run can't continue; its progress is kept and it can be resumed."""

    kind = "run"


class StoreError(RunError):
    """The store can't be opened, read or written."""

    kind = "store"


class BusyError(RunError):
    """Another process drives the run or holds the store."""

    kind = "busy"


class StoppedError(RunError):
    """This process was stopped before it drove a run."""

    exit_code = 130
    kind = "cancelled"


class HookError(RunError):
    """A hook refused before anything ran; `kind` says how."""

    exit_code = 56

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UserError(InterlockError):
    """What the user typed can't be done."""

    exit_code = 2
    kind = "usage"


class UntrustedError(UserError):
    """The request is satisfied only by files in an untrusted folder."""

    exit_code = 55
    kind = "untrusted"


class InputError(UserError):
    """A workflow's input is invalid; `field` is the dotted path."""

    exit_code = 42
    kind = "input"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class MissingPackageError(UserError):
    """A model needs a package that isn't installed."""

    def __init__(self, message: str, package: str) -> None:
        super().__init__(message)
        self.package = package


class CredentialsError(UserError):
    """No usable key for the requested model."""

    exit_code = 41
    kind = "credentials"


class SandboxError(UserError):
    """A sandbox was requested but isn't available."""

    exit_code = 44
    kind = "sandbox"


class ModelError(RunError):
    """A model request failed for good. `retryable` and `retry_after_s` control the retry loop."""

    kind = "model"

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retryable: bool = False,
        retry_after_s: float | None = None,
        attempts: int | None = None,
        terminal: bool = False,
        overflow: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        """HTTP status, if any."""
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        """Delay requested by the server, in seconds; overrides the backoff."""
        self.attempts = attempts
        """Maximum attempts for this kind of failure; None: no extra limit."""
        self.terminal = terminal
        """The model is unavailable for the rest of the run: quota exhausted, or no such model."""
        self.overflow = overflow
        """The request exceeded the model's context window."""


class ModelAuthError(ModelError):
    """The provider rejected the key."""

    exit_code = 41
    kind = "credentials"


THEIR_ERRORS = (Exception, SystemExit)
"""What importing a user's file may end with: anything, and a `sys.exit` in it must not end this process."""
ENDED_WELL = frozenset(
    {
        *("done", "ok", "calls", "applied", "created", "already_applied", "noop", "compressed"),
        *("truncated", "unchanged", "summarized", "goal", "approved"),
    }
)
"""Statuses of runs that succeeded."""
STOPPED = {"cancelled": "Stopped on request.", "timeout": "Its running time is used up."}
"""Why a drive ended before its work was done, by its status; the run can be resumed."""
PASSING = ("died", "limit", "busy", "store", "key")
"""Kinds of errors after which workers go on with a run by themselves."""
EXIT_CODES = {
    **dict.fromkeys(ENDED_WELL, 0),
    "usage": 2,
    "credentials": 41,
    "input": 42,
    "untrusted": 55,
    "sandbox": 44,
    **dict.fromkeys(("failed", "context_overflow", "invalid_stream"), 1),
    **dict.fromkeys(("turn_limit", "max_turns", "session_limit"), 53),
    "tool_failure": 54,
    **dict.fromkeys(("denied", "rejected", "refused", "stopped_by_hook", "blocked_by_hook"), 56),
    "not_repaired": 56,
    "budget": 57,
    **dict.fromkeys(("loop_detected", "loop_nudge"), 58),
    "waiting": 75,
    "timeout": 124,
    **dict.fromkeys(("cancelled", "aborted"), 130),
}
"""Status of a run, or its error type → exit code (`docs/internals.md#exit-codes`)."""
