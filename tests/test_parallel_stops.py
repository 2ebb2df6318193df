"""Branches beside each other, stopped in every way at every moment: nothing is done twice, nothing is lost.

What has begun in a thread ends, and is kept; an effect that a kill hid is asked about, once.
"""

import asyncio
import os
import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any, Literal

import parallel_branches
import pytest
from folders import put
from parallel_branches import NAMES
from patience import HANG_S, sweep_part, until
from warm import Warm

from interlock.engine import Decision, Outcome, run
from interlock.engine.client.cancel import stop_or_cancel_run_by_name
from interlock.engine.driver.stop import Stop
from interlock.engine.read import list_runs
from interlock.testing import Stage

KINDS = (*parallel_branches.KINDS,)
OWN = (
    *("effect_of_a_function", "effect_of_a_coroutine", "sync_effect_in_a_thread", "awaited_tool"),
    *("tool_of_a_coroutine", "async_node"),
)
"""Kinds that a workflow of Interlock's own can have, whose nodes are all `async`."""
CUT_SHORT = ("async_node",)
"""Kinds that a stop cancels: they haven't ended, and run again."""
IN_THREADS = ("sync_node", "nested_node", "called_graph", "tool_node")
SYNC = ("sync_effect", "durable_function", "tool_in_a_thread", "sync_node")
"""Kinds that LangGraph gives no time-out."""

Way = Literal[
    "a sibling fails",
    "the step takes too long",
    "the node takes too long",
    "the run takes too long",
    "a budget",
    "cancelled",
    "cancelled twice",
    "cancelled three times",
    "a sibling fails, cancelled",
    "SIGINT",
    "SIGINT twice",
    "SIGTERM",
    "SIGKILL",
    "cancelled from elsewhere",
]
INSIDE: tuple[Way, ...] = (
    "a sibling fails",
    "the step takes too long",
    "the node takes too long",
    "the run takes too long",
    "a budget",
    "cancelled",
    "cancelled twice",
    "cancelled three times",
    "a sibling fails, cancelled",
)
FROM_OUTSIDE: tuple[Way, ...] = ("SIGINT", "SIGINT twice", "SIGTERM", "SIGKILL", "cancelled from elsewhere")
_BEAT_S = 2.5
"""Seconds after which a drive has read what is asked of it."""
KILLS = ("SIGINT twice", "SIGKILL")
OF_FOREIGN = ("the step takes too long", "the node takes too long")
When = Literal["one has begun", "all are under way", "one has ended", "all end"]
WHENS: tuple[When, ...] = ("one has begun", "all are under way", "one has ended", "all end")


@dataclass
class Case:
    """One run, stopped once."""

    folder: Path
    kinds: Sequence[str]
    way: Way
    when: When
    own: bool = False

    def __post_init__(self) -> None:
        self.stage = Stage(self.folder, given={"approval_mode": "yolo"})
        self.names = NAMES[: len(self.kinds)]
        given: dict[str, float] = {"fails": "a sibling fails" in self.way}
        if self.way == "the step takes too long":
            given["step_timeout"] = 0.3
        if self.way == "the node takes too long":
            given["timeout"] = 0.3
        code = Path(parallel_branches.__file__).read_text(encoding="utf-8")
        words = ", ".join([*map(repr, self.kinds), *(f"{key}={value!r}" for key, value in given.items())])
        ends = "WORKFLOW = own" if self.own else "graph = foreign"
        self.file = (
            self.folder / "user/.interlock/workflows/beside.py" if self.own else self.stage.work / "agent.py"
        )
        put(self.file, f"{code}\n\n{ends}({words})\n")
        self.log, self.workflow = self.file.parent / "log", "beside" if self.own else f"{self.file}:graph"
        put(self.log, "")

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def allow(self, *names: str) -> None:
        for name in names:
            put(self.file.parent / name, "")

    def moments(self) -> Iterator[Callable[[], bool]]:
        """What comes before the stop; done when each of them holds."""
        begun = [f"begun {name}" for name in self.names]
        if self.when == "one has begun":
            yield lambda: bool(self.lines())
            return
        yield lambda: {*begun} <= {*self.lines()}
        if self.when == "one has ended":
            self.allow("open/one")
            yield lambda: "ended one" in self.lines()
        if self.when == "all end":
            self.allow("open/all")

    def ended(self, outcome: Outcome) -> "Ended":
        """Mend what failed, resume until it is done, and answer as somebody who looks."""
        self.allow("mended", "open/all")
        asked = list[str]()
        for _ in range(9):
            if outcome.status == "done":
                break
            looks = [self._looked(request, asked) for request in outcome.pending]
            outcome = self.stage.resume(outcome.run, *looks)
        return Ended(outcome.status, sorted(outcome.output.get("done", ())), self.lines(), asked)

    def _looked(self, request: Any, asked: list[str]) -> Decision:
        assert request["kind"] == "outcome", request
        name = request["args"]["name"]
        asked.append(name)
        redo = f"ended {name}" not in self.lines()
        return Decision(request["id"], "proceed_once" if redo else "reject", text="redo" if redo else "skip")


