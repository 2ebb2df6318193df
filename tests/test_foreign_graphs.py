"""LangGraph graphs that know nothing of Interlock: run, drawn, parked, killed and resumed as they are."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections import OrderedDict
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import warm
from commands import Run
from folders import put
from langgraph.types import Interrupt
from starlette.requests import Request

from interlock.engine import Decision, Options, Outcome, resume_sync, run_sync
from interlock.engine.client import Client
from interlock.engine.diagrams import render_diagram
from interlock.engine.read import (
    count_consecutive_root_nodes,
    list_runs,
    list_step_rows,
    list_steps,
    list_waiting_tasks,
)
from interlock.engine.read.run_path import build_run_path
from interlock.engine.store import Store
from interlock.engine.store.checkpoints import list_root_checkpoints
from interlock.engine.store.saver import Serde
from interlock.engine.workflows import find_workflow
from interlock.graphs.langgraph_internals import always_storable_types, langgraph_interrupt_id
from interlock.graphs.stored_values import StorableTypes
from interlock.nodes import guarded_tools
from interlock.state.deps import Deps
from interlock.state.errors import ConfigError, InputError, RunError, UntrustedError, UserError
from interlock.web.page_views import get_state_with_changes as state_on_page

AGENT = '''
"""Plans, and carries its plan out."""
import operator
from dataclasses import dataclass
from enum import Enum
from typing import Annotated
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

class Kind(Enum):
    QUICK = "quick"

class Step(BaseModel):
    text: str
    kind: Kind = Kind.QUICK

@dataclass
class Info:
    count: int

class State(TypedDict):
    topic: str
    steps: Annotated[list[Step], operator.add]
    info: Info
    log: Annotated[list[str], operator.add]

def plan(state: State):
    print("planning")
    return {"steps": [Step(text=state["topic"])], "info": Info(1), "log": ["plan"]}

async def work(state: State):
    kinds = type(state["steps"][0]).__name__, state["steps"][0].kind is Kind.QUICK, type(state["info"]).__name__
    return {"log": [f"work {kinds}"]}

def ask(state):
    answer = interrupt({"question": "go on?", "steps": [step.text for step in state["steps"]]})
    return {"log": [f"answer {answer!r}"]}

class Inner(TypedDict):
    steps: list[Step]
    log: list[str]

inner = StateGraph(Inner).add_node("ask", ask).add_edge(START, "ask").compile()
builder = StateGraph(State).add_node("plan", plan).add_node("work", work).add_node("review", inner)
builder = builder.add_edge(START, "plan").add_edge("plan", "work").add_edge("work", "review")
graph = builder.compile()
'''


@pytest.fixture
def options(tmp_path: Path) -> Options:
    (tmp_path / "ws").mkdir()
    return Options(home=tmp_path / "state", workspace=tmp_path / "ws", user_home=tmp_path, env={})


def written(options: Options, text: str, name: str = "agent.py") -> str:
    file = put((options.workspace or Path()) / name, textwrap.dedent(text))
    return str(file)


def answered(outcome: Outcome, options: Options, *texts: str) -> Outcome:
    decisions = [
        Decision(request["id"], "proceed_once", text=text)
        for request, text in zip(outcome.pending, texts, strict=True)
    ]
    return resume_sync(outcome.run, decisions=decisions, options=options)


def drawn(options: Options, run: str, depth: int) -> set[str]:
    """The lines that `interlock diagram --run` draws."""
    workflow, _ = find_workflow(written(options, AGENT), options)
    taken = build_run_path(
        list_step_rows(options.home, run), "waiting", list_waiting_tasks(options.home, run)
    )
    return {line.strip() for line in str(render_diagram(workflow, depth=depth, path=taken)).splitlines()}


def test_a_graph_runs_from_its_file_is_drawn_with_those_inside_it_and_its_own_classes_come_back(
    options: Options, capsys: pytest.CaptureFixture[str]
) -> None:
    parked = run_sync(f"{written(options, AGENT)}:graph", {"topic": "tea"}, options=options)
    (request,) = parked.pending
    assert (parked.status, request["kind"], request["preview"]) == (
        "waiting",
        "question",
        "question: go on?\nsteps:\n- tea",
    )
    assert 'review[["review ×1: waits here"]]' in drawn(options, parked.run, 1)
    inside = {
        'subgraph review["review"]',
        'review_ask["ask ×1: waits here"]',
        "review_ask --> review___end__",
    }
    assert inside <= drawn(options, parked.run, 2)
    done = answered(parked, options, '{"sure": true}')
    assert (done.status, done.output["log"][-2:]) == (
        "done",
        ["work ('Step', True, 'Info')", "answer {'sure': True}"],
    )
    (row,) = list_runs(options.home)
    assert (row.status, row.title) == ("done", "tea")
    assert count_consecutive_root_nodes(list_steps(options.home, row.run)) == [
        ("plan", 1),
        ("work", 1),
        ("review", 1),
    ]
    assert "planning" not in capsys.readouterr().out  # stdout is for the answer


REMEMBERS = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str
    before: str

def remember(state, runtime):
    found = runtime.store.get(("notes",), "last")
    runtime.store.put(("notes",), "last", {"text": state["text"]})
    return {"before": found.value["text"] if found else ""}

graph = StateGraph(State).add_node(remember).add_edge(START, "remember")
"""


