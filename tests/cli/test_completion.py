"""TAB completes what may follow, in real shells; the flags are those of the real parsers."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import put, tree
from patience import HANG_S
from session.terminal import Terminal

from interlock.cli.commands import completion
from interlock.cli.commands.completion import print_completions
from interlock.tools.table import TOOLS

BIN = Path(sys.executable).parent
Asked = Callable[..., list[str]]


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str]) -> Asked:
    def ask(*words: str) -> list[str]:
        assert print_completions(["zsh", *words]) == 0
        return capsys.readouterr().out.splitlines()

    return ask


def values(lines: list[str]) -> list[str]:
    assert lines[0] == "words\t"
    return [line.partition("\t")[0] for line in lines[1:]]


def test_commands_and_what_they_do(asked: Asked) -> None:
    assert asked("appr") == ["words\t", "approvals\tList open requests, across all runs"]
    assert values(asked("help", "di")) == ["diff", "diagram", "diagrams"]
    assert values(asked("-m", "pro", "undo", "--c")) == ["--call"]
    assert values(asked("what is th")) == []


def test_flags_are_those_of_the_parser(asked: Asked) -> None:
    from interlock.cli.catalog import build_parser

    shown = values(asked("--"))
    assert set(shown) == {name for name, _ in build_parser("prompt").visible_flags_with_help()}
    assert "--approval-mode" in shown and "--full-auto" not in shown
    assert values(asked("--approval-mode", "")) == ["default", "auto_edit", "plan", "yolo"]
    assert values(asked("-o", "s")) == ["stream-json"]
    assert values(asked("--output-format=s")) == ["--output-format=stream-json"]
    assert values(asked("export", "latest", "--format", "")) == ["html", "md", "json", "patch"]
    assert values(asked("memory", "")) == ["show", "add", "refresh"]


def test_files_are_left_to_the_shell_with_what_is_no_part_of_their_path(asked: Asked) -> None:
    assert asked("--policy", "a/b") == ["files\t"]
    assert asked("--policy=a/b") == ["files\t--policy="]
    assert asked("run", "main", "--input", "@a") == ["files\t@"]
    assert asked("run", "main", "--input", "") == ["words\t"]
    assert asked("-m", "script:re") == ["files\tscript:"]
    assert asked("-C", "") == asked("trust", "") == asked("diagrams", "") == ["dirs\t"]


def test_names_of_workflows_tools_models_and_modes(
    asked: Asked, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in ((tmp_path, "tri_age.py"), (home, "trip.py"), (home, "_parts.py")):
        put(folder / ".interlock" / "workflows" / name, "raise SystemExit('never imported')\n")
    monkeypatch.chdir(tmp_path)
    assert values(asked("run", "tr")) == ["tri-age", "trip"]
    assert values(asked("schema", "ma")) == ["main"]
    assert values(asked("run", "main", "")) == []
    assert sorted(values(asked("policy", "check", ""))) == sorted(TOOLS)
    assert values(asked("-m", "fl")) == ["flash", "flash-lite"]
    assert "architect" in values(asked("--mode", ""))


def test_a_workflows_own_inputs_are_flags_once_it_is_named(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert values(asked("run", "--turn")) == []
    assert values(asked("run", "turn", "--turn")) == ["--turn-no"]
    assert "--limit" in values(asked("run", "search", "where are retries", "--"))
    assert values(asked("run", "search", "--output-format", "js")) == ["json"]
    put(tmp_path / ".interlock" / "workflows" / "other.py", "raise SystemExit('nobody trusts it')\n")
    assert "--model" in values(asked("run", "other", "--mod")), "what can't be loaded has the flags of all"


def test_runs_with_their_titles_and_what_is_in_them(asked: Asked, made: Any) -> None:
    made.run("aa11", "fix the \x1b[31mparser\n now", updated=2.0)
    made.run("ab22", "x" * 200, updated=1.0)
    made.edit("aa11")
    runs = asked("show", "a")
    assert runs[1] == "aa11\twaiting: fix the \\x1b[31mparser now"
    assert runs[2].startswith("ab22\t") and runs[2].endswith("…") and len(runs[2]) < 80
    assert values(asked("show", "")) == ["aa11", "ab22", "latest"]
    assert values(asked("show", "aa11", "")) == []
    assert values(asked("-r", "ab")) == ["ab22"]
    assert values(asked("runs", "")) == ["rm"]
    assert values(asked("runs", "rm", "aa11", "a")) == ["aa11", "ab22"]
    assert values(asked("resume", "aa11", "--approve", "")) == ["all", "1"]
    assert asked("resume", "nothing", "--approve", "") == []


@pytest.mark.parametrize(
    ("shell", "begins"),
    [("bash --norc -i", ""), ("zsh -f -i", "autoload -U compinit; compinit -u -d ./dump; ")],
)
def test_tab_in_a_real_shell(shell: str, begins: str, tmp_path: Path, made: Any) -> None:
    command = tuple(shell.split())
    if not shutil.which(command[0]):
        pytest.skip(f"{command[0]} isn't installed")
    made.run("aa11", "fix the parser")
    made.run("ab22", "write a page")
    tree(
        tmp_path, {"my notes/": "", "rules.toml": "", "script": completion.load_completion_script(command[0])}
    )
    path = f"{BIN}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TERM": "xterm", "PS1": "$ "}
    typed = [
        ("interlock appr\t", "approvals "),
        ("\x15interlock -o st\t", "stream-json "),
        ("\x15interlock --output-format=st\t", "stream-json "),
        ("\x15interlock --approval-mode pl\t", "plan "),
        ("\x15interlock show aa\t", "aa11 "),
        ("\x15interlock --policy ru\t", "rules.toml"),
        ("\x15interlock --policy=ru\t", "rules.toml"),
        ("\x15interlock run main --input @ru\t", "rules.toml"),
        ("\x15interlock -C my\t", "my\\ notes/"),
    ]
    with Terminal(tmp_path, env=env, command=command) as terminal:
        terminal.type(f"{begins}source ./script; echo rea''dy\n")
        terminal.until("ready")
        for keys, shown in typed:
            terminal.type(keys)
            terminal.until(shown)
        terminal.type("\x15interlock show a\t\t")
        assert "write a page" in terminal.until("fix the parser"), "the newest comes first"


def test_tab_in_fish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
    if not shutil.which("fish"):
        pytest.skip("fish isn't installed")
    made.run("aa11", "fix the parser")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{BIN}:{os.environ['PATH']}")
    tree(tmp_path, {"my notes/": "", "rules.toml": ""})
    script = completion.load_completion_script("fish")

    def complete(line: str) -> list[str]:
        asked = f"{script}\ncomplete -C '{line}'"
        done = subprocess.run(
            ["fish", "--no-config", "-c", asked], capture_output=True, text=True, timeout=HANG_S, check=True
        )
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert complete("interlock appr") == ["approvals\tList open requests, across all runs"]
    assert complete("interlock show aa") == ["aa11\tinterrupted: fix the parser"]
    assert complete("interlock -o ") == ["text", "json", "stream-json"]
    assert [line.partition("\t")[0] for line in complete("interlock --policy ru")] == ["rules.toml"]
    assert [line.partition("\t")[0] for line in complete("interlock --policy=ru")] == ["--policy=rules.toml"]
    assert [line.partition("\t")[0] for line in complete("interlock -C my")] == ["my notes/"]
