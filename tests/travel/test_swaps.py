"""A replay with another function for a node, or with another model, shows where it diverges from the recorded path."""

from pathlib import Path

import pytest
from folders import put, tree
from travel.conftest import REPLIES, Desk, write
from travel.trees import tree_of

from interlock.engine import run_sync
from interlock.services.trust.decisions import record_trust_decision

STEPS = '''"""steps: counts up, and ends at three."""

from interlock.workflow import END, START, Graph, Input, Output, State, Workflow, loop, node


class StepsInput(Input):
    number: int = 0


class StepsOutput(Output):
    number: int


class StepsState(State, total=False):
    number: int


@node(reads=("number",), writes=("number",), labels=("more", "enough"))
async def count(state: StepsState) -> StepsState:
    number = state["number"] + 1
    return {"number": number, "label": "enough" if number >= 3 else "more"}


def build() -> Graph:
    g = Graph("steps", StepsState)
    g.node("count", count)
    loop(g, "again", most=9, again="count", enough=END)
    g.edge(START, "count")
    g.by_label("count", {"more": "again", "enough": END})
    return g


WORKFLOW = Workflow("steps", build, StepsInput, StepsOutput)
'''
OTHER = """from interlock.workflow import node

print("loaded")


@node(reads=("number",), writes=("number",), labels=("more", "enough"))
async def quick(state):
    return {"number": state["number"] + 10, "label": "enough"}


@node(reads=("number",), writes=("number",), labels=("more", "enough"))
async def slow(state, runtime):
    number = state["number"] + 0.5
    return {"number": int(number), "label": "more"}


@node(reads=("number",), writes=("elsewhere",), labels=("more", "enough"))
async def astray(state):
    return {"elsewhere": 1, "label": "enough"}


@node(writes=("number",))
async def plain(state):
    return {"number": 1}


async def bare(state):
    return {}
"""


@pytest.fixture
def counted(desk: Desk) -> str:
    """A run of a user's workflow, which counts to three."""
    put(desk.work / ".interlock" / "workflows" / "steps.py", STEPS)
    record_trust_decision(desk.work, Path.home(), trusted=True)
    (desk.folder / "other.py").write_text(OTHER)
    return run_sync("steps", {}, options=desk.options([])).run


def test_another_function_for_a_node_shows_where_the_paths_part(desk: Desk, counted: str) -> None:
    other = desk.folder / "other.py"
    done = desk("replay", counted, "--swap", f"count={other}:quick", "--json")
    assert done.code == 1
    assert done.json["divergence"]["step"] == 1
    assert "number" in done.json["divergence"]["keys"]
    shown = desk("replay", counted, "--swap", f"count={other}:quick").out
    assert "Step 1 differs" in shown
    assert "recorded  count → again → count → again → count\nreplayed  count\n" in shown
    assert desk("replay", counted).code == 0, "the run itself is as it was"


def test_a_swapped_node_counts_from_the_step_on_that_is_named(desk: Desk, counted: str) -> None:
    taken = [s for s in desk("history", counted, "--json").json["steps"] if s["node"] == "count"]
    since = taken[1]["step"]
    swap = f"count={desk.folder / 'other.py'}:quick"
    found = desk("replay", counted, "--until", str(since), "--swap", swap, "--json").json
    assert found["divergence"]["step"] == since + 2, "the loop's own node comes first"
    assert found["paths"]["replayed"] == found["paths"]["recorded"], (
        "counted once more, and then it was enough"
    )


def test_a_swapped_node_that_never_ends_meets_the_bound_of_the_loop(desk: Desk, counted: str) -> None:
    found = desk("replay", counted, "--swap", f"count={desk.folder / 'other.py'}:slow", "--json").json
    assert sum(times for node, times in found["paths"]["replayed"] if node == "count") == 10


def test_a_node_of_a_part_is_swapped_in_a_run_of_ours(desk: Desk) -> None:
    run = desk.run().run
    (desk.folder / "other.py").write_text(
        "from interlock.nodes.turn_request import use_model\n"
        "from interlock.state.node import node, find_node_spec\n"
        "told = find_node_spec(use_model)\n"
        "@node(reads=told.reads, writes=told.writes, labels=told.labels)\n"
        "async def same(state, runtime):\n    return await use_model(state, runtime)\n"
    )
    done = desk("replay", run, "--swap", f"turn/use_model={desk.folder / 'other.py'}:same")
    assert (done.code, done.err) == (0, ""), done.out


