"""drive_recorder: writes the stream of a program's drive to a file as it comes, in the drive's own process.

One line an event: its name, a tab, its JSON. The last line's name is `end`.
"""

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.engine.client import Client, Options, Outcome, Renderer, api_rows, fleet, threads
from interlock.engine.client.fleet import is_store_on_server
from interlock.engine.client.program_drive import ApiDriveRequest, drive_api_request
from interlock.state.errors import InterlockError, RunError, UserError, as_bug_error
from interlock.state.events import Event, MessageEvent
from interlock.web.api.event_protocol import to_protocol_events
from interlock.web.api.payloads import dump_json, to_json_types
from interlock.web.api.prompt_dialect import answer_schema, request_payload

_CHECKPOINTS = {"checkpoint": "config", "parent_checkpoint": "parent_config"}


def stream_file_path(home: Path, drive_id: str) -> Path:
    return home / "live" / f"{drive_id}.stream"


class DriveRecorder:
    def __init__(self, call: ApiDriveRequest, options: Options, run: str) -> None:
        self._call, self._options, self._run = call, options, run
        self._kwargs, self._modes = call.request_kwargs, call.request_kwargs["stream_mode"]
        self.failed: Exception | None = None
        self._lock = threading.Lock()
        self._file = stream_file_path(options.home, call.row.id).open("ab", buffering=0)
        self._said: dict[str, Any] = {}
        self._message = 0

    def write_event(self, event: str, data: Any) -> None:
        with self._lock:
            self._file.write(event.encode() + b"\t" + dump_json(data) + b"\n")

    def write_failure_event(self, error: Exception) -> None:
        """What a graph raised counts by its own name; what an input lacks, in our words."""
        cause = None if isinstance(error, UserError) else error.__cause__
        error = self.failed or (cause if isinstance(cause, Exception) else error)
        self.failed = error
        self.write_event("error", _error_fields(error))

    def remember_graph_error(self, error: Exception) -> None:
        self.failed = error

    def receive_event(self, event: Any) -> None:
        self.write_event("events", event)

    def receive_protocol_event(self, event: Any, stream_arguments: Any, known_interrupts: set[str]) -> None:
        params = self._call.dialect.format_interrupts(event["params"], self._interrupt_json_with_request)
        params["data"] = self._format_state_for_program(params["data"], stream_arguments)
        for made in to_protocol_events(event["method"], to_json_types(params), known_interrupts):
            self.write_event("protocol", made)

    def receive_part_and_get_custom_data(self, part: Any, stream_arguments: Any) -> list[Any]:
        """Write a part of the stream, if it was asked for; return what a node wrote to it."""
        namespace, mode, data = part if self._kwargs["subgraphs"] else ((), *part)
        place = "".join(f"|{one}" for one in namespace)
        if mode == "messages":
            self._write_message_events(place, data)
        elif mode in self._modes:
            self.write_event(f"{mode}{place}", self._stream_part_payload(mode, data, stream_arguments))
        return [data] if mode == "custom" else []

    def _stream_part_payload(self, mode: str, data: Any, stream_arguments: Any) -> Any:
        if mode == "checkpoints":
            return self._checkpoint_payload(data)
        if mode == "debug":
            return self._debug_payload(data) if data["type"] == "checkpoint" else data
        return self._format_state_for_program(data, stream_arguments)

    def _write_message_events(self, namespace_suffix: str, data: Any) -> None:
        message: Any = data[0]
        about, name = {**data[1], "thread_id": self._call.row.thread}, str(message.id)
        if "messages-tuple" in self._modes:
            self.write_event(f"messages{namespace_suffix}", [message, about])
            return
        from langchain_core.messages import BaseMessageChunk, message_chunk_to_message

        if name in self._said:
            self._said[name] += message
        else:
            self._said[name] = message
            self.write_event("messages/metadata", {message.id: {"metadata": about}})
        kind = "partial" if isinstance(message, BaseMessageChunk) else "complete"
        self.write_event(f"messages/{kind}", [message_chunk_to_message(self._said[name])])

    def _format_state_for_program(self, data: Any, stream_arguments: Any) -> Any:
        return self._call.dialect.format_state(
            data, lambda: stream_arguments["context"].transcript, self._interrupt_json_with_request
        )

    def _checkpoint_payload(self, payload: Any) -> Any:
        places = {name: self._replace_thread_id(payload.get(name)) for name in ("config", "parent_config")}
        return {**payload, **places}

    def _debug_payload(self, event: Any) -> Any:
        payload = self._checkpoint_payload(event["payload"])
        places = {name: checkpoint_address(payload[of]) for name, of in _CHECKPOINTS.items()}
        tasks = [self._task_payload(task) for task in payload["tasks"]]
        return {**event, "payload": {**payload, **places, "tasks": tasks}}

    def _task_payload(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Return a task, with the place of the graph inside as `checkpoint`."""
        made = {**task}
        if made.get("state"):
            made["checkpoint"] = checkpoint_address(self._replace_thread_id(made.pop("state")))
        return made

    def _replace_thread_id(self, config: Any) -> Any:
        """Return a config with the thread as programs name it."""
        return (
            {"configurable": {**config["configurable"], "thread_id": self._call.row.thread}}
            if config
            else None
        )

    def _interrupt_json_with_request(self, interrupt: Any) -> dict[str, Any]:
        return interrupt_json_with_request(self._options, self._run, interrupt, with_schema=True)

    def write_workflow_event(self, event: Event, /) -> None:
        """An event of Interlock's own workflow, as a part of the stream: tokens as messages, the others as custom."""
        if self._kwargs["protocol"]:
            return
        if isinstance(event, MessageEvent) and event.role == "assistant" and "messages-tuple" in self._modes:
            name = f"{self._call.row.id}-{self._message}"
            chunk = {"type": "AIMessageChunk", "content": event.content, "id": name}
            if event.delta:
                self.write_event("messages", [chunk, {"langgraph_node": "turn", **self._call.metadata}])
            else:
                self._message += 1
        elif "custom" in self._modes:
            self.write_event("custom", event.model_dump(mode="json"))

    def end_and_close(self, status: str) -> None:
        if status != "pending":
            self.write_event("end", {"status": status})
        self._file.close()


def interrupt_json_with_request(
    options: Options, run: str, interrupt: Any, *, with_schema: bool = False
) -> dict[str, Any]:
    """An interrupt as programs see it; one of Interlock's own workflow with its request and the answer's schema."""
    made: dict[str, Any] = {"id": interrupt.id, "value": interrupt.value}
    schema = getattr(interrupt, "response_schema", None)
    if with_schema or schema is not None:
        made["response_schema"] = schema
    if isinstance(interrupt.value, str) and (
        found := threads.find_request_by_interrupt_key(options, run, interrupt.value)
    ):
        name, request = found
        made["value"] = request_payload(name, request)
        made["response_schema"] = answer_schema(request)
    return made


def checkpoint_address(config: Any) -> dict[str, Any] | None:
    """Return a checkpoint as programs name it."""
    if not config:
        return None
    where = config["configurable"]
    kept = {"thread_id": where.get("thread_id", ""), "checkpoint_ns": where.get("checkpoint_ns", "")}
    return {**kept, "checkpoint_id": name} if (name := where.get("checkpoint_id")) else kept


def create_stream_file(home: Path, drive_id: str) -> None:
    """Make the file of a drive that is to come, with its first event."""
    path = stream_file_path(home, drive_id)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(b"metadata\t" + dump_json({"run_id": drive_id, "attempt": 1}) + b"\n")


def count_protocol_sequence_numbers(stream_file: Path) -> int:
    """How many numbers a drive takes among its thread's events by the second protocol, which begins and ends it."""
    return stream_file.read_bytes().count(b"\nprotocol\t") + 2


def end_stream_file(home: Path, drive_id: str, error: Mapping[str, str] | None = None) -> None:
    """End the file of a drive whose process couldn't."""
    with stream_file_path(home, drive_id).open("ab") as file:
        file.write((b"error\t" + dump_json(error) + b"\n" if error else b"") + b"end\t{}\n")


async def drive_and_record_stream(
    options: Options, run: str, workflow: str, call: ApiDriveRequest, live_renderer: Renderer
) -> None:
    """Drive a thread's run, and note in its rows how that ended; `pending`: a limit over all workers stopped it."""
    home, name = options.home, call.row.id
    options = fleet.with_fleet_limits(options) if is_store_on_server(home) else options
    client = Client(options)
    api_rows.update_api_row_if_exists(home, "drive", name, {"begun": True})
    recorder = DriveRecorder(call, options, run)
    status, waits = "error", dict[str, Any]()
    try:
        given = call.dialect.parse_input(call.request_kwargs["input"])
        renderers = [live_renderer, *call.dialect.select_renderers(recorder.write_workflow_event)]
        outcome = await drive_api_request(client, run, workflow, call, given, recorder, renderers)
        status = _drive_status_from_outcome(outcome)
        if outcome.status in ("budget", "timeout") and (
            wait := fleet.requeue_or_record_limit_stop(options, run)
        ):
            status = "error" if wait.seconds is None else "pending"
            waits = {"again": True, "model": wait.model, "after_s": wait.seconds}
            if wait.seconds is None:
                recorder.write_failure_event(InterlockError(wait.why))
        elif outcome.status == "failed":
            recorder.write_failure_event(InterlockError((outcome.error or {}).get("message", "It failed.")))
    except Exception as error:
        recorder.write_failure_event(error if isinstance(error, InterlockError) else as_bug_error(error))
        raise
    finally:
        api_rows.update_api_row_if_exists(
            home, "drive", name, {"status": status, "error": _error_fields(recorder.failed), **waits}
        )
        recorder.end_and_close(status)


def _drive_status_from_outcome(outcome: Outcome) -> str:
    ends = {"failed": "error", "cancelled": "interrupted", "timeout": "timeout", "lost": "error"}
    return ends.get(outcome.status, "success")


def _error_fields(error: Exception | None) -> dict[str, str] | None:
    """Return an error by the name that clients of LangGraph know."""
    name = "RuntimeError" if type(error) is RunError else type(error).__name__
    return {"error": name, "message": str(error)} if error else None
