"""mixed_files: restores what concerns tests in files of which only a part does: settings, makefiles, code with tests.

A file is rewritten, not edited: nobody but the programs in a view reads it.
"""

import ast
import configparser
import datetime
import doctest
import io
import json
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePath
from typing import Any, NamedTuple, cast

import yaml

from interlock.services.checks.test_table import CheckTable, Mixed


class InseparableError(Exception):
    """What concerns tests can't be told apart from the rest."""


def restore_tests_in_text(path: str, old: str, new: str, table: CheckTable) -> str:
    """Return the file of today with the parts that concern tests as they were; equal to `new` if none has changed.

    Raises `InseparableError`.
    """
    row = table.find_mixed_file_row(path)
    if row is None or row.format == "whole":
        raise InseparableError
    try:
        if row.format == "code":
            return _restore_or_reject_inline_tests(path, old, new)
        if row.format == "make":
            return restore_make_tests(old, new, table.command_words)
        read, write = _FORMATS[row.format]
        before, now = read(old), read(new)
        made = _restore_tests_in_object(before, now, row, table)
        if made == now:
            return new
        text = write(made)
        if read(text) != made:
            raise InseparableError
        return text
    except (
        *(ValueError, TypeError, AttributeError, SyntaxError, RecursionError),
        *(yaml.YAMLError, configparser.Error),
    ) as error:
        raise InseparableError from error


def can_contain_tests(path: str, text: str, table: CheckTable) -> bool:
    """Return whether something in a file of which only a part concerns tests does."""
    try:
        return restore_tests_in_text(path, text, "", table) != ""
    except InseparableError:
        return True


def _restore_tests_in_object(
    before: dict[str, Any], now: dict[str, Any], row: Mixed, table: CheckTable
) -> dict[str, Any]:
    made = now
    for key in row.keys:
        made = _restore_matching_keys(before, made, key.split("."))
    if row.targets:
        old, new = _require_object(before.get(row.targets) or {}), _require_object(now.get(row.targets) or {})
        names = find_test_targets(_target_texts(old), _target_texts(new), table.command_words)
        kept = {name: body for name, body in new.items() if name not in names}
        restored = {name: body for name, body in old.items() if name in names}
        order = [*dict.fromkeys([*new, *old])]
        both = {**kept, **restored}
        made = {**made, row.targets: {name: both[name] for name in order if name in both}}
        if not both and row.targets not in now:
            del made[row.targets]
    return made


def _target_texts(targets: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: body if isinstance(body, str) else json.dumps(body, default=str)
        for name, body in targets.items()
    }


def _restore_matching_keys(before: Any, now: Any, key_pattern: Sequence[str]) -> Any:
    """Return `now` with the value of a dotted key as it was before."""
    if not isinstance(now or {}, dict) or not isinstance(before or {}, dict):
        return now  # another kind of value stands there
    old, new = _require_object(before or {}), _require_object(now or {})
    made = dict(new)
    for name in [n for n in dict.fromkeys([*new, *old]) if fnmatchcase(n, key_pattern[0])]:
        if len(key_pattern) == 1:
            if name in old:
                made[name] = old[name]
            else:
                del made[name]
            continue
        inner = _restore_matching_keys(old.get(name), new.get(name), key_pattern[1:])
        if inner:
            made[name] = inner
        elif name in made and name not in new:
            del made[name]
        elif name in new:
            made[name] = inner if isinstance(new[name], dict) else new[name]
    return made


def _parse_json(text: str) -> dict[str, Any]:
    return _require_object(json.loads(text)) if text.strip() else {}


def _parse_yaml(text: str) -> dict[str, Any]:
    return _require_object(yaml.safe_load(text) or {})


def _require_object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("expected an object")
    return cast(dict[str, Any], found)


class _CaseSensitiveIniParser(configparser.RawConfigParser):
    """Keeps the case of names."""

    def __init__(self) -> None:
        super().__init__(strict=False, allow_no_value=True)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _parse_ini(text: str) -> dict[str, Any]:
    parser = _CaseSensitiveIniParser()
    parser.read_string(text)
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    return {**({"DEFAULT": dict(parser.defaults())} if parser.defaults() else {}), **sections}


def _format_ini(data: Mapping[str, Any]) -> str:
    parser, text = _CaseSensitiveIniParser(), io.StringIO()
    parser.read_dict(data)
    parser.write(text)
    return text.getvalue()


def _format_toml(data: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_format_toml_value(value)}\n" for key, value in data.items())


def _format_toml_value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(_format_toml_value, cast(list[Any], value)))}]"
        case dict():
            pairs = cast(dict[str, Any], value).items()
            return f"{{{', '.join(f'{json.dumps(k)} = {_format_toml_value(v)}' for k, v in pairs)}}}"
        case _:
            return repr(value)


