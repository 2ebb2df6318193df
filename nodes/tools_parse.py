"""tools_parse: begin a batch: read its calls by protocol, announce them, and answer those that aren't run."""

from collections.abc import Callable, Sequence
from typing import Literal

from langgraph.runtime import Runtime

from interlock.nodes.tools_results import result_event
from interlock.prompts import render
from interlock.state.calls import CallKey, CallOutcome, CallView, failure
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.events import ToolUse
from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.state.node import node
from interlock.state.task import DEEPEST
from interlock.state.tools import ToolsState
from interlock.tools._argument_names import own_names
from interlock.tools._json_calls import JsonCall, read_calls
from interlock.tools._tagged_calls import TaggedTools

_Reader = Callable[[str, Sequence[ToolDeclaration]], tuple[str, Sequence[JsonCall]]]
"""Separates a text from the calls in it."""


def by_protocol(state: ToolsState) -> Literal["native", "xml", "json"]:
    """`auto`: a model that called natively, or as JSON, was taken at its word (`Models.protocol_after`)."""
    match state.get("protocol"):
        case "xml" | "auto":
            return "xml"
        case "json":
            return "json"
        case _:
            return "native"


@node(reads=("head",), writes=("head",), fusable=True)
async def parse_xml(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Read calls from the tags in a message that was passed in; those of an answer were read as it streamed."""
    return _parsed(state, runtime, _from_tags)


@node(reads=("head",), writes=("head",), fusable=True)
async def parse_json(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """As `parse_xml`, from one JSON object, or fenced ones."""
    return _parsed(state, runtime, read_calls)


def _parsed(state: ToolsState, runtime: Runtime[Deps], reader: _Reader) -> ToolsState:
    deps = runtime.context
    message = deps.transcript.message(state["head"])
    if message.tool_calls:
        return {}
    text, found = reader(message.text, deps.toolset.declarations())
    calls = [ToolCall(id=f"0.{i}", name=name, args=args) for i, (name, args) in enumerate(found)]
    read = with_own_names(message.model_copy(update={"content": text, "tool_calls": tuple(calls)}))
    return {"head": deps.transcript.append(state["head"], [read])}


def _from_tags(text: str, offered: Sequence[ToolDeclaration]) -> tuple[str, Sequence[JsonCall]]:
    """JSON out of habit counts, too. Raises `RunError` if a tag can't be read."""
    rest, found = read_calls(text, offered)
    if found:
        return rest, found
    tools = TaggedTools(offered)
    parser = tools.parser()
    parser.feed(text)
    parser.close()
    if parser.problem:
        raise RunError(
            f"The text's calls can't be read: {parser.problem}. Write each one out, with its closing tag."
        )
    return parser.text, [*map(tools.read, parser.calls)]


@node(reads=("head", "withheld"), writes=("message", "count", "decided", "stop"), fusable=True)
async def parse(state: ToolsState, runtime: Runtime[Deps]) -> ToolsState:
    """Calls stay in the chain; the batch is identified by the record that contains them."""
    deps, head = runtime.context, state["head"]
    message = deps.transcript.message(head)
    if not message.tool_calls:
        raise RunError(f"The batch {head!r} holds no call; expected an assistant message with calls.")
    for call in message.tool_calls:
        summary = deps.toolset.summary(CallView(id=call.id, name=call.name, args=call.args))
        use = ToolUse(tool_name=call.name, tool_id=call.id, parameters=call.args, summary=summary)
        runtime.stream_writer(use)
    parsed: ToolsState = {"message": head, "count": len(message.tool_calls), "stop": ""}
    if withheld := state.get("withheld"):
        parsed["decided"] = {
            index: _withheld(int(index), why, state, runtime) for index, why in withheld.items()
        }
    return parsed


def with_own_names(message: Message) -> Message:
    """The message's calls with the tools' own argument names."""
    calls = (c.model_copy(update={"args": own_names(c.name, c.args)}) for c in message.tool_calls)
    return message.model_copy(update={"tool_calls": tuple(calls)})


def _withheld(index: int, why: str, state: ToolsState, runtime: Runtime[Deps]) -> CallOutcome:
    """Answer a call that won't be run."""
    deps, key = runtime.context, CallKey(message=state["head"], index=index)
    call = deps.journal.call(key)
    match why:
        case "repeated":
            result = failure("repeated_call", render("task_loop/repeated_call", tool=call.name))
        case "open todos":
            result = failure("open_todos", render("task_loop/open_todos"))
        case "too deep":
            result = failure("not_executed", render("task_loop/too_deep", levels=str(DEEPEST)))
        case _:
            result = failure("not_executed", render("task_loop/second_call"))
    deps.journal.finish(key, call, result)
    runtime.stream_writer(result_event(deps, key, ""))
    return {"word": "answered", "attempt": 1}
