"""shown_files: files whose whole text stands in a command's output, as after `cat`."""

import shlex
from contextlib import suppress
from pathlib import Path

from interlock.state.calls import ToolError
from interlock.state.seen import SeenFile
from interlock.state.workspace import Workspace
from interlock.tools.file_content import decode_text_file
from interlock.tools.stale_files import make_seen_file
from interlock.tools.workspace_files import path_kind, read_file_bytes

_MOST_WORDS = 50
"""Words of a command that are looked at."""


def find_shown_files(
    command: str, directory: Path, output: str, workspace: Workspace
) -> tuple[SeenFile, ...]:
    """Return the files that a command line names and its output holds word for word, so the model read them."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return ()
    found: list[SeenFile] = []
    for word in [*dict.fromkeys(words)][:_MOST_WORDS]:
        with suppress(ToolError):
            if seen := _find_shown_file(str(directory / word), output, workspace):
                found.append(seen)
    return tuple(found)


def _find_shown_file(name: str, output: str, workspace: Workspace) -> SeenFile | None:
    path = workspace.resolve_readable(name)
    if path_kind(workspace, path) != "file" or path.stat().st_size > 4 * len(output):
        return None
    data = read_file_bytes(workspace, path)
    file = decode_text_file(data, workspace.read_conventions(path), path.name)
    if file is None or not (text := file.text.rstrip()) or text not in output:
        return None
    return make_seen_file(workspace.display_path(path), data, file)
