"""viewing: shows a request outside the session: its text in a pager, its edits in the person's difftool."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from interlock.engine.client.requests import Request, brief
from interlock.state.errors import UserError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def page(text: str) -> bool:
    """Show coloured lines in $PAGER, by default less; False: there is none."""
    pager = os.environ.get("PAGER") or next((name for name in ("less", "more") if shutil.which(name)), "")
    if not pager:
        return False
    env = {"LESS": "-R", **os.environ}
    try:
        subprocess.run(shlex.split(pager), input=text.encode(), env=env, check=False)
    except (OSError, ValueError) as error:
        raise UserError(f"Can't start the pager {pager!r}: {error}. Set PAGER.") from error
    return True


def compare(requests: Sequence[Request], workspace: Path) -> None:
    """Open each edit in `git difftool`, which the person's own git settings name. Raises `UserError`."""
    with tempfile.TemporaryDirectory(prefix="interlock-diff-") as folder:
        for number, request in enumerate(requests, 1):
            name = Path(brief(request["args"])).name or "file"
            files = [Path(folder, side, str(number), name) for side in ("before", "after")]
            for file, text in zip(files, sides(request["preview"], _now(request, workspace)), strict=True):
                file.parent.mkdir(parents=True)
                file.write_text(text, encoding="utf-8")
            # Not in the workspace: settings of a repository may name any program.
            command = ["git", "difftool", "--no-index", "--no-prompt", *map(str, files)]
            try:
                done = subprocess.run(command, cwd=folder, check=False)
            except OSError as error:
                raise UserError(f"Can't start git difftool: {error.strerror}. Install git.") from error
            if done.returncode > 1:
                raise UserError("git difftool failed. Name a tool: git config --global diff.tool vimdiff")


def _now(request: Request, workspace: Path) -> str:
    try:
        return (workspace / brief(request["args"])).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


def sides(diff: str, now: str) -> tuple[str, str]:
    """The text before and after a diff: whole where it fits `now`, else its hunks alone."""
    before: list[str] = []
    after: list[str] = []
    lines, at = now.splitlines(keepends=True), 0
    for start, old, new in _hunks(diff):
        if lines[start : start + len(old)] != old:
            return _alone(diff)
        before += [*lines[at:start], *old]
        after += [*lines[at:start], *new]
        at = start + len(old)
    return "".join([*before, *lines[at:]]), "".join([*after, *lines[at:]])


def _alone(diff: str) -> tuple[str, str]:
    found = [*_hunks(diff)]
    return "".join(x for _, old, _ in found for x in old), "".join(x for _, _, new in found for x in new)


def _hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Each hunk's place in the old text, from 0, with its lines before and after."""
    found: list[tuple[int, list[str], list[str]]] = []
    last: list[list[str]] = []
    for line in diff.splitlines(keepends=True):
        if head := _HUNK.match(line):
            found.append((max(int(head[1]) - (head[2] != "0"), 0), [], []))
        elif found and line[:1] in (" ", "-", "+"):
            _, old, new = found[-1]
            last = {" ": [old, new], "-": [old], "+": [new]}[line[0]]
            for side in last:
                side.append(line[1:].rstrip("\n") + "\n")
        elif line.startswith("\\"):  # the line before it has no line end
            for side in last:
                side[-1] = side[-1].rstrip("\n")
    yield from found
