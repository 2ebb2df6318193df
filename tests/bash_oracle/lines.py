"""lines: random lines of bash: valid ones from a small grammar, then mutated, with denied commands hidden in them."""

import random
import re

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
            forms = _EMBEDDINGS
            forms += _OF_A_COMMAND if text.startswith(("rm ", "git ", "npm ", "c3")) else ()
            forms += _OF_A_DENIED if text in DENIED and " " in text else ()
            program, _, rest = text.partition(" ")
            parts = {"T": text, "Q": quoted(text), "B": quoted(f"$({text})"), "A": quoted(f"a[$({text})]")}
            parts |= {"C": text.replace(" ", ","), "P": program, "R": rest}
            text = self.filled(self.random.choice(forms), 0, parts)
        return text

    def filled(self, form: str, depth: int, parts: dict[str, str]) -> str:
        """The form with a part in the place of each letter that stands alone."""
        more = {"L": self.list, "S": self.simple, "W": self.word}
        return re.sub(r"\b[LSWTQBACPR]\b", lambda m: parts.get(m[0]) or more[m[0]](depth), form)

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
        return self.filled(self.random.choice(_STATEMENTS), depth - 1, {})

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
_STATEMENTS = (
    *("S", "(L)", "{ L; }", "if L; then L; else L; fi", "if L\nthen L\nelif S\nthen L\nfi", "! S", "x=W; S"),
    *("for x in W b; do L; done", "for x; do L; done; S", "while S; do L; break; done"),
    *("until S; do L; break; done", "case W in a|b) L;; *) L;; esac", "f() { L; }; f W", "c1() ( L )\nc1"),
    *("case W in (a) L;& b) L;;& *) L; esac", "function git { L; }; git W", "[[ W == W ]] && S"),
    *("[[ W != W ]] && S", "[[ W =~ W ]] && S", "[ W = W ] || S", "[ -n W -a W ] || S", "a=(W W); S"),
    *("S <<E\nh $(rm q)\nE\n", "S <<E | c2\nh $(rm q)\nE\n", "S <<E && c3 z\nh $(rm q)\nE\n"),
    *("S <<E >f\nh $(rm q)\nE\n", "S <<E -n\nh $(rm q)\nE\n", "S <<'E'\n$(rm q) W\nE\n"),
    *("S <<-E\n\tW\n\t\tE\nS", "S <<E <<'F'\nW\nE\n$(rm q)\nF\n", "i='a[$(rm s)]'; x=W; S"),
    *("declare x=W; S", "set -- W W; S", "S # W", "(( 1 + 2 )) && S", "(( 1 - 2 )) && S", "(( 1 < 2 )) && S"),
    *("{ L\n} >f 2>&1", "S &\nS; wait"),
)
"""L: a list; S: a simple command; W: a word."""
_EMBEDDINGS = (
    *("S; T", "echo a && T", "! true || T", "echo a | T", "T | cat", "echo a # b\nT", "echo a & T", "(T)"),
    *("{ T; }", "{ T\n}", "echo $(T)", 'echo "a$(T)b"', "x=$(T); echo", "cat <(T)", "echo ${u:-$(T)}"),
    *("cat <<E\n$(T)\nE", "cat <<< $(T)", "[[ -n $(T) ]]", "if T\nthen :\nfi", "while T\ndo break\ndone"),
    *("for x in 1\ndo T\ndone", "case x in x) T\n;; esac", "f() { T\n}; f", "ls() { T\n}; ls", "eval Q"),
    *("bash -c Q", "sh -c Q", "env bash -c Q", "trap Q EXIT", 'x=Q; eval "$x"', 'x=Q; bash -c "$x"'),
    *('x=Q; bash <<< "$x"', "bash <<'END'\nT\nEND", "printf '%s\\n' Q | sh"),
    *("printf '%s\\n' Q > s.sh; . ./s.sh", "shopt -s expand_aliases\nalias al=Q\nal", "time T", "T > f"),
    *("BASH_ENV=/dev/null bash -c Q", "PS4=B; set -x; echo", "declare -i n=A", "test -v A"),
    *("echo a | xargs -I% bash -c Q", "find . -maxdepth 0 -exec bash -c Q \\;", "timeout 5 bash -c Q"),
    *("coproc { T\n}; wait", 'echo "${u:-"$(T)"}"'),
)
"""T: the command; Q: it, quoted; B: quoted in `$(…)`; A: quoted in a subscript."""
_OF_A_COMMAND = ("> f T", "a=1 T", "env -u x T", "command T", "exec T")
_OF_A_DENIED = (
    *("{C}", "x=Q; $x", 'set -- T; "$@"', 'a=(T); "${a[@]}"', 'f() { "$@"; }; f T', "echo R | xargs P"),
)
"""C: its words with commas between them; P and R: the program, and the rest."""
