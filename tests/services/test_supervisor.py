"""Nothing that a run started outlives it: real processes, really killed."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import pytest
import warm
from patience import HANG_S, until
from sandboxes import needs_sandbox

from interlock.services.process import supervisor
from interlock.services.process.supervisor import describe_possible_process_escapes, describe_process_limit
from interlock.services.process.supervisor_client import PROGRAM

DRIVER = Path(__file__).with_name("kill_driver.py")
LINUX = sys.platform.startswith("linux")
SHAPES = {
    "pipe": "sleep 7000 | cat | {body}",
    "ampersand": "{body} & sleep 7001",
    "ampersand_ended": "{body} & sleep 0.2",
    "nohup": "nohup {body} >/dev/null 2>&1 & sleep 7002",
    "setsid": "setsid {body} & sleep 7003",
    "double_fork": "(setsid bash -c '{body} & exit 0'); sleep 7004",
    "stopped": "{body} & sleep 0.3; kill -STOP $!; sleep 7005",
    "ignores_signals": "trap '' TERM INT HUP; {body}",
}

pytestmark = pytest.mark.skipif(
    not LINUX, reason="survivors are found in /proc, and only Linux has a subreaper"
)


@pytest.fixture
def marker() -> Iterator[str]:
    """A word in the command lines of what a test starts; leftovers are killed at its end."""
    word = f"interlock-survivor-{secrets.token_hex(6)}"
    yield word
    for pid in alive(word):
        os.kill(pid, signal.SIGKILL)


def alive(marker: str) -> list[int]:
    """Processes with the marker among their arguments, except supervisors."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line and b"import supervisor" not in line:
                found.append(int(process.name))
    return found


def above(pid: int) -> list[int]:
    """The processes of ours above a command: the one that forks, guard, worker."""
    found: list[int] = []
    while pid := int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]):
        if b"import supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.insert(0, pid)
    return found


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)  # a zombie has none


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


def is_stopped(pid: int) -> bool:
    try:
        return "State:\tT" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


Starts = Callable[[str, str], warm.Warm]


@pytest.fixture
def driver(tmp_path: Path, marker: str) -> Iterator[Starts]:
    """Starts a command of one of the shapes, and waits for the innermost process (its own name is the marker).

    It is killed at the end, after which nothing may be left."""
    started: list[warm.Warm] = []
    ours: list[int] = []

    def start(shape: str, mode: str) -> warm.Warm:
        if mode.endswith("sandboxed"):
            needs_sandbox()
        # `exec -a` names the process, so that it is found whatever happened to its parents.
        command = SHAPES[shape].format(body=f'bash -c "exec -a {marker} sleep 7777"')
        started.append(
            warm.Warm([str(tmp_path), mode, command], cwd=tmp_path, env=os.environ, program=DRIVER)
        )
        until(lambda: any(name_of(pid) == marker for pid in alive(marker)), "the command")
        ours.extend(above(alive(marker)[0]))
        return started[-1]

    yield start
    for one in started:
        one.kill()
        one.wait()
    until(lambda: not alive(marker) and gone(ours), "the end of all")


@pytest.mark.parametrize(
    ("shape", "mode"),
    [
        *((shape, "once") for shape in SHAPES if shape != "ampersand_ended"),
        *(
            pytest.param(shape, "background", marks=pytest.mark.sweep)
            for shape in SHAPES
            if shape != "ampersand_ended"
        ),
        *(product(("setsid", "double_fork", "ignores_signals"), ("once-sandboxed", "background-sandboxed"))),
    ],
)
def test_nothing_survives_a_killed_run(driver: Starts, marker: str, shape: str, mode: str) -> None:
    driver(shape, mode)
    if shape == "stopped":
        until(lambda: any(is_stopped(pid) for pid in alive(marker)))


@pytest.mark.parametrize("mode", ["background", "background-sandboxed"])
def test_what_a_background_command_left_behind_lives_until_the_run_ends(
    driver: Starts, marker: str, mode: str
) -> None:
    driver("ampersand_ended", mode)
    time.sleep(0.6)  # the command itself has ended by now
    assert any(name_of(pid) == marker for pid in alive(marker))


@pytest.mark.parametrize(
    ("shape", "which", "number"),
    [
        ("double_fork", 0, signal.SIGKILL),
        ("double_fork", 1, signal.SIGKILL),
        ("double_fork", 2, signal.SIGKILL),
        ("setsid", 2, signal.SIGTERM),
    ],
    ids=["the one that forks", "guard", "worker", "a worker told to end"],
)
def test_nothing_survives_a_killed_supervisor_and_run(
    driver: Starts, marker: str, shape: str, which: int, number: int
) -> None:
    driver(shape, "once")
    ours = above(alive(marker)[0])
    assert len(ours) == 3
    os.kill(ours[which], number)
    if which == 2:
        until(lambda: not alive(marker), "the guard's clean-up")


UNHEARD = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
from interlock.services.process.supervisor_client import SUPERVISORS, SupervisedCommand

bystander = subprocess.Popen(["sleep", "1000"])
SUPERVISORS.ensure_started()
forks = SUPERVISORS._process.pid
os.kill(forks, signal.SIGSTOP)
command = SupervisedCommand(["true"], cwd=Path("/"), env={}, output=1, mode="once")
os.kill(forks, signal.SIGKILL)
asyncio.run(command.wait_until_finished())
command.kill_and_close()
print(command.has_unknown_outcome, bystander.poll())
bystander.kill()
"""


def program(text: str, *before: str) -> str:
    words = [*before, sys.executable, "-P", "-c", text]
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_supervisor_that_was_killed_before_it_said_a_word_takes_no_bystander_along() -> None:
    """In a process table of its own, where the session of all that came from outside is 0, as a machine's first is."""
    apart = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if shutil.which("unshare") is None or subprocess.run([*apart, "true"], check=False).returncode:
        pytest.skip("no pid namespace can be made here")
    assert program(UNHEARD, *apart) == "True None\n"


