"""action: `browser_action`, one action in a browser that lives as long as the run; each returns a screenshot."""

import asyncio
import json
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from interlock.state.calls import Preview, ToolError, ToolResult
from interlock.state.errors import RunError
from interlock.state.messages import DataPart
from interlock.state.text import replace_surrogates
from interlock.state.tooling import Args, Tool, ToolContext
from interlock.tools.host_addresses import (
    describe_private_host,
    is_unapproved_private_host,
    private_address_warning,
    resolve_host,
    url_problem,
)

_PROGRAM = str(Path(__file__).with_name("program.py"))
_LABEL = "browser"
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_SIZE = (900, 600)
"""Page size in pixels (Roo Code: 900x600)."""
_START_S = 60
_ACTION_S = 90
_END_S = 10
_ANSWER_BYTES = 64 * 1024 * 1024
Action = Literal["launch", "click", "hover", "type", "scroll_down", "scroll_up", "resize", "close"]
_NEEDS: Mapping[str, str] = {
    "launch": "url",
    "click": "coordinate",
    "hover": "coordinate",
    "type": "text",
    "resize": "size",
}


class BrowserActionArgs(Args):
    action: Action = Field(
        description="launch (at url) first and close last; in between click or hover (at coordinate), type (text, where"
        " the focus is), scroll_down, scroll_up (by one page), resize (to size)."
    )
    url: str | None = Field(
        default=None, description="For launch: http:// or https:// address, such as http://localhost:3000."
    )
    coordinate: str | None = Field(
        default=None,
        pattern=r"^\d{1,4},\d{1,4}$",
        description="For click and hover: 'x,y' in the last picture.",
    )
    text: str | None = Field(default=None, description="For type. A line break presses Enter.")
    size: str | None = Field(
        default=None,
        pattern=r"^[1-9]\d{1,3},[1-9]\d{1,3}$",
        description="For resize: 'width,height' in pixels.",
    )

    @model_validator(mode="after")
    def _require_argument(self) -> "BrowserActionArgs":
        needed = _NEEDS.get(self.action)
        if needed and not getattr(self, needed):
            raise ValueError(f"{self.action} needs {needed!r}")
        return self


def is_browser_installed() -> bool:
    """Return whether the extra `browser` is installed."""
    return find_spec("playwright") is not None


def find_chromium(configured: str) -> str:
    """Return the browser's executable; empty: Playwright's own, if installed."""
    return configured or next((found for name in _NAMES if (found := shutil.which(name))), "")


async def run_browser_action(args: BrowserActionArgs, context: ToolContext) -> ToolResult:
    if args.action == "launch":
        return await _launch_page(args, context)
    output = _find_running_browser_output_file(context)
    if output is None:
        raise ToolError("no_browser", "No browser is open; begin with the action launch.")
    answer = await _send_request(await _wait_for_socket(context, output), _to_browser_request(args))
    if args.action == "close":
        await _wait_briefly_for_browser_end(context)
        return ToolResult(status="success", content="The browser is closed.", meta={"summary": "closed"})
    return _to_tool_result(answer)


def _to_browser_request(args: BrowserActionArgs) -> dict[str, Any]:
    pairs = {
        name: [int(n) for n in value.split(",")]
        for name in ("coordinate", "size")
        if (value := getattr(args, name))
    }
    return {"action": args.action, "text": args.text, **pairs}


async def _launch_page(args: BrowserActionArgs, context: ToolContext) -> ToolResult:
    url = args.url or ""
    if problem := url_problem(url):
        raise ToolError("invalid_url", f"{url!r} can't be opened: {problem}.")
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    private = describe_private_host(host, await resolve_host(host))
    if is_unapproved_private_host(private, host, context):
        raise ToolError(
            "private_address", f"{url!r} leads to a private address ({private}), which nobody approved."
        )
    asked = {"action": "launch", "url": url, "private": [host] if private else [], "size": _SIZE}
    pid = await _ensure_browser_started(context)
    try:
        answer = await _send_request(
            await _wait_for_socket(context, _find_running_browser_output_file(context) or ""), asked
        )
    except ToolError as error:
        if error.kind != "no_browser":
            raise
        await _wait_briefly_for_browser_end(context)  # it was ending, which is reported a moment later
        pid = await _ensure_browser_started(context)
        answer = await _send_request(
            await _wait_for_socket(context, _find_running_browser_output_file(context) or ""), asked
        )
    result = _to_tool_result(answer)
    return result.model_copy(update={"meta": {**result.meta, "pid": pid}})


def _find_running_browser_output_file(context: ToolContext) -> str | None:
    """Return the output file of this run's browser program; None: not running."""
    mine = [
        one
        for one in context.processes.list_background_processes()
        if one["label"] == _LABEL and one["running"]
    ]
    return str(mine[-1]["output_file"]) if mine else None


