"""release: three reviewers look at a change side by side; a person at the join ships it or waits."""

from typing import Annotated

from pydantic import BaseModel

from interlock.workflow import (
    CALLS,
    END,
    START,
    Deps,
    Field,
    Graph,
    Input,
    Output,
    RunError,
    Runtime,
    State,
    ToolState,
    Workflow,
    ask_model,
    ask_person,
    call,
    merge_by_key,
    node,
    place_calls,
    results,
    tools,
)


class Review(BaseModel):
    """What each reviewer is asked for."""

    verdict: str = Field(description="ok, or what is wrong, in one line")


class ReleaseInput(Input):
    version: str = Field(min_length=1, description="the tag to set ★")


class ReleaseOutput(Output):
    version: str
    decision: str
    reviews: dict[str, str]


class ReleaseState(State, ToolState, total=False):
    version: str
    change: str
    reviews: Annotated[dict[str, str], merge_by_key]
    summary: str
    decision: str


@node(reads=("head",), writes=("head",))
async def call_diff(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    return {"head": place_calls(state, runtime, call("run_shell_command", command="git show --stat HEAD"))}


@node(reads=CALLS, writes=("change",))
async def take_diff(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    (shown,) = results(state, runtime)
    if shown.status != "success":
        raise RunError(f"There is no change to look at: {shown.content}")
    return {"change": shown.content}


async def reviewed(state: ReleaseState, runtime: Runtime[Deps], role: str) -> ReleaseState:
    prompt = f"You review the {role} of this change. Answer with JSON.\n\n{state['change']}"
    return {"reviews": {role: (await ask_model(runtime, prompt, role=role, schema=Review)).verdict}}


@node(reads=("change",), writes=("reviews",))
async def security(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    return await reviewed(state, runtime, "security")


@node(reads=("change",), writes=("reviews",))
async def tests(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    return await reviewed(state, runtime, "tests")


@node(reads=("change",), writes=("reviews",))
async def docs(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    return await reviewed(state, runtime, "docs")


@node(reads=("reviews",), writes=("summary",))
async def sum_up(state: ReleaseState) -> ReleaseState:
    return {"summary": "\n".join(f"{role}: {verdict}" for role, verdict in sorted(state["reviews"].items()))}


@node(reads=("version", "head"), writes=("head",))
async def call_tag(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    return {
        "head": place_calls(state, runtime, call("run_shell_command", command=f"git tag {state['version']}"))
    }


@node(reads=("version", "head"), writes=("head",))
async def call_list(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    """What counts is what the repository says: a kill may have hidden how the command ended."""
    look = call("run_shell_command", command=f"git tag --list {state['version']}")
    return {"head": place_calls(state, runtime, look)}


@node(reads=("version", *CALLS))
async def finish(state: ReleaseState, runtime: Runtime[Deps]) -> ReleaseState:
    (tags,) = results(state, runtime)
    if state["version"] not in tags.content:
        raise RunError(f"The tag {state['version']!r} isn't there: {tags.content}")
    return {}


def build() -> Graph:
    g = Graph("release", ReleaseState)
    g.nodes(call_diff, take_diff, security, tests, docs, sum_up, call_tag, call_list, finish)
    g.subgraph("diff", tools.build)
    g.subgraph("decide", ask_person("Ship it?", show="summary", answer="decision", options=("ship", "wait")))
    g.subgraph("tag", tools.build)
    g.subgraph("list", tools.build)

    g.edge(START, "call_diff")
    g.edge("call_diff", "diff")
    g.edge("diff", "take_diff")
    reviewers = ("security", "tests", "docs")
    for reviewer in reviewers:
        g.edge("take_diff", reviewer)
    g.join(reviewers, "sum_up")
    g.edge("sum_up", "decide")
    g.by_label("decide", {"ship": "call_tag", "wait": END, "declined": END})
    g.edge("call_tag", "tag")
    g.edge("tag", "call_list")
    g.edge("call_list", "list")
    g.edge("list", "finish")
    g.edge("finish", END)
    return g


WORKFLOW = Workflow("release", build, ReleaseInput, ReleaseOutput, prompt_field="version", needs_model=True)
