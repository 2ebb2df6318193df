"""Supervised commands: their results, what ends them, and that nothing is left behind."""

import asyncio
import gc
import hashlib
import os
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sandboxes import needs_sandbox, sandbox_for

from interlock.services.files.filesystem import OutputFiles
from interlock.services.process import processes
from interlock.services.process.processes import ProcessOutput, SupervisedProcesses
from interlock.services.process.supervisor_client import SUPERVISORS
from interlock.state.errors import RunError
from interlock.state.tooling import ProcessEnd


class Bench:
    """Processes in a folder."""

    def __init__(self, folder: Path, sandboxed: bool = False) -> None:
        self.folder = folder
        self.outputs = OutputFiles(folder / "state")
        env = {"PATH": os.environ["PATH"], "HELLO": "from env"}
        sandbox = sandbox_for(folder) if sandboxed else None
        self.processes = SupervisedProcesses(outputs=self.outputs, env=env, sandbox=sandbox)

    async def bash(self, command: str, **options: Any) -> ProcessEnd:
        options.setdefault("timeout_s", 30)
        return await self.processes.run(["bash", "-c", command], cwd=self.folder, **options)

    def saved(self) -> list[Path]:
        return sorted(self.outputs.directory.iterdir()) if self.outputs.directory.exists() else []


Play = Callable[[Callable[[Bench], Awaitable[Any]]], Any]


@pytest.fixture
def play(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Play]:
    """Run one coroutine with a bench; no descriptor and no process may be left over."""
    sandboxed = getattr(request, "param", None) == "sandboxed"
    if sandboxed:
        needs_sandbox()
    SUPERVISORS.ensure_started()  # its socket stays open
    gc.collect()  # garbage of earlier tests doesn't count
    before = open_descriptors()
    benches: list[Bench] = []

    async def inside(scene: Callable[[Bench], Awaitable[Any]]) -> Any:
        benches.append(Bench(tmp_path, sandboxed))
        return await scene(benches[-1])

    yield lambda scene: asyncio.run(inside(scene))
    for bench in benches:
        bench.processes.close()
    gc.collect()
    assert open_descriptors() == before


EITHER_WAY = pytest.mark.parametrize("play", ["on the machine", "sandboxed"], indirect=True)
"""For what a sandbox mustn't change."""


def open_descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@EITHER_WAY
@pytest.mark.parametrize(
    ("command", "exit_code", "signal", "output"),
    [
        ("exit 255", 255, None, ""),
        ("kill -9 $$", None, "SIGKILL", ""),
        ("kill -SEGV $$", None, "SIGSEGV", ""),
        # Both streams, in the order they were written; a pipe that closes ends its writer.
        ("echo one; echo two >&2; echo three", 0, None, "one\ntwo\nthree\n"),
        ("yes | head -n 1; echo ${PIPESTATUS[0]}", 0, None, "y\n141\n"),
        # The given environment alone, and nothing on stdin.
        ('echo "$HELLO $MORE ${HOME-unset}"; cat', 0, None, "from env of it unset\n"),
    ],
)
def test_a_commands_end_and_output_are_exact(
    play: Play, command: str, exit_code: int | None, signal: str | None, output: str
) -> None:
    ended = play(lambda bench: bench.bash(command, env={"MORE": "of it"}))
    assert (ended.how, ended.exit_code, ended.signal, ended.output) == ("exited", exit_code, signal, output)
    assert (ended.omitted, ended.full_output, ended.note) == (0, None, "")


@EITHER_WAY
def test_stdin_is_what_was_given(play: Play) -> None:
    data = os.urandom(300_000)
    ended = play(lambda bench: bench.bash("sha256sum", stdin=data))
    assert ended.output.split()[0] == hashlib.sha256(data).hexdigest()


@EITHER_WAY
def test_output_is_shown_while_it_comes_and_characters_are_never_cut(play: Play, tmp_path: Path) -> None:
    """The command continues once its first output was seen."""
    go, seen = tmp_path / "go", list[str]()

    def show(text: str) -> None:
        seen.append(text)
        go.touch()

    command = rf"printf 'h\xc3'; while [ ! -e {go} ]; do sleep 0.02; done; printf '\xa9'; printf 'bad\xff'"
    ended = play(lambda bench: bench.bash(command, on_output=show))
    assert ended.output == "".join(seen) == "hébad\\xff"
    assert seen[0] == "h"


