"""serve: exposes workflows as tools of an MCP server on stdio.

The caller is a program: it names the task, but never the workspace, model or rights; whoever started the server set
those. Decisions go to the client's user if the client supports elicitation; otherwise the run is parked, and the
result says how to resume it.
"""

import asyncio
import json
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

from interlock.engine import Decision, Options, Outcome, resume, run
from interlock.engine.driver.drive import Stop, stop_on_signals
from interlock.graphs import PIPELINES, pipeline
from interlock.state.calls import Choice
from interlock.state.errors import EXIT_CODES, InterlockError
from interlock.state.events import Event, ToolStart
from interlock.state.text import visible, visible_json

if TYPE_CHECKING:
    from mcp import types

_NOT_THEIRS = ("workspace", "model", "approval_mode", "limits")
"""Input fields reserved for whoever started the server."""
_FLUSH_S = 0.5
"""Seconds that the last answers have to reach the client after a signal."""
_QUESTION = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}


async def serve(workflows: Sequence[str], options: Options) -> None:
    """Serve on stdin and stdout until the client disconnects. A signal stops the runs, answers and exits."""
    from mcp import types
    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server

    calls = _Calls()
    parked: dict[str, Outcome] = {}
    """Runs waiting for answers that their client was asked to collect."""

    async def listed(context: Any, params: Any) -> types.ListToolsResult:  # noqa: ARG001 - the SDK names them
        return types.ListToolsResult(tools=[types.Tool.model_validate(_tool(name)) for name in workflows])

    async def called(context: Any, params: Any) -> types.CallToolResult | types.InputRequiredResult:
        if params.name not in workflows:
            return _failed(f"There is no workflow {params.name!r} here.")
        try:
            client = _Client(context, params.input_responses or {})
            begun = parked.pop(params.request_state or "", None)
            outcome = await calls.made(
                client, _played(params.name, params.arguments or {}, options, client, begun)
            )
        except InterlockError as error:
            return _failed(str(error))
        if outcome.status == "waiting" and client.wanted:
            parked[outcome.run] = outcome
            wanted = {"inputRequests": client.wanted, "requestState": outcome.run}
            return types.InputRequiredResult.model_validate(wanted)
        return _result(outcome)

    server: Any = Server(
        "interlock", version=version("interlock-agent"), on_list_tools=listed, on_call_tool=called
    )
    with stop_on_signals(calls.stop):
        leaving = asyncio.create_task(calls.leave())
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        leaving.cancel()


