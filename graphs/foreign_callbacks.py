"""foreign_callbacks: turns what nodes, models and tools of a foreign graph do into steps and events.

Also hooks its `ToolNode`s, and keeps what it does to its process (prints, exits) from ours.
"""

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, wraps
from threading import Timer
from typing import Any, NamedTuple, TextIO, cast
from uuid import UUID

from langgraph.errors import GraphBubbleUp, GraphInterrupt

from interlock.graphs.foreign_interrupts import TOOL_CALL, NodeInterrupts
from interlock.graphs.foreign_node_results import NodeCompletionTracker
from interlock.graphs.foreign_requests import to_json_value
from interlock.graphs.langgraph_internals import StreamingHandler, find_task_of_callback
from interlock.state.deps import Deps
from interlock.state.errors import exception_line
from interlock.state.events import MessageEvent, NodeEnd, NodeStart, Thought, ToolResultEvent, ToolUse


class ForeignCallbacks(StreamingHandler):
    """LangChain's callbacks, called in the task or thread that they are about."""

    raise_error = True

    def __init__(
        self, deps: Deps, workflow: str, limits: Mapping[str, float], questions: NodeInterrupts
    ) -> None:
        """`limits`: node → seconds of its time-out."""
        self._deps, self._workflow, self._limits = deps, workflow, limits
        self._questions = questions
        self._overdue: dict[UUID, Timer] = {}
        self._nodes: dict[UUID, tuple[str, str, str, float]] = {}
        self._tools: dict[UUID, _ToolCall] = {}
        self.failed = ""
        """The innermost node that raised."""
        self.ends: NodeCompletionTracker | None = None

    def on_chain_start(
        self,
        serialized: Any,  # noqa: ARG002 - LangChain's signature
        inputs: Any,  # noqa: ARG002 - LangChain's signature
        *,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        if (found := find_task_of_callback(tags, metadata)) is None:
            return
        task, namespace, node = found
        if any(
            task == known for known, *_ in [*self._nodes.values()]
        ):  # a part of it; threads start some, too
            return
        self._questions.reset_task(task)
        self._deps.steps.record_start(task, namespace, node, self._workflow)
        self._nodes[run_id] = (
            task,
            node,
            str((metadata or {}).get("checkpoint_id", "")),
            time.perf_counter(),
        )
        if node in self._limits and (timer := self._deps.cancel.overdue(self._limits[node])):
            self._overdue[run_id] = timer
        self._deps.emit(NodeStart(workflow=self._workflow, node=node, checkpoint_id=self._nodes[run_id][2]))

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **_: Any) -> None:
        if (known := self._nodes.pop(run_id, None)) is None:
            return
        self._cancel_overdue_timer(run_id)
        task, node, checkpoint, started = known
        self._note_task_end(task)
        keys = [*map(str, outputs)] if isinstance(outputs, dict) else []  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
        ms = (time.perf_counter() - started) * 1000
        self._deps.steps.record_end(task, ms, keys)
        self._deps.emit(
            NodeEnd(workflow=self._workflow, node=node, checkpoint_id=checkpoint, duration_ms=round(ms, 3))
        )
        self.failed = ""  # a node of a graph inside it raised, and it went on

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        if run_id not in self._nodes:
            return
        self._cancel_overdue_timer(run_id)
        if isinstance(error, GraphInterrupt):
            task, node = self._nodes[run_id][:2]
            self._questions.write_missing_interrupt_requests(task, node, error.args[0] if error.args else ())
        elif (isinstance(error, Exception) or is_exit_exception(error)) and not isinstance(
            error, GraphBubbleUp
        ):
            self.failed = self.failed or self._nodes[run_id][1]
            self._deps.steps.invalidate_replies_of_failed_node(self._nodes[run_id][0])
        self._note_task_end(self._nodes.pop(run_id)[0])

    def _note_task_end(self, task: str) -> None:
        if self.ends:
            self.ends.mark_task_ended(task)

    def _cancel_overdue_timer(self, run_id: UUID) -> None:
        if timer := self._overdue.pop(run_id, None):
            timer.cancel()

    def on_chat_model_start(self, serialized: Any, messages: Any, *, run_id: UUID, **_: Any) -> None:
        """Asked for by LangChain; what is said is told as it comes."""

    def on_llm_new_token(self, token: Any, *, run_id: UUID, chunk: Any = None, **_: Any) -> None:
        _STREAMED.add(run_id)
        message = getattr(chunk, "message", None)
        self._emit_thought_and_text(message.text if message is not None else str(token), message, delta=True)

    def on_llm_end(self, response: Any, *, run_id: UUID, **_: Any) -> None:
        if run_id in _STREAMED:
            return _STREAMED.discard(run_id)
        for generation in (one for several in response.generations for one in several):
            self._emit_thought_and_text(generation.text, getattr(generation, "message", None), delta=False)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002 - LangChain's
        _STREAMED.discard(run_id)

    def _emit_thought_and_text(self, text: str, message: Any, *, delta: bool) -> None:
        for block in getattr(message, "content_blocks", None) or ():
            if block.get("type") == "reasoning" and block.get("reasoning"):
                self._deps.emit(Thought(content=block["reasoning"]))
        if text:
            self._deps.emit(MessageEvent(role="assistant", content=str(text), delta=delta))

    def on_tool_start(
        self,
        serialized: Mapping[str, Any] | None,
        input_str: str,
        *,
        run_id: UUID,
        inputs: Any = None,
        **more: Any,
    ) -> None:
        name = str((serialized or {}).get("name") or more.get("name") or "tool")
        args: Any = to_json_value(inputs if isinstance(inputs, dict) else {"input": input_str})
        args = {key: value for key, value in args.items() if key not in _INJECTED}
        call = str(more.get("tool_call_id") or "")
        self._tools[run_id] = _ToolCall(name, call or str(run_id), time.perf_counter(), TOOL_CALL.get())
        TOOL_CALL.set(call)
        self._deps.emit(ToolUse(tool_name=name, tool_id=call or str(run_id), parameters=args))

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        failed = getattr(output, "status", "") == "error"
        self._emit_tool_end(run_id, "error" if failed else "success", str(getattr(output, "text", output)))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        if isinstance(error, GraphBubbleUp):  # it waits for an answer, and starts again with it
            if known := self._tools.pop(run_id, None):
                TOOL_CALL.set(known.outer_call)
        else:
            self._emit_tool_end(run_id, "error", exception_line(error, 1_000))

    def _emit_tool_end(self, run_id: UUID, status: Any, text: str) -> None:
        if (known := self._tools.pop(run_id, None)) is None:
            return
        TOOL_CALL.set(known.outer_call)
        ms = round((time.perf_counter() - known.started) * 1000)
        self._deps.emit(
            ToolResultEvent(
                tool_name=known.name, tool_id=known.call, status=status, output=text, duration_ms=ms
            )
        )


