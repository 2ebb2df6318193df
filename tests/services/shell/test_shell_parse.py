"""What a line would run, according to the parser; and lines that only a real bash taught it to doubt."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import lines_run

from interlock.services.shell.parse import parse


def argvs(line: str) -> list[tuple[str, ...]]:
    return [c.argv for c in parse(line).commands]


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        ("ls -la", ("ls", "-la")),
        ("'l's \"a b\" c\\ d", ("ls", "a b", "c d")),
        ('echo "a\\"b\\$c\\\\d\\e"', ("echo", 'a"b$c\\d\\e')),
        ("echo 'a\\b'", ("echo", "a\\b")),
        ("echo $'a\\tb\\x41\\101\\u00e9\\'c'", ("echo", "a\tbAAé'c")),
        ("echo a$ b", ("echo", "a$", "b")),
        ("echo a#b '#' \\#", ("echo", "a#b", "#", "#")),
        ("echo {} HEAD@{1} a=b", ("echo", "{}", "HEAD@{1}", "a=b")),
        ("echo é 'ü ß' x", ("echo", "é", "ü ß", "x")),
        ("r\\\nm x", None),
        ('echo "a \\\nb"', ("echo", "a b")),
        ("ls >f -la 2>&1 x", ("ls", "-la", "x")),
        (">f ls", ("ls",)),
        ("cat <<'E'\nx\nE", ("cat",)),
        ("[ -f x ]", ("[", "-f", "x", "]")),
        ("export CI=1 TZ=x", ("export", "CI=1", "TZ=x")),
        ("!ls", ("!ls",)),
        ('x="a b"\\; c1', ("c1",)),
        ("x=\\  c1 a", ("c1", "a")),
    ],
)
def test_quoting_is_resolved_where_it_is_literal(line: str, argv: tuple[str, ...] | None) -> None:
    if argv is None:
        assert parse(line).opaque
    else:
        assert argvs(line) == [argv]
        assert parse(line).opaque is None


@pytest.mark.parametrize(
    ("line", "runs"),
    [
        ("for x in a $(c2); do c1 $x; done", "c2 c1"),
        ("for x; do c1; done", "c1"),
        ("for x\ndo c1\ndone | c2", "c1 c2"),
        ("if c1; then c2; elif c3; then c4; else c5; fi >f", "c1 c2 c3 c4 c5"),
        ("while read -r x; do c1; done <f", "read c1"),
        ("while c1; do c2; done <<'E'\nrm x\nE\nc3", "c1 c2 c3"),
        ("{ c1; (c2; c3); }; c4", "c1 c2 c3 c4"),
        ("! c1 | c2 &\nc3", "c1 c2 c3"),
        ("c1 \\\n  a # b; c2\n# c3\nc4;#c5", "c1 c4"),
        ("c1 then fi } do", "c1"),
        (">f c1 <g; x=1 y=$(c2) c3", "c1 c2 c3"),
        ('c1 "a $(c2 "$(c3)") b" \'c4 $(c5)\'', "c3 c2 c1"),
        ("cat <<E >f -n\nc1 $x\nE\nc2", "cat c2"),
        ("[[ -f a ]] && c1", "c1"),
        ("c1 a2 >f 2>g 3>&1 &>h", "c1"),
    ],
)
def test_compound_commands_are_seen_through(line: str, runs: str) -> None:
    assert parse(line).opaque is None
    assert [argv[0] for argv in argvs(line)] == runs.split()


@pytest.mark.parametrize(
    "line",
    [
        "if c1; fi",
        "then c1",
        "c1; }",
        "{ c1; } c2",
        "(c1) c2",
        "for x in a; c1; done",
        "while c1; done",
        "do c1; done",
        "c1 &&; c2",
        "c1 | ; c2",
        "(c1",
        "if c1; then c2; done",
        "! ",
        ">f if c1; then c2; fi",
        "a=1 for x in a; do c1; done",
        "\\if c1; then c2; fi",
        "c1 -2>f",
        "{x}>f c1",
        "cat <<E | c1\nx\nE",
        'cat <<E "a\nb"\nx\nE',
        "select x in a; do c1; done",
    ],
)
def test_what_bash_refuses_or_reads_by_other_rules_is_opaque(line: str) -> None:
    assert parse(line).opaque


@pytest.mark.parametrize(
    "word", ["$x", '"$x"', "*", "a*", "~", "~/x", "{a,b}", "a{1..3}", "$(ls)", "${x}", "[a]", "<(ls)"]
)
def test_a_word_whose_value_is_not_known_says_so(word: str) -> None:
    command = parse(f"echo {word}").commands[-1]
    assert not command.words[1].literal and command.words[1].text == word


def test_what_a_word_is_known_to_begin_with() -> None:
    words = parse('echo a$x "b$x" c* "$x"').commands[0].words[1:]
    assert [(w.lead, w.splits, w.wild, w.may_be_option) for w in words] == [
        ("a", True, True, True),
        ("b", False, False, False),
        ("c", True, False, False),
        ("", False, False, True),
    ]


def test_redirections_are_told_apart() -> None:
    line = parse("cmd <in >out 2>>log 2>&1 &>all >|over >&- <&3 2>/dev/null; cat <<<text")
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


def test_what_can_be_seen_of_a_line_that_is_not_valid_is_kept() -> None:
    line = parse("git push >f <<<x >&-; ls )")
    assert line.opaque
    assert ("git", "push") in [c.argv for c in line.commands]


def test_variables_are_noted_with_what_they_are_set_for() -> None:
    line = parse("a=1; b=2 ls; export CI=1")
    assert set(line.assigns) == {"a", "CI"}
    assert line.commands[0].assigns == ("b",)


def test_wrappers_are_there_but_need_no_leave_of_their_own() -> None:
    line = parse("timeout 5 env CI=1 bash -c 'rm x'")
    assert [(c.argv[0], c.transparent) for c in line.commands] == [
        ("timeout", True),
        ("env", True),
        ("bash", True),
        ("rm", False),
    ]
    assert [c.argv for c in line.effective] == [("rm", "x")]


# Each of these is easily read differently than by bash 5.2; found by test_bash_oracle.py.
MISREAD = [
    "c1 $(c3 \n\\\n'#' x)",
    "c1 -2>/dev/null",
    "c1 -<<E\nx\nE",
    "c1 <<'E'é\nx\nE",
    "c1 >&'$(rm s)'",
    "local %x $\ngit",
    '"a$ $(rm x)"',
    'c1 !$\\\n"\\$(rm x)"',
    '"$\\\n(rm x)"',
    "c1\\\n 2>&1",
    "c1 $(c2 <<'E'\nx\nE\nwhile c3; do c1 a; break; done)",
    "find . -maxd${x:-epth 0 -exec c3 {} \\;",
    "sh -c \"c1 \\$'a'\"",
    "sh -c 'c1 &>f rm x'",
    "sh -c '[[ a && rm x ]]'",
    "coproc rm x",
    "case x in esac) rm x",
    "nice -n $x c1",
    "f é() { ls; }",
    "cat <<E\nx\\\nE\ncat <<'F'\nE\nrm x\nF",
    "c1 ${x/a{b}; rm x; c}",
    "$'\\x{72}m' x",
    'c1 >&"2a\'b"',
    "a=(['b[$(rm x)]']=1)",
    "i='b[$(rm x)]'; a=([i]=1)",
    "f() { local a=(); local \"a=$1\"; }; f '($(rm x))'",
    "[[ 'a[$(rm x)]+'\\ 1 -eq 0 ]]",
    "[[ 'a[$(rm x)]' -eq\\\n 0 ]]",
    "OPTIND='a[$(rm x)]'",
    "c1 & wait -p 'a[$(rm x)]' -n",
    "set -k; git x=1 push",
    "env SHELLOPTS=keyword bash -c 'git x=1 push'",
    "c1 ;; c1",
    "{c1;}",
    "ls\u00a0-la",
    "env - touch f",
    'find . -exec b"$x"ash -c c3 \\;',
    "nohup - touch f",
]


@pytest.mark.parametrize("line", MISREAD)
def test_what_is_easily_read_otherwise_than_by_bash_is_opaque(line: str) -> None:
    assert parse(line).opaque, parse(line)


@given(st.one_of(st.text(max_size=80), st.text("ab ;|&<>()$`'\"\\{}[]#!=\n\t*~-E0", max_size=80)))
def test_no_text_makes_it_raise(line: str) -> None:
    shown = parse(line)
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


@pytest.mark.parametrize("line", LONG, ids=[line[:12] for line in LONG])
def test_no_line_takes_long(line: str) -> None:
    parse("ls")  # imports
    assert lines_run(lambda: parse.__wrapped__(line)) < MOST_LINES


@pytest.mark.parametrize("lines", [40, pytest.param(600, marks=pytest.mark.sweep)])
def test_bent_lines_take_no_longer(lines: int) -> None:
    rng = random.Random(5)
    pieces = [
        *("a", " ", ";", "|", "(", ")", "$(", "`", '"', "'", "{", "}", "<<E", "\n", "[[", "]]", "(("),
        *("))", "if ", "$x"),
    ]
    for _ in range(lines):
        line = "".join(rng.choices(pieces, k=rng.choice((20, 200, 3000))))
        assert lines_run(lambda line=line: parse.__wrapped__(line)) < MOST_LINES, line