@dataclass
class Ended:
    status: str
    done: list[str]
    log: list[str]
    asked: list[str]

    def differences(self, case: Case) -> list[str]:
        begun, ended = (
            Counter(line.split()[1] for line in self.log if line.startswith(word))
            for word in ("begun", "ended")
        )
        found = [] if self.status == "done" else [f"it ended as {self.status}"]
        if self.done != sorted(case.names):
            found.append(f"lost: {self.done}")
        for name, kind in zip(case.names, case.kinds, strict=True):
            repeats = case.way in KILLS or kind in CUT_SHORT
            # A kill may come between the end of a node that is no effect, and its commit.
            most = 2 if case.way in KILLS and kind in (*CUT_SHORT, *IN_THREADS) else 1
            if not 1 <= ended[name] <= most:
                found.append(f"{kind} ended {ended[name]} times")
            if begun[name] != 1 and not repeats:
                found.append(f"{kind} began {begun[name]} times")
            if self.asked.count(name) > (case.way in KILLS and "node" not in kind):
                found.append(f"{kind} was asked about {self.asked.count(name)} times")
            if begun[name] > 1 and kind not in (*CUT_SHORT, *IN_THREADS) and name not in self.asked:
                found.append(f"{kind} was repeated unasked")
        return [f"{case.way}, {case.when}, {[*case.kinds]}: {one}: {self.log}" for one in found]


async def _reached(case: Case, work: "asyncio.Future[Any]") -> None:
    for holds in case.moments():
        while not holds() and not work.done():
            await asyncio.sleep(0.003)


async def _inside(case: Case) -> Outcome | None:
    """None: its caller was cancelled."""
    stop = Stop()
    work = asyncio.ensure_future(
        run(case.workflow, {}, options=case.stage.options, run_id="beside1", stop=stop)
    )
    await _reached(case, work)
    if case.way.startswith("a sibling fails"):
        case.allow("fail")
    elif case.way == "a budget":
        stop.request_drain("budget")
    elif case.way == "the run takes too long":
        stop("timeout")
    if case.way in OF_FOREIGN:
        await asyncio.sleep(0.4)
    for _ in range(
        {"cancelled": 1, "cancelled twice": 2, "cancelled three times": 3}.get(case.way.split(", ")[-1], 0)
    ):
        await asyncio.sleep(0.02)
        work.cancel()
    await asyncio.sleep(0.03)
    case.allow("open/all")
    await asyncio.wait({work})
    return None if work.cancelled() else work.result()


def _press_again(process: Warm, number: signal.Signals) -> bool:
    """A busy process may see two signals at once, as one and its echo: whoever waits presses again."""
    time.sleep(0.15)
    process.send_signal(number)
    return process.poll() is not None


def _from_outside(case: Case) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(case.folder / "user"),
        "INTERLOCK_HOME": str(case.stage.home),
    }
    words = ["run", case.workflow, "--yolo", "-C", str(case.stage.work)]
    process = Warm(
        words, cwd=case.stage.work, env=env, stderr=os.open(case.folder / "said", os.O_CREAT | os.O_WRONLY)
    )
    for holds in case.moments():
        until(lambda now=holds: now() or process.poll() is not None, "a branch that begins or ends")
    if case.way == "cancelled from elsewhere":
        stop_or_cancel_run_by_name(case.stage.options, list_runs(case.stage.home)[0].run)
        time.sleep(_BEAT_S)
    else:
        number = signal.Signals[case.way.split()[0]]
        process.send_signal(number)
        if case.way == "SIGINT twice":
            until(lambda: _press_again(process, number), "the end after a second signal")
    if case.way in KILLS:
        process.wait(HANG_S)
    time.sleep(0.03)
    case.allow("open/all")
    process.wait(HANG_S)


def tried(case: Case) -> list[str]:
    outcome = asyncio.run(_inside(case)) if case.way in INSIDE else _from_outside(case)
    case.allow("mended", "open/all")
    (row,) = list_runs(case.stage.home)
    return case.ended(outcome or case.stage.resume(row.run)).differences(case)


def _cases(kinds: Sequence[Sequence[str]], ways: Sequence[Way], own: bool) -> Iterator[tuple[Any, ...]]:
    for some, way, when in product(kinds, ways, WHENS):
        if own and way in OF_FOREIGN:
            continue
        if way == "the node takes too long" and some[0] in SYNC:
            continue
        yield some, way, when, own


def _of(*groups: Sequence[str], own: bool = False) -> list[tuple[Any, ...]]:
    return [*_cases(groups, (*INSIDE, *FROM_OUTSIDE), own)]


