"""Runs of models that think, for each protocol: stopped in an answer, replayed, forked, gone on with by another vendor.

A run that is stopped while its model thinks or writes a long call goes on with nothing lost or done twice. What the
model is sent afterwards is, byte for byte, what it is sent in an undisturbed run, with its own thinking.
"""

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from commands import execute
from patience import HANG_S, sampled
from serving import serving
from thinking_server import ThinkingServer, Turn
from warm import Warm

LONG = "".join(f"line {n} of a long file\n" for n in range(400))
TURNS = [
    Turn("First I write the file, as I was asked to. " * 8, "", "write_file")._replace(
        args={"file_path": "long.txt", "content": LONG}
    ),
    Turn("Now the command has to run, once and not twice. " * 8, "I run it.", "run_shell_command")._replace(
        args={"command": "echo ran >> ran.txt"}
    ),
    Turn("All of it is done. " * 8, "Done: the file is written and the command ran."),
]
PROTOCOLS = {
    "gemini": ("gemini-2.5-pro", "langchain_google_genai"),
    "chat": ("openrouter:anthropic/claude-sonnet-5-5", "langchain_openai"),
    "responses": ("openai:gpt-5-codex", "langchain_openai"),
    "anthropic": ("anthropic:claude-opus-5-5", "langchain_anthropic"),
    "converse": ("bedrock:us.anthropic.claude-opus-5-5-v1:0", "langchain_aws"),
    "ollama": ("ollama:qwen3", "langchain_ollama"),
}
MOMENTS = {"a long call": (0, 0.7), "a thought": (1, 0.2)}


class Place(NamedTuple):
    """A folder, the state directory, and the server of a run."""

    work: Path
    state: Path
    server: ThinkingServer
    protocol: str

    @property
    def model(self) -> str:
        return PROTOCOLS[self.protocol][0]

    @property
    def env(self) -> dict[str, str]:
        keys = ("ANTHROPIC", "OPENAI", "OPENROUTER", "GEMINI")
        url = self.server.url
        # The name of a server elsewhere: one on this machine has models of its own.
        elsewhere = "http://models.example/v1"
        return {
            **os.environ,
            **{f"{name}_API_KEY": "k" for name in keys},
            "ANTHROPIC_BASE_URL": url,
            "GOOGLE_GEMINI_BASE_URL": url,
            "OLLAMA_HOST": url,
            "OPENAI_BASE_URL": elsewhere,
            "OPENROUTER_BASE_URL": elsewhere,
            "HTTP_PROXY": url,
            "http_proxy": url,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
            "AWS_ACCESS_KEY_ID": "k",
            "AWS_SECRET_ACCESS_KEY": "k",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": url,
            "INTERLOCK_HOME": str(self.state),
        }

    def fresh(self) -> None:
        for folder in (self.work, self.state):
            shutil.rmtree(folder, ignore_errors=True)
        self.work.mkdir()
        self.server.bodies.clear()
        self.server.asked.clear()

    def begin(self) -> tuple[str, ...]:
        return ("-m", self.model, "-y", "-o", "json", "-p", "Write the file and run the command.")

    def ask(self, *arguments: str) -> dict[str, Any]:
        done = execute(self.work, *arguments, env=self.env)
        assert done.returncode == 0, f"{done.stdout}{done.stderr}"
        return json.loads(done.stdout) if done.stdout else {}

    def stopped(self, number: int) -> None:
        """Begin a run, and end its process by a signal while the server holds an answer."""
        process = Warm(self.begin(), cwd=self.work, env=self.env, stderr=subprocess.DEVNULL)
        assert self.server.held.wait(HANG_S)
        process.send_signal(number)
        assert process.wait(HANG_S) != 0
        self.server.go_on.set()

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in self.work.iterdir() if path.is_file()}


@pytest.fixture
def server() -> Iterator[ThinkingServer]:
    with serving(ThinkingServer(TURNS)) as made:
        yield made


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, server: ThinkingServer) -> Place:
    pytest.importorskip(PROTOCOLS[request.param][1])
    found = Place(tmp_path / "work", tmp_path / "state", server, request.param)
    found.fresh()
    return found


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("a long call", signal.SIGKILL),
        pytest.param("a thought", signal.SIGTERM, marks=pytest.mark.sweep),
        pytest.param("a long call", signal.SIGTERM, marks=pytest.mark.sweep),
        pytest.param("a thought", signal.SIGKILL, marks=pytest.mark.sweep),
    ],
)
@pytest.mark.parametrize("place", sampled(PROTOCOLS, "responses"), indirect=True)
def test_a_run_that_is_stopped_in_an_answer_goes_on_as_if_it_hadnt_been(
    place: Place, moment: str, number: signal.Signals
) -> None:
    expected = place.ask(*place.begin())["response"]
    bodies, files = [*place.server.bodies], place.files()
    assert (place.server.asked, files) == ([0, 1, 2], {"long.txt": LONG, "ran.txt": "ran\n"})
    assert expected == TURNS[2].text
    place.fresh()
    place.server.hold = MOMENTS[moment]
    place.stopped(number)
    found = place.ask("resume", "latest", "-y", "-o", "json")
    assert (found["response"], place.files()) == (expected, files)
    turn = MOMENTS[moment][0]
    assert place.server.asked == [*range(turn + 1), *range(turn, 3)]
    assert place.server.bodies == [*bodies[: turn + 1], *bodies[turn:]]
    place.ask("show", "latest", "--verify", "--json")


