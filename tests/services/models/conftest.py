"""conftest: a models service over a real store, and what it is asked."""

import json
import random
import sqlite3
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from fake_gemini.fake import FakeGemini

from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.model_calls import SqlModelLog
from interlock.services.models.chat import ChatModels
from interlock.services.transcript import ChainTranscript
from interlock.state.deps import Clock, Token
from interlock.state.events import Event, Retry
from interlock.state.messages import Message, ModelCall, ModelItem, Reply, TextDelta, ThoughtDelta
from interlock.state.settings import Settings


@dataclass
class Asked:
    """One stream's result."""

    items: list[ModelItem]
    events: list[Event]

    @property
    def reply(self) -> Reply:
        last = self.items[-1]
        assert isinstance(last, Reply), f"the stream ended without a reply: {self.items!r}"
        return last

    @property
    def text(self) -> str:
        return "".join(i.text for i in self.items if isinstance(i, TextDelta))

    @property
    def thought(self) -> str:
        return "".join(i.text for i in self.items if isinstance(i, ThoughtDelta))

    @property
    def retries(self) -> list[Retry]:
        return [e for e in self.events if isinstance(e, Retry)]


@dataclass
class Bench:
    """One run: its store, its token and the service; `restarted` gives the same run in another process."""

    conn: sqlite3.Connection
    outputs: Path
    env: Mapping[str, str]
    settings: Settings = field(default_factory=lambda: Settings.model_validate({}))
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    run: str = "run1"
    restarts: list["Bench"] = field(default_factory=list["Bench"])

    def __post_init__(self) -> None:
        self.conn.execute_raw(
            "insert or ignore into runs (run, workflow, workspace, title, created, updated, status, options, input)"
            " values ($1, 'main', '', '', 0, 0, 'open', '{}', '{}')",
            (self.run,),
        )
        self.token = Token()
        self.transcript = ChainTranscript(SqlChain(self.conn), self.outputs, self.run)
        self.log = SqlModelLog(self.conn, self.transcript, self.run)
        self.events: list[Event] = []
        options = {
            "delay_scale": 0.001,
            "seed": 1,
            "budget": Mock(reserve=AsyncMock(return_value=None)),  # nothing is limited
            "clock": Clock(),
            **self.options,
        }
        self.models = ChatModels(settings=self.settings, log=self.log, env=self.env, **options)

    def restarted(self) -> "Bench":
        """The run after a kill: only the store is left."""
        made = Bench(self.conn, self.outputs, self.env, self.settings, self.options, self.run)
        self.restarts.append(made)
        return made

    async def aclose(self) -> None:
        """Close its connections, and those of its restarts."""
        await self.models.aclose()
        for one in self.restarts:
            await one.aclose()

    def call(self, *messages: Message | str, **fields: Any) -> ModelCall:
        history = [Message(role="user", content=m) if isinstance(m, str) else m for m in messages]
        rest = [m for m in history if m.role != "system"]
        defaults = {"task": uuid.uuid4().hex, "role": "main", "head": self.transcript.append("", rest)}
        return ModelCall(messages=history, **{**defaults, **fields})

    async def ask(self, *messages: Message | str, **fields: Any) -> Asked:
        return await self.make(self.call(*messages, **fields))

    async def make(self, call: ModelCall) -> Asked:
        before = len(self.events)
        items = [item async for item in self.models.stream(call, self.events.append)]
        return Asked(items, self.events[before:])


Benches = Callable[..., Bench]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Benches]:
    """Makes a run; `bench(env, settings, fake=…)`."""
    store = Store(tmp_path / "state")
    store.create_or_migrate()
    conn = store.connect()
    made: list[Bench] = []

    def make(
        env: Mapping[str, str] | None = None, settings: Mapping[str, Any] | None = None, **options: Any
    ) -> Bench:
        found = Settings.model_validate(settings or {})
        made.append(Bench(conn, store.outputs, env or {}, found, options, f"run{len(made)}"))
        return made[-1]

    yield make
    for one in made:
        await one.aclose()
    conn.close()


@pytest.fixture
def gemini(bench: Benches, fake_gemini: FakeGemini) -> Benches:
    """A run whose provider is `fake_gemini`: `gemini([reply, …], settings, …)`."""

    def make(replies: Any, settings: Mapping[str, Any] | None = None, **options: Any) -> Bench:
        fake_gemini.play(replies)
        return bench(fake_gemini.env, settings, **options)

    return make


@pytest.fixture
def script_file(tmp_path: Path) -> Callable[[Sequence[Any]], Path]:
    """Writes replies to a JSON script."""

    def write(entries: Sequence[Any]) -> Path:
        path = tmp_path / f"script{random.random()}.json"
        path.write_text(json.dumps(entries), encoding="utf-8")
        return path

    return write


@pytest.fixture
def scripted(bench: Benches, script_file: Callable[[Sequence[Any]], Path]) -> Benches:
    """A run whose provider is a script: `scripted(entry, …)`."""

    def make(*entries: Any, **options: Any) -> Bench:
        return bench(settings={"model": {"name": f"script:{script_file(entries)}"}}, **options)

    return make
