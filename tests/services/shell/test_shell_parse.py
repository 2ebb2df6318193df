"""What a line would run, according to the parser; and lines that only a real bash taught it to doubt."""

from typing import Any

import pytest
from folders import table
from hypothesis import given
from hypothesis import strategies as st
from patience import lines_run

from interlock.services.shell.parse import parse_shell_line

LINES: dict[str, Any] = table(__file__, "parsed_lines.yaml")


def argvs(line: str) -> list[tuple[str, ...]]:
    return [c.argv for c in parse_shell_line(line).commands]


@pytest.mark.parametrize("line", LINES["words"])
def test_quoting_is_resolved_where_it_is_literal(line: str) -> None:
    assert (parse_shell_line(line).opaque, argvs(line)) == (None, [tuple(LINES["words"][line])])


@pytest.mark.parametrize("line", LINES["runs"])
def test_compound_commands_are_seen_through(line: str) -> None:
    assert parse_shell_line(line).opaque is None
    assert [argv[0] for argv in argvs(line)] == LINES["runs"][line].split()


@pytest.mark.parametrize("group", ["refused", "misread"])
def test_what_bash_refuses_or_is_easily_read_otherwise_than_by_bash_is_opaque(group: str) -> None:
    assert [line for line in LINES[group] if not parse_shell_line(line).opaque] == []


@pytest.mark.parametrize(
    "word", ["$x", '"$x"', "*", "a*", "~", "~/x", "{a,b}", "a{1..3}", "$(ls)", "${x}", "[a]", "<(ls)"]
)
def test_a_word_whose_value_is_not_known_says_so(word: str) -> None:
    command = parse_shell_line(f"echo {word}").commands[-1]
    assert not command.words[1].literal and command.words[1].text == word


def test_what_a_word_is_known_to_begin_with() -> None:
    words = parse_shell_line('echo a$x "b$x" c* "$x"').commands[0].words[1:]
    assert [(w.known_start, w.may_split, w.may_start_differently, w.may_be_option) for w in words] == [
        ("a", True, True, True),
        ("b", False, False, False),
        ("c", True, False, False),
        ("", False, False, True),
    ]


def test_redirections_are_told_apart() -> None:
    line = parse_shell_line("cmd <in >out 2>>log 2>&1 &>all >|over >&- <&3 2>/dev/null; cat <<<text")
    assert [(r.kind, r.target.text if r.target else None) for r in line.redirects] == [
        ("read", "in"),
        ("write", "out"),
        ("write", "log"),
        ("duplicate", "1"),
        ("write", "all"),
        ("write", "over"),
        ("duplicate", None),
        ("duplicate", "3"),
        ("write", "/dev/null"),
        ("text", None),
    ]


def test_what_can_be_seen_of_a_line_is_kept_with_what_variables_are_set_for() -> None:
    """Also of one that isn't valid; wrappers are there, but need no leave of their own."""
    line = parse_shell_line("git push >f <<<x >&-; ls )")
    assert line.opaque and ("git", "push") in [c.argv for c in line.commands]
    line = parse_shell_line("a=1; b=2 ls; export CI=1")
    assert (set(line.assigns), line.commands[0].assigned_names) == ({"a", "CI"}, ("b",))
    line = parse_shell_line("timeout 5 env CI=1 bash -c 'rm x'")
    found = [(c.argv[0], c.needs_no_rule) for c in line.commands]
    assert found == [("timeout", True), ("env", True), ("bash", True), ("rm", False)]
    assert [c.argv for c in line.commands_needing_rule] == [("rm", "x")]


@given(st.one_of(st.text(max_size=80), st.text("ab ;|&<>()$`'\"\\{}[]#!=\n\t*~-E0", max_size=80)))
def test_no_text_makes_it_raise(line: str) -> None:
    shown = parse_shell_line(line)
    assert shown.text == line
    assert all(c.words or c.danger for c in shown.commands)


LONG = [
    "a;" * 10_000,
    "a|" * 10_000,
    "x=(" * 6_000,
    "(" * 20_000,
    "$(" * 10_000,
    "${x:-" * 4_000,
    "[[ " + "a && " * 3_900 + "a ]]",
    "((a))&&" * 2_800 + "b",
    "echo " + "$x " * 6_000,
    "<<a " * 5_000,
    "env " * 5_000 + "ls",
    "eval " * 4_000 + "ls",
    "bash -c '" + "ls;" * 6_000 + "'",
    "if a; then " * 900 + "b" + "; fi" * 900,
    "a=1 " * 5_000,
    "cat <<E\n" + "$x `ls`\n" * 2_000 + "E",
    "\\" * 20_000,
    "'" * 20_000,
    "{a,b}" * 4_000,
    "x" * 1_000_000,
]


MOST_LINES = 600_000
"""Lines of Python per line of shell: a tenth of a second. The grammar, which is C, has its own limit."""


@pytest.mark.sample(6)
@pytest.mark.parametrize("line", LONG, ids=[line[:12] for line in LONG])
def test_no_line_takes_long(line: str) -> None:
    parse_shell_line("ls")  # imports
    assert lines_run(lambda: parse_shell_line.__wrapped__(line)) < MOST_LINES
