"""Reading and writing text: bytes outside a change never change; line endings, BOM and encoding stay."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.state.text import cut_line, diff_stat
from interlock.tools._content import TextFile, decode, lines_of
from interlock.tools._diff import unified_diff
from interlock.tools.matcher.edit import nearest_text

ENCODINGS = st.sampled_from(
    [("utf-8", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-16-le", b"\xff\xfe"), ("utf-16-be", b"\xfe\xff")]
)
LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\r\n\ufeff")), max_size=6)
ENDINGS = st.lists(st.sampled_from(["\n", "\r\n"]), min_size=6, max_size=6)


def raw_text(lines: list[str], ends: list[str], final: bool) -> str:
    raw = "".join(line + end for line, end in zip(lines, ends, strict=False))
    return raw if final else raw.removesuffix("\n").removesuffix("\r")


@given(coding=ENCODINGS, lines=LINES, ends=ENDINGS, final=st.booleans(), data=st.data())
def test_text_outside_the_replaced_window_never_changes(
    coding: tuple[str, bytes], lines: list[str], ends: list[str], final: bool, data: st.DataObject
) -> None:
    encoding, mark = coding
    before = mark + raw_text(lines, ends, final).encode(encoding)
    file = decode(before)
    assert file is not None
    start = data.draw(st.integers(0, len(file.text)))
    end = data.draw(st.integers(start, len(file.text)))
    new = data.draw(st.text(st.characters(codec="utf-8", exclude_characters="\0\r")))
    raw = file.splice([(start, end, new)])
    after = file.encode(raw)
    head, tail = raw_prefix(file, start), raw_prefix(file, len(file.text))[len(raw_prefix(file, end)) :]
    assert after == mark + (head + file.endings(new) + tail).encode(encoding)
    assert raw.replace("\r\n", "\n") == file.text[:start] + new + file.text[end:]


def raw_prefix(file: TextFile, length: int) -> str:
    """The first `length` characters of the text, as stored in the file; slow and simple."""
    raw, count = "", 0
    rest = file.raw
    while count < length:
        step = 2 if rest.startswith("\r\n") else 1
        raw, rest, count = raw + rest[:step], rest[step:], count + 1
    return raw


@given(st.binary())
def test_whatever_decodes_encodes_to_the_same_bytes(data: bytes) -> None:
    file = decode(data)
    assert file is None or file.encode(file.raw) == data


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (b"", "utf-8"),
        ("häß\n".encode(), "utf-8"),
        ("häß\n".encode("latin-1"), "latin-1"),
        ("\ufeffa".encode(), "utf-8"),
        ("\ufeffa".encode("utf-16-le"), "utf-16-le"),
        ("\ufeffa".encode("utf-32-le"), "utf-32-le"),
    ],
)
def test_the_encoding_is_found(data: bytes, encoding: str) -> None:
    file = decode(data)
    assert file is not None
    assert file.encoding == encoding


@pytest.mark.parametrize(
    "data", [b"\x89PNG\r\n\x1a\n\0\0", b"%PDF-1.7\n", b"\xff\xfea", bytes(range(128, 256)) + b"\1\2\3" * 99]
)
def test_what_is_not_text_is_found(data: bytes) -> None:
    assert decode(data) is None


def test_only_line_feeds_end_lines() -> None:
    assert lines_of("a\x0bb\u2028c\rd\ne\n") == ["a\x0bb\u2028c\rd", "e"]
    assert lines_of("") == []
    assert lines_of("\n\n") == ["", ""]


def test_a_diff_shows_what_changes_and_nothing_for_nothing() -> None:
    assert unified_diff("a", b"x\ny\n", b"x\nz\n") == "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n"
    assert unified_diff("a", b"x", b"x") == ""
    assert unified_diff("a", b"x\r\ny\r\n", b"x\r\nz\r\n").count("␍") == 0
    assert "No newline at end of file" in unified_diff("a", b"x", b"x\n")
    assert unified_diff("a", None, b"x\n").startswith("--- /dev/null\n+++ b/a\n@@")
    assert unified_diff("a", b"\0", b"x") == "Binary file a differs.\n"


def test_a_diff_of_huge_files_is_quick_right_and_cut() -> None:
    lines = [f"line {i}\n" for i in range(40_000)]
    changed = [*lines[:20_000], "other\n", *lines[20_001:]]
    text = unified_diff("a", "".join(lines).encode(), "".join(changed).encode())
    assert text.splitlines()[2:] == [
        "@@ -19998,7 +19998,7 @@",
        *(f" line {i}" for i in range(19_997, 20_000)),
        "-line 20000",
        "+other",
        *(f" line {i}" for i in range(20_001, 20_004)),
    ]
    cut = unified_diff("a", None, "".join(lines).encode())
    assert len(cut) < 101_000
    assert cut_line(cut) and diff_stat(cut) == "+40000", "what isn't shown counts"
    dashes = unified_diff("a", b"-- a\nkept\n", b"++ b\nkept\n")
    assert diff_stat(dashes) == "+1 −1", "a line of the file isn't taken for a header"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("def f():\n\treturn 1\n", "    return 1\n", "x", "other whitespace stands at line 2:\n\treturn 1"),
        (
            "a\nvalue = compute(1)\nb\n",
            "value = compute(2)",
            "x",
            "most similar text stands at line 2:\nvalue = compute(1)",
        ),
        ("done = True\n", "done = False", "done = True", "What it would put there stands at line 1 already"),
        ("a\n", "zzzzzz", "x", "Nothing in it is similar"),
        ("", "zzzzzz", "x", "Nothing in it is similar"),
        ("a\n", "\n\n\n", "x", "Nothing in it is similar"),
    ],
)
def test_a_failed_search_says_what_comes_nearest(text: str, old: str, new: str, expected: str) -> None:
    assert expected in nearest_text(text, old, new)