_FORMATS: Mapping[str, tuple[Callable[[str], dict[str, Any]], Callable[[dict[str, Any]], str]]] = {
    "json": (_parse_json, lambda made: json.dumps(made, indent=2, ensure_ascii=False)),
    "toml": (tomllib.loads, _format_toml),
    "ini": (_parse_ini, _format_ini),
    "yaml": (_parse_yaml, lambda made: yaml.safe_dump(made, sort_keys=False)),
}


_TESTS = re.compile(r"test|spec|check|cover|verify|^ci$|^ci[-_:.]|^(pre|post)?t$", re.IGNORECASE)
_WORD = re.compile(r"[\w:.@/-]+")


def find_test_targets(old: Mapping[str, str], new: Mapping[str, str], words: Iterable[str]) -> set[str]:
    """Return the names, of targets of before and today, that concern tests; `words`: those of the check's line."""
    known = {*old, *new}
    wanted = known & {*words} | {name for name in known if _TESTS.search(name)}
    pending = [*wanted]
    while pending:
        name = pending.pop()
        run = {w for text in (old.get(name, ""), new.get(name, "")) for w in _WORD.findall(text)}
        around = {f"{when}{name}" for when in ("pre", "post")}
        found = (known & (run | around)) - wanted
        wanted |= found
        pending += found
    return wanted


_VARIABLE = re.compile(
    r"(?:(?:export|override|private|unexport)\s+)*([\w.@%-]+)\s*(?:::?:?|\+|\?|!)?=(?!=).*", re.DOTALL
)
_RULE = re.compile(r"@?([^\s:=#][^:=#\n]*?)\s*::?(?!=)(.*)", re.DOTALL)
_USED = re.compile(r"\$[({]([\w.-]+)|\{\{\s*([\w.-]+)")
_SHELL = frozenset({"SHELL", ".SHELLFLAGS", "MAKEFLAGS", "GNUMAKEFLAGS", "MAKEFILES", "set"})
"""They change how everything is run."""
_DIRECTIVE = re.compile(
    r"-?s?include\b|ifn?eq\b|ifn?def\b|else\b|endif\b|define\b|endef\b|vpath\b|export\s*$|unexport\b|undefine\b|load\b"
    r"|import\b|mod\b|\.(?!PHONY\b|DEFAULT_GOAL\b)[A-Z_]+\s*:"
)
_GOAL = ".DEFAULT_GOAL"
_RUNS = re.compile(r"test|spec|jest|mocha|karma|\b(?:tox|nox|prove|bats|ava|behave)\b", re.IGNORECASE)
"""In a recipe that runs tests."""


class _MakeBlock(NamedTuple):
    kind: str
    """rule, variable, directive, or empty: comments."""
    names: tuple[str, ...]
    text: str


def restore_make_tests(old: str, new: str, words: Iterable[str]) -> str:
    """Return the makefile of today with the rules that concern tests, and the variables that they use, as they were.

    Raises `ValueError` where that can't be told: other directives have changed, such as `include` and `ifdef`.
    """
    before, now = _split_make_blocks(old), _split_make_blocks(new)
    if _directive_texts(before) != _directive_texts(now):
        raise ValueError("directives have changed")
    names = _test_rule_and_variable_names(before, now, words)
    kept = [block for block in now if not names & {*block.names}]
    restored = [block for block in before if names & {*block.names}]
    if [b for b in now if names & {*b.names}] == restored:
        return new
    if any(block.kind == "directive" for block in now):
        raise ValueError("the order of directives matters")
    # Variables first, for those that a rule's head uses; then the rules, each of which make reads as a whole.
    both = [*restored, *kept]
    first = [b for b in both if b.kind == "variable"]
    goal = next((b.names[0] for b in before if b.kind == "rule" and not b.names[0].startswith(".")), "")
    rules = sorted((b for b in both if b.kind == "rule"), key=lambda b: goal not in b.names)
    return "".join(f"{block.text}\n" for block in (*first, *rules))


def _test_rule_and_variable_names(
    before: list[_MakeBlock], now: list[_MakeBlock], words: Iterable[str]
) -> set[str]:
    old, new = _bodies_by_name(before, "rule"), _bodies_by_name(now, "rule")
    # The first rule is what make runs without a target.
    goals = [
        next((b.names[0] for b in blocks if b.kind == "rule" and not b.names[0].startswith(".")), "")
        for blocks in (before, now)
    ]
    bare = [] if {*words} & {*old, *new} else goals
    # A prerequisite is built for the tests, and is none itself, unless it runs some or nothing else is done.
    runs = [name for each in (old, new) for name, text in each.items() if _RUNS.search(_recipe_text(text))]
    did, does = ({name: _recipe_text(text) or text for name, text in each.items()} for each in (old, new))
    wanted = find_test_targets(did, does, [*words, *bare, *runs])
    patterns = {name for name in (*old, *new) if "%" in name or name.startswith(".")}
    wanted |= patterns
    variables = (_bodies_by_name(before, "variable"), _bodies_by_name(now, "variable"))
    texts = [bodies.get(name, "") for name in wanted for bodies in (old, new)]
    used, pending = {*_SHELL, _GOAL}, texts
    while pending:
        names = {a or b for text in pending for a, b in _USED.findall(text)} - used
        used |= names
        pending = [bodies[name] for name in names for bodies in variables if name in bodies]
    return wanted | used


