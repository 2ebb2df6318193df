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
_OWN_CHARS = 1000
"""What a tool says around an output that it has cut at the same limit itself."""
_OFF = OutputRule(how="off", tokenBudget=1)


def rule_of(settings: Settings, tool: str) -> OutputRule:
    """By default shell and MCP output is summarised; settings choose per tool."""
    if tool in _PAGED:
        return _OFF
    if chosen := settings.model.summarize_tool_output.get(tool):
        return chosen
    return OutputRule.model_validate({}) if tool in SHELL or tool.startswith(_MCP) else _OFF


def rule_alone(settings: Settings, tool: str, max_output_tokens: int) -> OutputRule:
    """Of an output that was handed in, to be shortened: only what no setting changes stays as it is."""
    rule = rule_of(settings, tool)
    if tool in _PAGED or rule.how == "truncate":
        return rule
    return OutputRule(how="summarize", tokenBudget=max_output_tokens)


def is_long(settings: Settings, rule: OutputRule, text: str) -> bool:
    """Truncation begins at its own limit in characters, a summary at its budget of tokens."""
    if rule.how == "truncate":
        return len(text) > settings.tools.truncate_at + _OWN_CHARS
    return rule.how == "summarize" and estimate_tokens(text) > rule.token_budget
