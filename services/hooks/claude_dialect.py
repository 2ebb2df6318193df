"""claude_dialect: hooks as Claude Code's settings define them: its matchers, its input, and its replies as ours."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from pydantic import JsonValue

from interlock.services.policy.rule import find_longest_matching_server
from interlock.state.names import mcp_server_key, mcp_tool_prefix
from interlock.state.run import HookEvent

EVENTS: Mapping[str, HookEvent] = {
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",
    "PreCompact": "PreCompress",
    "SessionStart": "SessionStart",
    "SessionEnd": "SessionEnd",
    "Notification": "Notification",
}
"""Claude Code's events that exist here → ours."""
OTHER_EVENTS = frozenset(
    {
        "Setup",
        "InstructionsLoaded",
        "UserPromptExpansion",
        "MessageDisplay",
        "PermissionRequest",
        "PostToolUseFailure",
        "PostToolBatch",
        "PermissionDenied",
        "SubagentStart",
        "SubagentStop",
        "TaskCreated",
        "TaskCompleted",
        "StopFailure",
        "TeammateIdle",
        "ConfigChange",
        "CwdChanged",
        "DirectoryAdded",
        "FileChanged",
        "WorktreeCreate",
        "WorktreeRemove",
        "PostCompact",
        "Elicitation",
        "ElicitationResult",
    }
)
"""Its other events."""
_THEIRS: Mapping[HookEvent, str] = {ours: theirs for theirs, ours in EVENTS.items()}
_TOOLS: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "run_shell_command": ("Bash", {"is_background": "run_in_background"}),
    "read_file": ("Read", {"start_line": "offset"}),
    "write_file": ("Write", {}),
    "replace": ("Edit", {}),
    "grep_search": ("Grep", {"dir_path": "path", "include_pattern": "glob"}),
    "glob": ("Glob", {"dir_path": "path"}),
    "list_directory": ("LS", {"dir_path": "path"}),
    "web_fetch": ("WebFetch", {}),
    "web_search": ("WebSearch", {}),
    "write_todos": ("TodoWrite", {}),
    "invoke_agent": ("Task", {"agent_name": "subagent_type"}),
    "activate_skill": ("Skill", {"name": "skill"}),
    "ask_user": ("AskUserQuestion", {}),
    "exit_plan_mode": ("ExitPlanMode", {}),
}
"""Our tool → Claude Code's name, and its names of arguments that differ."""
_SAME = {"execute_command": "run_shell_command", "write_to_file": "write_file", "search_files": "grep_search"}
"""The task loop's tools that Claude Code has one for."""
_PATHS = frozenset({"file_path", "path", "dir_path", "notebook_path"})
_EXACT = re.compile(r"[\w,\-| ]+")
TIMEOUTS_S: Mapping[str, float] = {"UserPromptSubmit": 30, "SessionEnd": 1.5}
TIMEOUT_S = 600.0
_ONLY_TOLD: frozenset[HookEvent] = frozenset({"SessionStart", "SessionEnd", "Notification"})
"""Exit code 2 stops nothing there."""


def exact_matcher_names(text: str) -> frozenset[str] | None:
    """Return the names that a matcher lists; None if it is a regular expression."""
    if not _EXACT.fullmatch(text):
        return None
    return frozenset(name.strip() for name in re.split(r"[|,]", text) if name.strip())


def claude_tool_names(names: frozenset[str]) -> frozenset[str]:
    """Return those of a tool's names that Claude Code knows, all if it knows none."""
    theirs = {name for name, _ in _TOOLS.values()}
    known = frozenset(name for name in names if name in theirs or name.startswith("mcp__"))
    return known or names


def to_claude_input(
    event: HookEvent, payload: Mapping[str, JsonValue], workspace: Path, servers: frozenset[str]
) -> dict[str, JsonValue]:
    """Return a hook's input in Claude Code's names: of the event, the tool and its arguments; paths are absolute."""
    made: dict[str, JsonValue] = {
        **payload,
        "hook_event_name": _THEIRS.get(event, event),
        "transcript_path": "",
        "permission_mode": "default",
    }
    tool, args = payload.get("tool_name"), payload.get("tool_input")
    if isinstance(tool, str):
        made["tool_name"] = _to_claude_tool_name(tool, servers)
        if isinstance(args, dict):
            made["tool_input"] = _to_claude_arguments(tool, args, workspace)
    response = payload.get("tool_response")
    if isinstance(response, dict):
        made["tool_response"] = _to_claude_response(made, response)
    if event == "AfterAgent":
        made["last_assistant_message"] = payload.get("prompt_response", "")
    return made


def _to_claude_response(
    made: Mapping[str, JsonValue], response: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return a tool's result with the fields that Claude Code's tool of that name has."""
    args, tool = made.get("tool_input"), made.get("tool_name")
    if tool == "Bash":
        text = str(response.get("llmContent", "")).removeprefix("Output:\n")
        return {**response, "stdout": text, "stderr": "", "interrupted": False}
    if tool in ("Write", "Edit") and isinstance(args, dict):
        return {**response, "filePath": args.get("file_path"), "success": "error" not in response}
    return {**response}


def _to_claude_tool_name(tool: str, servers: frozenset[str]) -> str:
    """Return Claude Code's name of a tool; ours if it has none."""
    if server := find_longest_matching_server(tool, servers):
        return f"mcp__{mcp_server_key(server)}__{tool.removeprefix(mcp_tool_prefix(server))}"
    return _find_claude_tool(tool)[0]


def _find_claude_tool(tool: str) -> tuple[str, Mapping[str, str]]:
    """Return Claude Code's name of a tool, or ours if it has none, and its names of arguments that differ."""
    return _TOOLS.get(_SAME.get(tool, tool), (tool, {}))


def _to_claude_arguments(tool: str, args: Mapping[str, JsonValue], workspace: Path) -> dict[str, JsonValue]:
    _, names = _find_claude_tool(tool)
    return {
        names.get(key, key): os.path.normpath(workspace / value)
        if key in _PATHS and isinstance(value, str)
        else value
        for key, value in args.items()
    }


def from_claude_arguments(
    tool: str, args: Mapping[str, JsonValue], changed: Mapping[str, JsonValue], workspace: Path
) -> dict[str, JsonValue]:
    """Return our arguments of a call with those that a hook changed: what it left as it was given stays as it is."""
    ours = {theirs: key for key, theirs in _find_claude_tool(tool)[1].items()}
    given = _to_claude_arguments(tool, args, workspace)
    return {
        **args,
        **{ours.get(key, key): value for key, value in changed.items() if given.get(key) != value},
    }


def is_context_of_plain_text(event: HookEvent) -> bool:
    """Return whether plain text on stdout is for the model."""
    return event in ("SessionStart", "BeforeAgent")


def is_only_told(event: HookEvent) -> bool:
    """Return whether a hook's refusal stops nothing, and people are told of it."""
    return event in _ONLY_TOLD
