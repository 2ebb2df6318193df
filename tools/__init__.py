"""tools: what a model can call. One file a tool; this is the table of them."""

from interlock.state.tooling import Tool
from interlock.tools import (
    activate_skill,
    apply_diff,
    ask_user,
    browser_action,
    codebase_investigator,
    codebase_search,
    complete_task,
    enter_plan_mode,
    exit_plan_mode,
    fetch_instructions,
    generate_image,
    glob,
    grep_search,
    insert_content,
    invoke_agent,
    list_code_definition_names,
    list_directory,
    list_files,
    read_file,
    read_many_files,
    replace,
    run_shell_command,
    save_memory,
    search_files,
    update_scratchpad,
    web_fetch,
    web_search,
    write_file,
    write_todos,
)

TOOLS: dict[str, Tool] = {
    "list_directory": list_directory.TOOL,
    "read_file": read_file.TOOL,
    "read_many_files": read_many_files.TOOL,
    "glob": glob.TOOL,
    "grep_search": grep_search.TOOL,
    "codebase_search": codebase_search.TOOL,
    "write_file": write_file.TOOL,
    "replace": replace.TOOL,
    "run_shell_command": run_shell_command.TOOL,
    "web_fetch": web_fetch.TOOL,
    "web_search": web_search.TOOL,
    "save_memory": save_memory.TOOL,
    "write_todos": write_todos.TOOL,
    "ask_user": ask_user.TOOL,
    "enter_plan_mode": enter_plan_mode.TOOL,
    "exit_plan_mode": exit_plan_mode.TOOL,
    "codebase_investigator": codebase_investigator.TOOL,
    "invoke_agent": invoke_agent.TOOL,
    "activate_skill": activate_skill.TOOL,
    "complete_task": complete_task.TOOL,
    "update_scratchpad": update_scratchpad.TOOL,
    "apply_diff": apply_diff.TOOL,
    "insert_content": insert_content.TOOL,
    "search_files": search_files.TOOL,
    "list_files": list_files.TOOL,
    "list_code_definition_names": list_code_definition_names.TOOL,
    "fetch_instructions": fetch_instructions.TOOL,
    "browser_action": browser_action.TOOL,
    "generate_image": generate_image.TOOL,
}
"""In the order in which models are told of them."""
TASK_LOOP = frozenset(
    {
        *("apply_diff", "insert_content", "search_files", "list_files", "list_code_definition_names"),
        *("fetch_instructions", "browser_action", "generate_image"),
    }
)
"""Only the task loop is told of these; elsewhere others do the same."""
