"""commands: inspects one simple command: whether it is opaque, what it runs in turn, whether it is dangerous.

Only a few wrappers are understood, in their plainest form. Anything else that runs other commands is opaque; words that
may be commands are recorded all the same, so that rules against them still match.
"""

import posixpath
import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from interlock.services.shell.danger import find_danger
from interlock.services.shell.model import (
    HARMLESS_VARIABLES,
    LineFindings,
    LineTooComplex,
    ShellCommand,
    Word,
    assignment_label,
    assignment_problem,
    describe_variable_danger,
    program_name,
    strip_version,
    to_name_set,
)

_Words = Sequence[Word]
RESERVED = to_name_set(
    "if then else elif fi do done case esac while until for select function { } ! [[ ]] (( coproc"
)
"""Bash keywords: if the grammar takes one for a program, parsing went wrong."""
LANGUAGES = to_name_set(
    "python python3 python2 pypy pypy3 perl ruby node nodejs deno bun php lua luajit rscript tclsh wish julia r octave"
    " elixir iex erl escript groovy scala kotlin jshell guile racket swipl sbcl clisp clojure raku ocaml ghci osascript"
)
"""Interpreters of languages other than the shell's."""
_RUN_SOME = to_name_set("sqlite3 psql mysql mariadb gnuplot m4 dc ftp lftp sftp telnet mutt")
"""They have commands of their own, one of which runs programs: `sqlite3 x '.shell ls'`."""
_OPAQUE = {
    name: why
    for programs, why in (
        (". source", "runs a file"),
        ("alias unalias enable hash shopt", "changes what names mean"),
        ("bind complete compgen compopt fc let declare typeset local", "may evaluate its arguments"),
        ("readonly unset getopts mapfile readarray jobs", "may evaluate its arguments"),
        ("parallel script flock strace ltrace chroot unshare nsenter systemd-run", "runs another command"),
        ("at batch pkexec unbuffer setarch chrt taskset numactl firejail proot", "runs another command"),
        ("fakeroot expect screen tmux run-parts entr rlwrap start-stop-daemon", "runs another command"),
        ("dbus-run-session busybox toybox catchsegv setpriv gosu ssh-agent socat", "runs another command"),
    )
    for name in programs.split()
}
"""Not inspected at all."""
_RUNS = to_name_set(
    "eval trap exec builtin setsid ionice stdbuf watch ssh su runuser sudo doas zsh ksh mksh fish csh tcsh pwsh"
    " rbash ash yash posh nu xonsh elvish osh ysh oksh lksh pdksh sash powershell"
)
"""They run their arguments in ways that aren't followed; possible commands among these are recorded."""
SHELLS = to_name_set("bash sh dash zsh ksh mksh fish csh tcsh rbash ash yash posh nu xonsh elvish osh ysh")
"""They run the line behind their `-c`."""
_DEEPEST = 20
"""For `env env env …`."""
_UNSEEN = "it runs something that is only known when it runs"
_UNKNOWN = Word("…", False, "", True, True, depends_on_environment=True)
"""Arguments known only at run time."""


@dataclass(frozen=True, slots=True)
class _InnerCommands:
    """What a command that runs others would run."""

    runs: tuple[_Words, ...] = ()
    script: str | None = None
    """A line of bash."""
    assigns: tuple[str, ...] = ()
    opaque: str | None = None
    needs_no_rule: bool = False
    """It does nothing else."""


_NOTHING = _InnerCommands()
_HIDDEN = _InnerCommands(opaque=_UNSEEN)


def canonical_program_name(text: str) -> str:
    """Return a program's name as the tables here have it: `python` for `/usr/bin/python3.11`."""
    program = program_name(text)
    bare = strip_version(program)
    return bare if program not in _KNOWN and bare in _KNOWN else program


