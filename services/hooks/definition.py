"""definition: a hook as settings define it, and all hooks that count."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from interlock.services.hooks.matcher import Matcher
from interlock.state.hooks import HookEvent


@dataclass(frozen=True)
class Hook:
    """One command of one definition."""

    event: HookEvent
    source: str
    """The settings file that it stands in."""
    place: str
    """Where in the file, dotted: `hooks.BeforeTool.0.hooks.1`."""
    command: str = ""
    name: str = ""
    matcher: Matcher = field(default_factory=Matcher)
    sequential: bool = False
    timeout_s: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    required: bool = False
    """Nothing goes on where it fails."""
    idempotent: bool = False
    """May run twice without asking, after a kill."""
    broken: str = ""
    """Why it can't be run; only required hooks are kept although they are broken, and block."""

    @property
    def title(self) -> str:
        return self.name or self.command or self.place

    @property
    def id(self) -> str:
        """The same for the same name and command, in whichever file and on whichever day."""
        what = f"{self.name}\0{self.command}" if not self.broken else f"{self.source}\0{self.place}"
        return hashlib.sha256(what.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class HookBook:
    """All hooks that count, in the order in which they are asked: the project's, then the user's."""

    hooks: Sequence[Hook] = ()
    problems: Sequence[str] = ()
    """One line each, with file and place."""
    notifications: bool = True
    """Whether people are told of hooks that have nothing to say."""

    @property
    def configured(self) -> str:
        """Names of the events that have hooks, comma-joined and sorted."""
        return ",".join(sorted({hook.event for hook in self.hooks}))

    def selected(self, event: HookEvent, *subjects: str) -> list[Hook]:
        """The hooks to run for something with these names.

        The same name and command runs once, as strictly as its strictest definition says.
        """
        chosen: dict[str, Hook] = {}
        for hook in self.hooks:
            if hook.event != event or not hook.matcher.matches(subjects):
                continue
            known = chosen.get(hook.id)
            chosen[hook.id] = _stricter(known, hook) if known else hook
        return list(chosen.values())


def _stricter(first: Hook, other: Hook) -> Hook:
    return replace(
        first,
        required=first.required or other.required,
        sequential=first.sequential or other.sequential,
        idempotent=first.idempotent and other.idempotent,
    )
