"""command: runs one hook: bash, the event as JSON on stdin, stdout and stderr apart."""

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from interlock.services.hooks.configured import Hook
from interlock.services.hooks.reply import OUTPUT_CHARS, REASON_CHARS, Reply, read_reply
from interlock.services.process.supervised import readable
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.run import HookEvent
from interlock.state.tooling import Processes

_CHUNK = 65_536
_ARGUMENTS = frozenset({"tool_input", "updatedInput", "tailToolCallRequest"})
"""Of `hookSpecificOutput`: what runs."""
_KEPT = REASON_CHARS * 4
"""Bytes: a character has at most four."""
_APART = 'exec bash -c "$2" 2>"$1"'
"""The supervisor joins both streams; a reason must not stand among the JSON."""


@dataclass(frozen=True)
class HookEnvironment:
    """What hooks are told of the run that they belong to."""

    session: str
    workspace: Path
    plans: Path | None
    agent: str = ""
    """Path of the sub-agent that they are about; empty: the main agent."""
    redact: Redactor = SHAPES
    """For what they say, which is stored and told; arguments that they change stay word for word."""

    def input(self, event: HookEvent, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The event's own fields, after those that every event has."""
        own: dict[str, JsonValue] = {"agent": self.agent} if self.agent else {}
        return {
            "session_id": self.session,
            "cwd": str(self.workspace),
            "hook_event_name": event,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            **own,
            **given,
        }

    def environment(self) -> dict[str, str]:
        """gemini-cli's and Claude Code's names."""
        return {
            "GEMINI_PROJECT_DIR": str(self.workspace),
            "GEMINI_CWD": str(self.workspace),
            "GEMINI_SESSION_ID": self.session,
            "GEMINI_PLANS_DIR": str(self.plans or ""),
            "CLAUDE_PROJECT_DIR": str(self.workspace),
            "INTERLOCK_RUN": self.session,
            "INTERLOCK_AGENT": self.agent,
        }


async def run_hook(
    hook: Hook, given: Mapping[str, JsonValue], processes: Processes, around: HookEnvironment
) -> Reply:
    """What it said. It never raises: whatever goes wrong with it is in the reply."""
    if hook.broken:
        why = f"A required hook can't be run: {hook.broken}"
        return Reply(decision="block", reason=why, warning=hook.broken)
    stdin = json.dumps(given, ensure_ascii=False).encode("utf-8", "replace")
    async with _errors() as (fifo, said):
        ended = await processes.run(
            ["bash", "-c", _APART, "hook", str(fifo), hook.command],
            cwd=around.workspace,
            timeout_s=hook.timeout_s,
            limit_chars=OUTPUT_CHARS,
            env={**around.environment(), **hook.env},
            stdin=stdin,
        )
    reply = read_reply(
        ended,
        bytes(said).decode("utf-8", "replace"),
        required=hook.required,
        timeout_s=hook.timeout_s,
    )
    said_of = reply.model_dump(exclude={"output"})
    output = {k: v if k in _ARGUMENTS else around.redact.json(v) for k, v in reply.output.items()}
    return Reply(**around.redact.json(said_of), output=output)


@asynccontextmanager
async def _errors() -> AsyncGenerator[tuple[Path, bytearray]]:
    """A pipe by name for stderr, and what came through it: its first part, for a process may say without end."""
    with tempfile.TemporaryDirectory(prefix="interlock-hook-") as folder:
        fifo, said = Path(folder) / "stderr", bytearray()
        os.mkfifo(fifo, 0o600)
        # Opened for both, so that it neither waits for a writer nor ends with one.
        read = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        pump = asyncio.ensure_future(_pump(read, said))
        try:
            yield fifo, said
            _take(read, said)
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)
            os.close(read)


async def _pump(read: int, said: bytearray) -> None:
    while True:
        await readable(read)
        _take(read, said)


def _take(read: int, said: bytearray) -> None:
    """What is there now, as much as a pipe holds; what is too much is thrown away."""
    with suppress(BlockingIOError):
        said += os.read(read, _CHUNK)[: max(0, _KEPT - len(said))]
