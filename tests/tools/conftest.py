"""conftest: a workspace on disk, and single tool calls in it."""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from interlock.services.files.filesystem import OutputFiles, write_atomically
from interlock.services.files.workspace import FolderWorkspace
from interlock.state.calls import CallKey, ToolError, ToolResult
from interlock.state.settings import Settings
from interlock.state.tooling import FileChange, Processes, ToolContext
from interlock.tools.table import TOOLS

Call = Callable[..., ToolResult]
Plan = Callable[..., FileChange | ToolResult]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


@pytest.fixture
def context(folder: Path, tmp_path: Path) -> ToolContext:
    return ToolContext(
        key=CallKey(message="m", index=0),
        workspace=FolderWorkspace(folder),
        processes=cast(Processes, None),
        outputs=OutputFiles(tmp_path / "state"),
        settings=Settings(),
        emit_output=lambda _: None,
    )


@pytest.fixture
def plan(context: ToolContext) -> Plan:
    """What a writing tool would do: `plan("replace", …, earlier={…})`."""

    def once(name: str, earlier: Mapping[str, bytes] | None = None, **args: Any) -> FileChange | ToolResult:
        tool = TOOLS[name]
        assert tool.plan is not None
        try:
            return asyncio.run(tool.plan(tool.args.model_validate(args), context, earlier or {}))
        except ToolError as error:
            return error.result

    return once


@pytest.fixture
def call(context: ToolContext, plan: Plan) -> Call:
    """Make one call: `call("read_file", file_path="a")`."""

    def once(name: str, **args: Any) -> ToolResult:
        tool = TOOLS[name]
        if tool.run is not None:
            try:
                return asyncio.run(tool.run(tool.args.model_validate(args), context))
            except ToolError as error:
                return error.result
        change = plan(name, **args)
        if isinstance(change, ToolResult):
            return change
        with context.workspace.place(Path(change.path), make=True) as place:
            write_atomically(place, change.after, context.key)
        return ToolResult(status="success", content=change.message, meta={"diff": change.diff})

    return once


@pytest.fixture
def lines_run() -> Callable[..., int]:
    """How many lines of Python `work(*args)` executes."""

    def counted(work: Callable[..., object], *args: object) -> int:
        count = 0

        def note(*_: object) -> Any:
            nonlocal count
            count += 1
            return note

        sys.settrace(note)
        try:
            work(*args)
        finally:
            sys.settrace(None)
        return count

    return counted
