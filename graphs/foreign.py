"""foreign: a LangGraph graph that knows nothing of Interlock, as a workflow: same runner, saver, requests and events.

It keeps its own state, context and nodes. What is ours comes from outside: the saver, the memory store, a callback
handler that turns its nodes, models and tools into events (`foreign_callbacks.py`), and requests for its interrupts
(`foreign_requests.py`). What its nodes print goes to stderr: stdout is for a run's answer.
"""

import asyncio
import contextlib
import inspect
import json
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, cast

from langgraph.errors import GraphDrained, NodeTimeoutError
from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError
from typing_extensions import override

from interlock.graphs.foreign_callbacks import (
    ForeignCallbacks,
    find_tool_nodes,
    patch_models_to_retry_without_streaming,
    patch_tool_node_calls,
    redirect_stdout_and_catch_exits,
)
from interlock.graphs.foreign_interrupts import NodeInterrupts
from interlock.graphs.foreign_node_results import NodeCompletionTracker
from interlock.graphs.foreign_requests import (
    build_graph_context,
    build_input_model,
    convert_input,
    find_prompt_field,
    graph_input_from_values,
    ignored_key_warnings,
    to_json_value,
)
from interlock.graphs.langgraph_internals import (
    QUESTIONS,
    copy_graph_with_saver,
    drive_and_yield_custom_data,
    ensure_compiled_graph,
    input_field_types,
    is_langgraph_graph,
    make_server_runtime,
    node_timeouts,
    patch_interrupt,
    types_named_by_graph,
)
from interlock.graphs.node_contract import restore_types_from_json
from interlock.graphs.node_errors import NodeError, convert_node_errors_and_redirect_stdout, node_error_line
from interlock.graphs.pipeline import Ending, Pipeline
from interlock.graphs.stored_values import (
    StoredForm,
    decode_if_hidden,
    encode_hidden_input,
    find_custom_serializer,
)
from interlock.nodes.current_run import DRIVE, CurrentDrive
from interlock.state.deps import Deps, Stopped
from interlock.state.errors import (
    THEIR_ERRORS,
    InputError,
    InterlockError,
    SetupError,
    UserError,
)
from interlock.state.events import CustomEvent
from interlock.state.run import WorkflowInput, WorkflowOutput
from interlock.state.workflow import WorkflowContext

Factory = Callable[..., Any]
"""A function that makes a graph, as `langgraph.json` may name it: sync, async, or a context manager."""


class ForeignInput(WorkflowInput):
    """What was given to the graph; the fields around it are ours, so that its own may have their names."""

    given: Any = None


def wrap_foreign_input(given: Any) -> ForeignInput:
    """The input of a graph, without fields of ours."""
    return ForeignInput.model_construct(given=given)


_WHOLE = ""
"""Holds an input that isn't the object that the graph wants: the graph refuses it in its own words."""


class ForeignOutput(WorkflowOutput, extra="allow"):
    """The values of the graph's output."""


def foreign_output_type(graph: Any) -> type[ForeignOutput]:
    """The output, with the schema that the graph has for it."""

    class Output(ForeignOutput):
        @classmethod
        def model_json_schema(cls, *args: Any, **named: Any) -> dict[str, Any]:
            try:
                return graph.get_output_jsonschema()
            except PydanticUserError:  # a type of theirs has none
                return super().model_json_schema(*args, **named)

    return Output


@dataclass(frozen=True)
class ForeignGraph:
    """What the engine asks of a declared graph."""

    name: str
    graph: Any
    retired: frozenset[str] = frozenset()
    subgraphs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    declarations: tuple[Any, ...] = ()

    def compile(self, checkpointer: Any = None) -> Any:
        """The graph, with our saver and the memory store that comes with it."""
        return copy_graph_with_saver(
            self.graph, checkpointer, getattr(checkpointer, "memory", None), self.name
        )

    def unbounded(self) -> list[str]:
        """LangGraph bounds loops at run time."""
        return []


