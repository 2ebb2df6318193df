"""checks: the command that must succeed before a run is done, and what became of the tests that it runs."""

from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field

from interlock.state.hooks import HookWait
from interlock.state.messages import Frozen
from interlock.state.repair import Suspects

AS_BEFORE, MAY_CHANGE = "as-before", "may-change"
"""Whether a check must pass with the tests of the run's start."""


class FailedTest(Frozen):
    """A test that failed, as a runner's output names it."""

    name: str
    detail: str = ""
    """What was printed of it; the middle may be left out."""
    is_broken: bool = False
    """It couldn't be loaded, so its own tests didn't run."""


class CheckEnd(Frozen):
    """How a check ended."""

    how: Literal["passed", "failed", "no tests", "timeout", "not made"]
    """`no tests`: it succeeded and ran none. `not made`: the command, or the view for it, couldn't be started."""
    output: str = ""
    """The end of what it printed; of `not made`, the reason."""
    failures: tuple[FailedTest, ...] = ()
    """The tests that failed, as far as the runner's output is understood."""


REQUEST = "changed_tests"
"""In place of a tool's name in requests about changed tests; what accepts them is among the arguments, as `tests`."""


class TestChange(Frozen):
    """A test, or a file that decides which tests run, that is not as it was when the run began."""

    path: str
    """Relative to the workspace."""
    how: Literal["changed", "gone", "new", "added", "parts", "whole", "beside code", "built", "not kept"]
    """`parts`: of its keys, targets or items, those that concern tests have changed. `whole`: what concerns tests can't
    be told from the rest, so all of it is put back. `beside code`: the same, but it holds the code that is tested, so
    nothing of it is put back. `new`: a file that decides which tests run, which wasn't there. `added`: a test beside
    those that were there. `built`: git ignores it and a build makes it, so it is left out for the build to make anew.
    `not kept`: all that is known is that it has changed, so it stays as it is; the path of a folder ends with a
    slash."""


class TestChanges(Frozen):
    """What isn't as it was when the run began."""

    changes: tuple[TestChange, ...] = ()
    unknown: str = ""
    """Why that can't be told; empty: it can."""
    diff: str = ""
    hashes: dict[str, str] = Field(default_factory=dict[str, str])
    """Path → git's id of its bytes now; empty for a file that is gone. Accepting the changes accepts these."""

    @property
    def is_empty(self) -> bool:
        return not self.changes and not self.unknown


class CheckedAnswer(HookWait, total=False):
    """State of an answer whose tests have changed."""

    result: str
    """Chain record of a task's submitted result; empty: none, or it doesn't count."""
    check_changes: str
    """Chain record (detached) of `TestChanges`; empty: the tests are as they were."""
    check_output: str
    """Chain record (detached) of what the check printed with the tests of before."""
    check_view: str
    """How the check ended in a view with today's tests: `CheckEnd.how`."""


class Checks(Protocol):
    """The run's check, journaled: what ended isn't run again after a kill."""

    @property
    def command(self) -> str:
        """The command line; empty: none."""
        ...

    @property
    def must_pass_with_original_tests(self) -> bool:
        """Whether the command must also succeed with the tests of the run's start."""
        ...

    def is_test_or_settings(self, path: str) -> bool:
        """Whether a file, named as in a call, was a test or a runner's settings when the run began."""
        ...

    def for_command(self, command: str, timeout_s: float) -> "Checks":
        """The same with another command line, which may take so many seconds."""
        ...

    def is_test_change_requested(self, task: str) -> bool:
        """Whether a task says that tests are to be written or changed."""
        ...

    async def find_test_command(self) -> str:
        """The command line by which the project's own files run its tests; empty: they name none."""
        ...

    async def find_suspects(self, end: CheckEnd, task: str) -> Suspects:
        """Where the fault behind a failed check may be; never in a test."""
        ...

    def restore_tests(self, path: str, before: str, after: str) -> str | None:
        """A file's new text with the tests beside its code as they were; None: they can't be told from the code."""
        ...

    async def run_check_with_files(self, key: str, files: Mapping[str, str]) -> CheckEnd:
        """Run the command in a view of the workspace in which these files, by path, have these texts."""
        ...

    async def run_check(self, key: str) -> CheckEnd:
        """Run the command in the workspace. `key` identifies this time within the run and survives a kill."""
        ...

    async def find_test_changes(self) -> TestChanges: ...

    async def run_check_with_original_tests(self, key: str, changes: TestChanges) -> CheckEnd:
        """Run the command in a view of the workspace in which these are as they were when the run began."""
        ...
