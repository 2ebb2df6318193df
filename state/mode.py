"""mode: modes of work and the tools and files each allows; input, output and state of switching."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol

from pydantic import Field

from interlock.state.calls import CallView
from interlock.state.messages import Frozen
from interlock.state.run import ErrorInfo, WorkflowInput, WorkflowOutput
from interlock.state.tools import ToolsState

Group = Literal["read", "edit", "browser", "command", "mcp", "modes"]

GROUPS: Mapping[str, frozenset[str]] = {
    "read": frozenset(
        {
            *("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_files"),
            *("list_files", "list_code_definition_names", "codebase_search", "codebase_investigator"),
            "fetch_instructions",
        }
    ),
    "edit": frozenset(
        {
            *("write_file", "write_to_file", "replace", "apply_diff", "insert_content", "generate_image"),
            "save_memory",
        }
    ),
    "browser": frozenset({"browser_action", "web_fetch", "web_search"}),
    "command": frozenset({"run_shell_command", "execute_command"}),
    "mcp": frozenset({"use_mcp_tool", "access_mcp_resource"}),
    "modes": frozenset({"switch_mode", "new_task"}),
}
"""Group → its tools, by their own names; MCP tools are in `mcp`."""
ALWAYS = frozenset(
    {
        *("ask_followup_question", "ask_user", "attempt_completion", "switch_mode", "new_task"),
        *("update_todo_list", "write_todos", "update_scratchpad", "complete_task", "invoke_agent"),
        *("activate_skill", "find_skills"),
        *("enter_plan_mode", "exit_plan_mode"),
    }
)
"""Available in every mode: they ask, delegate and take notes. A sub-agent inherits its parent's mode."""


class GroupRule(Frozen):
    """A group that a mode includes."""

    name: Group
    file_regex: str = ""
    """For `edit`: searched in a file's path relative to the workspace; empty: every file."""
    description: str = ""
    """What the pattern means, for people and models."""


class Mode(Frozen):
    """One mode of work."""

    slug: str
    name: str
    role: str = ""
    """The mode's role, as told to the model; for built-in modes it is in `prompts/modes/`."""
    when_to_use: str = ""
    description: str = ""
    instructions: str = ""
    """Custom instructions, appended after everything else in the prompt."""
    groups: tuple[GroupRule, ...] = ()
    source: Literal["built-in", "project", "global"] = "built-in"

    def find_group_rule(self, tool: str) -> GroupRule | None:
        """The group that gives the mode this tool (by its own name); None: no group does."""
        return next(
            (g for g in self.groups if tool in GROUPS[g.name] or _is_mcp_tool_in_group(g.name, tool)), None
        )

    def allows_tool(self, tool: str) -> bool:
        """Whether the mode has this tool, regardless of files."""
        return tool in ALWAYS or self.find_group_rule(tool) is not None


def _is_mcp_tool_in_group(group: Group, tool: str) -> bool:
    return group == "mcp" and tool.startswith("mcp_")


class Modes(Protocol):
    """The modes available in a run, by slug."""

    def find_mode(self, slug: str) -> Mode | None: ...

    def list_modes(self) -> Sequence[Mode]:
        """Built-in modes, or their replacements, then the others."""
        ...

    def refusal_reason(self, slug: str, call: CallView, tool: str, files: Iterable[str] | None) -> str | None:
        """Why the mode forbids the call; None: it doesn't. `tool`: its own name; `files`: paths it would write,
        relative to the workspace; None if unknown."""
        ...


def _make_group_rules(*names: Group, edit: GroupRule | None = None) -> tuple[GroupRule, ...]:
    return tuple(edit if name == "edit" and edit else GroupRule(name=name) for name in names)


_MARKDOWN = GroupRule(name="edit", file_regex=r"\.md$", description="Markdown files only")
_ALL = _make_group_rules("read", "edit", "browser", "command", "mcp")
BUILT_IN = (
    Mode(
        slug="architect",
        name="Architect",
        when_to_use="Plan and design before anything is built: break a problem down, weigh ways, specify.",
        groups=_make_group_rules("read", "edit", "browser", "mcp", edit=_MARKDOWN),
    ),
    Mode(
        slug="code",
        name="Code",
        when_to_use="Write, change and refactor code: features, fixes, tests.",
        groups=_ALL,
    ),
    Mode(
        slug="ask",
        name="Ask",
        when_to_use="Explain and answer: understand code, concepts and documents without changing anything.",
        groups=_make_group_rules("read", "browser", "mcp"),
    ),
    Mode(
        slug="debug",
        name="Debug",
        when_to_use="Find out why something fails: errors, unexpected behaviour, failing tests.",
        groups=_ALL,
    ),
    Mode(
        slug="orchestrator",
        name="Orchestrator",
        when_to_use="Cut a large task into subtasks, have each done in the mode that fits, join the results.",
    ),
)
DEFAULT = BUILT_IN[0].slug
"""The first, as in Roo Code."""


class ModeInput(WorkflowInput):
    """Input of `mode`; `mode` is the one that it is in."""

    switch_to: str | None = Field(None, description="mode to switch to; Interlock asks a person first")
    reason: str = Field("", description="why ★")
    tool: str | None = Field(
        None, description="instead of switching: check whether the mode allows this tool"
    )
    path: str | None = Field(None, description="check the tool on this file")
    content: str | None = Field(
        None, description="check the tool with this text; an empty text counts as none"
    )


class ModeOutput(WorkflowOutput):
    modes: list[dict[str, Any]]
    current: str
    allowed: bool | None = None
    error: ErrorInfo | None = None


class ModeState(ToolsState, total=False):
    """State of `mode`; a switch is a batch of one call."""

    tool: str
    path: str
    listed: str
    """Chain record of the modes."""
    allowed: bool | None
    error: dict[str, str]
