"""calls: tool calls that write one file: previewed on top of each other, planned, then written exactly as planned."""

import asyncio
import errno
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel, JsonValue

from interlock.prompts import load_prompt
from interlock.services.files.filesystem import (
    hash_file_at,
    lock_folder,
    remove_temporary_file,
    sha256,
    write_atomically,
    write_keeping_file,
)
from interlock.services.files.in_place import restore_from_copies, restore_torn_file
from interlock.services.secrets.redaction import find_new_redaction_mark
from interlock.state.calls import (
    CallKey,
    CallView,
    FileState,
    Planned,
    Preview,
    ToolError,
    ToolResult,
    error_result,
)
from interlock.state.encodings import ConfirmedEncoding
from interlock.state.file_names import format_file_name, parse_file_name, quote_name
from interlock.state.seen import ChangedFile, SeenFile, SeenFiles
from interlock.state.tooling import FileChange, ProblemFinder, TargetFile, Tool, ToolContext, ToolRun
from interlock.state.workspace import OpenDirEntry, PathRefused, Workspace
from interlock.tools.file_content import alike_files_pattern, decode_text_file, hide_escaped_bytes
from interlock.tools.new_problems import describe_new_problem, describe_new_syntax_error
from interlock.tools.stale_files import diff_since_seen, make_seen_file
from interlock.tools.workspace_files import prepare_write_target, read_file_bytes, stat_refusing_links

LONGEST_TOLD_DIFF = 4_000
"""Characters of a file's diff that a model is told unasked."""
LONGEST_CHECK_S = 1.0
"""Seconds that an edit waits for language servers."""
_LOCK_WAIT_S = 5.0
"""Another run's write takes some milliseconds."""
_MOST_FORESEEN = 100_000_000
"""Bytes of files kept in `FileCalls._foreseen`."""


@dataclass(frozen=True)
class _UntoldCheck:
    """A check whose outcome the model hasn't been told."""

    before: str | None
    """The text that it compares with."""
    check: asyncio.Task[str | None]


