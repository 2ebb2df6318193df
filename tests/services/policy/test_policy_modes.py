"""The default matrix, tiers, scopes and conditions of plain tools."""

import pytest

from interlock.services.policy.rule import Scope
from interlock.state.calls import Risk

MATRIX = [
    # risk, default, auto_edit, yolo, plan
    ("read", "allow", "allow", "allow", "deny"),
    ("question", "allow", "allow", "allow", "allow"),
    ("state", "allow", "allow", "allow", "deny"),
    ("write", "ask", "allow", "allow", "deny"),
    ("execute", "ask", "ask", "allow", "deny"),
    ("network", "ask", "ask", "allow", "deny"),
]


@pytest.mark.parametrize(("risk", "default", "auto_edit", "yolo", "plan"), MATRIX)
def test_the_default_matrix(make, call, risk: Risk, default, auto_edit, yolo, plan) -> None:
    policy, problems = make()
    assert problems == []
    modes = ("default", "auto_edit", "yolo", "plan")
    got = [policy.check(call("some_tool", x=1), risk, mode).decision for mode in modes]
    assert got == [default, auto_edit, yolo, plan]


def test_gemini_clis_spelling_of_a_mode_is_accepted(make, call) -> None:
    policy, _ = make()
    assert policy.check(call("write_file"), "write", "autoEdit").decision == "allow"


def test_the_reason_is_a_sentence_that_names_what_and_why(make, call, shell) -> None:
    policy, _ = make()
    asked = policy.check(shell("npm install"), "execute", "default")
    assert asked.reason == "`npm install` isn't covered by a rule; shell commands ask in mode default."
    assert asked.rule.startswith("shipped rule default.toml:")
    both = policy.check(shell("npm install && npm test"), "execute", "default")
    assert both.reason == (
        "2 of 2 commands aren't covered by a rule: `npm install`, `npm test`; shell commands ask in mode default."
    )
    assert [p.text for p in both.parts] == ["npm install", "npm test"]
    denied = policy.check(call("write_file"), "write", "plan")
    assert denied.reason == "`write_file` changes files, which mode plan does not allow."
    assert denied.deny_message is not None and "plan" in denied.deny_message.lower()


def test_the_deciding_rule_is_named_with_file_and_line(make, call, tmp_path) -> None:
    policy, _ = make(
        user='# first line\n\n[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 5\n'
        'denyMessage = "Ask the owner."\n'
    )
    verdict = policy.check(call("write_file"), "write", "yolo")
    assert verdict.rule == f"user rule {tmp_path / 'user.toml'}:3"
    assert verdict.deny_message == "Ask the owner."
    assert "Ask the owner" in verdict.reason


def rule(tool: str, decision: str, priority: int, more: str = "") -> str:
    return f'[[rule]]\ntoolName = "{tool}"\ndecision = "{decision}"\npriority = {priority}\n{more}\n'


def test_a_higher_tier_wins_whatever_the_priorities(make, call) -> None:
    policy, _ = make(workspace=rule("w", "allow", 999), user=rule("w", "deny", 0))
    assert policy.check(call("w"), "write", "default").decision == "deny"
    policy, _ = make(user=rule("w", "deny", 999), admin=rule("w", "allow", 0))
    assert policy.check(call("w"), "write", "default").decision == "allow"


def test_a_higher_priority_wins_within_a_tier_and_the_stricter_at_equal_ones(make, call) -> None:
    policy, problems = make(user=rule("w", "allow", 5) + rule("w", "deny", 4))
    assert (policy.check(call("w"), "write", "default").decision, problems) == ("allow", [])
    policy, problems = make(user=rule("w", "allow", 5) + rule("w", "deny", 5))
    assert policy.check(call("w"), "write", "default").decision == "deny"
    assert len(problems) == 1 and "user.toml:6: deny here, allow in" in str(problems[0])


@pytest.mark.parametrize(
    ("more", "name", "met"),
    [
        ('modes = ["yolo"]', "w", False),
        ('modes = ["default", "autoEdit"]', "w", True),
        ("interactive = true", "w", False),
        ("interactive = false", "w", True),
        ('subagent = "helper"', "w", False),
        ("toolAnnotations = { readOnlyHint = false }", "w", True),
        ("toolAnnotations = { readOnlyHint = true }", "w", False),
        ("toolAnnotations = { destructiveHint = true }", "w", False),
        ('argsPattern = "\\"path\\":\\"src/"', "w", True),
        ('argsPattern = "\\"path\\":\\"lib/"', "w", False),
        ('argsPattern = "^\\\\{\\\\x00\\"a\\""', "w", True),
    ],
)
def test_a_rule_is_met_only_with_all_its_conditions(make, call, more, name, met) -> None:
    policy, problems = make(user=rule("w", "deny", 5, more))
    assert problems == []
    verdict = policy.check(call(name, path="src/x", a=1), "write", "default")
    assert (verdict.decision == "deny") is met


def test_an_args_pattern_never_meets_a_call_without_arguments(make, call) -> None:
    policy, _ = make(user=rule("w", "deny", 5, 'argsPattern = ".*"'))
    assert policy.check(call("w"), "write", "default").decision == "ask"
    assert policy.check(call("w", a=1), "write", "default").decision == "deny"