def _recipe_text(text: str) -> str:
    """Return what a rule does, without its head."""
    return "\n".join(line for line in text.splitlines() if line[:1].isspace())


def _bodies_by_name(blocks: list[_MakeBlock], kind: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for block in blocks:
        for name in block.names if block.kind == kind else ():
            found[name] = f"{found.get(name, '')}\n{block.text}"
    return found


def _directive_texts(blocks: list[_MakeBlock]) -> list[str]:
    return [block.text for block in blocks if block.kind == "directive"]


def _split_make_blocks(text: str) -> list[_MakeBlock]:
    """Split into rules with their recipes, variables and directives. A line that ends in a backslash goes on."""
    lines = re.sub(r"\\\n", "\\\\\0", text).splitlines()
    blocks: list[_MakeBlock] = []
    for raw in lines:
        line = raw.replace("\0", "\n")
        indented = line.startswith(("\t", "    ", "  "))
        if indented and blocks and blocks[-1].kind == "rule":
            last = blocks[-1]
            blocks[-1] = last._replace(text=f"{last.text}\n{line}")
        elif line.strip() and not line.lstrip().startswith("#"):
            blocks.append(_parse_make_block_header(line))
        elif blocks and blocks[-1].kind == "rule" and not line.strip():
            continue  # a recipe goes on behind empty lines
    return blocks


def _parse_make_block_header(line: str) -> _MakeBlock:
    text = line.strip()
    if _DIRECTIVE.match(text):
        return _MakeBlock("directive", (), line)
    if text.startswith("set "):  # just's
        return _MakeBlock("variable", ("set",), line)
    if found := _VARIABLE.fullmatch(text):
        return _MakeBlock("variable", (found[1],), line)
    if (found := _RULE.fullmatch(text)) and not text.startswith("\t"):
        head = found[1].split()
        # `.PHONY: test` says something of its targets; just's recipes have parameters behind the name.
        names = (".PHONY",) if head == [".PHONY"] else tuple(head)
        if rest := re.match(r"\s*([\w.-]+)\s*[:+?]?=", found[2]):
            return _MakeBlock("rule", (*names, rest[1]), line)  # a variable of a target
        return _MakeBlock("rule", names, line)
    raise ValueError(f"{text!r} is neither a rule nor a variable")


_SCRIPTS = frozenset({".ts", ".tsx", ".js", ".jsx", ".mjs", ".mts"})


def _restore_or_reject_inline_tests(path: str, old: str, new: str) -> str:
    """Return the code of today with the tests of before; equal to `new` if these have not changed.

    Raises `ValueError` if they have, and can't be told apart.
    """
    match PurePath(path).suffix:
        case ".rs":
            return _restore_or_reject_rust_tests(old, new)
        case ".py":
            changed = bool(Counter(_python_doctests(old)) - Counter(_python_doctests(new)))
        case ".zig":
            changed = bool(
                Counter(_blocks_starting_with(old, r"^test\b"))
                - Counter(_blocks_starting_with(new, r"^test\b"))
            )
        case ".d":
            changed = bool(
                Counter(_blocks_starting_with(old, r"\bunittest\b"))
                - Counter(_blocks_starting_with(new, r"\bunittest\b"))
            )
        case suffix:
            assert suffix in _SCRIPTS, suffix
            changed = _inline_vitest_section(old) != _inline_vitest_section(new) and bool(
                _inline_vitest_section(old)
            )
    if changed:
        raise ValueError("tests beside the code have changed")
    return new


def _python_doctests(text: str) -> Iterator[tuple[str, str]]:
    """Yield the examples of a Python module's docstrings."""
    if ">>>" not in text:
        return
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented)]
    for shown in filter(None, map(ast.get_docstring, nodes)):
        yield from ((e.source, e.want) for e in doctest.DocTestParser().get_examples(shown))


def _blocks_starting_with(text: str, start_pattern: str) -> Iterator[str]:
    """Yield the blocks that begin so, each up to a brace at its line's beginning or the next block."""
    begins = [found.start() for found in re.finditer(start_pattern, text, re.MULTILINE)]
    for begin, end in zip(begins, [*begins[1:], len(text)], strict=True):
        closed = re.compile(r"^\}", re.MULTILINE).search(text, begin, end)
        yield text[begin : closed.end() if closed else end]