@dataclass(frozen=True)
class ForeignWorkflow(Pipeline):
    """Somebody's graph as a workflow."""

    graph: Any = field(kw_only=True)
    types: frozenset[tuple[str, ...]] = frozenset()
    """Classes that its checkpoints may hold."""
    factory: Factory | None = None
    """Makes the graph of each drive; None: `graph` is it."""
    run_fields: ClassVar[frozenset[str]] = frozenset()
    runs_user_code: ClassVar[bool] = True
    checkpoint_values: ClassVar[Literal["json", "classes", "any"]] = "any"
    speaks_langgraph: ClassVar[bool] = True

    @override
    def build_uncompiled_graph(self, depth: int | None = None) -> Any:
        return ForeignGraph(self.name, self.graph)

    @override
    def validate_input(self, values: Mapping[str, Any] | WorkflowInput) -> WorkflowInput:
        """Nothing is refused that LangGraph takes; what it doesn't take, the graph itself refuses."""
        if isinstance(values, WorkflowInput):
            return values
        return wrap_foreign_input(graph_input_from_values(self.graph, dict(values), self.prompt_field))

    @property
    @override
    def accepts_non_object_input(self) -> bool:
        return input_field_types(self.graph) is None

    @override
    def parse_program_input(self, value: Any) -> WorkflowInput:
        return wrap_foreign_input(value)

    @override
    def warnings_at_start(self, input: WorkflowInput, env: Mapping[str, str]) -> list[str]:
        assert isinstance(input, ForeignInput)
        return [
            *self.notes,
            *ignored_key_warnings(self.graph, self.name, input.given),
            *tracing_warnings(env),
        ]

    @override
    def check_guard_flag_supported(self, guard: bool) -> None:
        if guard and not any(node.tools_by_name for node in find_tool_nodes(self.graph)):
            raise InputError(
                f"--guard finds no ToolNode in {self.name!r}. Put the tools that its nodes call under guarded(…), from "
                "interlock.workflow.",
                "guard",
            )

    @override
    def validate_context(self, context: Mapping[str, Any] | None) -> Any:
        return build_graph_context(self.graph, context or {})

    @override
    def run_title(self, input: WorkflowInput) -> str:
        if find_custom_serializer(self.graph):
            return self.name
        given = input.given if isinstance(input, ForeignInput) else None
        prompt: Any = cast(Any, given).get(self.prompt_field) if isinstance(given, dict) else given
        if isinstance(prompt, list) and prompt:  # messages
            last: Any = to_json_value(prompt[-1])
            prompt = cast(Any, last).get("content") if isinstance(last, dict) else last
        if isinstance(prompt, str) and prompt:
            return prompt
        return json.dumps(to_json_value(given), ensure_ascii=False) if given else self.name

    @override
    def _default_initial_state(self, input: WorkflowInput, context: WorkflowContext) -> dict[str, Any]:
        assert isinstance(input, ForeignInput)
        given: Any = to_json_value(input.given)
        if self.accepts_non_object_input:
            first = {"input": given}
        else:
            first = cast("dict[str, Any]", given) if isinstance(given, dict) else {_WHOLE: given}
        serde = find_custom_serializer(self.graph)
        return encode_hidden_input(serde, first) if serde else first

    @override
    def first_state(
        self, input: WorkflowInput, context: WorkflowContext, channels: Callable[[], Mapping[str, str]]
    ) -> dict[str, Any]:
        return self.enter(input, context)  # its channels are its own

    @override
    def graph_input(self, first: dict[str, Any], channels: Mapping[str, str]) -> Any:
        first = decode_if_hidden(find_custom_serializer(self.graph), first)
        alone = "input" if self.accepts_non_object_input else _WHOLE
        return convert_input(self.graph, first[alone] if {*first} == {alone} else first)

    @override
    def _default_output(self, values: Mapping[str, Any], context: WorkflowContext) -> WorkflowOutput:
        wanted: Any = self.graph.output_channels
        found: Any = values
        if isinstance(values, dict) and not isinstance(wanted, str):
            found = {key: values[key] for key in wanted if key in values}
        shown = to_json_value(found)
        return ForeignOutput.model_validate(shown if isinstance(shown, dict) else {"output": shown})

    @contextmanager
    @override
    def wrap_read_errors(self) -> Generator[None]:
        try:
            yield
        except InterlockError:
            raise
        except Exception as error:
            raise NodeError.from_exception(error) from error

    @override
    def split_immediate_modes(
        self, requested: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        return requested, {}  # its tools are guarded by the mode of each drive

    @override
    def ending_from_final_state(self, values: Mapping[str, Any], output: Mapping[str, Any]) -> Ending:
        return Ending()

    @override
    def with_langgraph_config(self, config: Mapping[str, Any]) -> Pipeline:
        return replace(self, graph=make_graph_for_inspection(self.factory, config)) if self.factory else self

    @override
    def require_thread_format(self) -> StoredForm:
        serde = getattr(self.graph.checkpointer, "serde", None)
        return StoredForm(self.types, serde, find_custom_serializer(self.graph) is not None)

    @override
    def check_state_writable(self) -> None:
        pass

    @override
    def check_model_switch(self, run: str) -> None:
        raise UserError(
            f"{self.name!r} is a graph of LangGraph and chooses its models itself. Change its file, then run its "
            f"nodes again, with their effects: interlock replay {run} --live"
        )

    @classmethod
    @override
    def conversation_head(cls, values: Mapping[str, Any]) -> str | None:
        return None

    @classmethod
    @override
    def stored_output(cls, values: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return values

    @override
    def node_functions(self) -> Iterator[tuple[str, Any]]:
        for place, graph in [("", self.graph), *self.graph.get_subgraphs(recurse=True)]:
            for name, node in graph.nodes.items():
                where = f"{place}|{name}".strip("|").replace("|", ".")
                bound = node.bound
                for tool in cast("Mapping[str, Any]", getattr(bound, "tools_by_name", {})).values():
                    yield (
                        f"{where}.{tool.name}",
                        getattr(tool, "func", None) or getattr(tool, "coroutine", None),
                    )
                yield where, getattr(bound, "afunc", None) or getattr(bound, "func", None)

    @override
    def should_run_nodes_in_replay(self, live: bool) -> bool:
        return live

    @override
    def replay_comparable_state(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**values}

    @override
    def request_identity_across_replays(self, request: Mapping[str, Any]) -> tuple[str, str]:
        return request["preview"], ""  # its nodes run, so the preview is there, and the ids are new ones

    @override
    async def advance(self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any) -> None:
        token = DRIVE.set(CurrentDrive(deps, asyncio.get_running_loop()))
        patch_interrupt()
        patch_models_to_retry_without_streaming()
        questions = NodeInterrupts(deps)
        asking = QUESTIONS.set(questions)
        watch = ForeignCallbacks(deps, self.name, node_timeouts(app), questions)
        # Its own limit of supersteps counts, else LangGraph's.
        own = {"configurable": config["configurable"], "callbacks": [watch]}
        try:
            async with AsyncExitStack() as stack:
                with deps.cancel.cancel_on_stop(), redirect_stdout_and_catch_exits():
                    if self.factory:
                        made = await stack.enter_async_context(
                            open_factory_graph(self.factory, config, app.store)
                        )
                        app = copy_graph_with_saver(made, app.checkpointer, app.store)
                    if deps.info.guard:
                        from interlock.nodes.guarded_tools import guard_tool_node

                        patch_tool_node_calls(guard_tool_node)
                    ends = watch.ends = NodeCompletionTracker(deps, has_callbacks=True)
                    work = self._drive_and_emit_custom_events(
                        app, graph_input, ends.with_task_submitter(own), deps, control
                    )
                    await ends.await_graph_and_nodes(work)
        except Stopped as stop:
            raise GraphDrained from stop
        except (InterlockError, GraphDrained):
            raise
        except Exception as error:
            if isinstance(error, TimeoutError | NodeTimeoutError):
                deps.cancel.overdue(0)  # a thread that it left behind would hold the process
            raise NodeError.from_exception(error, watch.failed) from error
        finally:
            QUESTIONS.reset(asking)
            DRIVE.reset(token)

    async def _drive_and_emit_custom_events(
        self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any
    ) -> None:
        about = self.validate_context(config["configurable"])
        async for data in drive_and_yield_custom_data(
            app, graph_input, config, context=about, durability="sync", control=control
        ):
            deps.emit(CustomEvent(data=to_json_value(data)))


def from_langgraph(
    graph: Any, name: str = "", summary: str = "", *, types: Iterable[type] = ()
) -> ForeignWorkflow:
    """Make a workflow of a LangGraph graph: a `StateGraph`, compiled or not, an `@entrypoint`, or a function that
    makes one, which is called again for each drive. `types`: classes that its state holds and its types don't name.

    Raises `SetupError` for anything else, or a graph that can't be compiled.
    """
    factory = graph if may_be_graph_factory(graph) else None
    name = name or str(getattr(graph, "name", "") or getattr(graph, "__name__", "") or "graph")
    graph = _make_graph_or_raise_setup_error(factory) if factory else graph
    if not is_langgraph_graph(graph):
        raise SetupError(f"{graph!r} isn't a LangGraph graph; expected a StateGraph or an @entrypoint.")
    try:
        compiled = ensure_compiled_graph(graph)
    except ValueError as error:
        raise SetupError(f"The graph {name!r} can't be compiled: {error}") from error
    notes = ("The graph's own checkpointer isn't used: Interlock keeps its state.",)
    if hides := find_custom_serializer(compiled):
        notes = (*notes, _READABLE.format(type(hides).__name__))
    kind = build_input_model(compiled, name)
    return ForeignWorkflow(
        name,
        lambda: ForeignGraph(name, compiled),  # pyright: ignore[reportArgumentType] - what the engine asks of a graph
        kind,
        foreign_output_type(compiled),
        graph=compiled,
        summary=summary,
        outcome="",
        prompt_field=find_prompt_field(compiled, kind),
        notes=notes if compiled.checkpointer not in (None, False, True) else (),
        types=frozenset(types_named_by_graph(compiled) | {(one.__module__, one.__name__) for one in types}),
        factory=factory,
    )


def tracing_warnings(env: Mapping[str, str]) -> list[str]:
    """Return a line that names the variable by which LangGraph would send traces of a graph, which we don't."""
    names = (f"{maker}_TRACING{version}" for maker in ("LANGSMITH", "LANGCHAIN") for version in ("", "_V2"))
    found = next((name for name in names if env.get(name, "").casefold() in ("1", "true")), "")
    return [f"{found} is set, but Interlock sends no traces."] if found else []


_READABLE = (
    "{} stores the graph's input, state and payloads, and results of effects. Questions with their answers, error "
    "lines, the context, memories, what programs send and read through `interlock serve`, and traces stay readable."
)


def _make_graph_or_raise_setup_error(factory: Factory) -> Any:
    try:
        return make_graph_for_inspection(factory)
    except InterlockError:
        raise
    except THEIR_ERRORS as error:
        line = node_error_line(factory.__name__, error).removeprefix("Node ")
        raise SetupError(
            f"The function {line}. It makes the graph, without any `configurable` at first."
        ) from error


class Workflow(Pipeline):
    """A workflow that users run by name: a `Graph` with its input and output, or any graph of LangGraph."""

    runs_user_code: ClassVar[bool] = True
    checkpoint_values: ClassVar[Literal["json", "classes", "any"]] = "classes"

    @staticmethod
    def from_langgraph(
        graph: Any, name: str = "", summary: str = "", *, types: Iterable[type] = ()
    ) -> ForeignWorkflow:
        """A workflow made of a LangGraph graph that knows nothing of Interlock.

        `graph`: a `StateGraph`, compiled or not, an `@entrypoint`, or a function that makes one. `types`: classes that
        its state holds and its types don't name; of a graph in a file, those in the file. Raises `SetupError` for
        anything that is no graph.
        """
        return from_langgraph(graph, name, summary, types=types)

    @override
    def first_state(
        self, input: WorkflowInput, context: WorkflowContext, channels: Callable[[], Mapping[str, str]]
    ) -> dict[str, Any]:
        return TypeAdapter(Any).dump_python(super().first_state(input, context, channels), mode="json")

    @override
    def graph_input(self, first: dict[str, Any], channels: Mapping[str, str]) -> Any:
        return {**restore_types_from_json(self.build_uncompiled_graph().state, first), **channels}

    @override
    async def advance(self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any) -> None:
        with convert_node_errors_and_redirect_stdout():
            await super().advance(app, graph_input, config, deps, control)


def may_be_graph_factory(found: object) -> bool:
    """Whether it is a function: called, it should return a graph."""
    return inspect.isroutine(found)


@asynccontextmanager
async def open_factory_graph(
    factory: Factory, config: Mapping[str, Any], store: Any = None
) -> AsyncGenerator[Any]:
    """The compiled graph of one drive; a context manager stays open around it. Raises `SetupError` otherwise."""
    async with AsyncExitStack() as stack:
        made = _wrap_generator_factory(factory)(*_factory_arguments(factory, config, store))
        made = await made if inspect.isawaitable(made) else made
        if not is_langgraph_graph(made) and hasattr(made, "__aenter__"):
            made = await stack.enter_async_context(made)
        elif not is_langgraph_graph(made) and hasattr(made, "__enter__"):
            made = stack.enter_context(made)
        if not is_langgraph_graph(made):
            raise SetupError(
                f"The function {factory.__name__!r} returned {made!r}; expected a StateGraph or an @entrypoint."
            )
        yield ensure_compiled_graph(made)


_UNCONFIGURED: Mapping[str, Any] = {"configurable": {}}


def make_graph_for_inspection(factory: Factory, config: Mapping[str, Any] = _UNCONFIGURED) -> Any:
    """Make the graph once, to see its input, nodes and types. Raises what the function raises, and `SetupError`."""
    found: list[Any] = []

    async def look() -> None:
        async with open_factory_graph(factory, config) as graph:
            found.append(graph)

    def run() -> None:
        try:
            asyncio.run(look())
        except BaseException as error:  # raised again below, in the caller's thread
            found.append(error)

    thread = threading.Thread(target=run)  # the caller may have an event loop of its own
    thread.start()
    thread.join()
    if isinstance(found[-1], BaseException):
        raise found[-1]
    return found[0]


def _wrap_generator_factory(factory: Factory) -> Factory:
    if inspect.isasyncgenfunction(factory):
        return asynccontextmanager(factory)
    return contextlib.contextmanager(factory) if inspect.isgeneratorfunction(factory) else factory


def _factory_arguments(factory: Factory, config: Mapping[str, Any], store: Any) -> list[Any]:
    """The config, and LangGraph's server runtime for a parameter of that name or type."""
    given: list[Any] = []
    for parameter in inspect.signature(factory).parameters.values():
        if parameter.default is not parameter.empty or parameter.kind in _REST:
            continue
        kind = str(parameter.annotation)
        wants_runtime = parameter.name == "runtime" or "ServerRuntime" in kind
        given.append(make_server_runtime(store) if wants_runtime else dict(config))
    return given


_REST = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
