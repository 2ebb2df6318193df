"""list_directory, read_file, read_many_files, glob, write_todos: what the model reads."""

import os
from pathlib import Path
from typing import Any

import pytest
from folders import table
from tool_calls import Calls

TABLE: dict[str, list[Any]] = table(__file__, "reading.yaml")
NUMBERS = {"long": "".join(f"{i}\n" for i in range(1, 5002)), "short": "1\n2\n3"}
PNG = b"\x89PNG\r\n\x1a\n\0\0"
FILES = ("a.py", ".hidden.py", "src/b.py", "src/deep/C.PY", "src/d.ts", "app/[id]/page.tsx", "app/i/page.tsx")


@pytest.fixture
def files(call: Calls) -> None:
    call.write({name: f"{name}\n" for name in FILES})


@pytest.mark.parametrize(("file", "lines", "head", "first", "last"), TABLE["parts"])
def test_a_long_file_is_cut_and_says_how_to_go_on(
    call: Calls, file: str, lines: list[int | None], head: str, first: int, last: int
) -> None:
    call.write(NUMBERS)
    text = call.text("read_file", file_path=file, start_line=lines[0], end_line=lines[1])
    assert text.split("\n") == [head, *map(str, range(first, last + 1))]


def test_long_lines_and_long_pages_are_cut(call: Calls) -> None:
    call.write({"wide": "x" * 2001 + "\n" + "y" * 2000, "big": ("z" * 1999 + "\n") * 1000})
    text = call.text("read_file", file_path="wide").split("\n")
    assert text[0] == "[1 line was cut at 2000 characters.]"
    assert text[1:] == ["x" * 2000 + "... [truncated]", "y" * 2000]
    big = call.text("read_file", file_path="big", end_line=1000)
    assert len(big) < 201_000
    assert big.startswith("[Lines 1-100 of 1000. To go on, read from start_line=101.]")


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (b"one\r\n  two\r\n", "one\n  two"),
        (PNG, "['a': picture (image/png, 10 bytes), shown beside this text.]"),
        *(
            (data, f"['a' is binary of {len(data)} bytes; its content can't be shown as text.]")
            for data in (b"\0\1\2", b"\xff\xfea", bytes(range(128, 256)) + b"\1\2\3" * 99)
        ),
        (b"", "['a' is empty.]"),
        (b"\xef\xbb\xbf", "['a' is empty.]"),
    ],
)
def test_a_file_is_shown_as_it_is_or_described(call: Calls, data: bytes, shown: str) -> None:
    call.write({"a": data})
    result = call("read_file", file_path="a")
    assert (result.status, result.content) == ("success", shown)
    assert [part.mime_type for part in result.data] == ["image/png"] * (data == PNG)


def test_a_private_name_is_not_suggested(call: Calls) -> None:
    call.write({".env": ""})
    assert "Did you mean" not in call.failed("file_not_found", "read_file", file_path=".envv")


def test_directories_come_first_and_sizes_are_told(call: Calls, tmp_path: Path) -> None:
    call.write({"b/": "", "A.txt": "12345", "z.txt": "", "a\n[DIR] forged": "", os.fsdecode(b"\xff"): ""})
    for name, target in (("in", "A.txt"), ("out", tmp_path / "elsewhere"), ("gone", "nowhere")):
        (call.folder / name).symlink_to(target)
    text = call.text("list_directory")
    text.encode()
    assert text.split("\n") == [
        *("In the workspace:", "[DIR] b", "a\\x0a[DIR] forged (0 bytes)", "A.txt (5 bytes)"),
        *("gone (link) (leads nowhere)", "in (link)", "out (link) (leads where tools may not go)"),
        *("z.txt (0 bytes)", "\\xff (0 bytes)"),
    ]
    assert call.text("list_directory", dir_path="b") == "'b' is empty."


