"""expansion: the paths that a word of a line may stand for: braces, patterns of names, variables that the line sets.

A pattern stands for what it matches now, and for each name that the program trusts if it fits that name closely. What
is only known when it runs stands for nothing.
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from itertools import islice

from interlock.services.files.protected import builtin_protected_names, fold_name, protected_pattern_examples
from interlock.services.policy.plain_reading import LineReading
from interlock.services.shell.model import Word
from interlock.services.shell.words import decode_ansi_quoted

_MOST_TEXTS, _MOST_MATCHES, _MOST_ENTRIES = 100, 500, 5_000
_DEEPEST = 4
"""Variables whose values name variables."""
_CLOSE = 3
"""Letters that a pattern must share with a name to mean it while no such file is there: `AGENT?.md`, not `*.md`."""
_VARIABLE = re.compile(
    r"\$(\w+)|\$\{!?(\w+)(?:\[[^]]*\])?\}|\$\{(\w+)(:?[-=+?]|%%?|##?|//?|[\^,]{1,2}|:)([^}]*)\}", re.ASCII
)
"""The last form: what an operator makes of the value."""
_NAME = re.compile(r"[^\s'\"`;|&<>(){}=,\\]+")
_QUOTING = re.compile(r"\\\n|[\"'\\]")
_MOST_NAMES = 200
_NARROW = re.compile(r"\[\w{1,2}\]")
_EXTENDED = re.compile(r"[?*+@!]\([^()]*\)")
_SEQUENCE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.-?\d+)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Wildcard:
    """A part of a word that may be any of several texts."""

    expression: str
    pattern: bool = True
    """Whether it is a pattern of names of files: it stands for files that are there."""


_UNKNOWN = _Wildcard(".*", pattern=False)
_Part = str | _Wildcard


def possible_paths(word: Word, reading: LineReading) -> Sequence[str]:
    """Return the paths that a word may stand for, its own text first."""
    if word.literal:
        return (word.text,)
    found = [word.text]
    parts = _parse_word_alternatives(word, reading)
    for one in parts:
        found += islice(_paths_from_parts(one, reading), _MOST_MATCHES)
    found += [part for text in found[1:] if " " in text for part in text.split()]  # as bash splits a value
    return tuple(dict.fromkeys(found))


def has_unknown_value(word: Word, reading: LineReading) -> bool:
    """Return whether its value isn't in the line."""
    return not word.literal and any(
        isinstance(p, _Wildcard) and not p.pattern for o in _parse_word_alternatives(word, reading) for p in o
    )


def find_trusted_names(text: str, reading: LineReading) -> Sequence[str]:
    """Return the paths in a text that name files which the program trusts."""
    found: list[str] = []
    for name in dict.fromkeys(islice(_NAME.findall(_EXTENDED.sub("*", text)), _MOST_NAMES)):
        if set(name) & {*"*?["}:
            found += _paths_from_parts(_parse_alternatives(name, {}, 0)[0], reading)
        elif reading.workspace.find_protection(name):
            found.append(name)
    return found


@cache
def _trusted_name_pattern() -> re.Pattern[str]:
    names = "|".join(re.escape(name) for name in _trusted_names())
    return re.compile(rf"(?<![\w.-])({names}|\.git/(?:hooks|config))(?![\w-])", re.IGNORECASE)


def find_first_trusted_name(text: str) -> str | None:
    """Return the first trusted name that stands in a text, which isn't read as a line."""
    seen = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    found = _trusted_name_pattern().search(_QUOTING.sub("", seen))
    return found[1] if found else None


def _parse_word_alternatives(word: Word, reading: LineReading) -> Sequence[Sequence[_Part]]:
    values: dict[str, list[Word]] = {}
    for name, value in reading.line.values:
        values.setdefault(name, []).append(value)
    texts = islice(_expand_braces(word.text), _MOST_TEXTS) if word.text != "…" else ()
    return [one for text in texts for one in _parse_alternatives(text, values, 0)] or [[_UNKNOWN]]


# ---- braces


def _expand_braces(text: str) -> Iterator[str]:
    """Yield the words that braces make of one."""
    at = _find_unquoted_char(text, 0, "{")
    while at < len(text):
        if text[at - 1 : at] != "$" and (parts := _parse_brace_alternatives(text, at)):
            inner, end = parts
            for rest in _expand_braces(text[end:]):
                for part in inner:
                    for whole in _expand_braces(part):
                        yield text[:at] + whole + rest
            return
        at = _find_unquoted_char(text, at + 1, "{")
    yield text