def test_memories_outlive_a_run_and_need_an_extra_that_is_named_where_it_is_missing(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{written(options, REMEMBERS)}:graph"
    assert run_sync(name, {"text": "tea"}, options=options).output["before"] == ""
    assert run_sync(name, {"text": "ink"}, options=options).output["before"] == "tea"
    monkeypatch.setitem(sys.modules, "langgraph.store.sqlite", None)
    failed = run_sync(name, {"text": "ice"}, options=options).error or {}
    assert "need the extra `memory`. Run: interlock install memory" in failed["message"]


ENDLESS = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str
    count: int

def first(state):
    return {"count": 1}

def breaks(state):
    return split(state["text"])

def split(text):
    raise ValueError("no words")

broken = StateGraph(State).add_node(first).add_node(breaks).add_edge(START, "first").add_edge("first", "breaks")
"""


def test_an_error_of_theirs_is_theirs_with_node_and_lines(options: Options) -> None:
    failed = run_sync(f"{written(options, ENDLESS)}:broken", {"text": "a"}, options=options)
    assert failed.error == {
        "type": "node",
        "message": "Node 'breaks' failed: ValueError: no words (agent.py:13 in breaks > agent.py:16 in split)",
    }


EXITS = """
import sys
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from typing_extensions import TypedDict

State = TypedDict("State", {"text": str}, total=False)

def leave(state):
    sys.exit()

async def leave_later(state):
    raise KeyboardInterrupt

@tool
async def leave_by_tool(why: str) -> str:
    "Leave."
    sys.exit(why)

def call(state):
    return {"messages": [AIMessage("", tool_calls=[{"name": "leave_by_tool", "args": {"why": "done"}, "id": "1"}])]}

@task
def part(text):
    sys.exit(text)

@entrypoint()
async def functional(text):
    return await part(text)

def make(config):
    if "thread_id" in config["configurable"]:
        sys.exit("no key")
    return sync

sync = StateGraph(State).add_node(leave).add_edge(START, "leave").compile()
later = StateGraph(State).add_node(leave_later).add_edge(START, "leave_later")
inside = StateGraph(State).add_node("inner", sync).add_edge(START, "inner")
tools = StateGraph(MessagesState).add_sequence([call, ("tools", ToolNode([leave_by_tool]))]).add_edge(START, "call")
"""


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ("sync", "Node 'leave' failed: SystemExit (agent.py:13 in leave)"),
        ("later", "Node 'leave_later' failed: KeyboardInterrupt (agent.py:16 in leave_later)"),
        ("inside", "Node 'leave' failed: SystemExit (agent.py:13 in leave)"),
        ("tools", "Node 'tools' failed: SystemExit: done (agent.py:21 in leave_by_tool)"),
        ("functional", "Node 'part' failed: SystemExit: tea (agent.py:28 in part)"),
        ("make", "The graph failed: SystemExit: no key (agent.py:36 in make)"),
    ],
)
def test_a_graph_that_exits_ends_its_run_and_not_its_process(
    options: Options, graph: str, message: str
) -> None:
    given = {"input": "tea"} if graph == "functional" else {}
    failed = run_sync(f"{written(options, EXITS)}:{graph}", given, options=options)
    assert (failed.exit_code, failed.error) == (1, {"type": "node", "message": message})


INNER = """
import operator
from typing import Annotated
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str
    made: Annotated[list[str], operator.add]

class Made(TypedDict, total=False):
    made: list[str]

class Inner(Made, total=False):
    text: str

def draft(state):
    return {"text": "tea"}

def use(state):
    return {"made": [state["text"]]}

def ask(state):
    return unsaved.invoke({"text": state["text"]})

inner = StateGraph(Inner, output_schema=Made).add_node(use).add_edge(START, "use").compile()
unsaved = StateGraph(Inner, output_schema=Made).add_node(use).add_edge(START, "use").compile(checkpointer=False)
builder = StateGraph(State).add_node(draft).add_node("one", inner).add_node("two", inner).add_node(ask)
builder.add_edge(START, "draft").add_edge("draft", "one").add_edge("draft", "two").add_edge("draft", "ask")
"""


def test_a_graph_inside_another_gives_its_own_output_and_needs_no_saver(options: Options) -> None:
    done = run_sync(f"{written(options, INNER)}:builder", {"text": "x"}, options=options)
    assert (done.error, done.output) == (None, {"text": "tea", "made": ["tea", "tea", "tea"]})


HELPED = """
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode

def calls(name, **args):
    return lambda state: {"messages": [AIMessage("", tool_calls=[{"name": name, "args": args, "id": name}])]}

def agent(name, tools, **args):
    nodes = [("call", calls(name, **args)), ("tools", ToolNode(tools))]
    return StateGraph(MessagesState).add_sequence(nodes).add_edge(START, "call").compile()

@tool
def mail(to: str) -> str:
    "Send it."
    return f"sent to {to}"

@tool
def helper(wish: str) -> str:
    "Ask a helper, which is made when it is asked."
    return agent("mail", [mail], to=wish).invoke({"messages": []})["messages"][-1].text

graph = agent("helper", [helper], wish="Ann")
"""


def test_guarded_tools_are_asked_about_also_in_the_graph_of_a_tool(options: Options) -> None:
    asking = replace(options, guard=True)
    helps = run_sync(f"{written(options, HELPED)}:graph", {"messages": []}, options=asking)
    mails = answered(helps, asking, "")
    assert [one["preview"] for run in (helps, mails) for one in run.pending] == ["wish: Ann", "to: Ann"]
    assert answered(mails, asking, "").output["messages"][-1]["content"] == "sent to Ann"
    assert run_sync(f"{written(options, HELPED)}:graph", {"messages": []}, options=options).status == "done"


def test_an_approval_mode_chosen_while_a_graph_waits_guards_its_tools_from_then_on(options: Options) -> None:
    asking = replace(options, guard=True)
    helps = run_sync(f"{written(options, HELPED)}:graph", {"messages": []}, options=asking)
    chosen = resume_sync(helps.run, options=replace(asking, approval_mode="yolo"))
    assert (chosen.status, [line for line in chosen.warnings if "next prompt" in line]) == ("waiting", [])
    assert answered(chosen, asking, "").output["messages"][-1]["content"] == "sent to Ann"


BETWEEN = """
from dataclasses import dataclass
from typing import Annotated
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel
from typing_extensions import TypedDict

class Typed(BaseModel):
    text: str
    count: int = 1

def torn(old, new):
    raise KeyError("torn")

class Plain(TypedDict, total=False):
    text: str
    torn: Annotated[str, torn]

@dataclass
class Pair:
    text: str
    other: str

def row(state, **writes):
    names = [(name, lambda _, one=one: one) for name, one in writes.items()]
    return StateGraph(state).add_sequence([*names, ("last", lambda _: {})]).add_edge(START, names[0][0])

typed = row(Typed, first={"count": "many"})
messages = row(MessagesState, first={"messages": [{"rle": "user"}]})
reducer = row(Plain, first={"torn": "x"})
pair = row(Pair, first={})
both = StateGraph(Plain).add_node("a", lambda _: {"text": "a"}).add_node("b", lambda _: {"text": "b"})
both = both.add_edge(START, "a").add_edge(START, "b")
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("typed", "Node 'last' failed: ValidationError: 1 validation error for Typed count"),
        ("messages", "The graph failed: ValueError: Message dict must contain 'role' and 'content' keys"),
        ("reducer", "The graph failed: KeyError: 'torn' (agent.py:13 in torn)"),
        ("pair", "Node 'first' failed: TypeError: Pair.__init__() missing 1 required positional argument"),
        ("both", "The graph failed: InvalidUpdateError: At key 'text': Can receive only one value per step."),
    ],
)
def test_what_types_and_reducers_refuse_between_nodes_is_theirs_too_also_when_resumed(
    options: Options, name: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"messages": "x"} if name == "messages" else {"text": "x"}
    failed = run_sync(f"{written(options, BETWEEN)}:{name}", given, options=options)
    assert failed.error is not None and failed.error["type"] == "node"
    assert failed.error["message"].startswith(message)
    with pytest.raises(RunError) as again:
        resume_sync(failed.run, options=options)
    assert str(again.value) == failed.error["message"]
    assert not caplog.messages  # LangGraph's, about values that it doesn't know


