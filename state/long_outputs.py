"""long_outputs: which outputs of tools are shortened before a model reads them."""

from interlock.state.settings import OutputRule, Settings
from interlock.state.text import estimate_tokens
from interlock.state.tooling import SHELL

_MCP = "mcp_"
PAGED = frozenset(
    {
        *("read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content"),
        *("search_files", "list_files", "list_code_definition_names", "codebase_search"),
    }
)
"""Reads and searches do their own paging, and a summarised read breaks the next edit, so no setting changes that."""
_OWN_CHARS = 1000
"""Characters a tool adds around output that it has already cut at the same limit."""
_OFF = OutputRule(how="off", tokenBudget=1)


def output_rule(settings: Settings, tool: str) -> OutputRule:
    """The tool's rule; by default shell and MCP output is summarised, and settings override per tool."""
    if tool in PAGED:
        return _OFF
    if chosen := settings.model.summarize_tool_output.get(tool):
        return chosen
    return OutputRule.model_validate({}) if tool in SHELL or tool.startswith(_MCP) else _OFF


def exceeds_output_rule(settings: Settings, rule: OutputRule, text: str) -> bool:
    """Whether to shorten: truncation has its own limit in characters, a summary its budget in tokens."""
    if rule.how == "truncate":
        return len(text) > settings.tools.truncate_at + _OWN_CHARS
    return rule.how == "summarize" and estimate_tokens(text) > rule.token_budget
