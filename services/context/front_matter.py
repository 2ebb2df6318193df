"""front_matter: Markdown front matter as other agents' users write it: YAML, or what their programs take for YAML.

Strict YAML is tried first. What it refuses (`description: Formats. Usage: /x`, `globs: **/x`, `applyTo: **`, tabs) is
read field by field, with the values as text. Scalars are those of YAML 1.2: only `true` and `false` are Booleans, and
dates are text, so a skill may be called `on`."""

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple, cast

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?(?:\n(.*))?\Z", re.DOTALL | re.MULTILINE)
_OPENED = re.compile(r"\A\ufeff?---[ \t]*\r?$", re.MULTILINE)
_FIELD = re.compile(r"(?P<key>[\w$][\w$.-]*|\"[^\"\n]+\"|'[^'\n]+')[ \t]*:(?:[ \t]+(?P<value>.*))?$")
_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)
_ITEM = re.compile(r"-(?:[ \t]+(?P<value>.*))?$")
_COMMENT = re.compile(r"[ \t]*(?:#.*)?$")
_LARGEST = 32 * 1024
"""Maximum characters of front matter; the longest that was seen in public repositories has 6,000."""
_DEEPEST = 64
"""Maximum nesting depth of strict YAML."""
_LENIENT_DEPTH = 3
"""Maximum nesting depth at which broken YAML is read field by field; below it, a block is text."""


class FrontMatter(NamedTuple):
    """A Markdown file in two parts."""

    fields: dict[str, Any]
    """Empty: there is no front matter, or nothing of it can be read."""
    body: str
    """The text below the front matter, unchanged; the whole text if there is none."""
    problem: str | None = None
    """What couldn't be read and why, as a clause without a full stop; None: everything was read."""


def parse_front_matter(text: str) -> FrontMatter:
    """Split a Markdown text into the fields of its front matter and its body. Never raises."""
    text = text.removeprefix("\ufeff")
    parts = _FRONT.match(text)
    if parts is None:
        opened = _OPENED.match(text) and _FIELD.match(text.partition("\n")[2].partition("\n")[0].rstrip("\r"))
        return FrontMatter({}, text, "its front matter has no closing line '---'" if opened else None)
    front, body = parts[1].replace("\r\n", "\n"), parts[2] or ""
    if len(front) > _LARGEST:
        return FrontMatter({}, body, f"its front matter is longer than {_LARGEST:,} characters")
    if not front.strip():
        return FrontMatter({}, body)
    try:
        found = _parse_strictly(front)
    except ValueError as error:
        fields, skipped = _read_fields(
            textwrap.dedent(_INDENT.sub(lambda tabs: tabs[0].expandtabs(2), front)).split("\n"), 0
        )
        if fields:
            problem = (
                f"line {skipped[0].strip()[:80]!r} of its front matter belongs to no field"
                if skipped
                else None
            )
            return FrontMatter(fields, body, problem)
        if ":" not in front:  # text between two rules
            return FrontMatter({}, text)
        return FrontMatter({}, body, f"its front matter is no YAML: {error}")
    if isinstance(found, dict):
        named = cast("dict[object, Any]", found)
        return FrontMatter({str(key): value for key, value in named.items()}, body)
    # Text between two rules is no front matter.
    return FrontMatter({}, body) if found is None else FrontMatter({}, text)


