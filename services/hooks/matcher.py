"""matcher: which subjects a hook is for: a search in a tool's name, or a trigger's exact name."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from interlock.services.policy.names import names_of
from interlock.services.policy.patterns import Pattern, PatternError, compile_pattern
from interlock.state.hooks import HookEvent

TOOL_EVENTS: frozenset[HookEvent] = frozenset({"BeforeTool", "AfterTool"})
_ALL = ("", "*")


@dataclass(frozen=True)
class Matcher:
    """As settings write it. `pattern` is null where the text is compared as it is."""

    text: str = ""
    pattern: Pattern | None = None

    def matches(self, subjects: Collection[str]) -> bool:
        """Whether the hook is for any of these names of one thing; an event without a name is for every hook of it."""
        if self.text in _ALL or not any(subjects):
            return True
        return any(self.pattern.found(s) if self.pattern else self.text == s for s in subjects)


def matcher(event: HookEvent, text: str) -> tuple[Matcher, str]:
    """The matcher, and why it can't be used as it was meant; then it is compared as it is."""
    if event not in TOOL_EVENTS or text in _ALL:
        return Matcher(text), ""
    try:
        return Matcher(text, compile_pattern(text)), ""
    except PatternError as error:
        return Matcher(
            text
        ), f"{error}; only a tool of exactly this name matches, and for required hooks every tool"


def subjects_of(event: HookEvent, subject: str, given: Mapping[str, JsonValue]) -> Collection[str]:
    """All names of what an event is about: a tool has several, and an agent is known by its own."""
    args = given.get("tool_input")
    return names_of(subject, args if isinstance(args, dict) else {}) if event in TOOL_EVENTS else (subject,)
