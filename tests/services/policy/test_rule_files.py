"""A faulty rule file is reported with file and line, and never widens what is allowed."""

from pathlib import Path

import pytest

from interlock.services.policy.rule_files import load_rules, load_shipped_rules

GOOD_ALLOW = '[[rule]]\ntoolName = "w"\ndecision = "allow"\npriority = 5\n'
GOOD_DENY = '[[rule]]\ntoolName = "d"\ndecision = "deny"\npriority = 5\n'


def test_the_shipped_rules_are_sound() -> None:
    assert {r.tier for r in load_shipped_rules()} == {1}


RULE = '[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\n'
SHELL = RULE.replace('"x"', '"run_shell_command"')


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (RULE.replace("priority = 5", ""), "priority: Field required"),
        (RULE.replace("5", "1000"), "priority"),
        (RULE.replace("5", '"5"'), "priority"),
        (RULE.replace("deny", "denied"), "decision"),
        (RULE + 'modes = ["yol"]\n', "modes.0"),
        (RULE + 'mode = "yolo"\n', "unknown key 'mode'"),
        (RULE.replace("x", "x_*"), "toolName 'x_*'"),
        (RULE + 'commandPrefix = "a"\n', "commandPrefix"),
        (SHELL + 'commandPrefix = ""\n', "empty"),
        (RULE + 'argsPattern = "("\n', "argsPattern"),
        (RULE + 'argsPattern = "(?=a)"\n', "RE2"),
        (RULE.replace('deny"', "deny"), "not TOML"),
        ('[[safety_checker]]\ntoolName = "x"\n', "checker is missing"),
        ('[[check]]\ntoolName = "x"\n', "[[check]]"),
        ('[rule]\ntoolName = "x"\n', "'rule' isn't known"),
    ],
)
def test_a_broken_rule_takes_the_files_allows_keeps_its_denies_and_asks_in_its_own_place(
    make, call, broken: str, said: str
) -> None:
    policy, problems = make(user=GOOD_ALLOW + broken + GOOD_DENY)
    assert any(said in str(p) and "user.toml:" in str(p) for p in problems), problems
    assert all(5 <= int(str(p).split("user.toml:")[1].split(":")[0]) <= 9 for p in problems)
    assert policy.check(call("w", a=1), "write", "default").decision != "allow"
    assert policy.check(call("d"), "write", "yolo").decision == "deny"
    name = "run_shell_command" if broken.startswith(SHELL) else "x"
    assert policy.check(call(name, a=1), "write", "yolo").decision == "ask"


def test_a_broken_file_of_a_workspace_does_not_bind_its_user(make, call) -> None:
    policy, _ = make(workspace="]]", user=GOOD_ALLOW)
    assert policy.check(call("w"), "write", "default").decision == "allow"
    assert policy.check(call("v"), "write", "yolo").decision == "ask"
    assert policy.check(call("r"), "read", "default").decision == "ask"
    assert policy.check(call("q"), "question", "default").decision == "allow"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * 1_000_001, None, b"[" * 5000, b"a = " + b"[" * 5000])
def test_a_file_that_cannot_be_read_makes_its_tier_ask(tmp_path: Path, data: bytes | None) -> None:
    path = tmp_path / "rules.toml"
    if data is not None:
        path.write_bytes(data)
    rules, problems = load_rules([(path, 4)])
    assert len(problems) >= 1 and str(problems[0]).startswith(f"{path}:1: ")
    assert [(r.decision, r.tools) for r in rules][:1] == [("ask", ("*",))]


def test_lines_are_right_after_comments_sub_tables_and_blank_lines(make, call) -> None:
    text = (
        "\n# a comment\n[[rule]]\n# another\ntoolName = 'w'\ndecision = 'deny'\npriority = 5\n"
        "[rule.toolAnnotations]\nreadOnlyHint = false\n\n"
        "[[rule]]\ntoolName = ['a', 'b']\ndecision = 'deny'\npriority = 1\n\n\n"
    )
    policy, problems = make(user=text + GOOD_DENY)
    assert problems == []
    lines = [policy.check(call(name), "write", "default").rule.rpartition(":")[2] for name in "wbd"]
    assert lines == ["3", "11", "17"]