def add_command_with_inner_commands(
    found: LineFindings, words: _Words, text: str, assigns: Sequence[str], wrapper_depth: int = 0
) -> None:
    """Add a simple command, and what it runs, to the findings. `wrapper_depth`: number of wrappers around it."""
    if wrapper_depth > _DEEPEST:
        raise LineTooComplex("wrappers in wrappers, too deep")
    if not words:
        return
    name = words[0]
    if name.text in _DECLARES:
        found.values += [(n, v) for n, v in map(_split_declaration, words[1:]) if n]
    opaque: str | None = None
    if not name.literal or name.text == "" or (wrapper_depth > 0 and name.text.startswith("-")):
        opaque = "what it runs is only known when it runs"
    elif name.text in RESERVED:
        opaque = f"{name.text!r} where a command should be"
    elif program_name(name.text) in _OPAQUE:
        opaque = f"{program_name(name.text)!r} {_OPAQUE[program_name(name.text)]}"
    if opaque is not None:
        found.add_command(
            ShellCommand(
                text, tuple(words), tuple(assigns), opaque=opaque, only_sources_file=_is_sourcing_file(words)
            )
        )
        return
    if name.text == "export":
        found.assigns += [w.known_start.partition("=")[0] for w in words[1:]]
    inner = _find_inner_commands(words)
    found.add_command(_to_shell_command(words, text, assigns, inner))
    if inner.opaque is not None and canonical_program_name(name.text) in _GUESSED:
        _add_candidate_inner_commands(found, words)
    if inner.script is not None:
        found.parse_inner_line(inner.script)
    for run in inner.runs:
        add_command_with_inner_commands(
            found, run, " ".join(w.text for w in run), [*assigns, *inner.assigns], wrapper_depth + 1
        )


_DECLARES = to_name_set("export declare typeset local readonly")


def _split_declaration(word: Word) -> tuple[str, Word]:
    """Return the name and the value of `NAME=value`; no name: it is something else."""
    name, sign, value = word.text.partition("=")
    return (
        name.strip("\"'") if sign else "",
        replace(word, text=value, known_start=value if word.literal else ""),
    )


def _is_sourcing_file(words: _Words) -> bool:
    """Return whether it is `source FILE`. Without a slash bash looks among the programs first."""
    known = len(words) == 2 and words[0].text in (".", "source") and words[1].literal
    return (
        known and "/" in words[1].text and words[1].text[0] not in "-+" and not _is_device_path(words[1].text)
    )


def _to_shell_command(
    words: _Words, text: str, assigns: Sequence[str], inner: _InnerCommands
) -> ShellCommand:
    program = canonical_program_name(words[0].text)
    set_by_it = (clause for a in (*assigns, *inner.assigns) if (clause := describe_variable_danger(a)))
    known = (
        inner.needs_no_rule and words[0].text in _HARMLESS
    )  # whatever `exit $?` and `[ "$x" = y ]` stand for
    danger, sets = None if known else find_danger(program, words), next(set_by_it, None)
    harmless = inner.needs_no_rule and words[0].text.rpartition("/")[0] in ("", "/bin", "/usr/bin")
    return ShellCommand(
        text,
        tuple(words),
        tuple(assigns),
        danger=danger,
        sets=sets,
        opaque=inner.opaque,
        code=bool(danger or sets or inner.opaque) or program in LANGUAGES | _RUN_SOME,
        needs_no_rule=harmless and not (danger or sets or inner.opaque),
    )


def _add_candidate_inner_commands(found: LineFindings, words: _Words) -> None:
    """Record possible commands in an opaque one: they need no permission, but a rule may refuse them."""
    program = canonical_program_name(words[0].text)
    if program in ("eval", "ssh", "watch"):
        found.parse_inner_line(" ".join(w.text for w in words[1:] if not w.text.startswith("--")))
    for at in range(1, min(len(words), _DEEPEST)):
        rest = words[at:]
        found.add_command(ShellCommand(" ".join(w.text for w in rest), tuple(rest), needs_no_rule=True))
        if rest[0].literal and program != "env" and len(rest[0].text.split()) > 1:
            found.parse_inner_line(rest[0].text)


def _find_inner_commands(words: _Words) -> _InnerCommands:
    program = canonical_program_name(words[0].text)
    if program in _RUNS:
        return _HIDDEN
    if program in LANGUAGES or program in _RUNNERS:
        return _InnerCommands(opaque="it runs what it reads") if is_executing_stdin(words) else _NOTHING
    if program in _WRAPPERS:
        return _WRAPPERS[program](words)
    if words[0].text in _HARMLESS:
        return _InnerCommands(needs_no_rule=True) if _HARMLESS[words[0].text](words[1:]) else _HIDDEN
    return _HIDDEN if program in _PLAIN and not _PLAIN[program](words[1:]) else _NOTHING