KINDS = """
import re
from collections import Counter, OrderedDict, defaultdict, deque
from typing import Any
import numpy
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict
import tea_shapes as shapes

class Odd:
    pass

State = TypedDict("State", {"which": str, "value": Any, "is": str}, total=False)
MADE = {
    "collections": lambda: [defaultdict(list, a=[(1, 2)]), Counter("aab"), deque([1, 2], maxlen=2), OrderedDict(a=())],
    "tuples": lambda: {"deep": (1, (2, "x")), "set": {(3, 4)}, "pattern": re.compile("a+")},
    "classes": lambda: [shapes.Plan(text="tea"), shapes.Kind.QUICK, shapes.Place(1, (2, 3)), shapes.Pair((5, "y"))],
    "odd": Odd,
    "lambda": lambda: defaultdict(lambda: 0),
    "objects": lambda: numpy.array([{}], dtype=object),
}

def make(state):
    return {"value": MADE[state["which"]](), "which": None}

def look(state):
    return {"is": repr(state["value"])}

graph = StateGraph(State).add_sequence([make, look]).add_edge(START, "make").compile(interrupt_before=["look"])
"""
TEA_SHAPES = """
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple
from pydantic import BaseModel

class Kind(Enum):
    QUICK = "quick"

@dataclass
class Pair:
    both: tuple[int, str]

class Plan(BaseModel):
    text: str

class Place(NamedTuple):
    line: int
    columns: tuple[int, int]
"""


AGAIN = {
    "collections": "[defaultdict(<class 'list'>, {'a': [(1, 2)]}), Counter({'a': 2, 'b': 1}), deque([1, 2], maxlen=2), "
    f"{OrderedDict(a=())}]",
    "tuples": "{'deep': (1, (2, 'x')), 'set': {(3, 4)}, 'pattern': re.compile('a+')}",
    "classes": "[Plan(text='tea'), <Kind.QUICK: 'quick'>, Place(line=1, columns=(2, 3)), Pair(both=(5, 'y'))]",
    "lambda": "a defaultdict whose default is made by <function",
    "objects": "an array of numpy's type object",
    "odd": ".Odd. Expected JSON-like values",
}


@pytest.mark.parametrize(("which", "again"), AGAIN.items())
def test_values_that_no_type_of_the_state_names_come_back_as_they_were_or_are_refused(
    options: Options, which: str, again: str
) -> None:
    written(options, TEA_SHAPES, "tea_shapes.py")
    parked = run_sync(f"{written(options, KINDS)}:graph", {"which": which}, options=options)
    if parked.error:
        assert parked.error["message"].startswith(
            "Node 'make' failed: state key 'value' holds a value that can't be stored: "
        )
        assert again in parked.error["message"]
    else:
        done = answered(parked, options, "").output
        assert (done["is"], done["which"]) == (again, None)


DECLARED = """
import re
from collections.abc import Callable
from dataclasses import dataclass
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

class Odd:
    pass

class Loose(TypedDict, total=False):
    text: str
    odd: Odd
    call: Callable[[int], int]

class Strict(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True)
    text: str
    odd: Odd | None = None

@dataclass
class Topic:
    text: str

loose = StateGraph(Loose).add_node("a", lambda state: {}).add_edge(START, "a")
strict = StateGraph(Strict).add_node("a", lambda state: {}).add_edge(START, "a")

@entrypoint()
def values(given):
    return {"text": given["text"]}

@entrypoint()
def topic(given: Topic):
    return {"text": given.text}
"""


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("loose", {"text": "x"}),
        ("strict", {"text": "x"}),
        ("values", {"input": {"text": "x"}}),
        ("values", {"text": "x"}),
        ("topic", {"input": {"text": "x"}}),
    ],
)
def test_an_input_becomes_its_declared_type_and_has_a_schema_whatever_that_is(
    options: Options, name: str, given: dict[str, Any]
) -> None:
    address = f"{written(options, DECLARED)}:{name}"
    schema = find_workflow(address, options)[0].input.model_json_schema()
    assert {*given} <= {*schema["properties"]} or name == "values"
    assert run_sync(address, given, options=options).output["text"] == "x"


TAKEN = """
from typing import Annotated, Any
from langchain_core.messages import AIMessage, AnyMessage
from langgraph.func import entrypoint
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from pydantic import BaseModel
from typing_extensions import TypedDict

Loose = TypedDict("Loose", {"text": str, "n": int, "seen": str}, total=False)

class Chat(BaseModel):
    messages: Annotated[list[AnyMessage], add_messages] = []

class Strict(BaseModel):
    n: int
    seen: str = ""

def see(state):
    return {"seen": repr(state)}

loose = StateGraph(Loose).add_node("see", see).add_edge(START, "see").compile()
strict = StateGraph(Strict).add_node("see", see).add_edge(START, "see").compile()
chat = StateGraph(Chat).add_node("a", lambda s: {"messages": [AIMessage(f"heard {s.messages[-1].text}")]})
chat = chat.add_edge(START, "a").compile()

@entrypoint()
def single(given: Any):
    return repr(given)
"""


def test_an_input_is_taken_as_langgraph_takes_it(options: Options) -> None:
    file = written(options, TAKEN)

    def seen(name: str, given: Any) -> Any:
        return run_sync(f"{file}:{name}", given, options=options)

    done = seen("loose", {"text": 1, "n": "2", "txt": "x"})
    assert done.output["seen"] == "{'text': 1, 'n': '2'}"
    assert "Input field 'txt' is ignored. Did you mean 'text'?" in done.warnings
    for given in (
        "hi",
        {"role": "user", "content": "hi"},
        [{"role": "user", "content": "hi"}],
        [["user", "hi"]],
    ):
        assert seen("chat", {"messages": given}).output["messages"][-1]["content"] == "heard hi"
    for value in (5, "text", [1, {"a": 2}], {"a": 1}, {"input": 1}, 0, False):
        assert seen("single", {"input": value}).output == {"output": repr(value)}
    assert "validation error for Strict" in (seen("strict", {"n": "many"}).error or {})["message"]


@pytest.mark.parametrize("given", ["[1, 2]", "5", '"text"', "null", '{"a": 1}', '{"input": {"a": 1}}'])
def test_a_graph_without_fields_takes_bare_json_in_a_terminal(options: Options, given: str) -> None:
    file = written(options, TAKEN)
    done = warm.run(
        ["run", f"{file}:single", "--input", given, "-o", "json"],
        cwd=options.workspace,
        env={**os.environ, "INTERLOCK_HOME": str(options.home), "HOME": str(options.user_home)},
    )
    value = json.loads(given)
    value = value["input"] if isinstance(value, dict) and "input" in value else value
    if value is None:
        assert "Received no input" in done.stdout + done.stderr
    else:
        assert json.loads(done.stdout) == {"output": repr(value)}, done.stderr


