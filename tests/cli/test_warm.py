"""`interlock warm`: starts that are handed over to a process which has imported everything, beside ordinary ones."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import warm
from folders import put
from patience import HANG_S, until
from session.terminal import FROM_NOTHING, Terminal

ENTRY = FROM_NOTHING[0]
SECRET = "sk-" + "warm0123456789abcdef" * 2
TELLS = "echo $FOO; pwd; umask; ulimit -n; cat /dev/fd/0 | wc -c"
SLOW = "echo begun > begun; sleep 600"

if not sys.platform.startswith("linux"):
    pytest.skip("a warm start needs Linux", allow_module_level=True)


def script(folder: Path, command: str) -> list[str]:
    calls = [{"name": "run_shell_command", "args": {"command": command}}]
    put(folder / "s.json", [{"tool_calls": calls}, {"text": "Done."}])
    return ["-y", "-p", "hi", "-m", "script:s.json"]


class Place:
    """A folder, and commands that are started in it with an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "INTERLOCK_HOME": str(folder / "state"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
            "LANG": "C.UTF-8",
            "FOO": "bar",
            "OPENAI_API_KEY": SECRET,
            "LANGGRAPH_API_KEY": SECRET,
        }
        for made in (self.folder, folder / "run"):
            made.mkdir(mode=0o700)

    def start(self, *arguments: str, before: Sequence[str] = (), **how: Any) -> "subprocess.Popen[str]":
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        given: dict[str, Any] = {**pipes, "cwd": self.folder, "env": self.env, "text": True, **how}
        return subprocess.Popen([*before, ENTRY, *arguments], **given)

    def run(self, *arguments: str, piped: str = "", **how: Any) -> "subprocess.CompletedProcess[str]":
        process = self.start(*arguments, **how)
        out, err = process.communicate(piped, timeout=HANG_S)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def told(self, **how: Any) -> dict[str, Any]:
        return json.loads(self.run("warm", "--json", **how).stdout)

    def fork(self) -> int:
        """The one command that is under way."""
        pid = self.told()["process"]
        until(lambda: len(started(pid)) == 1, "the end of the fork that was only asked")
        return started(pid)[0]


def children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(child) for child in found]


def started(pid: int) -> list[int]:
    """Children that have become a command; the one that waits is still of its parent's session."""
    found: list[int] = []
    for child in children(pid):
        with suppress(ProcessLookupError):  # it has ended since
            found += [child] if os.getsid(child) == child else []
    return found