async def _ensure_browser_started(context: ToolContext) -> int:
    """Start the browser program unless it is running; return its pid."""
    for one in context.processes.list_background_processes():
        if one["label"] == _LABEL and one["running"]:
            return int(one["pid"])
    if not is_browser_installed():
        raise ToolError(
            "not_installed",
            "browser_action needs the extra `browser`. A person can run: interlock install browser",
        )
    argv = [sys.executable, "-I", _PROGRAM, find_chromium(context.settings.tools.browser)]
    try:
        return await context.processes.start_in_background(
            argv, cwd=context.workspace.root, label=_LABEL, trusted_helper=True
        )
    except RunError as error:
        raise ToolError("not_started", str(error)) from error


async def _wait_briefly_for_browser_end(context: ToolContext) -> None:
    for _ in range(_END_S * 20):
        if _find_running_browser_output_file(context) is None:
            return
        await asyncio.sleep(0.05)


async def _wait_for_socket(context: ToolContext, output_file: str) -> str:
    """Return the program's socket, once it listens. Raise `ToolError` if it exits or takes too long."""
    for _ in range(_START_S * 20):
        lines = (await asyncio.to_thread(Path(output_file).read_text, "utf-8", "replace")).partition("\n")
        if lines[1]:
            found: dict[str, str] = json.loads(lines[0]) if lines[0].startswith("{") else {"error": lines[0]}
            if "socket" in found:
                return found["socket"]
            raise ToolError("not_started", _explain_start_error(found.get("error", "")))
        if _find_running_browser_output_file(context) != output_file:
            break
        await asyncio.sleep(0.05)
    raise ToolError("not_started", "The browser did not start.")


def _explain_start_error(error: str) -> str:
    if "xecutable doesn't exist" in error:
        return (
            "There is no Chromium on the PATH; install it (Debian: apt install chromium), or name it in the setting"
            " tools.browser."
        )
    return f"The browser could not be started: {error}"


async def _send_request(socket: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the browser program's answer. Raise `ToolError` if it doesn't answer in time."""
    try:
        async with asyncio.timeout(_ACTION_S):
            reader, writer = await asyncio.open_unix_connection(socket, limit=_ANSWER_BYTES)
            try:
                writer.write(json.dumps(request).encode() + b"\n")
                answer = await reader.readline()
            finally:
                writer.close()
    except TimeoutError:
        raise ToolError("timeout", f"The browser did not answer within {_ACTION_S} s; close it.") from None
    except OSError as error:
        raise ToolError("no_browser", f"The browser has exited ({error}); launch it again.") from error
    if not answer:
        raise ToolError("no_browser", "The browser ended before it answered; launch it again.")
    return json.loads(answer)


def _to_tool_result(answer: Mapping[str, Any]) -> ToolResult:
    if "error" in answer:
        raise ToolError("browser", f"The browser refused: {answer['error']}")
    x, y = answer["mouse"]
    lines = [f"URL: {answer['url']}", f"Title: {answer['title']}", f"Mouse: {x},{y}"]
    lines += ["Console:", *answer["logged"]] if answer["logged"] else ["Console: (nothing)"]
    lines += [f"Not loaded: {why}" for why in answer["refused"]]
    lines.append("[picture of the page (image/png), shown beside this text]")
    part = DataPart(type="image", mime_type="image/png", data=answer["screenshot"])
    return ToolResult(
        status="success",
        content=replace_surrogates("\n".join(lines)),
        meta={"summary": answer["url"]},
        data=(part,),
    )


async def preview_browser_action(args: BrowserActionArgs, _: ToolContext) -> Preview:
    if args.action != "launch":
        return Preview(text=_summarize_action(args))
    if problem := url_problem(args.url or ""):
        return Preview(text=_summarize_action(args), problem=f"{args.url!r} can't be opened: {problem}.")
    note = await private_address_warning(args.url or "")
    return Preview(text=f"open {args.url} in a browser" + (f"\n{note}" if note else ""))


def _summarize_action(args: BrowserActionArgs) -> str:
    what = args.url or args.coordinate or args.size or (repr(args.text) if args.text else "")
    return f"Browser: {args.action.replace('_', ' ')} {what}".rstrip()


TOOL = Tool(
    name="browser_action",
    description="Performs one action in a headless browser and returns a picture of the page, its address, and what"
    " it logged. Begin with launch, end with close; look at each picture before the next action, and click"
    " the middle of what you mean. It reaches what you launched and public addresses.",
    args=BrowserActionArgs,
    risk="network",
    summary=_summarize_action,
    run=run_browser_action,
    preview=preview_browser_action,
    installed=is_browser_installed,
)
