"""text: sanitising strings before they enter state, the chain or the store, and before people see them.

Models and files choose names, commands and addresses. A terminal obeys some characters and hides others, so one
command can read as another. `make_visible` escapes those, for everything that is named or decided on;
`sanitize_for_terminal` is for texts people read: answers, thoughts, output of programs.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from pydantic import ValidationError

_BREAKS = re.compile(r"[ \t\r\n]+")
_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_INT = 2**63
_SHOWN = 60
"""Characters of a wrong value quoted in an error."""
_INVISIBLE = re.compile(r"<!--.*?-->|[\s\u200b\u200c\u200d\u2060\ufeff]+", re.DOTALL)
_HARMFUL = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff"  # control characters, line separators, surrogates
    "\u202a-\u202e\u2066-\u2069"  # override the text direction
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb"
    "\U00016fe4\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a\U000e0000-\U000e0fff"  # invisible
)
_MARKS = "\u061c\u200e\u200f"
"""Direction marks; common in right-to-left text."""
_BLANKS = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""They look like a space, but a shell treats them as letters."""
_JOINING = "(?<![\u2190-\u2bff\U0001f000-\U0001faff\ufe0f])[\u200d\ufe0e\ufe0f]|[\u200c\ufe00-\ufe0d]"
"""Allowed inside and after a symbol, as in emoji."""
_ALIKE = "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧνο\u0400-\u052f"
"""Greek and Cyrillic letters that look like Latin ones; suspicious when mixed in one word."""
_DECEIVING = re.compile(
    f"[{_HARMFUL}{_MARKS}{_BLANKS}]|{_JOINING}|(?<=[A-Za-z])[{_ALIKE}]+|[{_ALIKE}]+(?=[A-Za-z])"
)
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffe\uffff]")
_HARMFUL_TO_READ = re.compile(f"[{_HARMFUL}]")
_HOST_PART = r"[^\s/?#\\\"'<>(){},;\[\]]*"
_HOST = re.compile(rf"(?<=://){_HOST_PART}[^\x00-\x7f\s]{_HOST_PART}")
_ASCII_HOST = re.compile(r"[a-z0-9_.-]+", re.IGNORECASE)


def make_visible(text: str) -> str:
    """Escape what a terminal would obey, hide or render as something else (`\\x1b`); hosts become punycode."""
    if text.isascii() and text.isprintable():
        return text
    return _DECEIVING.sub(_escape_match, _HOST.sub(_host_to_punycode, text.replace("\r\n", "\n")))


def mark_invisible_characters(text: str) -> str:
    """As `make_visible`, but as the page writes what nobody would see: `⟨U+202E⟩`."""
    return _DECEIVING.sub(_format_code_points, _HOST.sub(_host_to_punycode, text.replace("\r\n", "\n")))


def sanitize_for_terminal(text: str) -> str:
    """For reading: escape only what a terminal would obey or never show."""
    return _HARMFUL_TO_READ.sub(_escape_match, text.replace("\r", ""))


def escape_control_characters(text: str) -> str:
    """Spell out control characters, as `make_visible` does; everything else stays, also what can't be seen."""
    return text if text.isprintable() else _CONTROLS.sub(_escape_match, text)


def to_json_text(value: object, indent: int | None = None) -> str:
    """JSON of a value. What else a user's graph holds is written as pydantic does: bytes as base64, nan as null."""
    try:
        return _json_encoder(indent).encode(value)
    except (TypeError, ValueError):
        return json.dumps(to_jsonable(value), ensure_ascii=False, indent=indent)


@cache
def _json_encoder(indent: int | None) -> json.JSONEncoder:
    """Made once: `json.dumps` makes one for each value, which takes as long as an event does."""
    return json.JSONEncoder(ensure_ascii=False, indent=indent, default=_encode_bytes_only, allow_nan=False)


def _encode_bytes_only(value: object) -> str:
    if not isinstance(value, bytes):
        raise TypeError(f"{type(value).__name__} has no JSON")
    from base64 import urlsafe_b64encode

    return urlsafe_b64encode(value).decode()


