"""web: fetch the text of a page; search the web with Gemini and Google's search, or the command in settings."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, JsonValue

from interlock.state.calls import Preview, ToolError, ToolResult, error_result
from interlock.state.messages import Message
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.tools.host_addresses import private_address_warning, url_problem

if TYPE_CHECKING:
    from interlock.tools.http_fetch import FetchedPage

_HTML_PROGRAM = str(Path(__file__).with_name("html_text.py"))
_HTML_S = 10
_HTML_CHARS = 50_000_000
"""More than a page of maximum size can become."""
_ERROR_CHARS = 2000
"""Characters of an error page's body."""
_HEAD_CHARS = 2000
"""Characters of each line above the text: addresses, title and the like are the server's, too."""
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = (
    "application/json",
    "application/xml",
    "application/javascript",
    "application/yaml",
    "application/toml",
)
_SNIFFED = 1024


class WebFetchArgs(Args):
    url: str = Field(min_length=1, description="Address of the page, with http:// or https://.")
    max_chars: int = Field(
        default=40_000,
        ge=100,
        le=200_000,
        description="Most characters of its text to return. Default 40,000.",
    )


async def run_web_fetch(args: WebFetchArgs, context: ToolContext) -> ToolResult:
    if problem := url_problem(args.url):
        raise ToolError("invalid_url", f"{args.url!r} can't be fetched: {problem}.")
    page = await _fetch_page(args.url, context)
    title, text = await _extract_title_and_text(page, context)
    return _format_result_saving_overflow(args, page, title, text, context)


async def _fetch_page(url: str, context: ToolContext) -> "FetchedPage":
    from interlock.tools.http_fetch import fetch_page  # with a client of 45 modules that no other tool needs

    return await fetch_page(url, context)


async def _extract_title_and_text(page: "FetchedPage", context: ToolContext) -> tuple[str, str]:
    """Title and text. Raises `ToolError` if it isn't text."""
    if page.content_type in _HTML or (not page.content_type and b"<html" in page.body[:_SNIFFED].lower()):
        ended = await context.processes.run(
            [sys.executable, "-I", "-S", _HTML_PROGRAM, page.url, page.charset],
            cwd=context.workspace.root,
            timeout_s=_HTML_S,
            limit_chars=_HTML_CHARS,
            stdin=page.body,
            trusted_helper=True,
        )
        if ended.how != "exited" or ended.exit_code != 0:
            return "", f"(The page could not be turned into text; its HTML follows.)\n{_decode_body(page)}"
        title, _, text = ended.output.partition("\n")
        return title, text.strip()
    textual = page.content_type.startswith("text/") or page.content_type.endswith(("+json", "+xml", *_TEXT))
    if b"\0" in page.body[:_SNIFFED] or not (textual or not page.content_type):
        kind = page.content_type or "binary data"
        raise ToolError("not_text", f"{page.url!r} is {kind} ({len(page.body):,} bytes), not text.")
    return "", _decode_body(page)


def _decode_body(page: "FetchedPage") -> str:
    from interlock.tools.html_text import decode_with_charsets  # lazy: no other run needs html.parser

    return decode_with_charsets(page.body, page.charset)


def _format_result_saving_overflow(
    args: WebFetchArgs, page: "FetchedPage", title: str, text: str, context: ToolContext
) -> ToolResult:
    bad = page.status >= 400
    limit = _ERROR_CHARS if bad else args.max_chars
    lines = [f"URL: {page.url}", f"Status: {page.status} {page.reason}".rstrip()]
    lines += [f"Redirect: {hop}" for hop in page.hops]
    lines += [f"Title: {title}"] if title else []
    lines = [line if len(line) <= _HEAD_CHARS else f"{line[:_HEAD_CHARS]}…" for line in lines]
    lines += ["", text[:limit] if text.strip() else "(no text)"]
    if len(text) > limit:
        full = context.outputs.save_bytes(text.encode("utf-8", "replace"))
        lines.append(f"… the first {limit:,} of {len(text):,} characters. All of it: {full}")
    content = replace_surrogates("\n".join(lines))
    meta: dict[str, JsonValue] = {
        "summary": f"{page.status}, {len(page.body):,} bytes",
        "url": page.url,
        "http_status": page.status,
    }
    if bad:
        return error_result("http_status", f"{page.url!r} answered {page.status} {page.reason}.").model_copy(
            update={"content": content, "meta": meta}
        )
    return ToolResult(status="success", content=content, meta=meta)


async def preview_web_fetch(args: WebFetchArgs, _: ToolContext) -> Preview:
    if problem := url_problem(args.url):
        return Preview(text=args.url, problem=f"{args.url!r} can't be fetched: {problem}.")
    note = await private_address_warning(args.url)
    return Preview(text=f"GET {args.url}" + (f"\n{note}" if note else ""))


FETCH = Tool(
    name="web_fetch",
    description="Fetches one address over http(s) and returns its text: HTML as readable text with its links, JSON and"
    " plain text as they are. At most 10 MB, 30 s and 5 redirects. It can't run scripts or log in.",
    args=WebFetchArgs,
    risk="network",
    summary=lambda args: f"Fetch {args.url}",
    run=run_web_fetch,
    preview=preview_web_fetch,
    idempotent=True,
)


_COMMAND_S = 60
_PAGE_CHARS = 40_000


class WebSearchArgs(Args):
    query: str = Field(
        min_length=1, max_length=2000, description="What to look for, phrased as for a search engine."
    )


async def _run_web_search(args: WebSearchArgs, context: ToolContext) -> ToolResult:
    backend = context.settings.tools.web_search
    if not backend:
        if context.ask is None:
            raise ToolError("no_model", "No model here can search; name a command in tools.webSearch.")
        text = (await context.ask("web_search", [Message(role="user", content=args.query)], "web")).text
    else:
        text = await _search_by_command(backend, args.query, context)
    found = text.strip() or "Nothing was found."
    return ToolResult(status="success", content=replace_surrogates(f"Results for {args.query!r}:\n\n{found}"))


async def _search_by_command(command: str, query: str, context: ToolContext) -> str:
    ended = await context.processes.run(
        shlex.split(command),
        cwd=context.workspace.root,
        timeout_s=min(_COMMAND_S, context.time_left_s or _COMMAND_S),
        limit_chars=_PAGE_CHARS,
        stdin=query.encode("utf-8", "replace"),
        trusted_helper=True,
    )
    if ended.how != "exited" or ended.exit_code:
        how = f"exit code {ended.exit_code}" if ended.how == "exited" else ended.how
        raise ToolError("search_failed", f"The search command failed ({how}): {ended.output.strip()[-500:]}")
    return ended.output


async def _preview_web_search(args: WebSearchArgs, context: ToolContext) -> Preview:
    backend = context.settings.tools.web_search
    by = f"with `{backend}`" if backend else "with Google's search, by Gemini"
    return Preview(text=f"search the web for {args.query!r} {by}")


SEARCH = Tool(
    name="web_search",
    description="Searches the web and returns an answer with its sources. Use it for facts newer than your knowledge,"
    " or not in the workspace; read a page that matters with web_fetch.",
    args=WebSearchArgs,
    risk="network",
    summary=lambda args: f"Search the web for {args.query!r}",
    run=_run_web_search,
    preview=_preview_web_search,
    idempotent=True,
    aliases=("google_web_search",),
)
