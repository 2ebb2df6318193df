"""harness: kills a run at random moments, or at every commit and effect, and compares its end with an undisturbed one.

`random N SEED`: kills runs at random until N kills were made. `every FIRST STRIDE`: one kill per run, at each
STRIDE-th moment from FIRST; `states`: only one of the moments that leave the same state.

Children are forked from a warm parent. KILL_STORE names a database on a server, for the store.

Prints one JSON object: counts, and every difference with its kill's moment.
"""

import faulthandler
import gc
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from kill_runs import stores
from kill_runs.compare import ending, store_matches
from kill_runs.moments import Moments, one_of_each_state
from kill_runs.scene import RUN, Replies, Scene

from interlock.engine import Decision, resume_sync, run_sync

Disturb = Callable[[int], tuple[Callable[[], None], float | None]]
"""What disturbs a run's n-th child: a call before it begins, and seconds after which it is killed."""


class Broken(Exception):  # noqa: N818 - a finding
    """The kills can't continue: a child failed or hung, or a kill left the store inconsistent."""


class Judged(Protocol):
    """How a run ended."""

    status: str
    effects: tuple[str, ...]
    asked: int

    def differences(self, expected: Any) -> list[str]: ...


def word_is_there(scene: Scene, request: dict[str, Any]) -> bool:
    """Look in the file for the word that the command leaves there, as a person would."""
    return request["call"]["args"]["command"].split()[1] in scene.effects()


def ended_well(scene: Scene, found: Any) -> bool:
    return found.status == "done" and found.effects == scene.expected_effects()


@dataclass(frozen=True)
class Play:
    """What is killed, and what its end is compared with."""

    replies: Replies
    short: Replies = ()
    """For the kills at every moment; `replies` by default."""
    scene: type[Scene] = Scene
    happened: Callable[[Scene, dict[str, Any]], bool] = word_is_there
    """Whether the effect that a request asks about has happened. Everything else is approved."""
    ending: Callable[[Scene], Judged] = ending
    sound: Callable[[Scene, Any], bool] = ended_well
    """Whether the undisturbed run ended as it must."""
    crossed: Callable[[Scene], dict[str, int]] = lambda _: {}
    """What the undisturbed run went through, for the reader of the result."""
    times: tuple[int, int] = (1, 6)
    """Least and most random kills of one run."""
    within: tuple[float, float] = (0.0, 0.5)
    """Range for random kills, as shares of the undisturbed run's duration."""
    exact: bool = True
    """Each process has the same moments every time, so every planned kill happens."""
    hung_s: float = 120.0
    """Seconds after which a child counts as hung."""
    given: tuple[str, dict[str, Any]] = ("main", {"prompt": "Do it."})
    """Workflow and input."""


@dataclass
class Told:
    """The printed result."""

    seed: int = 0
    moments: int = 0
    runs: int = 0
    kills: int = 0
    asked: int = 0
    status: str = ""
    crossed: dict[str, int] = field(default_factory=dict[str, int])
    differ: list[str] = field(default_factory=list[str])


