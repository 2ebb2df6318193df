"""mcp_server: exposes workflows as tools of an MCP server on stdio.

The caller is a program: it names the task, but never the workspace, model or rights; whoever started the server set
those. Decisions go to the client's user if the client supports elicitation; otherwise the run is parked, and the
result says how to resume it.
"""

import asyncio
import json
import os
import re
import sys
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

from interlock.cli.render.pending_requests import decision_commands
from interlock.engine.client import PIPELINES, Client, Decision, Outcome, Pending, make_stop
from interlock.engine.client.answer_choices import AnswerChoice, Request, answer_choices
from interlock.engine.client.requests import (
    answer_form_schema,
    decide_from_form,
    describe_request,
    make_decision,
    request_headline,
)
from interlock.state.errors import EXIT_CODES, InterlockError, UserError
from interlock.state.events import Event, ToolStart
from interlock.state.text import make_visible, to_visible_json

if TYPE_CHECKING:
    from interlock.graphs.pipeline import Pipeline

_RESERVED = ("workspace", "model", "approval_mode", "limits")
"""Input fields of runs reserved for whoever started the server."""
_FLUSH_S = 0.5
"""Seconds that the last answers have to reach the client after a signal."""


def workflows_by_tool_name(workflows: "Sequence[Pipeline]") -> "dict[str, Pipeline]":
    """Name of a tool → workflow. Raises `UserError` if two would have the same."""
    tools: dict[str, Pipeline] = {}
    for workflow in workflows:
        # Of a graph's address, `folder/agent.py:graph`, what clients take as a name.
        name = re.sub(r"\.py(?=:|$)", "", Path(workflow.name).name)
        name = re.sub(r"[^A-Za-z0-9_-]", "_", name)
        if tools.setdefault(name, workflow).name != workflow.name:
            raise UserError(
                f"{tools[name].name!r} and {workflow.name!r} would both be the tool {name!r}: serve one of them, or "
                "name both in langgraph.json."
            )
    return tools


async def serve_mcp(workflows: "Mapping[str, Pipeline]", client: Client) -> None:
    """Serve on stdin and stdout until the client disconnects. A signal stops the runs, answers and exits."""
    calls = _OpenCalls()
    tools = [_build_tool_definition(name, workflow) for name, workflow in workflows.items()]
    parked: dict[str, Outcome] = {}
    """Runs waiting for answers that their client was asked to collect."""

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:  # noqa: ARG001 - the SDK names them
        return types.ListToolsResult(tools=[types.Tool.model_validate(one) for one in tools])

    async def call_tool(context: Any, params: Any) -> types.CallToolResult | types.InputRequiredResult:
        if params.name not in workflows:
            return _error_result(f"There is no tool {params.name!r} here. There are: {', '.join(workflows)}.")
        try:
            caller = _Caller(context, params.input_responses or {})
            begun = parked.pop(params.request_state or "", None)
            played = _start_or_ask_and_resume(
                client, caller, workflows[params.name], params.arguments or {}, begun
            )
            outcome = await calls.await_outcome(caller, played)
        except InterlockError as error:
            return _error_result(str(error))
        if outcome.status == "waiting" and caller.requests_to_collect:
            parked[outcome.run] = outcome
            wanted = {"inputRequests": caller.requests_to_collect, "requestState": outcome.run}
            return types.InputRequiredResult.model_validate(wanted)
        return _call_result(outcome)

    server: Any = Server(
        "interlock", version=version("interlock-agent"), on_list_tools=list_tools, on_call_tool=call_tool
    )
    with client.stop_on_signals(calls.stop_all_runs):
        leaving = asyncio.create_task(calls.exit_once_stopped_and_answered())
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
        leaving.cancel()


