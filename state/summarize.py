"""summarize: which outputs of tools are shortened before a model reads them; state, input and output of that."""

from typing import Literal

from pydantic import Field

from interlock.state.calls import OneCall
from interlock.state.run import HistoryMessage, Labelled, WorkflowInput, WorkflowOutput
from interlock.state.settings import OutputRule, Settings
from interlock.state.text import estimate_tokens
from interlock.state.tooling import SHELL

MAX_OUTPUT_TOKENS = 2000
"""Outputs up to this many estimated tokens are unchanged (gemini-cli: the same number, in characters)."""
HEAD_SHARE = 0.2
"""Share of the kept text taken from the beginning; the rest is the end, where a command reports its outcome."""

SummarizeStatus = Literal["unchanged", "summarized", "truncated"]


class SummarizeInput(WorkflowInput):
    tool: str = Field(min_length=1, description="name of the tool that produced the text")
    text: str = Field(description="the output ★")
    max_output_tokens: int = Field(
        MAX_OUTPUT_TOKENS, ge=1, description="keep shorter texts as they are; limit of the summary, in tokens"
    )
    history: list[HistoryMessage] = Field(
        default_factory=list[HistoryMessage], description="the conversation that the output belongs to"
    )


class SummarizeOutput(WorkflowOutput):
    text: str
    status: SummarizeStatus
    saved_to: str | None = None


class SummarizeState(Labelled, OneCall, total=False):
    """One output being shortened: a call's, or one passed in (then there is no `message`).

    Texts are chain records, journal rows and files; state holds their names.
    """

    tool: str
    source: str
    """Chain record (detached) of a text passed in."""
    head: str
    """The conversation that text belongs to; empty: none."""
    max_output_tokens: int
    """0: from the tool's settings."""
    saved_to: str
    """File with the complete output; empty: not needed."""
    summary: str
    """Chain record of the model's summary; empty: none."""
    shortened: str
    """Chain record (detached) of the text sent to the model instead; empty: the output itself."""
    summarize_status: str


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


def should_shorten_output(settings: Settings, rule: OutputRule, text: str) -> bool:
    """Whether to shorten: truncation has its own limit in characters, a summary its budget in tokens."""
    if rule.how == "truncate":
        return len(text) > settings.tools.truncate_at + _OWN_CHARS
    return rule.how == "summarize" and estimate_tokens(text) > rule.token_budget