_RUNNERS = to_name_set(
    "make gmake just rake task go-task ninja ant mvn gradle tox nox invoke inv cmake awk gawk mawk tclsh"
)
_IS_INPUT = re.compile(r"-[A-Za-z]*[ftbc]-|--[a-z-]+=-")
"""An option of a runner by which its file is its input."""


def is_executing_stdin(words: _Words) -> bool:
    """Return whether a shell, an interpreter or a runner of targets takes what it runs from its input."""
    program, given = canonical_program_name(words[0].text), words[1:]
    if program in _RUNNERS:
        return any(_IS_INPUT.fullmatch(w.text) or _can_name_stdin(w.text) for w in given) or any(
            w.text == "-" and _IS_INPUT.fullmatch(before.text + "-") for before, w in pairwise(given)
        )
    if program in SHELLS:
        plain = all(w.text.startswith(("-", "+")) and "c" not in w.text for w in given)
        return (
            plain
            or any("s" in w.text for w in given if re.fullmatch(r"-[a-z]+", w.text))
            or _has_stdin_operand(given)
        )
    sources = program in (".", "source")
    return (program in LANGUAGES and not given) or (
        (program in LANGUAGES or sources) and _has_stdin_operand(given)
    )


def _has_stdin_operand(words: _Words) -> bool:
    return any(w.text == "-" or _can_name_stdin(w.text) for w in words)


def _can_name_stdin(text: str) -> bool:
    return (
        _is_device_path(text)
        or "<(" in text
        or any(name in text for name in ("/dev/stdin", "/dev/fd/", "/proc/self"))
    )


# ---- wrappers


@dataclass(frozen=True, slots=True)
class Options:
    """The options that a command takes."""

    flags: str = ""
    values: str = ""
    """Letters that take a value, in the same word or the next."""
    longs: str = ""
    """Without dashes; `name=` takes a value behind the sign, `name:` there or in the next word."""
    numbers: bool = False
    """`-20` is an option."""

    def parse_words(
        self, words: Iterable[Word], *, stop_at_operand: bool = False
    ) -> tuple[Mapping[str, Sequence[str]], list[Word]] | None:
        """Return the options given, each with its values, and the operands; None if an option is unlisted or unknown.
        `stop_at_operand`: options end at the first operand; otherwise the caller checks what operands may stand for.

        `stop_at_operand`: options end at the first operand; otherwise the caller checks what operands may stand for.
        """
        options: dict[str, list[str]] = {}
        operands: list[Word] = []
        rest = iter(words)
        for word in rest:
            if not word.known_start.startswith("-") or word.text == "-":
                if stop_at_operand:
                    return None if word.may_be_option else (options, [word, *rest])
                operands.append(word)
            elif not word.literal:
                return None
            elif word.text == "--":
                operands += rest
            elif (found := self._parse_option_word(word.text)) is None:
                return None
            else:
                letters, value = found
                after = next(rest, None) if value is None else word
                if after is None or not after.literal:
                    return None
                for name in letters:
                    options.setdefault(name, []).append(after.text if value is None else value)
        return options, operands

    def _parse_option_word(self, text: str) -> tuple[Sequence[str], str | None] | None:
        """Return the options in one word, and the value of the last; None if that is the next word."""
        if text.startswith("--"):
            name, sign, value = text[2:].partition("=")
            if name + ":" in self.longs.split():
                return [name], value if sign else None
            return ([name], value) if name + sign in self.longs.split() else None
        if self.numbers and text[1:].isdecimal():
            return (), ""
        for place, letter in enumerate(text[1:], 1):
            if letter in self.values:
                return text[1 : place + 1], text[place + 1 :] or None
            if letter not in self.flags:
                return None
        return text[1:], ""


