"""context: state, input and output of a conversation's opening, and the parts it is built from."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, Field, JsonValue
from typing_extensions import TypedDict

from interlock.state.messages import Frozen, Part
from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput
from interlock.state.seen import SeenFile
from interlock.state.system_prompt import PromptKind

PartName = Literal[
    "history", "environment", "directory", "ide", "system-prompt", "memory", "tool_declarations", "at_files"
]
"""Parts that can be turned off, in the order in which a first request is built."""


class FileOutcome(BaseModel, extra="forbid", defer_build=True):
    """What became of a reference to a file, or of a file that belongs to the opening."""

    path: str
    status: str
    reason: str = ""


Ide = dict[str, JsonValue]
IDE_FIELD = "open files and cursor of an editor; --ide-context takes precedence"


class ContextInput(WorkflowInput):
    prompt: str = Field(min_length=1, description="what the user asks ★")
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="an earlier conversation"
    )
    ide: Ide | None = Field(None, description=IDE_FIELD)
    parts: dict[PartName, bool] = Field(
        default_factory=dict[PartName, bool], description="part → false: leave the part out"
    )


class DeclaredTool(BaseModel, extra="forbid", defer_build=True):
    """A tool as the request declares it."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of its arguments")


class ContextOutput(WorkflowOutput):
    system: str
    messages: list[dict[str, Any]]
    tools: list[DeclaredTool]
    files: list[FileOutcome]
    tokens: dict[str, int]


class Opening(TypedDict, total=False):
    """Keys shared with the graph that opens a prompt."""

    head: str
    """Newest record of the conversation; empty: none yet."""
    prompt: str
    """Chain record (detached) of a prompt not yet in the conversation; empty: none."""
    ide_given: str
    """Chain record (detached) of the input's `ide`; empty: none."""
    ide_told: str
    """Chain record (detached) of the editor state last sent to the model; empty: none."""


class ContextState(PromptKind, Opening, Labelled, total=False):
    """State while the opening is built; the texts are detached records."""

    off: list[str]
    """Parts left out."""
    alone: bool
    """Runs as the top-level workflow: its output lists the parts."""
    begun: bool
    """The conversation already has its opening."""
    environment: str
    directory: str
    ide: str
    memory: str
    system: str
    """Record of the system message; empty: none."""
    previous: str
    """Record of the system message the conversation began with."""
    changed: list[str]
    """Sections of the system prompt that changed."""
    tools: str
    files: list[dict[str, str]]
    """`FileOutcome`s."""
    tokens: dict[str, int]
    """Estimated tokens by part."""


@dataclass(frozen=True)
class Reference:
    """What an `@path` in a prompt, or in a file, resolved to."""

    path: str
    status: str
    """Shown: file, directory, image, pdf. Not shown: missing, refused, left out."""
    reason: str
    parts: tuple[Part, ...] = ()
    seen: tuple[SeenFile, ...] = ()
    """The files shown."""


@dataclass(frozen=True)
class Replacement:
    """Text that replaces the generated system prompt."""

    text: str
    source: str
    """The file or flag it came from."""


class IdeState(TypedDict):
    """The files a user has open in an editor."""

    open: list[str]
    """Paths, newest first."""
    active: dict[str, Any]
    """The file in focus: path, cursor, selection; empty: none."""


Dialect = Literal["gemini", "claude", "codex", "opencode", "copilot", "plain"]
"""How a command's text writes arguments, shell lines and files: as which program reads it."""


class CustomCommand(Frozen):
    """A named prompt of the user's or the project's, or a skill, which a person may call in the same way."""

    name: str
    prompt: str
    description: str = ""
    source: str
    dialect: Dialect = "gemini"
    argument_hint: str = ""
    """What to type behind the name, for people."""
    argument_names: tuple[str, ...] = ()
    """Names by which the text refers to the first arguments."""
    mode: str = ""
    """The mode of work that it wants; empty: any."""
    denied_tools: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    """What the user's own file allows without asking until the next prompt, in Claude Code's words."""
    """Tools that may not be called until the next prompt."""
    skill_folder: str = ""
    """The folder of a skill; empty: it is none."""
    appendix: str = ""
    """Shown below the prompt as it is: nothing in it is filled in, run or attached."""


class Commands(NamedTuple):
    """The custom commands of one folder and user, by name."""

    usable: Mapping[str, CustomCommand]
    broken: Mapping[str, str]
    """Name → one line that says why its file was ignored."""
    untrusted: Mapping[str, str]
    """The same for files of a folder that isn't trusted."""
    hidden: Mapping[str, str]
    """The same for skills that only a model may call."""
    other_names: Mapping[str, str]
    """Names that other programs give a command → ours."""

    def find_command(self, name: str) -> CustomCommand | None:
        return self.usable.get(name) or self.usable.get(self.other_names.get(name, ""))


UNDONE = "undone"
"""Section of the note on what a person took back."""
CHANGED = "changed"
"""Section of the note on files that changed."""
MEMORY = "memory:"
"""Prefix of section names for memory files in subdirectories."""


DESCRIBED = "described"
"""Level of a rule file that the model reads where its description fits."""
_TRIGGERED = "for "


@dataclass(frozen=True)
class MemoryText:
    """A memory or rule file as shown to the model, imports included."""

    shown: str
    """Its name for the model and for people."""
    level: str
    """global, project, `described`, or `for PATH`: the file that brought a rule along."""
    text: str
    """Of a described one: its description."""
    problem: str = ""
    """What was left out and why, for people."""


def format_trigger(path: str) -> str:
    """Return the level of a rule that a path in a call brings along."""
    return _TRIGGERED + (path if path.isprintable() else ascii(path))


def parse_shown_trigger(shown: str, text: str) -> str:
    """Return the level of a rule file in the text that the model was shown of it; empty: no path brought it along."""
    start = f"--- {shown} ("
    level = text[len(start) :].partition(") ---\n")[0] if text.startswith(start) else ""
    return level if level.startswith(_TRIGGERED) else ""


AGENT_FILES = ("AGENTS.override.md", "AGENTS.md", "AGENT.md")
"""In the workspace; the first non-empty one also counts as a rule file."""
_TASK_LOOP_RULES = (".roo/rules", "~/.roo/rules", ".roorules")


def is_shown_to_task_loop(shown: str) -> bool:
    """Return whether the task loop's system prompt has this memory or rule file."""
    return shown in (*AGENT_FILES, ".clinerules") or shown.startswith(_TASK_LOOP_RULES)


IGNORE_FILE = ".rooignore"
"""Shown to the task loop's model, so that it knows what it can't open."""


class RuleFile(NamedTuple):
    """A rule file (Roo Code's): its text, or why it isn't used."""

    shown: str
    """Its name for the model and for people, on one line."""
    text: str
    problem: str = ""
    path: Path = Path()
    sources: frozenset[Path] = frozenset()
    """The real paths of the file and its imports."""


@dataclass(frozen=True)
class SystemFacts:
    """Facts that decide the conditions of system prompt sections, besides tools and settings."""

    in_git: bool
    appended: str
    """Text added by `--append-system-prompt`."""
