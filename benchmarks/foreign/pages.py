"""pages: which examples of LangGraph's documentation are run, by page and code block: facts, no text of theirs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

REPOSITORY = "langchain-ai/langgraph"
COMMIT = "23961cff61a42b52525f3b20b4094d8d2fba1744"
"""The last one whose `docs/` holds the pages."""


@dataclass(frozen=True)
class Example:
    """The code blocks of a page that make a graph, and what it is given."""

    name: str
    page: str
    """Below `docs/docs/`; `package:NAME`: the description of an installed package."""
    blocks: tuple[int, ...]
    graph: str
    input: Mapping[str, Any]
    answers: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A part of a request's text → the answer."""
    values: Mapping[str, Any | Callable[[str], Any]] = field(default_factory=dict[str, Any])
    """What the scripted model gives as arguments of these names; more in `scripted.py`."""
    context: Mapping[str, str] = field(default_factory=dict[str, str])


def _once(part: str, first: Any, then: Any) -> Callable[[str], Any]:
    """`first` until the prompt holds the part."""
    return lambda text: then if part in text else first


_PLAN = {"steps": ["ask the archive"]}
_USER = "what's the weather in sf?"
_SAID = {"messages": "look it up, please"}
_LIST = {"input": [{"role": "user", "content": "look it up, please"}]}
_FLOWS = "tutorials/workflows.md"
_HUMAN = "how-tos/human_in_the_loop/add-human-in-the-loop.md"
_API = "how-tos/graph-api.md"
_SUPERVISOR = "tutorials/multi_agent/agent_supervisor.md"
_HISTORY = "how-tos/create-react-agent-manage-message-history.ipynb"
_SHAPED = "how-tos/react-agent-structured-output.ipynb"
_SUBGRAPH = "how-tos/subgraph.md"
_GRADE = {"grade": _once("feedback", "not funny", "funny")}
_LOOKED_UP = "\n".join(
    ("Plan: look it up. #E1 = Google[the hometown]", "Plan: shorten it. #E2 = LLM[shorten #E1]")
)

