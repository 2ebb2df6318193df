"""roles: what the holder of a token may do, and the one function that says which role a request needs."""

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

ROLES = ("view", "decide", "drive")
"""Each may do what those before it may."""
_ANSWER_FIELDS = {
    "assistant_id",
    "command",
    "if_not_exists",
    "multitask_strategy",
    "on_disconnect",
    "strict_resume",
}
_STREAM_FIELDS = {"stream_mode", "stream_subgraphs", "stream_resumable", "durability", "checkpoint_during"}
_HARMLESS: Mapping[str, tuple[object, ...]] = {
    "multitask_strategy": ("enqueue", "reject"),
    "on_disconnect": ("continue",),
}
"""Values that stop nothing."""


class Person(NamedTuple):
    name: str
    """Recorded with decisions; empty: the user whose server this is."""
    role: str
    """One of `ROLES`."""
    why: str = ""
    """Why the role is what it is, where a token or server of a higher one doesn't help."""
    user: Mapping[str, Any] | None = None
    """What an app's own `auth` knows of them; None: a token of Interlock's let them in."""

    def has_at_least_role(self, role: str) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


class ThreadInterrupts(NamedTuple):
    """How a thread stands that somebody wants to drive."""

    open_interrupts: frozenset[str] = frozenset()
    """Interrupts that wait for an answer."""
    is_same_assistant: bool = False
    """The assistant is the one that the thread's run was driven with."""


def required_role(
    route_role: str,
    query: Mapping[str, str] | None = None,
    drive_body: Mapping[str, Any] | None = None,
    thread_interrupts: ThreadInterrupts | None = None,
    replay_swap: object = None,
) -> str:
    """Return the role that a request needs: its route's, or `drive` for what else its query or body would do.

    `drive_body`: the body of a request that drives a thread; `thread_interrupts`: how the thread stands.
    `replay_swap`: of a replay, whose code it runs in place of a node.
    """
    if replay_swap:
        return "drive"
    if query is not None and query.get("cancel_on_disconnect", "").lower() not in ("", "0", "false"):
        return "drive"
    if drive_body is not None and not (
        thread_interrupts
        and thread_interrupts.open_interrupts
        and thread_interrupts.is_same_assistant
        and _is_only_interrupt_answer(drive_body)
    ):
        return "drive"
    return route_role


def _is_only_interrupt_answer(body: Mapping[str, Any]) -> bool:
    """Return whether the body of a drive answers interrupts, and asks for nothing else."""
    given = {name: value for name, value in body.items() if not _is_empty_field(name, value)}
    command: Any = given.get("command")
    if not isinstance(command, dict) or "resume" not in command:
        return False
    parts = cast("dict[str, Any]", command)
    others = [name for name, value in parts.items() if name != "resume" and not _is_empty(value)]
    wrong = [name for name, harmless in _HARMLESS.items() if given.get(name, harmless[0]) not in harmless]
    return not (others or wrong or given.keys() - _ANSWER_FIELDS - _STREAM_FIELDS)


def _is_empty_field(name: str, value: Any) -> bool:
    """Whether a part of a body is empty. `config` may hold empty parts. Elsewhere a name is set, to whatever value."""
    if name == "config" and isinstance(value, dict):
        return all(map(_is_empty, cast("dict[str, Any]", value).values()))
    return _is_empty(value)


def _is_empty(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {})
