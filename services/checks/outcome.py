"""outcome: whether a check that succeeded ran any test."""

import re
from collections.abc import Sequence

from interlock.services.checks.test_table import CheckTable, load_runners
from interlock.services.shell.simple import split_simple_commands


def has_run_no_tests(table: CheckTable, output: str) -> bool:
    """Return whether the output of a check says that no test ran, or a runner that the line names says nothing of
    tests.

    A runner counts tests at the end of its output, which may have lost its beginning.
    """
    text = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", output)
    if any(_has_match(runner.some, text) for runner in load_runners()):
        return False
    if any(_has_match(runner.none, text) for runner in load_runners()):
        return True
    telling = [runner for runner in table.programs if runner.some and not runner.quiet]
    return bool(telling) and not _is_hiding_output(table.command)


def _has_match(patterns: Sequence[str], text: str) -> bool:
    return any(re.search(pattern, text, re.MULTILINE) for pattern in patterns)


def _is_hiding_output(line: str) -> bool:
    """Return whether the line sends the output elsewhere, or asks for less of it."""
    words = [word for words in split_simple_commands(line) for word in words]
    less = (
        re.fullmatch(r"-q{2,}|--quiet|--silent|-s|--no-summary|--reporters?(=.*)?|--format(=.*)?|-o|-f", w)
        for w in words
    )
    return bool(re.search(r"[>|]", line)) or any(less)
