"""checks: runs a run's check, in the workspace and in views of it, through a log that survives a kill."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.engine.store.approvals import list_requests_and_answers_of_tool
from interlock.engine.store.journal import Firing, HookLog
from interlock.engine.store.runs import list_related_runs
from interlock.engine.store.snapshots import SqlSnapshots
from interlock.services.checks.failures import parse_failures
from interlock.services.checks.repair_files import RepairFiles
from interlock.services.config.settings import FLAGS
from interlock.services.files.disk import read_file
from interlock.services.hooks.hook_replies import HookEnvironment, HookReply, python_isolation_variables
from interlock.services.hooks.hook_settings import Hook
from interlock.state.checks import REQUEST, CheckEnd, TestChanges
from interlock.state.deps import StopFlag, await_despite_cancel, run_in_thread
from interlock.state.errors import RunError
from interlock.state.repair import Suspects
from interlock.state.tooling import ProcessEnd, Processes
from interlock.state.workspace import PathRefused, Workspace

if TYPE_CHECKING:
    from interlock.services.checks.compare import Comparison
    from interlock.services.checks.test_table import CheckTable
    from interlock.services.checks.view import Before

SUBJECT = "check"
"""Of the firings of the check, which are no hooks'."""
_TIMEOUT_S = 15 * 60.0
_OUTPUT_CHARS = 3000
"""Of the end of its output, kept and told."""
_READ_CHARS = 40_000
"""Of its output, looked through for what says how many tests ran."""


