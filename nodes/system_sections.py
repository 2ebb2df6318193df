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
class Section:
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

    def conditions(self) -> tuple[str, ...]:
        """All that must hold, in words; none: it always stands."""
        tools = (_TOOLS.get(self.tools) or " or ".join(sorted(self.tools)),) if self.tools else ()
        only = (_CONDITIONS[self.only],) if self.only else ()
        filled = (self.filled,) if self.filled else ()
        return (*(() if self.shared else ("no sub-agent",)), *tools, *only, *filled)

    @property
    def when(self) -> str:
        return " and ".join(self.conditions()) or "always"


def _of_tool(*names: str) -> frozenset[str]:
    return frozenset(names)


_XML = (Section("task/xml", only="xml"), Section("task/tools", only="xml", filled="a tool"))
_SKILLS = Section("main/skills", tools=_of_tool("activate_skill"))
_MODE = Section("mode", filled="a mode's role")
_APPENDED = Section("appended", filled="--append-system-prompt")
_INSTRUCTIONS = Section("task/instructions", filled="instructions or rule files")
_SURROUNDINGS = (
    Section("main/unattended", only="unattended", shared=False),
    Section("main/sandbox_none", tools=_COMMANDS, only="open"),
    Section("main/sandbox_bubblewrap", tools=_COMMANDS, only="sandboxed"),
    Section("main/sandbox_offline", tools=_COMMANDS, only="offline"),
    Section("main/git", tools=_COMMANDS, only="git"),
)
MAIN = (
    Section("agent", only="agent"),
    Section("main/preamble", shared=False),
    replace(_MODE, shared=False),
    Section("main/mandates"),
    Section("main/changes", tools=_WRITING | _COMMANDS),
    Section("main/workflows", shared=False),
    Section("main/planning", tools=_of_tool("enter_plan_mode")),
    Section("main/delegation", tools=_of_tool("invoke_agent")),
    _SKILLS,
    Section("main/search", tools=_of_tool("codebase_search")),
    Section("main/todos", tools=_of_tool("write_todos")),
    Section("main/answers", shared=False),
    *_XML,
    Section("main/calls"),
    Section("main/edits", tools=_WRITING),
    Section("main/commands", tools=_COMMANDS),
    Section("main/results"),
    Section("main/data"),
    Section("main/questions", tools=_of_tool("ask_user")),
    *_SURROUNDINGS,
    Section("main/servers", only="told by servers"),
    Section("contract", only="agent"),
    replace(_APPENDED, shared=False),
)
TASK = (
    Section("task/role"),
    Section("task/markdown"),
    Section("task/tool_use"),
    Section("task/native", only="native"),
    *_XML,
    Section("task/guidelines"),
    Section("task/guidelines_search", only="search"),
    Section("task/mcp", only="mcp"),
    Section("task/capabilities"),
    Section("task/capabilities_reading", tools=_of_tool("list_files", "search_files")),
    Section("task/capabilities_definitions", tools=_of_tool("list_code_definition_names")),
    Section("task/capabilities_browser", only="browser"),
    Section("task/capabilities_mcp", only="mcp"),
    Section("task/modes"),
    Section("task/rules"),
    Section("task/rules_reads", tools=_of_tool("read_many_files"), only="several reads"),
    Section("task/rules_edits", tools=_WRITING),
    Section("task/rules_files", tools=_WRITING, filled="a mode limited to some files"),
    Section("task/rules_diff", only="diff"),
    Section("task/rules_todos", tools=_of_tool("update_todo_list")),
    Section("task/rules_questions", tools=_of_tool("ask_followup_question")),
    Section("main/mandates"),
    Section("main/changes", tools=_WRITING | _COMMANDS),
    Section("main/commands", tools=_COMMANDS),
    _SKILLS,
    Section("main/results"),
    Section("main/data"),
    *_SURROUNDINGS,
    Section("task/system"),
    Section("task/objective"),
    _INSTRUCTIONS,
    _APPENDED,
)
SMALL = (Section("main/small"), _MODE, Section("main/small_answer"), _APPENDED)
SMALL_TASK = (Section("main/small"), Section("task/small_task"), _INSTRUCTIONS, _APPENDED)
"""For models with a small window or a slow server."""
SECTIONS = {section.name: section for section in (*SMALL, *SMALL_TASK, *TASK, *MAIN)}


def branches(sections: Sequence[Section]) -> tuple[Part, ...]:
    """Each condition with the sections that stand under it, and their places in the prompt."""
    found: dict[str, dict[str, int]] = {}
    for number, section in enumerate(sections, 1):
        found.setdefault(section.when, {})[section.name] = number
    return tuple(Part(when, tuple(names), tuple(names.values())) for when, names in found.items())
