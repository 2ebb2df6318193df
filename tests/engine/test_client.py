"""test_client: what a front end does with runs, through the client alone: a second front end, following, one loop."""

import asyncio
import os
import queue
import time
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from unittest.mock import Mock

import pytest
import warm
from folders import put
from patience import HANG_S
from scripted import says
from toy_front import Toy

from interlock.engine import resume_sync
from interlock.engine.client import ENDED, Client, Decision, Options, Outcome, Pending
from interlock.engine.client.answer_choices import choices_by_key
from interlock.engine.client.conversation import Conversation
from interlock.engine.client.following import FollowedEvent, LiveDriveRegistry, RunStatus, follow_events
from interlock.engine.client.record import Cursor
from interlock.engine.client.requests import make_decision
from interlock.state.errors import UserError
from interlock.state.events import Event, MessageEvent, ToolResultEvent, ToolUse
from interlock.testing import Stage

_WRITE = says("write_file", file_path="a.txt", content="one\n")
_WORK = [{"text": "I write it."} | _WRITE, {"text": "Written."}]


class _Typing:
    """A person's lines, each typed once what it waits for was said since the one before."""

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._lines = iter(lines)
        self._said: queue.Queue[str] = queue.Queue()
        self.all: list[str] = []

    def say(self, line: str) -> None:
        self.all.append(line)
        self._said.put(line)

    def read(self) -> str:
        awaited, line = next(self._lines)
        while awaited and not self._said.get(timeout=HANG_S).startswith(awaited):
            pass
        return line


def test_a_front_end_of_plain_input_and_print(tmp_path: Path) -> None:
    replies = [*_WORK, says("run_shell_command", command="sleep 60"), {"text": "Gone on."}]
    stage = Stage(tmp_path, replies, given={"allowed_tools": ("run_shell_command(sleep)",)})
    person = _Typing(
        [
            ("", "write a file"),
            ("  y Yes", "y"),
            ("= done", "/undo"),
            ("undone", "/fork"),
            ("forked", "now wait"),
            ("call: ", "/stop"),
            ("= cancelled", "go on"),
            ("= done", "/quit"),
        ]
    )
    asyncio.run(Toy(stage.options, person.read, person.say).serve())
    assert "~ I write it." in person.all and "assistant: I write it." in person.all
    assert [line for line in person.all if line[0] in "?="] == [
        next(
            line for line in person.all if line.startswith("? Create a.txt (+1) (No rule allows this edit.)")
        ),
        "= done",
        "= cancelled",
        "= done",
    ]
    assert "undone: D a.txt" in person.all
    assert [line for line in person.all if line.startswith("user:")] == [
        "user: write a file",
        "user: now wait",
        "user: go on",
    ]
    assert sorted(run.status for run in Client(stage.options).runs()) == ["done", "done"]


class _Approves:
    async def decide(self, _outcome: Outcome, requests: Sequence[Pending], /) -> list[Decision]:
        return [make_decision(request, choices_by_key(request)["y"]) for request in requests]

    def on_decisions_refused(self, error: UserError, /) -> None:
        raise error


async def _until_over(client: Client, run: str, cursor: str = "") -> list[FollowedEvent]:
    found: list[FollowedEvent] = []
    async with aclosing(client.follow_events(run, cursor)) as events:
        async for one in events:
            found.append(one)
            if isinstance(one.event, RunStatus) and one.event.status in ENDED:
                break
    return found


def _kinds(found: Iterable[FollowedEvent]) -> list[str]:
    return [_kind(one.event) for one in found if one.cursor and not isinstance(one.event, RunStatus)]


def _kind(event: Event | RunStatus) -> str:
    if isinstance(event, MessageEvent):
        return f"{event.role}: {event.content}"
    assert isinstance(event, ToolUse | ToolResultEvent)
    return f"{event.type} {event.tool_name}"


_RECORDED = [
    "user: write a file",
    "assistant: I write it.",
    "tool_use write_file",
    "tool_result write_file",
    "assistant: Written.",
]


def test_a_run_is_followed_from_any_place_without_a_gap_or_a_double(tmp_path: Path) -> None:
    client = Client(Stage(tmp_path, _WORK).options)
    outcome = client.start_sync("main", {"prompt": "write a file"}, decider=_Approves())
    assert outcome.status == "done"
    whole = asyncio.run(_until_over(client, outcome.run))
    assert _kinds(whole) == _RECORDED
    for number, one in enumerate(whole[:-1], 1):
        after = asyncio.run(_until_over(client, outcome.run, one.cursor))
        assert _kinds(after) == _RECORDED[number:]


def test_a_result_that_comes_after_a_later_call_is_neither_lost_nor_told_twice() -> None:
    first, second = (ToolUse(tool_name=name, tool_id=name, parameters={}) for name in "ab")
    done = [ToolResultEvent(tool_name=name, tool_id=name, status="success") for name in "ab"]
    place = Cursor()
    told = [*place.read_new_events([first, second])]
    place = Cursor.parse(str(place))
    told += place.read_new_events([first, second, done[1]])
    place = Cursor.parse(str(place))
    told += place.read_new_events([first, done[0], second, done[1]])
    assert told == [first, second, done[1], done[0]]


_ELSEWHERE = """
import sys
import time
from pathlib import Path
from interlock.engine.client import Client, Options
home, work, script, run = sys.argv[1:]
options = Options(home=Path(home), user_home=Path(home), workspace=Path(work), model=f"script:{script}", env={})
request = Client(options).waiting_requests(run)[0].fields
from interlock.engine.client.answer_choices import choices_by_key
from interlock.engine.client.requests import make_decision
Client(options).resume_sync(run, decisions=[make_decision(request, choices_by_key(request)["y"])])
"""


