"""recorder: drives a run for a program, in the drive's own process, and writes its stream to a file as it comes.

One line an event: its name, a tab, its JSON. The last line's name is `end`.
"""

import os
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from interlock.engine.client import Client, Options, Outcome, Renderer, RunRow, served, threads, turns
from interlock.engine.client.fleet import is_on_server
from interlock.engine.client.served import Served
from interlock.graphs._langgraph import RESERVED, TAP
from interlock.state.errors import InputError, InterlockError, RunError, UserError, bug
from interlock.web.api import shown
from interlock.web.api.answers import dumped, plain
from interlock.web.api.protocol import protocol_events

if TYPE_CHECKING:
    from interlock.state.events import Event

NATIVE = ("values", "updates", "messages", "custom", "tasks", "checkpoints", "debug")


class Call(NamedTuple):
    """What a program asked for: one drive of a thread's run."""

    row: Served
    new: bool
    """The run begins with it."""
    prompt_field: str | None
    """Of a workflow of Interlock's; None: it is a graph of LangGraph's."""

    @property
    def asked(self) -> Mapping[str, Any]:
        return self.row.body["kwargs"]

    @property
    def input(self) -> Any:
        """What a person said last in a list of messages is a workflow's prompt."""
        given, field = self.asked["input"], self.prompt_field
        if field is not None and isinstance(given, dict) and field not in given and "messages" in given:
            return {field: shown.prompt_in(cast("dict[str, Any]", given))}
        return self.asked["input"]

    @property
    def command(self) -> Mapping[str, Any]:
        return self.asked["command"] or {}

    @property
    def is_command(self) -> bool:
        """A graph of LangGraph's begins with a command in place of an input."""
        return self.new and self.prompt_field is None and bool(_moves(self.command))


_CHECKPOINTS = {"checkpoint": "config", "parent_checkpoint": "parent_config"}
_GONE = "What this answers no longer waits. Nothing was decided, and nothing goes on."
"""For a token that may only answer."""


def record_of(home: Path, drive: str) -> Path:
    return home / "live" / f"{drive}.stream"


