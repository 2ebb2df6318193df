"""Frequently used commands answer at once and import nothing heavy."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

_HEAVY = ("langgraph", "langchain", "langchain_core", "pydantic", "rich", "httpx", "statemachine")
_PROBE = f"""
import json, sys
from interlock.cli.main import main
for arguments in json.load(sys.stdin):
    try:
        code = main(arguments)
    except SystemExit as ended:
        code = ended.code or 0
    heavy = sorted({{m.partition('.')[0] for m in sys.modules}} & set({(*_HEAVY, "asyncio")}))
    print(json.dumps([arguments, code in (0, 2), heavy]), file=sys.stderr)
"""


FAST = (
    "--version, --help, help resume, runs, runs --json, runs --status waiting, approvals, approvals --json, "
    "approvals aa11, stats, show aa11, history aa11 --all, workflows, resume aa11 --approve nothing-like-it, aprovals, "
    "completion bash, __complete zsh '', __complete zsh run --, __complete fish show '', __complete zsh run '', "
    "__complete bash 9 '' 'interlock -m '"
)


def test_fast_commands_import_nothing_heavy(made: Any, tmp_path: Path) -> None:
    """In one process: a module that one imports is seen with it first."""
    made.run("aa11")
    made.edit("aa11")
    made.hold("aa11", ("here", "boot", 1, "1"), held=0)
    commands = [shlex.split(command) for command in FAST.split(", ")]
    # A folder with workflows of its own, such as this repository, has them loaded to be listed.
    program = [sys.executable, "-c", _PROBE]
    done = subprocess.run(
        program, cwd=tmp_path, input=json.dumps(commands), capture_output=True, text=True, check=False
    )
    seen = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[[")]
    assert seen == [[command, True, []] for command in commands], done.stderr


def typed(line: str, **more: Any) -> "subprocess.CompletedProcess[str]":
    """What a shell line of the installed program comes to."""
    entry = Path(sys.executable).with_name("interlock")
    return subprocess.run(f"{entry} {line}", shell=True, capture_output=True, text=True, check=False, **more)


def test_the_entry_point_answers() -> None:
    assert typed("--version").stdout == f"interlock {version('interlock-agent')}\n"
    shown = typed("--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "start here:" in shown.stdout


def test_help_names_every_command_and_fits_a_terminal(cli: Any) -> None:
    from interlock.cli.catalog import COMMANDS

    lines = cli("--help").stdout.splitlines()
    assert max(map(len, lines)) <= 105
    for name in COMMANDS:
        assert any(line.strip().startswith(name) for line in lines), name


def test_nothing_has_run_is_said_plainly(cli: Any, home: Path) -> None:
    runs, approvals = cli("runs"), cli("approvals")
    assert (runs.returncode, runs.stdout) == (0, "")
    assert "No runs yet" in runs.stderr
    assert "No open requests" in approvals.stderr
    assert json.loads(cli("runs", "--json").stdout) == []
    assert json.loads(cli("approvals", "--json").stdout) == []
    assert not (home / "interlock").exists()


def test_runs_lists_what_the_store_has(made: Any, cli: Any) -> None:
    made.run("old1", "older work", "done", updated=1000.0)
    made.run("aa11", "fix the\x1b[31m test")
    made.edit("aa11")
    lines = cli("runs").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["run", "aa11", "old1"]
    assert "waiting (1)" in lines[1]
    assert "\x1b" not in lines[1]
    assert [r["run"] for r in json.loads(cli("runs", "--status", "done", "--json").stdout)] == ["old1"]
    made.run("bb22", "ship it")
    made.shell("bb22", "git push")
    shown = cli("approvals").stdout
    for words in ("Edit calc.py (+1 −1)", "resume aa11 --approve all", "resume bb22 --approve all"):
        assert words in shown


def test_twenty_runs_are_shown_unless_all_are_asked_for(made: Any, cli: Any) -> None:
    for number in range(23):
        made.run(f"run{number:02}", status="done")
    short, full = cli("runs"), cli("runs", "--all")
    assert len(short.stdout.splitlines()) == 21
    assert "All: interlock runs --all" in short.stderr
    done = cli("runs", "--status", "done")
    assert len(done.stdout.splitlines()) == 21
    assert "All: interlock runs --status done --all" in done.stderr
    assert len(full.stdout.splitlines()) == 24


def test_a_list_is_printed_in_pages_and_says_where_the_next_begins(made: Any, cli: Any) -> None:
    for number in range(7):
        made.run(f"run{number}", status="open" if number < 4 else "done", updated=1000.0 - number)
        if number < 4:
            made.edit(f"run{number}")
    for command, extra, names in (
        ("runs", (), [f"run{n}" for n in range(7)]),
        ("runs", ("--status", "waiting"), [f"run{n}" for n in range(4)]),
        ("approvals", (), [f"run{n}" for n in range(4)]),
    ):
        found, offset = list[str](), 0
        while True:
            page = cli(command, *extra, "--json", "--limit", "3", "--offset", str(offset))
            found += [row["run"] for row in json.loads(page.stdout)]
            offset += 3
            status = " --status waiting" if extra else ""
            if (
                f"The next: interlock {command}{status} --json --limit 3 --offset {offset}."
                not in page.stderr
            ):
                break
        assert page.stderr == "" and sorted(found) == names
        whole = cli(command, *extra, "--json")
        assert [row["run"] for row in json.loads(whole.stdout)] == found and whole.stderr == ""


def test_a_list_into_a_closed_pipe_ends_quietly(made: Any) -> None:
    for number in range(300):
        made.run(f"run{number:03}", "x" * 150, "done")
    done = typed("runs --all | head -1")
    assert done.stdout.startswith("run ")
    assert done.stderr == ""


RUN = "-p hi -m script:replies.json -o json"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("workflows", ""),
        ("workflows", "1"),
        (RUN, ""),
        pytest.param(RUN, "1", marks=pytest.mark.sweep),
    ],
)
def test_output_that_cannot_be_written_is_one_line_about_the_output(
    command: str, unbuffered: str, tmp_path: Path
) -> None:
    (tmp_path / "replies.json").write_text('[{"text": "hello"}]')
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = typed(f"{command} >/dev/full", env=env, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "interlock: Can't write the output: No space left on device."
    )
    assert "Traceback" not in done.stderr


def test_closed_streams_count_as_empty_ones(made: Any) -> None:
    made.run("aa11", "fix it", "done")
    for streams in (">&-", "<&- >&- 2>&-", "2>&-"):
        done = typed(f"runs {streams}")
        assert (done.returncode, done.stderr) == (0, "")