def test_a_follower_that_is_cancelled_as_a_piece_arrives_ends(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [{"text": "Done."}])
    drives = LiveDriveRegistry()

    async def scene() -> None:
        run = (await Client(stage.options).start("main", {"prompt": "go"})).run
        stood = asyncio.Event()

        async def followed() -> None:
            async with aclosing(follow_events(stage.options.home, run, "", drives)) as found:
                async for one in found:
                    if isinstance(one.event, RunStatus):
                        stood.set()

        following = asyncio.create_task(followed())
        await stood.wait()
        await asyncio.sleep(0.01)  # it waits for a piece
        drives.publish_event(run, MessageEvent(role="assistant", content="piece", delta=True))
        asyncio.get_running_loop().call_soon(following.cancel)
        done, _ = await asyncio.wait([following], timeout=HANG_S)
        assert done and following.cancelled()

    asyncio.run(scene())


def test_what_another_process_does_is_followed_by_what_it_commits(tmp_path: Path) -> None:
    stage, program = Stage(tmp_path, _WORK), put(tmp_path / "elsewhere.py", _ELSEWHERE)
    client = Client(stage.options)
    parked = client.start_sync("main", {"prompt": "write a file"})
    assert parked.status == "waiting"

    async def followed() -> list[FollowedEvent]:
        arguments = [str(stage.home), str(stage.work), str(stage.script), parked.run]
        following = asyncio.create_task(_until_over(client, parked.run))
        other = warm.Warm(arguments, cwd=tmp_path, env=os.environ, program=program)
        assert await asyncio.to_thread(other.wait, HANG_S) == 0
        return await following

    found = asyncio.run(followed())
    assert _kinds(found) == _RECORDED
    stood = [one.event.status for one in found if isinstance(one.event, RunStatus)]
    assert stood[0] == "waiting" and stood[-1] == "done"
    assert all(one.cursor for one in found)


def test_pieces_that_lag_behind_the_record_are_told_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell = LiveDriveRegistry.publish_event

    def slow(self: LiveDriveRegistry, run: str, event: Event) -> None:
        time.sleep(0.1)
        tell(self, run, event)

    monkeypatch.setattr(LiveDriveRegistry, "publish_event", slow)
    stage = Stage(tmp_path, _WORK)
    client = Client(stage.options)
    parked = client.start_sync("main", {"prompt": "write a file"})

    async def followed() -> list[FollowedEvent]:
        following = asyncio.create_task(_until_over(client, parked.run))
        await client.resume(parked.run, decisions=await _Approves().decide(parked, parked.pending))
        return await following

    found = asyncio.run(followed())
    assert _kinds(found) == _RECORDED
    assert isinstance(found[-1].event, RunStatus)
    pieces = [one.event for one in found if not one.cursor]
    assert "Written." in "".join(e.content for e in pieces if isinstance(e, MessageEvent) and e.delta)


def test_what_somebody_else_decided_first_is_said_and_the_rest_asked(tmp_path: Path) -> None:
    """The loop behind every front end."""
    calls = [{"name": "write_file", "args": {"file_path": name, "content": "x"}} for name in ("a", "b")]
    client = Client(Stage(tmp_path, [{"tool_calls": calls}, {"text": "Done."}]).options)
    asked: list[list[str]] = []
    problems: list[str] = []

    class Slow(_Approves):
        async def decide(self, outcome: Outcome, requests: Sequence[Pending], /) -> list[Decision]:
            asked.append([request["args"]["file_path"] for request in requests])
            made = await super().decide(outcome, requests)
            if len(asked) == 1:
                client.resume_sync(outcome.run, decisions=made[:1])
            return made

        def on_decisions_refused(self, error: UserError, /) -> None:
            problems.append(str(error))

    outcome = client.start_sync("main", {"prompt": "write"}, decider=Slow())
    assert (outcome.status, asked) == ("done", [["a", "b"], ["b"]])
    assert len(problems) == 1


def test_a_stop_of_one_run_leaves_the_others(tmp_path: Path) -> None:
    waits = [says("run_shell_command", command="sleep 60"), {"text": "Done."}]
    options: Options = Stage(tmp_path, waits, given={"allowed_tools": ("run_shell_command(sleep)",)}).options
    client = Client(options)

    async def stopped() -> Outcome:
        at_work: asyncio.Queue[str] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def seen(event: Event) -> None:
            if event.type == "tool_start":
                loop.call_soon_threadsafe(at_work.put_nowait, "")

        drive = asyncio.create_task(client.start("main", {"prompt": "wait"}, renderers=[seen]))
        await at_work.get()
        (run,) = client.runs("running")
        assert not client.stop_drives("another")
        assert client.stop_drives(run.run)
        return await drive

    assert asyncio.run(stopped()).status == "cancelled"
    assert not client.stop_drives()


def test_what_another_process_did_meanwhile_is_shown_before_the_next_prompt(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [{"text": word} for word in ("one", "two", "three")])
    run = stage.run("main", {"prompt": "first"}).run
    shown, front = list[str](), Mock()
    front.on_prompt_sent = lambda prompt: shown.append(f"> {prompt}")

    def said(event: Event) -> None:
        if isinstance(event, MessageEvent) and event.content not in shown[-1:]:
            shown.append(event.content)

    front.on_event = said

    async def talked() -> None:
        talk = Conversation(stage.options, "main", front)
        talk.start_engine_thread()

        async def idle() -> None:
            while talk.is_working:
                await asyncio.sleep(0.01)

        talk.switch_run(run)
        await idle()
        await asyncio.to_thread(resume_sync, run, prompt="elsewhere", options=stage.options)
        talk.submit_prompt("here")
        await idle()
        await talk.close()

    asyncio.run(talked())
    assert shown == ["first", "one", "elsewhere", "two", "> here", "three"]
