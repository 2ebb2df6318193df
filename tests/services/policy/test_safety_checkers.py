"""Safety checkers examine what the rules allow, and can only be stricter."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import table

from interlock.services.files.filesystem import OutputFiles
from interlock.services.policy.policy import RulePolicy
from interlock.services.process.processes import SupervisedProcesses
from interlock.state.calls import CallView, Verdict

TABLE: dict[str, list[Any]] = table(__file__, "rules.yaml")

Decide = Callable[..., Verdict]


def checker(body: str, conditions: str = 'toolName = "*"\npriority = 5\n') -> str:
    return f"[[safety_checker]]\n{conditions}[safety_checker.checker]\n{body}\n"


def external(command: str, more: str = "") -> str:
    return f'type = "external"\nname = "guard"\ncommand = {json.dumps(command)}\n{more}'


def says(decision: str, reason: str = "because") -> str:
    return external(f"echo '{json.dumps({'decision': decision, 'reason': reason})}'")


PATHS = 'type = "in-process"\nname = "allowed-path"'


@pytest.fixture
def decide(make, tmp_path: Path) -> Decide:
    def run(text: str, call: CallView, mode: str = "yolo", risk: str = "execute") -> Verdict:
        policy, problems = make(user=text)
        assert problems == []
        return asyncio.run(in_loop(policy, call, mode, risk))

    async def in_loop(policy: RulePolicy, call: CallView, mode: str, risk) -> Verdict:
        outputs = OutputFiles(tmp_path / "state")
        env = {"PATH": "/usr/bin:/bin", "FLAG": str(tmp_path / "flag")}
        policy.set_checker_processes(SupervisedProcesses(outputs=outputs, env=env))
        verdict = await policy.decide_by_rules_and_checkers(call, risk, mode)
        assert await policy.decide_by_rules_and_checkers(call, risk, mode) == verdict
        return verdict

    return run


@pytest.mark.parametrize(
    ("answer", "decision"), [("allow", "allow"), ("ask_user", "ask"), ("ask", "ask"), ("deny", "deny")]
)
def test_what_it_says_is_the_decision_when_it_is_stricter(decide, call, tmp_path, answer, decision) -> None:
    verdict = decide(checker(says(answer)), call("t", x=1))
    assert verdict.decision == decision
    if decision != "allow":
        assert verdict.rule == f"safety checker guard (user rule {tmp_path / 'user.toml'}:1)"
        assert "because" in verdict.reason and verdict.by_checker
    assert decide(checker(says(answer)), call("t", x=1), "default").decision == max(
        decision, "ask", key=["allow", "ask", "deny"].index
    )


def test_it_is_told_the_call_and_its_surroundings(decide, call, workspace, tmp_path) -> None:
    command = 'cat > "$FLAG"; echo noise >&2; echo \'{"decision": "allow"}\''
    body = external(command, "[safety_checker.checker.config]\nlevel = 3")
    assert decide(checker(body), call("t", x="ü")).decision == "allow"
    told = json.loads((tmp_path / "flag").read_text())
    assert told["toolCall"] == {"name": "t", "args": {"x": "ü"}}
    assert told["context"]["environment"]["cwd"] == str(workspace.root)
    assert (told["protocolVersion"], told["config"]) == ("1.0.0", {"level": 3})


@pytest.mark.parametrize(("command", "said"), TABLE["fails"])
def test_one_that_fails_or_takes_too_long_denies(decide, call, command: str, said: str) -> None:
    verdict = decide(checker(external(command, "timeout = 0.3" if command == "sleep 60" else "")), call("t"))
    assert verdict.decision == ("ask" if said == "is unknown" else "deny") and said in verdict.reason


def test_nobody_is_asked_about_a_denied_call_and_the_first_denial_ends_it(decide, call, tmp_path) -> None:
    touch = checker(external('touch "$FLAG"; echo \'{"decision": "allow"}\''))
    denied = '[[rule]]\ntoolName = "t"\ndecision = "deny"\npriority = 1\n'
    assert decide(denied + touch, call("t")).decision == "deny"
    first = checker(says("deny"), 'toolName = "t"\npriority = 9\n')
    assert decide(touch + first, call("t")).decision == "deny"
    assert not (tmp_path / "flag").exists()
    assert decide(touch, call("t")).decision == "allow"
    assert (tmp_path / "flag").exists()


@pytest.mark.parametrize(("conditions", "line", "asked"), TABLE["conditions"])
def test_it_is_asked_about_the_calls_that_its_conditions_meet(decide, shell, conditions, line, asked) -> None:
    text = checker(says("deny"), f'toolName = "run_shell_command"\npriority = 5\n{conditions}\n')
    assert (decide(text, shell(line)).decision == "deny") is asked


@pytest.mark.parametrize(("args", "decision"), TABLE["paths"])
def test_allowed_path_keeps_every_path_among_the_arguments_inside(
    decide, workspace, args, decision: str
) -> None:
    (workspace.root / "link").symlink_to("/etc")
    call = CallView(id="1", name="mcp_s_t", args=args)
    assert decide(checker(PATHS), call).decision == decision


def test_allowed_path_can_be_told_which_arguments_are_paths(decide, call) -> None:
    config = "\n[safety_checker.checker.config]\nincluded_args = ['where']\nexcluded_args = ['path']"
    assert decide(checker(PATHS + config), call("t", path="/etc", where="/etc")).decision == "deny"
    assert decide(checker(PATHS + config), call("t", path="/etc")).decision == "allow"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (checker('type = "in-process"\nname = "other"'), "allowed-path"),
        (checker('type = "external"'), "command"),
        (checker('type = "magic"'), "type"),
        (checker(PATHS, 'toolName = "t"\n'), "priority"),
        (checker(PATHS, 'toolName = "t"\npriority = 5\ndecision = "allow"\n'), "decision"),
        (checker(PATHS + "\n[safety_checker.checker.config]\nincluded_args = 5"), "included_args"),
        (checker(external("true", "timeout = 0")), "timeout"),
    ],
)
def test_one_that_cannot_be_used_is_reported_and_asks_in_its_place(make, call, text: str, said: str) -> None:
    policy, problems = make(user=text)
    assert len(problems) == 1 and said in str(problems[0]) and "user.toml:1: " in str(problems[0])
    assert policy.check(call("t"), "write", "yolo").decision == "ask"


def test_an_extension_may_bring_one_and_without_anything_to_run_it_an_external_one_denies(make, call) -> None:
    policy, problems = make(extension=checker(PATHS))
    assert problems == []
    for one in (policy, policy.for_agent("helper")):
        assert (
            asyncio.run(one.decide_by_rules_and_checkers(call("t", path="/etc"), "write", "yolo")).decision
            == "deny"
        )
    policy, _ = make(user=checker(says("allow")))
    assert asyncio.run(policy.decide_by_rules_and_checkers(call("t"), "write", "yolo")).decision == "deny"
    asked = Verdict(decision="ask", rule="safety checker", reason="x", by_checker=True)
    assert policy.offered_choices(call("t"), "execute", asked) == (
        "proceed_once",
        "modify",
        "reject",
        "cancel",
    )


def test_a_sub_agents_calls_are_examined_by_its_own_checkers_after_another_agents_were(make, call) -> None:
    policy, _ = make(user=checker(PATHS, 'toolName = "*"\npriority = 5\nsubagent = "helper"\n'))
    outside = call("t", path="/etc")
    assert asyncio.run(policy.decide_by_rules_and_checkers(outside, "execute", "yolo")).decision == "allow"
    assert (
        asyncio.run(
            policy.for_agent("helper").decide_by_rules_and_checkers(outside, "execute", "yolo")
        ).decision
        == "deny"
    )
