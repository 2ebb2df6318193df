"""`-s` from the command line: a run in the sandbox, one that is refused, and one that is resumed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import warm
from commands import ENTRY, Run, one_call, response
from folders import put
from patience import until
from sandboxes import needs_sandbox

from interlock.prompts import load_prompt

SCRIPT = """
- tool_calls:
    - {name: run_shell_command, args: {command: "echo seen; touch $HOME/escaped; echo done > made"}}
- expect: "seen"
  text: Finished.
"""


SECTIONS = ("none", "bubblewrap", "offline")


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    (tmp_path / "script.yaml").write_text(SCRIPT)
    return run


def prompt(tmp_path: Path, *more: str) -> tuple[str, ...]:
    return ("-m", f"script:{tmp_path / 'script.yaml'}", "-p", "do it", *more)


def told(home: Path) -> list[str]:
    """The sandbox sections in the run's system prompt."""
    records = b"".join(file.read_bytes() for file in (home / "interlock/outputs").iterdir())
    last = {name: load_prompt(f"main/sandbox_{name}").render().splitlines()[-1] for name in SECTIONS}
    return [
        name for name, line in last.items() if json.dumps(line, ensure_ascii=False)[1:-1].encode() in records
    ]


def break_bubblewrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "bin/bwrap", "#!/bin/sh\necho 'bwrap: Creating new namespace failed' >&2; exit 1\n")
    (tmp_path / "bin/bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")


def test_a_command_runs_in_the_sandbox_and_the_model_knows(run: Run, tmp_path: Path, home: Path) -> None:
    needs_sandbox()
    done = run(*prompt(tmp_path, "-s", "-y"))
    assert (done.code, done.out.strip()) == (0, "Finished.")
    assert Path("made").read_text() == "done\n" and not (home / "escaped").exists()
    assert list(Path().iterdir()) == [Path("made")]
    assert told(home) == ["bubblewrap", "offline"]


def test_nothing_becomes_allowed_by_the_sandbox_and_a_resumed_run_keeps_it(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_sandbox()
    with monkeypatch.context() as environment:
        environment.setenv("GEMINI_SANDBOX", "true")
        assert run(*prompt(tmp_path)).code == 75
    assert not Path("made").exists()
    with monkeypatch.context() as broken:
        break_bubblewrap(tmp_path, broken)
        refused = run("resume", "latest", "--approve", "all", "--no-loop-check")
        assert refused.code == 44 and "'Creating new namespace failed'" in refused.err
        assert not Path("made").exists() and run("approvals").out.count("Run echo seen") == 1
    done = run("resume", "latest", "--approve", "all", "--no-loop-check")
    assert (done.code, done.out.strip()) == (0, "Finished.")
    assert Path("made").exists() and not (home / "escaped").exists()


def test_where_there_can_be_no_sandbox_nothing_runs(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_bubblewrap(tmp_path, monkeypatch)
    done = run(*prompt(tmp_path, "-s", "-y"))
    assert (done.code, done.out) == (44, "")
    assert done.err.count("\n") == 1 and "'Creating new namespace failed'; allow user namespaces" in done.err
    assert not (home / "interlock").exists() and not Path("made").exists()
    doctor = run("doctor").out
    assert "sandbox     Bubblewrap can't make a sandbox here" in doctor


def test_without_it_commands_run_on_the_machine_and_the_model_knows(
    run: Run, tmp_path: Path, home: Path
) -> None:
    assert run(*prompt(tmp_path, "-y")).code == 0
    assert (home / "escaped").exists() and told(home) == ["none"]


KILLED = r"""
- tool_calls:
    - name: run_shell_command
      args: {command: "mkdir sub; python3 -c \"open('sub/AGENTS' + '.md', 'w')\"; sleep 613", is_background: true}
    - {name: write_file, args: {file_path: docs/AGENTS.md, content: "asked for"}}
    - {name: run_shell_command, args: {command: "touch ready; sleep 613"}}
"""


def test_what_a_command_of_a_killed_run_made_is_set_aside_by_the_next(run: Run, tmp_path: Path) -> None:
    needs_sandbox()
    (tmp_path / "killed.yaml").write_text(KILLED)
    Path("old").mkdir()
    Path("old/AGENTS.md").write_text("there before")
    assert run("-m", f"script:{tmp_path / 'killed.yaml'}", "-p", "do it", "-s", "-y").code == 75
    killed = warm.Warm(["resume", "latest", "--approve", "all"], cwd=Path.cwd(), env=os.environ)
    try:
        until(lambda: Path("ready").exists() and Path("sub/AGENTS.md").exists() and Path("docs").exists())
    finally:
        killed.kill()
        killed.wait()
    until(
        lambda: (
            b"sleep 613" not in subprocess.run(["ps", "-eo", "args"], capture_output=True, check=True).stdout
        )
    )
    done = run(*prompt(tmp_path, "-y"))
    assert done.err.count("A command of a killed run made 'sub/AGENTS.md' in its sandbox") == 1
    assert sorted(map(str, Path().glob("*/AGENTS.md*"))) == [
        *("docs/AGENTS.md", "old/AGENTS.md", "sub/AGENTS.md.sandboxed")
    ]
    assert "killed run" not in run(*prompt(tmp_path, "-y")).err


NUMBER = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine, 0)
"""Of `keyctl`; `add_key` is two before it."""
WITH_A_KEY = """
import ctypes, os, sys
call, number = ctypes.CDLL(None).syscall, int(sys.argv.pop(1))
call(number, 1, None)
if call(number - 2, b"user", b"ticket", b"secret", 6, ctypes.c_int(-3)) < 0:
    sys.exit("no keyrings")
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.skipif(not (NUMBER and shutil.which("perl")), reason="it needs perl, and a call's number")
def test_the_keys_of_the_session_are_out_of_reach(tmp_path: Path) -> None:
    """Kerberos' tickets and cached passphrases: the kernel lends them to whatever the session starts."""
    needs_sandbox()
    (tmp_path / "work").mkdir()
    search = f'@k = ("user", "ticket"); print syscall({NUMBER}, 10, -3, @k, 0) > 0 ? "found" : "nothing";'
    words = [*one_call("run_shell_command", command=f"perl -e '{search}'"), "-y"]
    found: list[str] = []
    for flags in ((), ("-s",)):
        command = [sys.executable, "-P", "-c", WITH_A_KEY, str(NUMBER), *ENTRY, *words, *flags]
        ended = subprocess.run(command, cwd=tmp_path / "work", capture_output=True, text=True, check=False)
        if ended.stderr.startswith("no "):
            pytest.skip(ended.stderr)
        found.append(response(ended)["content"].split()[-1])
    assert found == ["found", "nothing"]
