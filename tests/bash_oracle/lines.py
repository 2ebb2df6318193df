"""lines: random lines of bash: valid ones from a small grammar, then mutated, with denied commands hidden in them."""

import random
from collections.abc import Callable

PROGRAMS = ("c1", "c2", "c3", "rm", "git", "npm")
"""Commands that the lines run. All are stubs."""
DENIED = ("rm -rf q", "git push --force", "npm publish", "c3", "git commit -m x")
"""Commands that `oracle_rules.toml` denies or asks about."""

_OPERATORS = (" && ", " || ", "; ", " | ", "\n", "; ", " |& ", "&&", ";", "|", " & ", "\n# x\n", " \\\n&& ")
_PIECES = (
    *("c1", "rm", "git", " ", " ", "  ", "\n", ";", "&&", "||", "|", "&", "|&", "(", ")", "{ ", "; }", "!"),
    *('"', "'", "\\", "`", "$(", "$((", "))", "((", "[[ ", " ]]", "[ ", " ]", "${x:-", "}", "$x", '"$x"'),
    *("$'", "\\x72", "\\\n", "#", " #", "<<E\n", "\nE\n", "<<'E'\n", "<<-E\n", "<<<", ">f", "<f", "2>&1"),
    *(">&2", "if ", "; then ", "; fi", "for x in ", "; do ", "; done", "while ", "case x in ", "x) "),
    *(";; esac", "f() ", "function f ", "eval ", "bash -c ", "env ", "a=", "a=1 ", "xargs ", "time "),
    *("exec ", "command ", "trap ", "{c1,c2}", "*", "?", "[a]", "~", "=", "-c", "--", "-", "é", "\t", "$"),
    *("%", "@", "1", "else ", "\r", "\x0b", "coproc ", "select x in ", "until ", "$[", "]", "<(", ">("),
    *("${x", "!$", "&>", "<>", ";;", ";&", "$@", "=(", "EXIT", "E", "'E'", "[[", "]]", "declare ", "export "),
    *("local ", "builtin ", ". ", "source ", "alias rm=c1", "read ", "printf -v ", "declare -a "),
    *("declare -i ", "test ", "wait ", "set ", "-k ", "-v ", "unset ", "x=(", "'a[$(rm s)]'", "$i", '"$i"'),
    *("[0]=", "[i]=", "-p", "mapfile ", "jobs -x ", ">|", "&>>", "{fd}>", "1>&", "3<&-", "|| exit", "\u00a0"),
    *("\u3000", "\udcff", "\U0001f600", "$'\\xc3\\xa9'", "${x@P}", "${!x}", "$_", "$0", "$#", "^", "-eq "),
    *(" -o ", " -a ", "=~ ", "++", "<<\\E\n", "\nE", '<<"E"\n', '$"', "$'\\n'", ",", "..", "{", "a[0]="),
    "+=",
)
_PLAIN = (
    *("a", "-rf", "b/c", "'a b'", '"a b"', "a\\ b", "$x", '"$x"', "{a,b}", "*", "~", "a#b", "''", '"a\'b"'),
    *("!", "é", "\\;", "{}", "-", "--", "a=b", "1", "%", "${x/a/b}", '"#"', "\\#", "push", "--force"),
    *("publish", "$i", '"$i"', "-v", "-p", "$'\\055rf'", "{-rf,q}", '-r""f', "$@", '"$@"', "a\\\nb"),
    *('"a\nb"', "'a\nb'"),
)
_MORE = (
    *("-m", "x=1", "'$(rm s)'", '"\\$(rm s)"', "a'b'\"c\"", "$'a\\tb'", "${x:-d}", "${#x}", "$((1+2))"),
    *("[a]", "'a[$(rm -rf q)]'", '"a[\\$(rm s)]"', "'-;rm s'", "'($(rm s))'", "i='a[$(rm s)]'"),
)
_EVALUATORS = (
    *("declare -i {}", "declare -n r={}; c1 $r", "declare -a a={}", "declare -a a; declare a={}"),
    *("declare {}=1", "test -v {}", "[ -v {} ]", "[ -n x -a -v {} ]", "[[ -v {} ]]", "[[ {} -eq 0 ]]"),
    *("[[ {}+\\ 1 -eq 0 ]]", "printf -v {} y", "read {} <<<y", "unset {}", "export {}=x"),
    *("true & wait -p {} -n", "a=([i]=1)", "a=([{}]=1)", "let {}", "(( {} ))", "c1 $(( {} ))"),
    *("c1 ${{x:{}}}", "a[{}]=1", "x={}; c1 ${{!x}}", "RANDOM={}", "OPTIND={}", "mapfile -C {} -c 1 a <<<y"),
    *("getopts x {} -x", "x=-v; [ $x {} ]", 'x=-v; [ "$x" {} ]', "shift {}", "exit {}"),
    *("f() {{ local -i z={}; }}; f", "f() {{ local a=(); local a={}; }}; f", "local {}", "typeset -A {}"),
    *("readonly {}", "x={}; [[ $x -gt 1 ]]", "x={}; c1 ${{y[x]}}", "x={}; c1 ${{y:x}}", "x={}; declare $x=1"),
    "test {} -eq 1",
)


