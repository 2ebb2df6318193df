"""system_prompt: state, input and output of system prompt generation."""

import hashlib
from typing import Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from interlock.state.messages import Message, TextPart
from interlock.state.run import Labelled, WorkflowInput, WorkflowOutput
from interlock.state.text import estimate_tokens

Flavour = Literal["main", "task"]
Has = dict[Literal["search", "mcp", "browser", "diff"], bool]


class PromptKind(TypedDict, total=False):
    """Which system prompt to generate, besides the run's mode and protocol."""

    flavour: str
    """`Flavour`; empty: main."""
    has: dict[str, bool]
    """Overrides for what counts as present, regardless of the actual tools."""


class SystemPromptInput(WorkflowInput):
    flavour: Flavour = Field("main", description="prompt of the main loop or of the task loop")
    has: Has = Field(
        default_factory=dict[Literal["search", "mcp", "browser", "diff"], bool],
        description="features to assume present or absent; default: detected",
    )
    previous: dict[str, str] = Field(
        default_factory=dict[str, str], description="section → fingerprint, of an earlier generation"
    )


class SectionOut(BaseModel, extra="forbid", defer_build=True):
    name: str
    text: str
    tokens: int
    """Estimated."""
    fingerprint: str
    why: str = Field(default="", description="the conditions that hold, or `always`")


class SystemPromptOutput(WorkflowOutput):
    text: str
    sections: list[SectionOut]
    left_out: dict[str, str] = Field(description="section → why it isn't in the prompt")
    source: str = Field(description="`generated`, or the file or flag that stands in its place")
    changed: list[str] = Field(description="sections that are new, gone or not what they were")
    tokens: int


class SystemPromptState(PromptKind, Labelled, total=False):
    """State of the generation; the text is a chain record."""

    sections: list[str]
    """Names of the applicable sections, in order."""
    left_out: dict[str, str]
    """Section → why it doesn't apply."""
    source: str
    system: str
    """Detached record of the system message; empty: none."""
    previous: str
    """Record of the system message to compare with; empty: none."""
    before: dict[str, str]
    """Used instead of a record: section → fingerprint."""
    changed: list[str]


def fingerprint_text(text: str) -> str:
    """Short hash: equal for equal texts."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:12]


def message_sections(message: Message) -> list[SectionOut]:
    """Sections of a system message; one from an older version or a person counts as a single section."""
    content = message.content
    parts = (TextPart(text=content, section="text"),) if isinstance(content, str) else content
    return [
        SectionOut(
            name=part.section or "text",
            text=part.text.strip(),
            tokens=estimate_tokens(part.text.strip()),
            fingerprint=fingerprint_text(part.text),
        )
        for part in parts
        if isinstance(part, TextPart) and part.text.strip()
    ]


def changed_section_names(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Names of new or changed sections, in order, then of removed ones."""
    other = [name for name, mark in after.items() if before.get(name) != mark]
    return [*other, *(name for name in before if name not in after)]
