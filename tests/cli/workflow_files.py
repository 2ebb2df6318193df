"""files: a workflow file as a user writes it, in a trusted folder."""

from pathlib import Path

from interlock.services.trust.decisions import record_trust_decision

NOTE = '''"""note: a release note, written once somebody has approved it."""

from interlock.workflow import (
    CALLS, END, START, Deps, Field, Graph, Input, Output, RunError, Runtime, State, ToolState, Workflow,
    approve, ask_model, call, node, place_calls, results, tools,
)


class NoteInput(Input):
    topic: str = Field(description="what the note is about ★")


class NoteOutput(Output):
    status: str
    note: str


class NoteState(State, ToolState, total=False):
    topic: str
    note: str
    status: str


@node(reads=("topic",), writes=("note",))
async def draft(state: NoteState, runtime: Runtime[Deps]) -> NoteState:
    return {"note": await ask_model(runtime, f"One line for the changelog about: {state['topic']}")}


@node(reads=("note", "head"), writes=("head",))
async def publish(state: NoteState, runtime: Runtime[Deps]) -> NoteState:
    return {"head": place_calls(state, runtime, call("write_file", file_path="NOTE.md", content=state["note"]))}


@node(reads=CALLS, writes=("status",))
async def finish(state: NoteState, runtime: Runtime[Deps]) -> NoteState:
    (written,) = results(state, runtime)
    if written.status != "success":
        raise RunError(written.content)
    return {"status": "done"}


def build() -> Graph:
    g = Graph("note", NoteState)
    g.nodes(draft, publish, finish)
    g.subgraph("review", approve("Publish this note?", show="note"))
    g.subgraph("write", tools.build)
    g.edge(START, "draft")
    g.edge("draft", "review")
    g.by_label("review", {"approved": "publish", "rejected": "draft"})
    g.edge("publish", "write")
    g.edge("write", "finish")
    g.edge("finish", END)
    return g


WORKFLOW = Workflow("note", build, NoteInput, NoteOutput, prompt_field="topic")
'''


def declare(root: Path, name: str, text: str, home: Path | None = None) -> Path:
    """Write the file; with `home`, trust the folder there."""
    file = root / ".interlock" / "workflows" / f"{name}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    if home is not None:
        record_trust_decision(root, home, trusted=True)
    return file