class Lines:
    """`line()` returns a new random line each time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        choice = self.random.random()
        if choice < 0.08:
            return "".join(self.random.choices(_PIECES, k=self.random.randint(1, 12)))
        if choice < 0.18:
            return self.evaluator()
        text = self.hidden(self.random.choice(DENIED)) if choice < 0.45 else self.list(3)
        return self.bent(text) if self.random.random() < 0.45 else text

    def hidden(self, command: str, most: int = 3) -> str:
        """The command, embedded so that bash (nearly always) runs it."""
        text = command
        if self.random.random() < 0.6:
            text = " ".join(self.respelled(w) for w in text.split(" "))
        for _ in range(self.random.randint(0 if text != command else 1, most)):
            text = self.random.choice(_EMBEDDINGS)(text, self)
        return text

    def evaluator(self) -> str:
        text = self.random.choice(_EVALUATORS).format("'a[$(rm s)]'")
        if self.random.random() < 0.3:
            text = f"{self.simple(1)}{self.random.choice(_OPERATORS)}{text}"
        return self.bent(text) if self.random.random() < 0.3 else text

    def respelled(self, word: str) -> str:
        """Another spelling of the word for bash."""
        r = self.random
        at = r.randint(0, len(word))
        head, tail = word[:at], word[at:]
        first = tail[:1]
        return r.choice(
            (
                word,
                f"'{word}'",
                f'"{word}"',
                f"{head}''{tail}",
                f'{head}""{tail}',
                f"{head}\\{tail}" if first else word,
                f"{head}\\\n{tail}",
                "$'" + "".join(f"\\x{ord(c):02x}" for c in word) + "'",
                "$'" + "".join(f"\\{ord(c):03o}" for c in word) + "'",
                f"{head}$'{tail}'" if tail else word,
                f"{head}${{u}}{tail}",
                f"{head}$@{tail}",
                f"{head}$(:){tail}",
                f"{head}``{tail}",
                f'{head}"$u"{tail}',
                f"${{u:-{word}}}",
                f'"$(echo {word})"',
                f"`echo {word}`",
                f'{head}$"{tail}"' if tail else word,
                f"{{{word},}}",
                f"${{u:-{head}}}{tail}" if head else word,
                f"$(echo '{head}'){tail}",
            )
        )

    def bent(self, text: str) -> str:
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(text))
            cut = at + self.random.choice((0, 0, 0, 1, 2))
            text = text[:at] + self.random.choice(_PIECES) + text[cut:]
        return text

    def list(self, depth: int) -> str:
        parts = [self.statement(depth) for _ in range(self.random.choice((1, 1, 2, 3)))]
        text = parts[0]
        for part in parts[1:]:
            text += self.random.choice(_OPERATORS) + part
        return text

    def statement(self, depth: int) -> str:
        if depth <= 0 or self.random.random() < 0.3:
            return self.simple(depth)
        return self.random.choice(_STATEMENTS)(self, depth - 1)

    def simple(self, depth: int) -> str:
        r = self.random
        program = r.choice(
            (*PROGRAMS, *PROGRAMS, "\\rm", '"rm"', "r''m", "$'\\x72m'", "r\\\nm", "'c1'", "echo")
        )
        words = [program, *(self.word(depth) for _ in range(r.choice((0, 1, 1, 2, 3))))]
        text = r.choice((" ", " ", " ", "  ", "\t", " \\\n")).join(words)
        if r.random() < 0.25 and depth > 0:
            text = self.wrapped(text)
        if r.random() < 0.15:
            text += r.choice(
                (
                    *(" >f", " 2>&1", " <f", " >f -x", " 2>/dev/null", " &>f", " <<<a", " >&2 b", " >|f"),
                    *(" &>2", " <>f"),
                )
            )
        if r.random() < 0.1:
            text = r.choice(("a=1 ", "a=$(c3) ", ">f ", "a=1 b=2 ", "<f ", "a=1 >f b=2 ", "2>f ")) + text
        return text

    def wrapped(self, text: str) -> str:
        return self.random.choice(_WRAPPERS).replace("QUOTED", quoted(text)).replace("TEXT", text)

    def word(self, depth: int) -> str:
        r = self.random
        if depth <= 0 or r.random() < 0.7:
            return r.choice((*_PLAIN, *_MORE))
        return r.choice(
            (
                f"$({self.list(depth - 1)})",
                f'"$({self.list(depth - 1)})"',
                f'"a $({self.list(depth - 1)}) b"',
                "`" + self.simple(0).replace("\\", "").replace("`", "") + "`",
                f"<({self.simple(depth - 1)})",
                f">({self.simple(depth - 1)})",
                f"${{x:-$({self.simple(depth - 1)})}}",
                f'"${{x:-"$({self.simple(depth - 1)})"}}"',
                f"$((1 + $({self.simple(0)}) ))",
                f"${{x/a/$({self.simple(0)})}}",
            )
        )


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


_WRAPPERS = (
    *("env TEXT", 'env -i PATH="$PATH" ORACLE_LOG="$ORACLE_LOG" TEXT', "env -u x A=1 TEXT", "nohup TEXT"),
    *("timeout -k 1 5 TEXT", "nice -n 5 TEXT", "bash -c QUOTED", "bash -ec QUOTED x y"),
    *("bash -o pipefail -c QUOTED", "bash -c -e QUOTED", "sh -c QUOTED", "eval TEXT", "eval QUOTED"),
    *("command TEXT", "exec TEXT", "time TEXT", "trap QUOTED EXIT", "trap -- QUOTED 0"),
    *("c2 a b | xargs -n1 TEXT", "echo a b | xargs -I{} TEXT {}", "find . -maxdepth 0 -exec TEXT {} \\;"),
    *("timeout 5 env bash -c QUOTED", "builtin eval QUOTED", "stdbuf -oL TEXT", "set -e; TEXT"),
)
_STATEMENTS: tuple[Callable[[Lines, int], str], ...] = (
    lambda g, d: g.simple(d),
    lambda g, d: f"({g.list(d)})",
    lambda g, d: f"{{ {g.list(d)}; }}",
    lambda g, d: f"if {g.list(d)}; then {g.list(d)}; else {g.list(d)}; fi",
    lambda g, d: f"if {g.list(d)}\nthen {g.list(d)}\nelif {g.simple(d)}\nthen {g.list(d)}\nfi",
    lambda g, d: f"for x in {g.word(d)} b; do {g.list(d)}; done",
    lambda g, d: f"for x; do {g.list(d)}; done; {g.simple(d)}",
    lambda g, d: f"case {g.word(d)} in a|b) {g.list(d)};; *) {g.list(d)};; esac",
    lambda g, d: f"case {g.word(d)} in (a) {g.list(d)};& b) {g.list(d)};;& *) {g.list(d)}; esac",
    lambda g, d: f"f() {{ {g.list(d)}; }}; f {g.word(d)}",
    lambda g, d: f"function git {{ {g.list(d)}; }}; git {g.word(d)}",
    lambda g, d: f"c1() ( {g.list(d)} )\nc1",
    lambda g, d: f"! {g.simple(d)}",
    lambda g, d: f"[[ {g.word(d)} {g.random.choice(('==', '!=', '=~'))} {g.word(d)} ]] && {g.simple(d)}",
    lambda g, d: f"[ {g.word(d)} = {g.word(d)} ] || {g.simple(d)}",
    lambda g, d: f"[ -n {g.word(d)} -a {g.word(d)} ] || {g.simple(d)}",
    lambda g, d: (
        f"{g.simple(d)} <<E{g.random.choice(('', ' | c2', ' && c3 z', ' >f', ' -n'))}\nh $(rm q)\nE\n"
    ),
    lambda g, d: f"{g.simple(d)} <<'E'\n$(rm q) {g.word(d)}\nE\n",
    lambda g, d: f"{g.simple(d)} <<-E\n\t{g.word(d)}\n\t\tE\n{g.simple(d)}",
    lambda g, d: f"{g.simple(d)} <<E <<'F'\n{g.word(d)}\nE\n$(rm q)\nF\n",
    lambda g, d: f"while {g.simple(d)}; do {g.list(d)}; break; done",
    lambda g, d: f"until {g.simple(d)}; do {g.list(d)}; break; done",
    lambda g, d: f"x={g.word(d)}; {g.simple(d)}",
    lambda g, d: f"i='a[$(rm s)]'; x={g.word(d)}; {g.simple(d)}",
    lambda g, d: f"a=({g.word(d)} {g.word(d)}); {g.simple(d)}",
    lambda g, d: f"declare x={g.word(d)}; {g.simple(d)}",
    lambda g, d: f"set -- {g.word(d)} {g.word(d)}; {g.simple(d)}",
    lambda g, d: f"{g.simple(d)} # {g.word(0)}",
    lambda g, d: f"(( 1 {g.random.choice('+-<')} 2 )) && {g.simple(d)}",
    lambda g, d: f"{{ {g.list(d)}\n}} >f 2>&1",
    lambda g, d: f"{g.simple(d)} &\n{g.simple(d)}; wait",
)
_EMBEDDINGS: tuple[Callable[[str, Lines], str], ...] = (
    lambda t, g: f"{g.simple(0)}; {t}",
    lambda t, g: f"echo a && {t}",
    lambda t, g: f"! true || {t}",
    lambda t, g: f"echo a | {t}",
    lambda t, g: f"{t} | cat",
    lambda t, g: f"echo a # b\n{t}",
    lambda t, g: f"echo a & {t}",
    lambda t, g: f"({t})",
    lambda t, g: f"{{ {t}; }}",
    lambda t, g: f"{{ {t}\n}}",
    lambda t, g: f"echo $({t})",
    lambda t, g: f'echo "a$({t})b"',
    lambda t, g: f"x=$({t}); echo",
    lambda t, g: f"cat <({t})",
    lambda t, g: f"echo ${{u:-$({t})}}",
    lambda t, g: f"cat <<E\n$({t})\nE",
    lambda t, g: f"cat <<< $({t})",
    lambda t, g: f"[[ -n $({t}) ]]",
    lambda t, g: f"if {t}\nthen :\nfi",
    lambda t, g: f"while {t}\ndo break\ndone",
    lambda t, g: f"for x in 1\ndo {t}\ndone",
    lambda t, g: f"case x in x) {t}\n;; esac",
    lambda t, g: f"f() {{ {t}\n}}; f",
    lambda t, g: f"ls() {{ {t}\n}}; ls",
    lambda t, g: f"eval {quoted(t)}",
    lambda t, g: f"bash -c {quoted(t)}",
    lambda t, g: f"sh -c {quoted(t)}",
    lambda t, g: f"env bash -c {quoted(t)}",
    lambda t, g: f"trap {quoted(t)} EXIT",
    lambda t, g: f'x={quoted(t)}; eval "$x"',
    lambda t, g: f'x={quoted(t)}; bash -c "$x"',
    lambda t, g: f'x={quoted(t)}; bash <<< "$x"',
    lambda t, g: f"bash <<'END'\n{t}\nEND",
    lambda t, g: f"printf '%s\\n' {quoted(t)} | sh",
    lambda t, g: f"printf '%s\\n' {quoted(t)} > s.sh; . ./s.sh",
    lambda t, g: f"shopt -s expand_aliases\nalias al={quoted(t)}\nal",
    lambda t, g: f"BASH_ENV=/dev/null bash -c {quoted(t)}",
    lambda t, g: f"PS4={quoted(f'$({t})')}; set -x; echo",
    lambda t, g: f"declare -i n={quoted(f'a[$({t})]')}",
    lambda t, g: f"test -v {quoted(f'a[$({t})]')}",
    lambda t, g: f"echo a | xargs -I% bash -c {quoted(t)}",
    lambda t, g: f"find . -maxdepth 0 -exec bash -c {quoted(t)} \\;",
    lambda t, g: f"timeout 5 bash -c {quoted(t)}",
    lambda t, g: f"coproc {{ {t}\n}}; wait",
    lambda t, g: f"time {t}",
    lambda t, g: f'echo "${{u:-"$({t})"}}"',
    lambda t, g: f"{t} > f",
    lambda t, g: f"> f {t}" if t.startswith(("rm ", "git ", "npm ", "c3")) else t,
    lambda t, g: f"a=1 {t}" if t.startswith(("rm ", "git ", "npm ", "c3")) else t,
    lambda t, g: f"env -u x {t}" if t.startswith(("rm ", "git ", "npm ", "c3")) else t,
    lambda t, g: f"command {t}" if t.startswith(("rm ", "git ", "npm ", "c3")) else t,
    lambda t, g: f"exec {t}" if t.startswith(("rm ", "git ", "npm ", "c3")) else t,
    lambda t, g: f"{{{','.join(t.split(' '))}}}" if t in DENIED and " " in t else t,
    lambda t, g: f"x={quoted(t)}; $x" if t in DENIED else t,
    lambda t, g: f'set -- {t}; "$@"' if t in DENIED else t,
    lambda t, g: f'a=({t}); "${{a[@]}}"' if t in DENIED else t,
    lambda t, g: f'f() {{ "$@"; }}; f {t}' if t in DENIED else t,
    lambda t, g: f"echo {t.split(' ', 1)[-1]} | xargs {t.split(' ')[0]}" if t in DENIED and " " in t else t,
)
