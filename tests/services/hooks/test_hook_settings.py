"""Hooks from all sources count, each definition on its own: a malformed one is reported, and never allows more."""

from typing import Any

import pytest

from interlock.services.config.settings import HookLayer
from interlock.services.hooks.configured import HookBook, load_hooks, matcher, subjects_of
from interlock.state.errors import ConfigError


def layer(hooks: Any, source: str = "user.json", project: bool = False, **config: Any) -> HookLayer:
    return HookLayer(source, hooks, config, project)


def one(**hook: Any) -> list[dict[str, Any]]:
    return [{"hooks": [hook]}]


def book(*layers: HookLayer, **env: str) -> HookBook:
    return load_hooks(layers, env)


def commands(found: HookBook, event: Any = "BeforeTool", subject: str = "") -> list[str]:
    return [hook.command for hook in found.selected(event, subject)]


def test_a_definition_is_read_with_its_file_and_place() -> None:
    given = {
        "command": "c",
        "name": "n",
        "timeout": 500,
        "required": True,
        "idempotent": True,
        "env": {"K": "$TOKEN"},
    }
    found = book(layer({"AfterTool": [{"matcher": "read", "sequential": True, "hooks": [given]}]}), TOKEN="t")
    (hook,) = found.hooks
    assert (hook.source, hook.place, hook.timeout_s) == ("user.json", "hooks.AfterTool.0.hooks.0", 0.5)
    assert (hook.name, hook.env, hook.required, hook.idempotent) == ("n", {"K": "t"}, True, True)
    assert (hook.sequential, hook.matcher.text, found.problems) == (True, "read", ())


def test_hooks_of_project_and_user_add_up_and_the_users_come_last() -> None:
    user, project = (
        layer({"BeforeTool": one(command="u")}),
        layer({"BeforeTool": one(command="p")}, "p.json", True),
    )
    assert commands(book(user, project)) == ["p", "u"]
    assert book(user, project).configured == "BeforeTool"


def test_names_of_claude_code_are_the_same_events() -> None:
    names = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
    found = book(layer(dict.fromkeys(names, one(command="c"))))
    assert found.configured == "AfterAgent,AfterTool,BeforeAgent,BeforeTool,PreCompress,SessionEnd"
    assert found.problems == ()


@pytest.mark.parametrize(
    ("matcher", "event", "subject", "runs"),
    [
        ("write_file|replace", "BeforeTool", "replace", True),
        ("write_file|replace", "BeforeTool", "replace_all", True),
        ("^replace$", "BeforeTool", "replace_all", False),
        ("mcp_.*", "AfterTool", "read_file", False),
        ("", "BeforeTool", "x", True),
        ("*", "BeforeTool", "x", True),
        ("start", "SessionStart", "startup", False),
        ("startup", "SessionStart", "startup", True),
        ("start.p", "SessionStart", "startup", False),
        ("anything", "BeforeModel", "", True),
        ("rep(", "BeforeTool", "replace", False),
        ("rep(", "BeforeTool", "rep(", True),
        ("(a+)+$", "BeforeTool", "a" * 5000 + "!", False),
    ],
)
def test_a_matcher_searches_in_tool_names_and_equals_elsewhere(
    matcher: str, event: Any, subject: str, runs: bool
) -> None:
    found = book(layer({event: [{"matcher": matcher, "hooks": [{"command": "c"}]}]}))
    assert bool(commands(found, event, subject)) == runs
    assert bool(found.problems) == (matcher == "rep(")


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
def test_a_matcher_matches_every_name_of_a_tool_and_an_agent(
    text: str, tool: str, args: dict[str, Any]
) -> None:
    found, problem = matcher("BeforeTool", text)
    assert problem == "" and found.matches(subjects_of("BeforeTool", tool, {"tool_input": args}))
    assert not found.matches(subjects_of("BeforeTool", "glob", {"tool_input": args}))


def test_a_required_hook_whose_matcher_cannot_be_read_runs_for_every_tool() -> None:
    group = {"matcher": "rep(", "hooks": [{"command": "c", "required": True}]}
    assert commands(book(layer({"BeforeTool": [group]})), subject="x") == ["c"]


