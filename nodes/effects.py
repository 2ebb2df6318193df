"""effects: what a node does outside its graph, written ahead in the journal: a kill neither loses nor repeats it."""

import asyncio
import functools
import hashlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar, overload

from pydantic import TypeAdapter

from interlock.nodes.here import deps_here, info_here, park, runtime_here
from interlock.state.calls import ApprovalRequest, CallView
from interlock.state.deps import Deps, to_its_end
from interlock.state.errors import UserError

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

    `key`: names the effect within the step, the same whenever the node runs; a second call with it returns the first
    one's result. A result is JSON-like, a message, or what the types of the state name. Outside a run of Interlock the
    function is just called. Raises `UserError` for a key that is empty or in use, `RunError` for a result that can't be
    stored.
    """
    if (entry := _entry(runtime, key, idempotent)) is None:
        found = function(*args, **kwargs)
        return await found if inspect.isawaitable(found) else found
    with entry:
        return entry.result if entry.is_done() else await journaled(entry, function, args, kwargs)


def effect_sync(
    runtime: Any, key: str, function: Callable[..., T], *args: Any, idempotent: bool = False, **kwargs: Any
) -> T:
    """Like `effect`, for nodes and tools without `async`."""
    if (entry := _entry(runtime, key, idempotent)) is None:
        return function(*args, **kwargs)
    with entry:
        return entry.result if entry.is_done() else journaled_sync(entry, function, args, kwargs)


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
        return functools.partial(_durable, idempotent=idempotent)
    return _durable(function, idempotent=idempotent)


def _durable(function: Callable[..., Any], *, idempotent: bool) -> Callable[..., Any]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_async(*args: Any, **kwargs: Any) -> Any:
            key = _named(function, args, kwargs)
            return await effect(runtime_here(), key, function, *args, idempotent=idempotent, **kwargs)

        return call_async

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = _named(function, args, kwargs)
        return effect_sync(runtime_here(), key, function, *args, idempotent=idempotent, **kwargs)

    return call


def _named(function: Callable[..., Any], args: Any, kwargs: Any) -> str:
    name = function.__qualname__
    try:
        given = TypeAdapter(Any).dump_json([type(args).__name__, args, sorted(kwargs.items())])
    except ValueError as error:
        raise UserError(
            f"@durable can't name the call of {name!r}: {error}. Its arguments must be JSON-like; or use "
            "effect(runtime, key, function, …) with a key of your own."
        ) from error
    return f"{name}#{hashlib.sha256(given).hexdigest()[:16]}"


async def journaled(entry: "Entry", function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call the function of an entry that isn't done, and journal how it ended."""
    if inspect.iscoroutinefunction(function):
        work: Awaitable[Any] = function(*args, **kwargs)
    else:
        work = _in_thread(entry, function, args, kwargs)
    try:
        result = await work
    except Exception:
        entry.fail()
        raise
    return entry.finish(result)


def journaled_sync(entry: "Entry", function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """As `journaled`, in a thread."""
    try:
        result = function(*args, **kwargs)
    except Exception:
        entry.fail()
        raise
    return entry.finish(result)


async def _in_thread(entry: "Entry", function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A thread can't be cancelled: what it returns is kept even if the run stops meanwhile."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        found = await to_its_end(thread)
    except asyncio.CancelledError:
        if not (thread.cancelled() or thread.exception() or inspect.isawaitable(thread.result())):
            entry.finish(thread.result())
        raise
    return await found if inspect.isawaitable(found) else found


def _entry(runtime: Any, key: str, idempotent: bool) -> "Entry | None":
    """None: no run of Interlock."""
    if (deps := deps_here(runtime)) is None:
        return None
    if not key:
        raise UserError("effect needs a key: a string that names it within its step.")
    info = info_here(f"Effect {key!r}", deps, runtime)
    return Entry(deps, info.task_id, key, place_of(info), idempotent)


def place_of(info: Any) -> str:
    """Names of the nodes around a task, the outermost first."""
    return "|".join(part.partition(":")[0] for part in info.checkpoint_ns.split("|"))


_under_way: set[tuple[str, str, str]] = set()
_one = threading.Lock()


@dataclass
class Entry:
    """One effect of one task; entered while it is looked up and carried out."""

    deps: Deps
    task: str
    key: str
    place: str
    """Names of the nodes around it, the outermost first."""
    idempotent: bool
    about: CallView | None = None
    """The call that it is; None: a function of a node."""
    result: Any = None

    @property
    def _where(self) -> tuple[str, str, str]:
        return (self.deps.info.run, self.task, self.key)

    def __enter__(self) -> None:
        with _one:
            if self._where in _under_way:
                raise UserError(
                    f"Effect {self.key!r} is under way twice in one step. Give each effect a key of its own."
                )
            _under_way.add(self._where)

    def __exit__(self, *_: object) -> None:
        with _one:
            _under_way.discard(self._where)

    def is_done(self) -> bool:
        """Whether its `result` is known; if not, its intent is now in the journal."""
        journal = self.deps.effects
        row = journal.find(self.task, self.key, self.place)
        if row and row.state == "done":
            self.result = row.result
        elif row and row.state == "intent" and not self.idempotent and self._skips(row.attempt):
            journal.finish(self.task, self.key, None)
        else:
            journal.intend(self.task, self.key, self.place)
            return False
        return True

    def fail(self) -> None:
        self.deps.effects.fail(self.task, self.key)

    def finish(self, result: Any) -> Any:
        self.deps.effects.finish(self.task, self.key, result)
        return result

    def _skips(self, attempt: int) -> bool:
        """Whether a person says that the function isn't to be called again; parks the run until somebody answers."""
        name = f"interrupt:effect:{self.task}:{self.key}:{attempt}"
        about = self.about or CallView(id=name, name=self.key, args={})
        request = ApprovalRequest(
            key=name,
            what="outcome",
            kind="outcome",
            call=about,
            reason=_REASON,
            preview=_shown(self.about) or f"effect {self.key} of {self.place}",
            choices=("proceed_once", "reject"),
            questions=({"question": _REASON, "options": ["redo", "skip"]},),
        )
        self.deps.approvals.ask(request)
        if (answer := self.deps.approvals.answer(name)) is None:
            park(name)
        return answer.choice == "reject"


def _shown(call: CallView | None) -> str:
    return "\n".join(f"{name}: {value}" for name, value in call.args.items()) if call else ""
