"""program_drive: drives a thread's run as a program asked: it begins, gets answers, or moves as a `Command` says.

Whoever serves the program is a `StreamReceiver`: it gets the parts of LangGraph's stream as they come.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, cast

from pydantic import BaseModel

from interlock.engine.client import Client, Outcome, Renderer, RunRow, threads
from interlock.engine.client.api_rows import ApiRow
from interlock.graphs.foreign import wrap_foreign_input
from interlock.graphs.langgraph_internals import TAP
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import RESERVED
from interlock.state.errors import UserError

NATIVE = ("values", "updates", "messages", "custom", "tasks", "checkpoints", "debug")
"""The modes of a stream that LangGraph knows by these names."""
_GONE = "What this answers no longer waits. Nothing was decided, and nothing goes on."
"""For a token that may only answer."""


@dataclass(frozen=True)
class ProgramDialect:
    """How programs speak to a workflow: they give and get what its graph itself takes and has."""

    def parse_input(self, given: Any) -> Any:
        """Return the input that a program means."""
        return given

    def build_start_input(self, workflow: str, given: Any) -> Any:  # noqa: ARG002 - for another dialect's error
        """Return the input that a run begins with. Raise `InputError` if it can't be one."""
        return wrap_foreign_input(given)

    def can_start_with_command(self, command: Any) -> bool:
        """Return whether a run can begin with this command in place of an input."""
        return bool(command)

    def fork_checkpoint_id(self, checkpoint: Mapping[str, Any]) -> str | None:  # noqa: ARG002 - it goes on from there itself
        """Return the checkpoint of which a fork goes on, where the run itself can't."""
        return None

    def select_renderers(self, event_writer: Renderer) -> Sequence[Renderer]:  # noqa: ARG002 - its own stream says all
        """Return what hears a run's events, of what writes them into its stream."""
        return ()

    def stream_options(self, app: Any) -> dict[str, Any]:
        """Return what the graph's stream is asked for besides."""
        return {"output_keys": app.output_channels}

    def format_state(
        self,
        data: Any,
        get_transcript: Callable[[], Any],  # noqa: ARG002 - for another dialect
        format_interrupt: Callable[[Any], dict[str, Any]],  # noqa: ARG002
    ) -> Any:
        """Return a state or an update as programs see it. `format_interrupt`: an interrupt as they see it."""
        return data

    def format_interrupts(
        self,
        params: Mapping[str, Any],
        format_interrupt: Callable[[Any], Any],  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return a part of the stream with its interrupts as programs see them."""
        return {**params}

    def models_replacing_graph_schemas(self, workflow: Pipeline) -> dict[str, type[BaseModel]]:  # noqa: ARG002 - its graph has them
        """Return the models that describe the workflow in place of its graph."""
        return {}

    async def continue_run(
        self,
        client: Client,
        run: str,
        graph_input: Any,
        command_fields: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        renderers: Sequence[Renderer],
    ) -> Outcome:
        """Drive a run on. `graph_input`: a further input, or None; `command_fields`: fields of a `Command` in its
        place."""
        from langgraph.types import Command

        graph_input = Command(**command_fields) if command_fields else graph_input
        return await client.drive_with_input(run, graph_input, checkpoint, renderers=renderers)


class ApiDriveRequest(NamedTuple):
    """What a program asked for: one drive of a thread's run."""

    row: ApiRow
    new: bool
    """The run begins with it."""
    dialect: ProgramDialect

    @property
    def request_kwargs(self) -> Mapping[str, Any]:
        return self.row.body["kwargs"]

    @property
    def command(self) -> Mapping[str, Any]:
        return self.request_kwargs["command"] or {}

    @property
    def is_started_by_command(self) -> bool:
        """Whether the run begins with a command in place of an input."""
        return self.new and self.dialect.can_start_with_command(_update_and_goto_fields(self.command))

    @property
    def metadata(self) -> dict[str, Any]:
        about = {"graph_id": self.request_kwargs["graph_id"], "run_id": self.row.id, "run_attempt": 1}
        return {**self.row.body["metadata"], **about}


class StreamReceiver(Protocol):
    """Takes a drive's stream for the program."""

    def receive_part_and_get_custom_data(self, part: Any, stream_arguments: Any) -> list[Any]:
        """Take a part of `astream`; return what nodes wrote with it."""
        ...

    def receive_event(self, event: Any) -> None:
        """Take an event of `astream_events`, version 2, that isn't a part."""
        ...

    def receive_protocol_event(self, event: Any, stream_arguments: Any, known_interrupts: set[str]) -> None:
        """Take an event of `astream_events`, version 3. `known_interrupts`: ids of this stream's interrupts, which it
        adds to."""
        ...

    def remember_graph_error(self, error: Exception) -> None:
        """Remember what the graph raised, before the driver diagnoses it."""
        ...


class _StreamTap:
    """Drives a run's graphs with the stream that the program asked for."""

    def __init__(self, call: ApiDriveRequest, receiver: StreamReceiver) -> None:
        self._call, self._receiver, self._kwargs = call, receiver, call.request_kwargs
        self._is_first = True

    async def drive_and_yield_custom_data(
        self, app: Any, graph_input: Any, config: Any, **given: Any
    ) -> AsyncIterator[Any]:
        """Drive the graph as the program asked; yield what nodes write."""
        config, graph_input = self._merge_config(config), self._input_with_command(graph_input)
        given |= {name: self._kwargs[name] for name in ("interrupt_before", "interrupt_after")}
        given |= self._call.dialect.stream_options(app)
        parts = self._relay_protocol_events if self._kwargs["protocol"] else self._relay_stream_parts
        try:
            async with aclosing(cast("Any", parts(app, graph_input, config, given))) as found:
                async for data in found:
                    yield data
        except Exception as error:
            if type(error).__name__ != "GraphDrained":
                self._receiver.remember_graph_error(error)
            raise

    def _merge_config(self, config: Any) -> Any:
        asked: Mapping[str, Any] = self._kwargs["config"]
        own = {k: v for k, v in asked.items() if k in ("tags", "recursion_limit", "max_concurrency")}
        given = {k: v for k, v in asked.get("configurable", {}).items() if not k.startswith(RESERVED)}
        configurable = {**given, **config["configurable"]}
        more = {
            "configurable": configurable,
            "metadata": self._call.metadata,
            "run_id": self._call.row.id,
        }
        return {**config, **own, **more}

    def _input_with_command(self, graph_input: Any) -> Any:
        """Return the first input, with what a resume changes or skips, too."""
        from langgraph.types import Command

        is_first, self._is_first = self._is_first, False
        if self._call.row.body.get("again"):  # what was asked for is in the run already
            return graph_input
        if self._call.is_started_by_command:
            return Command(**_update_and_goto_fields(self._call.command))
        resumes = isinstance(graph_input, Command) and cast(Any, graph_input).resume
        if not is_first or not resumes:
            return cast(Any, graph_input)
        return replace(cast(Any, graph_input), **_update_and_goto_fields(self._call.command))

    async def _relay_stream_parts(
        self, app: Any, graph_input: Any, config: Any, given: Any
    ) -> AsyncIterator[Any]:
        wanted = self._kwargs["stream_mode"]
        native = {"messages" if mode == "messages-tuple" else mode for mode in wanted} & {*NATIVE}
        more = {"stream_mode": [*native | {"custom"}], "subgraphs": self._kwargs["subgraphs"], **given}
        if "events" not in wanted:
            async for part in app.astream(graph_input, config, **more):
                for data in self._receiver.receive_part_and_get_custom_data(part, given):
                    yield data
            return
        async for event in app.astream_events(graph_input, config, version="v2", **more):
            if event["event"] == "on_chain_stream" and event["run_id"] == self._call.row.id:
                for data in self._receiver.receive_part_and_get_custom_data(event["data"]["chunk"], given):
                    yield data
            else:
                self._receiver.receive_event(event)

    async def _relay_protocol_events(
        self, app: Any, graph_input: Any, config: Any, given: Any
    ) -> AsyncIterator[Any]:
        told = set[str]()
        async with await app.astream_events(graph_input, config, version="v3", **given) as stream:
            async for event in stream:
                self._receiver.receive_protocol_event(event, given, told)
                if event["method"] == "custom":
                    yield event["params"]["data"]


async def drive_api_request(
    client: Client,
    run: str,
    workflow: str,
    api_request: ApiDriveRequest,
    graph_input: Any,
    receiver: StreamReceiver,
    renderers: Sequence[Renderer],
) -> Outcome:
    """Drive the run until it is over or parks; `graph_input` is its input. Raises `InterlockError`."""
    TAP.set(_StreamTap(api_request, receiver).drive_and_yield_custom_data)
    if api_request.row.body.get("again"):
        return await client.resume(run, renderers=renderers)
    only = api_request.row.body.get("only")
    if api_request.new and only is not None:
        raise UserError(_GONE)
    first = api_request.dialect.build_start_input(workflow, graph_input)
    if api_request.new:
        return await client.start(workflow, first, renderers=renderers, run=run)
    _check_not_cancelled(client.find_run(run), api_request, graph_input)
    client.check_run_defined_on_this_host(run)
    found = threads.load_waiting_requests(client.options, run)
    passed_on = _forwarded_answers(api_request, found)
    if passed_on or "resume" in api_request.command:
        if only is not None and not (found := [one for one in found if one.interrupt in only]):
            raise UserError(_GONE)
        resume = passed_on or api_request.command["resume"]
        closed = threads.read_answered_interrupt_ids(client.options, run)
        client.record_decisions(
            run, threads.decisions_from_resume_value(found, resume, closed), api_request.row.body["by"]
        )
        return await client.resume(run, renderers=renderers)
    if (
        graph_input is None
        and not api_request.is_started_by_command
        and not api_request.request_kwargs["checkpoint"]
    ):
        passed = [
            one for one in found if threads.is_breakpoint(one) and (only is None or one.interrupt in only)
        ]
        client.record_decisions(
            run, threads.decisions_from_resume_value(passed, None), api_request.row.body["by"]
        )
    moves, checkpoint = _update_and_goto_fields(api_request.command), api_request.request_kwargs["checkpoint"]
    return await api_request.dialect.continue_run(client, run, graph_input, moves, checkpoint, renderers)


def _forwarded_answers(
    call: ApiDriveRequest, waiting_requests: list[threads.WaitingRequest]
) -> dict[str, Any]:
    """Return answers to what waits here, of a graph elsewhere that has this one as a part (`RemoteGraph`)."""
    given: Any = call.request_kwargs["config"].get("configurable", {}).get(f"{RESERVED}resume_map")
    waiting = {one.interrupt for one in waiting_requests}
    passed = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return {key: one for key, one in passed.items() if key in waiting}


def _update_and_goto_fields(command: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of LangGraph's `Command` that a program may give beside `resume`."""
    from langgraph.types import Send

    made: dict[str, Any] = {}
    if (update := command.get("update")) is not None:
        pairs = cast("list[Any]", update) if isinstance(update, list) else None
        made["update"] = [(one[0], one[1]) for one in pairs] if pairs else update
    if goto := command.get("goto"):
        ways = cast("list[Any]", goto if isinstance(goto, list) else [goto])
        made["goto"] = [way if isinstance(way, str) else Send(way["node"], way.get("input")) for way in ways]
    return made


def _check_not_cancelled(row: RunRow, call: ApiDriveRequest, graph_input: Any) -> None:
    """Raise `UserError` for an answer to what was cancelled, which nothing would read."""
    if row.status == "cancelled" and row.error and not (graph_input or _update_and_goto_fields(call.command)):
        raise UserError(f"{row.error['message']} Nothing waits in this thread; give it an input.")
