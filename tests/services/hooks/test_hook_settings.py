"""Hooks from all sources count, each definition on its own: a malformed one is reported, and never allows more."""

from typing import Any

import pytest
from folders import table

from interlock.services.config.settings import HookLayer
from interlock.services.hooks.hook_settings import (
    HookRegistry,
    build_matcher,
    event_subject_names,
    load_hooks,
)
from interlock.state.errors import ConfigError

TABLE: dict[str, list[Any]] = table(__file__, "hooks.yaml")


def layer(hooks: Any, source: str = "user.json", project: bool = False, **config: Any) -> HookLayer:
    return HookLayer(source, hooks, config, project)


def one(**hook: Any) -> list[dict[str, Any]]:
    return [{"hooks": [hook]}]


def book(*layers: HookLayer, **env: str) -> HookRegistry:
    return load_hooks(layers, env)


def commands(found: HookRegistry, event: Any = "BeforeTool", subject: str = "") -> list[str]:
    return [hook.command for hook in found.select_hooks(event, subject)]


def test_a_definition_is_read_with_its_file_and_place() -> None:
    given = {"command": "c", "name": "n", "timeout": 500, "required": True, "env": {"K": "$TOKEN"}}
    given["idempotent"] = True
    found = book(layer({"AfterTool": [{"matcher": "read", "sequential": True, "hooks": [given]}]}), TOKEN="t")
    (hook,) = found.hooks
    assert (hook.source, hook.place, hook.timeout_s) == ("user.json", "hooks.AfterTool.0.hooks.0", 0.5)
    assert (hook.name, hook.env, hook.required, hook.idempotent) == ("n", {"K": "t"}, True, True)
    assert (hook.sequential, hook.matcher.text, found.problems) == (True, "read", ())


def test_hooks_of_project_and_user_add_up_and_the_users_come_last() -> None:
    project = layer({"BeforeTool": one(command="p")}, "p.json", True)
    both = book(layer({"BeforeTool": one(command="u")}), project)
    assert (commands(both), both.joined_event_names) == (["p", "u"], "BeforeTool")


def test_names_of_claude_code_are_the_same_events() -> None:
    names = ("PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "PreCompact", "SessionEnd")
    found = book(layer(dict.fromkeys(names, one(command="c"))))
    assert found.joined_event_names == "AfterAgent,AfterTool,BeforeAgent,BeforeTool,PreCompress,SessionEnd"
    assert found.problems == ()


@pytest.mark.parametrize(
    ("matcher", "event", "subject", "runs"),
    [*TABLE["matchers"], ("(a+)+$", "BeforeTool", "a" * 5000 + "!", False)],
)
def test_a_matcher_searches_in_tool_names_and_equals_elsewhere(
    matcher: str, event: Any, subject: str, runs: bool
) -> None:
    found = book(layer({event: [{"matcher": matcher, "hooks": [{"command": "c"}]}]}))
    assert bool(commands(found, event, subject)) == runs
    assert bool(found.problems) == (matcher == "rep(")


@pytest.mark.parametrize(("text", "tool", "args"), TABLE["names"])
def test_a_matcher_matches_every_name_of_a_tool_and_an_agent(
    text: str, tool: str, args: dict[str, Any]
) -> None:
    found, problem = build_matcher("BeforeTool", text)
    assert problem == "" and found.is_matching(event_subject_names("BeforeTool", tool, {"tool_input": args}))
    assert not found.is_matching(event_subject_names("BeforeTool", "glob", {"tool_input": args}))


def test_a_required_hook_whose_matcher_cannot_be_read_runs_for_every_tool() -> None:
    group = {"matcher": "rep(", "hooks": [{"command": "c", "required": True}]}
    assert commands(book(layer({"BeforeTool": [group]})), subject="x") == ["c"]


def test_the_same_name_and_command_runs_once_as_strictly_as_its_strictest() -> None:
    groups = [{"hooks": [{"command": "c", "idempotent": True}, {"command": "c", "name": "n"}]}]
    strict = [{"sequential": True, "hooks": [{"command": "c", "required": True}]}]
    first, named = book(layer({"BeforeTool": [*groups, *strict]})).select_hooks("BeforeTool", "x")
    assert (first.required, first.sequential, first.idempotent, named.name) == (True, True, False, "n")


def test_disabled_hooks_do_not_count_but_a_project_turns_off_only_its_own() -> None:
    hooks, own = {"BeforeTool": [*one(command="c", name="n"), *one(command="d")]}, one(command="p")
    assert commands(book(layer(hooks, disabled=["n"]))) == ["d"]
    assert commands(book(layer(hooks, disabled=["d"]))) == ["c"]
    assert book(layer(hooks, enabled=False)).joined_event_names == ""
    project = layer({"BeforeTool": own}, "p.json", True, enabled=False, disabled=["n"])
    assert commands(book(layer(hooks), project)) == ["c", "d"]
    assert commands(book(layer(hooks, enabled=False), layer({"BeforeTool": own}, "p.json", True))) == []


@pytest.mark.parametrize(("hooks", "problem"), TABLE["malformed"])
def test_a_malformed_definition_is_reported_and_stops_no_other(hooks: Any, problem: str) -> None:
    found = book(layer(hooks, "bad.json"), layer({"AfterTool": one(command="ok")}))
    assert found.joined_event_names == "AfterTool"
    assert len(found.problems) == 1
    assert found.problems[0].startswith("bad.json: ")
    assert problem in found.problems[0]


@pytest.mark.parametrize("groups", TABLE["required"])
def test_a_malformed_definition_that_is_required_blocks_its_event(groups: Any) -> None:
    found = book(layer({"BeforeTool": groups}))
    assert found.joined_event_names == "BeforeTool"
    assert found.select_hooks("BeforeTool", "any")[0].broken


def test_a_required_hook_of_an_unknown_event_stops_everything() -> None:
    told = r"u\.json: hooks\.BeforTool.*Did you mean 'BeforeTool'\?.*required"
    with pytest.raises(ConfigError, match=told):
        book(layer({"BeforTool": one(command="c", required=True)}, "u.json"))


def test_odd_settings_are_said() -> None:
    found = book(layer({"PreToolUse": one(command="c", timeout=30, requierd=True, env={"K": "$GONE"})}))
    assert [p.partition(": ")[2] for p in found.problems] == [
        "hooks.PreToolUse.0.hooks.0: unknown setting 'requierd'. Did you mean 'required'?",
        "hooks.PreToolUse.0.hooks.0.timeout is 30 milliseconds; for seconds write 30000.",
        "hooks.PreToolUse.0.hooks.0.env names $GONE, which is not set.",
    ]
