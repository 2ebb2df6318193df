"""_rules: which tools' outputs are shortened, and how."""

from interlock.state.settings import OutputRule, Settings
from interlock.state.text import estimate_tokens

SHELL = frozenset({"run_shell_command", "execute_command"})
_MCP = "mcp_"
_PAGED = frozenset(
    {
        *("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"),
        *("search_files", "list_files", "list_code_definition_names", "codebase_search"),
    }
)
"""Reads and searches page by themselves, and a summarised read breaks the next edit: no setting changes that."""
_OFF = OutputRule(how="off", tokenBudget=1)


def rule_of(settings: Settings, tool: str) -> OutputRule:
    """By default shell and MCP output is summarised; settings choose per tool."""
    if tool in _PAGED:
        return _OFF
    if chosen := settings.model.summarize_tool_output.get(tool):
        return chosen
    return OutputRule.model_validate({}) if tool in SHELL or tool.startswith(_MCP) else _OFF


def is_long(settings: Settings, rule: OutputRule, text: str) -> bool:
    """Truncation begins at its own limit in characters, a summary at its budget of tokens."""
    if rule.how == "truncate":
        return len(text) > settings.tools.truncate_at
    return rule.how == "summarize" and estimate_tokens(text) > rule.token_budget
