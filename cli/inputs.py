"""inputs: reads a run's input: words, piped text, JSON, a batch."""

import json
import select
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

from interlock.cli.render.output import command_input
from interlock.state.errors import InputError, UserError
from interlock.state.text import make_visible

PIPE_LIMIT = 8_000_000
"""Bytes of piped text put before a prompt (gemini-cli: 8 MB)."""
_PIPE_WAIT_S = 0.5
"""Seconds to wait for a silent pipe when a prompt was given (gemini-cli: 500 ms): cron and CI leave pipes open."""

_SILENT = "Nothing came from stdin within half a second, so it isn't read. To wait for it: -p -"


def read_piped_text(should_wait: bool) -> str:
    """The piped text; empty at a terminal. `should_wait`: there is no other prompt, so wait for it."""
    stdin = sys.stdin
    if stdin is None or stdin.closed or stdin.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return ""
    if not should_wait and not select.select([stdin], [], [], _PIPE_WAIT_S)[0]:
        print(_SILENT, file=sys.stderr)
        return ""
    data = stdin.buffer.read(PIPE_LIMIT + 1)
    if len(data) > PIPE_LIMIT:
        raise InputError("The piped text is over 8 MB. Write it to a file and name the file in the prompt.")
    return data.decode("utf-8", errors="replace").strip()


def read_prompt(typed: str | None, usage: str = "interlock -p") -> str:
    """The prompt after any piped text, or a command before it; `-` stands for the piped text alone.

    Raises `InputError` when there is neither; it says `usage` to give one.
    """
    prompt = strip_typed_prompt(typed)
    if not (prompt := _join_piped_text_and_prompt(read_piped_text(should_wait=not prompt), prompt)):
        raise InputError(f"No prompt. Give one: {usage} 'what to do', or pipe it in.", "prompt")
    return prompt


def read_follow_up_prompt(typed: str | None, is_needed: bool, has_other_work: bool = False) -> str | None:
    """The next prompt of a run, from words and piped text like the first one; None: it is resumed without a prompt.

    `is_needed`: the run has ended, so that only a prompt gives it something to do. `has_other_work`: the command line
    says what to do without a prompt; stdin may belong to a loop around it, and is read only for `-`.
    """
    prompt = strip_typed_prompt(typed)
    if has_other_work and typed != STDIN:
        return prompt or None
    piped = read_piped_text(should_wait=typed == STDIN or (is_needed and not prompt))
    if typed == STDIN and not piped:
        raise InputError("-p -: stdin is empty. Pipe the prompt in, or type it: -p 'what to do'", "prompt")
    return _join_piped_text_and_prompt(piped, prompt) or None


STDIN = "-"
"""As a prompt: read it from stdin."""


def strip_typed_prompt(words: str | None) -> str:
    """The words of a prompt; empty for `-`, which stands for stdin."""
    return "" if words == STDIN else (words or "").strip()


def _join_piped_text_and_prompt(piped: str, prompt: str) -> str:
    from interlock.state.command import is_command_name, split_slash_command

    if not piped or not prompt:
        return piped or prompt
    if is_command_name(split_slash_command(prompt)[0]):
        return f"{prompt}\n\n{piped}"
    apart = "\n" if piped.startswith("/") else ""  # piped text names no command
    return f"{apart}{piped}\n\n{prompt}"


def ask_to_confirm(question: str, error_if_nobody: str) -> bool:
    """Whether the person says yes. Raises `UserError` with `error_if_nobody` if there is nobody to ask."""
    typed = command_input()
    if typed is None or not typed.isatty():
        raise UserError(error_if_nobody)
    sys.stderr.write(f"{make_visible(question)} [y/N] ")
    sys.stderr.flush()
    return typed.readline().strip().lower() in ("y", "yes")


def parse_json_object(text: str, label: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `InputError` naming line and column."""
    value = parse_json(text, label)
    if isinstance(value, dict):
        return cast("dict[str, Any]", value)
    kinds: dict[type, str] = {list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    raise InputError(f"{label} must be a JSON object, it is {kinds.get(type(value), 'a number')}.")


def parse_json(text: str, label: str) -> object:
    """Parse JSON. Raises `InputError` naming line and column."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = f"{error.msg} at line {error.lineno}, column {error.colno}"
        raise InputError(f"{label} is not JSON: {where}.") from error
    except RecursionError as error:
        raise InputError(f"{label} is nested too deeply.") from error
    except ValueError as error:  # Python limits the digits of an integer
        raise InputError(f"{label} holds an integer that is too long: 4,300 digits are the most.") from error


def read_argument_text(spec: str, label: str) -> str:
    """The text of `JSON`, `@FILE` or `-` (stdin)."""
    if spec == "-":
        return _read_stdin(label).decode("utf-8-sig", errors="replace")
    return read_text_file(spec[1:], label) if spec.startswith("@") else spec


def _read_stdin(label: str) -> bytes:
    if command_input() is None:
        raise InputError(f"{label}: there is no stdin in a session. Name a file, or run it in a shell.")
    return sys.stdin.buffer.read()


def read_text_file(name: str, label: str) -> str:
    return _decode_utf8(_read_bytes(name, label), f"{label}: {name!r}")


def _read_bytes(name: str, label: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except OSError as error:
        raise InputError(f"{label}: can't read {name!r}: {error.strerror}.") from error


def _decode_utf8(data: bytes, label: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{label} is not UTF-8 (byte {error.start}).") from error


def read_batch_lines(
    file: str, parse: Callable[[str, str], dict[str, Any]] = parse_json_object
) -> Iterator[tuple[int, dict[str, Any] | InputError]]:
    """A batch's inputs in order, each with its line's number; a bad line yields its error. Blank ones are skipped."""
    data = _read_stdin("--batch") if file == "-" else _read_bytes(file, "--batch")
    # Not splitlines(): JSON strings may hold U+2028 and its kin.
    for number, line in enumerate(data.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            yield number, parse(_decode_utf8(line, f"Line {number}"), f"Line {number}")
        except InputError as error:
            yield number, error
