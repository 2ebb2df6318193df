"""system_sections: the sections that a system prompt is made of, in order, and the condition of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from interlock.state.node import Part

_COMMANDS = frozenset({"run_shell_command", "execute_command"})
_WRITING = frozenset({"write_file", "replace", "write_to_file", "apply_diff", "insert_content"})
_Only = Literal[
    "agent",
    "git",
    "unattended",
    "open",
    "sandboxed",
    "offline",
    "native",
    "xml",
    "search",
    "browser",
    "diff",
    "mcp",
    "told by servers",
    "several reads",
]

_CONDITIONS: Mapping[_Only, str] = {
    "agent": "a sub-agent",
    "git": "a git repository",
    "unattended": "an unattended run",
    "open": "no sandbox",
    "sandboxed": "a sandbox",
    "offline": "no network",
    "native": "native calls",
    "xml": "calls as tags",
    "search": "a code index",
    "browser": "a browser",
    "diff": "apply_diff",
    "mcp": "an MCP server",
    "told by servers": "a server's instructions",
    "several reads": "several files a read",
}
_TOOLS = {
    _COMMANDS: "a command tool",
    _WRITING: "an edit tool",
    _WRITING | _COMMANDS: "an edit or command tool",
}


@dataclass(frozen=True)
class PromptSection:
    """One section, and the conditions for including it."""

    prompt: str
    """Its file; one without a folder is text that a mode, an agent or a flag gives."""
    tools: frozenset[str] = frozenset()
    """Included only if one of these exists; empty: always."""
    only: _Only | None = None
    """Included only for a sub-agent; in a git repository; if nobody is at the terminal; by where commands
    run: on the machine, in a sandbox, or in one without network; by call syntax; by what is available."""
    shared: bool = True
    """Sub-agents get it too, after their own prompt."""
    filled: str = ""
    """What fills its slots; included only if there is any."""

    @property
    def name(self) -> str:
        return self.prompt.rpartition("/")[2]

    def describe_conditions(self) -> tuple[str, ...]:
        """All that must hold, in words; none: it always stands."""
        tools = (_TOOLS.get(self.tools) or " or ".join(sorted(self.tools)),) if self.tools else ()
        only = (_CONDITIONS[self.only],) if self.only else ()
        filled = (self.filled,) if self.filled else ()
        return (*(() if self.shared else ("no sub-agent",)), *tools, *only, *filled)

    @property
    def conditions_text(self) -> str:
        return " and ".join(self.describe_conditions()) or "always"


def _tool_names(*names: str) -> frozenset[str]:
    return frozenset(names)


_XML = (PromptSection("task/xml", only="xml"), PromptSection("task/tools", only="xml", filled="a tool"))
_SKILLS = PromptSection("main/skills", tools=_tool_names("activate_skill"))
_MODE = PromptSection("mode", filled="a mode's role")
_APPENDED = PromptSection("appended", filled="--append-system-prompt")
_INSTRUCTIONS = PromptSection("task/instructions", filled="instructions or rule files")
_SURROUNDINGS = (
    PromptSection("main/unattended", only="unattended", shared=False),
    PromptSection("main/sandbox_none", tools=_COMMANDS, only="open"),
    PromptSection("main/sandbox_bubblewrap", tools=_COMMANDS, only="sandboxed"),
    PromptSection("main/sandbox_offline", tools=_COMMANDS, only="offline"),
    PromptSection("main/git", tools=_COMMANDS, only="git"),
)
MAIN = (
    PromptSection("agent", only="agent"),
    PromptSection("main/preamble", shared=False),
    replace(_MODE, shared=False),
    PromptSection("main/mandates"),
    PromptSection("main/changes", tools=_WRITING | _COMMANDS),
    PromptSection("main/workflows", shared=False),
    PromptSection("main/planning", tools=_tool_names("enter_plan_mode")),
    PromptSection("main/delegation", tools=_tool_names("invoke_agent")),
    _SKILLS,
    PromptSection("main/search", tools=_tool_names("codebase_search")),
    PromptSection("main/todos", tools=_tool_names("write_todos")),
    PromptSection("main/answers", shared=False),
    *_XML,
    PromptSection("main/calls"),
    PromptSection("main/edits", tools=_WRITING),
    PromptSection("main/commands", tools=_COMMANDS),
    PromptSection("main/results"),
    PromptSection("main/data"),
    PromptSection("main/questions", tools=_tool_names("ask_user")),
    *_SURROUNDINGS,
    PromptSection("main/servers", only="told by servers"),
    PromptSection("contract", only="agent"),
    replace(_APPENDED, shared=False),
)
TASK = (
    PromptSection("task/role"),
    PromptSection("task/markdown"),
    PromptSection("task/tool_use"),
    PromptSection("task/native", only="native"),
    *_XML,
    PromptSection("task/guidelines"),
    PromptSection("task/guidelines_search", only="search"),
    PromptSection("task/mcp", only="mcp"),
    PromptSection("task/capabilities"),
    PromptSection("task/capabilities_reading", tools=_tool_names("list_files", "search_files")),
    PromptSection("task/capabilities_definitions", tools=_tool_names("list_code_definition_names")),
    PromptSection("task/capabilities_browser", only="browser"),
    PromptSection("task/capabilities_mcp", only="mcp"),
    PromptSection("task/modes"),
    PromptSection("task/rules"),
    PromptSection("task/rules_reads", tools=_tool_names("read_many_files"), only="several reads"),
    PromptSection("task/rules_edits", tools=_WRITING),
    PromptSection("task/rules_files", tools=_WRITING, filled="a mode limited to some files"),
    PromptSection("task/rules_diff", only="diff"),
    PromptSection("task/rules_todos", tools=_tool_names("update_todo_list")),
    PromptSection("task/rules_questions", tools=_tool_names("ask_followup_question")),
    PromptSection("main/mandates"),
    PromptSection("main/changes", tools=_WRITING | _COMMANDS),
    PromptSection("main/commands", tools=_COMMANDS),
    _SKILLS,
    PromptSection("main/results"),
    PromptSection("main/data"),
    *_SURROUNDINGS,
    PromptSection("task/system"),
    PromptSection("task/objective"),
    _INSTRUCTIONS,
    _APPENDED,
)
SMALL = (PromptSection("main/small"), _MODE, PromptSection("main/small_answer"), _APPENDED)
SMALL_TASK = (PromptSection("main/small"), PromptSection("task/small_task"), _INSTRUCTIONS, _APPENDED)
"""For models with a small window or a slow server."""
SECTIONS = {section.name: section for section in (*SMALL, *SMALL_TASK, *TASK, *MAIN)}


def group_sections_by_condition(sections: Sequence[PromptSection]) -> tuple[Part, ...]:
    """Each condition with the sections that stand under it, and their places in the prompt."""
    found: dict[str, dict[str, int]] = {}
    for number, section in enumerate(sections, 1):
        found.setdefault(section.conditions_text, {})[section.name] = number
    return tuple(Part(when, tuple(names), tuple(names.values())) for when, names in found.items())
