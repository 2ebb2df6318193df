"""browser_action in a real Chromium, against pages on loopback; however the run ends, no browser is left."""

import asyncio
import base64
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any

import pytest
from agent_runs.stage import Stage, approve, call
from patience import until
from pydantic import ValidationError
from scripted import tools
from serving import Quiet, serving

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.toolset import BuiltinToolset
from interlock.state.calls import CallView, ToolError, ToolResult, tool_error_result
from interlock.state.settings import Settings
from interlock.state.tooling import ToolContext
from interlock.tools.browser.action import (
    TOOL,
    BrowserActionArgs,
    find_chromium,
    is_browser_installed,
    preview_browser_action,
    run_browser_action,
)

pytestmark = pytest.mark.sweep  # each starts a browser

needs_browser = pytest.mark.skipif(
    not (is_browser_installed() and find_chromium("")),
    reason="needs the extra `browser` and a Chromium on the PATH (Debian: apt install chromium)",
)
PAGE = """<!doctype html><title>Start</title><body style="height:3000px;margin:0">
<button style="position:absolute;left:0;top:0;width:200px;height:100px"
 onclick="document.title='clicked'; console.log('by a click')">Go</button>
<input style="position:absolute;left:0;top:150px;width:300px;height:40px" oninput="document.title=this.value">
<script>addEventListener('scroll', () => document.title = 'at ' + scrollY)</script>"""
REACHING = """<!doctype html><title>Reaching</title><body><img src="{other}/image"><iframe src="{other}/frame"></iframe>
<script>fetch("{other}/fetch").catch(() => 0); new WebSocket("{other}/socket".replace("http", "ws"));
new Image().src = "/redirect";</script>"""


class Handler(Quiet):
    def do_GET(self) -> None:
        server: Any = self.server
        server.paths.append(self.path)
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", f"{server.other}/redirected")
            self.end_headers()
            return
        page = REACHING.replace("{other}", server.other) if self.path == "/reaching" else PAGE
        self.answer(200, page.encode(), "text/html")


def at(address: str) -> Any:
    server: Any = ThreadingHTTPServer((address, 0), Handler)
    server.paths = []
    server.url = f"http://{address}:{server.server_port}"
    return server


@pytest.fixture
def site() -> Iterator[Any]:
    """A site and, at another private address, one that nobody launched."""
    with serving(at("127.0.0.1")) as server, serving(at("127.0.0.2")) as server.hidden:
        server.other = server.hidden.url
        yield server


Act = Callable[..., Awaitable[ToolResult]]


def browse(context: ToolContext, story: Callable[[Act], Awaitable[None]]) -> None:
    async def act(**args: Any) -> ToolResult:
        try:
            return await run_browser_action(BrowserActionArgs(**args), held)
        except ToolError as error:
            return tool_error_result(error)

    processes = SupervisedProcesses(outputs=context.outputs, env={"PATH": os.environ["PATH"]})
    held = replace(context, processes=processes, reach="any")  # as if nothing were asked
    try:
        asyncio.run(story(act))  # type: ignore[arg-type]
    finally:
        processes.close()


def size_of(result: ToolResult) -> tuple[int, int]:
    data = base64.b64decode(result.data[0].data or "")
    assert data.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", data[16:24])
    return width, height


@needs_browser
def test_a_page_is_opened_clicked_typed_into_scrolled_looked_at_and_closed(
    context: ToolContext, site: Any
) -> None:
    async def story(act: Act) -> None:
        opened = await act(action="launch", url=f"{site.url}/")
        assert opened.content == (
            f"URL: {site.url}/\nTitle: Start\nMouse: 0,0\nConsole: (nothing)\n"
            "[picture of the page (image/png), shown beside this text]"
        )
        assert size_of(opened) == (900, 600)
        clicked = await act(action="click", coordinate="100,50")
        assert "Title: clicked\nMouse: 100,50\nConsole:\n[log] by a click" in clicked.content
        assert clicked.data != (await act(action="click", coordinate="50,170")).data
        assert "Title: héllo" in (await act(action="type", text="héllo")).content
        assert "Title: at 600" in (await act(action="scroll_down")).content
        assert "Title: at 0" in (await act(action="scroll_up")).content
        assert size_of(await act(action="resize", size="500,400")) == (500, 400)
        assert "Mouse: 7,8" in (await act(action="hover", coordinate="7,8")).content
        assert (await act(action="close")).status == "success"
        gone = await act(action="click", coordinate="1,1")
        assert (gone.error or {})["type"] == "no_browser"

    browse(context, story)


@needs_browser
def test_a_page_reaches_no_private_place_that_nobody_launched(context: ToolContext, site: Any) -> None:
    async def story(act: Act) -> None:
        result = await act(action="launch", url=f"{site.url}/reaching")
        assert "Title: Reaching" in result.content
        assert "Not loaded: 127.0.0.2:" in result.content
        assert "/redirect" in site.paths
        assert site.hidden.paths == []
        assert "Title: Start" in (await act(action="launch", url=f"{site.other}/")).content

    browse(context, story)