EXAMPLES = (
    Example("reflection", "tutorials/reflection/reflection.ipynb", (2, 4, 7), "graph", {"messages": "Tea."}),
    Example(
        "plan and execute",
        "tutorials/plan-and-execute/plan-and-execute.ipynb",
        (2, 3, 5, 6, 7, 9, 10, 11),
        "app",
        {"input": "Where does the winner live?"},
        values={"action": _once("ask the archive", _PLAN, {"response": "In a town."})},
    ),
    Example(
        "reasoning without observation",
        "tutorials/rewoo/rewoo.ipynb",
        (2, 3, 4, 8, 9, 10, 11, 12, 13),
        "app",
        {"task": "the hometown of the winner"},
        values={"text": (("make plans that can solve", _LOOKED_UP),)},
    ),
    Example(
        "reflexion",
        "tutorials/reflexion/reflexion.ipynb",
        (2, 3, 4, 5, 7, 9, 10),
        "graph",
        {"messages": "How should we handle it?"},
    ),
    Example(
        "RAG agent",
        "tutorials/rag/langgraph_agentic_rag.md",
        (2, 4, 6, 7, 9, 12, 15, 17, 19),
        "graph",
        {"messages": "What is said of rewards?"},
        values={"binary_score": "yes"},
    ),
    Example(
        "corrective RAG",
        "tutorials/rag/langgraph_crag.ipynb",
        (2, 3, 4, 5, 6, 7, 8, 9),
        "app",
        {"question": "What are the types of memory?"},
        values={"binary_score": _once("seven", "no", "yes")},
    ),
    Example("supervisor (package)", _SUPERVISOR, (2, 3, 6, 8), "supervisor", _SAID),
    Example("supervisor by hand", _SUPERVISOR, (2, 3, 6, 11, 12, 13), "supervisor", _SAID),
    Example(
        "supervisor with Send",
        _SUPERVISOR,
        (2, 3, 6, 11, 17, 18),
        "supervisor_with_description",
        _SAID,
    ),
    Example("supervisor (README)", "package:langgraph-supervisor", (0,), "app", _SAID),
    Example("swarm (README)", "package:langgraph-swarm", (0,), "app", _SAID),
    Example("handoffs", "how-tos/multi_agent.md", (5,), "multi_agent_graph", _SAID),
    Example(
        "collaboration",
        "tutorials/multi_agent/multi-agent-collaboration.ipynb",
        (2, 3, 4, 5),
        "graph",
        _SAID,
        values={"code": "print(42)"},
    ),
    Example("map-reduce", _API, (46,), "graph", {"topic": "animals"}),
    Example("branches", _API, (36,), "graph", {"aggregate": []}),
    Example("conditional branches", _API, (42,), "graph", {"aggregate": []}),
    Example("context", _API, (21,), "graph", _SAID, context={"system_message": "Be brief."}),
    Example("prompt chain", _FLOWS, (0, 1, 2), "chain", {"topic": "cats"}),
    Example("prompt chain, functional", _FLOWS, (0, 3), "prompt_chaining_workflow", {"input": "cats"}),
    Example("parallel calls", _FLOWS, (0, 1, 2, 4), "parallel_workflow", {"topic": "cats"}),
    Example("parallel calls, functional", _FLOWS, (0, 3, 5), "parallel_workflow", {"input": "cats"}),
    Example("routing", _FLOWS, (0, 1, 2, 6), "router_workflow", {"input": "a joke"}),
    Example("routing, functional", _FLOWS, (0, 1, 3, 7), "router_workflow", {"input": "a joke"}),
    Example("orchestrator", _FLOWS, (0, 1, 2, 6, 8, 9), "orchestrator_worker", {"topic": "scaling"}),
    Example(
        "orchestrator, functional", _FLOWS, (0, 1, 3, 7, 8, 10), "orchestrator_worker", {"input": "scaling"}
    ),
    Example("evaluator", _FLOWS, (0, 1, 2, 6, 11), "optimizer_workflow", {"topic": "cats"}, values=_GRADE),
    Example(
        "evaluator, functional",
        _FLOWS,
        (0, 1, 3, 7, 12),
        "optimizer_workflow",
        {"input": "cats"},
        values=_GRADE,
    ),
    Example("agent with tools", _FLOWS, (0, 1, 2, 6, 13, 14), "agent", _SAID),
    Example("agent with tools, functional", _FLOWS, (0, 1, 3, 7, 13, 15), "agent", _LIST),
    Example("prebuilt agent", _FLOWS, (0, 1, 2, 6, 13, 16), "pre_built_agent", _SAID),
    Example("agent from scratch", "how-tos/react-agent-from-scratch.ipynb", (2, 3, 4, 5), "graph", _SAID),
    Example(
        "agent from scratch, functional",
        "how-tos/react-agent-from-scratch-functional.ipynb",
        (2, 3, 4, 6),
        "agent",
        _LIST,
    ),
    Example("structured answer by tool", _SHAPED, (2, 3), "graph", _SAID),
    Example("structured answer by model", _SHAPED, (2, 6), "graph", _SAID),
    Example("trimmed history", _HISTORY, (2, 3), "graph", _SAID),
    Example("removed history", _HISTORY, (2, 3, 10), "graph", _SAID),
    Example("summarized history", _HISTORY, (2, 3, 13), "graph", _SAID),
    Example(
        "review and edit",
        _HUMAN,
        (1,),
        "graph",
        {"some_text": "original text"},
        answers={"text_to_revise": "Edited text"},
    ),
    Example(
        "parallel questions",
        _HUMAN,
        (3,),
        "graph",
        {"text_1": "first", "text_2": "second"},
        answers={"first": "edited first", "second": "edited second"},
    ),
    Example("approve or reject", _HUMAN, (5,), "graph", {}, answers={"Do you approve": "approve"}),
    Example(
        "edit the state", _HUMAN, (7,), "graph", {}, answers={"review and edit": {"edited_summary": "Short."}}
    ),
    Example(
        "review tool calls",
        _HUMAN,
        (8,),
        "agent",
        _SAID,
        answers={"approve or suggest": {"type": "edit", "args": {"hotel_name": "Other"}}},
    ),
    Example(
        "review tool calls by wrapper",
        _HUMAN,
        (11, 12),
        "agent",
        _SAID,
        answers={"Please review": [{"type": "accept"}]},
    ),
    Example(
        "validate the answer",
        _HUMAN,
        (15,),
        "graph",
        {},
        answers={"is not valid": 25, "Please enter": "not a number"},
    ),
    Example("breakpoints", _HUMAN, (18,), "graph", {"input": "hello"}, answers={"": ""}),
    Example("question below a node", _HUMAN, (25,), "graph", {"state_counter": 1}, answers={"name": "35"}),
    Example(
        "two questions in a node",
        _HUMAN,
        (26,),
        "graph",
        {"age": None, "name": None},
        answers={"name": "John", "age": 25},
    ),
    Example(
        "wait for input",
        "how-tos/human_in_the_loop/wait-user-input.ipynb",
        (2,),
        "graph",
        {"input": "hello"},
        answers={"feedback": "go to step 3!"},
    ),
    Example(
        "agent that asks",
        "how-tos/human_in_the_loop/wait-user-input.ipynb",
        (2, 6),
        "app",
        _SAID,
        answers={"question": "san francisco"},
    ),
    Example(
        "chatbot with a person",
        "tutorials/get-started/4-human-in-the-loop.md",
        (0, 1, 2),
        "graph",
        _SAID,
        answers={"query": {"data": "Use it."}},
    ),
    Example(
        "state set by a tool",
        "tutorials/get-started/5-customize-state.md",
        (7, 8),
        "graph",
        _SAID,
        answers={"Is this correct": {"name": "LangGraph", "birthday": "Jan 17"}},
    ),
    Example("time travel", "how-tos/human_in_the_loop/time-travel.md", (2,), "graph", {}),
    Example("subgraph as node", _SUBGRAPH, (1,), "graph", {"foo": "foo"}),
    Example("subgraph called", _SUBGRAPH, (3,), "graph", {"foo": "foo"}),
    Example("grandchild graph", _SUBGRAPH, (4,), "parent_graph", {"my_key": "Bob"}),
    Example("question in a subgraph", _SUBGRAPH, (7,), "graph", {"foo": ""}, answers={"Provide": "bar"}),
    Example("short-term memory", "how-tos/persistence-functional.ipynb", (2, 3), "workflow", _LIST),
    Example(
        "memory store",
        "how-tos/cross-thread-persistence-functional.ipynb",
        (2, 3),
        "workflow",
        {"input": [{"role": "user", "content": "Remember: my name is Bob"}]},
        context={"user_id": "1"},
    ),
    Example("memory store with search", "how-tos/memory/add-memory.md", (21,), "graph", _SAID),
)
