"""Nothing that a run started outlives it: real processes, really killed."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from patience import until
from sandboxes import needs_sandbox

from interlock.services.process.supervisor import escape_note

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
    """A word in the command lines of what a test starts; whatever is left at its end is killed."""
    word = f"interlock-survivor-{secrets.token_hex(6)}"
    yield word
    for pid in alive(word):
        os.kill(pid, signal.SIGKILL)


def alive(marker: str) -> list[int]:
    """Processes with the marker among their arguments, supervisors and the driver left out."""
    found: list[int] = []
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "cmdline").read_bytes()
            except OSError:
                continue
            if marker.encode() in line and b"supervisor.py" not in line and b"kill_driver" not in line:
                found.append(int(process.name))
    return found


def supervisors(marker: str) -> list[int]:
    """Guard and worker of the marked command, the guard first."""
    out = subprocess.run(
        ["pgrep", "-f", f"supervisor.py .*{marker}"], capture_output=True, text=True, check=False
    )
    return sorted(int(pid) for pid in out.stdout.split())


def start_driver(folder: Path, mode: str, command: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(DRIVER), str(folder), mode, command])


def command_of(shape: str, marker: str) -> str:
    # `exec -a` names the process, so that it is found whatever became of its parents.
    return SHAPES[shape].format(body=f'bash -c "exec -a {marker} sleep 7777"')


@pytest.mark.parametrize("mode", ["once-sandboxed", "background-sandboxed"])
@pytest.mark.parametrize("shape", ["setsid", "double_fork", "ignores_signals"])
def test_nothing_survives_a_killed_run_in_a_sandbox(
    tmp_path: Path, marker: str, shape: str, mode: str
) -> None:
    needs_sandbox()
    test_nothing_survives_a_killed_run(tmp_path, marker, shape, mode)


@pytest.mark.parametrize("mode", ["once", "background"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "ampersand_ended"])
def test_nothing_survives_a_killed_run(tmp_path: Path, marker: str, shape: str, mode: str) -> None:
    command = command_of(shape, marker)
    driver = start_driver(tmp_path, mode, command)
    try:
        until(lambda: named(marker), "the command")
        if shape == "stopped":
            until(lambda: any(is_stopped(pid) for pid in alive(marker)))
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not alive(marker) and not supervisors(marker), "the end of all")


def named(marker: str) -> bool:
    """Whether the innermost process runs (its own name is the marker)."""
    return any(name_of(pid) == marker for pid in alive(marker))


def is_stopped(pid: int) -> bool:
    try:
        return "State:\tT" in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()
    except OSError:
        return ""


@pytest.mark.parametrize("mode", ["background", "background-sandboxed"])
def test_what_a_background_command_left_behind_lives_until_the_run_ends(
    tmp_path: Path, marker: str, mode: str
) -> None:
    if mode.endswith("sandboxed"):
        needs_sandbox()
    driver = start_driver(tmp_path, mode, command_of("ampersand_ended", marker))
    try:
        until(lambda: named(marker))
        time.sleep(0.6)  # the command itself has ended by then
        assert named(marker)
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not alive(marker))


@pytest.mark.parametrize("which", [0, 1], ids=["guard", "worker"])
def test_nothing_survives_a_killed_supervisor_and_run(tmp_path: Path, marker: str, which: int) -> None:
    driver = start_driver(tmp_path, "once", command_of("double_fork", marker))
    try:
        until(lambda: named(marker))
        pair = supervisors(marker)
        assert len(pair) == 2
        os.kill(pair[which], signal.SIGKILL)
        if which == 1:
            until(lambda: not alive(marker), "the guard's clean-up")
    finally:
        driver.kill()
        driver.wait()
    until(lambda: not alive(marker) and not supervisors(marker))


def test_a_supervisor_told_to_end_takes_all_with_it(tmp_path: Path, marker: str) -> None:
    driver = start_driver(tmp_path, "once", command_of("setsid", marker))
    try:
        until(lambda: named(marker))
        os.kill(supervisors(marker)[1], signal.SIGTERM)
        until(lambda: not alive(marker))
    finally:
        driver.kill()
        driver.wait()


def test_linux_has_nothing_to_note_about_escapes() -> None:
    assert escape_note() is None


def test_other_systems_say_what_can_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "process group" in (escape_note() or "")
