"""Failures: what is retried, when, and what ends a stream."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from fake_gemini.fake import FakeGemini

from interlock.services.models.failure import Backoff
from interlock.state.deps import Stopped
from interlock.state.errors import ModelAuthError, ModelError
from interlock.state.events import Asking, Retry
from interlock.state.messages import Reply, TextDelta

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "lost",
    [
        *({"error": status} for status in (429, 499, 500, 502, 503, 504)),
        {"error": {"code": 503, "html": "<h1>\nbad gateway</h1>"}},
        # A lost connection is made again while nothing was shown.
        *({"text": "", **how} for how in ({"cut_after": 0}, {"garbage_after": 0})),
        {"text": "", "calls": [{"name": "a"}], "cut_after": 1},
    ],
)
async def test_a_busy_or_lost_server_is_asked_again_and_each_wait_is_told(
    gemini: Any, lost: dict[str, Any]
) -> None:
    asked = await gemini([lost, lost, {"text": "at last"}]).ask("hi")
    assert (asked.text, asked.reply.message.tool_calls) == ("at last", ())
    assert [r.attempt for r in asked.retries] == [2, 3]
    assert all("\n" not in r.reason and "gemini-2.5-pro" in r.reason for r in asked.retries)


async def test_nobody_listening_is_a_failure_that_can_pass(bench: Any, fake_gemini: FakeGemini) -> None:
    env = {**fake_gemini.env, "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}
    with pytest.raises(ModelError, match="could not be reached") as caught:
        await bench(env).ask("hi", attempts=2)
    assert caught.value.retryable


QUOTA = {
    "@type": "type.googleapis.com/google.rpc.QuotaFailure",
    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
}
LONG = "The input token count (1048600) exceeds the maximum number of tokens allowed (1048576)."


@pytest.mark.parametrize(
    ("error", "kind", "says", "terminal"),
    [
        ({"code": 400}, ModelError, "answered 400", False),
        ({"code": 401}, ModelAuthError, "answered 401", False),
        ({"code": 403}, ModelAuthError, "answered 403", False),
        ({"code": 404}, ModelError, "answered 404", True),
        ({"code": 400, "message": "API key not valid."}, ModelAuthError, "Check the API key", False),
        ({"code": 400, "message": LONG}, ModelError, "answered 400", False),
        ({"code": 429, "details": [QUOTA], "retry_delay": 40}, ModelError, "quota", True),
    ],
)
async def test_what_asking_again_cannot_help_is_raised_at_once(
    gemini: Any,
    fake_gemini: FakeGemini,
    error: dict[str, Any],
    kind: type[ModelError],
    says: str,
    terminal: bool,
) -> None:
    with pytest.raises(ModelError, match=says) as caught:
        await gemini([{"error": error}, {"text": "never"}]).ask("hi")
    assert len(fake_gemini.requests) == 1
    found = caught.value
    assert (type(found), found.status, found.terminal) == (kind, error["code"], terminal)
    assert (found.overflow, found.retryable) == (error.get("message") == LONG, False)
    assert kind is ModelError or found.exit_code == 41


async def test_it_gives_up_after_so_many_attempts_or_when_its_patience_ends(
    gemini: Any, fake_gemini: FakeGemini
) -> None:
    for attempts in (None, 1, 3):
        with pytest.raises(ModelError, match="503"):
            await gemini({"default": {"error": 503}}, delay_scale=0.0001).ask("hi", attempts=attempts)
        assert len(fake_gemini.requests) == (attempts or 10)
    with pytest.raises(ModelError, match="Given up after 1 attempts"):
        await gemini([{"error": 503}] * 20, patience_s=0).ask("hi")
    backoff = Backoff(patience_s=150)
    error = ModelError("x", retryable=True)
    assert not backoff.give_up_reason(error, 5, elapsed_s=120, delay_s=29, now=0)
    assert "Given up after 5 attempts" in backoff.give_up_reason(error, 5, elapsed_s=120, delay_s=31, now=0)


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


async def test_the_servers_own_delay_is_honoured(gemini: Any) -> None:
    in_a_minute = format_datetime(NOON + timedelta(seconds=60), usegmt=True)
    still = SimpleNamespace(now=NOON.timestamp, monotonic=lambda: 0)
    asked = ({"retry_delay": 33.5}, {"retry_after": 7}, {"retry_after": in_a_minute})
    run = gemini([*({"error": {"code": 503, **delay}} for delay in asked), {"text": "ok"}], clock=still)
    delays = [r.delay_s * 1000 for r in (await run.ask("hi")).retries]
    assert delays == [34, 7, 60]  # told to the millisecond, scaled by 0.001


def test_delays_double_from_5_to_30_seconds_with_30_percent_jitter() -> None:
    error = ModelError("x", retryable=True)
    seen = [[Backoff(random=Random(seed)).delay_s(n, error) for n in range(1, 8)] for seed in range(200)]
    for n, base in enumerate([5, 10, 20, 30, 30, 30, 30]):
        column = [row[n] for row in seen]
        assert base * 0.7 <= min(column) < base * 0.75 and base * 1.25 < max(column) <= base * 1.3
    assert seen[3] == [Backoff(random=Random(3)).delay_s(1, error), *seen[3][1:]]


async def test_a_delay_that_no_calendar_holds_ends_the_request_in_one_line(
    bench: Any, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play([{"error": {"code": 429, "retry_after": "9" * 400}}, {"text": "never"}])
    with pytest.raises(ModelError, match=r"It asks to wait 8784\.0 hours, until \d{4}-"):
        await bench(fake_gemini.env).ask("hi")


@pytest.mark.parametrize("status", ["302 Found", "307 Temporary Redirect"])
async def test_a_redirect_takes_key_and_conversation_nowhere(
    bench: Any, fake_gemini: FakeGemini, status: str
) -> None:
    async def away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        there = f"Location: {fake_gemini.env['GOOGLE_GEMINI_BASE_URL']}/x?key=1\r\nContent-Length: 0"
        writer.write(f"HTTP/1.1 {status}\r\n{there}\r\nConnection: close\r\n\r\n".encode())
        writer.close()

    server = await asyncio.start_server(away, "127.0.0.1")
    url = "http://{}:{}".format(*server.sockets[0].getsockname())
    async with server:
        with pytest.raises(ModelError, match=r"redirects to 'http://.*/x'\. .* GOOGLE_GEMINI_BASE_URL"):
            await bench({**fake_gemini.env, "GOOGLE_GEMINI_BASE_URL": url}).ask("hi")
    assert not fake_gemini.requests


async def test_what_was_shown_is_never_asked_again(gemini: Any, fake_gemini: FakeGemini) -> None:
    """The stream ends as a reply without a finish reason, and the graph decides."""
    cut = {"text": "one two", "chunks": 2, "calls": [{"name": "a"}], "cut_after": 3}
    asked = await gemini([{**cut}, {"text": "never"}]).ask("hi", attempts=1)
    assert asked.text == "one two" == asked.reply.message.text
    assert asked.reply.finish_reason is None and "cut off" in str(asked.reply.problem)
    assert asked.reply.message.tool_calls == () and asked.retries == []
    assert len(fake_gemini.requests) == 1
    thought = await gemini([{"thought": "hm", "text": "x", "cut_after": 1}]).ask("hi")
    assert "cut off" in str(thought.reply.problem), "a thought counts as shown"


async def test_a_stall_is_told_while_it_lasts_and_ends_the_request(
    gemini: Any, fake_gemini: FakeGemini
) -> None:
    run = gemini([{"hang": True}, {"text": "never"}], stall_s=0.4)
    with pytest.raises(ModelError, match=r"nothing came for 0\.4 s"):
        await run.ask("hi")
    told = [e.message for e in run.events if e.type == "error"]
    assert [float(text.split(" for ")[1].split(" s;")[0]) for text in told] == pytest.approx([0.1, 0.2, 0.3])
    assert len(fake_gemini.requests) == 1


async def test_a_stall_names_the_limit_that_ends_the_call_first(gemini: Any) -> None:
    run = gemini([{"hang": True}], stall_s=0.4)
    with pytest.raises(ModelError):
        await run.ask("hi", timeout_s=0.3)
    told = [e.message.partition("; ")[2] for e in run.events if e.type == "error"]
    assert told == ["it is given up after 0.3 s."] * 2


async def test_a_call_has_a_time_of_its_own(gemini: Any) -> None:
    slow = {"text": "a" * 300, "chunks": 300, "chunk_delay": 0.2}
    asked = await gemini([slow]).ask("hi", timeout_s=2)
    assert 0 < len(asked.text) < 300 and "cut off" in str(asked.reply.problem)


async def stopped_once(run: Any, holds: Callable[[list[Any]], object]) -> list[Any]:
    """What arrived before the stop; the call raises `Stopped`, with nothing recorded."""
    call, told, items = run.call("hi"), list[Any](), list[Any]()

    async def stop() -> None:
        while not holds([*items, *told]):
            await asyncio.sleep(0.01)
        run.token.request_stop_and_cancel_work()

    stopping = asyncio.create_task(stop())
    with pytest.raises(Stopped), run.token.cancel_on_stop():
        async with aclosing(run.models.stream(call, told.append)) as stream:
            async for item in stream:
                items.append(item)
    await stopping
    assert run.log.recorded(call.task) is None
    return items + [event for event in told if not isinstance(event, Asking)]


@pytest.mark.parametrize(
    ("replies", "came"),
    [
        ([{"hang": True}], []),
        ([{"text": "a" * 60, "chunks": 60, "chunk_delay": 0.2}], [TextDelta]),
        ({"default": {"error": {"code": 429, "retry_delay": 60}}}, [Retry]),
    ],
    ids=["a wait for the first chunk", "a stream", "a retry's delay"],
)
async def test_a_stop_ends(gemini: Any, fake_gemini: FakeGemini, replies: Any, came: list[type]) -> None:
    run = gemini(replies, delay_scale=1)
    await run.models._providers.provider_for("gemini-2.5-pro")  # so that the import isn't what is cancelled

    def holds(arrived: list[Any]) -> bool:
        return bool(fake_gemini.requests) and {*came} <= {*map(type, arrived)}

    assert list(dict.fromkeys(map(type, await stopped_once(run, holds)))) == came
    assert len(fake_gemini.requests) == 1


async def test_a_stream_that_is_left_early_records_nothing_and_closes_its_connection(
    bench: Any, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play([{"text": "a" * 60, "chunks": 60, "chunk_delay": 0.1}, {"text": "next"}])
    run = bench(fake_gemini.env)
    call = run.call("hi")
    async with aclosing(run.models.stream(call, print)) as items:
        async for item in items:
            assert not isinstance(item, Reply)
            break
    assert run.log.recorded(call.task) is None
    assert (await run.ask("again")).text == "next"
