"""A tool, an agent and a server are denied under all their names; rules that match nothing are reported."""

import pytest

from interlock.services.hooks.configured import matcher, subjects_of
from interlock.services.policy.rule import Scope

ONE = '[[rule]]\ntoolName = "{tool}"\ndecision = "{decision}"\npriority = 500\n{more}\n'


def rule(tool: str, decision: str = "deny", more: str = "") -> str:
    return ONE.format(tool=tool, decision=decision, more=more)


@pytest.mark.parametrize(
    ("named", "called", "args"),
    [
        ("grep_search", "search_file_content", {}),
        ("search_file_content", "grep_search", {}),
        ("search_file_content", "search_file_content", {}),
        ("Grep", "grep_search", {}),
        ("GrepTool", "search_file_content", {}),
        ("Edit", "replace", {}),
        ("WriteFileTool", "write_file", {}),
        ("codebase_investigator", "invoke_agent", {"agent_name": "codebase_investigator"}),
        ("generalist", "invoke_agent", {"agent_name": "generalist", "prompt": "x"}),
        ("Task", "invoke_agent", {"agent_name": "generalist"}),
        ("mcp__docs__put", "mcp_docs_put", {}),
        ("mcp__docs__*", "mcp_docs_put", {}),
        ("mcp__docs", "mcp_docs_put", {}),
    ],
)
def test_a_tool_and_an_agent_are_denied_under_all_their_names(make, call, named, called, args) -> None:
    policy, problems = make(user=rule(named))
    assert problems == []
    for mode in ("default", "yolo"):
        assert policy.check(call(called, **args), "read", mode).decision == "deny"
    allowing, _ = make(user=rule("*") + rule(named, "allow").replace("500", "600"))
    agent = named == "codebase_investigator"  # a tool, too
    expected = "deny" if agent else "allow"
    assert allowing.check(call(called, **args), "read", "default").decision == expected, (
        "no agent by a tool's name"
    )


def test_an_agent_that_is_denied_among_the_arguments_is_denied_as_a_tool(make, call) -> None:
    pattern = 'argsPattern = \'"agent_name":"codebase_investigator"\''
    policy, _ = make(user=rule("invoke_agent", more=pattern))
    assert policy.check(call("codebase_investigator", objective="x"), "read", "yolo").decision == "deny"
    assert policy.check(call("invoke_agent", agent_name="other"), "read", "yolo").decision == "allow"


def test_settings_deny_under_all_names(make, call, shell) -> None:
    policy, _ = make(settings={"tools": {"exclude": ["search_file_content", "execute_command(rm)"]}})
    assert policy.check(call("grep_search", pattern="x"), "read", "yolo").decision == "deny"
    assert policy.check(shell("rm x"), "execute", "yolo").decision == "deny"


@pytest.mark.parametrize("decision", ["deny", "allow"])
def test_a_servers_tool_may_be_named_as_its_server_names_it(make, call, decision) -> None:
    policy, _ = make(
        user=rule("put", decision, 'mcpName = "docs"'), scope=Scope(servers=frozenset({"docs", "docs_two"}))
    )
    got = {
        name: policy.check(call(name, x=1), "execute", "default").decision
        for name in ("mcp_docs_put", "mcp_docs_get", "mcp_docs_two_put", "put")
    }
    assert got == {"mcp_docs_put": decision, "mcp_docs_get": "ask", "mcp_docs_two_put": "ask", "put": "ask"}


@pytest.mark.parametrize(
    ("text", "tool", "args"),
    [
        ("^grep_search$", "search_file_content", {}),
        ("^search_file_content$", "grep_search", {}),
        ("^generalist$", "invoke_agent", {"agent_name": "generalist"}),
        ("^Bash$", "run_shell_command", {}),
        ("^mcp__docs_two__put_all$", "mcp_docs_two_put_all", {}),
    ],
)
def test_hooks_match_every_name(text, tool, args) -> None:
    found, problem = matcher("BeforeTool", text)
    assert problem == "" and found.matches(subjects_of("BeforeTool", tool, {"tool_input": args}))
    assert not found.matches(subjects_of("BeforeTool", "glob", {"tool_input": args}))


IDLE = [
    (rule("wirte_file"), "unknown tool 'wirte_file'; did you mean 'write_file'?"),
    (rule("glob", more='subagent = "nobody"'), "unknown agent 'nobody'"),
    (rule("put", more='mcpName = "dcos"'), "unknown MCP server 'dcos'; did you mean 'docs'?"),
    (rule("*", more='toolAnnotations = { risk = "writes" }'), "unknown risk 'writes'"),
    (rule("run_shell_command", more='commandPrefix = "git add && git push"'), "no command has the word '&&'"),
    (rule("run_shell_command", more='commandPrefix = "npm *"'), "no command has the word '*'"),
    (rule("run_shell_command", more='commandRegex = " git"'), "a command begins with its program"),
    (rule("run_shell_command", more='commandRegex = "git$ push"'), "'^' and '$' stand for"),
    (rule("write_file", more="argsPattern = '^\"file_path\"'"), "the arguments begin with {"),
    (rule("write_file", "allow", 'modes = ["plan"]'), "what plan mode may do is fixed"),
]


@pytest.mark.parametrize(("text", "said"), IDLE)
def test_a_rule_that_is_about_nothing_is_reported(make, text, said) -> None:
    policy, problems = make(user=text)
    assert problems == []
    (problem,) = policy.books.idle(["generalist"], ["docs"])
    assert said in problem.text and problem.source.endswith("user.toml:1")


@pytest.mark.parametrize(
    "text",
    [
        rule("Bash"),
        rule("save_memory"),
        rule("generalist"),
        rule("mcp_any_*"),
        rule("*", more='subagent = "generalist"'),
        rule("run_shell_command", more='commandRegex = "^(git|npm) [^ ]+$"'),
        rule("write_file", more='argsPattern = \'^\\{."file_path":"[^"]*\\.md"\''),
        rule("write_file", more="argsPattern = 'a[$^]b\\$c'"),
        rule("run_shell_command", more='commandPrefix = "git add"'),
    ],
)
def test_a_rule_that_may_count_is_not(make, text) -> None:
    policy, problems = make(user=text)
    assert problems == [] and not [*policy.books.idle(["generalist"], ["docs"])]


def test_a_skill_is_asked_about_as_the_reference_does(make, call) -> None:
    policy, _ = make()
    for mode in ("default", "auto_edit"):
        assert policy.check(call("activate_skill"), "read", mode).decision == "ask"