@EITHER_WAY
def test_long_output_keeps_head_and_tail_and_one_file_with_every_byte(play: Play) -> None:
    """Named by what it holds; output that fits needs none."""

    async def scene(bench: Bench) -> tuple[ProcessEnd, ...]:
        outputs = [await bench.bash("seq 1 200000", limit_chars=limit) for limit in (1000, 2000)]
        fits = await bench.bash("head -c 1000 /dev/zero | tr '\\0' x", limit_chars=1000)
        assert bench.saved() == [bench.outputs.save_bytes(whole.encode())]
        return *outputs, fits

    whole = "".join(f"{n}\n" for n in range(1, 200001))
    ended, again, fits = play(scene)
    assert ended.output.startswith(whole[:200] + "\n[… ")
    assert ended.output.endswith(whole[-800:])
    assert ended.omitted == len(whole) - 1000
    assert f"{ended.omitted:,} characters left out" in ended.output
    assert ended.full_output == again.full_output and ended.full_output.read_text() == whole
    assert (len(fits.output), fits.omitted, fits.full_output) == (1000, 0, None)


def test_much_output_costs_little_memory(play: Play) -> None:
    async def scene(bench: Bench) -> tuple[ProcessEnd, int]:
        tracemalloc.start()
        ended = await bench.bash("head -c 30000000 /dev/zero | tr '\\0' x", timeout_s=120)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return ended, peak

    ended, peak = play(scene)
    assert ended.full_output is not None and ended.full_output.stat().st_size == 30_000_000
    assert peak < 3_000_000