@dataclass(frozen=True)
class FileWriteCalls:
    """Keeps each change between plan and run, so that exactly what was planned gets written."""

    workspace: Workspace
    copies: Path | None = None
    """Folder in the state directory for files that are being written in place; None: none is."""
    problem_finder: ProblemFinder | None = None
    """The project's language servers; None: nothing may be started."""
    _untold: dict[Path, "_UntoldCheck"] = field(default_factory=dict[Path, "_UntoldCheck"])
    """By file, checks that took longer than their edit."""
    _changes: dict[str, FileChange] = field(default_factory=dict[str, FileChange])
    _foreseen: dict[tuple[str, ...], FileChange | ToolError] = field(
        default_factory=dict[tuple[str, ...], FileChange | ToolError]
    )
    """What calls make of the files they found: each preview needs that of every call before it."""
    _foreseeing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Previews of a batch are made side by side: without it each would compute what all need."""

    async def preview_change(
        self,
        tool: Tool,
        args: BaseModel,
        earlier_calls: Sequence[tuple[Tool, BaseModel]],
        context: ToolContext,
    ) -> Preview:
        """Return the diff on top of the changes made by earlier calls.

        The diff is against the file on disk unless an earlier call changes the same file.
        """
        files = await self._compute_contents_after_calls(earlier_calls, context)
        confirms = None
        try:
            change = await _compute_change(tool, args, context, files)
        except ToolError as error:
            if error.kind != "encoding_guessed":
                raise
            change = await _compute_change(tool, args, replace(context, accepts_guess=True), files)
            confirms = self._encoding_to_confirm(change)
        before = None if change.before is None else sha256(change.before)
        path = format_file_name(change.path)
        on_disk = await asyncio.to_thread(self.current_file_digest, path) if change.path in files else before
        state = FileState(path=path, sha256=before, on_disk=on_disk)
        done = change.message if change.after == change.before and change.path not in files else ""
        return Preview(text=change.diff or change.message, files=(state,), done=done, confirms=confirms)

    def has_guessed_encoding(self, tool: Tool, args: BaseModel) -> bool:
        """Return whether the file that a call writes is there, and its encoding is only guessed."""
        with suppress(ToolError):  # the call's own error comes when it is planned
            for name in (name for name, access in tool.paths(args) if access == "write"):
                path = self.workspace.resolve_writable(name)
                data, conventions = (
                    read_file_bytes(self.workspace, path),
                    self.workspace.read_conventions(path),
                )
                file = decode_text_file(data, conventions, path.name)
                return file is not None and file.encoding.is_guess
        return False

    def _encoding_to_confirm(self, change: FileChange) -> ConfirmedEncoding:
        path = Path(change.path)
        file = decode_text_file(change.before or b"", self.workspace.read_conventions(path), path.name)
        codec = file.encoding.codec if file else "utf-8"
        return ConfirmedEncoding(pattern=alike_files_pattern(path.name), encoding=codec)

    async def read_target_file(
        self, file_path: str, earlier_calls: Sequence[tuple[Tool, BaseModel]], context: ToolContext
    ) -> TargetFile:
        """Return a text file for reading and writing."""
        files = await self._compute_contents_after_calls(earlier_calls, context)
        return await asyncio.to_thread(_read_target_file, file_path, files, context)

    async def plan_change(self, tool: Tool, args: BaseModel, call: CallView, context: ToolContext) -> Planned:
        change = await _compute_change(tool, args, context, {})
        self._changes[_call_key(call)] = change
        if self.workspace.buffers is not None and change.before is not None:
            await asyncio.to_thread(self._save_editor_buffer, Path(change.path), change.before, context.key)
        return await self._plan_and_name_new_problem(change, context)

    async def _plan_and_name_new_problem(self, change: FileChange, context: ToolContext) -> Planned:
        """Return what is journaled: a replay, or a drive after a kill, finds the same message."""
        planned = _to_planned(change)
        if not context.settings.tools.diagnostics:
            return planned
        problem = await asyncio.to_thread(describe_new_problem, change.path, change.before, change.after)
        if not problem:
            problem = await self._find_problems_with_servers(change)
        if problem is None:
            problem = await asyncio.to_thread(
                describe_new_syntax_error, change.path, change.before, change.after
            )
        return planned.model_copy(update={"message": f"{planned.message}\n{problem}"}) if problem else planned

    async def _find_problems_with_servers(self, change: FileChange) -> str | None:
        """Return what language servers find within `LONGEST_CHECK_S`; what they find later, `take_late_problems` does.

        None: no server checks the file.

        An edit of a file whose last check isn't told yet takes its place: both are compared with the text before both.
        """
        path, finder = Path(change.path), self.problem_finder
        if finder is None or not finder.has_server_for(path):
            return None
        before, after = await asyncio.to_thread(self._decode_change, path, change)
        if after is None or before == after:
            return ""
        if untold := self._untold.pop(path, None):
            untold.check.cancel()
            before = untold.before
        check = finder.start_check(path, before, after)
        done, _ = await asyncio.wait({check}, timeout=LONGEST_CHECK_S)
        if done:
            return check.result()
        self._untold[path] = _UntoldCheck(before, check)
        return ""

    def _decode_change(self, path: Path, change: FileChange) -> tuple[str | None, str | None]:
        """Return a file's text before and after; None: there is no file, or it is no text."""
        conventions = self.workspace.read_conventions(path)
        files = (
            None if data is None else decode_text_file(data, conventions, path.name)
            for data in (change.before, change.after)
        )
        before, after = (None if file is None else hide_escaped_bytes(file.raw) for file in files)
        return before, after

    def take_late_problems(self) -> str:
        """Return what language servers found since about earlier edits, once; empty: nothing new."""
        late = [path for path, untold in self._untold.items() if untold.check.done()]
        checks = [self._untold.pop(path).check for path in late]
        return "\n".join(text for check in checks if not check.cancelled() and (text := check.result()))

    def _save_editor_buffer(self, path: Path, data: bytes, key: CallKey) -> None:
        """Have the editor save what a change builds on, so that the snapshot has it, and undo brings it back."""
        before = sha256(data)
        with (
            suppress(OSError, PathRefused),
            self.workspace.open_parent_directory(path) as place,
        ):  # the write reports it
            if hash_file_at(place) != before and self._editor_or_disk_hash(place, path) == before:
                self._write_through_editor(path, data)
                if hash_file_at(place) != before:
                    self._write(place, path, data, key)

    def _editor_or_disk_hash(self, place: OpenDirEntry, path: Path) -> str | None:
        """Return the hash of a file's bytes, as the editor has them where one is open; None: there is no file."""
        found = hash_file_at(place)
        if found is not None and self.workspace.buffers:
            with suppress(ToolError):
                return sha256(read_file_bytes(self.workspace, path))
        return found

    def _write_through_editor(self, path: Path, data: bytes) -> None:
        """Let the editor write a file, if there is one. Look at the disk afterwards."""
        if self.workspace.buffers and any(path.is_relative_to(root) for root in self.workspace.roots):
            with suppress(UnicodeDecodeError):
                self.workspace.buffers.write_text(path, data.decode())

    async def write_planned_change(
        self, tool: Tool, args: BaseModel, run: ToolRun, context: ToolContext
    ) -> ToolResult:
        """Write the change. After a crash, a file that already matches the plan counts as the same success."""
        change, planned = self._changes.pop(_call_key(run.call), None), run.planned
        if planned is not None and (change is None or not _is_same_change(change, planned)):
            if await asyncio.to_thread(self._clean_up_if_already_written, planned, run.key):
                return await asyncio.to_thread(_success_result, self.workspace, planned)
            change = None
        if change is None:
            change = await _compute_change(tool, args, context, {})
        planned = planned or await self._plan_and_name_new_problem(change, context)
        if not _is_same_change(change, planned):
            return _external_change_result(self.workspace, planned)
        return await asyncio.to_thread(self._write_unless_file_changed, change, planned, run.key)

    async def _compute_contents_after_calls(
        self, earlier_calls: Sequence[tuple[Tool, BaseModel]], context: ToolContext
    ) -> dict[str, bytes]:
        """Return the files changed by earlier calls, as those calls will leave them once they are approved."""
        files: dict[str, bytes] = {}
        context = replace(context, accepts_guess=True)
        for tool, args in earlier_calls:
            with suppress(ToolError):  # a failing call changes nothing
                async with self._foreseeing:
                    done = await self._compute_change_once(tool, args, context, files)
                files[done.path] = done.after
        return files

    async def _compute_change_once(
        self, tool: Tool, args: BaseModel, context: ToolContext, files: dict[str, bytes]
    ) -> FileChange:
        """Return a change, computed once for the same call and the same file. Raise the `ToolError` of the call."""
        key = await asyncio.to_thread(_change_cache_key, tool, args, context, files)
        found = self._foreseen.get(key) if key else None
        if found is None:
            try:
                found = await _compute_change(tool, args, context, files)
            except ToolError as error:
                found = error
            if sum(_change_size(known) for known in self._foreseen.values()) > _MOST_FORESEEN:
                self._foreseen.clear()
            if key:
                self._foreseen[key] = found
        if isinstance(found, ToolError):
            raise found.with_traceback(None)
        return found

    def current_file_digest(self, planned_path: str) -> str | None:
        """See `Toolset.current_file_digest`. A path that can only be reached through a link counts as unreadable."""
        path = parse_file_name(planned_path)
        try:
            own = self.workspace.find_plan_file(path) or Path(path)
            with self.workspace.open_parent_directory(own) as place:
                return self._editor_or_disk_hash(place, own)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, PathRefused):
            return "unreadable"

    def find_changed_files(self, known: Sequence[SeenFile], seen_files: SeenFiles) -> Sequence[ChangedFile]:
        """See `Toolset.find_changed_files`."""
        found: list[ChangedFile] = []
        for seen in known:
            with suppress(ToolError):  # it may not be read any more
                if change := self._find_change(seen, seen_files):
                    found.append(change)
        return found

    def _find_change(self, seen: SeenFile, seen_files: SeenFiles) -> ChangedFile | None:
        path = self.workspace.resolve_readable(seen.path)
        try:
            data = read_file_bytes(self.workspace, path)
        except ToolError as error:
            if error.kind != "file_not_found" or not seen.digest:
                return None
            return ChangedFile(now=SeenFile(path=seen.path, digest=""), diff="")
        if sha256(data) == seen.digest:
            return None
        file = decode_text_file(data, self.workspace.read_conventions(path), path.name)
        diff = diff_since_seen(seen.path, file, seen_files)
        whole = seen.how in ("read", "written") and 0 < len(diff) <= LONGEST_TOLD_DIFF
        now = make_seen_file(seen.path, data, file, "read" if whole else "told")
        return ChangedFile(now=now, diff=diff if len(diff) <= LONGEST_TOLD_DIFF else "")

    def _clean_up_if_already_written(self, planned: Planned, key: CallKey) -> bool:
        """Return whether the file already matches the plan; if so, remove what a killed write left behind."""
        try:
            with self.workspace.open_parent_directory(Path(parse_file_name(planned.path))) as place:
                done = hash_file_at(place) == planned.after
                if done:
                    remove_temporary_file(place, key)
                return done
        except (OSError, PathRefused):  # missing or unreachable: the next step reports it
            return False

    def _write_unless_file_changed(self, change: FileChange, planned: Planned, key: CallKey) -> ToolResult:
        """Write the change unless the file is no longer as planned. Writers of ours take turns in a folder."""
        path = Path(change.path)
        try:
            if self.workspace.resolve_writable(change.path) != path:  # replaced by a link in the meantime
                return _external_change_result(self.workspace, planned)
            creates = planned.before is None
            with (
                self.workspace.open_parent_directory(path, create_missing=creates) as place,
                lock_folder(place.directory, _LOCK_WAIT_S),
            ):
                if hash_file_at(place) == planned.after:
                    return _success_result(self.workspace, planned)
                if self._editor_or_disk_hash(place, path) != planned.before:
                    return _external_change_result(self.workspace, planned)
                if change.before != change.after:
                    plan = self.workspace.find_plan_file(change.path) is not None
                    self._write_through_editor(path, change.after)
                    if (there := hash_file_at(place)) != planned.after:
                        check = partial(_require_digest, place, there)
                        self._write(place, path, change.after, key, private=plan, check=check)
        except OSError as error:
            return self._write_failure_result(path, planned, error)
        self.workspace.record_written_digest(path, planned.after)
        return _success_result(self.workspace, planned)

    def _write(
        self,
        place: OpenDirEntry,
        path: Path,
        data: bytes,
        key: CallKey,
        *,
        private: bool = False,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Write a file; `check` is called right before, and may raise `OSError`."""
        if private or self.copies is None:
            write_atomically(place, data, key, private=private, check=check)
        else:
            write_keeping_file(place, path, data, key, self.copies, check)

    def restore_killed_writes(self) -> None:
        """Put files of this workspace back as they were if a write in place was cut off in them."""
        if self.copies is not None:
            restore_from_copies(self.copies, self._restore_killed_write)

    def _restore_killed_write(self, path: Path, before: bytes, after: bytes) -> bool:
        """Return whether the copies aren't needed any more."""
        try:
            if self.workspace.resolve_writable(str(path)) != path:
                return False
            with self.workspace.open_parent_directory(path) as place:
                return restore_torn_file(place, before, after)
        except (OSError, PathRefused):  # of another workspace, or not there now: the copies stay
            return False

    def _write_failure_result(self, path: Path, planned: Planned, error: OSError) -> ToolResult:
        gone = planned.before is not None and isinstance(error, FileNotFoundError | NotADirectoryError)
        if gone or isinstance(error, _ChangedMeanwhileError) or error.errno == errno.ELOOP:
            return _external_change_result(self.workspace, planned)
        reason = error.strerror or str(error)
        shown = self.workspace.display_path(path)
        return error_result(
            "io_error", f"{quote_name(shown)} could not be written: {reason}. The file is as it was."
        )


class _ChangedMeanwhileError(OSError):
    """Somebody else wrote the file while it was about to be replaced."""


def _require_digest(place: OpenDirEntry, digest: str | None) -> None:
    """Raise `_ChangedMeanwhileError` unless a file's bytes still have this hash."""
    if hash_file_at(place) != digest:
        raise _ChangedMeanwhileError


def _change_cache_key(
    tool: Tool, args: BaseModel, context: ToolContext, files: Mapping[str, bytes]
) -> tuple[str, ...] | None:
    """Return the call and the file that it would find; None: it names none. Raise `ToolError` like the call."""
    path = next((path for path, access in tool.paths(args) if access == "write"), None)
    if path is None:
        return None
    target = prepare_write_target(path, context, files)
    found = "" if target.before is None else sha256(target.before)
    known = target.stale.why if target.stale else ""
    return tool.name, args.model_dump_json(), str(target.path), found, known


def _change_size(change_or_error: FileChange | ToolError) -> int:
    return (
        0
        if isinstance(change_or_error, ToolError)
        else len(change_or_error.before or b"") + len(change_or_error.after)
    )


def _read_target_file(file_path: str, files: Mapping[str, bytes], context: ToolContext) -> TargetFile:
    target = prepare_write_target(file_path, context, files)
    if target.before is None:
        return TargetFile(str(target.path), target.display_path, None, 0, target.conventions)
    context.workspace.resolve_readable(file_path)  # errors and helpers quote the file's text
    changed_at = _modification_time(target.path, context)
    return TargetFile(str(target.path), target.display_path, target.before, changed_at, target.conventions)


def _modification_time(path: Path, context: ToolContext) -> float:
    try:
        with context.workspace.open_parent_directory(path) as place:
            return stat_refusing_links(place).st_mtime
    except OSError:  # created by an earlier call of the batch, not on disk yet
        return 0


async def _compute_change(
    tool: Tool, args: BaseModel, context: ToolContext, files: dict[str, bytes]
) -> FileChange:
    """Return the change that a call makes. Raise `ToolError`, also for a mark that stands for a secret."""
    if tool.plan is None:
        raise TypeError(f"{tool.name!r} has no plan; only tools that write one file are planned.")
    change = await tool.plan(args, context, files)
    redacts = context.settings.security.redact_secrets
    if redacts and (mark := find_new_redaction_mark(change.before or b"", change.after)):
        raise ToolError("redacted", load_prompt("run/marked").render(mark=mark))
    return change


def _is_same_change(change: FileChange, planned: Planned) -> bool:
    """Return whether path and bytes are as planned: message and diff are stored redacted."""
    made = _to_planned(change)
    return (made.path, made.before, made.after) == (planned.path, planned.before, planned.after)


def _to_planned(change: FileChange) -> Planned:
    before = None if change.before is None else sha256(change.before)
    return Planned(
        path=format_file_name(change.path),
        before=before,
        after=sha256(change.after),
        message=change.message,
        diff=change.diff,
        how=change.how,
        part=change.part,
    )


def _success_result(workspace: Workspace, planned: Planned) -> ToolResult:
    """Return the result of a plan, built from it alone, so that it is identical before and after a crash."""
    lines = planned.diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    path = Path(parse_file_name(planned.path))
    meta: dict[str, JsonValue] = {
        "path": workspace.display_path(path),
        "diff": planned.diff,
        "summary": f"+{added} -{removed}",
    }
    seen = SeenFile(path=str(meta["path"]), digest=planned.after or "")
    with suppress(ToolError):  # whatever became of it, the write succeeded
        data = read_file_bytes(workspace, path)
        if sha256(data) == planned.after:
            file = decode_text_file(data, workspace.read_conventions(path), path.name)
            seen = make_seen_file(seen.path, data, file)
    seen = seen.model_copy(update={"how": "part" if planned.part else "written"})
    return ToolResult(status="success", content=planned.message, meta=meta, seen=(seen,))


def _external_change_result(workspace: Workspace, planned: Planned) -> ToolResult:
    shown = workspace.display_path(Path(parse_file_name(planned.path)))
    return error_result(
        "external_change",
        f"{quote_name(shown)} changed while the edit waited; read it again and edit what is there.",
    )


def _call_key(call: CallView) -> str:
    return json.dumps([call.id, call.name, call.args])