def _parse_brace_alternatives(text: str, at: int) -> tuple[list[str], int] | None:
    """Return what the braces at a place offer, and the place behind them; None: bash leaves them as they are."""
    depth, start, found = 0, at + 1, list[str]()
    place = at
    while place < len(text):
        char = text[place]
        if char in "'\"\\":
            place = _find_quote_end(text, place)
            continue
        if char == "{":
            depth += 1
        elif char == "}":
            depth -= 1
            if depth == 0:
                found.append(text[start:place])
                known = found if len(found) > 1 else _expand_brace_sequence(found[0])
                return (known, place + 1) if known else None
        elif char == "," and depth == 1:
            found.append(text[start:place])
            start = place + 1
        place += 1
    return None


def _expand_brace_sequence(text: str) -> list[str]:
    ends = _SEQUENCE.fullmatch(text)
    if ends is None:
        return []
    if ends[1].isalpha() and ends[2].isalpha():
        low, high = sorted((ord(ends[1]), ord(ends[2])))
        return [chr(code) for code in range(low, high + 1)]
    try:
        low, high = sorted((int(ends[1]), int(ends[2])))
    except ValueError:
        return []
    return [str(number) for number in range(low, min(high, low + _MOST_TEXTS) + 1)]


def _find_unquoted_char(text: str, at: int, chars: str) -> int:
    while at < len(text) and text[at] not in chars:
        at = _find_quote_end(text, at) if text[at] in "'\"\\" else at + 1
    return at


def _find_quote_end(text: str, at: int) -> int:
    """Return the place behind what is quoted from here."""
    if text[at] == "\\":
        return at + 2
    quote, at = text[at], at + 1
    while at < len(text) and text[at] != quote:
        at += 2 if text[at] == "\\" and quote == '"' else 1
    return at + 1


# ---- expansions and patterns


def _parse_alternatives(
    text: str, values: Mapping[str, Sequence[Word]], depth: int, *, quoted: bool = False
) -> Sequence[Sequence[_Part]]:
    """Return what a word may be, each as known texts and parts that may be several."""
    found: list[list[_Part]] = [[]]

    def append_parts(*parts: _Part) -> None:
        for one in found:
            one.extend(parts)

    def append_alternatives(options: Sequence[Sequence[_Part]]) -> None:
        found[:] = [[*one, *option] for one in found for option in options][:_MOST_TEXTS]

    at = 0
    if text.startswith("~") and not quoted:
        at = _find_unquoted_char(text, 0, "/")
        home = text[:at]
        known = "." if home == "~+" else os.path.expanduser(home)  # noqa: PTH111 - Path's raises
        append_parts(known if known != home or home == "~" else _UNKNOWN if home == "~-" else home)
    while at < len(text):
        if (variable := _VARIABLE.match(text, at)) is not None:
            append_alternatives(_possible_variable_values(variable, values, depth))
            at = variable.end()
            continue
        end = at + 1
        match text[at], text[at + 1 : at + 2]:
            case "$", "'" if not quoted:
                end = _find_ansi_quote_end(text, at + 2)
                known = decode_ansi_quoted(text[at + 2 : end - 1])
                append_parts(_UNKNOWN if known is None else known)
            case "$", '"':
                pass
            case ("$", "(" | "{" | "[") | ("`", _):
                append_parts(_UNKNOWN)
                end = _find_expansion_end(text, at)
            case "'", _ if not quoted:
                end = _find_quote_end(text, at)
                append_parts(text[at + 1 : end - 1])
            case '"', _:
                end = _find_quote_end(text, at)
                append_alternatives(_parse_alternatives(text[at + 1 : end - 1], values, depth, quoted=True))
            case "\\", escaped:
                append_parts(escaped)
                end = at + 2
            case "*", _ if not quoted:
                append_parts(_Wildcard("[^/]*"))
            case "?", _ if not quoted:
                append_parts(_Wildcard("[^/]"))
            case "[", _ if not quoted and (close := _find_bracket_end(text, at)) > 0:
                append_parts(_parse_bracket_expression(text[at + 1 : close]))
                end = close + 1
            case char, _:
                append_parts(char)
        at = end
    return found


