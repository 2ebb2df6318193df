"""A faulty rule file is reported with file and line, and never widens what is allowed."""

from pathlib import Path

import pytest

from interlock.services.policy.load import load_rules, shipped_rules

GOOD_ALLOW = '[[rule]]\ntoolName = "w"\ndecision = "allow"\npriority = 5\n'
GOOD_DENY = '[[rule]]\ntoolName = "d"\ndecision = "deny"\npriority = 5\n'


def test_the_shipped_rules_are_sound() -> None:
    assert {r.tier for r in shipped_rules()} == {1}


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\n', "priority: Field required"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 1000\n', "priority"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = "5"\n', "priority"),
        ('[[rule]]\ntoolName = "x"\ndecision = "denied"\npriority = 5\n', "decision"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\nmodes = ["yol"]\n', "modes.0"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\nmode = "yolo"\n', "unknown key 'mode'"),
        ('[[rule]]\ntoolName = "x_*"\ndecision = "deny"\npriority = 5\n', "toolName 'x_*'"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\ncommandPrefix = "a"\n', "commandPrefix"),
        (
            '[[rule]]\ntoolName = "run_shell_command"\ndecision = "deny"\npriority = 5\ncommandPrefix = ""\n',
            "empty",
        ),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\nargsPattern = "("\n', "argsPattern"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 5\nargsPattern = "(?=a)"\n', "RE2"),
        ('[[rule]]\ntoolName = "x"\ndecision = "deny\npriority = 5\n', "not TOML"),
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
    name = "run_shell_command" if "run_shell" in broken else "x"
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


def test_lines_are_right_with_comments_and_sub_tables(make, call) -> None:
    text = (
        "\n# a comment\n[[rule]]\n# another\ntoolName = 'w'\ndecision = 'deny'\npriority = 5\n"
        "[rule.toolAnnotations]\nreadOnlyHint = false\n\n"
        "[[rule]]\ntoolName = ['a', 'b']\ndecision = 'deny'\npriority = 1\n"
    )
    policy, problems = make(user=text)
    assert problems == []
    assert policy.check(call("w"), "write", "default").rule.endswith("user.toml:3")
    assert policy.check(call("b"), "write", "default").rule.endswith("user.toml:11")


def test_lines_are_right_after_blank_ones(make, call) -> None:
    policy, _ = make(user="\n\n" + GOOD_DENY + "\n\n" + GOOD_DENY.replace('"d"', '"e"'))
    assert policy.check(call("d"), "write", "default").rule.endswith("user.toml:3")
    assert policy.check(call("e"), "write", "default").rule.endswith("user.toml:9")
