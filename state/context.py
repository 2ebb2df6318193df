"""context: state, input and output of what a conversation begins with, and the parts that it is made of."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.messages import Part
from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput
from interlock.state.system_prompt import PromptKind

PartName = Literal[
    "history", "environment", "directory", "ide", "system-prompt", "memory", "tool_declarations", "at_files"
]
"""What can be turned off, in the order in which a first request is built."""


class FileOutcome(BaseModel):
    """What became of a reference to a file, or of a file that belongs to the opening."""

    model_config = ConfigDict(extra="forbid")
    path: str
    status: str
    reason: str = ""


Ide = dict[str, JsonValue]
IDE_FIELD = "what an editor shows, as in the file of --ide-context, which comes first"


class ContextInput(WorkflowInput):
    """Input of `context`."""

    prompt: str = Field(min_length=1, description="what the user asks ★")
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="an earlier conversation"
    )
    ide: Ide | None = Field(None, description=IDE_FIELD)
    parts: dict[PartName, bool] = Field(
        default_factory=dict[PartName, bool], description="part → false: it is left out"
    )


class DeclaredTool(BaseModel):
    """A tool as the request declares it."""

    model_config = ConfigDict(extra="forbid")
    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of its arguments")


class ContextOutput(WorkflowOutput):
    """Output of `context`."""

    system: str
    messages: list[dict[str, Any]]
    tools: list[DeclaredTool]
    files: list[FileOutcome]
    tokens: dict[str, int]


class Opening(TypedDict, total=False):
    """What a graph shares with the one that opens its prompts."""

    head: str
    """Newest record of the conversation; empty: there is none yet."""
    prompt: str
    """Chain record (detached) of a prompt that isn't in the conversation yet; empty: there is none."""
    ide_given: str
    """Chain record (detached) of the input's `ide`; empty: there is none."""
    ide_told: str
    """Chain record (detached) of what was last told of the user's editor; empty: nothing."""


class ContextState(PromptKind, Opening, Labelled, total=False):
    """What the opening knows while it is put together; the texts are detached records."""

    off: list[str]
    """Parts that are left out."""
    alone: bool
    """It is the workflow itself: what it was made of is the output."""
    begun: bool
    """The conversation has its opening already."""
    environment: str
    directory: str
    ide: str
    memory: str
    system: str
    """Record of the system message; empty: there is none."""
    previous: str
    """Record of the system message that the conversation began with."""
    changed: list[str]
    """Sections of the system prompt that aren't what they were."""
    tools: str
    files: list[dict[str, str]]
    """`FileOutcome`s."""
    tokens: dict[str, int]
    """Estimated, by part."""


@dataclass(frozen=True)
class Reference:
    """What `@path` in a prompt, or a file beside it, came to."""

    path: str
    status: str
    """file, directory, image, pdf: it is shown; missing, refused, left out: it isn't."""
    reason: str
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Replacement:
    """What stands in place of the generated system prompt."""

    text: str
    source: str
    """The file or flag that it is from."""


class IdeState(TypedDict):
    """What the user has open in an editor."""

    open: list[str]
    """Paths, the newest first."""
    active: dict[str, Any]
    """The file that they look at: path, cursor, selection; empty: none."""


@dataclass(frozen=True)
class CustomCommand:
    """A prompt of the user's or the project's, by name."""

    name: str
    prompt: str
    description: str
    source: str


MEMORY = "memory:"
"""Begins the name of a section that is a memory file of a sub-directory."""


@dataclass(frozen=True)
class MemoryText:
    """A memory file as the model is shown it, imports included."""

    path: Path
    shown: str
    """Its name for the model and for people."""
    level: str
    text: str
    problem: str = ""
    """What of it was left out, and why, for people."""


AGENT_FILES = ("AGENTS.md", "AGENT.md")
"""Of the workspace; the first that isn't empty is a rule file, too."""
IGNORE_FILE = ".rooignore"
"""Shown to the task loop's model, which is told what it can't open."""


class RuleFile(NamedTuple):
    """A rule file (Roo Code's): its text, or why it isn't used."""

    shown: str
    """Its name for the model and for people, on one line."""
    text: str
    problem: str = ""


@dataclass(frozen=True)
class SystemFacts:
    """What the conditions of the system prompt's sections are decided by, besides tools and settings."""

    in_git: bool
    appended: str
    """What `--append-system-prompt` adds."""
