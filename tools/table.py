"""table: every tool a model can call, and which are offered where."""

from importlib import import_module

from interlock.state.entry_points import is_part_installed
from interlock.state.errors import SetupError
from interlock.state.names import OTHER_NAMES
from interlock.state.tooling import Tool
from interlock.tools import NAMES

_MODULES = (
    *("apply_diff", "browser.action", "codebase_search", "control", "generate_image", "grep_search"),
    *("list_code_definition_names", "list_directory", "questions", "read_file", "replace"),
    *("run_shell_command", "save_memory", "web", "write_file"),
)
_PARTS = {"browser.action": "browser", "codebase_search": "index"}
"""Modules with a tool of a part that an installation can lack (`docs/plugins.md`)."""


def _load_installed_tools() -> dict[str, Tool]:
    """Import every tool whose part is here. Raise `SetupError` if a tool is in only one of NAMES and _MODULES."""
    here = [name for name in _MODULES if name not in _PARTS or is_part_installed(_PARTS[name])]
    modules = (import_module(f"interlock.tools.{name}") for name in here)
    found = {
        tool.name: tool for module in modules for tool in vars(module).values() if isinstance(tool, Tool)
    }
    if unlisted := found.keys() - set(NAMES):
        raise SetupError(
            f"Add to NAMES in tools/__init__.py, in the order that models see: {sorted(unlisted)}."
        )
    if len(here) == len(_MODULES) and (missing := set(NAMES) - found.keys()):
        raise SetupError(
            f"Add the module of {sorted(missing)} to _MODULES in tools/table.py: NAMES in tools/__init__.py has them."
        )
    return found


_FOUND = _load_installed_tools()
TOOLS: dict[str, Tool] = {name: _FOUND[name] for name in NAMES if name in _FOUND}
"""In the order in which models see them."""
ALIASES = {**OTHER_NAMES, **{alias: tool.name for tool in TOOLS.values() for alias in tool.aliases}}
"""Other programs' and earlier names of tools → ours."""
TASK_LOOP = frozenset(
    {
        *("apply_diff", "insert_content", "search_files", "list_files", "list_code_definition_names"),
        *("fetch_instructions", "browser_action", "generate_image"),
        *("execute_command", "write_to_file", "update_todo_list", "ask_followup_question"),
        *("use_mcp_tool", "access_mcp_resource", "switch_mode", "new_task", "attempt_completion"),
    }
)
"""Only offered in the task loop; elsewhere other tools do the same."""
_FEW = ("read_file", "list_directory", "grep_search", "replace", "write_file", "run_shell_command")
_FEW_OF_TASK = (
    *("read_file", "search_files", "replace", "write_to_file", "execute_command"),
    "attempt_completion",
)
_FEW_OF_PLANS = ("read_file", "list_directory", "grep_search", "write_file", "exit_plan_mode")


def most_important_tool_names(workflow: str, approval_mode: str) -> tuple[str, ...]:
    """Return the tools that matter most, for models that get a short prompt."""
    if workflow == "task":
        return _FEW_OF_TASK
    return _FEW_OF_PLANS if approval_mode == "plan" else _FEW


OTHERS_OF_TASK = frozenset(
    {
        *("list_directory", "grep_search", "write_file", "replace", "run_shell_command", "write_todos"),
        *("ask_user", "enter_plan_mode", "exit_plan_mode", "invoke_agent"),
    }
)
"""Not offered in the task loop, which has equivalents under other names."""
