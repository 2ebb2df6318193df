"""The `mode` pipeline, calls passed as text, and the task loop's settings as policy rules."""

from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Stage, approve, call

from interlock.engine.diagrams import declared_edges
from interlock.state.errors import InputError
from interlock.state.names import mcp_tool_name

DONE = {"tool_calls": [call("attempt_completion", result="ok")]}


def test_modes_are_listed_and_asked_about_and_switched(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [])
    (stage.work / "link.md").symlink_to("a.py")
    listed = stage.run("mode", {})
    assert (len(listed.output["modes"]), listed.output["current"]) == (5, "architect")
    taken = stage.edges(listed)
    for tool, path, allowed in (
        ("write_to_file", "a.py", False),
        ("write_file", "b.md", True),
        ("apply_diff", "docs/../a.py", False),
        ("replace", "link.md", False),
        ("insert_content", "../x.md", False),
        ("execute_command", None, False),
        ("read_file", "a.py", True),
        ("write_to_file", None, False),
    ):
        given = {"tool": tool, "mode": "architect", **({"path": path, "content": ""} if path else {})}
        asked = stage.run("mode", given)
        assert (asked.status, asked.output["allowed"]) == ("done", allowed), (
            tool,
            path,
            asked.output.get("error"),
        )
        assert allowed or "'architect'" in asked.output["error"]["message"]
        taken |= stage.edges(asked)
    switch = stage.run("mode", {"switch_to": "code", "reason": "to build"})
    assert (switch.status, switch.pending[0]["tool_name"]) == ("waiting", "switch_mode")
    switched = stage.resume(switch, *approve(switch))
    assert (switched.status, switched.output["current"]) == ("done", "code")
    taken |= stage.edges(switched)
    refused = stage.run("mode", {"switch_to": "code", "mode": "ask"})
    refused = stage.resume(refused, *approve(refused, "reject"))
    assert (refused.output["current"], refused.output["error"]["type"]) == ("ask", "rejected")
    unknown = stage.run("mode", {"switch_to": "cod"})
    assert "no mode has this slug" in unknown.output["error"]["message"]
    assert {e for e in declared_edges("mode") if e[0] == "mode"} - taken == set()


def test_a_mode_given_to_a_run_that_takes_no_prompt_says_that_it_doesnt_count(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [])
    switch = stage.run("mode", {"switch_to": "code", "reason": "to build"})
    switched = stage.resume(switch, *approve(switch), approval_mode="yolo")
    (line,) = [one for one in switched.warnings if "'yolo'" in one]
    assert (
        line
        == "approval mode 'yolo' doesn't count: this run goes on as it began, and takes no further prompt."
    )


def test_a_batch_may_come_as_text(tmp_path: Path) -> None:
    stage = Stage(tmp_path, [])
    text = "Look:\n<read_file><path>a.py</path></read_file><execute_command><command>echo 1</command></execute_command>"
    outcome = stage.run("tools", {"text": text, "protocol": "xml"}, approval_mode="yolo")
    told = [(r["name"], r["status"], r["content"]) for r in outcome.output["responses"]]
    assert told == [("read_file", "success", "def f(): pass"), ("execute_command", "success", "Output:\n1")]
    assert ("tools", "parse_xml", "parse") in stage.edges(outcome)
    fenced = 'Look:\n```json\n{"name": "read_file", "args": {"path": "a.py"}}\n```'
    outcome = stage.run("tools", {"text": fenced, "protocol": "json"})
    assert [r["content"] for r in outcome.output["responses"]] == ["def f(): pass"]
    broken = stage.run("tools", {"text": "<read_file><path>a", "protocol": "xml"})
    assert "ended before </path>" in str(broken.error)
    assert "holds no call" in str(stage.run("tools", {"text": "no call"}).error)
    with pytest.raises(InputError, match="either calls or text"):
        stage.run("tools", {})


def decided(tmp_path: Path, settings: dict[str, Any], tool: str, **args: Any) -> str:
    """allow, ask or deny."""
    stage = Stage(tmp_path, [{"tool_calls": [call(tool, **args)]}, DONE], settings={"task": settings})
    outcome = stage.run("task", {"prompt": "x", "mode": "code"})
    if outcome.status == "waiting":
        return "ask"
    (row,) = stage.rows("select result from journal where tool = $1", tool)
    return "deny" if '"policy_violation"' in row["result"] else "allow"


WRITE = {"path": "b.txt", "content": "x"}
RUN = {
    "alwaysAllowExecute": True,
    "allowedCommands": ["echo", "git log"],
    "deniedCommands": ["echo no", "git"],
}


@pytest.mark.parametrize(
    ("settings", "tool", "args", "want"),
    [
        ({}, "write_to_file", WRITE, "ask"),
        ({"alwaysAllowWrite": True}, "write_to_file", WRITE, "allow"),
        ({"alwaysAllowWrite": True}, "write_to_file", {"path": ".roomodes", "content": "x"}, "ask"),
        ({"alwaysAllowWrite": True, "autoApprovalEnabled": False}, "write_to_file", WRITE, "ask"),
        ({"alwaysAllowWrite": True}, "execute_command", {"command": "make"}, "ask"),
        (RUN, "execute_command", {"command": "echo yes"}, "allow"),
        (RUN, "execute_command", {"command": "echo no"}, "deny"),
        (RUN, "execute_command", {"command": "echo yes && make"}, "ask"),
        (RUN, "execute_command", {"command": "echo yes; git push"}, "deny"),
        ({"alwaysAllowModeSwitch": True}, "switch_mode", {"mode_slug": "ask"}, "allow"),
        ({"alwaysAllowModeSwitch": True}, "new_task", {"mode": "ask", "message": "x"}, "ask"),
    ],
)
def test_settings_of_roo_code_are_rules(
    settings: dict[str, Any], tool: str, args: dict[str, Any], want: str, tmp_path: Path
) -> None:
    assert decided(tmp_path, settings, tool, **args) == want


def test_a_servers_tools_and_its_resources_are_allowed_by_a_setting_each() -> None:
    from interlock.services.policy.workspace_rules import rules_from_settings
    from interlock.state.settings import Settings

    servers = {"s": {"command": "x", "alwaysAllow": ["look"]}, "t": {"command": "x"}}
    settings = Settings.model_validate({"task": {"alwaysAllowMcp": True}, "mcpServers": servers})
    look, *resources = (
        mcp_tool_name("s", "look"),
        mcp_tool_name("s", "read_resource"),
        mcp_tool_name("t", "read_resource"),
    )
    assert [rule.tools for rule in rules_from_settings(settings)[0]] == [(look,), (*resources,)]
    for task, rules in (({}, [(look,)]), ({"autoApprovalEnabled": False}, [])):
        settings = Settings.model_validate({"task": task, "mcpServers": servers})
        assert [rule.tools for rule in rules_from_settings(settings)[0]] == rules
