"""kill_driver: starts one supervised command and waits to be killed. Arguments: folder, mode, command."""

import asyncio
import os
import sys
from pathlib import Path

from interlock.services.outputs import OutputFiles
from interlock.services.processes import SupervisedProcesses
from interlock.services.tool_environment import tool_environment
from interlock.state.deps import Token


async def main(folder: Path, mode: str, command: str) -> None:
    processes = SupervisedProcesses(
        outputs=OutputFiles(folder / "state"), cancel=Token(), env=tool_environment(os.environ)
    )
    argv = ["bash", "-c", command]
    if mode == "background":
        await processes.start(argv, cwd=folder, label=command)
        await asyncio.sleep(60)
    else:
        await processes.run(argv, cwd=folder, timeout_s=60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