def to_text(value: object) -> str:
    """Return a field's value as the text that its author wrote, about: a list as `[a, b]`, nothing as an empty text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{', '.join(map(to_text, cast('list[object]', value)))}]"
    return json.dumps(value, ensure_ascii=False, default=str)


def to_list(value: object, *, separators: str = ",") -> list[str]:
    """Return a list's elements as texts, or those of a text that separates them.

    A separator inside of brackets or quotes separates nothing: `*.{ts,tsx}, Agent(a, b)` has two elements."""
    if isinstance(value, list):
        return [text for one in cast("list[object]", value) if (text := to_text(one).strip())]
    return [text for part in _split_outside_brackets(to_text(value), separators) if (text := _unquote(part))]


def to_flag(value: object) -> bool | None:
    """Return a Boolean that may be spelled yes, no, on, off, 1 or 0; None if it is none."""
    word = to_text(value).strip().casefold()
    return (
        True if word in ("true", "yes", "on", "1") else False if word in ("false", "no", "off", "0") else None
    )


def _read_fields(lines: Sequence[str], depth: int) -> tuple[dict[str, Any], list[str]]:
    """Read each field by itself; return them, and lines that belong to none."""
    fields: dict[str, Any] = {}
    skipped: list[str] = []
    key, block = "", list[str]()

    def end_field() -> None:
        if key:
            fields[key] = _read_value(block, depth)

    for line in lines:
        if field := _FIELD.match(line):
            end_field()
            key, block = field["key"].strip("\"'"), [(field["value"] or "").rstrip(" \t")]
        elif key:
            block.append(line)
        elif not _COMMENT.match(line):
            skipped.append(line)
    end_field()
    return fields, skipped


def _read_value(block: Sequence[str], depth: int) -> Any:
    """Read a value of its first line and those that continue it: as YAML, else with what YAML refuses as text."""
    first, rest = block[0], block[1:]
    try:
        return _parse_strictly("\n".join([f"key: {first}", *rest]))["key"]
    except (ValueError, TypeError, KeyError):
        pass
    inner = [line for line in textwrap.dedent("\n".join(rest)).split("\n") if not _COMMENT.match(line)]
    if (not first or first.startswith("#")) and inner and depth < _LENIENT_DEPTH:
        if _ITEM.match(inner[0]):
            return _read_items(inner, depth + 1)
        if _FIELD.match(inner[0]):
            return _read_fields(inner, depth + 1)[0]
    text = " ".join(line.strip() for line in block if line.strip())
    if text.startswith("[") and text.endswith("]") and _is_one_group(text):
        return to_list(text[1:-1])
    return _unquote(text.removeprefix("|").removeprefix(">").lstrip() if first in ("|", ">") else text)


def _read_items(lines: Sequence[str], depth: int) -> list[Any]:
    items: list[list[str]] = []
    for line in lines:
        if item := _ITEM.match(line):
            items.append([(item["value"] or "").rstrip(" \t")])
        else:
            items[-1].append(line)
    return [_read_value(item, depth) for item in items]


def _unquote(text: str) -> str:
    text = text.strip()
    quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" and text[0] not in text[1:-1]
    return text[1:-1] if quoted else text


def _is_one_group(text: str) -> bool:
    """Return whether its first bracket closes with its last character: `[a, b]`, not `[a] [b]`."""
    depths = accumulate((c == "[") - (c == "]") for c in text)
    return all(depth > 0 for depth in list(depths)[:-1])


def _split_outside_brackets(text: str, separators: str) -> Iterable[str]:
    start = depth = 0
    quote = ""
    for place, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'" and not text[start:place].strip() and text.find(c, place + 1) > 0:
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth = max(depth - 1, 0)
        elif depth == 0 and c in separators:
            yield text[start:place]
            start = place + 1
    yield text[start:]


def _parse_strictly(text: str) -> Any:
    """Parse YAML. Raises `ValueError` saying what is wrong, also for an alias, which can expand without limit."""
    import yaml

    loader = _yaml_loader()
    depth = 0
    try:
        for event in cast("Iterable[object]", yaml.parse(text, Loader=loader)):  # pyright: ignore[reportUnknownMemberType]
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _DEEPEST:
                raise ValueError("nested too deeply")
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("holds a YAML alias (*name)")
        return yaml.load(text, Loader=loader)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from error


_SCALARS = (
    ("null", r"~|null|Null|NULL|", "~nN\0"),
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,17})", "-+0123456789"),
    ("float", r"[-+]?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}", "-+0123456789"),
)
"""The core schema of YAML 1.2, as far as front matter needs it."""


@cache
def _yaml_loader() -> Any:
    import yaml

    # libyaml, where PyYAML was built with it, takes a tenth of the time: folders hold hundreds of such files.
    base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    loader: Any = type("Loader", (base,), {"yaml_implicit_resolvers": {}})
    for name, pattern, firsts in _SCALARS:
        loader.add_implicit_resolver(
            f"tag:yaml.org,2002:{name}",
            re.compile(f"(?:{pattern})\\Z"),
            ["", *firsts] if name == "null" else [*firsts],
        )
    return loader