class Stage:
    """Where one play runs again and again, in the same folder: paths are compared, too."""

    def __init__(self, play: Play, folder: Path, replies: Replies, told: Told) -> None:
        self.play, self.folder, self.told = play, folder, told
        self.scene = play.scene(folder, tuple(replies))

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        stores.empty()
        self.scene.prepare()

    def before(self, process: int) -> Path:
        """A copy of the scene as the undisturbed run's n-th process found it."""
        return self.folder.with_name(f"before-{process}")

    def drive(self) -> None:
        """One process's work: start or resume, approve everything, answer unknown outcomes by looking."""
        scene, options = self.scene, self.scene.options
        if not scene.exists():
            workflow, given = self.play.given
            scene.save(run_sync(workflow, given, options=options, run_id=RUN))
            return
        decisions = [self._decision(name, request) for name, request in scene.waiting()]
        scene.save(resume_sync(RUN, decisions=decisions, options=options))

    def _decision(self, name: str, request: dict[str, Any]) -> Decision:
        if request["kind"] == "approval":
            return Decision(name, "proceed_once")
        if request["kind"] == "question":
            return Decision(name, "proceed_once", text="Ann")
        happened = self.play.happened(self.scene, request)
        return Decision(name, "reject" if happened else "proceed_once", text="skip" if happened else "redo")

    def child(self, before: Callable[[], None], kill_after: float | None = None) -> bool:
        """Run a child; whether it was killed. `kill_after` in seconds."""
        pid = os.fork()
        if pid == 0:
            try:
                before()
                self.drive()
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(9)
        status = self._waited(pid, kill_after)
        if os.WIFSIGNALED(status):
            return True
        if status:
            raise Broken(f"a child failed with {status}")
        return False

    def _waited(self, pid: int, kill_after: float | None) -> int:
        deadline = time.monotonic() + (self.play.hung_s if kill_after is None else kill_after)
        while (left := deadline - time.monotonic()) > 0:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return status
            time.sleep(min(0.002, left))
        if kill_after is None:  # stderr shows where it hangs
            os.kill(pid, signal.SIGUSR1)
            time.sleep(1)
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if kill_after is None:
            raise Broken(f"a child hung for {self.play.hung_s:.0f} s")
        return status

    def to_the_end(self, disturb: Disturb) -> int:
        """Drive until the run is over; returns the number of kills. The store must be consistent after each."""
        kills = 0
        for attempt in range(400):
            if self.child(*disturb(attempt)):
                kills += 1
                if problem := store_matches(self.scene):
                    raise Broken(f"after kill {kills}, in child {attempt}: {problem}")
            elif self.scene.outcome()["status"] != "waiting":
                return kills
        raise Broken("the run never ended")

    def undisturbed(self) -> tuple[Judged, list[list[str]]]:
        """The run's ending, and the moments in each of its processes; keeps the scene before each process."""
        moments: list[list[str]] = []
        self.fresh()
        while not moments or self.scene.outcome()["status"] == "waiting":
            shutil.copytree(self.folder, self.before(len(moments)), symlinks=True)
            stores.keep(len(moments))
            seen = self.folder / "moments"
            if self.child(Moments(seen).note):
                raise Broken("an undisturbed child was killed")
            moments.append(seen.read_text().splitlines())
            seen.unlink()
        found = self.play.ending(self.scene)
        if not self.play.sound(self.scene, found):
            raise Broken(f"the undisturbed run ended as {found}")
        self.told.status, self.told.crossed = found.status, self.play.crossed(self.scene)
        return found, moments

    def judge(self, name: str, disturb: Disturb, expected: Judged) -> int:
        """Run it once, disturbed; returns the number of kills."""
        mark = self.folder / "moment"
        problem, kills, lines = "", 0, list[str]()
        try:
            kills = self.to_the_end(disturb)
            found = self.play.ending(self.scene)
            self.told.asked += found.asked
            lines = found.differences(expected)
        except Broken as error:
            problem = str(error)
        where = f"{name} ({mark.read_text()})" if mark.exists() else name
        self.told.kills += kills
        self.told.differ += [f"{where}: {line}" for line in lines]
        if problem:
            raise Broken(f"{where}: {problem}")
        return kills


def nothing() -> None:
    """For a child that isn't disturbed, or is killed from outside."""


def random_kills(stage: Stage, count: int, seed: int) -> None:
    """Kill each run a few times, at moments spread over all of it, until `count` kills were made."""
    rng, told, play = random.Random(seed), stage.told, stage.play
    told.seed = seed
    started = time.monotonic()
    expected, _ = stage.undisturbed()
    duration = time.monotonic() - started
    while told.kills < count:
        stage.fresh()
        told.runs += 1
        planned = rng.randint(*play.times)

        def disturb(attempt: int, planned: int = planned) -> tuple[Callable[[], None], float | None]:
            return nothing, (
                rng.uniform(*(part * duration for part in play.within)) if attempt < planned else None
            )

        stage.judge(f"run {told.runs}", disturb, expected)


def every_moment(stage: Stage, first: int, stride: int, states: bool = False) -> None:
    """Kill before and after every commit and effect. `states`: at one of those that leave the same state."""
    expected, processes = stage.undisturbed()
    chosen = [one_of_each_state(seen) if states else range(1, len(seen) + 1) for seen in processes]
    places = [(process, moment) for process, some in enumerate(chosen) for moment in some]
    stage.told.moments = len(places)
    for process, moment in places[first::stride]:
        # The processes before this one were undisturbed: restore the copy of what they left.
        shutil.rmtree(stage.folder)
        shutil.copytree(stage.before(process), stage.folder, symlinks=True)
        stores.bring_back(process)

        def disturb(attempt: int, moment: int = moment) -> tuple[Callable[[], None], float | None]:
            return (nothing if attempt else Moments(stage.folder / "moment").kill_at(moment)), None

        name = f"process {process}, moment {moment}"
        kills = stage.judge(name, disturb, expected)
        if stage.play.exact and kills != 1:
            stage.told.differ.append(f"{name}: {kills} kills")


def warm(play: Play, replies: Replies, folder: Path) -> None:
    """Drive the run in this process, so that its children needn't pay for imports and declarations."""
    stage = Stage(play, folder, replies, Told())
    stage.fresh()
    stage.drive()
    while stage.scene.outcome()["status"] == "waiting":
        stage.drive()
    faulthandler.register(signal.SIGUSR1)
    gc.freeze()  # otherwise a child's collections copy the pages that it shares with us


def show(play: Play) -> None:
    """The whole program: arguments in, JSON out."""
    kind, first, second = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    work = {"random": random_kills, "every": every_moment, "states": partial(every_moment, states=True)}[kind]
    replies = play.replies if kind == "random" else play.short or play.replies
    told = Told()
    with tempfile.TemporaryDirectory() as name:
        warm(play, play.short or play.replies, Path(name) / "warm" / "scene")
        try:
            work(Stage(play, Path(name) / "scene", replies, told), first, second)
        except Broken as problem:
            told.differ.append(str(problem))
    print(json.dumps(asdict(told)))
