"""stop: what stops a drive: a person, a signal, its time or its budget (`docs/internals.md#stopping`)."""

import asyncio
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from langgraph.runtime import RunControl

from interlock.engine.store.leases import StopAsked
from interlock.graphs.node_errors import thread_positions_in_user_code
from interlock.nodes.effects import running_effect_keys
from interlock.state.deps import GRACE_S, Stopped, Token
from interlock.state.errors import StoppedError

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SAME_PRESS_S = 0.1
"""Seconds within which a second signal is an echo of the first: `timeout` signals its child, then the group."""
_CANCELLED = 130
_TIMED_OUT = 124
"""Exit codes (`docs/internals.md#exit-codes`)."""
_SHOW_CURSOR = b"\x1b[?25h\x1b[0m"


@contextmanager
def handle_signals() -> Generator["_SignalHandler | None"]:
    """Hold the first SIGINT, SIGTERM or SIGHUP for the run driven in this block; a second exits the process.

    Enter it before the event loop exists: asyncio would install its own handler, which cancels whatever the run has
    just started. Outside the main thread nothing is installed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield None
        return
    handler = _installed_handler() or _SignalHandler()
    handler.users += 1
    try:
        yield handler
    finally:
        handler.users -= 1
        if not handler.users:
            handler.restore_previous_handlers()


@contextmanager
def stop_on_signals(request: Callable[[], None]) -> Generator[None]:
    """Like `signals_held`, but the first signal, even one already received, calls `request` on the running loop.

    Overlapping drives in one process share the handler.
    """
    with handle_signals() as handler:
        if handler is None:
            yield
            return
        handler.add_request(request)
        try:
            yield
        finally:
            handler.remove_request(request)


class _SignalHandler:
    """A plain signal handler, not the loop's, so the second signal works while the loop is busy."""

    def __init__(self) -> None:
        self.users = 0
        self.blocking = ""
        """The run whose code may heed no stop; empty: none."""
        self.record_forced_exit_reason: Callable[[StopAsked], None] = lambda why: None  # noqa: ARG005
        """Notes in its row why the process ends."""
        self._has_announced = False
        self._timers: list[threading.Timer] = []
        self._requests: dict[Callable[[], None], asyncio.AbstractEventLoop] = {}
        self._first_at: float | None = None
        self._terminal = _terminal_settings()
        # A process that ignores SIGHUP, as under `nohup`, should keep ignoring it.
        numbers = [n for n in _SIGNALS if n != signal.SIGHUP or signal.getsignal(n) != signal.SIG_IGN]
        self._previous = {number: signal.signal(number, self) for number in numbers}

    def add_request(self, request: Callable[[], None]) -> None:
        self._requests[request] = asyncio.get_running_loop()
        if self._first_at is not None:
            request()

    def remove_request(self, request: Callable[[], None]) -> None:
        del self._requests[request]

    def exit_if_stuck_after(self, seconds: float, code: int) -> threading.Timer:
        """End the process then if it is stuck: Python can't end a thread. Its run was killed, and can be resumed."""
        timer = threading.Timer(seconds, self._exit_if_stuck_else_recheck, (self.blocking, code))
        timer.daemon = True
        timer.start()
        self._timers.append(timer)
        return timer

    def _exit_if_stuck_else_recheck(self, run: str, code: int) -> None:
        """Stuck: a loop that drives doesn't answer, or the process waits only for threads.

        A signal lets effects that are under way end, a time-out doesn't.
        """
        effects = running_effect_keys(run) if code == _CANCELLED else []
        if effects or (self._are_loops_responsive() and not self._has_held_stop()):
            self._announce_awaited_effects_once(effects)
            self.exit_if_stuck_after(GRACE_S, code)
            return
        _restore_terminal(self._terminal)
        where = ", ".join(thread_positions_in_user_code()) or "its code"
        when = "after its time-out" if code == _TIMED_OUT else "and can't be stopped"
        line = (
            f"interlock: run {run!r}: {where} blocks {when}; the process ends, as if killed. A node that is `async`, "
            "or a time-out of its own around what blocks, would end it alone.\n"
        )
        os.write(2, f"{line}Go on with: interlock resume {run}\n".encode())
        try:
            self.record_forced_exit_reason("timeout" if code == _TIMED_OUT else "stop")
        finally:
            os._exit(code)

    def _are_loops_responsive(self) -> bool:
        return bool(self._requests) and all(_is_loop_responsive(loop) for loop in {*self._requests.values()})

    def _has_held_stop(self) -> bool:
        return any(isinstance(request, Stop) and request.token.is_held for request in self._requests)

    def _announce_awaited_effects_once(self, effects: list[str]) -> None:
        if effects and not self._has_announced:
            self._has_announced = True
            names = ", ".join(map(repr, effects[:3])) + (" …" if effects[3:] else "")
            line = (
                f"interlock: waiting for effect {names} to end; a second signal ends the process at once.\n"
            )
            os.write(2, line.encode())

    def restore_previous_handlers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for number, previous in self._previous.items():
            signal.signal(number, previous)

    def __call__(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first_at is None:
            self._first_at = now
            if self.blocking:
                self.exit_if_stuck_after(GRACE_S, _CANCELLED)
            for request, loop in self._requests.items():
                loop.call_soon_threadsafe(request)
        elif now - self._first_at > _SAME_PRESS_S:
            _restore_terminal(self._terminal)
            os._exit(_CANCELLED)  # supervised processes see end-of-file and exit too


_ANSWER_S = 4.0
"""Seconds after which a loop that is asked counts as stuck: on a loaded machine one that works may take two."""


def _is_loop_responsive(loop: asyncio.AbstractEventLoop) -> bool:
    answered = threading.Event()
    try:
        loop.call_soon_threadsafe(answered.set)
    except RuntimeError:  # closed
        return False
    return answered.wait(_ANSWER_S)


def allow_exit_while_blocked(
    run: str, timeout_s: float | None, record_forced_exit_reason: Callable[[StopAsked], None]
) -> threading.Timer | None:
    """Let a signal, or the time-out, end the process if the run's code heeds neither."""
    if (handler := _installed_handler()) is None:
        return None
    handler.blocking, handler.record_forced_exit_reason = run, record_forced_exit_reason
    return schedule_exit_if_overdue(timeout_s) if timeout_s else None


def schedule_exit_if_blocked(run: str) -> None:
    """End the process if code of this run, which was asked to stop, still blocks a while from now. From any thread."""
    if (handler := _installed_handler()) and handler.blocking == run:
        handler.exit_if_stuck_after(GRACE_S, _CANCELLED)


def schedule_exit_if_overdue(seconds: float) -> threading.Timer | None:
    """End the process if the code of its run still blocks a while after these seconds."""
    handler = _installed_handler()
    return handler.exit_if_stuck_after(seconds + GRACE_S, _TIMED_OUT) if handler else None


def _installed_handler() -> _SignalHandler | None:
    handler = signal.getsignal(signal.SIGINT)
    return handler if isinstance(handler, _SignalHandler) else None


def _terminal_settings() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except termios.error:
        return None


def _restore_terminal(settings: list[Any] | None) -> None:
    # From the background, changing a terminal would stop this process instead of letting it exit.
    try:
        if settings is None or os.tcgetpgrp(0) != os.getpgrp():
            return
    except OSError:  # it isn't this process's: another one started it, and restores it (`cli/warm`)
        return
    termios.tcsetattr(0, termios.TCSANOW, settings)
    if sys.stderr.isatty():
        os.write(2, _SHOW_CURSOR)


class Stop:
    """Asks a drive to end before its work is done, even before it exists. The run can be resumed."""

    def __init__(self) -> None:
        self.token = Token()
        self.control = RunControl()
        self.why = ""
        """`cancelled`, `timeout`, `budget` or `lost`; empty: no stop requested."""

    def __call__(self, why: str = "cancelled") -> None:
        """Cancel work in flight, and start nothing more."""
        self.request_drain(why)
        self.token.request_stop_and_cancel_work()

    def request_drain(self, why: str) -> None:
        """Let work in flight finish, and start nothing more."""
        self.why = self.why or why
        self.control.request_drain(why)


@contextmanager
def provide_stop(given_stop: Stop | None = None) -> Generator[Stop]:
    """Yield the `Stop` of a drive; unless the caller passes its own, signals trigger it."""
    if given_stop is not None:
        yield given_stop
        return
    stop = Stop()
    with stop_on_signals(stop):
        yield stop


T = TypeVar("T")


async def await_unless_stopped(work: Coroutine[Any, Any, T], run: str, stop: Stop) -> T:
    """Return the result of work before a run is driven. Raises `StoppedError` if `stop` ends it."""
    try:
        with stop.token.cancel_on_stop():
            return await work
    except Stopped as stopped:
        raise StoppedError(
            f"Stopped before run {run!r} was driven by this process. Go on with: interlock resume {run}"
        ) from stopped
