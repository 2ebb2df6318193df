"""errors: what can go wrong, and the exit code of each. Imported by the fast commands: no pydantic here."""


class InterlockError(Exception):
    """Text is one line for a person: what, which (`!r`), what was expected, the next command."""

    exit_code = 1
    kind = "error"


class BugError(InterlockError):
    """An exception that is none of ours, as programs are told it."""

    kind = "bug"


class SetupError(InterlockError):
    """A graph, prompt or tool is malformed: found before any run."""

    kind = "setup"


class ConfigError(InterlockError):
    """Settings that can't be used."""

    exit_code = 52
    kind = "config"


class RunError(InterlockError):
    """A run can't go on; what it did so far is kept and it can be resumed."""

    kind = "run"


class StoreError(RunError):
    """The store can't be opened, read or written."""

    kind = "store"


class BusyError(RunError):
    """Another process drives the run, or holds the store."""

    kind = "busy"


class StoppedError(RunError):
    """Somebody stopped this process before it drove a run."""

    exit_code = 130
    kind = "cancelled"


class HookError(RunError):
    """A hook said no before anything ran; `kind` says how."""

    exit_code = 56

    def __init__(self, message: str, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class UserError(InterlockError):
    """What was typed can't be done."""

    exit_code = 2
    kind = "usage"


class UntrustedError(UserError):
    """What was asked for stands only in files of a folder that isn't trusted."""

    exit_code = 55
    kind = "untrusted"


class InputError(UserError):
    """A workflow's input is wrong; `field` names the place in dotted form."""

    exit_code = 42
    kind = "input"

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class CredentialsError(UserError):
    """No usable key for the model that was asked for."""

    exit_code = 41
    kind = "credentials"


class SandboxError(UserError):
    """A sandbox was asked for, and there can be none."""

    exit_code = 44
    kind = "sandbox"


class ModelError(RunError):
    """A model request failed for good. `retryable` and `retry_after_s` steer the retry loop."""

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
        """HTTP status, if there was one."""
        self.retryable = retryable
        self.retry_after_s = retry_after_s
        """The server's own delay in seconds, honoured instead of the backoff."""
        self.attempts = attempts
        """Most attempts that make sense where it fails so; None: as many as there are."""
        self.terminal = terminal
        """The model is gone for the run: quota used up, or no such model."""
        self.overflow = overflow
        """The request was larger than the model's window."""


class ModelAuthError(ModelError):
    """The provider refused the key."""

    exit_code = 41
    kind = "credentials"


ENDED_WELL = frozenset(
    {
        "done",
        "ok",
        "calls",
        "applied",
        "created",
        "already_applied",
        "noop",
        "compressed",
        "truncated",
        "unchanged",
        "summarized",
        "goal",
        "approved",
    }
)
"""How a run ended when it did what it was for."""
EXIT_CODES = {
    **dict.fromkeys(ENDED_WELL, 0),
    "credentials": 41,
    "sandbox": 44,
    "failed": 1,
    "context_overflow": 1,
    "invalid_stream": 1,
    "turn_limit": 53,
    "max_turns": 53,
    "session_limit": 53,
    "tool_failure": 54,
    "denied": 56,
    "rejected": 56,
    "refused": 56,
    "stopped_by_hook": 56,
    "blocked_by_hook": 56,
    "budget": 57,
    "loop_detected": 58,
    "loop_nudge": 58,
    "waiting": 75,
    "timeout": 124,
    "cancelled": 130,
    "aborted": 130,
}
"""How a run ended, or the type of its error → exit code (`cli.md`, Exit codes)."""
