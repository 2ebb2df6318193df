"""Nothing that a run started outlives it: real processes, really killed."""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
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


def until(condition: Callable[[], bool], seconds: float) -> float | None:
    """Seconds until the condition held; None: it never did."""
    start = time.monotonic()
    while time.monotonic() - start < seconds:
        if condition():
            return time.monotonic() - start
        time.sleep(0.005)
    return None


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
        assert until(lambda: named(marker), 20) is not None, "the command never started"
        if shape == "stopped":
            assert until(lambda: any(is_stopped(pid) for pid in alive(marker)), 20) is not None
    finally:
        killed = time.monotonic()
        driver.kill()
        driver.wait()
    gone = until(lambda: not alive(marker), 5) is not None
    took = time.monotonic() - killed
    print(f"kill -9 with {shape} ({mode}): {'all gone' if gone else 'survivors'} after {took:.3f} s")
    assert gone and took < 2
    assert until(lambda: not supervisors(marker), 5) is not None


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
        assert until(lambda: named(marker), 20) is not None
        time.sleep(0.6)  # the command itself has ended by then
        assert named(marker)
    finally:
        driver.kill()
        driver.wait()
    assert until(lambda: not alive(marker), 2) is not None


@pytest.mark.parametrize("which", [0, 1], ids=["guard", "worker"])
def test_nothing_survives_a_killed_supervisor_and_run(tmp_path: Path, marker: str, which: int) -> None:
    driver = start_driver(tmp_path, "once", command_of("double_fork", marker))
    try:
        assert until(lambda: named(marker), 20) is not None
        pair = supervisors(marker)
        assert len(pair) == 2
        os.kill(pair[which], signal.SIGKILL)
        if which == 1:
            assert until(lambda: not alive(marker), 2) is not None, "the guard did not clean up"
    finally:
        driver.kill()
        driver.wait()
    assert until(lambda: not alive(marker) and not supervisors(marker), 2) is not None


def test_a_supervisor_told_to_end_takes_all_with_it(tmp_path: Path, marker: str) -> None:
    driver = start_driver(tmp_path, "once", command_of("setsid", marker))
    try:
        assert until(lambda: named(marker), 20) is not None
        os.kill(supervisors(marker)[1], signal.SIGTERM)
        assert until(lambda: not alive(marker), 2) is not None
    finally:
        driver.kill()
        driver.wait()


def test_linux_has_nothing_to_note_about_escapes() -> None:
    assert escape_note() is None


def test_other_systems_say_what_can_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "process group" in (escape_note() or "")
