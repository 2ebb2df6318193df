"""mutations: lines that the parser says it understands, cut, doubled and spliced until bash may read them otherwise.

Only lines that it still understands are run, mostly those in which it takes `c3` for mere text: what bash runs of them
must have been seen.
"""

import random
import re

from bash_oracle.constructs import Constructs
from bash_oracle.lines import Lines, quoted

from interlock.services.shell.model import ShellLine
from interlock.services.shell.parse import parse_shell_line

_SEEDS = (
    # quotes
    *("c1 'a; c3 #' \"b; c3 #\"", "c1 a\\; c3", "c1 $'a\\'; c3 #'", "c1 \"a\\\"; c3 #\"", "c1 'a'\\''; c3'"),
    *("c1 a # ; c3", "c1 a#b; c2 'c3'", "c1 \\# c3", "c1 '#' ; c2 # c3\nc1", "# c3\nc1 a", "c1 $# c3"),
    *("c1 $'\\u00633'", "c1 $'c\\x333' $'\\1433' c3", "c1 \"$'; c3 #'\"", "c1 '$(c3)' \"\\$(c3)\" \\`c3\\`"),
    *("c1 $$ c3", 'c1 "$$" c3', "c1 $$'a; c3'", 'c1 "$x" \'c3\' "$(c2 "a; c3")"', "c1 $x'; c3 #'\"b\""),
    *("c1 \\\n c3", "c1 'a \\\n; c3'", 'c1 "a \\\n; c3"', "c1 a; \\\n c2 c3", "c1 é c3", "c1 'é\\' c3"),
    # expansions
    *("c1 ${x:-c3} ${x#c3}", 'c1 "${x:+c3}" "${#x}"', "c1 $((1+2)) c3", "c1 $(( (1 << 2) | 3 )) c3"),
    *("c1 {a,c3} {1..3}", "c1 x{c1,' ; c3 '}y", 'c1 "{a,b}" c3', "c1 [a-c] * ? c3", "c1 [!c3] [^c3]"),
    *("c1 ~ ~+ a:~ c3", "c1 $(c2 c3) c3", 'c1 "a $(c2 "$(c1 c3)") b"', "c1 $(c2; (c1 c3))", "c1 $( (c2 c3) )"),
    *("c1 $(<f) c3", "c1 $(c2 >f c3)", "c1 $(! c2 c3)", "c1 $(time -p c2 c3)", "c1 $(for x in c3; do c2 $x; done)"),
    *("c1 $(if c1; then c2 c3; fi)", "c1 $(x=c3 c2)", "c1 $({ c2 c3; } 2>&1)", "c1 $([[ -n c3 ]] && c2)"),
    "c1 $@ $* c3",
    # compound commands
    *("[[ -n 'c3' ]] && c1", '[[ -n "$x" ]] && c1 c3', "[[ $x == c3 ]] || c1", "[[ ! -f c3 ]]; c1"),
    "[[ a < c3 ]]; c1",
    *("[[ ${x} != c3* ]] && c1", "[ -f c3 ] && c1", '[ "$x" = c3 ] || c1', "test c3 -nt a; c1", "[ ! -e c3 ]; c1"),
    *("for x in a c3; do c1 $x; done", "for x in 'c3'\ndo c1\ndone", "for x; do c1 c3; done"),
    "for c3 in a; do c1; done",
    *("if c1 c3; then c2 c3; elif c1; then c2; else c1 c3; fi", "while c1 c3; do break; done", "{ c1 c3; } >f"),
    *("until c1 c3; do break; done", "(c1 c3) >f", "( (c1 c3) )", "! c1 c3", "time -p c1 c3", "time c1; c2 c3"),
    *("if { c1; }; then c2 c3; fi | c1", "(c1; c2 c3) | { c1 c3; } &\nwait", "while read -r x; do c1 c3; done <f"),
    # redirections and here-documents
    *("c1 >f c3", ">f c1 c3", "c1 2>&1 c3", "c1 >&- c3", "c1 &>f c3", "c1 >|f c3", "c1 <<<c3"),
    *("c1 <<< 'a; c3' b", "c1 3>&1 4<&- c3"),
    *("c1 2>f 3<f c3", "x=1 >f c1 c3", ">f x=1 c1 c3", "c1 <f >c3", "c1 1>&2- c3", "c1 10>f c3", "c1 >f2 c3"),
    *("c1 <<E\nc3\nE\nc2", "c1 <<'E'\n; c3 $(c3)\nE\nc2", "c1 <<-E\n\tc3 $x\n\tE\nc2", "c1 <<E c3\nc3\nE"),
    "c1 <<\\E >f\nc3\nE",
    *("c1 <<'E' # c3\nc3\nE\nc2", "while c1; do break; done <<E\nc3\nE\nc2", "{ c1; c2\n} <<E\nc3\nE\n"),
    "c1 <<E\n$x c3\nE",
    # assignments, wrappers, builtins
    *("x=c3 c1 a", "x='a; c3' y=\"c3\"; c1", "x+=c3; c1", "x=$(c2 c3) c1", "CI=c3 LC_ALL=C c1", "x=a:~:c3 c1"),
    "x=[c3 c1",
    *("env -u x y=c3 c1 c3", "timeout -k 1 5 c1 c3", "nice -n 5 c1 c3", "nohup c1 c3", "command -v c3; c1"),
    "command c1 c3",
    *("bash -c 'c1 c3'", 'bash -c "c1 \'a; c3\'"', "sh -c 'c1 c3; c2'", "sh -c 'c1 \"c3\" && c2'"),
    "bash -ec 'c1 c3 # c3'",
    *("c1 a | xargs c2 c3", "c1 | xargs -n1 c2 'c3'", "find . -name c3 -maxdepth 0"),
    "find . -maxdepth 0 -exec c1 c3 {} ';'",
    *("printf '%s\\n' c3; c1", "printf '%d %5.2f' c3 1; c1", "read c3 <<<c3; c1", "read -r x <<<c3; c1"),
    "set -e -o pipefail; c1 c3",
    *("export CI=c3; c1", 'export CI="$x" TERM; c1 c3', ": c3; c1", "true c3 && c1", "exit $? ; c3x"),
    *("shift $#; c1 c3", "wait; c1 c3"),
)  # fmt: skip
_METAS = tuple(" \t\n;|&()<>'\"\\$`{}[]!#*?~=+-:,.%^@/0123Ex")
_PIECES = (
    *("c3", "; c3", "c3;", "&& c3", "| c3", "\nc3\n", " # ", "\\\n", " \\\n", "$(", "${", "$((", "))", "$'"),
    *('$"', "]]", "[[ "),
    *("<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "<<<", ">&", "<&", "&>", ">|", "<>", "2>&1", ">f ", "{fd}>", "x="),
    *("x+=", "x[", "]="),
    *("'a[$(c3)]'", '"$w"', "$w", "$z", "$q", "$v", "$x", "${x}", "${x", "$$", "$?", "$@", "$-", "$_"),
    *("\\u0063", "\\x63", "\\143"),
    *("{a,", ",b}", "..", "(", ")", "((", "! ", "time ", "{ ", "; }", "if ", "; then ", "; fi", "; do "),
    *("; done", "for x in "),
    *("case x in x) ", ";; esac", "f() ", "function ", "coproc ", "select ", "-v ", "-eq ", "%n ", "PATH"),
    *("BASHPID", "IFS", "LC_ALL="),
    *("declare ", "export ", "eval ", "exec ", "command ", "builtin ", ". ", "trap ", "env ", "xargs "),
    *("bash -c ", "sh -c ", "é", "\udcff"),
)  # fmt: skip
_WRAPS = (
    *("'{}'", '"{}"', "$'{}'", "\\{}", "${{x:-{}}}", '"${{x:-{}}}"', "$({})", "[[ -n {} ]]", "({})", "# {}\n"),
    *("$(({}))", "{{{},a}}", "`{}`"),
)  # fmt: skip
_EDGES = tuple("\"'`$\\{}()[]#;&|<>!= \n") + ("",) * 8
_CLOSES = "} ]] ; c3 # ) ]] ; c3 # ` ]] ; c3 #"
_BOTH = f"{_CLOSES} \" ]] ; c3 # ' ]] ; c3"
_TAILS = (
    *(f" # {_BOTH} #", f" '{_CLOSES} \" ]] ; c3 #'", " \"} ]] ; c3 # ) ]] ; c3 # ' ]] ; c3 #\""),
    *(f" <<'E'\n{_BOTH}\nc3\nE\n", " \\; c3", " # \\\nc2 '\n; c3'", f" $'\\'{_CLOSES} \" ]] ; c3 #'"),
)  # fmt: skip
"""Text to the parser, and a command to a bash that is within something else at its start."""
_META = re.compile(r"[^\w./ -]")
_ONCE = ("double", "move", "wrap", "nest")
_TRIES = 60
_MOST_KEPT = 400


class Mutations:
    """`line()` returns a new random line each time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines, self.constructs = Lines(seed), Constructs(seed)
        self.kept = list(_SEEDS)

    def line(self) -> str:
        text = self.random.choice(_SEEDS)
        hides = self.random.random() < 0.7
        for _ in range(_TRIES):
            text = self.mutated(self.origin()) if self.random.random() < 0.5 else self.edge()
            parsed = parse_shell_line(text)
            if parsed.opaque is None and "\0" not in text and (not hides or _hides(parsed)):
                break
        if len(text) < 200:
            if len(self.kept) >= _MOST_KEPT:
                self.kept[self.random.randrange(len(_SEEDS), _MOST_KEPT)] = text
            else:
                self.kept.append(text)
        return text

    def origin(self) -> str:
        choice = self.random.random()
        if choice < 0.8:
            return self.random.choice(self.kept if choice < 0.5 else _SEEDS)
        return self.lines.line() if choice < 0.9 else self.constructs.line()

    def edge(self) -> str:
        """One change to a seed, then what shows where bash is."""
        text = self.random.choice(_SEEDS)
        at = self.random.randint(0, len(text))
        cut = at + self.random.choice((0, 0, 1))
        return self.hide(text[:at] + self.random.choice(_EDGES) + text[cut:])

    def mutated(self, text: str) -> str:
        for _ in range(self.random.choice((1, 1, 2, 2, 3, 5))):
            text = self.changed(text)
        return text

    def place(self, text: str) -> int:
        """A position, mostly beside a character that means something to bash."""
        metas = [m.start() for m in _META.finditer(text)]
        if not metas or self.random.random() < 0.15:
            return self.random.randint(0, len(text))
        return self.random.choice(metas) + self.random.choice((0, 1))

    def span(self, text: str) -> tuple[str, str, str]:
        at = self.place(text)
        end = at + self.random.choice((1, 1, 1, 2, 3, 6, 12))
        return text[:at], text[at:end], text[end:]

    def piece(self) -> str:
        return self.random.choice(self.random.choice((_METAS, _PIECES)))

    def put(self, text: str, piece: str) -> str:
        at = self.place(text)
        return text[:at] + piece + text[at:]

    def splice(self, text: str) -> str:
        other = self.random.choice(self.kept)
        joint = self.random.choice(("", "", " ", "; ", "\n", " && ", " | "))
        return text[: self.place(text)] + joint + other[self.place(other) :]

    def hide(self, text: str) -> str:
        return text + self.random.choice(_TAILS)

    def changed(self, text: str) -> str:
        pick = self.random.choice
        before, middle, after = self.span(text)
        match pick(("insert",) * 3 + ("delete", "replace", "splice") * 2 + ("hide",) * 3 + _ONCE):
            case "insert":
                return self.put(text, self.piece())
            case "delete":
                return before + after
            case "replace":
                return before + pick(_METAS) + after
            case "double":
                return before + middle + middle + after
            case "move":
                return self.put(before + after, middle)
            case "wrap":
                return before + pick(_WRAPS).format(middle) + after
            case "splice":
                return self.splice(text)
            case "hide":
                return self.hide(text)
            case _:
                return pick(("bash -c {}", "sh -c {}", "c1 {}")).format(quoted(text))


def _hides(parsed: ShellLine) -> bool:
    """Whether `c3` is in the line, and no command to the parser."""
    return "c3" in parsed.text and all(not c.argv or c.argv[0] != "c3" for c in parsed.commands)
