"""browsing_driver: opens a browser on a page, prints `open`, and continues acting until it is killed."""

import asyncio
import sys
from pathlib import Path

from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.calls import CallKey
from interlock.state.settings import Settings
from interlock.state.tooling import ToolContext
from interlock.tools.browser.action import BrowserActionArgs, run_browser_action


async def main(folder: Path, url: str) -> None:
    outputs = OutputFiles(folder / "state")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)}
    context = ToolContext(
        key=CallKey(message="m", index=0),
        workspace=FolderWorkspace(folder),
        processes=SupervisedProcesses(outputs=outputs, env=env),
        outputs=outputs,
        settings=Settings(),
        emit_output=lambda _: None,
        reach="any",
    )
    print("begun", flush=True)
    await run_browser_action(BrowserActionArgs(action="launch", url=url), context)
    print("open", flush=True)
    while True:
        await run_browser_action(BrowserActionArgs(action="scroll_down"), context)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
