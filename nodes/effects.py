"""effects: what a node does outside its graph, written ahead in the journal: a kill neither loses nor repeats it."""

import asyncio
import functools
import hashlib
import inspect
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from pydantic import JsonValue, TypeAdapter

from interlock.nodes.current_run import (
    current_deps,
    current_runtime,
    park_until_answered,
    require_current_task_info,
)
from interlock.state.calls import ApprovalRequest, CallView
from interlock.state.deps import GRACE_S, Deps, Stopped, await_despite_cancel
from interlock.state.errors import UserError
from interlock.state.text import replace_surrogates

T = TypeVar("T")
P = ParamSpec("P")

_REASON = (
    "The run was killed or stopped while this effect took place, so it may or may not have happened. Look, then "
    "answer redo (call the function again) or skip (don't; its result is None)."
)


async def effect(
    runtime: Any, key: str, function: Callable[..., Any], *args: Any, idempotent: bool = False, **kwargs: Any
) -> Any:
    """Call `function(*args, **kwargs)`, sync or async, once: the journal has its intent before and its result after.

    When the node runs again, after a kill or an interrupt, the result comes from the journal. If a kill hid whether the
    function was called to its end, a person is asked; `idempotent`: it is called again unasked. A function that raises
    has failed: it is called again when its node is.

    Whatever stops the node, a function in a thread is seen to its end and its result is kept. A coroutine has 5 s to
    end; cancelled then, its outcome is unknown.

    `key`: names the effect within the step, the same whenever the node runs; a second call with it returns the first
    one's result. A result is JSON-like, a message, or what the types of the state name. Outside a run of Interlock the
    function is just called. Raises `UserError` for a key that is empty or in use, `RunError` for a result that can't be
    stored.
    """
    if (entry := _new_effect_entry(runtime, key, idempotent)) is None:
        found = function(*args, **kwargs)
        return await found if inspect.isawaitable(found) else found
    return await run_effect(entry, function, args, kwargs)


def effect_sync(
    runtime: Any, key: str, function: Callable[..., T], *args: Any, idempotent: bool = False, **kwargs: Any
) -> T:
    """Like `effect`, for nodes and tools without `async`."""
    if (entry := _new_effect_entry(runtime, key, idempotent)) is None:
        return function(*args, **kwargs)
    return run_effect_sync(entry, function, args, kwargs)


@overload
def durable(function: Callable[P, T], /) -> Callable[P, T]: ...
@overload
def durable(*, idempotent: bool = False) -> Callable[[Callable[P, T]], Callable[P, T]]: ...
def durable(function: Callable[P, T] | None = None, /, *, idempotent: bool = False) -> Any:
    """Make every call of a function, sync or async, an `effect`, named by the function and its arguments.

    Called again with equal arguments in the same step, it returns the first call's result: give `effect` keys of your
    own where the same is to happen twice. Calls raise `UserError` for arguments that aren't JSON-like.
    """
    if function is None:
        return functools.partial(_make_durable, idempotent=idempotent)
    return _make_durable(function, idempotent=idempotent)