def test_ignored_entries_are_counted_not_listed(call: Calls) -> None:
    logs = {f"src/{name}": "" for name in ("a.log", "b.log", "c.tmp", "d.py")}
    call.write({".git/": "", ".gitignore": "*.log\n", **logs})
    text = call.text("list_directory", dir_path="src", ignore=["*.tmp"])
    assert text == "In 'src':\nd.py (0 bytes)\n(2 ignored)"
    text = call.text("list_directory", dir_path="src", respect_git_ignore=False)
    assert "a.log" in text
    assert "ignored" not in text


@pytest.mark.parametrize(("tool", "args", "most", "said"), TABLE["floods"])
def test_a_flood_of_files_is_cut(call: Calls, tool: str, args: dict[str, str], most: int, said: str) -> None:
    for number in range(most + 3):
        (call.folder / f"{number:04}").touch()
    assert call.text(tool, **args).endswith(f"\n{said}")


@pytest.mark.parametrize(("pattern", "more", "found"), TABLE["globs"])
def test_patterns_find_what_they_say(
    call: Calls, files: None, pattern: str, more: dict[str, Any], found: list[str]
) -> None:
    text = call.text("glob", pattern=pattern.replace("{here}", str(call.folder.resolve())), **more)
    assert text.split("\n")[1:] == found
    count = "1 file" if len(found) == 1 else f"{len(found)} files"
    assert text.startswith(f"{count} for " if found else "No file matches")


def test_glob_leaves_ignored_files_out_until_asked(call: Calls, files: None) -> None:
    call.write({".git/": "", ".gitignore": "src/\n"})
    assert "src" not in call.text("glob", pattern="**")
    assert "src/b.py" in call.text("glob", pattern="**", respect_git_ignore=False)


def test_no_pattern_takes_long(call: Calls) -> None:
    call.write({"a" * 250: ""})
    for pattern in ("*a" * 100 + "b", "**/" * 50 + "x", "{a,b}" * 60, "[" * 50, "{" * 5000):
        assert "No file matches" in call.text("glob", pattern=pattern)


@pytest.mark.parametrize(("args", "named"), TABLE["several files"])
def test_several_files_come_in_order_under_their_names(
    call: Calls, files: None, args: dict[str, Any], named: list[str]
) -> None:
    call.write({"dist/x.py": "dist/x.py\n"})
    wanted = "".join(f"--- {name} ---\n\n{name}\n\n" for name in named)
    text = call.text("read_many_files", **args)
    assert text.partition("\nNo file")[0] == f"{wanted}--- End of content ---"


def test_what_could_not_be_read_is_said(call: Calls, files: None) -> None:
    call.write({"a.png": b"\0", "b.png": b"\0"})
    include = ["a.py", "*.png", "a.png", "nowhere", "none/*.x", "../y", ".env"]
    text = call.text("read_many_files", include=include)
    assert "'a.png' is an image" in text
    assert "Not shown, because there was no more room or they aren't text: b.png." in text
    assert "No file 'nowhere'." in text and "No file matches 'none/*.x'." in text
    assert "'../y' leads outside" in text and "'.env' is refused" in text


def test_what_has_no_room_is_named(call: Calls) -> None:
    call.write(dict.fromkeys("abcd", "x" * 99 + "\n" + ("y" * 99 + "\n") * 1300))
    text = call.text("read_many_files", include=["*"])
    assert len(text) < 202_000
    assert "--- b ---\n\n[Lines 1-" in text
    assert text.endswith("they aren't text: d.")
    call.write({f"{'n' * 240}{i}": "" for i in range(900)})
    assert len(call.text("read_many_files", include=["nnn*"])) < 220_000, "names count, too"


def test_todos_are_shown_as_a_list(call: Calls) -> None:
    steps = [{"description": "one", "status": "completed"}, {"description": "two", "status": "in_progress"}]
    result = call("write_todos", todos=steps)
    assert result.content == "The list is now:\n[x] one\n[>] two"
    assert result.meta["todos"] == steps
    assert call.text("write_todos", todos=[]) == "The list is empty now."
