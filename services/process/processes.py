"""processes: runs commands under a supervisor; whatever becomes of the run, none outlives it (`engine.md` 16)."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from interlock.services.process.output import ProcessOutput
from interlock.services.process.supervised import Supervised, Watch
from interlock.services.sandbox.sandbox import Sandbox
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.services.secrets.stream import redact_file
from interlock.state.errors import InterlockError, RunError
from interlock.state.tooling import Ended, Outputs


@dataclass(frozen=True)
class _Background:
    child: Supervised
    label: str
    output_file: Path


class SupervisedProcesses:
    """Implements `Processes`. `env` is what tools get: see `tool_environment`; `most` as of `Supervised`."""

    def __init__(
        self,
        *,
        outputs: Outputs,
        env: Mapping[str, str],
        redact: Redactor = SHAPES,
        most: tuple[int, int] = (0, 0),
        sandbox: Sandbox | None = None,
    ) -> None:
        self._most = most
        self._outputs = outputs
        self._env = dict(env)
        self._redact = redact
        self._background: list[_Background] = []
        self._sandbox = sandbox
        self._held = ExitStack()
        """What background commands stand on in their sandboxes."""

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
        """As `Processes.run`; a failure that a sandbox may be the reason of has a `hint`."""
        # What a program of ours, or a hook, says is parsed: a mark could become an argument.
        output = ProcessOutput(limit_chars, self._outputs, self._redact if on_output else None)
        with ExitStack() as stack:
            read, write = os.pipe()
            stack.callback(os.close, read)
            try:
                prefix = [] if ours else await self._entered(stack, cwd)
                child = Supervised(
                    [*prefix, *argv],
                    cwd=cwd,
                    env={**self._env, **(env or {})},
                    output=write,
                    mode="once-sandboxed" if prefix else "once",
                    stdin=stdin,
                    most=self._most,
                )
            except (OSError, ValueError) as error:
                return Ended("not_started", None, None, _reason(error), 0, None, 0.0)
            finally:
                os.close(write)
            stack.callback(child.close)
            stack.callback(output.discard)
            watch = Watch(child, read, output, on_output)
            ended = await watch.until_end(timeout_s, inactivity_s or float("inf"))
        return replace(ended, hint=self._sandbox.hint(ended)) if self._sandbox and prefix else ended

    async def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        label: str,
        env: Mapping[str, str] | None = None,
        ours: bool = False,
    ) -> int:
        """Start in the background; the pid of the command. Output goes to a file in `outputs/`.

        Raises `RunError` when it can't be started.
        """
        try:
            prefix = [] if ours else await self._entered(self._held, cwd, alone=False)
            path = self._outputs.new_spool()
            with path.open("wb") as file:
                child = Supervised(
                    [*prefix, *argv],
                    cwd=cwd,
                    env={**self._env, **(env or {})},
                    output=file.fileno(),
                    mode="background-sandboxed" if prefix else "background",
                    most=self._most,
                )
        except (OSError, ValueError) as error:
            raise RunError(f"Command {label!r} could not be started: {_reason(error)}.") from error
        own = _Background(child, label, path)
        self._background.append(own)
        await child.started()
        if child.pid is None:
            self._background.remove(own)  # another agent may have started one meanwhile
            child.close()
            path.unlink(missing_ok=True)
            raise RunError(
                f"Command {label!r} could not be started: {child.error or 'its supervisor ended'}."
            )
        return child.pid

    def background(self) -> Sequence[Mapping[str, Any]]:
        """Background processes of this drive: {pid, label, running, exit_code, output_file}.

        `exit_code` is negative for a signal. What a command left behind runs on, also when it isn't `running` itself.
        """
        for one in self._background:
            one.child.listen()
        return [
            {
                "pid": one.child.pid,
                "label": one.label,
                "running": not one.child.ended,
                "exit_code": one.child.exit_code if one.child.signal is None else -one.child.signal,
                "output_file": str(one.output_file),
            }
            for one in self._background
        ]

    def close(self) -> None:
        """End all background processes. Without it they end with this process."""
        for one in self._background:
            one.child.kill()
        for one in self._background:
            one.child.close()
            redact_file(one.output_file, self._redact)
        self._held.close()

    async def _entered(self, stack: ExitStack, cwd: Path, *, alone: bool = True) -> list[str]:
        """What puts a command into the sandbox, if there is one, while `stack` is open. Raises `ValueError`."""
        if self._sandbox is None:
            return []
        try:
            return await asyncio.to_thread(stack.enter_context, self._sandbox.entered(cwd, alone=alone))
        except (OSError, InterlockError) as error:
            why = f"its sandbox could not be made ({error})"
            raise ValueError(why.replace(".)", ")")) from error


def _reason(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {str(error.filename)!r}" if error.filename else error.strerror
    return str(error)