_PREFIXES: dict[str, tuple[Options, int]] = {
    "nohup": (Options(), 0),
    "nice": (Options(values="n", numbers=True), 0),
    "timeout": (Options("v", "ks", "foreground preserve-status kill-after= signal="), 1),
    "command": (Options(), 0),
    "env": (Options(), 0),
    "xargs": (Options("0rt", "nPL"), 0),
}
"""Wrappers: their options, and the number of operands before the command.

`env` has none here: `-i` and `-u` take away what keeps git from folders that pose as repositories.
"""


def _unwrap_prefix(words: _Words) -> _InnerCommands:
    program = canonical_program_name(words[0].text)
    options, own = _PREFIXES[program]
    read = options.parse_words(words[1:], stop_at_operand=True)
    if program == "command" and len(words) > 1 and words[1].text in ("-v", "-V"):
        return _InnerCommands(needs_no_rule=True)
    if read is None or not all(w.literal for w in read[1][:own]):
        return _HIDDEN
    rest, assigns = read[1][own:], list[str]()
    while program == "env" and rest and rest[0].literal and "=" in rest[0].text:
        name, _, value = rest.pop(0).text.partition("=")
        assigns.append(assignment_label(name, value))
        if assignment_problem(name, value):
            return _HIDDEN
    if not rest:
        return _HIDDEN if program == "xargs" and len(words) > 1 else _NOTHING
    more = (_UNKNOWN,) if program == "xargs" else ()
    return _InnerCommands(runs=((*rest, *more),), assigns=tuple(assigns), needs_no_rule=True)


def _unwrap_time(words: _Words) -> _InnerCommands:
    """Bash's keyword, which parses what follows as a new command: `time ! ls`, `time x=1 ls`."""
    rest = words[2:] if len(words) > 1 and words[1].text == "-p" else words[1:]
    if not rest or not rest[0].literal or "=" in rest[0].text or rest[0].text.startswith(("-", "!")):
        return _HIDDEN
    return _InnerCommands(runs=(rest,), needs_no_rule=True)


_SHELL_OPTION = re.compile(r"-[eulx]*c")
_PORTABLE = re.compile(r"[A-Za-z0-9_ \t\n./:,@%'\"&|;=-]*", re.ASCII)
"""`sh` may be another shell, which reads much of bash differently: `[[ a && rm x ]]`, `ls &>f rm x`, `x+=/y`."""


def _unwrap_shell(words: _Words) -> _InnerCommands:
    """`bash -c LINE`, without further arguments. A script file is an ordinary argument."""
    first = words[1] if len(words) > 1 else _UNKNOWN
    if len(words) == 3 and first.literal and _SHELL_OPTION.fullmatch(first.text) and words[2].literal:
        script = words[2].text
        if canonical_program_name(words[0].text) != "bash" and (
            not _PORTABLE.fullmatch(script) or "|&" in script
        ):
            return _InnerCommands(script=script, opaque="sh may read it otherwise than bash")
        return _InnerCommands(script=script, needs_no_rule=True)
    # A plain name not in the folder is looked up among the programs: `bash npm publish`.
    file = first.literal and not first.text.startswith(("-", "+")) and set(first.text) & set("/.")
    return _NOTHING if file and not _is_device_path(first.text) else _HIDDEN


def _is_device_path(path: str) -> bool:
    """Return whether a path leads into /dev or /proc, where standard input has many names."""
    return posixpath.normpath(path).lstrip("./").startswith(("dev/", "proc/"))


_EXECUTES = to_name_set("-exec -execdir -ok -okdir")


def _unwrap_find(words: _Words) -> _InnerCommands:
    """Handle each `-exec … ;`."""
    if not all(w.literal for w in words):
        return _HIDDEN if any(w.may_be_option or w.text in _EXECUTES for w in words[1:]) else _NOTHING
    runs: list[_Words] = []
    inner: list[Word] | None = None
    for before, word in pairwise(words):
        if inner is None:
            inner = [] if word.text in _EXECUTES else None
        elif word.text == ";" or (word.text == "+" and before.text == "{}"):
            runs.append(inner)
            inner = None
        elif word.text in _EXECUTES:  # the one before may be a value: `-name -exec ( -exec …`
            return _HIDDEN
        else:
            inner.append(_UNKNOWN if "{}" in word.text else word)
    return _HIDDEN if inner is not None else _InnerCommands(runs=tuple(r for r in runs if r))


