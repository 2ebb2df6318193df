"""names: short names of models, and tool names of other programs. Lightweight, for the fast commands."""

import hashlib
import re

ALIASES = {
    "pro": "gemini-2.5-pro",
    "flash": "gemini-3.8-flash",
    "flash-lite": "gemini-3.5-flash-lite",
    "image": "gemini-2.5-flash-image",
}
"""Defaults of `model.aliases`. `auto` isn't here: it means routed per prompt."""
TIERS = {
    "anthropic": {
        "pro": "anthropic:claude-opus-5-5",
        "flash": "anthropic:claude-haiku-5-5",
        "flash-lite": "anthropic:claude-haiku-5-5",
    },
    "openai": {
        "pro": "openai:gpt-6.1-sol",
        "flash": "openai:gpt-6-luna",
        "flash-lite": "openai:gpt-6-luna",
    },
}
"""Vendor → what these aliases mean where its models are the default. Gemini's are above."""
SHORT = {
    "opus": "anthropic:claude-opus-5-5",
    "sonnet": "anthropic:claude-sonnet-5-5",
    "haiku": "anthropic:claude-haiku-5-5",
    "gpt": "openai:gpt-6.1-sol",
}
"""Names that mean the same model whatever the default is, unless `model.aliases` says otherwise."""
_OWN_NAMES = (
    (re.compile(r"(models/)?(gemini|gemma|learnlm|tunedModels/)[\w./-]*"), "gemini"),
    (re.compile(r"claude-[\w.-]+"), "anthropic"),
    (re.compile(r"(?!gpt-oss)(gpt-|chatgpt-|codex-|o[1-9]\b)[\w.-]*"), "openai"),
)


def guess_provider(name: str) -> str:
    """Return the provider of a model name with or without a prefix; empty: none is known by this name."""
    provider, colon, _ = SHORT.get(name, name).partition(":")
    return provider if colon else next((whose for names, whose in _OWN_NAMES if names.fullmatch(name)), "")


GEMINI_KEYS = ("GEMINI_API_KEY", "GOOGLE_API_KEY")
GEMINI_URL = "https://generativelanguage.googleapis.com"
ADDRESSES = {
    "GOOGLE_GEMINI_BASE_URL": GEMINI_KEYS,
    **{
        f"{name}_{kind}": (f"{name}_API_KEY",)
        for name, kind in (
            *(
                ("OPENAI", "BASE_URL"),
                ("ANTHROPIC", "BASE_URL"),
                ("MISTRAL", "BASE_URL"),
                ("GROQ", "API_BASE"),
            ),
            *(
                ("DEEPSEEK", "API_BASE"),
                ("XAI", "API_BASE"),
                ("TOGETHER", "API_BASE"),
                ("FIREWORKS", "API_BASE"),
                ("OPENROUTER", "BASE_URL"),
            ),
        )
    },
    "AZURE_OPENAI_ENDPOINT": ("AZURE_OPENAI_API_KEY",),
}
"""Variable of a model server's address → those of its key. A key goes only to the address that it was set with."""

ERROR_HANDLER = "__error_handler__"
"""LangGraph's name of a node's error handler begins with it; the node's name follows."""
RAISED = "raised"
"""Route of a step whose node raised; no node has a label of this name."""


def is_hidden_node(node: str) -> bool:
    """Return whether LangGraph made the node, such as its start: no list of steps shows it."""
    return node.startswith("__") and not node.startswith(ERROR_HANDLER)


def node_display_name(node: str) -> str:
    """Return a node's name for people: that of an error handler says whose it is."""
    return f"{node.removeprefix(ERROR_HANDLER)}.error_handler" if node.startswith(ERROR_HANDLER) else node


LISTING = "langgraph.json"
"""Names a project's LangGraph graphs."""

WAIT = "wait_for_previous"
"""Accepted by every tool that can run in parallel: run it after the preceding calls (gemini-cli)."""
OTHER_NAMES = {
    # Claude Code's.
    "Bash": "run_shell_command",
    "Edit": "replace",
    "MultiEdit": "replace",
    "Write": "write_file",
    "Read": "read_file",
    "Grep": "grep_search",
    "Glob": "glob",
    "LS": "list_directory",
    "WebFetch": "web_fetch",
    "WebSearch": "web_search",
    "TodoWrite": "write_todos",
    "Task": "invoke_agent",
    # gemini-cli's classes, as named in its older settings.
    "ShellTool": "run_shell_command",
    "EditTool": "replace",
    "WriteFileTool": "write_file",
    "ReadFileTool": "read_file",
    "ReadManyFilesTool": "read_many_files",
    "GrepTool": "grep_search",
    "RipGrepTool": "grep_search",
    "GlobTool": "glob",
    "LSTool": "list_directory",
    "WebFetchTool": "web_fetch",
    "WebSearchTool": "web_search",
    # The task loop's.
    "execute_command": "run_shell_command",
    "write_to_file": "write_file",
    "search_files": "grep_search",
    "list_files": "list_directory",
    "apply_diff": "replace",
    "insert_content": "replace",
    "update_todo_list": "write_todos",
    "ask_followup_question": "ask_user",
}
"""Other name → ours. Where the other is a separate tool (the task loop's), rules for ours apply to it too."""
ELSEWHERE = frozenset({*("save_memory", "activate_skill", "get_internal_docs", "MemoryTool", "NotebookEdit")})
"""Tools we don't have: rules may name them for other programs that read the same file."""

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_MOST, _KEPT, _MARK = 63, 54, 8
"""Longest tool name every provider accepts; of longer names, the characters kept and those of the hash."""


_MOST_OF_SERVER, _KEPT_OF_SERVER = 40, 31


def mcp_server_key(server: str) -> str:
    """Return a server's name as its tools' names contain it: `@acme/magic` is `acme_magic`, as in gemini-cli.

    It begins with a letter or digit, as `mcp__` begins Claude Code's names of tools. A hash replaces the end of a long
    name.
    """
    key = _NOT_IN_NAMES.sub("_", server).lstrip("_-")
    if key and len(key) <= _MOST_OF_SERVER:
        return key
    return f"{key[:_KEPT_OF_SERVER] or 'server'}_{hashlib.sha256(server.encode()).hexdigest()[:_MARK]}"


def mcp_tool_prefix(server: str) -> str:
    """Return what the names of a server's tools begin with."""
    return f"mcp_{mcp_server_key(server)}_"


def mcp_tool_name(server: str, tool: str) -> str:
    """The name of a server's tool in rules and for models: letters, digits, `_` and `-`.

    A hash tells those apart of which other letters are lost, or the end.
    """
    name = f"{mcp_tool_prefix(server)}{_NOT_IN_NAMES.sub('_', tool)}"
    if len(name) <= _MOST and tool.isascii():
        return name
    whole = name if tool.isascii() else tool
    return f"{name[:_KEPT]}_{hashlib.sha256(whole.encode()).hexdigest()[:_MARK]}"


GIT_QUEUE = "git"
"""The queue of runs on git repositories: any worker with a folder for clones takes them."""
DELIVERIES = ("branch", "patch", "none")
"""What becomes of such a run's changes."""
