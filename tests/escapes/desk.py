"""desk: a workspace beside things that no tool may read or change, and the tools to try it with."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patience import HANG_S

from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.services.toolset import BuiltinToolset
from interlock.state.calls import CallKey, CallView, ToolResult, error_result
from interlock.state.settings import Settings
from interlock.state.tooling import ToolRun

SECRET = "token-of-the-outside"
"""The content of every file outside."""


class Desk:
    """`root` with a run's tools; beside it `outside`, whose files all hold the secret."""

    def __init__(self, folder: Path, included: Sequence[Path] = ()) -> None:
        self.root, self.outside = folder / "work", folder / "outside"
        for directory in (self.root / "src" / "deep", self.outside / "below"):
            directory.mkdir(parents=True, exist_ok=True)
        for name in ("secret.txt", "below/secret.txt", ".gitignore"):
            (self.outside / name).write_text(f"{SECRET}\n")
        self.before = self.snapshot()
        self._outputs = OutputFiles(folder / "state")
        self._workspace = FolderWorkspace(self.root, included)

    def in_workspace(self, workspace: FolderWorkspace) -> "Desk":
        self._workspace = workspace
        return self

    def _tools(self) -> BuiltinToolset:
        """As in a run: the workspace is shared, though each call here has its own loop."""
        env = tool_environment(os.environ)
        return BuiltinToolset(
            workspace=self._workspace,
            processes=SupervisedProcesses(outputs=self._outputs, env=env),
            outputs=self._outputs,
            settings=Settings(),
        )

    def snapshot(self) -> dict[str, tuple[int, int, bytes]]:
        """Everything outside: inode, mode and bytes of each name."""
        return {
            str(p.relative_to(self.outside)): (
                p.lstat().st_ino,
                p.lstat().st_mode,
                p.read_bytes() if p.is_file() else b"",
            )
            for p in sorted(self.outside.rglob("*"))
        }

    def call(self, tool: str, **args: Any) -> ToolResult:
        """Call a tool as a run does: check, plan if it writes, then run."""
        problem = self._tools().find_call_problem(CallView(id="c", name=tool, args=args))
        return error_result("invalid", problem) if problem else self.run(tool, **args)

    def run(self, tool: str, **args: Any) -> ToolResult:
        """Plan if it writes, then run."""
        call, tools = CallView(id="c", name=tool, args=args), self._tools()
        result = asyncio.run(asyncio.wait_for(_run(tools, call), HANG_S))
        assert result.error is None or result.error["type"] != "unhandled_exception", result.content
        return result


async def _run(tools: BuiltinToolset, call: CallView) -> ToolResult:
    info = tools.find_tool_info(call.name)
    plan = await tools.plan_change(call) if info is not None and info.effect == "file" else None
    if isinstance(plan, ToolResult):
        return plan
    key = CallKey(message="m", index=0)
    return await tools.run_call(ToolRun(key=key, call=call, emit=lambda _: None, planned=plan))