UNUSUAL = """
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.func import entrypoint, task
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from interlock.workflow import effect
from typing import Any
from typing_extensions import TypedDict

class Whole(BaseChatModel):
    _llm_type = "whole"

    def _generate(self, messages, stop=None, run_manager=None, **_):
        return ChatResult(generations=[ChatGeneration(message=AIMessage("a whole answer"))])

    def _stream(self, *_, **__):
        raise RuntimeError("400: this server doesn't support stream=true")

def say(state):
    return {"messages": [Whole().invoke(state["messages"])]}

async def asay(state):
    return {"messages": [await Whole().ainvoke(state["messages"])]}

model = StateGraph(MessagesState).add_sequence([("say", say), ("asay", asay)]).add_edge(START, "say")

class Frame:
    def __init__(self, rows):
        self.rows = rows

def load(state):
    return {"frame": Frame([1, 2])}

def show(state):
    return {"text": interrupt("go on?") + str(state["frame"].rows)}

State = TypedDict("State", {"frame": Any, "text": str}, total=False)
saver = InMemorySaver(serde=JsonPlusSerializer(pickle_fallback=True))
frames = StateGraph(State, output_schema=TypedDict("Out", {"text": str}))
frames = frames.add_sequence([load, show]).add_edge(START, "load")
own, plain = frames.compile(saver), frames.compile()

class Cipher:
    def encrypt(self, plaintext):
        return "upside down", plaintext[::-1]

    def decrypt(self, ciphername, ciphertext):
        return ciphertext[::-1]

def hide(state):
    return {"frame": "a private thought", "text": "one"}

def tell(state):
    return {"text": interrupt("go on?") + state["frame"]}

hidden = StateGraph(State, output_schema=TypedDict("Out", {"text": str}))
hidden = hidden.add_sequence([hide, tell]).add_edge(START, "hide")
secret = InMemorySaver(serde=EncryptedSerializer(Cipher()))
hidden = hidden.compile(secret)

async def spread(state, runtime):
    await effect(runtime, "mail", lambda: {"sent": "a private letter", "to": (1, 2)})
    return Command(goto=[Send("each", {"item": "a private item", "rows": (1, 2)})])

def each(sent):
    return {"text": interrupt("go on?") + sent["item"] + str(sent["rows"])}

sent = StateGraph(State).add_node("spread", spread, destinations=("each",)).add_node(each)
sent = sent.add_edge(START, "spread").compile(secret)

@task
def look_up(text):
    return f"a private finding of {text}"

@entrypoint(secret)
def functional(given):
    found = look_up(given["text"]).result()
    return interrupt("go on?") + found

class Broken(Cipher):
    def decrypt(self, ciphername, ciphertext):
        raise ValueError("no key")

broken = frames.compile(InMemorySaver(serde=EncryptedSerializer(Broken())))
pieces = frames.compile(secret)
"""


def test_a_model_that_cant_stream_answers_whole(options: Options) -> None:
    done = run_sync(f"{written(options, UNUSUAL)}:model", {"messages": "hi"}, options=options)
    assert [one["content"] for one in done.output["messages"]][1:] == ["a whole answer"] * 2, done.error


def test_the_graphs_own_serializer_stores_what_ours_has_no_form_for(options: Options) -> None:
    file = written(options, UNUSUAL)
    parked = run_sync(f"{file}:own", {}, options=options)
    assert parked.status == "waiting", parked.error
    assert answered(parked, options, '"yes "').output == {"text": "yes [1, 2]"}
    assert "can't be stored" in (run_sync(f"{file}:plain", {}, options=options).error or {})["message"]


HIDDEN = {
    "hidden": ("It was: a private thought", {}),
    "sent": ("It was: a private item(1, 2)", {"text": "a private input"}),
    "functional": ("It was: a private finding of a private input", {"text": "a private input"}),
}
"""Graph → what it ends with, and its input."""


@pytest.mark.sqlite
@pytest.mark.parametrize("graph", HIDDEN)
def test_a_serializer_that_encrypts_has_all_that_a_graph_holds(options: Options, graph: str) -> None:
    end, given = HIDDEN[graph]
    parked = run_sync(f"{written(options, UNUSUAL)}:{graph}", given, options=options)
    assert parked.status == "waiting", parked.error
    assert any("EncryptedSerializer" in line and "stay readable" in line for line in parked.warnings)
    stored = b"".join(file.read_bytes() for file in options.home.glob("interlock.db*"))
    assert b"private" not in stored and b"etavirp" in stored
    states = [one.values for one in list_root_checkpoints(options.home, parked.run)]
    assert "stored by the graph's own serializer" in str(states), "for who looks at them"
    assert end in str(answered(parked, options, '"It was: "').output)


def test_a_value_that_an_encrypting_serializer_doesnt_bring_back_isnt_stored_readable(
    options: Options,
) -> None:
    with pytest.raises(RunError, match="own serializer doesn't bring back the input"):
        run_sync(f"{written(options, UNUSUAL)}:broken", {"text": "private"}, options=options)
    failed = run_sync(f"{written(options, UNUSUAL)}:pieces", {"text": "private"}, options=options)
    assert "'frame' holds a value that the graph's own serializer" in (failed.error or {})["message"]
    stored = b"".join(file.read_bytes() for file in options.home.glob("interlock.db*"))
    assert b"private" not in stored


def test_a_graph_may_begin_with_conditional_edges(options: Options) -> None:
    text = """
from langgraph.graph import START, StateGraph
from langgraph.types import Send
from typing_extensions import TypedDict

State = TypedDict("State", {"text": str, "end": str}, total=False)

def say(state):
    return {"end": state["text"] + "!"}

async def asay(state):
    return {"end": state["text"] + "?"}

def made(*ways):
    builder = StateGraph(State).add_node(say).add_node(asay)
    for way in ways:
        builder.add_conditional_edges(START, way, ["say", "asay"])
    return builder.compile()

chosen = made(lambda state: "asay")
sent = made(lambda state: [Send("say", {"text": "sent"})])
"""
    file = written(options, text)
    for name, end in (("chosen", "tea?"), ("sent", "sent!")):
        done = run_sync(f"{file}:{name}", {"text": "tea"}, options=options)
        assert done.output == {"text": "tea", "end": end}, done.error