def to_jsonable(value: Any) -> Any:
    """The value with text for every key, and without what JSON lacks."""
    if isinstance(value, list | tuple):
        return [to_jsonable(one) for one in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {str(key): to_jsonable(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, float):
        return value if isfinite(value) else None
    return _encode_bytes_only(value) if isinstance(value, bytes) else value


def to_visible_json(value: object, indent: int | None = None) -> str:
    """JSON of exactly this value, with everything `make_visible` would change escaped."""
    text = to_json_text(value, indent)
    if text.isascii() and text.isprintable():
        return text
    return _DECEIVING.sub(_escape_match_as_json, _HOST.sub(_escape_match_as_json, text))


def _host_to_punycode(host: re.Match[str]) -> str:
    user, at, name = host[0].rpartition("@")
    name, colon, port = name.partition(":")
    try:
        plain = name.encode("idna").decode()
    except UnicodeError:
        plain = ""
    if not _ASCII_HOST.fullmatch(plain):
        plain = _escape_to_ascii(name)
    return f"{_escape_to_ascii(user)}{at}{plain}{colon}{_escape_to_ascii(port)}"


def _escape_to_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def _escape_match(found: re.Match[str]) -> str:
    if "\udc80" <= found[0] <= "\udcff":
        return _escape_surrogate(found)
    return found[0].encode("unicode_escape").decode()


def _format_code_points(found: re.Match[str]) -> str:
    return "".join(f"⟨U+{ord(char):04X}⟩" for char in found[0])


def _escape_match_as_json(found: re.Match[str]) -> str:
    units = ((c, c.encode("utf-16-be", "surrogatepass").hex("-", 2).split("-")) for c in found[0])
    return "".join(c if " " <= c <= "~" else "".join(f"\\u{unit}" for unit in codes) for c, codes in units)


def replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which neither UTF-8 nor SQLite can store: those that stand for a byte of a file's name
    with `\\xNN` (`file_names.py`), others with U+FFFD."""
    return text if text.isascii() else _SURROGATES.sub(_escape_surrogate, text)


def _escape_surrogate(found: re.Match[str]) -> str:
    return f"\\x{ord(found[0]) - 0xDC00:02x}" if "\udc80" <= found[0] <= "\udcff" else "\ufffd"


def has_visible_text(text: str) -> bool:
    """Whether anything readable remains without whitespace, zero-width characters and HTML comments."""
    return bool(_INVISIBLE.sub("", text))


def dict_or_empty(value: object) -> dict[str, Any]:
    """What somebody else's JSON holds: the value if it is an object, else `{}`."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def list_or_empty(value: object) -> list[Any]:
    """As `dict_or_empty`, of a list."""
    return cast("list[Any]", value) if isinstance(value, list) else []


def clean_json(value: object) -> object:
    """Convert to what msgpack and SQLite can store: clean strings, 64-bit integers, string keys, finite floats."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_MAX_INT <= value < _MAX_INT else str(value)
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if isinstance(value, dict | Mapping):  # the classes first: an abstract one takes ten times as long to ask
        return {
            replace_surrogates(str(k)): clean_json(v) for k, v in cast(Mapping[object, object], value).items()
        }
    if isinstance(value, list | tuple | Sequence):
        return [clean_json(v) for v in cast(Sequence[object], value)]
    return replace_surrogates(str(value))


def is_nested_deeper(value: object, max_depth: int) -> bool:
    """Whether lists and objects of a JSON value are nested more than `max_depth` deep."""
    level: list[object] = [value]
    for _ in range(max_depth):
        inner: list[object] = []
        for outer in level:
            if isinstance(outer, dict):
                inner += cast(dict[str, object], outer).values()
            elif isinstance(outer, list):
                inner += cast(list[object], outer)
        level = [item for item in inner if isinstance(item, (dict, list))]
        if not level:
            return False
    return True


def to_one_line(text: str, width: int = 0) -> str:
    """The text on one line, cut to `width` characters (0: not cut)."""
    return shorten(make_visible(_BREAKS.sub(" ", text).strip()), width)


def shorten(text: str, width: int) -> str:
    return text if not width or len(text) <= width else text[: max(width - 1, 1)] + "…"


_HEADER = re.compile(r"^--- .*\n\+\+\+ .*(?:\n(?=@@ )|\n?\Z)", re.MULTILINE)
_LEFT_OUT = re.compile(r"^… \d+ more lines of this diff aren't shown \(\+(\d+) −(\d+)\)\.\n?\Z", re.MULTILINE)


def truncated_diff_notice(lines: int, added: int, removed: int) -> str:
    """The last line of a diff that is cut."""
    return f"… {lines} more lines of this diff aren't shown (+{added} −{removed}).\n"


def find_truncated_diff_notice(diff: str) -> str:
    """What `left_out` put at a diff's end; empty: it is whole."""
    found = _LEFT_OUT.search(diff)
    return found[0] if found else ""


def format_diff_stat(diff: str) -> str:
    """`+3 −1` for a unified diff, with the lines that were cut; empty for any other text."""
    body = _HEADER.sub("", diff).split("\n")
    added = sum(line.startswith("+") for line in body)
    removed = sum(line.startswith("-") for line in body)
    if found := _LEFT_OUT.search(diff):
        added, removed = added + int(found[1]), removed + int(found[2])
    if not diff.startswith("--- ") and "\n--- " not in diff:
        return ""
    return " ".join(part for part in (f"+{added}" * bool(added), f"−{removed}" * bool(removed)) if part)


def is_diff(text: str) -> bool:
    return bool(format_diff_stat(text)) or text.startswith("--- ")


def format_duration(seconds: float) -> str:
    """`12 ms`, `1.2 s`, `45 s`, `3 min`, `2 h 05`, `3 d`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:02.0f}"
    return f"{seconds / 86_400:.0f} d"


_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def parse_duration(text: str) -> float:
    """What `90`, `90s`, `15m` or `2h` is in seconds; 0: something else."""
    digits = text.rstrip("msh")
    try:
        return float(digits) * _UNITS[text[len(digits) :] or "s"]
    except (ValueError, KeyError):
        return 0.0


def format_count(number: int, noun: str, plural: str = "") -> str:
    """`1 call`, `3 calls`, `1,200 calls`; `plural`: of a word whose plural is another."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def format_compact_number(n: int) -> str:
    """`950`, `12.3k`, `1.20M`."""
    if n < 1000:
        return str(n)
    return f"{n / 1000:.1f}k" if n < 999_950 else f"{n / 1_000_000:.2f}M"


def abbreviate_home(folder: str) -> str:
    """A folder, with the home directory as `~`."""
    home = str(Path.home())
    return "~" + folder[len(home) :] if folder == home or folder.startswith(home + "/") else folder


def estimate_tokens(text: str) -> int:
    """Estimated tokens before a provider counts them: ¼ per ASCII character, 1.5 per other.

    `docs/internals.md#a-usable-answer`.
    """
    ascii_count = len(text) if text.isascii() else len(text.encode("ascii", "ignore"))
    return int(ascii_count / 4 + (len(text) - ascii_count) * 1.5)


def did_you_mean(name: str, known: Iterable[str], max_suggestions: int = 1, cutoff: float = 0.5) -> str:
    """` Did you mean 'x', 'y'?`, or an empty string."""
    from difflib import get_close_matches

    near = get_close_matches(name, [*known], max_suggestions, cutoff)
    return f" Did you mean {', '.join(map(repr, near))}?" if near else ""


def first_validation_error(error: "ValidationError", *outer_names: str) -> tuple[str, str]:
    """Where the first fault of a validation is, dotted, with the names of what is around it; and what it is."""
    first = error.errors(include_url=False)[0]
    return ".".join(map(str, (*filter(None, outer_names), *first["loc"]))), first["msg"]


def join_up_to(items: Sequence[str], max_items: int) -> str:
    """`a, b and 3 more`."""
    more = f" and {len(items) - max_items} more" if len(items) > max_items else ""
    return ", ".join(items[:max_items]) + more


def schema_violation(schema: Mapping[str, Any], value: object) -> str:
    """How a value violates a JSON Schema; empty: it doesn't."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(dict(schema))  # its overloads aren't fully typed
    error = next(iter(validator.iter_errors(value)), None)
    if error is None:
        return ""
    place = ".".join(map(str, error.absolute_path))
    what = replace_surrogates(" ".join(str(error.message).split()))
    shown = json.dumps(error.instance, ensure_ascii=False, default=repr)[:_SHOWN]
    return f"{place!r}: {what}, got {shown}" if place else what