@dataclass(frozen=True)
class RunChecks:
    """Implements `Checks`."""

    command: str
    must_pass_with_original_tests: bool
    log: HookLog
    snapshots: SqlSnapshots
    workspace: Workspace
    around: HookEnvironment
    home: Path
    make_processes: Callable[[Path | None], Processes]
    """Processes for the check in the workspace, or in a copy of it."""
    commands: Processes
    """The model's own."""
    copies_workspace: bool
    """Views are copies: commands run in a sandbox, which has mounts of its own."""
    timeout_s: float = _TIMEOUT_S

    def for_command(self, command: str, timeout_s: float) -> "RunChecks":
        return replace(self, command=command, timeout_s=timeout_s or _TIMEOUT_S)

    def is_test_change_requested(self, task: str) -> bool:
        return RepairFiles(self.workspace.root, self._check_table).is_test_change_requested(task)

    async def find_test_command(self) -> str:
        from interlock.services.checks.test_command import find_test_command

        return await asyncio.to_thread(find_test_command, self.workspace.root)

    async def find_suspects(self, end: CheckEnd, task: str) -> Suspects:
        from interlock.services.checks.suspects import find_suspects

        files = RepairFiles(self.workspace.root, self._check_table)
        return await run_in_thread(
            lambda stop: find_suspects(
                files, partial(self._list_paths, stop.raise_if_stopped), self._read_code, end, task
            )
        )

    def _list_paths(self, raise_if_stopped: Callable[[], None]) -> list[str]:
        root = self.workspace.root
        paths = (os.path.relpath(one, root) for one in self.workspace.list_files(root, stop=raise_if_stopped))
        return [path for path in paths if not self._check_table.is_third_party(path)]

    def _read_code(self, path: str) -> str | None:
        """Read a file that a model may see and an edit can write back: UTF-8 without a secret."""
        try:
            data = read_file(self.workspace.resolve_readable(path))
            text = data.decode("utf-8")
        except (PathRefused, OSError, UnicodeDecodeError):
            return None
        return text.replace("\r\n", "\n") if self.around.redact(text) == text else None

    def restore_tests(self, path: str, before: str, after: str) -> str | None:
        from interlock.services.checks.mixed_files import InseparableError, restore_tests_in_text

        if self._check_table.find_mixed_file_row(path) is None:
            return after
        try:
            return restore_tests_in_text(path, before, after, self._check_table)
        except InseparableError:
            return None

    def is_test_or_settings(self, path: str) -> bool:
        if not self.command:
            return False
        try:
            real = self.workspace.resolve_writable(path)
        except PathRefused:
            return False
        return real.is_relative_to(self.workspace.root) and self._check_table.is_test_or_settings(
            self.workspace.display_path(real)
        )

    @cached_property
    def _check_table(self) -> "CheckTable":
        from interlock.services.checks.test_table import CheckTable

        return CheckTable(self.command)

    async def run_check(self, key: str) -> CheckEnd:
        return await self._run_unless_logged(key, "", self._run_check_in_workspace)

    async def _run_check_in_workspace(self) -> CheckEnd:
        """Run it in the workspace. A background process of the model's may not put other tests there meanwhile."""
        watched = any(process["running"] for process in self.commands.list_background_processes())
        before = await asyncio.to_thread(self._test_file_times_and_inodes) if watched else {}
        end = await self._run_command(self.workspace.root, (), None)
        after = await asyncio.to_thread(self._test_file_times_and_inodes) if watched else {}
        moved = sorted(path for path, mark in before.items() if after.get(path) != mark)
        if end.how != "passed" or not moved:
            return end
        text = f"{', '.join(moved[:3])} changed while the check ran. Stop the background process that changes tests."
        return CheckEnd(how="failed", output=text)

    def _test_file_times_and_inodes(self) -> dict[str, tuple[int, int]]:
        """Return change time and inode of all that concerns tests; files without a change keep theirs."""
        found: dict[str, tuple[int, int]] = {}
        root = self.workspace.root
        for folder, folders, files in os.walk(root):
            inside = os.path.relpath(folder, root)
            folders[:] = [name for name in folders if not self._check_table.is_third_party(f"{name}/")]
            for name in files:
                path = os.path.normpath(f"{inside}/{name}")
                if self._check_table.file_kind(path):
                    with suppress(OSError):
                        status = os.lstat(f"{folder}/{name}")
                        found[path] = (status.st_ctime_ns, status.st_ino)
        return found

    async def run_check_with_original_tests(self, key: str, changes: TestChanges) -> CheckEnd:
        return await self._run_unless_logged(
            key,
            "tests as before" if changes.changes else "view",
            lambda: self._run_check_with_original_tests(changes),
        )

    async def run_check_with_files(self, key: str, files: Mapping[str, str]) -> CheckEnd:
        return await self._run_unless_logged(key, "a correction", lambda: self._run_check_with_files(files))

    async def _run_check_with_files(self, files: Mapping[str, str]) -> CheckEnd:
        try:
            stored = await asyncio.to_thread(lambda: [self._stored_file(*one) for one in files.items()])
        except (PathRefused, OSError) as error:
            return CheckEnd(how="not made", output=str(error))
        return await self._run_check_in_view(stored)

    def _stored_file(self, path: str, text: str) -> "Before":
        """A file with another text, in the line ends and the mode that it has."""
        real = self.workspace.resolve_writable(path)
        if b"\r\n" in read_file(real):
            text = text.replace("\n", "\r\n")
        return (path, real.stat().st_mode, text.encode())

    async def _run_unless_logged(
        self, key: str, variant: str, run: Callable[[], Awaitable[CheckEnd]]
    ) -> CheckEnd:
        """Return how it ended, as logged if it has; a check that a kill cut off is run again."""
        firing = Firing("AfterAgent", key, SUBJECT)
        name = f"check: {self.command}" + (f" ({variant})" if variant else "")
        hook = Hook("AfterAgent", FLAGS, "check", self.command, name, idempotent=True)
        row = next((row for row in self.log.list_firing_rows(firing.event, key) if row.hook == hook.id), None)
        if row is None or row.reply is None:
            self.log.record_intent(firing, [(0, hook, 1)])
            end = await run()
            decision = "none" if end.how == "passed" else "block"
            reply = HookReply(decision=decision, output={"check": end.model_dump(mode="json")})
            self.log.record_reply(firing, hook.id, reply, last=True)
            return end
        return CheckEnd.model_validate(row.reply.output["check"])

    async def _run_command(
        self, folder: Path, command_prefix: tuple[str, ...], copied_workspace: Path | None
    ) -> CheckEnd:
        env = {
            **self.around.environment_variables(),
            **python_isolation_variables(self.command, self.workspace.root),
        }
        if copied_workspace:
            env = {
                name: value.replace(str(self.workspace.root), str(copied_workspace))
                for name, value in env.items()
            }
        ended = await self.make_processes(copied_workspace).run(
            [*command_prefix, "bash", "-c", self.command],
            cwd=folder,
            timeout_s=self.timeout_s,
            limit_chars=_READ_CHARS,
            env=env,
        )
        output = (
            ended.output.replace(str(copied_workspace), str(self.workspace.root))
            if copied_workspace
            else ended.output
        )
        return self._interpret_process_end(replace(ended, output=output))

    def _interpret_process_end(self, ended: ProcessEnd) -> CheckEnd:
        from interlock.services.checks.test_table import is_output_without_test_run

        whole = self.around.redact(ended.output)
        shown = whole[-_OUTPUT_CHARS:].strip()
        if ended.how in ("not_started", "lost"):
            return CheckEnd(how="not made", output=shown)
        if ended.how != "exited":
            return CheckEnd(how="timeout", output=shown)
        if ended.exit_code != 0:
            return CheckEnd(how="failed", output=shown, failures=parse_failures(whole))
        return CheckEnd(
            how="no tests" if is_output_without_test_run(self._check_table, ended.output) else "passed",
            output=shown,
        )

    async def find_test_changes(self) -> TestChanges:
        try:
            found = await self._compare_with_start()
            return TestChanges() if found is None else await asyncio.to_thread(found.find_changes)
        except RunError as error:
            return TestChanges(unknown=str(error))

    async def _compare_with_start(self) -> "Comparison | None":
        since = await self.snapshots.snapshot_changes_since_start()
        if since is None:
            return None
        from interlock.services.checks.compare import Comparison

        return Comparison(
            self.workspace, *since, command=self.command, accepted=self._accepted_test_changes()
        )

    def _accepted_test_changes(self) -> dict[str, str]:
        """Changes of tests that people accepted in this run, and in those that it belongs to."""
        found: dict[str, str] = {}
        for run in (*list_related_runs(self.log.conn, self.log.run), self.log.run):
            for request, answer in list_requests_and_answers_of_tool(self.log.conn, run, REQUEST):
                if answer["choice"] == "proceed_once":
                    found |= request["call"]["args"]["tests"]
        return found

    async def _load_original_test_files(self, changes: TestChanges) -> "list[Before]":
        found = await self._compare_with_start()
        if found is None:
            raise RunError("The snapshots of this run's files are gone.")
        return await asyncio.to_thread(lambda: [*found.files_to_restore_or_remove(changes.changes)])

    async def _run_check_with_original_tests(self, changes: TestChanges) -> CheckEnd:
        return await self._run_check_in_view(
            await self._load_original_test_files(changes) if changes.changes else []
        )

    async def _run_check_in_view(self, files: "list[Before]") -> CheckEnd:
        from interlock.services.checks.view import open_view_with_restored_files

        root = self.workspace.root

        stop = StopFlag()
        made = open_view_with_restored_files(
            root, files, self.home, force_copy=self.copies_workspace, check_cancelled=stop.raise_if_stopped
        )
        entered = asyncio.ensure_future(asyncio.to_thread(made.__enter__))
        try:
            view = await asyncio.shield(entered)
        except asyncio.CancelledError:
            stop.request_stop()
            await asyncio.wait({entered})
            if not entered.exception():
                await asyncio.to_thread(made.__exit__, None, None, None)
            raise
        except OSError as error:
            return CheckEnd(how="not made", output=f"The view couldn't be made: {error}")
        try:
            return await self._run_command(
                view.root, (*view.prefix,), None if view.root == root else view.root
            )
        finally:
            await await_despite_cancel(asyncio.to_thread(made.__exit__, None, None, None))
