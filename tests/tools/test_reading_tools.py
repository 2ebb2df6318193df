"""list_directory, read_file, read_many_files, glob: success, refusal, bad arguments."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from interlock.state.calls import ToolResult
from interlock.tools.table import TOOLS

Call = Callable[..., ToolResult]


def failed(result: ToolResult, kind: str) -> str:
    assert result.error is not None
    assert (result.status, result.error["type"]) == ("error", kind)
    assert "\n" not in result.content
    return result.content


# read_file


def test_a_whole_file_is_shown_as_it_is(call: Call, folder: Path) -> None:
    (folder / "a.py").write_bytes(b"one\r\n  two\r\n")
    assert call("read_file", file_path="a.py").content == "one\n  two"


def test_a_long_file_is_cut_and_says_how_to_go_on(call: Call, folder: Path) -> None:
    (folder / "a").write_text("".join(f"{i}\n" for i in range(1, 5002)))
    first = call("read_file", file_path="a").content.split("\n")
    assert first[0] == "[Lines 1-2000 of 5001. To go on, read from start_line=2001.]"
    assert (first[1], first[-1], len(first)) == ("1", "2000", 2001)
    last = call("read_file", file_path="a", start_line=4001).content.split("\n")
    assert last[0] == "[Lines 4001-5001 of 5001.]"
    assert last[-1] == "5001"
    more = call("read_file", file_path="a", start_line=2, end_line=4000).content.split("\n")
    assert (more[1], more[-1], len(more)) == ("2", "4000", 4000)


def test_an_end_past_the_file_is_its_end(call: Call, folder: Path) -> None:
    (folder / "a").write_text("1\n2\n3")
    assert call("read_file", file_path="a", start_line=2, end_line=99).content == "[Lines 2-3 of 3.]\n2\n3"
    assert "has 3 lines" in failed(call("read_file", file_path="a", start_line=4), "invalid_tool_params")


def test_long_lines_and_long_pages_are_cut(call: Call, folder: Path) -> None:
    (folder / "wide").write_text("x" * 2001 + "\n" + "y" * 2000)
    text = call("read_file", file_path="wide").content.split("\n")
    assert text[0] == "[1 line was cut at 2000 characters.]"
    assert text[1:] == ["x" * 2000 + "... [truncated]", "y" * 2000]
    (folder / "big").write_text(("z" * 1999 + "\n") * 1000)
    big = call("read_file", file_path="big", end_line=1000).content
    assert len(big) < 201_000
    assert big.startswith("[Lines 1-100 of 1000. To go on, read from start_line=101.]")


def test_what_is_no_text_is_described(call: Call, folder: Path) -> None:
    (folder / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0")
    (folder / "b").write_bytes(b"\0\1\2")
    (folder / "c").write_text("")
    (folder / "d").write_bytes(b"\xef\xbb\xbf")
    png = call("read_file", file_path="a.png")
    assert png.status == "success"
    assert png.content == "['a.png': picture (image/png, 10 bytes), shown beside this text.]"
    assert [part.mime_type for part in png.data] == ["image/png"]
    assert "is binary of 3 bytes" in call("read_file", file_path="b").content
    assert call("read_file", file_path="c").content == "['c' is empty.]"
    assert call("read_file", file_path="d").content == "['d' is empty.]"


def test_what_cannot_be_read_says_so(call: Call, folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "src" / "settings.py").write_text("")
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    with (folder / "huge").open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    missing = failed(call("read_file", file_path="src/setings.py"), "file_not_found")
    assert "Did you mean 'src/settings.py'?" in missing
    assert "no directory 'x/y'" in failed(call("read_file", file_path="x/y/z"), "file_not_found")
    failed(call("read_file", file_path="src/settings.py/x"), "file_not_found")
    assert "list_directory" in failed(call("read_file", file_path="src"), "is_directory")
    failed(call("read_file", file_path="pipe"), "not_a_file")
    failed(call("read_file", file_path="loop"), "not_a_file")
    failed(call("read_file", file_path="huge"), "too_large")
    failed(call("read_file", file_path="n" * 300), "io_error")
    failed(call("read_file", file_path="../x"), "path_refused")
    failed(call("read_file", file_path=".env"), "path_refused")


def test_a_private_name_is_not_suggested(call: Call, folder: Path) -> None:
    (folder / ".env").write_text("")
    assert "Did you mean" not in failed(call("read_file", file_path=".envv"), "file_not_found")


@pytest.mark.parametrize(
    "args", [{}, {"file_path": "a", "start_line": 0}, {"file_path": "a", "start_line": 5, "end_line": 4}]
)
def test_bad_arguments_of_read_file_are_refused(args: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TOOLS["read_file"].args.model_validate(args)


# list_directory


def test_directories_come_first_and_sizes_are_told(call: Call, folder: Path, tmp_path: Path) -> None:
    (folder / "b").mkdir()
    (folder / "A.txt").write_text("12345")
    (folder / "z.txt").write_text("")
    (folder / "in").symlink_to("A.txt")
    (folder / "out").symlink_to(tmp_path / "elsewhere")
    (folder / "gone").symlink_to("nowhere")
    assert call("list_directory").content.split("\n") == [
        "In the workspace:",
        "[DIR] b",
        "A.txt (5 bytes)",
        "gone (link) (leads nowhere)",
        "in (link)",
        "out (link) (leads where tools may not go)",
        "z.txt (0 bytes)",
    ]


def test_ignored_entries_are_counted_not_listed(call: Call, folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "src").mkdir()
    for name in ("a.log", "b.log", "c.tmp", "d.py"):
        (folder / "src" / name).write_text("")
    text = call("list_directory", dir_path="src", ignore=["*.tmp"]).content
    assert text == "In 'src':\nd.py (0 bytes)\n(2 ignored)"
    text = call("list_directory", dir_path="src", respect_git_ignore=False).content
    assert "a.log" in text
    assert "ignored" not in text


def test_empty_missing_and_wrong_directories_say_so(call: Call, folder: Path) -> None:
    (folder / "empty").mkdir()
    (folder / "file").write_text("")
    assert call("list_directory", dir_path="empty").content == "'empty' is empty."
    failed(call("list_directory", dir_path="file"), "not_a_directory")
    failed(call("list_directory", dir_path="nowhere"), "file_not_found")
    failed(call("list_directory", dir_path=".."), "path_refused")


def test_names_that_could_forge_lines_are_escaped(call: Call, folder: Path) -> None:
    (folder / "a\n[DIR] forged").write_text("")
    (folder / os.fsdecode(b"\xff")).write_text("")
    text = call("list_directory").content
    assert "\n[DIR] forged" not in text
    text.encode()


def test_a_huge_directory_is_cut(call: Call, folder: Path) -> None:
    for i in range(2003):
        (folder / f"{i:04}").touch()
    assert call("list_directory").content.endswith("… 3 more entries aren't shown; narrow it with glob.")


# glob


FILES = ("a.py", ".hidden.py", "src/b.py", "src/deep/C.PY", "src/d.ts", "app/[id]/page.tsx", "app/i/page.tsx")


@pytest.fixture
def files(folder: Path) -> Path:
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name + "\n")
    return folder


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", [".hidden.py", "a.py"]),
        ("**/*.py", [".hidden.py", "a.py", "src/b.py", "src/deep/C.PY"]),
        ("src/**", ["src/b.py", "src/d.ts", "src/deep/C.PY"]),
        ("src/**/*.{py,ts}", ["src/b.py", "src/d.ts", "src/deep/C.PY"]),
        ("./src/?.py", ["src/b.py"]),
        ("src/[!d]*.py", ["src/b.py"]),
        ("app/[id]/page.tsx", ["app/[id]/page.tsx"]),
        ("app/[hi]/page.tsx", ["app/i/page.tsx"]),
        ("**/**/deep/**/c.py", ["src/deep/C.PY"]),
        ("a.py", ["a.py"]),
    ],
)
def test_patterns_find_what_they_say(call: Call, files: Path, pattern: str, found: list[str]) -> None:
    assert call("glob", pattern=pattern).content.split("\n")[1:] == found


def test_glob_starts_where_it_is_told(call: Call, files: Path) -> None:
    assert call("glob", pattern="*.py", dir_path="src").content == "1 file for '*.py':\nsrc/b.py"
    assert call("glob", pattern=f"{files.resolve()}/*.py", case_sensitive=True).content.endswith("\na.py")
    assert "No file matches" in call("glob", pattern="*.PY", case_sensitive=True).content
    failed(call("glob", pattern="../*"), "path_refused")
    failed(call("glob", pattern="/etc/*"), "path_refused")
    failed(call("glob", pattern="*", dir_path="nowhere"), "file_not_found")
    failed(call("glob", pattern="*", dir_path="a.py"), "not_a_directory")
    failed(call("glob", pattern="*", dir_path="/"), "path_refused")


def test_glob_leaves_ignored_files_out_until_asked(call: Call, files: Path) -> None:
    (files / ".git").mkdir()
    (files / ".gitignore").write_text("src/\n")
    assert "src" not in call("glob", pattern="**").content
    assert "src/b.py" in call("glob", pattern="**", respect_git_ignore=False).content


def test_no_pattern_takes_long(call: Call, folder: Path) -> None:
    (folder / ("a" * 250)).touch()
    for pattern in ("*a" * 100 + "b", "**/" * 50 + "x", "{a,b}" * 60, "[" * 50, "{" * 5000):
        assert "No file matches" in call("glob", pattern=pattern).content


def test_a_flood_of_files_is_cut(call: Call, folder: Path) -> None:
    for i in range(1002):
        (folder / f"{i:04}").touch()
    assert call("glob", pattern="*").content.endswith(
        "… 2 more aren't shown; narrow the pattern or dir_path."
    )


# read_many_files


def test_several_files_come_in_order_under_their_names(call: Call, files: Path) -> None:
    result = call("read_many_files", include=["src/*.py", "a.py"])
    assert result.content == "--- a.py ---\n\na.py\n\n--- src/b.py ---\n\nsrc/b.py\n\n--- End of content ---"


def test_directories_excludes_and_defaults_hold(call: Call, files: Path) -> None:
    (files / "dist").mkdir()
    (files / "dist" / "x.py").write_text("built\n")
    assert "dist/x.py" not in call("read_many_files", include=["**/*.py"]).content
    assert "dist/x.py" in call("read_many_files", include=["**/*.py"], useDefaultExcludes=False).content
    assert "built" in call("read_many_files", include=["dist/x.py"]).content
    src = call("read_many_files", include=["src"], exclude=["**/*.ts"]).content
    assert [line for line in src.split("\n") if line.startswith("--- src")] == [
        "--- src/b.py ---",
        "--- src/deep/C.PY ---",
    ]
    assert "deep" not in call("read_many_files", include=["src"], recursive=False).content


def test_what_could_not_be_read_is_said(call: Call, files: Path) -> None:
    (files / "a.png").write_bytes(b"\0")
    (files / "b.png").write_bytes(b"\0")
    text = call(
        "read_many_files", include=["a.py", "*.png", "a.png", "nowhere", "none/*.x", "../y", ".env"]
    ).content
    assert "'a.png' is an image" in text
    assert "Not shown, because there was no more room or they aren't text: b.png." in text
    for part in (
        "No file 'nowhere'.",
        "No file matches 'none/*.x'.",
        "'../y' leads outside",
        "'.env' is refused",
    ):
        assert part in text
    assert "No file 'nowhere'." in failed(call("read_many_files", include=["nowhere"]), "file_not_found")


def test_what_has_no_room_is_named(call: Call, folder: Path) -> None:
    for name in ("a", "b", "c"):
        (folder / name).write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 1300)
    text = call("read_many_files", include=["*"]).content
    assert len(text) < 202_000
    assert "--- b ---\n\n[Lines 1-" in text
    assert text.endswith("they aren't text: c.")


def test_an_empty_include_is_refused() -> None:
    with pytest.raises(ValidationError):
        TOOLS["read_many_files"].args.model_validate({"include": []})


# write_todos, ask_user


def test_todos_are_shown_as_a_list(call: Call) -> None:
    steps = [{"description": "one", "status": "completed"}, {"description": "two", "status": "in_progress"}]
    result = call("write_todos", todos=steps)
    assert result.content == "The list is now:\n[x] one\n[>] two"
    assert result.meta["todos"] == steps
    assert call("write_todos", todos=[]).content == "The list is empty now."


@pytest.mark.parametrize(
    "todos",
    [[{"description": "x", "status": "doing"}], [{"description": "x", "status": "in_progress"}] * 2, [{}]],
)
def test_bad_todos_are_refused(todos: list[dict[str, str]]) -> None:
    with pytest.raises(ValidationError):
        TOOLS["write_todos"].args.model_validate({"todos": todos})


def test_a_question_that_nobody_was_asked_has_no_answer(call: Call) -> None:
    failed(call("ask_user", questions=[{"question": "Which?"}]), "no_answer")


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"question": "?", "type": "choice"},
        {"question": "?", "type": "choice", "options": [{"label": "one"}]},
    ],
)
def test_bad_questions_are_refused(question: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TOOLS["ask_user"].args.model_validate({"questions": [question]})