def test_a_full_disk_is_said_and_the_ends_are_kept(tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    outputs = OutputFiles(tmp_path)
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    outputs.create_spool_file = lambda: full  # type: ignore[method-assign]
    output = ProcessOutput(100, outputs)
    for _ in range(20):
        output.feed_bytes(b"x" * 9999)
    output.feed_bytes(b"the end")
    assert output.save_full_output() is None
    assert "No space left" in output.note
    assert output.truncated_text().endswith("the end") and output.omitted_characters == 20 * 9999 + 7 - 100


def test_endless_output_does_not_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.services.process.processes.SPOOL_BYTES", 5000)
    output = ProcessOutput(100, OutputFiles(tmp_path))
    for _ in range(20):
        output.feed_bytes(b"x" * 999)
    saved = output.save_full_output()
    assert saved is not None and saved.stat().st_size == 5000
    assert "first 5,000 bytes" in output.note


class Clock:
    """Stands still until the command has said something: limits count from there, however long it took to begin."""

    def __init__(self) -> None:
        self._made, self._begun = time.monotonic(), 0.0

    def monotonic(self) -> float:
        return self._made + (time.monotonic() - self._begun if self._begun else 0)

    def begin(self, _: str) -> None:
        self._begun = self._begun or time.monotonic()


Begins = Callable[[str], None]


@pytest.fixture
def begins(monkeypatch: pytest.MonkeyPatch) -> Begins:
    """To be told of the command's output."""
    clock = Clock()
    monkeypatch.setattr(processes, "time", clock)
    return clock.begin


@dataclass
class Beat:
    """A shell loop that shows in a file that it runs."""

    file: Path

    def __post_init__(self) -> None:
        self.loop = f"while :; do date +%N > {self.file}; sleep 0.05; done"
        self.wait = f"while [ ! -e {self.file} ]; do sleep 0.02; done"

    def assert_still(self) -> None:
        assert self.file.exists()
        last = self.file.read_text()
        time.sleep(0.3)
        assert self.file.read_text() == last


@pytest.fixture
def beat(tmp_path: Path) -> Beat:
    return Beat(tmp_path / "beat")


@EITHER_WAY
@pytest.mark.parametrize("limit", ["timeout", "inactivity"])
def test_time_limits_end_the_whole_tree_and_keep_the_output(
    play: Play, begins: Begins, beat: Beat, limit: str
) -> None:
    command = f"setsid bash -c '{beat.loop}' & {beat.wait}; echo partial; sleep 7777"
    ended = play(lambda bench: bench.bash(command, on_output=begins, **{f"{limit}_s": 0.2}))
    assert (ended.how, ended.signal, ended.output) == (limit, "SIGTERM", "partial\n")
    beat.assert_still()


@pytest.mark.sample(2)
@EITHER_WAY
@pytest.mark.parametrize(
    ("on_term", "exit_code", "signal", "output"),
    [("", None, "SIGKILL", "up\n"), ("echo cleaned; exit 4", 4, None, "up\ncleaned\n")],
    ids=["ignores the polite stop", "cleans up"],
)
def test_a_command_may_clean_up_when_it_is_stopped_and_is_killed_if_it_goes_on(
    play: Play, begins: Begins, on_term: str, exit_code: int | None, signal: str | None, output: str
) -> None:
    command = f"trap '{on_term}' TERM; echo up; while :; do sleep 0.1; done"
    ended = play(lambda bench: bench.bash(command, on_output=begins, timeout_s=0.2))
    assert (ended.how, ended.exit_code, ended.signal) == ("timeout", exit_code, signal)
    assert ended.output.replace("Terminated\n", "") == output, "but for what bash says of its own sleep"


def test_output_resets_the_inactivity_clock(
    play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on with each output, which the command waits to see taken."""
    taken, began = list[str](), time.monotonic()
    monkeypatch.setattr(processes, "time", SimpleNamespace(monotonic=lambda: began + 0.08 * len(taken)))

    def take(text: str) -> None:
        taken.append(text)
        (tmp_path / f"{len(taken)}").touch()

    command = "for i in $(seq 20); do echo $i; while [ ! -e $i ]; do sleep 0.02; done; done"
    ended = play(lambda bench: bench.bash(command, on_output=take, inactivity_s=0.1))
    assert (ended.how, ended.exit_code, len(taken)) == ("exited", 0, 20)


@EITHER_WAY
def test_a_task_that_is_torn_down_takes_its_command_along(play: Play, beat: Beat) -> None:
    async def scene(bench: Bench) -> None:
        task = asyncio.create_task(bench.bash(beat.loop))
        while not beat.file.exists():
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    play(scene)
    beat.assert_still()


@EITHER_WAY
def test_what_a_finished_command_left_behind_is_ended(play: Play, beat: Beat) -> None:
    command = f"nohup setsid bash -c '{beat.loop}' >/dev/null 2>&1 & {beat.wait}; echo ok"
    ended = play(lambda bench: bench.bash(command))
    assert (ended.how, ended.exit_code, ended.output) == ("exited", 0, "ok\n")
    beat.assert_still()


@pytest.mark.parametrize("who", ["$PPID", "$(ps -o ppid= -p $PPID) $PPID"], ids=["worker", "both"])
def test_silence_of_a_killed_supervisor_is_no_result(play: Play, beat: Beat, who: str) -> None:
    """The command doesn't outlive it either: neither what stays in its session nor what left it."""
    command = f"setsid bash -c '{beat.loop}' & {beat.wait}; kill -9 {who}; sleep 7777"
    ended = play(lambda bench: bench.bash(command))
    assert (ended.how, ended.exit_code, ended.signal) == ("lost", None, None)
    beat.assert_still()


BIG = "x=$(head -c 200000000 /dev/zero | tr '\\0' x); sleep 60"


@pytest.mark.parametrize(
    ("most", "command", "told"),
    [
        ((20, 0), "for i in $(seq 60); do sleep 60 & done; wait", "more than 20 processes"),
        ((0, 80 << 20), BIG, "more than 80 MB of memory"),
    ],
)
@EITHER_WAY
def test_a_command_that_uses_too_much_is_ended(
    play: Play, most: tuple[int, int], command: str, told: str
) -> None:
    async def scene(bench: Bench) -> ProcessEnd:
        plain = bench.processes
        getattr(plain, "_plain", plain)._most = most
        return await bench.bash(command)

    ended = play(scene)
    assert (ended.how, ended.excess) == ("limit", told)


@pytest.mark.parametrize(
    ("argv", "cwd", "said"),
    [
        (["no-such-program-here"], ".", "No such file or directory: 'no-such-program-here'"),
        (["true"], "missing", "missing"),
        (["echo", "nul\0byte"], ".", "null byte"),
        (["echo", "x" * 3_000_000], ".", "Argument list too long"),
    ],
)
def test_what_can_not_start_says_why(
    play: Play, tmp_path: Path, argv: list[str], cwd: str, said: str
) -> None:
    ended = play(lambda bench: bench.processes.run(argv, cwd=tmp_path / cwd, timeout_s=5))
    assert ended.how == "not_started"
    assert said in ended.output


def test_a_background_command_goes_on_and_its_output_is_in_a_file(play: Play) -> None:
    async def scene(bench: Bench) -> None:
        pid = await bench.processes.start_in_background(
            ["bash", "-c", "echo $$; sleep 60"], cwd=bench.folder, label="server"
        )
        (info,) = bench.processes.list_background_processes()
        assert (info["pid"], info["label"], info["running"], info["exit_code"]) == (pid, "server", True, None)
        output = Path(info["output_file"])
        while not output.read_text():
            await asyncio.sleep(0.02)
        assert output.read_text() == f"{pid}\n"
        assert output.parent == bench.outputs.directory
        bench.processes.close()
        assert not Path(f"/proc/{pid}").exists()
        assert not bench.processes.list_background_processes()[0]["running"]

    play(scene)


@EITHER_WAY
def test_a_background_command_that_ended_says_how(play: Play) -> None:
    async def scene(bench: Bench) -> list[int | None]:
        for command in ("exit 7", "kill -9 $$"):
            await bench.processes.start_in_background(
                ["bash", "-c", command], cwd=bench.folder, label=command
            )
        while any(one["running"] for one in bench.processes.list_background_processes()):
            await asyncio.sleep(0.02)
        return [one["exit_code"] for one in bench.processes.list_background_processes()]

    assert play(scene) == [7, -9]


def test_a_background_command_that_can_not_start_is_an_error_and_forgets_no_other(play: Play) -> None:
    async def scene(bench: Bench) -> None:
        wrong = bench.processes.start_in_background(["no-such-program"], cwd=bench.folder, label="wrong")
        right = bench.processes.start_in_background(["sleep", "60"], cwd=bench.folder, label="right")
        failed, _ = await asyncio.gather(wrong, right, return_exceptions=True)
        assert isinstance(failed, RunError)
        assert "'wrong' could not be started: No such file" in str(failed)
        assert [one["label"] for one in bench.processes.list_background_processes()] == ["right"]
        assert len(bench.saved()) == 1

    play(scene)


def test_commands_go_on_after_the_process_that_forks_their_supervisors_was_killed(play: Play) -> None:
    """Those that run aren't disturbed, the next start another one, and it knows no variable of theirs."""
    forker = "$(ps -o ppid= -p $(ps -o ppid= -p $PPID))"
    environment = f"tr '\\0' '\\n' < /proc/$(echo {forker})/environ"

    async def scene(bench: Bench) -> list[ProcessEnd]:
        return [await bench.bash(f"kill -9 {forker}; sleep 0.1; echo on"), await bench.bash(environment)]

    first, second = play(scene)
    assert (first.how, first.output) == (second.how, "on\n") == ("exited", "on\n")
    assert (second.exit_code, second.output) == (0, "")


def test_works_in_a_process_forked_from_one_that_ran_commands(tmp_path: Path) -> None:
    asyncio.run(Bench(tmp_path).bash("true"))
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            code = asyncio.run(Bench(tmp_path).bash("exit 5")).exit_code or 98
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5


def test_works_on_a_loop_that_is_not_in_the_main_thread(tmp_path: Path) -> None:
    async def outer() -> ProcessEnd:
        return await asyncio.to_thread(lambda: asyncio.run(Bench(tmp_path).bash("echo there")))

    assert asyncio.run(outer()).output == "there\n"