def _inline_vitest_section(text: str) -> str:
    """Return vitest's tests in a source file, which stand at its end."""
    at = text.find("import.meta.vitest")
    return text[at:].rstrip() if at >= 0 else ""


class _Item(NamedTuple):
    start: int
    end: int
    depth: int
    text: str


_SKIPPED = re.compile(
    r"//[^\n]*|(?:b|c)?r(#*)\"(?:.|\n)*?\"\1|(?:b|c)?\"(?:\\(?:.|\n)|[^\"\\])*\"|b?'(?:\\(?:u\{[0-9a-fA-F_]+\}|x..|.)|[^'\\\n])'"
)
"""Comments, texts and characters of Rust; a lifetime is no character."""
_TEST = re.compile(
    r"#\[(?:cfg\((?:test|all\((?:[^()]*,)?test[,)]|any\((?:[^()]*,)?test[,)])|(?:\w+::)*(?:test|bench|rstest|test_case|quickcheck"
    r"|wasm_bindgen_test|proptest|serial)(?:\]|\())"
)
_WHOLE = re.compile(r"^\s*#!\[cfg\(test\)\]", re.MULTILINE)


def _restore_or_reject_rust_tests(old: str, new: str) -> str:
    if _WHOLE.search(old):
        return old
    before, now = [*_rust_test_items(old)], [*_rust_test_items(new)]
    if Counter(_rust_doctests(old)) - Counter(_rust_doctests(new)):
        raise ValueError("examples in comments have changed")
    if [item.text for item in before] == [item.text for item in now]:
        return new
    if any(item.depth for item in (*before, *now)):
        raise ValueError("tests inside of other modules have changed")
    rest, at = "", 0
    for item in now:
        rest, at = rest + new[at : item.start], item.end
    rest += new[at:]
    return "\n".join([rest, *(item.text for item in before), ""])


def _rust_doctests(text: str) -> Iterator[str]:
    """Yield the examples in Rust's documentation comments, which are tests, too."""
    comments = "\n".join(m[1] for m in re.finditer(r"^\s*//[/!] ?(.*)$", text, re.MULTILINE))
    yield from re.findall(
        r"^```(?:rust|should_panic|no_run|\w*)?\n(.*?)^```", comments, re.MULTILINE | re.DOTALL
    )


def _rust_test_items(text: str) -> Iterator[_Item]:
    """Yield the items that are only compiled for tests, from their first attribute to their end."""
    at, depth, pending, is_test = 0, 0, -1, False
    while at < len(text):
        if skipped := _find_literal_or_comment_end(text, at):
            at = skipped
        elif text.startswith("#[", at):
            end = _find_bracket_end(text, at + 1, "[", "]")
            pending = at if pending < 0 else pending
            is_test = is_test or _TEST.match(re.sub(r"\s+", "", text[at:end])) is not None
            at = end
        elif text[at].isspace():
            at += 1
        elif is_test:
            end = _find_rust_item_end(text, at)
            yield _Item(pending, end, depth, text[pending:end])
            at, pending, is_test = end, -1, False
        else:
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at, pending = at + 1, -1


def _find_rust_item_end(text: str, at: int) -> int:
    """Return where the item that begins here ends: behind a semicolon, or behind its braces."""
    inner = 0
    while at < len(text):
        if skipped := _find_literal_or_comment_end(text, at):
            at = skipped
            continue
        sign = text[at]
        if sign in "([":
            inner += 1
        elif sign in ")]":
            inner -= 1
        elif sign == ";" and not inner:
            return at + 1
        elif sign == "{":
            end = _find_bracket_end(text, at, "{", "}")
            if not inner:
                return end
            at = end - 1
        at += 1
    raise ValueError("an item has no end")


def _find_bracket_end(text: str, at: int, opens: str, closes: str) -> int:
    """Return the place behind the bracket that closes the one here."""
    depth = 0
    while at < len(text):
        if skipped := _find_literal_or_comment_end(text, at):
            at = skipped
            continue
        depth += {opens: 1, closes: -1}.get(text[at], 0)
        at += 1
        if not depth:
            return at
    raise ValueError(f"{opens!r} isn't closed")


def _find_literal_or_comment_end(text: str, at: int) -> int:
    """Return the end of the comment, text or character that begins here; 0: none does."""
    if text.startswith("/*", at):
        depth, place = 0, at
        for found in re.compile(r"/\*|\*/").finditer(text, at):
            depth += 1 if found[0] == "/*" else -1
            place = found.end()
            if not depth:
                return place
        raise ValueError("a comment isn't closed")
    found = _SKIPPED.match(text, at)
    if found is None or (text[at] in "bcr" and at and (text[at - 1].isalnum() or text[at - 1] == "_")):
        return 0
    return found.end()
