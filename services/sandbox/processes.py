"""processes: `Processes` whose commands run in the sandbox; only programs of ours stay outside."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlock.services.processes import SupervisedProcesses
from interlock.services.sandbox.sandbox import Sandbox
from interlock.state.errors import InterlockError, RunError
from interlock.state.tooling import Ended

_UNREACHED = re.compile(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|getaddrinfo|EAI_AGAIN|Connection refused|Couldn't connect to server"
    r"|bad address|Failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = "Read-only file system"
_SHOWN = 4000
"""Characters at the end of the output in which a failure says what it was."""


class SandboxedProcesses:
    """Implements `Processes` over those that only supervise."""

    def __init__(self, plain: SupervisedProcesses, sandbox: Sandbox) -> None:
        self._plain = plain
        self._sandbox = sandbox
        self._held = ExitStack()
        """What background commands stand on."""

    async def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        timeout_s: float,
        inactivity_s: float = 0,
        limit_chars: int = 40_000,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        on_output: Callable[[str], None] | None = None,
        ours: bool = False,
    ) -> Ended:
        """As without a sandbox; a failure that it may be the reason of has a `hint`."""
        with ExitStack() as stack:
            prefix: list[str] = []
            if not ours:
                try:
                    prefix = await asyncio.to_thread(stack.enter_context, self._sandbox.entered(cwd))
                except (OSError, InterlockError) as error:
                    return Ended("not_started", None, None, _no_sandbox(error), 0, None, 0.0)
            ended = await self._plain.run(
                [*prefix, *argv],
                cwd=cwd,
                timeout_s=timeout_s,
                inactivity_s=inactivity_s,
                limit_chars=limit_chars,
                env=env,
                stdin=stdin,
                on_output=on_output,
                sandboxed=bool(prefix),
            )
        return replace(ended, hint=self._hint(ended)) if prefix else ended

    async def start(
        self, argv: Sequence[str], *, cwd: Path, label: str, env: Mapping[str, str] | None = None
    ) -> int:
        """In the background, sandboxed. Raises `RunError`."""
        try:
            entered = self._sandbox.entered(cwd, alone=False)
            prefix = await asyncio.to_thread(self._held.enter_context, entered)
        except (OSError, InterlockError) as error:
            raise RunError(f"Command {label!r} could not be started: {_no_sandbox(error)}.") from error
        return await self._plain.start([*prefix, *argv], cwd=cwd, label=label, env=env, sandboxed=True)

    def background(self) -> Sequence[Mapping[str, Any]]:
        return self._plain.background()

    def close(self) -> None:
        """End all background commands, then let go of what they stood on."""
        self._plain.close()
        self._held.close()

    def _hint(self, ended: Ended) -> str:
        if not ended.exit_code:
            return ""
        said = ended.output[-_SHOWN:]
        if not self._sandbox.network and _UNREACHED.search(said):
            return "Sandbox: commands have no network here."
        return "Sandbox: only the workspace can be written, and not all of it." if _READ_ONLY in said else ""


def _no_sandbox(error: Exception) -> str:
    return f"its sandbox could not be made ({error})".replace(".)", ")")