def test_a_rule_for_a_sub_agent_is_only_about_its_calls(make, call) -> None:
    policy, _ = make(user=rule("w", "allow", 5, 'subagent = "helper"'), scope=Scope(agent="helper"))
    assert policy.check(call("w"), "write", "default").decision == "allow"


def test_tool_names_are_exact_or_star_or_mcp(make, call) -> None:
    servers = frozenset({"a", "a_b"})
    policy, _ = make(user=rule("mcp_a_*", "deny", 5), scope=Scope(servers=servers))
    assert policy.check(call("mcp_a_t"), "execute", "default").decision == "deny"
    assert policy.check(call("mcp_b_t"), "execute", "default").decision == "ask"
    policy, _ = make(user=rule("*", "allow", 5, 'mcpName = "a"'), scope=Scope(servers=servers))
    assert policy.check(call("mcp_a_t"), "execute", "default").decision == "allow"
    assert policy.check(call("mcp_a_b_t"), "execute", "default").decision == "ask"
    assert policy.check(call("other"), "execute", "default").decision == "ask"


def test_an_allow_for_a_server_that_is_not_known_allows_nothing_and_a_deny_still_denies(make, call) -> None:
    policy, _ = make(user=rule("*", "allow", 5, 'mcpName = "a"'))
    assert policy.check(call("mcp_a_t"), "execute", "default").decision == "ask"
    policy, _ = make(user=rule("*", "deny", 5, 'mcpName = "a"'))
    assert policy.check(call("mcp_a_t"), "execute", "default").decision == "deny"


def test_settings_allow_and_exclude_tools(make, call, shell) -> None:
    tools = {
        "allowed": ["write_file", "run_shell_command(npm test)"],
        "exclude": ["web_fetch", "ShellTool(rm)"],
    }
    policy, problems = make(settings={"tools": tools})
    assert problems == []
    assert policy.check(call("write_file"), "write", "default").rule == "settings tools.allowed 'write_file'"
    assert policy.check(shell("npm test -- -x"), "execute", "default").decision == "allow"
    assert policy.check(shell("npm test; ls"), "execute", "default").decision == "ask"
    assert policy.check(shell("npm test > x"), "execute", "default").decision == "ask"
    assert policy.check(shell("ls; rm x"), "execute", "yolo").decision == "deny"
    assert policy.check(call("web_fetch"), "network", "yolo").decision == "deny"


def test_a_setting_that_cannot_be_read_allows_nothing_and_an_unreadable_exclusion_asks(make, call) -> None:
    policy, problems = make(settings={"tools": {"allowed": ["write_file(x)", "a b"]}})
    assert policy.check(call("write_file"), "write", "default").decision == "ask"
    assert ["settings tools.allowed" in str(p) for p in problems] == [True, True]
    for setting in ("exclude", "confirmationRequired"):
        policy, problems = make(settings={"tools": {setting: ["write_file(x)"]}})
        assert policy.check(call("write_file"), "write", "yolo").decision == "ask"
        assert len(problems) == 1


def test_settings_name_what_is_asked_about_and_what_there_is_at_all(make, call, shell) -> None:
    tools = {"allowed": ["write_file"], "confirmationRequired": ["write_file", "run_shell_command(git push)"]}
    policy, problems = make(settings={"tools": tools})
    assert problems == []
    assert policy.check(call("write_file"), "write", "yolo").decision == "ask"
    assert policy.check(shell("ls; git push"), "execute", "yolo").decision == "ask"
    assert policy.check(shell("ls"), "execute", "yolo").decision == "allow"
    policy, _ = make(settings={"tools": {"core": ["read_file", "ShellTool(git log)"]}})
    assert policy.check(call("read_file"), "read", "default").decision == "allow"
    assert policy.check(shell("git log -3"), "execute", "default").decision == "allow"
    assert policy.check(shell("git log; ls"), "execute", "yolo").decision == "deny"
    assert policy.check(call("glob"), "read", "default").rule == "settings tools.core"
    assert policy.check(call("complete_task"), "state", "default").decision == "allow"
    assert policy.check(call("ask_user"), "question", "default").decision == "allow"
    assert policy.check(call("glob"), "read", "plan").decision == "allow"


def test_an_alias_of_the_shell_tool_is_met_by_its_rules(make, call) -> None:
    policy, _ = make(settings={"tools": {"exclude": ["run_shell_command(rm)"]}})
    assert policy.check(call("execute_command", command="ls && rm x"), "execute", "yolo").decision == "deny"


@pytest.mark.parametrize(
    ("decision", "plan_file", "other"),
    [("allow", "allow", "deny"), ("ask", "ask", "deny"), ("deny", "deny", "deny")],
)
def test_in_plan_mode_a_users_rule_can_only_make_it_stricter(
    make, call, workspace, tmp_path, decision, plan_file, other
) -> None:
    policy, _ = make(user=rule("write_file", decision, 5))
    workspace.plans = tmp_path / "plans"
    plan = call("write_file", file_path=str(workspace.plans / "x.md"))
    assert policy.check(plan, "write", "plan").decision == plan_file
    assert policy.check(call("write_file", file_path="x.md"), "write", "plan").decision == other
    claimed = policy.check(call("write_file", file_path="x.md"), "write", "plan", [], {"planFile": True})
    assert claimed.decision == other
