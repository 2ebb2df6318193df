"""stops: stops or kills a run at a node, a request or a command, and resumes it.

For every workflow alone: a run that was stopped by a signal or a time-out, or killed, ends like the undisturbed one.

As a program: `NAME PART OF` kills the scene at each OF-th moment from PART, and prints the kills and the differences;
KILL_STORE names a database on a server, which it empties.
"""

import asyncio
import json
import os
import pickle
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from folders import put
from kill_runs import stores
from kill_runs.scene import call
from scripted import tools

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.driver.stop import Stop
from interlock.engine.store import open_reader, prepare_state_directory_for_store
from interlock.services.models.script import ScriptProvider
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.deps import Token

WAYS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, None)
"""None: the time-out's own call."""
_TIMED = ("stats", "usage", "duration_ms", "duration_s", "latency_ms", "summary")
_STOPPED = ("cancelled", "timeout")
_RUN = "stoprun1"


def says(role: str, **answer: Any) -> dict[str, Any]:
    return {"role": role, "text": json.dumps(answer)}


def compressor(goal: str) -> dict[str, Any]:
    parts = ("active_constraints", "key_knowledge", "file_system_state", "artifact_trail", "recent_actions")
    rest = "".join(f"<{part}>x</{part}>" for part in (*parts, "current_plan"))
    text = f"<state_snapshot><overall_goal>{goal}</overall_goal>{rest}</state_snapshot>"
    return {"role": "compressor", "text": text}


def _long(turns: int) -> list[dict[str, Any]]:
    words = "word " * 400
    return [{"role": r, "content": f"{n} {words}"} for n in range(turns) for r in ("user", "assistant")]


@dataclass(frozen=True)
class Scene:
    """One workflow, its input and its models' replies."""

    workflow: str
    given: dict[str, Any]
    replies: Sequence[dict[str, Any]] = ()
    model: dict[str, Any] = field(default_factory=dict[str, Any])
    """Settings under `model`."""
    status: str = "done"


_TALK = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "Shall I?"}]
_DONE = call("complete_task", result="found")
_REPORT = {"SummaryOfFindings": "three", "ExplorationTrace": ["a.txt"], "RelevantLocations": []}
_READ = call("read_file", file_path="a.txt")
_WORK = [
    _READ,
    call("grep_search", pattern="two"),
    call("list_directory"),
    call("replace", file_path="a.txt", old_string="one", new_string="uno"),
    call("run_shell_command", command="echo ran >> ../effects.log"),
]
_CHANT = "I will look at the file once more, to be quite sure. " * 12
_TAGS = """\
<read_file><path>a.txt</path></read_file>
<execute_command><command>echo ran >> ../effects.log</command></execute_command>"""
_PLAN = "# Plan\n- [ ] one\n"
_GOES_ON, _IS_DONE = (says("next_speaker", reasoning="so", next_speaker=who) for who in ("model", "user"))
_MISSES = {
    "file_path": "a.txt",
    "old_string": "far from all\nof it\nhere",
    "new_string": "uno",
    "instruction": "x",
}
_TURNS = [{"type": "prompt", "prompt_id": "p", "text": "do it"}, *[{"type": "turn"}] * 30]
_STUCK = {"unproductive_state_analysis": "…", "unproductive_state_confidence": 0.95}