def test_a_memory_may_be_any_json_value(options: Options) -> None:
    text = """
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

State = TypedDict("State", {"text": str}, total=False)

def remember(state, runtime):
    for key, value in {"a": "words", "b": [1, None], "c": {"d": 1}}.items():
        runtime.store.put(("notes",), key, value)
    found = runtime.store.search(("notes",))
    return {"text": repr([runtime.store.get(("notes",), "a").value, *(one.value for one in found)])}

graph = StateGraph(State).add_node(remember).add_edge(START, "remember").compile()
"""
    done = run_sync(written(options, text), {}, options=options)
    assert done.output["text"].startswith("['words', ") and "[1, None]" in done.output["text"], done.error


def test_a_key_that_a_state_lost_meanwhile_strands_no_parked_run(options: Options) -> None:
    text = """
import operator
from typing import Annotated
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

State = TypedDict("State", {"log": Annotated[list, operator.add], "note": str}, total=False)

def node(name):
    return lambda state: {"log": [name], "note": name}

inner = StateGraph(State).add_sequence([("one", node("one")), ("two", node("two"))]).add_edge(START, "one")
graph = StateGraph(State).add_node("first", node("first")).add_node("inner", inner.compile(interrupt_before=["two"]))
graph = graph.add_edge(START, "first").add_edge("first", "inner").compile(interrupt_after=["first"])
"""
    name = written(options, text)
    parked = run_sync(name, {}, options=options)
    written(options, text.replace(', "note": str', "").replace(', "note": name', ""))
    while parked.status == "waiting":
        parked = answered(parked, options, "")
    assert parked.output["log"][-1] == "two", parked.error


UNFIT = {
    "x = 1": "agent.py has no graphs of LangGraph. Expected one, such as `graph`.",
    "\nimport no_such_thing": "agent.py:2: no module 'no_such_thing' here; install",
    "import json.none": "agent.py:1: no module 'json.none' in the 'json' that is installed; "
    "expected a version that has it.",
    "\n1 / 0": "agent.py:2: ZeroDivisionError: division by zero; the file can't be imported.",
    "def (": "agent.py:1: invalid syntax; expected",
}
"""A file → what is said of it."""


@pytest.mark.parametrize(
    ("text", "name", "input", "message"),
    [
        *((text, "agent.py", {}, message) for text, message in UNFIT.items()),
        (
            "graph = 1",
            "agent.py:graph",
            {},
            "1 isn't a LangGraph graph; expected a StateGraph or an @entrypoint.",
        ),
        (AGENT, "agent.py:grph", {}, "agent.py has no 'grph'. Did you mean 'graph'?"),
        (AGENT, "none.py", {}, "expected a Python file with a LangGraph graph."),
    ],
)
def test_what_is_wrong_is_one_line(
    options: Options, text: str, name: str, input: dict[str, Any], message: str
) -> None:
    folder = Path(written(options, text)).parent
    with pytest.raises((ConfigError, InputError)) as error:
        run_sync(str(folder / name), input, options=options)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_package_of_the_project_itself_is_installed_from_its_folder(options: Options) -> None:
    name = written(options, "import no_such_thing", "src/no_such_thing/agent.py")
    put((options.workspace or Path()) / "pyproject.toml", "")
    with pytest.raises(ConfigError, match=f"-m pip install -e {options.workspace}$"):
        run_sync(name, {}, options=options)


def test_a_langgraph_json_counts_once_its_folder_is_trusted_and_may_name_a_module(options: Options) -> None:
    listing: Any = {"graphs": {"tea": "tea_house.agents:graph"}, "dependencies": ["./packages/house"]}
    listing["store"] = {"index": {"embed": "openai:text-embedding-3-small", "dims": 1536}}
    listing["env"] = {"TEA": "1"}
    put((options.workspace or Path()) / "langgraph.json", listing)
    written(options, "", "packages/house/tea_house/__init__.py")
    written(options, "from .agent import builder as graph", "packages/house/tea_house/agents/__init__.py")
    written(options, AGENT, "packages/house/tea_house/agents/agent.py")
    with pytest.raises(UntrustedError, match=r"Workflow 'tea' stands only in langgraph.json"):
        run_sync("tea", {"topic": "x"}, options=options)
    trusted = replace(options, skip_trust=True)
    parked = run_sync("tea", {"topic": "x"}, options=trusted)
    assert "a search of memories isn't ranked by meaning" in parked.warnings[0], "what it asks for in vain"
    assert (parked.workflow, answered(parked, trusted, "yes").output["log"][-1]) == ("tea", "answer 'yes'")


SHAPES = """
import operator
from dataclasses import dataclass
from typing import Annotated
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str
    log: Annotated[list[str], operator.add]

def row(**stops):
    names = "abc"
    graph = StateGraph(State).add_sequence([(name, lambda _, name=name: {"log": [name]}) for name in names])
    return graph.add_edge(START, "a").compile(**stops)

before = row(interrupt_before=["b"])
after = row(interrupt_after=["b"])
everywhere = row(interrupt_before="*", interrupt_after="*")

class Answer(BaseModel):
    count: int

def count(state):
    return {"log": [repr(interrupt("how many?", response_schema=Answer))]}

schema = StateGraph(State).add_node(count).add_edge(START, "count")

@dataclass
class Context:
    user: str
    times: int = 3

def greet(state, runtime, config):
    return {"log": [f"{runtime.context!r} {config['configurable']['user']}"]}

greeting = StateGraph(State, context_schema=Context).add_node(greet).add_edge(START, "greet")
"""


STOPS: dict[str, list[tuple[str, list[str]]]] = {
    "before": [("before 'b'", ["a"])],
    "after": [("after 'b'", ["a", "b"])],
    "everywhere": [
        ("before 'a'", []),
        ("before 'b' and after 'a'", ["a"]),
        ("before 'c' and after 'b'", ["a", "b"]),
    ],
}


@pytest.mark.parametrize(("name", "stops"), STOPS.items())
def test_a_breakpoint_waits_for_a_decision_whatever_resumes_the_run(
    options: Options, name: str, stops: list[tuple[str, list[str]]]
) -> None:
    outcome = run_sync(f"{written(options, SHAPES)}:{name}", {"text": "t"}, options=options)
    for where, ran in stops:
        again = resume_sync(outcome.run, options=options)  # without a decision
        (request,) = outcome.pending
        assert [one["id"] for one in again.pending] == [request["id"]]
        assert request["reason"] == f"a breakpoint of the graph: {where}"
        assert [
            node for node, _ in count_consecutive_root_nodes(list_steps(options.home, outcome.run))
        ] == ran
        outcome = resume_sync(
            outcome.run, decisions=[Decision(request["id"], "proceed_once")], options=options
        )
    assert (outcome.status, outcome.output["log"]) == ("done", ["a", "b", "c"])


