"""Every byte that a server sends is a sign of life; pings and comments alone are for a limited time."""

import itertools
import json
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import Quiet, serving

from interlock.services.models import response_body
from interlock.services.models.response_body import BodyLines

LIMIT_S, PAUSE_S = 2.0, 0.3
"""The pauses are longer together than the limit, and each is much shorter, so that a busy machine may add to it."""
PINGS = [
    b": processing\n\n",
    b'event: ping\ndata: {"type": "ping"}\n\n',
    b'event: keepalive\r\ndata: {"type":"keepalive","sequence_number":3}\r\n\r\n',
    b'data: {"type": "ping"}\n\n',
]


def event(data: dict[str, Any]) -> bytes:
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def delta(finish: str | None = None, **fields: Any) -> bytes:
    choices = [{"index": 0, "delta": fields, "finish_reason": finish}]
    return event({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": choices})


RESPONSE: dict[str, Any] = {
    "id": "r",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
MESSAGE: dict[str, Any] = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "claude",
    "content": [],
    "stop_reason": None,
    "stop_sequence": None,
    "usage": {"input_tokens": 5, "output_tokens": 1},
}
PROTOCOLS: dict[str, tuple[str, str, bytes, bytes]] = {
    "chat": (
        *("langchain_openai", "openai:m", delta(content="So ")),
        delta(content="it is.") + delta("stop") + b"data: [DONE]\n\n",
    ),
    "responses": (
        *("langchain_openai", "openai:m-codex"),
        event({"type": "response.created", "response": {**RESPONSE, "status": "in_progress"}})
        + event(
            {
                "type": "response.output_text.delta",
                "item_id": "i",
                "output_index": 0,
                "content_index": 0,
                "delta": "So ",
            }
        ),
        event(
            {
                "type": "response.output_text.delta",
                "item_id": "i",
                "output_index": 0,
                "content_index": 0,
                "delta": "it is.",
            }
        )
        + event({"type": "response.completed", "response": RESPONSE}),
    ),
    "anthropic": (
        *("langchain_anthropic", "anthropic:claude-opus-5-5"),
        event({"type": "message_start", "message": MESSAGE})
        + event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
        + event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "So "}}),
        event({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "it is."}})
        + event({"type": "content_block_stop", "index": 0})
        + event(
            {
                "type": "message_delta",
                "usage": {"output_tokens": 4},
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            }
        )
        + event({"type": "message_stop"}),
    ),
}
"""Package, model, how an answer begins, and its rest."""


class Slow(ThreadingHTTPServer):
    """Sends its `pieces` one after the other, slowly."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.pieces: list[bytes] = []
        self.asked = 0

    def handle_error(self, *_: Any) -> None:
        """A client that gives up closes its connection."""


class _Handler(Quiet):
    server: Slow

    def do_GET(self) -> None:
        self.answer(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for piece in self.server.pieces:
            self.wfile.write(piece)
            self.wfile.flush()
            time.sleep(PAUSE_S)


@pytest.fixture
def slow() -> Iterator[Slow]:
    with serving(Slow()) as server:
        yield server


def run(bench: Any, slow: Slow, protocol: str, stall_s: float = LIMIT_S) -> Any:
    package, model, *_ = PROTOCOLS[protocol]
    pytest.importorskip(package)
    url = f"http://127.0.0.1:{slow.server_address[1]}"
    env = {"OPENAI_BASE_URL": f"{url}/v1", "ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "k"}
    return bench(env, {"model": {"name": model}}, stall_s=stall_s)


@pytest.mark.sample(1)
@pytest.mark.anyio
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_pings_and_comments_keep_a_request_alive(bench: Any, slow: Slow, protocol: str) -> None:
    *_, begin, rest = PROTOCOLS[protocol]
    slow.pieces = [begin, *PINGS, *PINGS, rest]
    asked = await run(bench, slow, protocol).ask("hi")
    assert (asked.text, slow.asked) == ("So it is.", 1), asked.reply.problem
    assert not [e for e in asked.events if "has said nothing for 1.5" in getattr(e, "message", "")]


@pytest.mark.sweep
@pytest.mark.anyio
async def test_pings_alone_count_for_a_limited_time(
    bench: Any, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(response_body, "PINGS_S", 1.8)
    # A busy machine may take long to send the first piece.
    slow.pieces = [PROTOCOLS["anthropic"][2], *PINGS * 20]
    asked = await run(bench, slow, "anthropic", 9.0).ask("hi")
    assert (asked.text, asked.reply.finish_reason) == ("So ", None)
    assert "nothing but signs of life came" in asked.reply.problem


@pytest.mark.sweep
@pytest.mark.anyio
async def test_a_line_that_arrives_slowly_keeps_a_request_alive(bench: Any, slow: Slow) -> None:
    long = delta(content="x" * 1000)
    slow.pieces = [delta(content="So "), *(long[at : at + 100] for at in range(0, len(long), 100))]
    slow.pieces += [delta("stop")]
    asked = await run(bench, slow, "chat").ask("hi")
    assert (asked.text, slow.asked) == (f"So {'x' * 1000}", 1)


@pytest.mark.anyio
async def test_silence_after_bytes_ends_a_request(bench: Any, slow: Slow) -> None:
    slow.pieces = [delta(content="So "), PINGS[0], *[b""] * 10]
    asked = await run(bench, slow, "chat").ask("hi")
    assert asked.reply.finish_reason is None and "does not answer" in asked.reply.problem


@given(cuts=st.lists(st.integers(0, 200)))
def test_pings_are_no_data_however_they_are_cut(cuts: list[int]) -> None:
    whole = b"".join([*PINGS, b"id: 7\nretry: 10\n\n"])
    edges = sorted({0, len(whole), *(min(cut, len(whole)) for cut in cuts)})
    lines = BodyLines()
    assert not any(lines.contains_data(whole[a:b]) for a, b in itertools.pairwise(edges))
    assert lines.contains_data(b'data: {"choices": []}\n')


@pytest.mark.parametrize(
    ("piece", "is_data"),
    [
        (b'{"message": {"content": "of Ollama"}}\n', True),
        (b'data: {"type": "pinging"', False),
        (b'data: {"type": "pinging"}\n', True),
        (b'event: message_start\ndata: {"type":', False),
        (b'event: message_start\ndata: {"type": "message_start", "message"', True),
        (b"d", False),
        (b"\n\n", False),
    ],
)
def test_the_beginning_of_a_line_says_whether_it_is_data(piece: bytes, is_data: bool) -> None:
    assert BodyLines().contains_data(piece) is is_data
