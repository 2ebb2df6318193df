"""tools: what a model can call. One file a tool; this is the table of them."""

from interlock.state.tooling import Tool
from interlock.tools import (
    ask_user,
    codebase_investigator,
    complete_task,
    enter_plan_mode,
    exit_plan_mode,
    glob,
    grep_search,
    invoke_agent,
    list_directory,
    read_file,
    read_many_files,
    replace,
    run_shell_command,
    save_memory,
    update_scratchpad,
    web_fetch,
    write_file,
    write_todos,
)

TOOLS: dict[str, Tool] = {
    "list_directory": list_directory.TOOL,
    "read_file": read_file.TOOL,
    "read_many_files": read_many_files.TOOL,
    "glob": glob.TOOL,
    "grep_search": grep_search.TOOL,
    "write_file": write_file.TOOL,
    "replace": replace.TOOL,
    "run_shell_command": run_shell_command.TOOL,
    "web_fetch": web_fetch.TOOL,
    "save_memory": save_memory.TOOL,
    "write_todos": write_todos.TOOL,
    "ask_user": ask_user.TOOL,
    "enter_plan_mode": enter_plan_mode.TOOL,
    "exit_plan_mode": exit_plan_mode.TOOL,
    "codebase_investigator": codebase_investigator.TOOL,
    "invoke_agent": invoke_agent.TOOL,
    "complete_task": complete_task.TOOL,
    "update_scratchpad": update_scratchpad.TOOL,
}
"""In the order in which models are told of them."""
