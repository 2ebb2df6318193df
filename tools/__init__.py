"""tools: what a model can call, one kind of tool per file; `table` lists them all."""

NAMES = (
    *("list_directory", "read_file", "read_many_files", "glob", "grep_search", "codebase_search"),
    "write_file",
    *("replace", "run_shell_command", "web_fetch", "web_search", "save_memory", "write_todos", "ask_user"),
    *("enter_plan_mode", "exit_plan_mode", "codebase_investigator", "invoke_agent", "activate_skill"),
    "find_skills",
    *("complete_task", "update_scratchpad"),
    *("apply_diff", "insert_content", "search_files", "list_files", "list_code_definition_names"),
    *("fetch_instructions", "browser_action", "generate_image", "execute_command", "write_to_file"),
    *("update_todo_list", "ask_followup_question", "use_mcp_tool", "access_mcp_resource", "switch_mode"),
    *("new_task", "attempt_completion"),
)
"""All of them, in the order in which models see them. Importing the table imports each."""
