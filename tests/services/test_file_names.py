"""Names of files: any name has a printable form, and what a model writes means the file that is there."""

import itertools
import json
import os
import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from escapes.desk import Desk
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.state.file_names import (
    fold_written_name,
    format_file_name,
    has_one_spelling,
    parse_file_name,
    quote_path,
)

ACCENTED = st.text("eéèñöåçがＡﬁ한ệ\u0301\u0308 ab", min_size=1, max_size=8).map(lambda name: f"x{name}x")
FORM = st.sampled_from(["NFC", "NFD"])
ENDS = ['"{}"', "'{}'", "`{}`", "{},", " {}", "{} ", "`{}`, ", '"{}",', "‘{}’"]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@contextmanager
def fresh() -> Iterator[Desk]:
    with TemporaryDirectory() as folder:
        yield Desk(Path(folder).resolve())


def files(desk: Desk) -> dict[str, str]:
    found = (path for path in desk.root.rglob("*") if path.is_file())
    return {str(path.relative_to(desk.root)): path.read_text() for path in found}


@given(st.binary(min_size=1, max_size=12) | st.sampled_from([rb"a\xe9", rb"\x5c", rb"\x5cx5c", b"a\n\x1b"]))
def test_any_name_is_written_as_printable_text_and_read_back(raw: bytes) -> None:
    assume(b"\0" not in raw)
    name = os.fsdecode(raw)
    text = format_file_name(name)
    text.encode()
    assert parse_file_name(text) == name
    assert parse_file_name(quote_path(name)[1:-1]) == name
    assert not {c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")}


@given(ACCENTED, ACCENTED, FORM, FORM, FORM, FORM)
def test_a_name_composed_otherwise_means_the_file_that_is_there(
    folder: str, name: str, folder_form: str, name_form: str, other_folder: str, other_name: str
) -> None:
    there = f"{unicodedata.normalize(folder_form, folder)}/{unicodedata.normalize(name_form, name)}"
    written = f"{unicodedata.normalize(other_folder, folder)}/{unicodedata.normalize(other_name, name)}"
    with fresh() as desk:
        assert desk.call("write_file", file_path=there, content="one\n").error is None
        assert desk.call("read_file", file_path=written).content == "one"
        assert desk.call("replace", file_path=written, old_string="one", new_string="two").error is None
        beside = f"{written.rpartition('/')[0]}/new"
        assert desk.call("write_file", file_path=beside, content="").error is None
        assert files(desk) == {there: "two\n", f"{there.rpartition('/')[0]}/new": ""}


@pytest.mark.parametrize("name", [b"caf\xe9.txt", rb"back\slash.txt", b"it's.txt", b"tab\t.txt"])
def test_a_message_names_a_file_as_the_model_can_name_it(desk: Desk, name: bytes) -> None:
    (desk.root / os.fsdecode(name)).write_text("one\n")
    edited = desk.call(
        "replace", file_path=format_file_name(os.fsdecode(name)), old_string="one", new_string="2"
    )
    missing = desk.call("read_file", file_path=format_file_name(os.fsdecode(name.replace(b".", b"z."))))
    for message in (edited.content, missing.content.partition("Did you mean")[2]):
        quoted = re.search(r"""(['"])(.*?)\1[ :.?]""", message)
        assert quoted and desk.call("read_file", file_path=quoted[2]).content == "2"


@pytest.mark.parametrize("form", ENDS)
def test_quotes_commas_and_blanks_at_the_ends_are_slips(desk: Desk, form: str) -> None:
    (desk.root / "src" / "config.py").write_text("one\n")
    for path in ("src/config.py", str(desk.root / "src" / "config.py")):
        assert desk.call("read_file", file_path=form.format(path)).content == "one"
    assert desk.call("write_file", file_path=f"src/{form.format('config.py')}", content="two\n").error is None
    assert files(desk) == {"src/config.py": "two\n"}
    for path in (form.format("new.py"), f"{form.format('new')}/a.py"):
        assert "is refused" in desk.call("write_file", file_path=path, content="").content
    assert files(desk) == {"src/config.py": "two\n"}


def test_a_file_with_such_a_name_is_reached_by_it_and_left_alone_otherwise(desk: Desk) -> None:
    (desk.root / "`a.py`, ").write_text("odd\n")
    assert desk.call("read_file", file_path="`a.py`, ").content == "odd"
    assert desk.call("write_file", file_path="a.py", content="new\n").error is None
    assert files(desk) == {"`a.py`, ": "odd\n", "a.py": "new\n"}


@pytest.mark.parametrize(
    ("there", "written"),
    [
        (b"caf\xe9.txt", r"caf\xe9.txt"),
        (b"caf\xe9.txt", r"caf\\xe9.txt"),  # as Python quotes it
        (b"caf\xe9.txt", "caf\ufffd.txt"),  # as `ls` shows it
        (b"caf\xe9.txt", r'"caf\351.txt"'),  # as `git status` does
        ("café.txt".encode(), r'"caf\303\251.txt"'),
        (b"a\nb", r"a\x0ab"),
        ("Bild um 9.41\u202fAM.png".encode(), "Bild um 9.41 AM.png"),  # a Mac's screenshot
        ("Anna’s.md".encode(), "Anna's.md"),
    ],
)
def test_a_name_is_understood_as_programs_print_it(desk: Desk, there: bytes, written: str) -> None:
    (desk.root / os.fsdecode(there)).write_text("one\n")
    assert desk.call("replace", file_path=written, old_string="one", new_string="two").error is None
    assert (desk.root / os.fsdecode(there)).read_text() == "two\n"
    assert [*map(os.fsencode, files(desk))] == [there]


def test_of_several_names_alike_none_is_guessed(desk: Desk) -> None:
    for name in ("é.txt", "e\u0301.txt"):
        (desk.root / name).write_text(name)
        assert desk.call("read_file", file_path=name).content == name
    for tool, args in (("read_file", {}), ("write_file", {"content": ""})):
        assert "could be any of 2 names" in desk.call(tool, file_path="'é.txt'", **args).content


def test_every_tool_takes_the_name_that_another_lists(desk: Desk) -> None:
    name = os.fsdecode(b"d\xe9j\xe0/caf\xe9.py")
    (desk.root / name).parent.mkdir()
    (desk.root / name).write_text("def needle(): pass\n")
    listed = [
        desk.call("glob", pattern="**/*.py").content.splitlines()[1],
        desk.call("grep_search", pattern="needle", names_only=True).content.splitlines()[1],
        desk.call("list_files", path=".", recursive=True).content.splitlines()[-1],
    ]
    folder = desk.call("list_directory").content.splitlines()[1].removeprefix("[DIR] ")
    assert [*listed, f"{folder}/caf\\xe9.py"] == ["d\\xe9j\\xe0/caf\\xe9.py"] * 4
    for tool, args in (
        ("read_file", {"file_path": listed[0]}),
        ("read_many_files", {"include": [listed[0]]}),
        ("grep_search", {"pattern": "needle", "dir_path": folder}),
        ("list_directory", {"dir_path": folder}),
        ("glob", {"pattern": "*", "dir_path": folder}),
        ("list_code_definition_names", {"path": listed[0]}),
        ("replace", {"file_path": listed[0], "old_string": "pass", "new_string": "..."}),
        ("insert_content", {"path": listed[0], "line": 0, "content": "x = 1"}),
    ):
        answered = desk.call(tool, **args)
        assert answered.error is None, answered.content
        json.dumps(answered.model_dump(mode="json"), ensure_ascii=False).encode()
    assert (desk.root / name).read_text() == "def needle(): ...\nx = 1\n"


def test_names_in_private_places_stay_closed_however_they_are_written(desk: Desk) -> None:
    (desk.root / ".env").write_text("secret\n")
    for form, tool in itertools.product(ENDS, ("read_file", "write_file")):
        args = {"content": ""} if tool == "write_file" else {}
        answered = desk.call(tool, file_path=form.format(".env"), **args)
        assert answered.error, answered.content
    assert (desk.root / ".env").read_text() == "secret\n"


def test_a_name_that_is_said_to_have_one_spelling_has_one() -> None:
    beyond_ascii = map(chr, (*range(128, 0xD800), *range(0xE000, 0x10000)))  # those after it fold to none
    read = {*map(fold_written_name, beyond_ascii)}
    read |= {fold_written_name(f"\\{escape}") for escape in ("x0a", "x5c", "x7f", "012", "101", "134", "x41")}
    assert not [text for text in read if has_one_spelling(text)]
    assert has_one_spelling("a-b_c.d(e)[f]{g},0~!@#$%^&+=") and not has_one_spelling("it's")