def _find_ansi_quote_end(text: str, at: int) -> int:
    while at < len(text) and text[at] != "'":
        at += 2 if text[at] == "\\" else 1
    return at + 1


def _find_expansion_end(text: str, at: int) -> int:
    """Return the place behind a substitution or `${…}` that isn't looked into."""
    if text[at] == "`":
        end = text.find("`", at + 1)
        return end + 1 if end >= 0 else len(text)
    pairs = {"(": ")", "{": "}", "[": "]"}
    opens, depth, at = text[at + 1], 0, at + 1
    while at < len(text):
        depth += (text[at] == opens) - (text[at] == pairs[opens])
        at += 1
        if depth == 0:
            break
    return at


def _find_bracket_end(text: str, at: int) -> int:
    classed = text.find(":]", at)
    return text.find("]", classed + 2 if text.startswith("[", at + 1) and classed > 0 else at + 2)


def _parse_bracket_expression(inside: str) -> _Wildcard:
    if (
        inside.startswith("[") or "--" in inside
    ):  # a class, such as `[[:upper:]]`, or a range that begins with `-`
        return _Wildcard("[^/]")
    negated, members = inside[:1] in "!^", inside.lstrip("!^").replace("\\", "")
    expression = f"[{'^' if negated else ''}{re.escape(members).replace(chr(92) + '-', '-')}]"
    try:
        re.compile(expression)
    except re.error:
        return _Wildcard("[^/]")
    return _Wildcard(expression)


def _possible_variable_values(
    match: re.Match[str], values: Mapping[str, Sequence[Word]], depth: int
) -> Sequence[Sequence[_Part]]:
    name = match[1] or match[2] or match[3]
    known: list[Sequence[_Part]] = []
    for value in values.get(name, ()):
        if value.literal:
            known += (
                _parse_alternatives(value.text, {}, _DEEPEST)
                if set(value.text) & {*"*?["}
                else [[value.text]]
            )
        elif depth < _DEEPEST:
            known += (
                one
                for text in islice(_expand_braces(value.text), _MOST_TEXTS)
                for one in _parse_alternatives(text, values, depth + 1)
            )
        else:
            known.append([_UNKNOWN])
    if match[4] is not None:
        known = [
            *_apply_parameter_operator(known, match[4], match[5]),
            *([] if name in values else [[_UNKNOWN]]),
        ]
    if not known and name == "HOME":
        known = [[os.path.expanduser("~")]]  # noqa: PTH111 - Path's raises
    return known or [[_UNKNOWN]]


def _apply_parameter_operator(
    known: Sequence[Sequence[_Part]], operator: str, operand: str
) -> Sequence[Sequence[_Part]]:
    """Return what an operator makes of known values."""
    texts = [
        "".join(p for p in one if isinstance(p, str)) for one in known if all(isinstance(p, str) for p in one)
    ]
    if operator.lstrip(":")[:1] in tuple("-=+?"):
        return [*([text] for text in texts), [operand]]
    if operator[0] in "%#":
        return [[_remove_affix(text, operand, operator)] for text in texts]
    if operator[0] == "/":
        wanted, _, instead = operand.partition("/")
        return [[text.replace(wanted, instead)] for text in texts] or [[instead]]
    if operator == ":":
        bounds = [int(number) for number in re.findall(r"-?\d+", operand)]
        return [[text[bounds[0] :][: bounds[1] if len(bounds) > 1 else None]] for text in texts if bounds]
    return [[text] for text in texts]  # the case of letters


def _remove_affix(text: str, pattern: str, operator: str) -> str:
    """Return a text without the shortest (`%`, `#`) or longest (`%%`, `##`) end or beginning that a pattern
    matches."""
    pattern = pattern.replace('"', "").replace("'", "")
    places = range(len(text) + 1)
    if operator[0] == "%":
        order = reversed(places) if operator == "%" else places
        return next((text[:at] for at in order if fnmatchcase(text[at:], pattern)), text)
    order = places if operator == "#" else reversed(places)
    return next((text[at:] for at in order if fnmatchcase(text[:at], pattern)), text)


# ---- paths