@pytest.fixture(autouse=True, scope="module")
def as_from_a_shell() -> Generator[None]:
    """Commands get the signals that a shell gives them, also where the tests themselves run in the background."""
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
    ignored = [number for number in numbers if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.fixture
def place(tmp_path: Path) -> Generator[Place]:
    made = Place(tmp_path)
    own = {**made.env}
    yield made
    if (tmp_path / "run" / "interlock").exists():
        made.run("warm", "--stop", env=own)


@pytest.fixture(scope="module")
def shared(as_from_a_shell: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[Place]:
    made = Place(tmp_path_factory.mktemp("warm"))
    yield made
    made.run("warm", "--stop")


@pytest.fixture
def warmed(place: Place, shared: Place) -> Place:
    """A place of one's own, and a warm process for all tests that leave it alone."""
    place.env["XDG_RUNTIME_DIR"] = shared.env["XDG_RUNTIME_DIR"]
    done = place.run("warm")
    assert done.stdout.startswith("Commands start warm from here (process "), done
    return place


def shown(done: "subprocess.CompletedProcess[str]") -> tuple[int, str, str]:
    return done.returncode, done.stdout, re.sub(r" · [0-9.]+ m?s\b", "", done.stderr)


def test_a_warm_start_does_and_says_what_an_ordinary_one_does(place: Place) -> None:
    def all_ways() -> list[tuple[int, str, str]]:
        calls = script(place.folder, TELLS)
        return [
            shown(place.run(*calls, piped="piped", umask=0o027)),
            shown(place.run(*calls, "--output-format", "json", "--nothing")),
            shown(place.run("run", "nothing")),
        ]

    cold = all_ways()
    assert "bar" in cold[0][2] and "0027" in cold[0][2] and cold[0][0] == 0 and cold[1][0] == 2
    place.run("warm")
    assert all_ways() == cold


@pytest.mark.skipif(os.geteuid() != 0, reason="only root sees the descriptors of a process that hides them")
def test_it_is_forked_and_gets_its_descriptors_and_no_starter_shows_its_environment(warmed: Place) -> None:
    calls = script(warmed.folder, SLOW)
    read, write = os.pipe()
    process = warmed.start(*calls, pass_fds=[write])
    os.close(write)
    until(lambda: (warmed.folder / "begun").exists())
    forked = warmed.fork()
    assert Path(f"/proc/{forked}/fd/{write}").readlink() == Path(f"/proc/self/fd/{read}").readlink()
    assert children(process.pid) == []
    shown = [Path(f"/proc/{pid}/environ").read_bytes() for pid in (process.pid, forked)]
    assert [text.strip(b"\0") for text in shown] == [b"", b""]
    process.kill()
    process.communicate()
    until(lambda: not Path(f"/proc/{forked}").exists())
    os.close(read)


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("sent", "to", "code"),
    [
        (signal.SIGINT, "the start", 130),
        (signal.SIGTERM, "the start", 130),
        (signal.SIGKILL, "the start", -9),
        (signal.SIGKILL, "the fork", -9),
    ],
    ids=str,
)
def test_a_signal_ends_it_as_it_ends_an_ordinary_start_and_the_run_can_be_resumed(
    warmed: Place, sent: signal.Signals, to: str, code: int
) -> None:
    process = warmed.start(*script(warmed.folder, SLOW))
    until(lambda: (warmed.folder / "begun").exists())
    forked = warmed.fork()
    os.kill(forked if to == "the fork" else process.pid, sent)
    process.communicate(timeout=HANG_S)
    assert process.returncode == code
    until(lambda: not Path(f"/proc/{forked}").exists())
    (run,) = json.loads(warmed.run("runs", "--json").stdout)
    assert run["status"] == "interrupted"


def test_a_fork_made_ahead_becomes_a_start_and_one_that_is_killed_delays_none(warmed: Place) -> None:
    pid = warmed.told()["process"]

    def made() -> int:
        ahead = {*children(pid)} - {*started(pid)}
        return max(ahead, default=0)

    def become() -> bool:
        """A start that finds it rehearsing gets a fork of its own."""
        process = warmed.start(*script(warmed.folder, SLOW))
        until((warmed.folder / "begun").exists)
        found = started(pid)
        process.kill()
        process.communicate()
        (warmed.folder / "begun").unlink()
        until(lambda: not started(pid), "the end of the fork")
        return found == [ahead]

    until(made, "a fork ahead")
    ahead = made()
    until(become, "the fork ahead as a start")
    until(made, "another fork ahead")
    os.kill(made(), signal.SIGKILL)
    assert shown(warmed.run(*script(warmed.folder, "echo worked")))[0] == 0
    told = warmed.told()
    assert told["warm"] and told["process"] == pid


@pytest.mark.sample(1)
@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_what_was_started_outlives_the_warm_process_and_a_new_one_can_begin(warmed: Place, how: str) -> None:
    process = warmed.start(
        *script(warmed.folder, "echo begun > begun; while [ ! -e go ]; do sleep 0.05; done")
    )
    until(lambda: (warmed.folder / "begun").exists())
    pid = warmed.told()["process"]
    if how == "killed":
        os.kill(pid, signal.SIGKILL)
    else:
        assert warmed.run("warm", "--stop").stdout == f"The warm process {pid} has ended.\n"
    assert warmed.run("warm", "--stop").stdout == "There was no warm process.\n"
    assert warmed.told()["warm"]
    (warmed.folder / "go").touch()
    out, _ = process.communicate(timeout=HANG_S)
    assert process.returncode == 0 and "Done." in out


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512))


def deaf() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


ELSEWHERE: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("another limits", {"preexec_fn": limited}, {}),
    ("another rights and signals", {"preexec_fn": deaf}, {}),
    ("another priority", {"preexec_fn": lambda: os.nice(3)}, {}),
    ("another namespace", {"before": ("unshare", "--mount")}, {}),
    ("another variables", {}, {"PYTHONDEVMODE": "1"}),
    ("another variables", {}, {"LANG": "C"}),
    ("CI is set", {}, {"CI": "true"}),
    ("it runs under sudo", {}, {"SUDO_UID": "1000"}),
]


def test_a_start_in_another_place_is_an_ordinary_one(warmed: Place) -> None:
    for why, how, env in ELSEWHERE:
        if subprocess.run([*how.get("before", ()), "true"], capture_output=True, check=False).returncode:
            continue  # this user can't make a namespace
        given: dict[str, Any] = {**how, "env": {**warmed.env, **env}}
        assert warmed.told(**given)["why"] == why
    cold = {**warmed.env, "CI": "true"}
    assert "a start from here is cold: CI is set" in warmed.run("doctor", env=cold).stdout
    assert shown(warmed.run(*script(warmed.folder, "echo worked"), env=cold))[0] == 0
    assert warmed.told()["warm"]


