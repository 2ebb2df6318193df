"""Other names of arguments: what models write is taken as the tool's own, before rules, hooks and records see it."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import execute, one_call, response

from interlock.tools.call_arguments import normalize_argument_names


@pytest.mark.parametrize(
    ("tool", "args", "own"),
    [
        ("read_file", {"path": 1, "startLine": 2}, {"file_path": 1, "start_line": 2}),
        (
            "replace",
            {"file": 1, "old_text": 2, "newString": 3},
            {"file_path": 1, "old_string": 2, "new_string": 3},
        ),
        ("run_shell_command", {"cmd": 1, "cwd": 2}, {"command": 1, "dir_path": 2}),
        ("execute_command", {"cmd": 1, "directory": 2}, {"command": 1, "cwd": 2}),
        ("search_file_content", {"query": 1, "path": 2}, {"pattern": 1, "dir_path": 2}),
        ("write_file", {"filename": 1, "file_text": 2}, {"file_path": 1, "content": 2}),
        ("exit_plan_mode", {"plan_path": 1}, {"plan_filename": 1}),
        ("invoke_agent", {"subagent_type": 1, "prompt": 2}, {"agent_name": 1, "prompt": 2}),
        # Twice the same, a name that means nothing here, somebody else's tool: nobody guesses.
        ("read_file", {"path": 1, "file": 2}, {"path": 1, "file": 2}),
        ("read_file", {"file_path": 1, "path": 2}, {"file_path": 1, "path": 2}),
        ("read_file", {"file_path": 1, "cmd": 2}, {"file_path": 1, "cmd": 2}),
        ("mcp_files_read", {"path": 1}, {"path": 1}),
    ],
)
def test_a_name_that_can_mean_one_argument_is_that_argument(
    tool: str, args: dict[str, Any], own: dict[str, Any]
) -> None:
    assert normalize_argument_names(tool, args) == own


def test_rules_decide_by_the_own_names(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hidden\n")
    (tmp_path / "open.txt").write_text("shown\n")
    rule = tmp_path / "rule.toml"
    pattern = json.dumps('"file_path":"secret')
    rule.write_text(
        f'[[rule]]\ntoolName = "read_file"\ndecision = "deny"\npriority = 900\nargsPattern = {pattern}\n'
    )
    found = [
        response(execute(tmp_path, *one_call("read_file", path=name), "--policy", str(rule)))["status"]
        for name in ("secret.txt", "open.txt")
    ]
    assert found == ["error", "success"]
