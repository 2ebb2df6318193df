"""Words, piped text, JSON and batches."""

import io
import os
import sys
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from interlock.cli import inputs
from interlock.cli.inputs import parse_json_object, read_batch_lines, read_prompt
from interlock.state.errors import InputError

Pipe = Callable[[bytes | None], None]


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Generator[Pipe]:
    """Makes stdin a pipe that holds some bytes and is closed; with None it stays open and silent."""
    ends: list[io.IOBase] = []

    def make(data: bytes | None) -> None:
        reader, writer = (os.fdopen(end, mode) for end, mode in zip(os.pipe(), ("rb", "wb"), strict=True))
        stdin = io.TextIOWrapper(reader, encoding="utf-8")
        ends.extend((stdin, writer))
        if data is not None:
            writer.write(data)
            writer.close()
        monkeypatch.setattr(sys, "stdin", stdin)

    yield make
    for end in ends:
        end.close()


@pytest.mark.parametrize(
    ("piped", "words", "expected"),
    [
        (b"the log\n", "explain", "the log\n\nexplain"),
        (b"", "explain", "explain"),
        (b"just this\n", None, "just this"),
        (b"/bin\n/etc", "explain", "\n/bin\n/etc\n\nexplain"),
        (b"the log", "/review this", "/review this\n\nthe log"),
        (b"the log", "/etc/hosts?", "the log\n\n/etc/hosts?"),
        (b"caf\xc3\xa9 \xff", "x", "café \ufffd\n\nx"),
    ],
)
def test_piped_text_comes_before_the_words(
    pipe: Pipe, piped: bytes, words: str | None, expected: str
) -> None:
    pipe(piped)
    assert read_prompt(words) == expected


def test_a_pipe_that_stays_open_and_silent_does_not_hang_a_prompt(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_PIPE_WAIT_S", 0.05)
    pipe(None)
    assert read_prompt("go") == "go"


def test_no_prompt_at_all_is_a_bad_input(pipe: Pipe) -> None:
    pipe(b"  \n")
    with pytest.raises(InputError, match="No prompt") as raised:
        read_prompt(None)
    assert (raised.value.exit_code, raised.value.field) == (42, "prompt")


def test_too_much_piped_text_is_refused(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PIPE_LIMIT", 10)
    pipe(b"x" * 11)
    with pytest.raises(InputError, match="over 8 MB"):
        read_prompt("x")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1,\n "b": }', "line 2, column 7"),
        ("", "line 1, column 1"),
        ("[1]", "it is a list"),
        ('"x"', "it is a string"),
        ("true", "it is a boolean"),
        ("null", "it is null"),
        ("3", "it is a number"),
        ("[" * 100_000, "nested too deeply"),
        (f'{{"a": {"1" * 5000}}}', "an integer that is too long"),
    ],
)
def test_what_is_no_json_object_is_refused_naming_the_place(text: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        parse_json_object(text, "--input")


def test_a_batch_goes_on_after_a_bad_line(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    text = '\ufeff{"prompt": "a\u2028b"}\r\n\n{bad\n[1]\n{"prompt": "c"}\n'.encode()
    file.write_bytes(text + b'{"prompt": "caf\xe9"}')
    numbers, lines = zip(*read_batch_lines(str(file)), strict=True)
    assert numbers == (1, 3, 4, 5, 6)
    assert [line for line in lines if isinstance(line, dict)] == [{"prompt": "a\u2028b"}, {"prompt": "c"}]
    assert [str(line) for line in lines if isinstance(line, InputError)] == [
        "Line 3 is not JSON: Expecting property name enclosed in double quotes at line 1, column 2.",
        "Line 4 must be a JSON object, it is a list.",
        "Line 6 is not UTF-8 (byte 15).",
    ]


def test_a_batch_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't read"):
        list(read_batch_lines(str(tmp_path / "none.jsonl")))
