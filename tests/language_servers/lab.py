"""lab: language servers of a folder, and edits that they check."""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from interlock.services.files.filesystem import OutputFiles
from interlock.services.language_servers.servers import LanguageServers
from interlock.services.language_servers.table import ServerFinder
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.sandbox.sandbox import Sandbox
from interlock.state.settings import LanguageServer

Edit = tuple[str, str | None, str]
"""A file's name, and its text before and after."""
TOY = Path(__file__).with_name("toy_server.py")


def toy(way: str, folder: Path, **fields: Any) -> dict[str, Any]:
    """Return the settings of a server that behaves in some way, and logs what it gets to a file of the folder."""
    command = [sys.executable, str(TOY), way, str(folder / "log")]
    return {"command": command, "suffixes": [".toy"], **fields}


def check_edits(
    folder: Path,
    servers: Mapping[str, Any],
    edits: Sequence[Edit],
    *,
    path: str = os.environ["PATH"],
    sandbox: Sandbox | None = None,
) -> tuple[list[str | None], list[str]]:
    """Make edits one after the other; return what is said of each, and warnings for the person."""
    return asyncio.run(_check_edits(folder, servers, edits, path, sandbox))


async def _check_edits(
    folder: Path, given: Mapping[str, Any], edits: Sequence[Edit], path: str, sandbox: Sandbox | None
) -> tuple[list[str | None], list[str]]:
    warnings: list[str] = []
    servers = LanguageServers(
        ServerFinder(
            {name: LanguageServer.model_validate(one) for name, one in given.items()}, [folder], path
        ),
        processes=SupervisedProcesses(
            outputs=OutputFiles(folder.parent / "state"), env={"PATH": path, "HOME": "/"}, sandbox=sandbox
        ),
        display_path=lambda file: str(file.relative_to(folder)),
        emit=lambda event: warnings.append(event.message),  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType, reportAttributeAccessIssue, reportUnknownMemberType]
    )
    told: list[str | None] = []
    try:
        for name, before, after in edits:
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            told.append(await servers.start_check(file, before, after))
            file.write_bytes(after.encode())
    finally:
        await servers.close()
    return told, warnings