class _ToolCall(NamedTuple):
    name: str
    call: str
    started: float
    outer_call: str
    """Id of the tool call that it is made in; empty: none."""


_INJECTED = frozenset({"runtime", "state", "store", "config"})
"""Arguments that LangGraph gives a tool, not a model."""


_INSIDE: ContextVar[bool] = ContextVar("inside a foreign graph", default=False)


def is_exit_exception(error: BaseException) -> bool:
    """Return whether an exception ends the event loop or is lost when a task raises it: `SystemExit`, and whatever else
    isn't an `Exception`. Signals don't raise: `engine/driver/stop.py` takes them.
    """
    return not isinstance(error, Exception | asyncio.CancelledError | GeneratorExit)


class ExitError(Exception):
    """Stands for an exit (`is_exit_exception`), its cause, outside of the task that raised it."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(f"It exited ({exception_line(cause)}). That ends its run.")
        for note in getattr(cause, "__notes__", ()):
            self.add_note(note)


@contextmanager
def redirect_stdout_and_catch_exits() -> Generator[None]:
    """Within it, and in tasks and threads started there, stdout is stderr, and an exit is an `ExitError`."""
    if not isinstance(sys.stdout, _StdoutSplitter):
        sys.stdout = cast(Any, _StdoutSplitter(sys.stdout))
    loop = asyncio.get_running_loop()
    if not isinstance(made := loop.get_task_factory(), _TaskFactory):
        loop.set_task_factory(_TaskFactory(made))
    token = _INSIDE.set(True)
    try:
        yield
    except BaseException as error:
        if not is_exit_exception(error):
            raise
        raise ExitError(error) from error
    finally:
        _INSIDE.reset(token)


class _StdoutSplitter:
    """Stands for stdout: writes from inside a graph, also from its threads, go to stderr; others as before."""

    def __init__(self, out: TextIO) -> None:
        self.out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _INSIDE.get() else self.out, name)


class _TaskFactory:
    """Makes a loop's tasks as before, but those from inside a graph of an `_ExitCatcher`."""

    def __init__(self, before: Any) -> None:
        self.before: Any = before or _create_task

    def __call__(self, loop: Any, coro: Any, **named: Any) -> Any:
        return self.before(loop, _ExitCatcher(coro) if _INSIDE.get() else coro, **named)