def _by(agent: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """A sub-agent's replies, one call each."""
    return [tools(one, agent=agent) for one in calls]


SCENES: dict[str, Scene] = {
    "main": Scene(
        "main",
        {"prompt": "go"},
        [tools(*_WORK), {"text": "Next I will read a.txt."}, {"text": "All done."}, _GOES_ON, _IS_DONE],
    ),
    "turn": Scene("turn", {"request": "go"}, [{"text": "Hello."}], status="ok"),
    "turn, tried again": Scene(
        "turn",
        {"request": "go"},
        [{"error": {"status": 503, "retry_after": 0.2}}, {"text": ""}, {"text": "Hello."}],
        {"streamRetryDelay": 0.2},
        status="ok",
    ),
    "turn, chanting": Scene("turn", {"request": "go"}, [{"text": _CHANT}], status="loop_nudge"),
    "tools": Scene("tools", {"calls": _WORK}),
    "tools, as tags": Scene("tools", {"text": _TAGS, "protocol": "xml"}),
    "route": Scene(
        "route",
        {"request": "rename x to y", "requested_model": "auto"},
        [says("classifier", reasoning="why", model_choice="flash")],
    ),
    "next-speaker": Scene("next-speaker", {"history": _TALK}, [_GOES_ON]),
    "loop-check": Scene(
        "loop-check",
        {"history": _TALK, "events": _TURNS},
        [says("loop_check", **_STUCK), says("loop_double_check", **_STUCK)],
    ),
    "edit": Scene(
        "edit",
        _MISSES,
        [
            says("edit_target", corrected_target_snippet="nothing like it"),
            says("edit_fixer", search="two", replace="dos", noChangesRequired=False, explanation="found"),
        ],
        status="applied",
    ),
    "compress": Scene(
        "compress",
        {"history": _long(4), "token_limit": 1000, "force": True},
        [compressor("draft"), compressor("checked")],
        status="compressed",
    ),
    "summarize": Scene(
        "summarize",
        {"tool": "run_shell_command", "text": "line of words\n" * 4000},
        [{"role": "summarizer", "text": "numbers"}],
        status="summarized",
    ),
    "subagent": Scene(
        "subagent",
        {"agent": "generalist", "prompt": "look"},
        _by("generalist:0", _READ, _DONE),
        status="goal",
    ),
    "investigate": Scene(
        "investigate",
        {"objective": "what is in a.txt?"},
        _by("codebase_investigator:0", _READ, call("complete_task", report=_REPORT)),
        status="goal",
    ),
    "plan": Scene(
        "plan",
        {"prompt": "go"},
        [
            tools(_READ),
            tools(call("write_file", file_path="plan.md", content=_PLAN)),
            tools(call("exit_plan_mode", plan_filename="plan.md")),
            tools(_WORK[-1]),
            {"text": "carried out"},
        ],
    ),
}


@dataclass(frozen=True)
class Ending:
    status: str
    exit_code: int
    output: str
    tree: dict[str, bytes]
    effects: str
    asked: int
    """Outcomes that a person had to report: their answers may differ."""


class Place:
    """One run in a folder shared by all runs: paths are compared, too."""

    def __init__(self, folder: Path, scene: Scene) -> None:
        self.folder, self.scene, self.asked, self.stops = folder, scene, 0, 0
        shutil.rmtree(folder, ignore_errors=True)
        put(folder / "work" / "a.txt", "one\ntwo\nthree\n")
        self.home = prepare_state_directory_for_store(folder / "home", stores.empty())
        put(folder / "script.json", scene.replies)

    @property
    def options(self) -> Options:
        home = {"PATH": os.environ["PATH"], "HOME": str(self.folder / "user")}
        return Options(
            home=self.home,
            user_home=self.folder / "user",
            workspace=self.folder / "work",
            model=f"script:{self.folder / 'script.json'}" if self.scene.workflow != "route" else None,
            fake=self.folder / "script.json" if self.scene.workflow == "route" else None,
            approval_mode=None if self.scene.workflow == "plan" else "yolo",
            overrides={"model": self.scene.model} if self.scene.model else {},
            env=home,
        )

    def play(self) -> Ending:
        """Run to the end, whatever stops it; everything is approved, unknown outcomes are looked up."""
        return self._to_the_end(
            run_sync(self.scene.workflow, self.scene.given, options=self.options, run_id=_RUN)
        )

    def goes_on(self) -> Ending:
        """What `play` does, after it was killed."""
        return self._to_the_end(resume_sync(_RUN, options=self.options))

    def _to_the_end(self, outcome: Outcome) -> Ending:
        for _ in range(20):
            if outcome.status in _STOPPED:
                self.stops += 1
                assert outcome.resume_command
            elif outcome.status != "waiting":
                return self._ending(outcome)
            decisions = [self._decision(p) for p in outcome.pending]
            outcome = resume_sync(outcome.run, decisions=decisions, options=self.options)
        raise AssertionError(f"it never ended: {outcome}")

    def _decision(self, request: dict[str, Any]) -> Decision:
        if request["kind"] != "outcome":
            return Decision(request["id"], "proceed_once")
        self.asked += 1
        happened = (self.folder / "effects.log").exists()
        return Decision(
            request["id"], "reject" if happened else "proceed_once", text="skip" if happened else "redo"
        )

    def _ending(self, outcome: Outcome) -> Ending:
        output = _untimed(outcome.output)
        if self.asked:
            output.pop("history", None)
            output.pop("responses", None)
        work, log = self.folder / "work", self.folder / "effects.log"
        return Ending(
            outcome.status,
            outcome.exit_code,
            json.dumps(output, sort_keys=True),
            {str(p.relative_to(work)): p.read_bytes() for p in sorted(work.rglob("*")) if p.is_file()},
            log.read_text() if log.exists() else "",
            self.asked,
        )

    def unfinished(self) -> int:
        """Calls in the journal that never got a result."""
        with open_reader(self.home) as conn:
            assert conn is not None
            (count,) = conn.execute("select count(*) from journal where state = 'intent'").fetchone()
            return count


def _untimed(value: Any) -> Any:
    """The value without what differs from run to run."""
    if isinstance(value, dict):
        return {k: _untimed(v) for k, v in value.items() if k not in _TIMED}
    return [_untimed(v) for v in value] if isinstance(value, list) else value


class Moments:
    """Counts the moments at which a run can be stopped, and stops it at one of them."""

    def __init__(self, at: int | None = None, way: signal.Signals | None = None) -> None:
        self.at, self.way, self.seen, self.names = at, way, 0, list[str]()
        self._stop: Stop | None = None

    def here(self, name: str) -> bool:
        self.seen += 1
        self.names.append(name)
        if self.seen != self.at:
            return False
        if self.way is not None:
            os.kill(os.getpid(), self.way)
        else:
            assert self._stop is not None
            asyncio.get_running_loop().call_soon(self._stop, "timeout")
        return True

    @contextmanager
    def watching(self) -> Generator[None]:
        """Watch the start of every node, every request to a model, and every command."""
        made, guarded = Stop.__init__, Token.cancel_on_stop
        stream, run = ScriptProvider.stream, SupervisedProcesses.run

        def new(stop: Stop) -> None:
            made(stop)
            self._stop = stop

        @contextmanager
        def node(token: Token) -> Generator[None]:
            if self._stop is not None and token is self._stop.token and _in_a_node():
                self.here("node")
            with guarded(token):
                yield

        async def request(provider: ScriptProvider, asked: Any) -> AsyncGenerator[Any, None]:
            if self.here(f"request of {asked.role}"):
                await asyncio.sleep(60)
            async for chunk in stream(provider, asked):
                yield chunk

        async def command(processes: SupervisedProcesses, *args: Any, **more: Any) -> Any:
            self.here("command")
            return await run(processes, *args, **more)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Stop, "__init__", new)
            patch.setattr(Token, "cancel_on_stop", node)
            patch.setattr(ScriptProvider, "stream", request)
            patch.setattr(SupervisedProcesses, "run", command)
            yield


