"""makefile: a makefile's rules and variables that concern tests, put back as they were; also those of a justfile."""

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from interlock.services.checks.targets import find_test_targets

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


class _Block(NamedTuple):
    kind: str
    """rule, variable, directive, or empty: comments."""
    names: tuple[str, ...]
    text: str


def restore_make_tests(old: str, new: str, words: Iterable[str]) -> str:
    """Return the makefile of today with the rules that concern tests, and the variables that they use, as they were.

    Raises `ValueError` where that can't be told: other directives have changed, such as `include` and `ifdef`.
    """
    before, now = _split_blocks(old), _split_blocks(new)
    if _directives(before) != _directives(now):
        raise ValueError("directives have changed")
    names = _test_rule_names(before, now, words)
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


def _test_rule_names(before: list[_Block], now: list[_Block], words: Iterable[str]) -> set[str]:
    old, new = _bodies_by_name(before, "rule"), _bodies_by_name(now, "rule")
    # The first rule is what make runs without a target.
    goals = [
        next((b.names[0] for b in blocks if b.kind == "rule" and not b.names[0].startswith(".")), "")
        for blocks in (before, now)
    ]
    bare = [] if {*words} & {*old, *new} else goals
    # A prerequisite is built for the tests, and is none itself, unless it runs some or nothing else is done.
    runs = [name for each in (old, new) for name, text in each.items() if _RUNS.search(_recipe(text))]
    did, does = ({name: _recipe(text) or text for name, text in each.items()} for each in (old, new))
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


def _recipe(text: str) -> str:
    """Return what a rule does, without its head."""
    return "\n".join(line for line in text.splitlines() if line[:1].isspace())


def _bodies_by_name(blocks: list[_Block], kind: str) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for block in blocks:
        for name in block.names if block.kind == kind else ():
            found[name] = f"{found.get(name, '')}\n{block.text}"
    return found


def _directives(blocks: list[_Block]) -> list[str]:
    return [block.text for block in blocks if block.kind == "directive"]


def _split_blocks(text: str) -> list[_Block]:
    """Split into rules with their recipes, variables and directives. A line that ends in a backslash goes on."""
    lines = re.sub(r"\\\n", "\\\\\0", text).splitlines()
    blocks: list[_Block] = []
    for raw in lines:
        line = raw.replace("\0", "\n")
        indented = line.startswith(("\t", "    ", "  "))
        if indented and blocks and blocks[-1].kind == "rule":
            last = blocks[-1]
            blocks[-1] = last._replace(text=f"{last.text}\n{line}")
        elif line.strip() and not line.lstrip().startswith("#"):
            blocks.append(_parse_block_head(line))
        elif blocks and blocks[-1].kind == "rule" and not line.strip():
            continue  # a recipe goes on behind empty lines
    return blocks


def _parse_block_head(line: str) -> _Block:
    text = line.strip()
    if _DIRECTIVE.match(text):
        return _Block("directive", (), line)
    if text.startswith("set "):  # just's
        return _Block("variable", ("set",), line)
    if found := _VARIABLE.fullmatch(text):
        return _Block("variable", (found[1],), line)
    if (found := _RULE.fullmatch(text)) and not text.startswith("\t"):
        head = found[1].split()
        # `.PHONY: test` says something of its targets; just's recipes have parameters behind the name.
        names = (".PHONY",) if head == [".PHONY"] else tuple(head)
        if rest := re.match(r"\s*([\w.-]+)\s*[:+?]?=", found[2]):
            return _Block("rule", (*names, rest[1]), line)  # a variable of a target
        return _Block("rule", names, line)
    raise ValueError(f"{text!r} is neither a rule nor a variable")
