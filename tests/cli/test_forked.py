"""Programs of ours that are forked, for drives of `serve` and of workers: what they get, and what a kill leaves."""

import os
import signal
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
import warm
from fake_gemini.fake import FakeGemini
from patience import until

from interlock.cli.warm.fork_client import Child, Fork, ForkClient

PROGRAM = """
import os, sys, tempfile, time
from pathlib import Path

def main(word):
    Path("began").touch()
    while word == "wait" and not Path("go").exists():
        time.sleep(0.01)
    print(word, os.environ["FOO"], os.getcwd(), tempfile.gettempdir(), sys.stdin.read(), os.getsid(0) == os.getpid())
    return 7
"""
SECRET = "sk-" + "forked0123456789abcdef" * 2

if not sys.platform.startswith("linux"):
    pytest.skip("forks need Linux", allow_module_level=True)


@pytest.fixture
def forker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[ForkClient]:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("GEMINI_API_KEY", SECRET)
    made = ForkClient()
    yield made
    made.stop_server()


def started(forker: ForkClient, word: str) -> tuple[Child, int]:
    """The fork, and what it says."""
    told, stdout = os.pipe()
    with tempfile.TemporaryFile() as given:
        given.write(SECRET.encode())
        given.seek(0)
        env = {**os.environ, "FOO": "bar", "TMPDIR": str(Path.cwd())}
        child = forker.start("program", word, env=env, stdin=given.fileno(), stdout=stdout)
    os.close(stdout)
    return child, told


def said(told: int) -> str:
    with os.fdopen(told) as file:
        return file.read()


@pytest.mark.sweep
def test_a_fork_has_what_its_starter_gave_and_outlives_a_kill_of_what_forks_which_knows_nothing(
    forker: ForkClient, tmp_path: Path
) -> None:
    words = f"bar {tmp_path} {tmp_path} {SECRET} True\n"
    child, told = started(forker, "now")
    assert isinstance(child, Fork) and said(told) == f"now {words}" and child.wait() == 7
    child, told = started(forker, "wait")
    parent = int(Path(f"/proc/{child.pid}/stat").read_text().split()[3])
    until((tmp_path / "began").exists)
    kept = warm.memory_of(parent)
    assert SECRET.encode() not in kept and os.fsencode(tmp_path / "began") not in kept
    assert SECRET.encode() in warm.memory_of(child.pid)
    os.kill(parent, signal.SIGKILL)
    again, _ = started(forker, "wait")
    assert int(Path(f"/proc/{again.pid}/stat").read_text().split()[3]) not in (parent, os.getpid())
    again.send_signal(signal.SIGTERM)
    assert again.wait() == -signal.SIGTERM and child.poll() is None
    (tmp_path / "go").touch()
    assert said(told) == f"wait {words}" and child.wait() == 7


_NOTING = """
import sys
from pydantic._internal import _model_construction as making

built, complete = [], making.complete_model_class

def noted(cls, *given, **more):
    built.append(f"{cls.__module__}.{cls.__qualname__}")
    return complete(cls, *given, **more)

making.complete_model_class = noted
from interlock.cli import main
main.run_command_line(["-y", "-p", "go", "-m", "gemini-2.5-pro"], own_process=False)
print("built:", *built)
"""


def test_a_drive_builds_nothing_that_the_process_it_is_forked_from_could_have_built(
    fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    """Neither for its requests nor for a reply: schemas took each drive 40 ms."""
    (tmp_path / "noting.py").write_text(_NOTING)
    (tmp_path / "work").mkdir()
    call = {"name": "list_directory", "args": {"dir_path": "."}}
    fake_gemini.play([{"calls": [call]}, {"text": "done"}])
    env = {**os.environ, **fake_gemini.env}
    done = warm.run([], cwd=tmp_path / "work", env=env, program=tmp_path / "noting.py")
    assert done.stdout.split() == ["done", "built:"], done.stderr
