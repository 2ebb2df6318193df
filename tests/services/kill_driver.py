"""kill_driver: starts one supervised command and waits to be killed. Arguments: folder, mode, command.

The modes are those of a supervisor: once, background, and each of them -sandboxed."""

import asyncio
import os
import sys
from pathlib import Path

from interlock.services.files.filesystem import OutputFiles
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.sandbox.sandbox import open_sandbox
from interlock.services.secrets.environment import tool_environment
from interlock.state.settings import ToolSettings


async def main(folder: Path, mode: str, command: str) -> None:
    settings = ToolSettings(sandbox=mode.endswith("sandboxed"))
    sandbox = open_sandbox(
        settings, roots=[folder], home=folder.parent / "home", state=folder / "state", env=os.environ
    )
    outputs, env = OutputFiles(folder / "state"), tool_environment(os.environ)
    processes = SupervisedProcesses(outputs=outputs, env=env, sandbox=sandbox)
    argv = ["bash", "-c", command]
    if mode.startswith("background"):
        await processes.start_in_background(argv, cwd=folder, label=command)
        await asyncio.sleep(60)
    else:
        await processes.run(argv, cwd=folder, timeout_s=60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
