"""triage: one issue text becomes JSON: kind, severity, and one line; a person says what the model can't tell."""

from typing import Literal

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
    node,
    place_calls,
    results,
    tools,
)

KINDS = ("bug", "feature", "question")


class Judgement(BaseModel):
    """What the model is asked for."""

    kind: Literal["bug", "feature", "question", "unclear"]
    severity: int = Field(ge=1, le=5)
    summary: str


class TriageInput(Input):
    file: str = Field(description="the issue's text, a path in the workspace ★")


class TriageOutput(Output):
    file: str
    kind: str
    severity: int
    summary: str


class TriageState(State, ToolState, total=False):
    file: str
    text: str
    kind: str
    severity: int
    summary: str


@node(reads=("file", "head"), writes=("head",))
async def open_issue(state: TriageState, runtime: Runtime[Deps]) -> TriageState:
    return {"head": place_calls(state, runtime, call("read_file", file_path=state["file"]))}


@node(reads=CALLS, writes=("text",))
async def take_text(state: TriageState, runtime: Runtime[Deps]) -> TriageState:
    (read,) = results(state, runtime)
    if read.status != "success":
        raise RunError(f"The issue can't be read: {read.content}")
    return {"text": read.content}


@node(
    reads=("text",),
    writes=("kind", "severity", "summary"),
    labels=("clear", "unclear"),
    timeout_s=120,
    retries=2,
)
async def classify(state: TriageState, runtime: Runtime[Deps]) -> TriageState:
    prompt = f"What is this issue? Answer with JSON.\n\n{state['text']}"
    found = await ask_model(runtime, prompt, schema=Judgement)
    told: TriageState = {"severity": found.severity, "summary": found.summary, "kind": found.kind}
    return {**told, "label": "unclear" if found.kind == "unclear" else "clear"}


def build() -> Graph:
    g = Graph("triage", TriageState)
    g.nodes(open_issue, take_text, classify)
    g.subgraph("read", tools.build)
    g.subgraph("ask", ask_person("Which kind of issue is this?", show="text", answer="kind", options=KINDS))

    g.edge(START, "open_issue")
    g.edge("open_issue", "read")
    g.edge("read", "take_text")
    g.edge("take_text", "classify")
    g.by_label("classify", {"clear": END, "unclear": "ask"})
    g.by_label("ask", {**dict.fromkeys(KINDS, END), "declined": END})
    return g


WORKFLOW = Workflow("triage", build, TriageInput, TriageOutput, prompt_field="file", needs_model=True)