SAMPLE = [
    (("effect_of_a_function", "sync_node"), "a sibling fails", "all are under way", False),
    (("sync_effect", "nested_node", "awaited_tool"), "a sibling fails", "all are under way", False),
    (("effect_of_a_coroutine", "tool_of_a_coroutine"), "a sibling fails", "one has ended", False),
    (("effect_of_a_function", "sync_node"), "the step takes too long", "all are under way", False),
    (("sync_effect_in_a_thread", "async_node"), "the node takes too long", "all are under way", False),
    (("effect_of_a_function", "sync_node"), "the node takes too long", "all are under way", False),
    (("tool_node", "async_node"), "the node takes too long", "all are under way", False),
    (("tool_in_a_thread", "nested_effects"), "cancelled three times", "all are under way", False),
    (("sync_node", "called_graph"), "a sibling fails, cancelled", "all are under way", False),
    (("tool_node", "tool_node"), "a sibling fails", "one has ended", False),
    (("sync_effect", "sync_node"), "SIGTERM", "all are under way", False),
    (("durable_function", "async_node"), "SIGINT", "one has ended", False),
    (("effect_of_a_function", "tool_in_a_thread", "sync_node"), "SIGKILL", "all are under way", False),
    (("effect_of_a_function", "awaited_tool"), "SIGINT twice", "one has ended", False),
    (("effect_of_a_function", "effect_of_a_coroutine"), "a sibling fails", "all are under way", True),
    (("effect_of_a_function", "async_node"), "cancelled twice", "all are under way", True),
    (("awaited_tool", "tool_of_a_coroutine"), "SIGTERM", "all are under way", True),
    (("effect_of_a_function", "sync_node"), "cancelled from elsewhere", "all are under way", False),
    (("sync_effect_in_a_thread", "async_node"), "cancelled from elsewhere", "one has ended", True),
]


@pytest.mark.sample(6)
@pytest.mark.parametrize(("kinds", "way", "when", "own"), SAMPLE)
def test_what_has_begun_is_kept_whatever_stops_it(
    kinds: Sequence[str], way: Way, when: When, own: bool, tmp_path: Path
) -> None:
    assert tried(Case(tmp_path, kinds, way, when, own)) == []


_STOPS_ITSELF = """
import asyncio, os, signal, time
from datetime import timedelta
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

class Notes(TypedDict, total=False):
    text: str

async def work(state: Notes):
    with open("log", "a") as file:
        file.write("ran\\n")
    os.kill(os.getpid(), signal.SIGTERM)
    return {"text": "done"}

async def lead(state: Notes):
    await asyncio.sleep(0.3)
    return END

def lead_in_a_thread(state: Notes):
    time.sleep(0.3)
    return END

def graph(node, lead=lead, **given):
    made = StateGraph(Notes).add_node("work", node, **given).add_edge(START, "work")
    return made.add_conditional_edges("work", lead, [END])

alone = graph(work).compile()
led_in_a_thread = graph(work, lead_in_a_thread).compile()
with_a_time_out = graph(work, timeout=timedelta(seconds=60)).compile()
last_of_a_chain = graph(RunnableLambda(lambda state: state) | work).compile()
nested = graph(alone).compile()
beside = graph(work).add_node("other", lambda state: {}).add_edge(START, "other").compile()
"""


@pytest.mark.parametrize(
    "graph", ["alone", "led_in_a_thread", "with_a_time_out", "last_of_a_chain", "nested", "beside"]
)
def test_what_a_node_returned_is_kept_when_a_stop_comes_before_its_edges(
    graph: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(tmp_path)
    monkeypatch.chdir(stage.work)
    file = put(stage.work / "agent.py", _STOPS_ITSELF)
    outcome = stage.run(f"{file}:{graph}", {"text": "begin"})
    assert outcome.status in ("cancelled", "done")
    outcome = stage.resume(outcome.run) if outcome.status == "cancelled" else outcome
    assert (outcome.status, outcome.output) == ("done", {"text": "done"})
    assert (stage.work / "log").read_text() == "ran\n"


@pytest.mark.sweep(divides=True)
def test_nothing_is_doubled_or_lost_in_two_and_three_branches(tmp_path: Path) -> None:
    """Every two kinds, and a third that a seed chooses, stopped in every way.

    STOP_CASES takes so many of all the kinds, ways and moments, chosen by STOP_SEED; 0 takes all, which lasts hours.
    """
    seed = os.environ.get("STOP_SEED", "1")
    chance = random.Random(seed)
    pairs = [*combinations_with_replacement(KINDS, 2)]
    cases = _of(*pairs, *((*pair, chance.choice(KINDS)) for pair in pairs))
    pairs = [*combinations_with_replacement(OWN, 2)]
    cases += _of(*pairs, *((*pair, chance.choice(OWN)) for pair in pairs), own=True)
    chance.shuffle(cases)
    part, of = sweep_part()
    cases = cases[: int(os.environ.get("STOP_CASES", "1200")) or None][part::of]
    differ: list[str] = []
    for number, (kinds, way, when, own) in enumerate(cases):
        differ += tried(Case(folder := tmp_path / str(number), kinds, way, when, own))
        shutil.rmtree(folder)
    print(f"{len(cases)} stops, seed {seed}")
    assert differ == []