def _in_a_node() -> bool:
    """Whether a node is running: waiting for the lease uses the same guard."""
    return sys._getframe(3).f_code.co_name == "node"


Pick = Callable[[list[str]], list[tuple[int, signal.Signals | None]]]
"""The names of an undisturbed run's moments → which to stop at (from 1), and how."""


def swept(name: str, folder: Path, pick: Pick) -> tuple[int, list[str]]:
    """Stop a scene at the chosen moments, one per run; returns the number of stops, and every difference."""
    scene, moments = SCENES[name], Moments()
    with moments.watching():
        place = Place(folder, scene)
        expected = place.play()
    assert (expected.status, place.stops, expected.asked) == (scene.status, 0, 0), expected
    stops, differ = 0, list[str]()
    for at, way in pick(moments.names):
        place = Place(folder, scene)
        with Moments(at, way).watching():
            found = place.play()
        stops += place.stops
        where = f"{name}, moment {at} ({moments.names[at - 1]}), {way.name if way else 'time-out'}"
        differ += _differing(where, place, found, expected)
    return stops, differ


def _differing(where: str, place: Place, found: Ending, expected: Ending) -> list[str]:
    same = Ending(**{**vars(expected), "asked": found.asked})
    if found.asked:
        given = {k: v for k, v in json.loads(expected.output).items() if k not in ("history", "responses")}
        same = Ending(**{**vars(same), "output": json.dumps(given, sort_keys=True)})
    differ = [f"{where}: {found}, expected {same}"] if found != same else []
    return [*differ, f"{where}: a call never got a result"] if place.unfinished() else differ


def killed(name: str, folder: Path, part: int, of: int) -> tuple[int, list[str]]:
    """Kill a scene at every `of`-th moment, one per run, and go on in another process; returns kills, differences."""
    scene, moments = SCENES[name], Moments()
    with moments.watching():
        place = Place(folder, scene)
        expected = place.play()
    kills, differ = 0, list[str]()
    for at in range(1 + part, len(moments.names) + 1, of):
        place, dying = Place(folder, scene), Moments(at, signal.SIGKILL)

        def dies(place: Place = place, dying: Moments = dying) -> None:
            with dying.watching():
                place.play()

        def goes_on(place: Place = place) -> None:
            found = place.goes_on()
            (folder / "ending").write_bytes(pickle.dumps(found))

        kills += os.WIFSIGNALED(_forked(dies))
        if _forked(goes_on):
            raise AssertionError(f"{name}, moment {at}: it can't be resumed")
        found = pickle.loads((folder / "ending").read_bytes())
        differ += _differing(f"{name}, moment {at} ({moments.names[at - 1]})", place, found, expected)
    return kills, differ


def _forked(deed: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            deed()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(9)
    return os.waitpid(pid, 0)[1]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        told = killed(sys.argv[1], Path(made) / "place", int(sys.argv[2]), int(sys.argv[3]))
    print(json.dumps(dict(zip(("kills", "differ"), told, strict=True))))