def _make_durable(function: Callable[..., Any], *, idempotent: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            key = _effect_key(function, args, kwargs)
            return await effect(current_runtime(), key, function, *args, idempotent=idempotent, **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = _effect_key(function, args, kwargs)
        return effect_sync(current_runtime(), key, function, *args, idempotent=idempotent, **kwargs)

    return call


def _effect_key(function: Callable[..., Any], args: Any, kwargs: Any) -> str:
    name = function.__qualname__
    try:
        given = TypeAdapter(Any).dump_json([type(args).__name__, args, sorted(kwargs.items())])
    except ValueError as error:
        raise UserError(
            f"@durable can't name the call of {name!r}: {error}. Its arguments must be JSON-like; or use "
            "effect(runtime, key, function, …) with a key of your own."
        ) from error
    return f"{name}#{hashlib.sha256(given).hexdigest()[:16]}"


async def run_effect(entry: "EffectEntry", function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Return the effect's result: from the journal, or by calling the function and seeing it to its end.

    A thread can't be stopped: once it has begun, it is waited for, however often the run is stopped meanwhile. A
    coroutine has `GRACE_S` to end by itself; cancelled then, its outcome is unknown.
    """
    while earlier := entry.claim_or_get_running():
        await asyncio.wait({asyncio.wrap_future(earlier)})
    try:
        if entry.load_result_or_ask_person(function, args, kwargs):
            return entry.result
        if inspect.iscoroutinefunction(function):
            return await await_despite_cancel(
                _call_async_and_journal(entry, function, args, kwargs), entry.grace_s
            )
        stop = threading.Event()
        thread = asyncio.to_thread(_call_and_journal, entry, function, args, kwargs, stop)
        found = await await_despite_cancel(thread, on_cancelled=stop.set)
        if inspect.isawaitable(found):
            return await await_despite_cancel(_await_and_journal_outcome(entry, found), entry.grace_s)
        return found
    finally:
        entry.release_claim()


def run_effect_sync(entry: "EffectEntry", function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """As `run_effect`, in a thread. Raises `Stopped` if the run is stopping."""
    while earlier := entry.claim_or_get_running():
        earlier.result()
    try:
        if entry.load_result_or_ask_person(function, args, kwargs):
            return entry.result
        if entry.deps.cancel.requested:  # the thread goes on, but no further effect begins
            raise Stopped
        return _call_and_journal(entry, function, args, kwargs)
    finally:
        entry.release_claim()


async def _call_async_and_journal(
    entry: "EffectEntry", function: Callable[..., Any], args: Any, kwargs: Any
) -> Any:
    entry.journal_intent()
    return await _await_and_journal_outcome(entry, function(*args, **kwargs))


async def _await_and_journal_outcome(entry: "EffectEntry", work: Awaitable[Any]) -> Any:
    task = asyncio.current_task()
    try:
        result = await work
    except Exception:
        # What a cancelled function raises doesn't say how far it came.
        if not (task and task.cancelling()):
            entry.journal_failure()
        raise
    return entry.journal_result(result)


def _call_and_journal(
    entry: "EffectEntry",
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    stop: threading.Event | None = None,
) -> Any:
    """Call the function, unless the run was stopped while this waited for a free thread."""
    if stop and stop.is_set():
        return None
    entry.journal_intent()
    try:
        result = function(*args, **kwargs)
    except Exception:
        entry.journal_failure()
        raise
    return result if inspect.isawaitable(result) else entry.journal_result(result)


async def wait_for_running_effects(run: str) -> None:
    """Wait for the effects of a run that nobody waits for any more: those of a node that took too long."""
    while left := _running_effect_futures(run):
        await asyncio.wait({asyncio.wrap_future(end) for end in left})


def running_effect_keys(run: str) -> list[str]:
    """Keys of the effects that a run carries out in this process."""
    with _one:
        return [key for (of, _, key) in _under_way if of == run]


def _running_effect_futures(run: str) -> "list[Future[None]]":
    with _one:
        return [end for (of, _, _), (_, end) in _under_way.items() if of == run]


def _new_effect_entry(runtime: Any, key: str, idempotent: bool) -> "EffectEntry | None":
    """None: no run of Interlock."""
    if (deps := current_deps(runtime)) is None:
        return None
    if not key:
        raise UserError("effect needs a key: a string that names it within its step.")
    info = require_current_task_info(f"Effect {key!r}", deps, runtime)
    return EffectEntry(deps, info.task_id, key, node_path(info), idempotent, node_attempt=info.node_attempt)


def node_path(info: Any) -> str:
    """Names of the nodes around a task, the outermost first."""
    return "|".join(part.partition(":")[0] for part in info.checkpoint_ns.split("|"))


_under_way: "dict[tuple[str, str, str], tuple[int, Future[None]]]" = {}
"""Run, task and key → the attempt of the node that carries the effect out, and its end."""
_one = threading.Lock()


@dataclass
class EffectEntry:
    """One effect of one task."""

    deps: Deps
    task: str
    key: str
    node_path: str
    """Names of the nodes around it, the outermost first."""
    idempotent: bool
    tool_call: CallView | None = None
    """The call that it is; None: a function of a node."""
    node_attempt: int = 1
    """Of the node: one that took too long may still be at it when the next one begins."""
    grace_s: float | None = GRACE_S
    """Seconds that a coroutine has to end once it is cancelled; None: nothing can cut it short."""
    result: Any = None

    @property
    def _identity(self) -> tuple[str, str, str]:
        return (self.deps.info.run, self.task, self.key)

    def claim_or_get_running(self) -> "Future[None] | None":
        """Mark it as under way, or return the end of an earlier attempt that is still at it.

        Raises `UserError` if this attempt of the node is at it already.
        """
        with _one:
            if self._identity not in _under_way:
                _under_way[self._identity] = (self.node_attempt, Future())
                return None
            attempt, end = _under_way[self._identity]
        if attempt == self.node_attempt:
            raise UserError(
                f"Effect {self.key!r} is under way twice in one step. Give each effect a key of its own."
            )
        return end

    def release_claim(self) -> None:
        with _one:
            _, end = _under_way.pop(self._identity)
        end.set_result(None)

    def load_result_or_ask_person(self, function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
        """Whether its `result` is known. Parks the run where a person must say so, of a call of this function."""
        journal = self.deps.effects
        row = journal.find_row(self.task, self.key, self.node_path)
        if row is None or row.state == "failed":
            return False
        if row.state == "done":
            self.result = row.result
            return True
        if self.idempotent or not self._ask_whether_to_skip(function, args, kwargs, row.attempt):
            return False
        journal.record_result(self.task, self.key, None)
        return True

    def journal_intent(self) -> None:
        """Journal that the function is called now: what still waits for a thread hasn't begun."""
        self.deps.effects.record_intent(self.task, self.key, self.node_path)

    def journal_failure(self) -> None:
        self.deps.effects.record_failure(self.task, self.key)

    def journal_result(self, result: Any) -> Any:
        self.deps.effects.record_result(self.task, self.key, result)
        return result

    def _ask_whether_to_skip(
        self, function: Callable[..., Any], args: Any, kwargs: Any, attempt: int
    ) -> bool:
        """Whether a person says that the function isn't to be called again; parks the run until somebody answers."""
        name = f"interrupt:effect:{self.task}:{self.key}:{attempt}"
        given = (
            _describe_arguments(function, args, kwargs, self.deps.effects.redact)
            if self.tool_call is None
            else {}
        )
        about = self.tool_call or CallView(id=name, name=self.key, args=given)
        where = [] if self.tool_call else [f"effect {self.key} of {self.node_path}"]
        request = ApprovalRequest(
            key=name,
            what="outcome",
            kind="outcome",
            call=about,
            reason=_REASON,
            preview="\n".join([*where, *(f"{name}: {value}" for name, value in about.args.items())]),
            choices=("proceed_once", "reject"),
            questions=({"question": _REASON, "options": ["redo", "skip"]},),
        )
        self.deps.approvals.write_request(request)
        if (answer := self.deps.approvals.find_answer(name)) is None:
            park_until_answered(name)
        return answer.choice == "reject"


_LONGEST = 300
"""Characters of an argument that a question shows."""
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


def _describe_arguments(
    function: Callable[..., Any], args: Any, kwargs: Any, redact: Callable[[str], str]
) -> dict[str, JsonValue]:
    """What names one of many calls to a person: the arguments, else what a lambda has of its surroundings."""
    while isinstance(function, functools.partial):
        args, kwargs, function = (*function.args, *args), {**function.keywords, **kwargs}, function.func
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
        bound.apply_defaults()
        given: dict[str, Any] = dict(bound.arguments)
    except (TypeError, ValueError):  # it has no signature, or will refuse them
        given = {**{str(place): value for place, value in enumerate(args)}, **kwargs}
    if not given and inspect.isfunction(function):
        around: Mapping[str, Any] = inspect.getclosurevars(function).nonlocals
        given = {name: value for name, value in around.items() if isinstance(value, str | int | float | dict)}
    return {name: _redact_and_shorten_value(value, redact) for name, value in given.items()}


def _redact_and_shorten_value(value: Any, redact: Callable[[str], str]) -> JsonValue:
    if isinstance(value, int | float | None):
        return value
    shown = value
    if not isinstance(value, str):
        shown = json.dumps(_ANY.dump_python(value, mode="json", fallback=str, warnings=False))
    text = replace_surrogates(redact(shown))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