def _paths_from_parts(parts: Sequence[_Part], reading: LineReading) -> Iterator[str]:
    """Yield the paths that a word with these parts may stand for."""
    if all(isinstance(part, str) for part in parts):
        yield "".join(part for part in parts if isinstance(part, str))
        return
    names = _split_at_slashes(parts)
    known = _known_leading_folder(names)
    yield from _trusted_paths_matching_pattern(names, known)
    if all(isinstance(part, str) or part.pattern for part in parts):
        yield from _files_matching_pattern(names, reading)


def _split_at_slashes(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Return the parts of each name of the path."""
    names: list[list[_Part]] = [[]]
    for part in parts:
        if not isinstance(part, str):
            names[-1].append(part)
            continue
        first, *others = part.split("/")
        if first and names[-1] and isinstance(before := names[-1][-1], str):
            names[-1][-1] = before + first
        elif first:
            names[-1].append(first)
        names += [list[_Part](filter(None, [other])) for other in others]
    return names


def _known_leading_folder(names: Sequence[Sequence[_Part]]) -> str:
    """Return the folder in front of the first name that isn't known, as it begins a path."""
    folder = ""
    for name in names:
        if not all(isinstance(part, str) for part in name):
            break
        folder += "".join(part for part in name if isinstance(part, str)) + "/"
    return folder


def _trusted_paths_matching_pattern(names: Sequence[Sequence[_Part]], folder: str) -> Iterator[str]:
    """Yield the trusted names that a name of the path may be, and known names behind an unknown one."""
    behind = False
    for name in names:
        if all(isinstance(part, str) for part in name):
            if behind:
                yield folder + "".join(part for part in name if isinstance(part, str))
            continue
        behind = True
        if _count_fixed_letters(name) >= _CLOSE:
            expression = _compile_name_pattern(name)
            yield from (folder + one for one in _trusted_names() if expression.fullmatch(fold_name(one)))


def _count_fixed_letters(name: Sequence[_Part]) -> int:
    """Count the letters that a pattern fixes, without the ending of `*.md`."""
    fixed = [part for part in name if isinstance(part, str)]
    if not isinstance(name[0], str) and "." in "".join(fixed):
        fixed = ["".join(fixed).rpartition(".")[0]]
    return sum(map(len, fixed)) + sum(
        isinstance(p, _Wildcard) and _NARROW.fullmatch(p.expression) is not None for p in name
    )


def _compile_name_pattern(name: Sequence[_Part]) -> re.Pattern[str]:
    text = "".join(re.escape(p) if isinstance(p, str) else p.expression for p in name)
    return re.compile(text, re.IGNORECASE | re.DOTALL)


@cache
def _trusted_names() -> Sequence[str]:
    return (*builtin_protected_names(), *protected_pattern_examples())


def _files_matching_pattern(names: Sequence[Sequence[_Part]], reading: LineReading) -> Iterator[str]:
    """Yield the files that a pattern matches now."""
    hidden = "dotglob" in reading.line.text
    for base in reading.folders_or_root:
        yield from islice(
            _walk_matching_paths(str(reading.workspace.root / base), "", [*names], hidden), _MOST_MATCHES
        )


def _walk_matching_paths(
    folder: str, path: str, names: list[Sequence[_Part]], include_hidden: bool
) -> Iterator[str]:
    if not names:
        yield path.removesuffix("/")
        return
    name, rest = names[0], names[1:]
    place = os.path.join(folder, path)  # noqa: PTH118 - texts of a line, many
    if all(isinstance(part, str) for part in name):
        known = "".join(part for part in name if isinstance(part, str))
        if not path and known == "" and rest:
            yield from _walk_matching_paths("/", "/", rest, include_hidden)
        elif known in ("", ".") or os.path.lexists(os.path.join(place, known)):  # noqa: PTH118 - as above
            yield from _walk_matching_paths(
                folder, f"{path}{known}/" if known else path, rest, include_hidden
            )
        return
    expression = _compile_name_pattern(name)
    dots = include_hidden or (isinstance(name[0], str) and name[0].startswith("."))
    try:
        entries = sorted(entry.name for entry in islice(os.scandir(place), _MOST_ENTRIES))
    except OSError:
        return
    for entry in entries:
        if (dots or not entry.startswith(".")) and expression.fullmatch(entry):
            yield from _walk_matching_paths(folder, f"{path}{entry}/", rest, include_hidden)
