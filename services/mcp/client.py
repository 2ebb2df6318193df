"""client: one session with one server through the official SDK, converting what it lists and answers to our records."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pydantic import ValidationError

from interlock.services.mcp.content import (
    CallInput,
    Content,
    InputWantedError,
    answer_input_request,
    prompt_result_to_content,
    requested_page_form,
    resource_result_to_content,
    tool_result_to_content,
)
from interlock.services.mcp.exchanges import AnsweredError, LostError, track_exchange, track_transport
from interlock.services.mcp.spec import ServerSpec, ServerTool, make_resource_reader_tool, to_server_tool
from interlock.state.forms import FilledForm
from interlock.state.mcp import ServerItem
from interlock.state.text import make_visible

if TYPE_CHECKING:
    from mcp.client.client import Client

METHOD_NOT_FOUND = -32601
"""JSON-RPC's code for a method that the server doesn't have."""

_PAGES = 50
"""Maximum pages per list, so that an endless list can't hang the run."""
_ATTRIBUTES = {
    "tools": "tools",
    "resources": "resources",
    "resources/templates": "resource_templates",
    "prompts": "prompts",
}
"""Kind of list → where the SDK has its entries."""
_UNSUPPORTED = -32022
"""Error of servers that only speak protocols from 2026-07-28 on, which have no handshake."""
_SIGN_IN = (401, 403)
_REFUSALS = range(400, 500)
_LIST_CHANGED = tuple(f"notifications/{what}/list_changed" for what in ("tools", "prompts", "resources"))
_LISTEN_AGAIN_S = 1.0
Progress = Callable[[str], None]


class NotStreamableError(Exception):
    """The address refuses streamable HTTP's first request (a 4xx): it may speak SSE."""


@dataclass(frozen=True)
class Listing:
    tools: tuple[ServerTool, ...] = ()
    refused: tuple[str, ...] = ()
    """Tools that can't be offered, each with the reason."""
    resources: tuple[ServerItem, ...] = ()
    templates: tuple[ServerItem, ...] = ()
    prompts: tuple[ServerItem, ...] = ()

    def resource_reader_tools(self, spec: ServerSpec) -> Iterator[ServerTool]:
        """Yield the tool with which models read resources, if there are any."""
        if self.resources or self.templates:
            yield make_resource_reader_tool(spec, [*self.resources, *self.templates])