class _Calls:
    """The calls under way."""

    def __init__(self) -> None:
        self._open: set[_Client] = set()
        self._stopped = asyncio.Event()

    async def made(self, client: "_Client", played: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Await the outcome. If the client cancels its call, its run stops as it does at a signal."""
        import anyio

        self._open.add(client)
        playing = asyncio.ensure_future(played)
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            client.stop()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({playing})
            raise
        finally:
            self._open.discard(client)

    def stop(self) -> None:
        for client in self._open:
            client.stop()
        self._stopped.set()

    async def leave(self) -> None:
        """Exit once every call is answered. Reading stdin, the process can't end in any other way."""
        await self._stopped.wait()
        while self._open:
            await asyncio.sleep(_FLUSH_S / 10)
        await asyncio.sleep(_FLUSH_S)
        sys.stderr.flush()
        os._exit(EXIT_CODES["cancelled"])


def _tool(name: str) -> dict[str, Any]:
    workflow = pipeline(name)
    schema = workflow.input.model_json_schema()
    schema["properties"] = {k: v for k, v in schema["properties"].items() if k not in _NOT_THEIRS}
    return {"name": name, "description": PIPELINES.get(name) or workflow.summary, "inputSchema": schema}


class _Client:
    """The caller: gets progress reports, and may have a user to ask."""

    def __init__(self, context: Any, answers: Mapping[str, Any]) -> None:
        """`answers`: its user's answers to an earlier result's requests (protocols from 2026-07-28 on)."""
        self._context, self._answers = context, answers
        self.wanted: dict[str, Any] = {}
        """Requests to put in the result, if none can be sent meanwhile."""
        self._loop = asyncio.get_running_loop()
        self._reported = 0
        self.stopping = Stop()
        self._asking: asyncio.Future[Any] | None = None

    def stop(self) -> None:
        """Stop the run, or the question to the client's user: the run is parked then."""
        self.stopping()
        if self._asking is not None:
            self._asking.cancel()

    def __call__(self, event: Event) -> None:
        """Renderer, called on its own thread."""
        if isinstance(event, ToolStart):
            self._reported += 1
            report = self._context.session.report_progress(self._reported, None, visible(event.summary))
            asyncio.run_coroutine_threadsafe(report, self._loop)

    async def decide(self, request: Mapping[str, Any]) -> Decision | None:
        """Return the client user's decision; None: the client can't ask, or the user declined."""
        session, asks = self._context.session, request["kind"] == "question"
        schema = _QUESTION if asks else _choice(request)
        if not session.client_capabilities or session.client_capabilities.elicitation is None:
            return None
        answer: Any = self._answers.get(request["id"])
        if answer is None and not session.can_send_request:
            wanted = {"mode": "form", "message": _shown(request), "requestedSchema": schema}
            self.wanted[request["id"]] = {"method": "elicitation/create", "params": wanted}
            return None
        if answer is None:
            asking: Any = session.elicit_form(_shown(request), schema, self._context.request_id)
            asked: asyncio.Future[Any] = asyncio.ensure_future(asking)
            self._asking = asked
            with suppress(asyncio.CancelledError):  # `stop`: the run stays parked
                answer = await asked
        if answer is None:
            return None
        content: Mapping[str, Any] = answer.content or {}
        if answer.action != "accept":
            return None
        if asks:
            return Decision(request["id"], "proceed_once", text=str(content.get("answer", "")))
        choice = str(content.get("choice"))
        if choice not in _choices(request):
            return None
        return Decision(
            request["id"], cast(Choice, choice), feedback=str(content.get("feedback") or "") or None
        )


def _choices(request: Mapping[str, Any]) -> list[str]:
    return [choice for choice in request["choices"] if choice != "modify"]


def _choice(request: Mapping[str, Any]) -> dict[str, Any]:
    properties = {"choice": {"type": "string", "enum": _choices(request)}, "feedback": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["choice"]}


def _shown(request: Mapping[str, Any]) -> str:
    parts = [str(request[key]) for key in ("tool_name", "reason", "preview") if request.get(key)]
    always: Mapping[str, str] = request.get("always") or {}
    if always:
        parts.append(f"Always: {'; '.join(dict.fromkeys(always.values()))}")
    return "\n\n".join(map(visible, parts))


async def _played(
    name: str, input: Mapping[str, Any], options: Options, client: _Client, begun: Outcome | None
) -> Outcome:
    """Run the workflow, and resume it for as long as someone decides."""
    refused = [field for field in _NOT_THEIRS if field in input]
    if refused:
        raise InterlockError(
            f"Input field {refused[0]!r} is decided where this server was started, not by a call."
        )
    stop = client.stopping
    outcome = begun or await run(name, input, options=options, renderers=[client], stop=stop)
    while outcome.status == "waiting" and not stop.why:
        answers = [await client.decide(request) for request in outcome.pending]
        decisions = [answer for answer in answers if answer is not None]
        if not decisions:
            break
        ongoing = replace(options, model=None)
        outcome = await resume(
            outcome.run, decisions=decisions, options=ongoing, renderers=[client], stop=stop
        )
    return outcome


def _failed(text: str) -> "types.CallToolResult":
    from mcp import types

    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _result(outcome: Outcome) -> "types.CallToolResult":
    from mcp import types

    content: list[types.ContentBlock] = [types.TextContent(text=_text(outcome))]
    ended_badly = outcome.exit_code != 0 and outcome.status != "waiting"
    return types.CallToolResult(content=content, structured_content=_facts(outcome), is_error=ended_badly)


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"run": outcome.run, "status": outcome.status, "output": outcome.output}
    if outcome.status == "waiting":
        facts["pending_approvals"] = outcome.pending
    if outcome.resume_command:
        facts["resume_command"] = outcome.resume_command
    return {**facts, "error": outcome.error} if outcome.error else facts


def _text(outcome: Outcome) -> str:
    """The answer, or why there is none."""
    if outcome.status == "waiting":
        asked = "\n".join(visible(f"- {r['id']}: {r['tool_name']}: {r['reason']}") for r in outcome.pending)
        return (
            f"The run is parked: a person must decide.\n{asked}\nSee: interlock approvals {outcome.run}\n"
            f"Go on: {outcome.resume_command} --approve ID | --reject ID"
        )
    if outcome.error:
        return f"{outcome.error['type']}: {outcome.error['message']}"
    if outcome.status == "cancelled":
        return f"The run was stopped before its end. Resume it: {outcome.resume_command}"
    answer = outcome.output.get("response") or outcome.output.get("text")
    return str(answer) if answer else json.dumps(json.loads(visible_json(outcome.output)), ensure_ascii=False)
