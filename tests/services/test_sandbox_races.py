"""Processes that move folders while a sandbox is made: the command sees what was meant, or it doesn't start."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from folders import put
from patience import until
from sandboxes import needs_sandbox, sandbox_for

from interlock.services.files.filesystem import OutputFiles
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.sandbox.mounts import Mounts
from interlock.services.sandbox.sandbox import find_bubblewrap
from interlock.state.errors import RunError
from interlock.state.tooling import ProcessEnd

SECRET = "KEY OF A PERSON"
SWAP = (
    "touch swapping; while :; do mv sub sub.real; ln -s {home} sub; mv sub link; mv sub.real sub;"
    " mv sub/AGENTS.md sub/other; mv sub/other sub/AGENTS.md; rm link; done 2>/dev/null"
)
"""At each moment `sub` is a folder, a link to the home directory, or missing."""
LOOK = "cat sub/key; ls sub; echo mine > sub/written; echo evil > sub/AGENTS.md; rm -f sub/written"
TRIES = 12


class Place:
    """A workspace beside a home directory whose content must neither be read nor changed."""

    def __init__(self, folder: Path, clones: Path | None) -> None:
        self.folder, self.clones = folder, clones
        self.work, self.home = (clones or folder) / "work", folder / "home"
        put(self.home / "key", SECRET)
        put(self.home / "AGENTS.md", "of the home")
        put(self.work / "sub/own", "")

    @asynccontextmanager
    async def processes(self) -> AsyncGenerator[SupervisedProcesses]:
        env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOME": str(self.home)}
        sandbox = sandbox_for(self.work, env=env, clones=self.clones)
        made = SupervisedProcesses(outputs=OutputFiles(self.folder), env=env, sandbox=sandbox)
        try:
            yield made
        finally:
            made.close()

    async def look(self, processes: SupervisedProcesses) -> ProcessEnd:
        return await processes.run(["bash", "-c", LOOK], cwd=self.work, timeout_s=60)

    def check_home(self) -> None:
        assert sorted(path.name for path in self.home.iterdir()) == ["AGENTS.md", "key"]
        assert (self.home / "AGENTS.md").read_text() == "of the home"


@pytest.fixture(params=["a workspace", "a worker's clone"])
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Place:
    needs_sandbox()
    clones = tmp_path / "clones" if request.param == "a worker's clone" else None
    if clones:
        put(clones / "other" / "notes.txt", SECRET)
    return Place(tmp_path, clones)


def test_a_background_command_of_the_run_moves_nothing_while_a_sandbox_is_made(place: Place) -> None:
    async def scene() -> list[ProcessEnd]:
        async with place.processes() as processes:
            swap = SWAP.format(home=place.home)
            await processes.start_in_background(["bash", "-c", swap], cwd=place.work, label="swap")
            await asyncio.to_thread(until, (place.work / "swapping").exists)
            found: list[ProcessEnd] = []
            for _ in range(TRIES):
                with suppress(FileNotFoundError):  # where `sub` is missing at this moment
                    (place.work / "sub/AGENTS.md").touch()
                found.append(await place.look(processes))
            assert all(one["running"] for one in processes.list_background_processes()), (
                "what was stopped goes on"
            )
            return found

    found = asyncio.run(scene())
    assert [ended.how for ended in found] == ["exited"] * TRIES
    assert not any(SECRET in ended.output for ended in found)
    place.check_home()


LED = """#!/bin/bash
arguments=("$@")
for i in "${{!arguments[@]}}"; do
  [[ -f {bin}/lead && ${{arguments[i]}} == --bind && ${{arguments[i+1]}} == {work}/sub ]] && arguments[i+1]={home}
