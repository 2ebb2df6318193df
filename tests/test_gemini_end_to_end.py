"""`interlock -p` in a git repository, with a server that speaks Gemini's protocol: it reads, edits, tests, answers."""

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from commands import execute
from fake_gemini.fake import FakeGemini
from folders import tree
from patience import until
from scripted import call, shell

TEST = (
    "import unittest\nfrom calc import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n"
)
FIX: list[dict[str, Any]] = [
    {
        "thought": "I should look first.",
        "text": "I read both files.",
        "calls": [call("read_file", file_path="calc.py"), call("read_file", file_path="test_calc.py")],
    },
    {"calls": [call("replace", file_path="calc.py", old_string="a - b", new_string="a + b")]},
    {"calls": [shell(f"{sys.executable} -m unittest")]},
    {"text": "It was a minus. The test passes now.", "chunks": 3},
]
STRICT = {"strict": True, "require_signatures": True, "default": {"text": "USER"}}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    tree(folder, {"calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": TEST})
    for command in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


def interlock(
    folder: Path, server: FakeGemini, *arguments: str, **env: str
) -> "subprocess.CompletedProcess[str]":
    return execute(folder, *arguments, env={**server.env, **env})


def test_it_reads_edits_tests_and_answers(repository: Path, fake_gemini: FakeGemini) -> None:
    fake_gemini.play({**STRICT, "replies": FIX})
    done = interlock(repository, fake_gemini, "-y", "-m", "gemini-2.5-pro", "-p", "Fix the failing test.")
    assert (done.returncode, done.stdout) == (0, "It was a minus. The test passes now.\n"), done.stderr
    assert (repository / "calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert (
        subprocess.run([sys.executable, "-m", "unittest", "-q"], cwd=repository, check=False).returncode == 0
    )
    first = fake_gemini.requests[0]
    assert first.model == "gemini-2.5-pro"
    assert "Fix the failing test." in json.dumps(first.contents[-1])
    assert first.body["systemInstruction"]["parts"][0]["text"]
    declared = {d["name"] for d in first.body["tools"][0]["functionDeclarations"]}
    assert {"read_file", "replace", "run_shell_command"} <= declared
    assert "OK" in json.dumps(fake_gemini.requests[3].contents[-1])


def supervisors(folder: Path) -> list[str]:
    """Processes that fork for the commands of what was started in the folder."""
    found: list[str] = []
    for pid in (p.name for p in Path("/proc").iterdir() if p.name.isdigit()):
        with suppress(OSError):
            if b"import supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
                begun_there = (Path(f"/proc/{one}/cwd").readlink() == folder for one in ancestors(pid))
                found += [pid] if any(begun_there) else []
    return found


def ancestors(pid: str) -> list[str]:
    parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    return [parent, *ancestors(parent)] if parent != "0" else []


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root sees where a process that hides its environment works"
)
def test_what_forks_for_commands_starts_while_the_model_thinks(
    repository: Path, fake_gemini: FakeGemini, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_gemini.play({"replies": [{"text": "Nothing to do."}], "default": {"text": "USER"}})
    answered = fake_gemini.log

    def thought(*asked: Any) -> int:
        until(lambda: supervisors(repository), "the process that forks for commands")
        return answered(*asked)

    monkeypatch.setattr(fake_gemini, "log", thought)
    done = interlock(repository, fake_gemini, "-m", "gemini-2.5-pro", "-p", "Anything?")
    assert (done.returncode, done.stdout) == (0, "Nothing to do.\n"), done.stderr
    until(lambda: not supervisors(repository), "its end with the run")


def test_an_edit_parks_and_is_approved_in_another_process(repository: Path, fake_gemini: FakeGemini) -> None:
    fake_gemini.play({**STRICT, "replies": [FIX[0], FIX[1], FIX[3]]})
    parked = interlock(repository, fake_gemini, "-m", "gemini-2.5-pro", "-o", "json", "-p", "Fix it.")
    told = json.loads(parked.stdout)
    assert (parked.returncode, told["status"]) == (75, "waiting")
    (request,) = told["pending_approvals"]
    assert "-    return a - b\n+    return a + b" in request["preview"]
    done = interlock(repository, fake_gemini, "resume", told["session_id"], "--approve", request["id"])
    assert done.returncode == 0, done.stderr
    assert "a + b" in (repository / "calc.py").read_text()


def test_an_answer_that_is_given_up_leaves_nothing_of_its_connection_to_be_seen(
    repository: Path, fake_gemini: FakeGemini
) -> None:
    """The SDK leaves its connection open: what closed it at the loop's end wrote tracebacks."""
    fake_gemini.play({"default": {"text": "Very long sentence again. " * 3000, "chunks": 100}})
    done = interlock(repository, fake_gemini, "-m", "gemini-2.5-pro", "-p", "Tell.")
    assert done.returncode == 58
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [
        "… loop detected",
        "… loop detected",
        "interlock",
    ]


def test_what_was_recorded_plays_back_the_same(
    repository: Path, fake_gemini: FakeGemini, tmp_path: Path
) -> None:
    record = tmp_path / "recorded.yaml"
    fake_gemini.play({**STRICT, "replies": FIX})
    first = interlock(
        repository, fake_gemini, "-y", "-m", "gemini-2.5-pro", "-p", "Fix.", "--record-responses", str(record)
    )
    assert first.returncode == 0, first.stderr
    subprocess.run(["git", "checkout", "-q", "."], cwd=repository, check=True)
    fake_gemini.play([])
    again = interlock(repository, fake_gemini, "-y", "-p", "Fix.", "--fake-responses", str(record))
    assert (again.returncode, again.stdout) == (0, first.stdout), again.stderr
    assert "a + b" in (repository / "calc.py").read_text()
    assert fake_gemini.requests == []