COLLECTED = """
import os, signal, time
from interlock.services.process import supervisor

assert supervisor._become_subreaper()
pid = os.posix_spawnp("bash", ["bash", "-c", "setsid sleep 1000 & exit 0"], os.environ, setpgroup=0)
reaper = supervisor.Reaper(pid, contained=True)
while reaper.ended is None or pid in supervisor._map_descendants_to_process_groups(os.getpid()).values():
    reaper.reap_ended_children()
    time.sleep(0.01)
sent, kill, killpg = [], os.kill, os.killpg
os.kill = lambda whom, number: (sent.append(abs(whom)), kill(whom, number))
os.killpg = lambda whom, number: (sent.append(whom), killpg(whom, number))
reaper.signal_command_group(signal.SIGTERM)
reaper.kill_all_children()
print(reaper.empty, len(sent) > 0, pid in sent)
"""


def test_the_number_of_a_command_that_was_collected_is_sent_nothing() -> None:
    """Its background process goes on for hours; by then the number may be a stranger's group."""
    assert program(COLLECTED) == "True True False\n"


def test_only_other_systems_say_what_can_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    assert describe_possible_process_escapes() is None
    monkeypatch.setattr(supervisor, "LINUX", False)
    assert "process group" in (describe_possible_process_escapes() or "")


ASKED_FOR = os.environ.get("INTERLOCK_FORK_BOMB")  # a test finds none of these variables
BOMBS = {
    "one group": ":(){ :|:& };:; sleep 60",
    "each its own session": "printf '%s\n' 'setsid bash $0 & setsid bash $0 & wait' > b; setsid bash b; sleep 60",
}
WATCHED = """
import os, socket, subprocess, sys, tempfile
(life, hold), (told, tell), (door, theirs) = os.pipe(), os.pipe(), socket.socketpair()
program = [sys.executable, "-I", "-S", "-c", sys.argv[3], sys.argv[1], str(theirs.fileno())]
process = subprocess.Popen(program, pass_fds=[theirs.fileno()], start_new_session=True)
theirs.close()
fields = ["once", "2", "60", "0", "1", "PATH=" + os.environ["PATH"], "bash", "-c", sys.argv[2]]
with tempfile.TemporaryFile() as asked, open(os.devnull, "r+") as quiet:
    asked.write(chr(0).join(fields).encode())
    asked.seek(0)
    streams = [quiet.fileno()] * 3
    socket.send_fds(door, [b"x"], [asked.fileno(), life, tell, *streams, os.open(".", os.O_RDONLY)])
os.close(tell)
shown = open(told).read()
door.close()
print(shown, process.wait(), [p for p in os.listdir("/proc") if p.isdigit() and p != str(os.getpid())])
"""
"""Needs no file of ours to be readable: another user runs it, with the machine's own Python."""


@pytest.fixture
def bounded() -> Iterator[Path]:
    """A control group of at most 3000 processes, to stop what gets past the supervisor."""
    if not ASKED_FOR:
        pytest.skip(
            "starves what else runs on the machine; alone: INTERLOCK_FORK_BOMB=1 make test TESTS='-k fork_bomb'"
        )
    top = next(
        (p for p in (Path("/sys/fs/cgroup/pids"), Path("/sys/fs/cgroup")) if os.access(p, os.W_OK)), None
    )
    group = (top or Path("/none")) / f"interlock-{secrets.token_hex(6)}"
    try:
        group.mkdir()
        (group / "pids.max").write_text("3000")
    except OSError:
        pytest.skip("needs a control group that limits processes (root, pids.max) as its outer safety")
    yield group
    until(lambda: not (group / "cgroup.procs").read_text(), "the end of the group")
    group.rmdir()


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("user", ["root", "nobody"])
def test_a_fork_bomb_ends_with_a_clear_result(bounded: Path, user: str, bomb: str) -> None:
    """In a pid namespace, whose end would kill all."""
    python = "/usr/bin/python3"
    apart = ["sh", "-c", f'echo $$ > {bounded}/cgroup.procs; exec "$@"', "sh"]
    apart += ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    apart += ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"] if user == "nobody" else []
    if subprocess.run([*apart, python, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("no pid namespace can be made here (root, unshare, setpriv and /usr/bin/python3)")
    folder = Path(tempfile.mkdtemp())  # pytest's own is closed to other users
    try:
        folder.chmod(0o777)
        shutil.copy(supervisor.__file__, folder)
        done = subprocess.run(
            [*apart, python, "-I", "-c", WATCHED, folder, BOMBS[bomb], PROGRAM],
            cwd=folder, capture_output=True, text=True, timeout=HANG_S, check=False,
        )  # fmt: skip
    finally:
        shutil.rmtree(folder)
    _, _, limit, ended, rest = done.stdout.splitlines()
    assert (limit, ended, rest) == ("limit more than 60 processes", "signal 9", " 0 []"), done.stderr
    assert "max 0" in (bounded / "pids.events").read_text(), "it got as far as the machine's limit"


def test_doctor_says_how_a_commands_processes_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "own limit" in describe_process_limit()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert "only Interlock" in describe_process_limit()
    monkeypatch.setattr(os, "sched_setscheduler", Mock(side_effect=PermissionError))
    assert "may be faster" in describe_process_limit()