BAD = [
    ("count", "expected NODE=FILE.py:FUNCTION"),
    ("count=other.py", "expected NODE=FILE.py:FUNCTION"),
    ("count=gone.py:quick", "can't be read (No such file or directory)"),
    ("count=broken.py:quick", "broken.py:1: SyntaxError"),
    ("count=raising.py:quick", "raising.py:2: ValueError: at import"),
    ("count=other.py:quik", "no function 'quik' under @node. Did you mean 'quick'?"),
    ("count=other.py:bare", "no function 'bare' under @node"),
    ("cuont=other.py:quick", "no node 'cuont'. Did you mean 'count'? It has the nodes: count, again."),
    ("turn/x=other.py:quick", "no subgraph 'turn'. It has the subgraphs: none."),
    ("count=other.py:plain", "has the labels more, enough, the other function none"),
    ("count=other.py:astray", "'elsewhere'"),
]


@pytest.mark.parametrize(("given", "told"), BAD)
def test_what_cant_be_swapped_is_said_in_one_line(desk: Desk, counted: str, given: str, told: str) -> None:
    tree(desk.folder, {"broken.py": "def (", "raising.py": "\nraise ValueError('at import')\n"})
    node, _, source = given.partition("=")
    text = f"{node}={desk.folder / source}" if source else given
    done = desk("replay", counted, "--swap", text)
    assert done.code in (2, 52) and done.out == "", done.out
    assert told in done.err and len(done.err.strip().splitlines()) - done.err.count("loaded\n") == 1, done.err


def test_another_model_goes_on_in_a_folder_of_its_own(desk: Desk) -> None:
    (desk.work / "own").write_text("mine\n")
    run = desk.run().run
    before = tree_of(desk.work)
    script = desk.folder / "other.json"
    new = [write("other", "x"), {"text": "another end"}]
    put(script, new)
    done = desk("replay", run, "--model", f"script:{script}", "--json")
    assert done.code == 0, done.err
    found = done.json
    assert (found["status"], found["output"]["response"]) == ("done", "another end")
    assert found["divergence"]["recorded"] != found["divergence"]["replayed"]
    assert (Path(found["workspace"]) / "other").read_text() == "x"
    assert (Path(found["workspace"]) / "own").read_text() == "mine\n", "as the files were"
    assert tree_of(desk.work) == before
    assert desk("show", found["run"], "--json").json["status"] == "done"
    shown = desk("replay", run, "--model", f"script:{script}")
    assert shown.out.strip() == "another end"
    assert "Forked run" in shown.err and "recorded  " in shown.err and "replayed  " in shown.err


def test_another_model_begins_at_the_step_that_is_named_with_the_files_of_then(desk: Desk) -> None:
    run = desk.run().run
    script = put(desk.folder / "other.json", [*REPLIES[:1], {"text": "so soon"}])
    found = desk("replay", run, "--model", f"script:{script}", "--until", "3", "--json").json
    assert found["step"] == 3 and found["output"]["response"] == "so soon"
    assert set(tree_of(Path(found["workspace"]))) == {"a.txt", "d", "d/b", "d/l"}


def test_what_a_person_said_counts_for_the_same_request_only(desk: Desk) -> None:
    replies = [write("a", "x"), {"text": "ok"}]
    run = desk.run([*replies, {"text": "more"}], approval_mode="default")
    assert desk("resume", run.run, "--approve", "all").out == "ok\n"
    assert desk("resume", run.run, "-p", "And now?").out == "more\n"
    again = put(desk.folder / "again.json", [*replies, {"text": "to the second prompt"}])
    found = desk("replay", run.run, "--model", f"script:{again}", "--json").json
    assert (found["status"], found["output"]["response"]) == ("done", "to the second prompt")
    assert found["divergence"] is None
    replies[0]["tool_calls"][0]["args"]["content"] = "y"  # type: ignore[index]
    put(again, replies)
    waits = desk("replay", run.run, "--model", f"script:{again}", "--json")
    assert (waits.code, waits.json["status"]) == (75, "waiting")
    assert not (Path(waits.json["workspace"]) / "a").exists()
    (request,) = waits.json["pending_approvals"]
    assert request["args"]["content"] == "y"
    assert desk("resume", waits.json["run"], "--approve", "all").code == 0
    assert (Path(waits.json["workspace"]) / "a").read_text() == "y"


def test_a_model_that_cant_be_had_leaves_no_fork(desk: Desk) -> None:
    run = desk.run().run
    folders = {path.name for path in desk.folder.iterdir() if path.is_dir()}
    for model, told in (("script:gone.json", "gone.json"), ("flash", "key")):
        done = desk("replay", run, "--model", model)
        assert done.code in (2, 41) and told in done.err, done.err
    script = f"script:{desk.folder / 'script.json'}"
    assert "no step 99" in desk("replay", run, "--model", script, "--until", "99").err
    both = desk("replay", run, "--model", "flash", "--swap", "a=b.py:c")
    assert both.code == 2 and "Give only one of them" in both.err
    assert "no step 99: it has -1 to" in desk("replay", run, "--until", "99").err
    assert {path.name for path in desk.folder.iterdir() if path.is_dir()} == folders
    assert len(desk("runs", "--json").json) == 1