def test_an_answer_that_the_interrupts_schema_refuses_is_told_and_can_be_given_again(
    options: Options,
) -> None:
    parked = run_sync(f"{written(options, SHAPES)}:schema", {"text": "t"}, options=options)
    for wrong, said in (("seven", "'seven' is not of type"), ('{"count": "x"}', "doesn't fit: 'count': 'x'")):
        with pytest.raises(UserError, match=said):
            answered(parked, options, wrong)
    assert answered(parked, options, '{"count": 7}').output["log"] == ["Answer(count=7)"]


def test_a_graphs_context_is_checked_before_it_starts(options: Options) -> None:
    name = f"{written(options, SHAPES)}:greeting"
    with pytest.raises(InputError, match=r"Context field 'user': Field required. Give it: --context"):
        run_sync(name, {"text": "t"}, options=options)
    done = run_sync(name, {"text": "t"}, options=replace(options, context={"user": "ann"}))
    assert done.output["log"] == ["Context(user='ann', times=3) ann"]
    with pytest.raises(InputError, match="takes no context"):
        run_sync("context", {"prompt": "t"}, options=replace(options, context={"user": "ann"}))


FACTORIES = """
from contextlib import asynccontextmanager
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str

opened = []

def made(name):
    def node(state):
        return {"text": f"{state['text']} by {name}, open: {len(opened)}"}
    return StateGraph(State).add_node(node).add_edge(START, "node")

def plain():
    return made("plain")

async def configured(config: RunnableConfig):
    return made(config["configurable"].get("who", "nobody"))

@asynccontextmanager
async def managed(config):
    opened.append(1)
    yield made("managed").compile()
    opened.pop()

async def generator(config, runtime):
    assert hasattr(runtime, "store")
    opened.append(1)
    yield made("generator")
    opened.pop()

def wrong():
    return 5

def breaks():
    raise KeyError("user")
"""