@dataclass
class ServerSession:
    """A live session. Its methods raise `LostError` and `AnsweredError`."""

    spec: ServerSpec
    client: "Client"
    in_flight: list[CallInput]
    """Calls in flight."""
    instructions: str = field(init=False)
    version: str = field(init=False)

    def __post_init__(self) -> None:
        info = self.client.server_info
        self.instructions = make_visible((self.client.instructions or "").strip())
        self.version = make_visible(f"{info.name} {info.version}") if info else ""

    async def list_offerings(self) -> Listing:
        """List everything that the server's capabilities include."""
        can, client = self.client.server_capabilities, self.client
        tools: list[ServerTool] = []
        refused: list[str] = []
        for tool in await self._fetch_all_pages("tools", client.list_tools, refused) if can.tools else ():
            made = to_server_tool(self.spec, tool)
            if isinstance(made, ServerTool):
                tools.append(made)
            elif made:
                refused.append(made)
        resources, templates, prompts = list[Any](), list[Any](), list[Any]()
        if can.resources:
            resources = await self._fetch_all_pages("resources", client.list_resources, refused)
            templates = await self._fetch_all_pages(
                "resources/templates", client.list_resource_templates, refused
            )
        if can.prompts:
            prompts = await self._fetch_all_pages("prompts", client.list_prompts, refused)
        return Listing(
            tools=tuple(tools),
            refused=tuple(refused),
            resources=tuple(_to_server_item(r.uri, r.description or r.name) for r in resources),
            templates=tuple(_to_server_item(t.uri_template, t.description or t.name) for t in templates),
            prompts=tuple(_to_server_item(p.name, p.description, p.arguments or ()) for p in prompts),
        )

    async def _fetch_all_pages(
        self, list_kind: str, fetch: Callable[..., Awaitable[Any]], refusals: list[str]
    ) -> list[Any]:
        """Return all pages, without the entries that the protocol doesn't know: those are `refusals`.

        A server that refuses the list keeps its other ones; some announce resources and have no templates.
        """
        from mcp.shared.exceptions import MCPError

        found: list[Any] = []
        cursor: str | None = None
        for _ in range(_PAGES):
            with track_exchange() as one:
                one.screen = partial(self._drop_invalid_entries, list_kind, refusals)
                try:
                    page = await fetch(cursor=cursor)
                except MCPError as error:
                    if not one.answered:
                        raise
                    code, why = error.error.code, make_visible(error.error.message)
                    if list_kind != "resources/templates" or code != METHOD_NOT_FOUND:  # nobody misses those
                        refusals.append(f"{list_kind}/list: it refused: {why} ({code})")
                    break
            found += getattr(page, _ATTRIBUTES[list_kind])
            cursor = page.next_cursor
            if not cursor:
                break
        return found

    def _drop_invalid_entries(self, list_kind: str, refusals: list[str], result: dict[str, Any]) -> None:
        """Take out of a list what doesn't fit the protocol: the SDK would refuse the whole list."""
        key = "resourceTemplates" if list_kind == "resources/templates" else list_kind
        entries: Any = result.get(key)
        if not isinstance(entries, list):
            return
        result[key] = kept = list[Any]()
        for entry in cast("list[Any]", entries):
            if wrong := self._protocol_violation(f"{list_kind}/list", {**result, key: [entry]}):
                name = str(
                    cast("dict[str, Any]", entry).get("name", "") if isinstance(entry, dict) else entry
                )
                if self.spec.includes_tool(name):
                    refusals.append(f"{list_kind.partition('/')[0][:-1]} {make_visible(name)!r}: {wrong}")
            else:
                kept.append(entry)

    def _protocol_violation(self, method: str, result: dict[str, Any]) -> str:
        """Return what of the answer doesn't fit the protocol, after the place of a list's entry; empty: nothing."""
        from mcp_types.methods import validate_server_result

        try:
            validate_server_result(method, self.client.protocol_version, result)
        except ValidationError as error:
            first = error.errors()[0]
            return f"{'.'.join(map(str, first['loc'][2:]))}: {first['msg']}"
        except KeyError:  # this version of the protocol says nothing of the method
            pass
        return ""

    async def call_tool(
        self,
        tool: str,
        args: Mapping[str, Any],
        report_progress: Progress,
        timeout_s: float,
        filled_forms: Sequence[FilledForm] = (),
    ) -> Content:
        """Call a tool. Also raises `InputWantedError` if the call failed for lack of input that `filled_forms` lack."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            of = f"{progress:g}" if total is None else f"{progress:g}/{total:g}"
            report_progress(make_visible(f"{of} {message or ''}".strip()))

        asked = CallInput(filled_forms)
        self.in_flight.append(asked)
        try:
            request = self.client.call_tool(tool, dict(args), timeout_s, progress_callback=report)
            content = tool_result_to_content(
                await _await_answer_converting_errors(request, timeout_s, self._repair_call_result)
            )
        except AnsweredError as error:
            if wanted := asked.wanted or requested_page_form(error.error):
                raise InputWantedError(wanted) from error
            raise
        finally:
            self.in_flight.remove(asked)
        if asked.wanted and content.is_error:  # a call that succeeded without the input is done
            raise InputWantedError(asked.wanted)
        return content

    def _repair_call_result(self, result: dict[str, Any]) -> None:
        """Let an answer without content, or with parts that the protocol doesn't know, count: the call was made."""
        method = "tools/call"
        if self._protocol_violation(method, result) and isinstance(
            parts := result.setdefault("content", []), list
        ):
            result["content"] = [
                {"type": "text", "text": json.dumps(part, ensure_ascii=False)}
                if self._protocol_violation(method, {"content": [part]})
                else part
                for part in cast("list[Any]", parts)
            ]

    async def read_resource(self, uri: str) -> Content:
        return resource_result_to_content(
            await _await_answer_converting_errors(self.client.read_resource(uri), self.spec.timeout_s)
        )

    async def get_prompt(self, name: str, args: Mapping[str, str]) -> Content:
        return prompt_result_to_content(
            await _await_answer_converting_errors(
                self.client.get_prompt(name, dict(args)), self.spec.timeout_s
            )
        )


