"""A pipeline declared outside the package: run, stopped by an error, resumed, listed, like one of ours."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from langgraph.graph import END, START
from langgraph.runtime import Runtime
from pydantic import Field
from typing_extensions import TypedDict

from interlock.engine import Options, resume, run
from interlock.engine.read import list_runs
from interlock.graphs import register_pipeline
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.state.chart_channels import ApprovalModeState
from interlock.state.deps import Deps
from interlock.state.errors import InputError, InterlockError, RunError, UserError
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.run import RunChannels, WorkflowInput, WorkflowOutput, keep_newest
from interlock.state.workflow import WorkflowContext

READ: list[str] = []
"""What `count` saw, one item per execution."""
BROKEN = [True]


class CountInput(WorkflowInput):
    text: str = Field(min_length=1, description="what to count ★")


class CountOutput(WorkflowOutput):
    words: int
    long: bool


class CountState(RunChannels, total=False):
    head: str
    words: int
    label: str
    long: bool
    status: str


@node(reads=("head",), writes=("words",), labels=("long", "short"))
async def count(state: CountState, runtime: Runtime[Deps]) -> CountState:
    text = runtime.context.transcript.read_message(state["head"]).text
    READ.append(text)
    words = len(text.split())
    return {"words": words, "label": "long" if words > 3 else "short"}


@node(reads=("words",), writes=("long", "status"))
async def judge(state: CountState) -> CountState:
    if BROKEN[0]:
        raise RunError("The judge is out.")
    return {"long": True, "status": "done"}


def build() -> Graph:
    return wired(Graph("count", CountState), count, judge)


def wired(g: Graph, counts: Any, judges: Any) -> Graph:
    g.node("count", counts)
    g.node("judge", judges)
    g.edge(START, "count")
    g.edge("judge", END)
    g.by_label("count", {"long": "judge", "short": END})
    return g


def enter(given: CountInput, context: WorkflowContext) -> dict[str, Any]:
    return {"head": context.transcript.append("", [Message(role="user", content=given.text)])}


def leave(values: Mapping[str, Any], context: WorkflowContext) -> CountOutput:
    return CountOutput(words=values["words"], long=values.get("long", False))


COUNT = Pipeline("count", build, CountInput, CountOutput, prompt_field="text", enter=enter, leave=leave)


def options(tmp_path: Path) -> Options:
    (tmp_path / "ws").mkdir(exist_ok=True)
    return Options(home=tmp_path / "state", workspace=tmp_path / "ws", user_home=tmp_path, env={})


def test_it_fails_where_a_node_fails_and_goes_on_from_there(tmp_path: Path) -> None:
    READ.clear()
    BROKEN[0] = True
    failed = asyncio.run(run(COUNT, {"text": "one two three four"}, options=options(tmp_path)))
    assert (failed.status, failed.error) == ("failed", {"type": "run", "message": "The judge is out."})
    BROKEN[0] = False
    done = asyncio.run(resume(failed.run, options=options(tmp_path)))
    assert (done.status, done.output) == ("done", {"words": 4, "long": True})
    assert len(READ) == 1  # work done before the failure isn't repeated
    (row,) = list_runs(tmp_path / "state")
    assert (row.workflow, row.outcome, row.title) == ("count", "done", "one two three four")


def test_a_bad_input_is_refused_before_anything_runs(tmp_path: Path) -> None:
    READ.clear()
    with pytest.raises(
        InputError, match=r"Input field .txt.: Extra inputs are not permitted. Did you mean 'text'"
    ):
        asyncio.run(run(COUNT, {"text": "a", "txt": "a"}, options=options(tmp_path)))
    assert READ == []


def test_a_name_of_ours_is_refused(tmp_path: Path) -> None:
    mine = Pipeline("main", build, CountInput, CountOutput, enter=enter, leave=leave)
    with pytest.raises(UserError, match="Workflow 'main' is built in"):
        asyncio.run(run(mine, {"text": "a"}, options=options(tmp_path)))


def test_a_run_goes_on_without_a_key_that_its_workflow_has_retired(tmp_path: Path) -> None:
    """For changes that refuse it, see `test_a_run_whose_file_changed_goes_on_or_is_refused_by_name`."""

    class Changed(RunChannels, total=False):
        head: str
        label: str
        status: str

    @node(reads=("head",), writes=("label",), labels=("long", "short"))
    async def glance(state: Changed) -> Changed:
        return {"label": "long"}

    @node(reads=("label",), writes=("status",))
    async def judge_label(state: Changed) -> Changed:
        return {"status": "done" if state["label"] else "failed"}

    def anew() -> Graph:
        return wired(Graph("count", Changed, retired=frozenset({"words"})), glance, judge_label)

    def left(values: Mapping[str, Any], context: WorkflowContext) -> CountOutput:
        return CountOutput(words=0, long=True)

    BROKEN[0] = True
    failed = asyncio.run(run(COUNT, {"text": "one two three four"}, options=options(tmp_path)))
    register_pipeline(Pipeline("count", anew, CountInput, CountOutput, enter=enter, leave=left))
    assert asyncio.run(resume(failed.run, options=options(tmp_path))).status == "done"


class Moded(TypedDict, total=False):
    approval_mode: ApprovalModeState
    done: Annotated[bool, keep_newest]


class Redeclared(TypedDict, total=False):
    approval_mode: str
    done: Annotated[bool, keep_newest]


def _with_mode(state: type, how: str) -> Pipeline:
    """A workflow that gets into yolo mode: in what it begins with, by a node, or by what it sends to another graph."""

    @node(reads=("done",), writes=("approval_mode",))
    async def switch(_: Any) -> Any:
        return {"approval_mode": "yolo"} if how == "node" else {}

    @node(reads=("approval_mode",), writes=("done",))
    async def act(_: Any) -> Any:
        return {"done": True}

    def send(values: Moded) -> Sequence[Mapping[str, Any]]:
        return [{"approval_mode": "yolo" if how == "send" else values.get("approval_mode", "default")}]

    def made() -> Graph:
        g = Graph("charted-by-hand", state)
        g.nodes(switch, act)
        g.edge(START, "switch")
        g.fan_out("switch", send, "act")
        g.edge("act", END)
        return g

    def begin(_: Any, context: WorkflowContext) -> dict[str, Any]:
        return {"approval_mode": "yolo" if how == "enter" else context.approval_mode}

    def end(values: Mapping[str, Any], context: WorkflowContext) -> WorkflowOutput:
        return WorkflowOutput()

    return Pipeline("charted-by-hand", made, WorkflowInput, WorkflowOutput, enter=begin, leave=end)


@pytest.mark.parametrize(
    ("state", "how", "says"),
    [
        (Redeclared, "node", "declares 'approval_mode' as .* but it is the engine's"),
        (
            Moded,
            "node",
            "moved 'approval_mode' from 'default' to 'yolo', which this node may not",
        ),
        (Moded, "enter", "begins in the approval mode 'yolo'"),
        (Moded, "send", "send sent the approval mode 'yolo' to 'act'; the run is in 'default'"),
        (Moded, "", ""),
    ],
)
def test_no_workflow_switches_its_approval_mode_by_itself(
    tmp_path: Path, state: type, how: str, says: str
) -> None:
    ended = None
    try:
        ended = asyncio.run(run(_with_mode(state, how), {}, options=options(tmp_path)))
        found = (ended.error or {}).get("message", "")
    except InterlockError as error:
        found = str(error)
    assert re.search(says, found) if says else ended and (ended.status, found) == ("done", "")