def test_the_same_name_and_command_runs_once_as_strictly_as_its_strictest() -> None:
    groups = [{"hooks": [{"command": "c", "idempotent": True}, {"command": "c", "name": "n"}]}]
    strict = [{"sequential": True, "hooks": [{"command": "c", "required": True}]}]
    first, named = book(layer({"BeforeTool": [*groups, *strict]})).selected("BeforeTool", "x")
    assert (first.required, first.sequential, first.idempotent, named.name) == (True, True, False, "n")


def test_disabled_hooks_do_not_count_but_a_project_turns_off_only_its_own() -> None:
    hooks = {"BeforeTool": [*one(command="c", name="n"), *one(command="d")]}
    assert commands(book(layer(hooks, disabled=["n"]))) == ["d"]
    assert commands(book(layer(hooks, disabled=["d"]))) == ["c"]
    assert book(layer(hooks, enabled=False)).configured == ""
    project = layer({"BeforeTool": one(command="p")}, "p.json", True, enabled=False, disabled=["n"])
    assert commands(book(layer(hooks), project)) == ["c", "d"]
    assert (
        commands(book(layer(hooks, enabled=False), layer({"BeforeTool": one(command="p")}, "p.json", True)))
        == []
    )


@pytest.mark.parametrize(
    ("hooks", "problem"),
    [
        ([], "hooks is [], expected an object"),
        (
            {"BeforTool": one(command="c")},
            "hooks.BeforTool: unknown event. Did you mean 'BeforeTool'?",
        ),
        ({"enabled": True}, "write hooksConfig.enabled"),
        ({"BeforeTool": {}}, "hooks.BeforeTool is {}, expected an array"),
        ({"BeforeTool": [5]}, "hooks.BeforeTool.0 is 5, expected an object"),
        ({"BeforeTool": [{"hooks": {}}]}, "hooks.BeforeTool.0.hooks is {}, expected an array"),
        ({"BeforeTool": [{"matcher": 5, "hooks": []}]}, "hooks.BeforeTool.0.matcher is 5, expected a string"),
        ({"BeforeTool": one(command=5)}, "hooks.BeforeTool.0.hooks.0.command is 5, expected a string"),
        ({"BeforeTool": one(command="")}, "hooks.BeforeTool.0.hooks.0.command"),
        ({"BeforeTool": one(name="n")}, "hooks.BeforeTool.0.hooks.0"),
        ({"BeforeTool": one(command="c", timeout=-1)}, "hooks.BeforeTool.0.hooks.0.timeout is -1"),
        ({"BeforeTool": one(command="c", type="http")}, "hooks.BeforeTool.0.hooks.0.type"),
    ],
)
def test_a_malformed_definition_is_reported_and_stops_no_other(hooks: Any, problem: str) -> None:
    found = book(layer(hooks, "bad.json"), layer({"AfterTool": one(command="ok")}))
    assert found.configured == "AfterTool"
    assert len(found.problems) == 1
    assert found.problems[0].startswith("bad.json: ")
    assert problem in found.problems[0]


@pytest.mark.parametrize(
    "groups",
    [
        one(command=5, required=True),
        one(command="c", required="yes"),
        [{"matcher": 5, "hooks": [{"command": "c", "required": True}]}],
        {"hooks": [{"command": "c", "required": True}]},
    ],
)
def test_a_malformed_definition_that_is_required_blocks_its_event(groups: Any) -> None:
    found = book(layer({"BeforeTool": groups}))
    assert found.configured == "BeforeTool"
    assert found.selected("BeforeTool", "any")[0].broken


def test_a_required_hook_of_an_unknown_event_stops_everything() -> None:
    with pytest.raises(
        ConfigError, match=r"u\.json: hooks\.BeforTool.*Did you mean 'BeforeTool'\?.*required"
    ):
        book(layer({"BeforTool": one(command="c", required=True)}, "u.json"))


def test_odd_settings_are_said() -> None:
    found = book(layer({"PreToolUse": one(command="c", timeout=30, requierd=True, env={"K": "$GONE"})}))
    assert [p.partition(": ")[2] for p in found.problems] == [
        "hooks.PreToolUse.0.hooks.0: unknown setting 'requierd'. Did you mean 'required'?",
        "hooks.PreToolUse.0.hooks.0.timeout is 30 milliseconds; for seconds write 30000.",
        "hooks.PreToolUse.0.hooks.0.env names $GONE, which is not set.",
    ]