@asynccontextmanager
async def open_session(
    spec: ServerSpec, transport: Callable[[], Any], workspace: Path, on_change: Callable[[], None]
) -> AsyncGenerator[ServerSession]:
    """Connect. `transport` creates a fresh one; `on_change` is called when the server's offerings change."""
    from mcp.client.client import Client
    from mcp.types import Implementation

    for name in ("mcp", "client"):  # their wire errors would reach the terminal; we report them ourselves
        logger = logging.getLogger(name)
        logger.propagate = False
        if not logger.handlers:
            logger.addHandler(logging.NullHandler())
    in_flight: list[CallInput] = []
    about = Implementation(name="interlock", version=version("interlock-agent"))
    wanted = partial(
        Client,
        cache=None,
        read_timeout_seconds=spec.timeout_s,
        client_info=about,
        **_make_client_callbacks(workspace, in_flight, on_change),
    )
    client = await _connect_with_or_without_handshake(wanted, transport)
    listening = asyncio.create_task(_subscribe_to_changes(client, on_change))
    try:
        # Validating a result against the server's own schema would run its regular expressions here.
        client.session.validate_tool_result = _skip_validation
        yield ServerSession(spec, client, in_flight)
    finally:
        listening.cancel()  # not awaited: if the transport broke, this task is cancelled too
        await client.__aexit__(None, None, None)


def _make_client_callbacks(
    workspace: Path, in_flight: Sequence[CallInput], on_change: Callable[[], None]
) -> dict[str, Any]:
    """Callbacks for requests and notifications by the server. No sampling: the SDK refuses it."""
    from mcp.types import ListRootsResult, Root

    async def list_roots(context: Any) -> ListRootsResult:  # noqa: ARG001 - the SDK names it
        root = Root.model_validate({"uri": workspace.as_uri(), "name": workspace.name})
        return ListRootsResult(roots=[root])

    async def asks(context: Any, params: Any) -> Any:  # noqa: ARG001 - the SDK's signature
        return answer_input_request(in_flight, params)

    async def heard(message: Any) -> None:
        if getattr(message, "method", "") in _LIST_CHANGED:
            on_change()

    return {"list_roots_callback": list_roots, "elicitation_callback": asks, "message_handler": heard}


async def _connect_with_or_without_handshake(
    make_client: Callable[..., "Client"], transport: Callable[[], Any]
) -> "Client":
    """Connect with the handshake; servers without one speak the current protocol."""
    from mcp.shared.exceptions import MCPError

    client = make_client(track_transport(transport()), mode="legacy")
    with track_exchange() as one:
        try:
            return await client.__aenter__()
        except Exception as error:
            cause = unwrap_exception_group(error)
            if not isinstance(cause, MCPError) or cause.code != _UNSUPPORTED:
                if one.status in _REFUSALS and one.status not in _SIGN_IN:
                    raise NotStreamableError(str(one.problem)) from error
                raise one.problem or error from error
    return await make_client(track_transport(transport()), mode="auto").__aenter__()


def unwrap_exception_group(error: BaseException) -> BaseException:
    """Unwrap the SDK's exception groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast(BaseExceptionGroup[BaseException], error).exceptions[0]
    return error


async def _subscribe_to_changes(client: "Client", on_change: Callable[[], None]) -> None:
    """Subscribe to changes: required by the current protocol; with older ones servers notify unasked."""
    from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
    from mcp.shared.exceptions import MCPError

    lists = dict.fromkeys(("tools_list_changed", "prompts_list_changed", "resources_list_changed"), True)
    with suppress(ListenNotSupportedError, MCPError, TimeoutError):  # not supported: no notifications
        while True:
            with suppress(SubscriptionLost):
                async with client.listen(**lists) as changes:
                    async for _ in changes:
                        on_change()
                return
            await asyncio.sleep(_LISTEN_AGAIN_S)
            on_change()  # for changes missed in the meantime


async def _skip_validation(name: str, result: Any) -> None:
    """Skip validation; the model judges the result."""


async def _await_answer_converting_errors(
    request: Awaitable[Any], request_timeout_s: float, check_result: Callable[[Any], None] | None = None
) -> Any:
    """Await an answer, distinguishing errors returned by the server from unknown outcomes."""
    import anyio
    from mcp.client._input_required import InputRequiredRoundsExceededError
    from mcp.shared.exceptions import MCPError

    with track_exchange() as one:
        one.screen = check_result
        try:
            return await request
        except MCPError as error:
            await one.wait_until_request_accepted()
            raise one.to_lost_or_answered_error(error, request_timeout_s) from error
        except InputRequiredRoundsExceededError as error:
            raise AnsweredError("it asked for more and more input") from error
        except ValidationError as error:
            raise LostError("its answer is not what the protocol says") from error
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError) as error:
            raise LostError(f"the connection broke ({type(error).__name__})") from error


def _to_server_item(name: str, description: str | None, arguments: Any = ()) -> ServerItem:
    args = tuple(make_visible(a.name) + ("*" if a.required else "") for a in arguments)
    return ServerItem(
        name=make_visible(name), description=make_visible((description or "").strip()), args=args
    )