@pytest.mark.parametrize(
    ("factory", "text"),
    [
        ("plain", "x by plain, open: 0"),
        ("configured", "x by Ada, open: 0"),
        ("managed", "x by managed, open: 1"),
        ("generator", "x by generator, open: 1"),
    ],
)
def test_a_function_that_makes_a_graph_is_called_for_each_drive(
    options: Options, factory: str, text: str
) -> None:
    name = f"{written(options, FACTORIES)}:{factory}"
    chosen = replace(options, context={"who": "Ada"})
    for _ in range(2):
        assert run_sync(name, {"text": "x"}, options=chosen).output == {"text": text}


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("wrong", "The function 'wrong' returned 5; expected a StateGraph or an @entrypoint."),
        (
            "breaks",
            "The function 'breaks' failed: KeyError: 'user' (agent.py:39 in breaks). It makes the graph",
        ),
    ],
)
def test_a_function_that_makes_no_graph_is_one_line(options: Options, factory: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        run_sync(f"{written(options, FACTORIES)}:{factory}", {"text": "x"}, options=options)
    assert message in str(error.value)


BLOCKS = """
import time
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

class State(TypedDict, total=False):
    text: str

def thread(state):
    print("blocked", flush=True)
    time.sleep(600)

async def loop(state):
    thread(state)

in_thread = StateGraph(State).add_node(thread).add_edge(START, "thread")
in_loop = StateGraph(State).add_node(loop).add_edge(START, "loop")
slow_step = in_thread.compile()
slow_step.step_timeout = 1
slow_node = StateGraph(State).add_node(loop, timeout=1).add_edge(START, "loop")
"""


@pytest.mark.parametrize(
    ("graph", "flags", "code"),
    [
        pytest.param("in_thread", ["--timeout", "5"], 124, marks=pytest.mark.sweep),
        pytest.param("in_thread", [], 130, marks=pytest.mark.sweep),
        pytest.param("in_loop", ["--timeout", "1"], 124, marks=pytest.mark.sweep),
        ("in_loop", [], 130),
        pytest.param("slow_step", None, 124, marks=pytest.mark.sweep),
        pytest.param("slow_node", None, 124, marks=pytest.mark.sweep),
    ],
)
def test_code_that_blocks_heeds_a_stop_by_the_end_of_its_process(
    options: Options, graph: str, flags: list[str] | None, code: int
) -> None:
    """`flags`: empty: Ctrl-C stops it; None: a time-out of the graph's own does."""
    name = f"{written(options, BLOCKS)}:{graph}"
    env = {**os.environ, "HOME": str(options.user_home), "INTERLOCK_HOME": str(options.home)}
    args = [
        str(Path(sys.executable).parent / "interlock"),
        "run",
        name,
        *(flags or ()),
        "--input",
        '{"text": "x"}',
    ]
    with subprocess.Popen(args, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while "blocked" not in process.stderr.readline():
            assert process.poll() is None
        if flags == []:
            process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(60) == code
    place = re.search(r"(\w+) \(agent.py:\d+\) blocks (.*); the process ends, as if killed", said)
    assert place and place[2] == ("after its time-out" if code == 124 else "and can't be stopped"), said
    assert "would end it alone" in said and "Go on with: interlock resume " in said
    (row,) = list_runs(options.home)
    assert row.end_reason == ("timeout" if code == 124 else "cancelled") and "its process ended" in str(
        row.error
    )


WHOLE = """
from typing import Annotated
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import interrupt

def node(messages):
    return [("ai", f"{messages[-1].content}: {interrupt('Which?')}")]

graph = StateGraph(Annotated[list, add_messages]).add_node(node).add_edge(START, "node")
"""


def test_a_state_without_keys_is_one_value(options: Options) -> None:
    parked = run_sync(f"{written(options, WHOLE)}:graph", {"input": "tea"}, options=options)
    done = answered(parked, options, "green")
    assert (done.status, [m["content"] for m in done.output["output"]]) == ("done", ["tea", "tea: green"])


def test_a_variable_that_asks_for_traces_is_named_and_sends_none(options: Options) -> None:
    traced = replace(options, env={"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": "http://127.0.0.1:9"})
    name = f"{written(options, FACTORIES)}:plain"
    assert run_sync(name, {"text": "x"}, options=options).warnings == []
    assert run_sync(name, {"text": "x"}, options=traced).warnings == [
        "LANGSMITH_TRACING is set, but Interlock sends no traces."
    ]


RARE = """
import operator
from dataclasses import dataclass
from typing import Annotated
from langgraph.config import get_stream_writer
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, Send, interrupt
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

@dataclass
class Point:
    x: int

class State(MessagesState):
    topics: list[str]
    found: Annotated[list[str], operator.add]
    names: Annotated[set, lambda old, new: (old or set()) | (new or set())]
    raw: bytes
    point: Point
    keyed: dict
    verdict: str

async def plan(state: State):
    get_stream_writer()({"progress": "planning"})
    made = {"names": {"plan"}, "raw": b"\\xff", "point": Point(1), "keyed": {(1, 2): float("nan")}}
    thought = await GenericFakeChatModel(messages=iter([AIMessage("a thought")])).ainvoke("think")
    return {**made, "messages": [AIMessage("planned"), thought]}

def each(state: State):
    return [Send("research", {"topic": topic}) for topic in state["topics"]]

async def research(state):
    depth = interrupt({"options": ["deep", "shallow"], "question": f"How deep for {state['topic']}?"})
    return {"found": [depth]}

class Inner(MessagesState):
    private: int

def look(state: Inner):
    first, second = interrupt("Keep these?"), interrupt({"question": "Really?"})
    return Command(goto="write", graph=Command.PARENT, update={"verdict": f"{first}, {second}"})

def write(state: State):
    return {"verdict": state["verdict"] + ": written"}

inner = StateGraph(Inner).add_node(look).add_edge(START, "look").compile()
builder = StateGraph(State).add_node(plan).add_node(research).add_node(write)
builder = builder.add_node("judge", inner, destinations=("write",))
builder = builder.add_edge(START, "plan").add_conditional_edges("plan", each, ["research"])
graph = builder.add_edge("research", "judge").compile()
"""


def test_each_node_asks_its_own_question_and_values_that_are_no_json_are_shown_as_they_are(
    run: Run,
) -> None:
    put(Path("rare.py"), RARE)
    begun = run("run", "rare.py:graph", "--input", '{"topics": ["tea"]}', "--verbose")
    assert begun.code == 75 and '… {"progress": "planning"}' in begun.err
    assert "Question: How deep for tea? options: - deep - shallow " in begun.err
    (row,) = run("runs", "--json").json
    assert row["title"] == '{"topics": ["tea"]}'
    assert 'research["research ×1: waits here"]' in run("diagram", "--run", "latest").out
    state = run("show", "latest", "--at", "1", "--json").json["state"]
    assert (state["names"], state["raw"], state["point"]) == (["plan"], "_w==", {"x": 1})
    assert (state["keyed"], state["messages"][0]["content"]) == ({"(1, 2)": None}, "planned")
    path = {"path_params": {"run": row["run"]}}
    asked = Request({"type": "http", "query_string": b"step=1", "headers": [], **path})
    answer = state_on_page(cast(Any, SimpleNamespace(client=Client.for_this_user())), asked)
    assert json.loads(bytes(answer.body), parse_constant=pytest.fail)["values"] == state
    changed = run("diff", "latest", "0", "1").out
    assert '+ raw: "_w=="' in changed and "+ point.x: 1" in changed
    run("resume", "latest", "--answer", "1=deep")
    run("resume", "latest", "--answer", "2=yes")
    (waits,) = run("approvals", "--json").json
    assert (waits["id"][-2:], waits["number"], waits["reason"]) == ("q3", 3, "Your graph asks (node `look`)")
    ended = run("resume", "latest", "--answer", "3=sure")
    assert (ended.code, ended.json["verdict"], ended.json["raw"]) == (0, "yes, sure: written", "_w==")
    assert '"verdict": "yes, sure: written"' in run("export", "latest", "--format", "md").out
    assert "No difference" in run("replay", "latest").out  # the ids of messages are random


PAYING = """
    import threading
    from pathlib import Path
    from langchain_core.messages import AIMessage
    from langchain_core.tools import tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from langgraph.types import interrupt

    LATER = threading.Event()

    def ask(question, name):
        # The call that the file names asks after the other one.
        if Path("last").read_text() == name:
            LATER.wait(2)
        try:
            return interrupt(question)
        finally:
            LATER.set()

    @tool
    def pay(amount: int) -> str:
        "Pays."
        said = ask(f"pay {amount}?", str(amount))
        if said == "yes":
            with open("paid.txt", "a") as file:
                file.write(f"{amount}\\n")
        return f"{said}: {amount}"

    @tool
    def sign(page: int) -> str:
        "Signs; what it asks doesn't say which page."
        return f"{page} {ask('sign?', str(page))}"

    def calls(name, key, *given):
        return AIMessage("", tool_calls=[{"name": name, "args": {key: n}, "id": f"call-{n}"} for n in given])

    def graph_of(function, message):
        graph = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [message]})
        graph = graph.add_node("tools", ToolNode([function])).add_edge(START, "model")
        return graph.add_edge("model", "tools").compile()

    paying = graph_of(pay, calls("pay", "amount", 1, 1000))
    signing = graph_of(sign, calls("sign", "page", 1, 2))
"""


PAYING_TWICE = """
    import asyncio
    from pathlib import Path
    from typing import Annotated
    from langchain_core.messages import AIMessage
    from langchain_core.tools import InjectedToolCallId, tool
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode
    from interlock.workflow import guarded

    @tool
    def pay(amount: int, call: Annotated[str, InjectedToolCallId]) -> str:
        "Pays."
        with open("paid.txt", "a") as file:
            file.write(f"{call}\\n")
        return f"paid by {call}"

    async def in_turn(request, execute):
        # The call that the file names begins after the other one.
        if Path("last").read_text() == request.tool_call["id"]:
            await asyncio.sleep(0.01)
        return await execute(request)

    calls = [{"name": "pay", "args": {"amount": 5}, "id": name} for name in ("first", "second")]
    graph = StateGraph(MessagesState).add_node("model", lambda _: {"messages": [AIMessage("", tool_calls=calls)]})
    tools = ToolNode(guarded([pay], risk="write"), awrap_tool_call=in_turn)
    graph = graph.add_node("tools", tools).add_edge(START, "model")
    graph = graph.add_edge("model", "tools").compile()
"""


def _said(outcome: Outcome) -> list[str]:
    return [message["content"] for message in cast(Any, outcome.output)["messages"][2:]]


@pytest.mark.parametrize("first", ["1", "1000"])
def test_an_answer_reaches_only_the_call_that_asked_whichever_asks_first_after_a_restart(
    options: Options, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    file = written(options, PAYING)
    monkeypatch.chdir(str(options.workspace))
    last = {"1": "1000", "1000": "1"}
    put(Path("last"), last[first])
    parked = run_sync(f"{file}:paying", {"messages": "go"}, options=options)
    for _ in range(2):
        put(Path("last"), last[Path("last").read_text()])
        (request,) = parked.pending
        said = "yes" if request["preview"] == "pay 1?" else "no"
        parked = answered(parked, options, said)
    assert sorted(_said(parked)) == ["no: 1000", "yes: 1"], parked.error
    assert "1000" not in Path("paid.txt").read_text()


def test_equal_questions_are_told_apart_by_their_tool_call(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(options, PAYING)
    monkeypatch.chdir(str(options.workspace))
    put(Path("last"), "2")
    first = run_sync(f"{file}:signing", {"messages": "go"}, options=options)
    put(Path("last"), "1")
    second = answered(first, options, "A")
    assert second.status == "waiting", "each call asks for itself"
    assert sorted(_said(answered(second, options, "B"))) == ["1 A", "2 B"]


@pytest.mark.parametrize("same", [True, False], ids=["the same question", "another question"])
def test_an_answer_to_a_run_that_an_earlier_version_parked_counts_for_what_was_shown(
    options: Options, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    """Its requests have the ids that LangGraph gives by order."""
    file = written(options, ASKING)
    monkeypatch.chdir(str(options.workspace))
    put(Path("amount"), "1")
    parked = run_sync(f"{file}:changed", {"text": ""}, options=options)
    with closing(Store(options.home).connect()) as conn, conn.transaction():
        key, value = conn.execute("select key, request from approvals").fetchone()
        task = key.removeprefix("interrupt:").partition(":")[0]
        name = langgraph_interrupt_id(f"node:{task}", 0)
        old = {**json.loads(value), "key": f"interrupt:{name}:0"}
        changed = (old["key"], name, json.dumps(old))
        conn.execute_raw("update approvals set key = $1, interrupt = $2, request = $3", changed)
        serde = Serde(StorableTypes(always_storable_types()))
        of_interrupt = "where channel = '__interrupt__'"
        (item,) = serde.loads_typed(conn.execute(f"select type, value from writes {of_interrupt}").fetchone())
        saved = serde.dumps_typed((Interrupt(item.value, id=name),))
        conn.execute_raw(f"update writes set type = $1, value = $2 {of_interrupt}", saved)
    put(Path("amount"), "1" if same else "1000")
    done = answered(parked, options, "yes")
    if same:
        assert done.status == "done", done
        assert cast(Any, done.output)["log"] == ["1", "yes"], done.error
    else:
        assert done.status == "waiting" and "1000" in done.pending[0]["preview"]


@pytest.mark.parametrize("earlier", [False, True], ids=["parked now", "parked by an earlier version"])
def test_equal_guarded_calls_are_told_apart_by_their_tool_call(
    options: Options, monkeypatch: pytest.MonkeyPatch, earlier: bool
) -> None:
    """Whichever begins first after a restart: a refusal stays with its call, and so does what a call has done."""

    def numbered(name: str, deps: Deps, info: Any) -> str:
        return f"{name}.{deps.steps.next_occurrence_index(info.task_id, name)}"

    file = written(options, PAYING_TWICE)
    monkeypatch.chdir(str(options.workspace))
    put(Path("last"), "second")
    with monkeypatch.context() as patch:
        if earlier:
            patch.setattr(guarded_tools, "_next_invocation_key", numbered)
        parked = run_sync(f"{file}:graph", {"messages": "go"}, options=options)
    calls = {request["call"]: request["id"] for request in parked.pending}
    assert set(calls) == {"first", "second"}
    offered = {choice for request in parked.pending for choice in request["choices"]}
    assert "proceed_always_edits" not in offered, (
        "no editing tool, and one answer would decide the other call"
    )
    put(Path("last"), "first")
    decisions = [Decision(calls["first"], "proceed_once"), Decision(calls["second"], "reject", feedback="no")]
    done = resume_sync(parked.run, decisions=decisions, options=options)
    assert Path("paid.txt").read_text() == "first\n"
    told = {m["tool_call_id"]: m["content"] for m in cast(Any, done.output)["messages"][2:]}
    assert told["first"] == "paid by first", done.error
    assert "no" in told["second"]


ASKING = """
    import asyncio, warnings
    from pathlib import Path
    from langgraph.errors import NodeInterrupt
    from langgraph.graph import START, StateGraph
    from langgraph.types import interrupt
    from typing_extensions import TypedDict

    State = TypedDict("State", {"text": str, "log": list}, total=False)

    def graph_of(node):
        return StateGraph(State).add_node("node", node).add_edge(START, "node").compile()

    async def alike(_):
        async def one():
            return interrupt("the same?")

        return {"log": [*await asyncio.gather(one(), one()), interrupt("the same?")]}

    def until_a_number(_):
        asked = []
        while not asked or not isinstance(asked[-1], int):
            asked.append(interrupt("age?"))
        return {"log": asked}

    def changing(_):
        amount = Path("amount").read_text()
        return {"log": [amount, interrupt({"pay": amount, "for": {"tea", "milk", "bread"}})]}

    def refusing(state):
        with open("calls", "a") as file:
            file.write("x")
        with warnings.catch_warnings(action="ignore"):
            raise NodeInterrupt(f"too long: {state['text']}")

    same, ages, changed, endless = map(graph_of, (alike, until_a_number, changing, refusing))
"""


def test_one_answer_serves_parallel_questions_that_nothing_tells_apart_and_no_later_one(
    options: Options,
) -> None:
    parked = run_sync(f"{written(options, ASKING)}:same", {"text": ""}, options=options)
    parked = answered(parked, options, "A")
    assert parked.status == "waiting", "the third is asked after the two were answered"
    assert cast(Any, answered(parked, options, "B").output)["log"] == ["A", "A", "B"]


def test_a_loop_that_asks_the_same_again_gets_each_answer_once(options: Options) -> None:
    outcome = run_sync(f"{written(options, ASKING)}:ages", {"text": ""}, options=options)
    for said in ("young", "old", "41"):
        outcome = answered(outcome, options, said)
    assert cast(Any, outcome.output)["log"] == ["young", "old", 41]


def test_a_question_that_changed_since_its_answer_is_asked_anew(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(options, ASKING)
    monkeypatch.chdir(str(options.workspace))
    put(Path("amount"), "1")
    parked = run_sync(f"{file}:changed", {"text": ""}, options=options)
    put(Path("amount"), "1000")
    again = answered(parked, options, "yes")
    assert again.status == "waiting" and "1000" in again.pending[0]["preview"]
    done = answered(again, options, "no")
    assert cast(Any, done.output)["log"] == ["1000", "no"]


def test_an_answer_lets_a_node_that_raises_its_question_run_once(
    options: Options, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(options, ASKING)
    monkeypatch.chdir(str(options.workspace))
    outcome = run_sync(f"{file}:endless", {"text": "a long text"}, options=options)
    for calls in (2, 3):
        outcome = answered(outcome, options, "shorter")
        assert outcome.status == "waiting" and len(outcome.pending) == 1
        assert Path("calls").read_text() == "x" * calls