@needs_browser
def test_a_browser_that_ends_in_between_is_told_and_launched_anew(context: ToolContext, site: Any) -> None:
    async def story(act: Act) -> None:
        opened = await act(action="launch", url=f"{site.url}/")
        os.kill(int(str(opened.meta["pid"])), signal.SIGKILL)
        lost = await act(action="scroll_down")
        assert (lost.error or {})["type"] == "no_browser"
        assert "Title: Start" in (await act(action="launch", url=f"{site.url}/")).content

    browse(context, story)


@needs_browser
def test_in_the_task_loop_it_asks_and_the_model_sees_the_page(tmp_path: Path, site: Any) -> None:
    launch = call("browser_action", action="launch", url=f"{site.url}/")
    done = call("attempt_completion", result="seen")
    stage = Stage(tmp_path, [tools(launch), tools(done, expect="Title: Start")])
    outcome = stage.run("task", {"prompt": "look", "mode": "code"})
    assert [p["tool_name"] for p in outcome.pending] == ["browser_action"]
    assert "PRIVATE ADDRESS" in outcome.pending[0]["preview"]
    assert site.paths == []
    while outcome.status == "waiting":
        outcome = stage.resume(outcome, *approve(outcome))
    answers = [m for m in outcome.output["history"] if m["role"] == "tool"]
    assert {part["type"] for part in answers[0]["content"]} == {"text", "image"}


def of_folder(folder: Path) -> list[int]:
    """Processes with the folder in their environment."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}".encode() in (process / "environ").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def killed(folder: Path, url: str, after_s: float | None) -> None:
    """Kill the driver some time after its start, or once the page is open; nothing of its browser may be left."""
    driver = [sys.executable, str(Path(__file__).with_name("browsing_driver.py")), str(folder), url]
    process = subprocess.Popen(driver, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        if after_s is None:
            assert process.stdout.readline() == b"open\n"
            assert of_folder(folder)
        time.sleep(after_s or 0)
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
    until(lambda: not of_folder(folder))


MOMENTS = 20 if "KILL_EVERY" in os.environ else 2


@needs_browser
def test_killed_at_any_moment_no_browser_stays(tmp_path: Path, site: Any) -> None:
    seed = int(time.time())
    print(f"seed {seed}")
    for number, moment in enumerate([0.3, None, *(Random(seed + n).uniform(0, 6) for n in range(MOMENTS))]):
        folder = tmp_path / str(number)
        folder.mkdir()
        killed(folder, f"{site.url}/", moment)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({"action": "launch"}, "launch needs 'url'"),
        ({"action": "click"}, "click needs 'coordinate'"),
        ({"action": "click", "coordinate": "1;2"}, "coordinate"),
        ({"action": "resize", "size": "0,5"}, "size"),
        ({"action": "fly"}, "action"),
    ],
)
def test_incomplete_actions_are_refused(args: dict[str, str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        BrowserActionArgs.model_validate(args)


def test_an_address_that_is_none_or_private_unlike_when_asked_is_refused(context: ToolContext) -> None:
    for shown, url, kind in (
        ("", "file:///etc/passwd", "invalid_url"),
        ("open http://127.0.0.1/ in a browser", "http://127.0.0.1/", "private_address"),
    ):
        with pytest.raises(ToolError) as refused:
            asyncio.run(
                run_browser_action(BrowserActionArgs(action="launch", url=url), replace(context, shown=shown))
            )
        assert refused.value.kind == kind


@needs_browser
def test_a_browser_that_is_not_there_is_named(context: ToolContext, site: Any) -> None:
    settings = Settings.model_validate({"tools": {"browser": "/nowhere/chrome"}})

    async def story(act: Act) -> None:
        result = await act(action="launch", url=f"{site.url}/")
        assert (result.error or {})["type"] == "not_started"
        assert "tools.browser" in result.content

    browse(replace(context, settings=settings), story)


def test_it_asks_shows_where_it_leads_and_is_no_tool_of_plan_mode(context: ToolContext, folder: Path) -> None:
    policy = RulePolicy(WorkspaceRules([], Settings(), FolderWorkspace(folder)))
    call = CallView(id="1", name="browser_action", args={"action": "launch", "url": "http://localhost:3000"})
    decided = [policy.check(call, TOOL.risk, mode).decision for mode in ("default", "auto_edit", "plan")]
    assert decided == ["ask", "ask", "deny"]
    shown = asyncio.run(preview_browser_action(BrowserActionArgs.model_validate(call.args), context))
    assert "PRIVATE ADDRESS" in shown.text
    toolset = BuiltinToolset(context.workspace, context.processes, context.outputs, Settings())
    info = toolset.find_tool_info("browser_action")
    assert info is not None
    assert (info.alone, info.effect) == (True, "other")
