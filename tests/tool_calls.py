"""tool_calls: single tool calls in a workspace on disk, without a run around them."""

import asyncio
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any

from interlock.services.files.filesystem import OutputFiles, write_atomically
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.state.calls import CallKey, ToolError, ToolResult, tool_error_result
from interlock.state.settings import Settings
from interlock.state.tooling import FileChange, ToolContext
from interlock.tools.table import TOOLS


class Calls:
    """`call("read_file", file_path="a")` makes one call, as a run does."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.settings, self.emitted = folder, Settings(), list[str]()
        folder.mkdir(parents=True, exist_ok=True)
        self.outputs = OutputFiles(folder.parent / "state")
        self.processes = SupervisedProcesses(outputs=self.outputs, env=tool_environment(os.environ))
        self.context = ToolContext(
            key=CallKey(message="m", index=0),
            workspace=FolderWorkspace(folder),
            processes=self.processes,
            outputs=self.outputs,
            settings=self.settings,
            emit_output=self.emitted.append,
        )
        self.runner = asyncio.Runner()

    def close(self) -> None:
        self.processes.close()
        self.runner.close()

    def write(self, files: Mapping[str, str | bytes]) -> None:
        """Write files, and the folders that they need; a name that ends with / is an empty folder."""
        for name, data in files.items():
            path = self.folder / name
            (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
            if not name.endswith("/"):
                path.write_bytes(data if isinstance(data, bytes) else data.encode())

    def read(self, name: str) -> str:
        return (self.folder / name).read_bytes().decode()

    def play(self, scene: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(scene)

    def __call__(self, name: str, **args: Any) -> ToolResult:
        tool = TOOLS[name]
        if tool.run is None:
            change = self.plan(name, **args)
            if isinstance(change, ToolResult):
                return change
            with self.context.workspace.open_parent_directory(
                Path(change.path), create_missing=True
            ) as place:
                write_atomically(place, change.after, self.context.key)
            return ToolResult(status="success", content=change.message, meta={"diff": change.diff})
        try:
            return self.play(tool.run(tool.args.model_validate(args), self.context))
        except ToolError as error:
            return tool_error_result(error)

    def plan(
        self, name: str, earlier: Mapping[str, bytes] | None = None, **args: Any
    ) -> FileChange | ToolResult:
        """What a writing tool would do."""
        tool = TOOLS[name]
        assert tool.plan is not None
        try:
            return self.play(tool.plan(tool.args.model_validate(args), self.context, earlier or {}))
        except ToolError as error:
            return tool_error_result(error)

    def text(self, name: str, **args: Any) -> str:
        """What the model reads after a call that succeeds."""
        result = self(name, **args)
        assert result.status == "success", result.content
        return result.content

    def failed(self, kind: str, name: str, **args: Any) -> str:
        """What the model reads after a call that fails in this way and writes nothing: one line, but for edits."""
        result = self(name, **args) if TOOLS[name].run else self.plan(name, **args)
        assert isinstance(result, ToolResult) and result.error is not None, result
        assert (result.status, result.error["type"]) == ("error", kind), result
        assert TOOLS[name].plan or "\n" not in result.error["message"]
        return result.content
