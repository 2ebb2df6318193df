"""web_search: search the web, with Gemini and Google's search or the backend in settings."""

import json
import shlex
from dataclasses import replace
from typing import Any, cast
from urllib.parse import quote

from pydantic import Field

from interlock.state.calls import Preview, ToolError, ToolResult
from interlock.state.messages import Message
from interlock.state.text import clean
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.tools._http import fetch, note_for_people

_SLOT = "{query}"
_MOST_RESULTS = 10
_COMMAND_S = 60
_PAGE_CHARS = 40_000


class WebSearchArgs(Args):
    query: str = Field(
        min_length=1, max_length=2000, description="What to look for, as one would ask a search engine."
    )


async def run(args: WebSearchArgs, context: ToolContext) -> ToolResult:
    backend = context.settings.tools.web_search
    if not backend:
        text = await _by_model(args.query, context)
    elif backend.startswith(("http://", "https://")):
        text = await _by_address(backend, args.query, context)
    else:
        text = await _by_command(backend, args.query, context)
    found = text.strip() or "Nothing was found."
    return ToolResult(status="success", content=clean(f"Results for {args.query!r}:\n\n{found}"))


async def _by_model(query: str, context: ToolContext) -> str:
    if context.ask is None:
        raise ToolError(
            "no_model", "There is no model here that could search; name a backend in tools.webSearch."
        )
    return (await context.ask("web_search", [Message(role="user", content=query)], "web")).text


async def _by_address(address: str, query: str, context: ToolContext) -> str:
    # The setting names the address, so it may be private; if a person was asked, then as it was shown.
    page = await fetch(_filled(address, query), context if context.shown else replace(context, reach="any"))
    text = page.body.decode("utf-8", "replace")
    if page.status >= 400:
        raise ToolError("http_status", f"The search at {page.url!r} answered {page.status} {page.reason}.")
    return (_listed(text) or text)[:_PAGE_CHARS]


def _filled(address: str, query: str) -> str:
    if _SLOT not in address:
        raise ToolError(
            "bad_setting", f"Setting tools.webSearch is {address!r}, expected an address with {_SLOT}."
        )
    return address.replace(_SLOT, quote(query, safe=""))


def _listed(text: str) -> str:
    """Title, address and excerpt of each entry in JSON with `results` (SearXNG's format); else empty."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    rows: Any = cast(dict[str, Any], found).get("results") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        return ""
    results = [cast(dict[str, Any], row) for row in cast(list[Any], rows) if isinstance(row, dict)]
    lines = [
        f"[{n}] {row.get('title') or '(no title)'} ({row.get('url')})\n{row.get('content') or ''}".rstrip()
        for n, row in enumerate(results[:_MOST_RESULTS], 1)
    ]
    return "\n\n".join(lines) or "Nothing was found."


async def _by_command(command: str, query: str, context: ToolContext) -> str:
    ended = await context.processes.run(
        shlex.split(command),
        cwd=context.workspace.root,
        timeout_s=min(_COMMAND_S, context.time_left_s or _COMMAND_S),
        limit_chars=_PAGE_CHARS,
        stdin=query.encode("utf-8", "replace"),
        ours=True,
    )
    if ended.how != "exited" or ended.exit_code:
        how = f"exit code {ended.exit_code}" if ended.how == "exited" else ended.how
        raise ToolError("search_failed", f"The search command failed ({how}): {ended.output.strip()[-500:]}")
    return ended.output


async def preview(args: WebSearchArgs, context: ToolContext) -> Preview:
    backend = context.settings.tools.web_search
    if not backend.startswith(("http://", "https://")):
        by = "with Google's search, by Gemini" if not backend else f"with `{backend}`"
        return Preview(text=f"search the web for {args.query!r} {by}")
    address = _filled(backend, args.query)
    note = await note_for_people(address)
    return Preview(text=f"GET {address}" + (f"\n{note}" if note else ""))


TOOL = Tool(
    name="web_search",
    description="Searches the web and returns what it says, with the addresses that it is from. Use it for what is"
    " newer than you know, or not in the workspace; read a page that matters with web_fetch.",
    args=WebSearchArgs,
    risk="network",
    summary=lambda args: f"Search the web for {args.query!r}",
    run=run,
    preview=preview,
    idempotent=True,
    aliases=("google_web_search",),
)