class Recorder:
    def __init__(self, call: Call, options: Options, run: str) -> None:
        self._call, self._options, self._run = call, options, run
        self._kwargs, self._modes = call.asked, call.asked["stream_mode"]
        about = {"graph_id": call.asked["graph_id"], "run_id": call.row.id, "run_attempt": 1}
        self._metadata = {**call.row.body["metadata"], **about}
        self.failed: Exception | None = None
        self._lock = threading.Lock()
        self._file = record_of(options.home, call.row.id).open("ab", buffering=0)
        self._first = True
        self._said: dict[str, Any] = {}
        self._message = 0

    def write(self, event: str, data: Any) -> None:
        with self._lock:
            self._file.write(event.encode() + b"\t" + dumped(data) + b"\n")

    def fail(self, error: Exception) -> None:
        """What a graph raised counts by its own name; what an input lacks, in our words."""
        cause = None if isinstance(error, UserError) else error.__cause__
        error = self.failed or (cause if isinstance(cause, Exception) else error)
        self.failed = error
        self.write("error", _error(error))

    async def tap(self, app: Any, graph_input: Any, config: Any, **given: Any) -> AsyncIterator[Any]:
        """Drive the graph as the program asked; yields what nodes write."""
        config, graph_input = self._config(config), self._input(graph_input)
        given |= {name: self._kwargs[name] for name in ("interrupt_before", "interrupt_after")}
        if self._call.prompt_field is None:
            given["output_keys"] = app.output_channels
        parts = self._by_protocol if self._kwargs["protocol"] else self._by_modes
        try:
            async with aclosing(cast("Any", parts(app, graph_input, config, given))) as found:
                async for data in found:
                    yield data
        except Exception as error:
            if type(error).__name__ != "GraphDrained":
                self.failed = error
            raise

    def _config(self, config: Any) -> Any:
        asked: Mapping[str, Any] = self._kwargs["config"]
        own = {k: v for k, v in asked.items() if k in ("tags", "recursion_limit", "max_concurrency")}
        given = {k: v for k, v in asked.get("configurable", {}).items() if not k.startswith(RESERVED)}
        configurable = {**given, **config["configurable"]}
        more = {"configurable": configurable, "metadata": {**self._metadata}, "run_id": self._call.row.id}
        return {**config, **own, **more}

    def _input(self, graph_input: Any) -> Any:
        """The first input, with what a resume changes or skips, too."""
        from langgraph.types import Command

        first, self._first = self._first, False
        if self._call.row.body.get("again"):  # what was asked for is in the run already
            return graph_input
        if self._call.is_command:
            return Command(**_moves(self._call.command))
        resumes = isinstance(graph_input, Command) and cast(Any, graph_input).resume
        if not first or not resumes:
            return cast(Any, graph_input)
        return replace(cast(Any, graph_input), **_moves(self._call.command))

    async def _by_modes(self, app: Any, graph_input: Any, config: Any, given: Any) -> AsyncIterator[Any]:
        wanted = self._modes
        native = {"messages" if mode == "messages-tuple" else mode for mode in wanted} & {*NATIVE}
        modes, subgraphs = [*native | {"custom"}], self._kwargs["subgraphs"]
        if "events" not in wanted:
            stream = app.astream(graph_input, config, stream_mode=modes, subgraphs=subgraphs, **given)
            async for part in stream:
                for data in self._part(part, given):
                    yield data
            return
        stream = app.astream_events(
            graph_input, config, version="v2", stream_mode=modes, subgraphs=subgraphs, **given
        )
        async for event in stream:
            if event["event"] == "on_chain_stream" and event["run_id"] == self._call.row.id:
                for data in self._part(event["data"]["chunk"], given):
                    yield data
            else:
                self.write("events", event)

    def _part(self, part: Any, given: Any) -> list[Any]:
        """Write a part of the stream, if it was asked for; returns what a node wrote to it."""
        namespace, mode, data = part if self._kwargs["subgraphs"] else ((), *part)
        place = "".join(f"|{one}" for one in namespace)
        wanted = self._modes
        shown_ = self._shaped(data, given) if self._call.prompt_field is not None else data
        if mode == "messages":
            self._say(place, data)
        elif mode == "debug" and mode in wanted:
            self.write(f"debug{place}", self._debugged(data) if data["type"] == "checkpoint" else data)
        elif mode == "checkpoints" and mode in wanted:
            self.write(f"checkpoints{place}", self._checkpoint(data))
        elif mode in wanted:
            self.write(f"{mode}{place}", shown_)
        return [data] if mode == "custom" else []

    def _say(self, place: str, data: Any) -> None:
        message: Any = data[0]
        about = {**data[1], "thread_id": self._call.row.thread}
        if "messages-tuple" in self._modes:
            self.write(f"messages{place}", [message, about])
            return
        from langchain_core.messages import BaseMessageChunk, message_chunk_to_message

        if str(message.id) in self._said:
            self._said[str(message.id)] += message
        else:
            self._said[str(message.id)] = message
            self.write("messages/metadata", {message.id: {"metadata": about}})
        kind = "partial" if isinstance(message, BaseMessageChunk) else "complete"
        self.write(f"messages/{kind}", [message_chunk_to_message(self._said[str(message.id)])])

    async def _by_protocol(self, app: Any, graph_input: Any, config: Any, given: Any) -> AsyncIterator[Any]:
        asked = set[str]()
        async with await app.astream_events(graph_input, config, version="v3", **given) as stream:
            async for event in stream:
                params = {**event["params"]}
                if self._call.prompt_field is not None:
                    params["data"] = self._shaped(params["data"], given)
                    params["interrupts"] = [self._asked(one) for one in params.get("interrupts") or ()]
                for made in protocol_events(event["method"], plain(params), asked):
                    self.write("protocol", made)
                if event["method"] == "custom":
                    yield params["data"]

    def _shaped(self, data: Any, given: Any) -> Any:
        """A state or update of Interlock's own workflow, with its conversation and readable interrupts."""
        if not isinstance(data, dict):
            return data
        made: dict[str, Any] = {**cast("dict[str, Any]", data)}
        if isinstance(head := made.get("head"), str) and head:
            transcript = given["context"].transcript
            made["messages"] = shown.messages(
                (name, transcript.message(name)) for name in transcript.ids(head)
            )
        if made.get("__interrupt__"):
            made["__interrupt__"] = [self._asked(one) for one in made["__interrupt__"]]
        return made

    def _checkpoint(self, payload: Any) -> Any:
        places = {name: self._placed(payload.get(name)) for name in ("config", "parent_config")}
        return {**payload, **places}

    def _debugged(self, data: Any) -> Any:
        payload = self._checkpoint(data["payload"])
        places = {name: place_of(payload[of]) for name, of in _CHECKPOINTS.items()}
        tasks = [self._task(task) for task in payload["tasks"]]
        return {**data, "payload": {**payload, **places, "tasks": tasks}}

    def _task(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """A task, with the place of the graph inside as `checkpoint`."""
        made = {**task}
        if made.get("state"):
            made["checkpoint"] = place_of(self._placed(made.pop("state")))
        return made

    def _placed(self, config: Any) -> Any:
        """A config with the thread as programs name it."""
        return (
            {"configurable": {**config["configurable"], "thread_id": self._call.row.thread}}
            if config
            else None
        )

    def _asked(self, interrupt: Any) -> dict[str, Any]:
        return asked(self._options, self._run, interrupt, with_schema=True)

    def emitted(self, event: "Event", /) -> None:
        """An event of Interlock's own workflow, as a part of the stream: tokens as messages, the others as custom."""
        if self._kwargs["protocol"] or self._call.prompt_field is None:
            return
        if (
            event.type == "message"
            and "messages-tuple" in self._modes
            and cast("Any", event).role == "assistant"
        ):
            content, delta = cast("Any", event).content, cast("Any", event).delta
            chunk = {
                "type": "AIMessageChunk",
                "content": content,
                "id": f"{self._call.row.id}-{self._message}",
            }
            if delta:
                self.write("messages", [chunk, {"langgraph_node": "turn", **self._metadata}])
            else:
                self._message += 1
        elif "custom" in self._modes:
            self.write("custom", event.model_dump(mode="json"))

    def close(self, status: str) -> None:
        if status != "pending":
            self.write("end", {"status": status})
        self._file.close()


def asked(options: Options, run: str, interrupt: Any, *, with_schema: bool = False) -> dict[str, Any]:
    """An interrupt as programs see it; one of Interlock's own workflow with its request and the answer's schema."""
    made: dict[str, Any] = {"id": interrupt.id, "value": interrupt.value}
    schema = getattr(interrupt, "response_schema", None)
    if with_schema or schema is not None:
        made["response_schema"] = schema
    if isinstance(interrupt.value, str) and (found := threads.requested(options, run, interrupt.value)):
        name, request = found
        made["value"] = shown.payload(name, request)
        made["response_schema"] = shown.response_schema(request)
    return made


def _answers_passed_on(call: Call, found: list[threads.Waiting]) -> dict[str, Any]:
    """The answers to what waits here, of a graph elsewhere that has this one as a part (`RemoteGraph`)."""
    given: Any = call.asked["config"].get("configurable", {}).get(f"{RESERVED}resume_map")
    waiting = {one.interrupt for one in found}
    passed = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    return {key: one for key, one in passed.items() if key in waiting}


def _moves(command: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of LangGraph's `Command` that a program may give beside `resume`."""
    from langgraph.types import Send

    made: dict[str, Any] = {}
    if (update := command.get("update")) is not None:
        pairs = cast("list[Any]", update) if isinstance(update, list) else None
        made["update"] = [(one[0], one[1]) for one in pairs] if pairs else update
    if goto := command.get("goto"):
        ways = cast("list[Any]", goto if isinstance(goto, list) else [goto])
        made["goto"] = [way if isinstance(way, str) else Send(way["node"], way.get("input")) for way in ways]
    return made


def place_of(config: Any) -> dict[str, Any] | None:
    """A checkpoint as programs name it."""
    if not config:
        return None
    where = config["configurable"]
    kept = {"thread_id": where.get("thread_id", ""), "checkpoint_ns": where.get("checkpoint_ns", "")}
    return {**kept, "checkpoint_id": name} if (name := where.get("checkpoint_id")) else kept


def begin_record(home: Path, drive: str) -> None:
    """Make the file of a drive that is to come, with its first event."""
    path = record_of(home, drive)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(b"metadata\t" + dumped({"run_id": drive, "attempt": 1}) + b"\n")


def events_in(record: Path) -> int:
    """How many numbers a drive takes among its thread's events by the second protocol, which begins and ends it."""
    return record.read_bytes().count(b"\nprotocol\t") + 2


def end_record(home: Path, drive: str, error: Mapping[str, str] | None = None) -> None:
    """End the file of a drive whose process couldn't."""
    with record_of(home, drive).open("ab") as file:
        file.write((b"error\t" + dumped(error) + b"\n" if error else b"") + b"end\t{}\n")


async def drive(options: Options, run: str, workflow: str, call: Call, live: Renderer) -> None:
    """Drive a thread's run, and note in its rows how that ended; `pending`: a limit over all workers stopped it."""
    home, name = options.home, call.row.id
    options = turns.limited(options) if is_on_server(home) else options
    client = Client(options)
    served.change(home, "drive", name, {"begun": True})
    recorder = Recorder(call, options, run)
    status, waits = "error", dict[str, Any]()
    TAP.set(recorder.tap)
    try:
        outcome = await _driven(client, run, workflow, call, [live, recorder.emitted])
        status = _status(outcome)
        if outcome.status in ("budget", "timeout") and (wait := turns.stopped_by(options, run)):
            status = "error" if wait.seconds is None else "pending"
            waits = {"again": True, "model": wait.model, "after_s": wait.seconds}
            if wait.seconds is None:
                recorder.fail(InterlockError(wait.why))
        elif outcome.status == "failed":
            recorder.fail(
                recorder.failed or InterlockError((outcome.error or {}).get("message", "It failed."))
            )
    except Exception as error:
        recorder.fail(recorder.failed or (error if isinstance(error, InterlockError) else bug(error)))
        raise
    finally:
        served.change(home, "drive", name, {"status": status, "error": _error(recorder.failed), **waits})
        recorder.close(status)


def _status(outcome: Outcome) -> str:
    ends = {"failed": "error", "cancelled": "interrupted", "timeout": "timeout", "lost": "error"}
    return ends.get(outcome.status, "success")


def _error(error: Exception | None) -> dict[str, str] | None:
    """An error by the name that clients of LangGraph know."""
    name = "RuntimeError" if type(error) is RunError else type(error).__name__
    return {"error": name, "message": str(error)} if error else None


async def _driven(client: Client, run: str, workflow: str, call: Call, renderers: Any) -> Outcome:
    from interlock.graphs.foreign import input_of

    given: Any = call.input
    if call.row.body.get("again"):
        return await client.go_on(run, renderers=renderers)
    only = call.row.body.get("only")
    if call.new and only is not None:
        raise UserError(_GONE)
    if call.new and call.prompt_field is None:
        return await client.start(workflow, input_of(given), renderers=renderers, run=run)
    if call.prompt_field is not None and not isinstance(given or {}, dict):
        raise InputError(f"The input of {workflow!r} must be a JSON object, not {given!r}.")
    if call.new:
        return await client.start(workflow, given or {}, renderers=renderers, run=run)
    _refuse_cancelled(client.run(run), call)
    client.check_driven_here(run)
    found = threads.waiting(client.options, run)
    passed_on = _answers_passed_on(call, found)
    if passed_on or "resume" in call.command:
        if only is not None and not (found := [one for one in found if one.interrupt in only]):
            raise UserError(_GONE)
        resume = passed_on or call.command["resume"]
        closed = threads.closed_interrupts(client.options, run)
        client.decide(run, threads.decisions(found, resume, closed), call.row.body["by"])
        return await client.go_on(run, renderers=renderers)
    if call.input is None and not call.is_command and not call.asked["checkpoint"]:
        passed = [
            one for one in found if threads.is_breakpoint(one) and (only is None or one.interrupt in only)
        ]
        client.decide(run, threads.decisions(passed, None), call.row.body["by"])
    if call.prompt_field is not None:
        text = str(given.get(call.prompt_field) or "").strip() if given else ""
        return await client.go_on(run, text or None, renderers=renderers, instead=True)
    return await client.take_up(run, _given(call), call.asked["checkpoint"], renderers=renderers)


def _refuse_cancelled(row: RunRow, call: Call) -> None:
    """Raises `UserError` for an answer to what was cancelled, which nothing would read."""
    if row.status == "cancelled" and row.error and not (call.input or _moves(call.command)):
        raise UserError(f"{row.error['message']} Nothing waits in this thread; give it an input.")


def _given(call: Call) -> Any:
    from langgraph.types import Command

    moves = _moves(call.command)
    return Command(**moves) if moves else call.input
