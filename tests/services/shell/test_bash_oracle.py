"""What bash runs, the parser saw: random lines are run by a real bash whose commands only log their arguments."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from interlock.services.shell import ShellLine, Word, parse

BASH = shutil.which("bash")
SECONDS = float(os.environ.get("ORACLE_SECONDS", "8"))
SEED = int(os.environ.get("ORACLE_SEED", "1"))
"""Fixed, so that a run of the suite says something about the change and not about its luck. To look for more:
ORACLE_SEED=$RANDOM ORACLE_SECONDS=600 pytest tests/services/shell/test_bash_oracle.py"""
STUBS = ("c1", "c2", "c3", "rm", "git", "npm")
REAL = ("env", "nohup", "timeout", "nice", "xargs", "bash", "sh", "find", "cat", "true", "stdbuf", "setsid")
LOGS = """#!/bin/sh
out=$(printf '%s\\037' "${0##*/}" "$@"; printf .)
printf '%s\\036' "${out%.}" >> "$ORACLE_LOG"
"""

pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")


class Lines:
    """Makes lines of bash: right ones by a small grammar, then bent."""

    PIECES = (
        *(
            "c1",
            "rm",
            "git",
            " ",
            " ",
            "  ",
            "\n",
            ";",
            "&&",
            "||",
            "|",
            "&",
            "|&",
            "(",
            ")",
            "{ ",
            "; }",
            "!",
        ),
        *('"', "'", "\\", "`", "$(", "$((", "))", "((", "[[ ", " ]]", "[ ", " ]", "${x:-", "}", "$x", '"$x"'),
        *(
            "$'",
            "\\x72",
            "\\\n",
            "#",
            " #",
            "<<E\n",
            "\nE\n",
            "<<'E'\n",
            "<<-E\n",
            "<<<",
            ">f",
            "<f",
            "2>&1",
            ">&2",
        ),
        *(
            "if ",
            "; then ",
            "; fi",
            "for x in ",
            "; do ",
            "; done",
            "while ",
            "case x in ",
            "x) ",
            ";; esac",
            "f() ",
        ),
        *(
            "function f ",
            "eval ",
            "bash -c ",
            "env ",
            "a=",
            "a=1 ",
            "xargs ",
            "time ",
            "exec ",
            "command ",
            "trap ",
        ),
        *(
            "{c1,c2}",
            "*",
            "?",
            "[a]",
            "~",
            "=",
            "-c",
            "--",
            "-",
            "é",
            "\t",
            "$",
            "%",
            "@",
            "1",
            "else ",
            "\r",
            "\x0b",
        ),
        *(
            "coproc ",
            "select x in ",
            "until ",
            "$[",
            "]",
            "<(",
            ">(",
            "${x",
            "!$",
            "&>",
            "<>",
            ";;",
            ";&",
            "$@",
            "=(",
        ),
        *(
            "EXIT",
            "E",
            "'E'",
            "[[",
            "]]",
            "declare ",
            "export ",
            "local ",
            "builtin ",
            ". ",
            "source ",
            "alias rm=c1",
        ),
    )

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def line(self) -> str:
        choice = self.random.random()
        if choice < 0.1:
            return "".join(self.random.choices(self.PIECES, k=self.random.randint(1, 12)))
        text = self.list(3)
        return self.bent(text) if choice < 0.65 else text

    def bent(self, text: str) -> str:
        for _ in range(self.random.randint(1, 3)):
            at = self.random.randint(0, len(text))
            cut = at + self.random.choice((0, 0, 0, 1, 2))
            text = text[:at] + self.random.choice(self.PIECES) + text[cut:]
        return text

    def list(self, depth: int) -> str:
        parts = [self.statement(depth) for _ in range(self.random.choice((1, 1, 2, 3)))]
        text = parts[0]
        for part in parts[1:]:
            text += (
                self.random.choice((" && ", " || ", "; ", " | ", "\n", "; ", " |& ", "&&", ";", "|")) + part
            )
        return text

    def statement(self, depth: int) -> str:
        if depth <= 0:
            return self.simple(0)
        inner, d = self.random.choice(self._statements()), depth - 1
        return inner(d)

    def _statements(self):
        r = self.random
        return (
            *[self.simple] * 8,
            lambda d: f"({self.list(d)})",
            lambda d: f"{{ {self.list(d)}; }}",
            lambda d: f"if {self.list(d)}; then {self.list(d)}; else {self.list(d)}; fi",
            lambda d: f"for x in {self.word(d)} b; do {self.list(d)}; done",
            lambda d: f"case {self.word(d)} in a|b) {self.list(d)};; *) {self.list(d)};; esac",
            lambda d: f"f() {{ {self.list(d)}; }}; f {self.word(d)}",
            lambda d: f"! {self.simple(d)}",
            lambda d: (
                f"[[ {self.word(d)} {r.choice(('==', '!=', '=~'))} {self.word(d)} ]] && {self.simple(d)}"
            ),
            lambda d: f"[ {self.word(d)} = {self.word(d)} ] || {self.simple(d)}",
            lambda d: (
                f"{self.simple(d)} <<E{r.choice(('', ' | c2', ' && c3 z', ' >f', ' -n'))}\nh $(rm q)\nE\n"
            ),
            lambda d: f"{self.simple(d)} <<'E'\n$(rm q) {self.word(d)}\nE\n",
            lambda d: f"while {self.simple(d)}; do {self.list(d)}; break; done",
            lambda d: f"x={self.word(d)}; {self.simple(d)}",
            lambda d: f"{self.simple(d)} # {self.word(0)}",
            lambda d: f"(( 1 {r.choice('+-<')} 2 )) && {self.simple(d)}",
        )

    def simple(self, depth: int) -> str:
        r = self.random
        program = r.choice((*STUBS, *STUBS, "\\rm", '"rm"', "r''m", "$'\\x72m'", "r\\\nm", "'c1'"))
        words = [program, *(self.word(depth) for _ in range(r.choice((0, 1, 1, 2, 3))))]
        text = r.choice((" ", " ", " ", "  ", "\t", " \\\n")).join(words)
        wrap = r.random()
        if wrap < 0.25 and depth > 0:
            text = self.wrapped(text)
        if r.random() < 0.15:
            text += r.choice((" >f", " 2>&1", " <f", " >f -x", " 2>/dev/null", " &>f", " <<<a", " >&2 b"))
        if r.random() < 0.1:
            text = r.choice(("a=1 ", "a=$(c3) ", ">f ", "a=1 b=2 ", "<f ")) + text
        return text

    def wrapped(self, text: str) -> str:
        quoted = "'" + text.replace("'", "'\\''") + "'"
        return self.random.choice(
            (
                f"env {text}",
                f'env -i PATH="$PATH" ORACLE_LOG="$ORACLE_LOG" {text}',
                f"env -u x A=1 {text}",
                f"nohup {text}",
                f"timeout -k 1 5 {text}",
                f"nice -n 5 {text}",
                f"bash -c {quoted}",
                f"bash -ec {quoted} x y",
                f"bash -c -e {quoted}",
                f"sh -c {quoted}",
                f"eval {text}",
                f"eval {quoted}",
                f"command {text}",
                f"exec {text}",
                f"time {text}",
                f"trap {quoted} EXIT",
                f"c3 a b | xargs -n1 {text}",
                f"echo a b | xargs -I{{}} {text} {{}}",
                f"find . -maxdepth 0 -exec {text} {{}} \\;",
                f"timeout 5 env bash -c {quoted}",
                f"builtin eval {quoted}",
                f"stdbuf -oL {text}",
            )
        )

    def word(self, depth: int) -> str:
        r = self.random
        plain = (
            "a",
            "-rf",
            "b/c",
            "'a b'",
            '"a b"',
            "a\\ b",
            "$x",
            '"$x"',
            "{a,b}",
            "*",
            "~",
            "a#b",
            "''",
            '"a\'b"',
        )
        more = (
            "-m",
            "x=1",
            "'$(rm s)'",
            '"\\$(rm s)"',
            "a'b'\"c\"",
            "$'a\\tb'",
            "${x:-d}",
            "${#x}",
            "$((1+2))",
            "[a]",
        )
        if depth <= 0 or r.random() < 0.7:
            return r.choice(
                (*plain, *more, "!", "é", "\\;", "{}", "-", "--", "a=b", "1", "%", "${x/a/b}", '"#"', "\\#")
            )
        return r.choice(
            (
                f"$({self.list(depth - 1)})",
                f'"$({self.list(depth - 1)})"',
                f'"a $({self.list(depth - 1)}) b"',
                "`" + self.simple(0).replace("\\", "").replace("`", "") + "`",
                f"<({self.simple(depth - 1)})",
                f"${{x:-$({self.simple(depth - 1)})}}",
                f"$((1 + $({self.simple(0)}) ))",
            )
        )


def shown(words: Sequence[Word], argv: Sequence[str]) -> bool:
    """Whether the words may have become this argv."""
    if not words:
        return not argv
    first = words[0]
    if first.splits:
        return any(shown(words[1:], argv[n:]) for n in range(len(argv) + 1))
    if not argv or (first.literal and first.text != argv[0]) or not argv[0].startswith(_lead(first)):
        return False
    return shown(words[1:], argv[1:])


def _lead(word: Word) -> str:
    return "" if word.lead.startswith("~") else word.lead


def seen(line: ShellLine, argv: Sequence[str]) -> bool:
    return any(c.words and c.words[0].literal and shown(c.words, argv) for c in line.commands)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    for name in STUBS:
        (folder / name).write_text(LOGS)
        (folder / name).chmod(0o755)
    for name in REAL:
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return folder


def ran(line: str, stubs: Path, folder: Path, number: int) -> list[list[str]]:
    """The argv of every stub that bash ran."""
    log = folder / f"log{number}"  # one each: `timeout` lets a command outlive its line
    (folder / "cwd").mkdir(parents=True, exist_ok=True)
    env = {"PATH": str(stubs), "ORACLE_LOG": str(log), "HOME": str(folder), "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        [str(BASH), "-c", line],
        cwd=folder / "cwd",
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        process.wait(3)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if not log.exists():
        return []
    text = log.read_bytes().decode(errors="surrogateescape")
    return [record.split("\x1f")[:-1] for record in text.split("\x1e")[:-1]]


def check(seed: int, stubs: Path, folder: Path, until: float) -> tuple[int, int, list[str]]:
    """(lines, commands that ran, what the parser missed)."""
    lines, count, ran_count, missed = Lines(seed), 0, 0, list[str]()
    while time.monotonic() < until:
        line = lines.line()
        if "\0" in line or parse(line).opaque is not None:
            continue
        count += 1
        parsed = parse(line)
        for argv in ran(line, stubs, folder, count):
            ran_count += 1
            if not seen(parsed, argv):
                missed.append(f"{line!r} ran {argv}, parsed {[c.argv for c in parsed.commands]}")
    return count, ran_count, missed


def test_every_command_that_bash_runs_was_seen_or_the_line_is_opaque(stubs: Path, tmp_path: Path) -> None:
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(check, SEED + n, stubs, tmp_path / str(n), until) for n in range(2)]
        results = [job.result() for job in jobs]
    count, ran_count = sum(r[0] for r in results), sum(r[1] for r in results)
    missed = [m for r in results for m in r[2]]
    print(f"seed {SEED}: {count} lines that aren't opaque, {ran_count} commands ran")
    assert not missed, f"seed {SEED}\n" + "\n".join(missed[:5])
    assert ran_count > 50, "the oracle ran nearly nothing"
