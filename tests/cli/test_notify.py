"""Waiting runs notify once, by a command, a webhook or the terminal."""

import json
import os
import pty
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import warm
from commands import Ended, execute
from folders import put, tree
from patience import HANG_S
from serving import Quiet, serving

REPLIES = """
- tool_calls:
    - {name: write_file, args: {file_path: a.txt, content: "one"}}
    - {name: write_file, args: {file_path: b.txt, content: "two"}}
- text: Written.
"""


class Posted(ThreadingHTTPServer):
    """Keeps what is posted to it."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []
        self.headers: list[Any] = []
        self.answers = 200
        self.holds = threading.Event()
        self.holds.set()
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/hook/s3cret"


class _Handler(Quiet):
    server: Posted

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.holds.wait(HANG_S)
        self.server.bodies.append(json.loads(body))
        self.server.headers.append(dict(self.headers))
        self.send_response(self.server.answers)
        self.end_headers()


@pytest.fixture
def posted() -> Iterator[Posted]:
    with serving(Posted()) as server:
        yield server
        server.holds.set()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    tree(tmp_path, {"work/": "", "replies.yaml": REPLIES})
    return tmp_path / "work"


def wants(home: Path, **notify: Any) -> None:
    put(home / ".interlock" / "settings.json", {"general": {"notify": notify}})


def park(work: Path, prompt: str = "write both", **more: Any) -> Ended:
    done = execute(work, "-p", prompt, "-m", "script:../replies.yaml", **more)
    assert done.returncode == 75, done.stderr
    return done


def test_a_command_gets_the_run_once_for_each_time_that_it_parks(work: Path, home: Path) -> None:
    told = work.parent / "told"
    line = 'echo "$INTERLOCK_RUN|$INTERLOCK_TITLE|$INTERLOCK_WAITING|$INTERLOCK_RESUME" >> ../told; cat > ../stdin'
    wants(home, command=line)
    park(work)
    run, title, waiting, resume = told.read_text().strip().split("|")
    assert (title, waiting, resume) == (
        "write both",
        "write_file a.txt and 1 more",
        f"interlock resume {run}",
    )
    given = json.loads((work.parent / "stdin").read_text())
    assert given["run"] == run and given["workspace"] == str(work)
    assert [one["args"]["file_path"] for one in given["waiting"]] == ["a.txt", "b.txt"]
    assert execute(work, "resume", run).returncode == 75
    assert execute(work, "resume", run, "--approve", "1").returncode == 75
    assert len(told.read_text().splitlines()) == 1  # it still waits, but was announced already
    assert execute(work, "resume", run, "--approve", "2").returncode == 0
    assert len(told.read_text().splitlines()) == 1


def test_of_a_batch_each_run_that_parks_is_told(work: Path, home: Path) -> None:
    wants(home, command='echo "$INTERLOCK_TITLE" >> ../told; false')
    (work / "tasks.jsonl").write_text('{"prompt": "first"}\n{"prompt": "second"}\n')
    done = execute(work, "run", "main", "--batch", "tasks.jsonl", "-m", "script:../replies.yaml")
    assert (work.parent / "told").read_text() == "first\nsecond\n"
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["status"] for line in lines] == ["waiting", "waiting"]
    assert all("general.notify.command: exit 1." in line["warnings"] for line in lines)


def test_a_webhook_gets_it_without_secrets(
    work: Path, home: Path, posted: Posted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "tok-4711-hidden-value")
    wants(home, webhook=posted.address, headers={"Authorization": "Bearer $DEPLOY_TOKEN"})
    park(work, "deploy with tok-4711-hidden-value")
    (body,) = posted.bodies
    assert "tok-4711-hidden-value" not in json.dumps(body)
    assert body["text"].startswith(f"Interlock: run {body['run']} waits for you: write_file a.txt and 1 more")
    assert posted.headers[0]["Authorization"] == "Bearer tok-4711-hidden-value"


@pytest.mark.parametrize("how", ["refused", "status", "slow", "command", "no program"])
def test_one_that_fails_is_a_warning_and_changes_nothing(
    how: str, work: Path, home: Path, posted: Posted
) -> None:
    settings: dict[str, Any] = {"webhook": posted.address, "timeout": 0.3}
    expected = "general.notify.webhook (127.0.0.1:"
    if how == "refused":
        settings["webhook"] = "http://127.0.0.1:9/s3cret"
    elif how == "status":
        posted.answers = 500
    elif how == "slow":
        posted.holds.clear()
    elif how == "command":
        settings, expected = {"command": "echo no luck; exit 3"}, "general.notify.command: exit 3. no luck"
    else:
        settings, expected = {"command": ["/no/such/program"]}, "general.notify.command: not started"
    wants(home, **settings)
    done = park(work)
    posted.holds.set()
    assert expected in done.stderr and "s3cret" not in done.stderr
    assert "1 decision" in done.stderr or "2 decisions" in done.stderr


def test_the_terminal_rings_where_there_is_one(work: Path, home: Path) -> None:
    wants(home, terminal=["bell", "osc9", "osc777"])
    ours, theirs = pty.openpty()
    words = ["-p", "write\x1b]0;both; now", "-m", "script:../replies.yaml"]
    process = warm.Warm(words, cwd=work, env=os.environ, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            shown += (got := os.read(ours, 65536))
        except OSError:  # the other end is closed
            break
        if not got:
            break
    os.close(ours)
    assert process.wait(HANG_S) == 75
    assert b"\a\x1b]9;Interlock waits: write\\x1b]0;both; now: write_file a.txt and 1 more\a" in shown
    assert b"\x1b]777;notify;Interlock waits: write\\x1b]0,both, now;write_file a.txt and 1 more\a" in shown
    told = park(work)
    assert "\a" not in told.stderr + told.stdout and "\x1b]" not in told.stderr + told.stdout


def test_a_project_can_have_nobody_notified_not_even_a_trusted_one(work: Path, home: Path) -> None:
    (work / ".interlock").mkdir()
    settings = {"general": {"notify": {"command": "touch ../pwned"}, "defaultApprovalMode": "default"}}
    put(work / ".interlock" / "settings.json", settings)
    done = park(work, env={})
    assert not (work.parent / "pwned").exists()
    assert execute(work, "trust", "--yes").returncode == 0
    done = park(work)
    assert not (work.parent / "pwned").exists()
    assert "general.notify counts only in ~/.interlock/settings.json" in done.stderr


def test_what_is_set_wrong_is_named_and_doctor_says_what_is_set(work: Path, home: Path) -> None:
    wants(home, webhook="ftp://somewhere")
    done = execute(work, "-p", "write", "-m", "script:../replies.yaml")
    assert done.returncode == 52
    assert "general.notify.webhook" in done.stderr and "https://" in done.stderr
    wants(
        home, terminal=["bell"], command=["notify-send", "it waits"], webhook="https://user:pw@example.org/x"
    )
    shown = execute(work, "doctor").stdout
    assert "when a run waits: bell, command notify-send 'it waits', webhook example.org" in shown
