"""constructs: random uses of what bash evaluates, sets and wraps: conditions, expansions, assignments, wrappers.

Each line ends with commands that `narrow_rules.toml` allows, so a line that is wrongly let through gets run.
The environment holds canaries (`stubs.py`): `c3`, `evil`, `touch`, an option `--evil`, and another folder are proof.
"""

import random
from collections.abc import Callable

from bash_oracle.lines import quoted

ALLOWED = ("git status", "npm test", "ls", "c1 a", "cat /dev/null", "find . -maxdepth 0")
_SUBSCRIPTS = ("1 2", "1|2", "1&2", "a;b", "1<2", "$<w", "$ ", "a[1] 2")
"""What ends a word everywhere else."""
_VALUES = (
    *("$w", '"$w"', "w", "'a[$(c3)]'", '"a[\\$(c3)]"', "a$z", '"a$z"', "1", "x", "$#", '"$x $#"', "${w}"),
    *("-v", "$x", '"$v"', "$v", "$q", "a", "''", '""', "0", "$?", "-n", "x[0]", "'x[$(c3)]'", "$(c1)"),
    *("`c1`", "*", "~", "=", "a=b", "-1", "1+1", "w+1", "a[0]", "!", "(", "${x[0]}", '"$w"x', "'$(c3)'"),
    *('"$(c1)"', "$'a[$(c3)]'", "$'\\u00633'", '$"$(c3)"', '$x"', '"${x', "*'", "abcd%n", "%4n", "{a,b}"),
    "/evil",
)
_NAMES = (
    *("x", "y", "a", "w", "CI", "TERM", "BASHPID", "RANDOM", "SRANDOM", "OPTIND", "OPTERR", "LINENO"),
    *("SECONDS", "PS4", "HISTCMD", "EPOCHSECONDS", "EPOCHREALTIME", "BASH_ARGV0", "FUNCNEST", "HISTSIZE"),
    *("HISTFILESIZE", "TMOUT", "IFS", "MAILCHECK", "MAPFILE", "DIRSTACK", "BASH_CMDS", "BASH_ALIASES"),
    *("POSIXLY_CORRECT", "BASH_COMPAT", "histchars", "BASH_ENV", "ENV", "PROMPT_COMMAND", "SHELLOPTS"),
    *("BASHOPTS", "GLOBIGNORE", "EXECIGNORE", "PPID", "UID", "GROUPS", "COMP_WORDBREAKS", "BASH_SUBSHELL"),
    *("FUNCNAME", "PIPESTATUS", "REPLY", "COPROC", "LC_ALL", "PATH", "HOME"),
)
_UNARY = tuple(f"-{c}" for c in "abcdefghknoprstuvwxzGLNORS")
_BINARY = (
    *("==", "=", "!=", "<", ">", "=~", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", "-a"),
    "-o",
)
_OPERATORS = (
    *(":-", "-", ":=", "=", ":?", "?", ":+", "+", "#", "##", "%", "%%", "/", "//", "/#", "/%", "^", "^^"),
    *(",", ",,", ":", "@Q", "@P", "@E", "@A", "@a", "@K", "@U", "@L", "@k"),
)
_WRAPPERS: dict[str, tuple[str, ...]] = {
    "timeout": (
        *("5", "-k 1 5", "-s KILL 5", "--signal=KILL 5", "--signal KILL 5", "--foreground 5", "-v 5"),
        "-k1 -s9 5",
    ),
    "nice": ("", "-n 5", "-5", "-n5", "--adjustment=5", "--adjustment 5", "--5", "-n"),
    "env": (
        *("", "-i", "-u x", "-C sub", "--chdir=sub", "--chdir sub", "-S", "-vS", "-", "--", "CI=1", "x=1"),
        *("-0", "-iu x"),
    ),
    "xargs": (
        *("", "-0", "-r", "-n1", "-n 1", "-I{}", "-I {}", "-rI{}", "-rI-m", "-i", "-i{}", "--replace"),
        *("--replace={}", "--eof", "--eof=x", "-e", "-ex", "-E x", "-l", "-l1", "-L 1", "--max-lines"),
        *("--max-lines=1", "-P 2", "-P2", "-a /dev/null", "--arg-file=/dev/null", "-d x", "-dx", "-t", "-o"),
        *("-x", "-s 100", "--process-slot-var=x"),
    ),
    "time": ("", "-p", "!", "x=1", "CI=/evil", "-p x=1", "-f x", "--"),
    "\\time": ("", "-p", "CI=/evil", "x=/evil"),
    "'time'": ("", "CI=/evil"),
    "command": ("", "-p", "-v", "-V", "--", "-pv"),
    "exec": ("", "-a x", "-c", "-l", "{x}>f"),
    "nohup": ("", "--"),
    "builtin": ("", "eval", "command"),
    "stdbuf": ("-oL", "-o L", "--output=L"),
    "setsid": ("", "-w", "-f"),
    "bash -c": ("", "-e", "-x", "--"),
    "bash": ("/proc/self/fd/0 <<<", "//dev/stdin <<<", "./../../dev/fd/0 <<<", "-s <<<", "<<<"),
    "eval": ("", "--"),
    "coproc": ("", "x"),
}
_JOINS = ("; ", " && ", " || ", " | ", "\n", " & ", "&&", ";")


class Constructs:
    """`line()` returns a new random line each time."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        pick = self.random.choice
        parts = [pick(_MAKERS)(self) for _ in range(pick((1, 1, 1, 2, 3)))]
        if self.random.random() < 0.8:
            parts.insert(pick((0, len(parts), len(parts))), pick(ALLOWED))
        text = parts[0]
        for part in parts[1:]:
            text += pick(_JOINS) + part
        if self.random.random() < 0.15:
            text = f"{pick(('bash', 'sh', 'dash', 'sh -e', 'bash -u'))} -c {quoted(text)}"
        return self.bent(text) if self.random.random() < 0.2 else text

    def value(self) -> str:
        choice = self.random.random()
        return self.expansion() if choice < 0.1 else self.random.choice(_VALUES)

    def blank(self) -> str:
        return self.random.choice((" ", " ", " ", " ", "", "  ", "\t"))

    def condition(self) -> str:
        opening, closing = self.random.choice((("[[", "]]"), ("[[", "]]"), ("[", "]"), ("test", "")))
        return f"{opening} {self.test(2)}{self.random.choice((' ', ' ', ''))}{closing}".rstrip()

    def test(self, depth: int) -> str:
        r = self.random
        choice = r.random()
        if depth > 0 and choice < 0.15:
            return f"!{self.blank()}{self.test(depth - 1)}"
        if depth > 0 and choice < 0.3:
            return f"({self.blank()}{self.test(depth - 1)}{self.blank()})"
        if depth > 0 and choice < 0.45:
            joint = r.choice(("&&", "||", "-a", "-o"))
            return f"{self.test(depth - 1)}{self.blank()}{joint}{self.blank()}{self.test(depth - 1)}"
        if choice < 0.7:
            return f"{r.choice(_UNARY)}{self.blank()}{self.value()}"
        if choice < 0.75:
            return self.value()
        return f"{self.value()}{self.blank()}{r.choice(_BINARY)}{self.blank()}{self.value()}"

    def expansion(self) -> str:
        r = self.random
        name = r.choice(
            ("x", "w", "v", "q", "a", "@", "1", "x[0]", "a[@]", f"x[{r.choice(_VALUES)}]", r.choice(_NAMES))
        )
        name = r.choice(("", "", "", "#", "!")) + name
        rest = r.choice(_OPERATORS) + r.choice(_VALUES) if r.random() < 0.8 else ""
        text = f"${{{name}{rest}{r.choice(('', '', ':' + r.choice(_VALUES)))}}}"
        return r.choice((text, f'"{text}"'))

    def expanded(self) -> str:
        inner = self.value()
        place = self.random.choice(
            (
                *("c1 {}", ": {}", "echo {}", "ls {}", "npm test {}", "git status {}", "{} a", "npm {}"),
                *("git {}", "c1 <<<{}"),
            )
        )
        forms = (self.expansion(), f"$(({inner}))", f"$[{inner}]", f"$(( x = {inner} ))", f"{inner}")
        return place.format(self.random.choice(forms))

    def arithmetic(self) -> str:
        inner = self.value()
        form = self.random.choice(
            (
                *("(({}))", "(( {} ))", "let {}", "for ((i={};i<1;i++)); do ls; done", "((x={}))"),
                *("shift {}", "return {}"),
            )
        )
        return form.format(inner)

    def assignment(self) -> str:
        r = self.random
        name = r.choice(_NAMES)
        if r.random() < 0.2:
            name += f"[{r.choice((*_VALUES, *_SUBSCRIPTS))}]"
        value = f"({self.value()} {self.value()})" if r.random() < 0.15 else self.value()
        pair = f"{name}{r.choice(('=', '=', '=', '+='))}{value}"
        form = r.choice(
            (
                *("{p}", "{p}", "{p}", "{p} {c}", "{p} {c}", "declare {p}", "declare -i {p}"),
                *("declare -n {p}", "env {p} {c}", "declare -a {p}", "export {p}", "readonly {p}"),
                *("typeset {p}", "f() {{ local {p}; }}; f", "read {n} <<<{v}", "read -r {v} <<<1"),
                *("read {v}", "printf -v {n} {v}", "printf -v {v} x", "printf {v}", "printf {v} {n}; {c}"),
                *("printf abcd%n {n}; {c}", "printf 'a%3sd%ln' x {n}; {c}", "export {n}{v}; {c}"),
                *("export {n}={v}; {c}", "mapfile {n} <<<{v}", "for {n} in {v}; do {c}; done"),
                *("getopts a {n} -a", "getopts a {v} -a", "unset {n}", "unset {v}", "{p}; {p}"),
                *("select {n} in {v}; do {c}; break; done <<<1", "wait -n -p {n}", "wait {v}", "exit {v}"),
                *("{p} {p} {c}", "set -- {v}; {c}", "set {v}", "export {v}", "declare {v}", "declare -p {v}"),
                *("shopt -s {v}", "hash -p {v} ls", "x={v}; (( x ))", "x={v}; [[ x -eq 0 ]]"),
                *("x={v}; {c} $x", "x={v}; read $x", "x={v}; ${{!x}}", "x={v}; $x"),
            )
        )
        return form.format(p=pair, n=name, v=self.value(), c=r.choice(ALLOWED))

    def wrapper(self) -> str:
        r = self.random
        name = r.choice([*_WRAPPERS])
        command = r.choice(
            (*ALLOWED, "c3", "touch f", "CI=/evil ls", "x+=/evil; ls", "bash -c 'ls {}'", "x=/evil ls")
        )
        options = r.choices(_WRAPPERS[name], k=r.choice((1, 1, 1, 2)))
        if name in ("bash -c", "bash", "eval") and r.random() < 0.8:
            command = quoted(command)
        text = " ".join(w for w in (name, *options, command) if w)
        if name == "xargs":
            text = (
                r.choice(("c1", "echo touch f", "printf c3", "echo -m", "find . -maxdepth 0")) + " | " + text
            )
        return text

    def elsewhere(self) -> str:
        r = self.random
        form = r.choice(
            (
                *("cd sub && {}", "cd sub; {}", "(cd sub; {})", "pushd sub; {}", "env -C sub {}"),
                *("cd ./sub/ && {}", "cd s* && {}", "{{ cd sub; }}; {}", "! cd sub || {}"),
                *("command cd sub; {}", "eval cd sub; {}", "builtin cd sub; {}", "x=sub; cd $x; {}"),
                *('cd "su"b; {}', "cd -- sub; {}", "cd -P sub; {}", "if cd sub; then {}; fi"),
                "cd sub/. && {}",
            )
        )
        return form.format(r.choice(ALLOWED))

    def document(self) -> str:
        """`$(cat <<'E' …)`: a text of the line, if the body doesn't end early."""
        r = self.random
        pieces = ("E", "E)", "E ", ")", "(", '"', "'", "\\", "#", ";", "c3", "don't", *ALLOWED, *_VALUES)
        body = "".join(r.choice(pieces) + r.choice(("\n", " ", "")) for _ in range(r.randint(0, 6)))
        opening = r.choice(
            ("cat <<'E'",) * 4 + ("cat <<E", "cat -<<'E'", "cat <<'E' x", "cat <<-'E'", "c1 <<'E'")
        )
        place = r.choice(('c1 "{}"', 'git status "a{}b"', "npm test {}", '"{}"', 'echo "{}" && {c}'))
        text = (
            f"$({opening}\n{body}{r.choice((chr(10), chr(10), ''))}E{r.choice((chr(10), chr(10), '', ' '))})"
        )
        return place.replace("{c}", r.choice(ALLOWED)).replace("{}", text)

    def bent(self, text: str) -> str:
        at = self.random.randint(0, len(text))
        piece = self.random.choice(
            (" ", "\n", "'", '"', "\\", "$", "`", ";", "&", "|", "(", ")", "!", "=", "#", "{", "}", "<", ">")
        )
        return text[:at] + piece + text[at + self.random.choice((0, 0, 1)) :]


_MAKERS: tuple[Callable[[Constructs], str], ...] = (
    Constructs.condition,
    Constructs.condition,
    Constructs.expanded,
    Constructs.expanded,
    Constructs.assignment,
    Constructs.assignment,
    Constructs.wrapper,
    Constructs.wrapper,
    Constructs.arithmetic,
    Constructs.elsewhere,
    Constructs.document,
)
