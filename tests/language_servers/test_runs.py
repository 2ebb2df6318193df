"""What a run does with language servers: the journal has what they said, and only a trusted folder starts them."""

import asyncio
import json
from pathlib import Path
from typing import Any, cast

import pytest
from commands import Run
from folders import put
from language_servers.lab import toy
from scripted import says

from interlock.services.files import calls
from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.toolset import BuiltinToolset
from interlock.state.calls import CallKey, CallView, Planned
from interlock.state.settings import Settings
from interlock.state.tooling import Processes, ToolRun

EDIT = says("replace", file_path="a.toy", old_string="good", new_string="BAD")
HEARD = {"expect": "line 2, column 1: BAD is in line 2", "text": "seen"}


@pytest.fixture
def work(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(calls, "LONGEST_CHECK_S", 100)
    folder = tmp_path.resolve() / "work"
    put(folder / "a.toy", "BAD old\ngood\n")
    put(home / ".interlock/settings.json", {"tools": {"languageServers": {"toy": toy("push", folder)}}})
    return folder


def test_the_model_hears_of_it_and_a_replay_needs_no_server(run: Run, work: Path, tmp_path: Path) -> None:
    script = put(tmp_path / "script.json", [EDIT, HEARD])
    done = run("-m", f"script:{script}", "--skip-trust", "-y", "-p", "go", "-o", "json")
    assert done.code == 0, done.err
    (work / "log").unlink()
    assert run("replay", json.loads(done.out)["session_id"]).code == 0
    assert not (work / "log").exists()


@pytest.mark.parametrize("why", ["the folder isn't trusted", "a setting turns it off"])
def test_nothing_is_started(why: str, run: Run, work: Path, tmp_path: Path, home: Path) -> None:
    put(work / ".interlock/settings.json", {"ui": {}})
    script = put(tmp_path / "script.json", [EDIT, {"expect": "a.toy", "text": "silent"}])
    trust = ["--skip-trust"]
    if "trusted" in why:
        trust = []
    else:
        servers = {"toy": toy("push", work)}
        put(home / ".interlock/settings.json", {"tools": {"diagnostics": False, "languageServers": servers}})
    assert run("-m", f"script:{script}", *trust, "-y", "-p", "go").code == 0
    assert (work / "a.toy").read_text() == "BAD old\nBAD\n" and not (work / "log").exists()


class SlowFinder:
    """Says what it found when the test does."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None, str]] = []
        self.answers: list[asyncio.Future[str]] = []

    def has_server_for(self, path: Path) -> bool:
        return path.suffix == ".toy"

    def start_check(self, path: Path, before: str | None, after: str) -> "asyncio.Task[str | None]":
        self.asked.append((path.name, before, after))
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.answers.append(answer)

        async def check() -> str | None:
            return await answer

        return asyncio.create_task(check())


async def make_call(toolset: BuiltinToolset, name: str, **args: Any) -> str:
    call, key = CallView(id="c", name=name, args=args), CallKey(message="m", index=0)
    run = ToolRun(key=key, call=call, emit=lambda _: None)
    info = toolset.find_tool_info(name)
    if info and info.effect == "file":
        planned = await toolset.plan_change(call, run)
        assert isinstance(planned, Planned)
        run = ToolRun(key=key, call=call, emit=lambda _: None, planned=planned)
    return (await toolset.run_call(run)).content


def test_what_is_found_late_comes_with_the_next_result_once_and_a_second_edit_takes_the_place_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "LONGEST_CHECK_S", 0.01)
    finder = SlowFinder()
    toolset = BuiltinToolset(
        workspace=FolderWorkspace(tmp_path.resolve()),
        processes=cast(Processes, None),
        outputs=OutputFiles(tmp_path / "state"),
        settings=Settings(),
        problem_finder=finder,
    )

    async def play() -> None:
        put(tmp_path / "b.toy", b"caf\xe9\r\none\r\n")
        for name, content in (("a.toy", "1"), ("a.toy", "2"), ("a.txt", "x")):
            said = await make_call(toolset, "write_file", file_path=name, content=content)
            assert "New" not in said
        await make_call(toolset, "replace", file_path="b.toy", old_string="one", new_string="two")
        assert finder.asked[:2] == [("a.toy", None, "1"), ("a.toy", None, "2")]
        assert finder.asked[2][0] == "b.toy" and (finder.asked[2][1] or "").endswith("\r\none\r\n")
        finder.answers[1].set_result("New problems in a.toy: x")
        finder.answers[2].set_result("")
        await asyncio.sleep(0)
        read = await make_call(toolset, "read_file", file_path="a.toy")
        assert read.endswith("\n\nNew problems in a.toy: x")
        assert "New problems" not in await make_call(toolset, "read_file", file_path="a.toy")

    asyncio.run(play())