@pytest.mark.sweep
def test_a_start_without_a_locale_is_warm_until_code_changes(place: Place) -> None:
    del place.env["LANG"]
    changed = place.folder.parent / "sitecustomize.py"
    changed.touch()
    place.env["PYTHONPATH"] = str(changed.parent)
    pid = place.told()["process"]
    assert place.told()["warm"]
    changed.write_text("changed = True")
    assert place.told()["why"] == "sitecustomize.py has changed"
    until(lambda: not Path(f"/proc/{pid}").exists())


def test_it_keeps_no_secret_no_file_and_no_thread(warmed: Place) -> None:
    assert warmed.run(*script(warmed.folder, "echo $OPENAI_API_KEY")).returncode == 0
    pid = warmed.told()["process"]
    assert SECRET.encode() in warm.memory_of(os.getpid())
    assert SECRET.encode() not in warm.memory_of(pid)
    assert SECRET not in Path(f"/proc/{pid}/environ").read_text()
    kinds = [str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()]
    files = [
        kind
        for kind in kinds
        if not kind.startswith(("/dev/null", "socket:", "pipe:")) and ".so." not in kind
    ]
    assert files == [f"{warmed.env['XDG_RUNTIME_DIR']}/interlock"]
    assert len([*Path(f"/proc/{pid}/task").iterdir()]) == 1


def test_a_folder_that_others_can_enter_is_refused(place: Place) -> None:
    folder = Path(place.env["XDG_RUNTIME_DIR"]) / "interlock"
    folder.mkdir()
    folder.chmod(0o755)
    done = place.run("warm")
    assert done.returncode == 1
    assert f"{folder} is open to other users (chmod 700 it)" in done.stderr
    folder.chmod(0o700)


@pytest.mark.sweep
def test_a_setting_begins_it_with_the_first_run_and_it_ends_when_it_is_not_used(place: Place) -> None:
    put(place.folder.parent / ".interlock" / "settings.json", {"start": {"keepWarm": "1s"}})
    door = Path(place.env["XDG_RUNTIME_DIR"]) / "interlock" / "warm"
    assert place.run(*script(place.folder, "echo worked")).returncode == 0
    until(door.exists)
    until(lambda: not door.exists())
    refused = place.run("warm", "--for", "soon")
    assert refused.returncode == 2 and "isn't a duration such as 90s, 15m or 2h" in refused.stderr


@pytest.mark.parametrize("how", ["warm", pytest.param("cold", marks=pytest.mark.sweep)])
def test_a_session_and_a_prompt_heed_the_shells_jobs_ctrl_c_and_a_new_size(warmed: Place, how: str) -> None:
    words = " ".join(f"word{n:02}" for n in range(20))
    put(warmed.folder / "said.json", [{"text": f"1. {words}."}])
    script(warmed.folder, SLOW)
    env = {**warmed.env, "PS1": "shell> ", **({"CI": "1"} if how == "cold" else {})}
    with Terminal(
        warmed.folder, columns=140, env=env, command=("/bin/bash", "--norc", "--noprofile", "-i")
    ) as terminal:
        terminal.until("shell> ")
        terminal.type(f"{ENTRY} -y -m script:said.json\r")
        terminal.waits_for("›")
        if how == "warm":
            assert warmed.fork()
        terminal.press("c-z", then="Stopped")
        terminal.type("bg; wait %1; clear; jobs; echo listed $((40 + 1))\r", then="listed 41")
        assert any("Stopped" in line for line in terminal.screen)
        terminal.type("echo in the $((40 + 2))nd shell\r", then="in the 42nd shell")
        terminal.type("fg\r")
        terminal.waits_for("›")
        terminal.resize(40, 30)
        terminal.say("hi", then="word19.")
        terminal.waits_for("\n   word05 word06 word07 word08 word09\n")
        terminal.press("c-d", then="Go on with")
        terminal.waits_for_line("shell>$")
        terminal.type(f"{ENTRY} -y -p hi -m script:s.json; echo code $((0 + $?))\r")
        until(lambda: (warmed.folder / "begun").exists())
        terminal.press("c-c", then="code 130")
        terminal.type("stty -a | grep -o ' icanon'\r", then="\n icanon")
        terminal.type("exit\r")
        assert terminal.ends() in (0, 130)