def _create_task(loop: Any, coro: Any, **named: Any) -> Any:
    return asyncio.Task(coro, loop=loop, **named)


class _ExitCatcher(Coroutine[Any, Any, Any]):
    """A coroutine whose exit is an error that its task holds."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)  # where it stands, for debuggers

    def __await__(self) -> Generator[Any, Any, Any]:
        return self.own.__await__()

    def send(self, value: Any) -> Any:
        try:
            return self.own.send(value)
        except BaseException as error:
            if not is_exit_exception(error):
                raise
            raise ExitError(error) from error

    def throw(self, *given: Any) -> Any:
        try:
            return self.own.throw(*given)
        except BaseException as error:
            if not is_exit_exception(error):
                raise
            raise ExitError(error) from error

    def close(self) -> None:
        self.own.close()


@cache
def patch_models_to_retry_without_streaming() -> None:
    """Ask a model that can't stream once more, for a whole answer: only `ForeignCallbacks` made it stream at all."""
    from langchain_core.language_models.chat_models import BaseChatModel

    own: Any = BaseChatModel
    generate, agenerate = own._generate_with_cache, own._agenerate_with_cache

    @wraps(generate)
    def run(self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **given: Any) -> Any:
        try:
            return generate(self, messages, stop, run_manager, **given)
        except Exception as error:
            with _without_stream_handlers_or_raise(run_manager, error):
                return generate(self, messages, stop, run_manager, **given)

    @wraps(agenerate)
    async def arun(self: Any, messages: Any, stop: Any = None, run_manager: Any = None, **given: Any) -> Any:
        try:
            return await agenerate(self, messages, stop, run_manager, **given)
        except Exception as error:
            with _without_stream_handlers_or_raise(run_manager, error):
                return await agenerate(self, messages, stop, run_manager, **given)

    own._generate_with_cache, own._agenerate_with_cache = run, arun


@contextmanager
def _without_stream_handlers_or_raise(run_manager: Any, error: Exception) -> Generator[None]:
    """Without the handlers that made a model stream. Raises the error if they didn't, or if it isn't about that."""
    handlers: list[Any] = run_manager.handlers if run_manager else []
    others = [one for one in handlers if not isinstance(one, ForeignCallbacks)]
    is_about_streams = isinstance(error, NotImplementedError) or "stream" in str(error).lower()
    if len(others) == len(handlers) or not is_about_streams or run_manager.run_id in _STREAMED:
        raise error
    run_manager.handlers = others
    try:
        yield
    finally:
        run_manager.handlers = handlers


_STREAMED = set[UUID]()
"""Calls of models that have said something, and last."""


def find_tool_nodes(compiled: Any) -> list[Any]:
    """The `ToolNode`s of a graph and of those inside it."""
    graphs = (compiled, *(inner for _, inner in compiled.get_subgraphs(recurse=True)))
    bound = (node.bound for graph in graphs for node in graph.nodes.values())
    return [one for one in bound if isinstance(getattr(one, "tools_by_name", None), dict)]


@cache
def patch_tool_node_calls(prepare: Callable[[Any], object]) -> None:
    """Call it with a `ToolNode` before each of its calls, also with those of graphs that tools make or hold."""
    from langgraph.prebuilt import ToolNode

    own: Any = ToolNode
    run_one, arun_one = own._run_one, own._arun_one

    @wraps(run_one)
    def run(self: Any, *args: Any, **named: Any) -> Any:
        prepare(self)
        return run_one(self, *args, **named)

    @wraps(arun_one)
    async def arun(self: Any, *args: Any, **named: Any) -> Any:
        prepare(self)
        return await arun_one(self, *args, **named)

    own._run_one, own._arun_one = run, arun