def _unwrap_git(words: _Words) -> _InnerCommands:
    """Handle aliases given on the line: `git -c alias.x='!CMD' x` runs CMD."""
    if not any("alias." in w.known_start.lower() for w in words):
        return _NOTHING
    at = next((n for n, w in enumerate(words) if w.known_start.lower().startswith("alias.")), 0)
    body = words[at].text.partition("=")[2]
    own = body[1:] if body.startswith("!") else f"git {body}"
    arguments = shlex.join(w.text for w in words[at + 2 :])
    return _InnerCommands(script=f"{own} {arguments}" if body else None, opaque="git is given an alias")


_WRAPPERS: dict[str, Callable[[_Words], _InnerCommands]] = {
    **dict.fromkeys(_PREFIXES, _unwrap_prefix),
    "time": _unwrap_time,
    "find": _unwrap_find,
    "git": _unwrap_git,
    **dict.fromkeys(("bash", "sh", "dash"), _unwrap_shell),
}
_GUESSED = (_RUNS | _WRAPPERS.keys()) - {"time"}
_KNOWN = LANGUAGES | _RUN_SOME | _GUESSED


# ---- builtins

_COUNT = re.compile(r'\d*|"?\$[?#]"?')
_LOWER = re.compile(r"[a-z][a-z0-9]*", re.ASCII)
_FILE_TEST = re.compile(r"-[defhnrswxzL]")
_COMPARES = to_name_set("= == != -eq -ne -lt -le -gt -ge -nt -ot -ef")
_FORMAT = re.compile(r"(?!-)(?:[^%]|%[-+ #0-9.*]*[%sbqcdiouxXeEfFgG])*")
"""Without `%n`, which sets a variable."""
_SET = re.compile(r"(?:-[eux]+|-[eux]*o pipefail)(?: (?:-[eux]+|-[eux]*o pipefail))*")


def _is_plain_test(words: _Words) -> bool:
    """Return whether it is `-f x` or `x = y` only: `[ -v 'a[$(…)]' ]` runs code, and an extra word changes the
    operator."""
    operands = words[1:] if words and words[0].text == "!" else words
    if any(w.may_split for w in operands):
        return False
    if len(operands) == 2:
        return operands[0].literal and _FILE_TEST.fullmatch(operands[0].text) is not None
    return len(operands) == 3 and operands[1].literal and operands[1].text in _COMPARES


def _is_plain_bracket_test(words: _Words) -> bool:
    return bool(words) and words[-1].text == "]" and _is_plain_test(words[:-1])


def _has_only_numbers(words: _Words) -> bool:
    return all(_COUNT.fullmatch(w.text) for w in words)


def _is_plain_read_builtin(words: _Words) -> bool:
    names = words[1:] if words and words[0].text == "-r" else words
    return all(w.literal and _LOWER.fullmatch(w.text) and w.text != "histchars" for w in names)


def _is_plain_export(words: _Words) -> bool:
    return all(not w.may_split and _is_harmless_assignment(w) for w in words)


def _is_harmless_assignment(word: Word) -> bool:
    name, sign, _ = word.known_start.partition("=")
    known = bool(sign) or word.literal
    return known and name in HARMLESS_VARIABLES and not assignment_problem(name, word.text.partition("=")[2])


_HARMLESS: dict[str, Callable[[_Words], bool]] = {
    **dict.fromkeys((":", "true", "false"), lambda _: True),
    **dict.fromkeys(to_name_set("break continue return exit shift wait"), _has_only_numbers),
    "test": _is_plain_test,
    "[": _is_plain_bracket_test,
    "read": _is_plain_read_builtin,
    "set": lambda words: _SET.fullmatch(" ".join(w.text for w in words)) is not None,
}
"""In this form they run nothing and change only the line's own variables: they need no rule."""
_PLAIN: dict[str, Callable[[_Words], bool]] = {
    "export": _is_plain_export,
    "printf": lambda words: bool(words) and words[0].literal and bool(_FORMAT.fullmatch(words[0].text)),
}
"""In this form they evaluate nothing."""