done
exec {bwrap} "${{arguments[@]}}"
"""
"""What bubblewrap does if a folder is a link while it resolves the path, and a folder again when it mounts."""


def test_a_command_does_not_start_in_a_sandbox_that_is_not_what_was_meant(place: Place) -> None:
    put(place.work / "sub/AGENTS.md", "ours")
    folder, bwrap = place.folder / "bin", find_bubblewrap(os.environ)
    put(folder / "bwrap", LED.format(bin=folder, work=place.work, home=place.home, bwrap=bwrap))

    async def scene() -> None:
        async with place.processes() as processes:
            assert (await place.look(processes)).how == "exited"
            put(folder / "lead")
            ended = await place.look(processes)
            assert ended.how == "not_started" and f"{place.home.name}' is mounted at" in ended.output
            with pytest.raises(RunError, match="could not be started: its sandbox could not be made"):
                await processes.start_in_background(["bash", "-c", LOOK], cwd=place.work, label="look")

    asyncio.run(scene())
    place.check_home()
    assert (place.work / "sub/AGENTS.md").read_text() == "ours"


@pytest.mark.parametrize("name", ["sub/AGENTS.md", ".git/config", "sub/.env"])
def test_a_command_whose_protection_is_taken_away_from_outside_is_ended(place: Place, name: str) -> None:
    """Who replaces a file, as git and editors do, also takes away what is mounted on it."""
    put(place.work / ".git/HEAD", "ref: refs/heads/main\n")
    put(place.work / ".git/config", "[core]\n")
    put(place.work / "sub/AGENTS.md", "ours")
    put(place.work / "sub/.env", "SECRET")
    touched = f"cat {name} > seen; echo evil >> {name}; true"
    waits = f"touch ready; until [ -e go ]; do sleep 0.1; done; sleep 5; {touched}; sleep 60"

    async def scene() -> ProcessEnd:
        async with place.processes() as processes:
            running = asyncio.ensure_future(
                processes.run(["bash", "-c", waits], cwd=place.work, timeout_s=60)
            )
            await asyncio.to_thread(until, (place.work / "ready").exists)
            put(place.work.parent / "new", "new").replace(place.work / name)
            put(place.work / "go")
            return await running

    ended = asyncio.run(scene())
    assert (place.work / name).read_text() == "new" and not (place.work / "seen").exists()
    assert (ended.how, ended.signal) == ("exited", "SIGKILL")
    assert f"'{place.work / name}' was replaced meanwhile by something outside" in ended.hint


HOST = """\
1 0 8:1 / / rw - ext4 /dev/sda1 rw
2 1 8:2 / /home rw - ext4 /dev/sda2 rw
3 1 0:5 / /dev rw - devtmpfs devtmpfs rw
4 2 8:3 / /home/a\\040b/work/data rw - ext4 /dev/sda3 rw
"""
ROOT = "9 8 0:9 /newroot / ro - tmpfs tmpfs rw\n"
WORK = "10 9 8:2 /a\\040b/work /home/a\\040b/work rw - ext4 /dev/sda2 rw\n"
SUB = "11 10 8:2 /a\\040b/work/sub /home/a\\040b/work/sub rw - ext4 /dev/sda2 rw\n"
FILE = "12 11 8:2 /a\\040b/work/sub/AGENTS.md /home/a\\040b/work/sub/AGENTS.md ro - ext4 /dev/sda2 rw\n"
DATA = "13 10 8:3 / /home/a\\040b/work/data rw - ext4 /dev/sda3 rw\n"
HIDDEN = "14 10 0:5 /null /home/a\\040b/work/.env ro - devtmpfs devtmpfs rw\n"
MADE = ROOT + WORK + SUB + FILE + DATA + HIDDEN


@pytest.mark.parametrize(
    ("made", "difference"),
    [
        (MADE, None),
        (MADE.replace(" / ro ", " / rw "), "its root isn't read-only"),
        (MADE.replace(FILE, ""), "nothing is mounted at '/home/a b/work/sub/AGENTS.md'"),
        (MADE.replace("work/sub /home", "home /home"), "'/a b/home' is mounted at '/home/a b/work/sub'"),
        (MADE.replace("11 10 8:2", "11 10 8:1"), "'/a b/work/sub' is mounted at '/home/a b/work/sub'"),
        (
            MADE.replace("AGENTS.md ro", "AGENTS.md rw"),
            "what can be written is mounted at '/home/a b/work/sub/A",
        ),
        (MADE.replace("12 11 8:2", "12 10 8:2"), "the mount at '/home/a b/work/sub/AGENTS.md' is covered"),
        (MADE + SUB.replace("11 10 8:2 /a", "20 11 8:2 /x"), "'/x b/work/sub' is mounted"),
        (MADE + "20 9 8:2 / /home/a\\040b/.ssh rw - ext4 x rw\n", "something is mounted at '/home/a b/.ssh'"),
        (MADE + "20 10 8:2 /a /home/a\\040b/work/new rw - ext4 x rw\n", "something is mounted at"),
        (MADE.replace("13 10 8:3 /", "13 10 8:3 /x"), "something is mounted at '/home/a b/work/data'"),
        (MADE.replace("/sub /home", "/sub//deleted /home"), "'/a b/work/sub//deleted' is mounted"),
    ],
)
def test_a_sandbox_that_differs_from_what_was_meant_is_found(made: str, difference: str | None) -> None:
    mounts, work = Mounts(), Path("/home/a b/work")
    mounts.add_writable(work)
    mounts.pin_path(work / "sub")
    mounts.add_read_only(work / "sub/AGENTS.md")
    mounts.hide_path(work / ".env")
    found = mounts.find_mount_difference(made, HOST)
    assert found == difference if difference is None else found is not None and difference in found