@pytest.mark.parametrize("place", sampled(PROTOCOLS, "anthropic"), indirect=True)
def test_a_replay_and_a_fork_of_thinking_turns_are_the_same(place: Place) -> None:
    run = place.ask(*place.begin())["session_id"]
    bodies = [*place.server.bodies]
    if place.protocol != "ollama":  # it takes no thinking back
        sent = b"".join(bodies).decode()
        assert TURNS[0].signature in sent and TURNS[1].signature in sent
    assert place.ask("replay", run, "--json")["divergence"] is None
    assert place.server.bodies == bodies, "a replay asks no model"
    steps = [s for s in place.ask("history", run, "--json")["steps"] if s["step"] is not None]
    for step in (steps[len(steps) // 3], steps[2 * len(steps) // 3]):
        place.server.bodies.clear()
        fork = place.ask("fork", run, "--at", str(step["step"]), "--in-place", "--json")
        name = fork.get("run") or fork["id"]
        place.ask("resume", name, "-y", "-o", "json")
        asked = [*place.server.bodies]
        assert asked and asked == bodies[-len(asked) :]
        assert place.ask("replay", name, "--json")["divergence"] is None


@pytest.mark.parametrize("place", sampled(PROTOCOLS, "responses"), indirect=True)
def test_another_vendors_model_goes_on_without_the_first_ones_thinking(place: Place) -> None:
    """And the first one goes on again, with its own."""
    names = [*PROTOCOLS]
    following = names[(names.index(place.protocol) + 1) % len(names)]
    model, package = PROTOCOLS[following]
    pytest.importorskip(package)
    place.ask(*place.begin())
    own = place.server.bodies[-1].decode()
    place.ask("resume", "latest", "-m", model, "-y", "-o", "json", "-p", "Go on.")
    other = place.server.bodies[-1].decode()
    for turn in TURNS:
        assert turn.signature not in other and turn.thought not in other
    assert "long.txt" in other and TURNS[1].text in other and TURNS[2].text in other
    ids = re.findall(r'"(?:id|call_id|tool_call_id|tool_use_id|toolUseId)": ?"([^"]+)"', other)
    assert all(re.fullmatch(r"[\w-]{1,40}", one) for one in ids), ids
    place.ask("resume", "latest", "-m", place.model, "-y", "-o", "json", "-p", "And on.")
    again = place.server.bodies[-1].decode()
    assert [t.signature in again for t in TURNS[:2]] == [t.signature in own for t in TURNS[:2]]


@pytest.mark.sqlite
@pytest.mark.parametrize("place", sampled(PROTOCOLS, "anthropic"), indirect=True)
def test_a_conversation_of_an_earlier_version_is_gone_on_with(place: Place) -> None:
    """Of one whose records hold no thinking of providers. Its answer has calls with ids of ours."""
    (store,) = (Path(__file__).parent / "stores").glob("*.tar.xz")
    with tarfile.open(store) as files:
        files.extraction_filter = lambda member, _path: member
        files.extractall(place.work.parent)
    (place.work.parent / "home").rename(place.state)
    with sqlite3.connect(place.state / "interlock.db") as conn:
        ((options,),) = conn.execute("select options from runs where run = 'done'")
        kept = {name: value for name, value in json.loads(options).items() if name != "fake"}
        row = (str(place.work), json.dumps(kept))
        conn.execute("update runs set workspace = ?, options = ? where run = 'done'", row)
    conn.close()
    place.ask("resume", "done", "-m", place.model, "-y", "-o", "json", "-p", "Write the file and run it.")
    assert place.server.asked == [1, 2]
    assert place.files()["ran.txt"] == "ran\n"
    sent = place.server.bodies[-1].decode()
    assert "Second." in sent and "And again." in sent
    ids = re.findall(r'"(?:id|call_id|tool_call_id|tool_use_id|toolUseId)": ?"([^"]+)"', sent)
    assert "gemini" in place.protocol or all(re.fullmatch(r"[\w-]{1,40}", one) for one in ids), ids
    assert place.ask("show", "done", "--verify", "--json")
