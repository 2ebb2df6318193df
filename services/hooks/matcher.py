"""matcher: which subjects a hook is for: a search in a tool's name, or a trigger's exact name."""

from dataclasses import dataclass

from interlock.services.policy.patterns import Pattern, PatternError, compile_pattern
from interlock.state.hooks import HookEvent

TOOL_EVENTS: frozenset[HookEvent] = frozenset({"BeforeTool", "AfterTool"})
_ALL = ("", "*")


@dataclass(frozen=True)
class Matcher:
    """As settings write it. `pattern` is null where the text is compared as it is."""

    text: str = ""
    pattern: Pattern | None = None

    def matches(self, subject: str) -> bool:
        """Whether the hook is for `subject`; an event without a subject is for every hook of it."""
        if self.text in _ALL or not subject:
            return True
        return self.pattern.found(subject) if self.pattern else self.text == subject


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