class _OpenCalls:
    def __init__(self) -> None:
        self._open: set[_Caller] = set()
        self._stopped = asyncio.Event()

    async def await_outcome(self, caller: "_Caller", work: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Await the outcome. If the client cancels its call, its run stops as it does at a signal."""
        self._open.add(caller)
        playing = asyncio.ensure_future(work)
        try:
            return await asyncio.shield(playing)
        except asyncio.CancelledError:
            caller.stop_run()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({playing})
            raise
        finally:
            self._open.discard(caller)

    def stop_all_runs(self) -> None:
        for caller in self._open:
            caller.stop_run()
        self._stopped.set()

    async def exit_once_stopped_and_answered(self) -> None:
        """Exit once every call is answered. Reading stdin, the process can't end in any other way."""
        await self._stopped.wait()
        while self._open:
            await asyncio.sleep(_FLUSH_S / 10)
        await asyncio.sleep(_FLUSH_S)
        sys.stderr.flush()
        os._exit(EXIT_CODES["cancelled"])


def _build_tool_definition(name: str, workflow: "Pipeline") -> dict[str, Any]:
    schema = workflow.input.model_json_schema()
    hidden = _reserved_field_names(workflow)
    schema["properties"] = {k: v for k, v in schema.get("properties", {}).items() if k not in hidden}
    return {"name": name, "description": PIPELINES.get(name) or workflow.summary, "inputSchema": schema}


def _reserved_field_names(workflow: "Pipeline") -> Sequence[str]:
    """Return the input fields of a workflow that a caller can't set."""
    return [field for field in _RESERVED if field in workflow.run_fields]


class _Caller:
    """Gets progress reports, and may have a user to ask (`Decider`)."""

    def __init__(self, context: Any, answers: Mapping[str, Any]) -> None:
        """`answers`: its user's answers to an earlier result's requests (protocols from 2026-07-28 on)."""
        self._context, self._answers = context, answers
        self.requests_to_collect: dict[str, Any] = {}
        """Requests to put in the result, if none can be sent meanwhile."""
        self._loop = asyncio.get_running_loop()
        self._reported, self._run = 0, ""
        self.stopping = make_stop()
        self._asking: asyncio.Future[Any] | None = None

    def stop_run(self) -> None:
        """Stop the run, or the question to the client's user: the run is parked then."""
        self.stopping()
        if self._asking is not None:
            self._asking.cancel()

    def __call__(self, event: Event) -> None:
        """Renderer, called on its own thread."""
        if isinstance(event, ToolStart):
            self._reported += 1
            report = self._context.session.report_progress(self._reported, None, make_visible(event.summary))
            asyncio.run_coroutine_threadsafe(report, self._loop)

    async def decide(self, outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:
        """What the client's user decides; nothing if the client can't ask, the user declines, or the call is over."""
        self._run = outcome.run
        made = [await self._ask_for_decision(request) for request in requests if not self.stopping.why]
        return [decision for decision in made if decision is not None]

    def on_decisions_refused(self, error: UserError) -> None:
        raise UserError(f"{error} The run still waits for it: interlock approvals {self._run}") from error

    async def _ask_for_decision(self, request: Request) -> Decision | None:
        answer = await self._ask_user_or_collect_request(request)
        if answer is None or answer.action != "accept":
            return None
        content: Mapping[str, Any] = answer.content or {}
        if request["kind"] == "question":
            return decide_from_form(request, content)
        way = next((way for way in _offered_choices(request) if way.choice == content.get("choice")), None)
        return way and make_decision(request, way, str(content.get("feedback") or ""))

    async def _ask_user_or_collect_request(self, request: Request) -> Any:
        session = self._context.session
        schema = answer_form_schema(request) if request["kind"] == "question" else _choice_schema(request)
        if not session.client_capabilities or session.client_capabilities.elicitation is None:
            return None
        answer = self._answers.get(request["id"])
        if answer is None and not session.can_send_request:
            wanted = {"mode": "form", "message": _request_text(request), "requestedSchema": schema}
            self.requests_to_collect[request["id"]] = {"method": "elicitation/create", "params": wanted}
            return None
        if answer is None:
            asking: Any = session.elicit_form(_request_text(request), schema, self._context.request_id)
            asked_of: asyncio.Future[Any] = asyncio.ensure_future(asking)
            self._asking = asked_of
            with suppress(asyncio.CancelledError):  # `stop`: the run stays parked
                answer = await asked_of
        return answer


def _offered_choices(request: Request) -> list[AnswerChoice]:
    return [way for way in answer_choices(request) if way.takes != "arguments"]


def _choice_schema(request: Request) -> dict[str, Any]:
    choices = [way.choice for way in _offered_choices(request)]
    properties = {"choice": {"type": "string", "enum": choices}, "feedback": {"type": "string"}}
    return {"type": "object", "properties": properties, "required": ["choice"]}


def _request_text(request: Request) -> str:
    words = describe_request(request)
    parts = filter(None, [words.headline, str(request["preview"]), words.purpose, words.why])
    lasting = [f"{way.choice}: {way.label_with_scope}" for way in words.ways if way.covers]
    return "\n\n".join(map(make_visible, [*parts, *lasting]))


async def _start_or_ask_and_resume(
    client: Client, caller: _Caller, workflow: "Pipeline", input: Mapping[str, Any], parked: Outcome | None
) -> Outcome:
    """Run the workflow, or go on with what its caller was asked to collect answers for."""
    refused = [field for field in _reserved_field_names(workflow) if field in input]
    if refused:
        raise InterlockError(
            f"Input field {refused[0]!r} is decided where this server was started, not by a call."
        )
    if parked:
        return await client.ask_and_resume(parked, caller, renderers=[caller], stop=caller.stopping)
    return await client.start(workflow.name, input, renderers=[caller], decider=caller, stop=caller.stopping)


def _error_result(text: str) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)


def _call_result(outcome: Outcome) -> types.CallToolResult:
    content: list[types.ContentBlock] = [types.TextContent(text=_outcome_text(outcome))]
    ended_badly = outcome.exit_code != 0 and outcome.status != "waiting"
    return types.CallToolResult(
        content=content, structured_content=_outcome_fields(outcome), is_error=ended_badly
    )


def _outcome_fields(outcome: Outcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"run": outcome.run, "status": outcome.status, "output": outcome.display_output}
    if outcome.status == "waiting":
        facts["pending_approvals"] = outcome.pending
    if outcome.resume_command:
        facts["resume_command"] = outcome.resume_command
    if outcome.warnings:
        facts["warnings"] = outcome.warnings
    return {**facts, "error": outcome.error} if outcome.error else facts


def _outcome_text(outcome: Outcome) -> str:
    """The answer, or why there is none."""
    if outcome.status == "waiting":
        return "\n".join(_parked_run_lines(outcome))
    if outcome.error:
        return "\n".join([f"{outcome.error['type']}: {outcome.error['message']}", *outcome.warnings])
    answer = outcome.display_output.get("response") or outcome.display_output.get("text")
    return (
        str(answer)
        if answer
        else json.dumps(json.loads(to_visible_json(outcome.display_output)), ensure_ascii=False)
    )


def _parked_run_lines(outcome: Outcome) -> Iterator[str]:
    """What is asked, and the command for each decision, by ids: nobody was shown numbers."""
    yield f"The run is parked: a person must decide. See: interlock approvals {outcome.run}"
    for request in outcome.pending:
        yield make_visible(f"- {request['id']}: {request_headline(request)} ({request['reason']})")
        yield from (
            f"  {what}: {how}" for what, how in decision_commands(outcome.run, {**request, "number": None})
        )
