"""Shell lines and the verdict that a person gave them in each mode, under realistic rules."""

from pathlib import Path

import pytest
import yaml
from patience import lines_run

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.load import load_rules
from interlock.services.policy.policy import RulePolicy
from interlock.services.shell.parse import parse
from interlock.state.calls import CallView
from interlock.state.settings import Settings

HERE = Path(__file__).parent
MODES = ("default", "auto_edit", "plan", "yolo")
WORDS = {"a": "allow", "k": "ask", "d": "deny"}
GROUPS: dict[str, list[tuple[str, str]]] = yaml.safe_load((HERE / "shell_lines.yaml").read_text())
LINES = [(line, verdicts) for lines in GROUPS.values() for verdicts, line in lines]
STRANGE = [
    ("ls \ud800", "a lone surrogate, which isn't text"),
    ("ls \udcff", "a byte that isn't UTF-8"),
    ("ls; " + "a" * 1_000_000, "a megabyte"),
    ("ls " + "x " * 500_000, "a megabyte of words"),
    ("ls" + " | ls" * 200_000, "a megabyte of pipes"),
    ("(" * 5_000 + "ls" + ")" * 5_000, "deep parentheses"),
    ("$(" * 5_000 + "ls" + ")" * 5_000, "deep substitutions"),
    ("{ " * 5_000 + "ls" + "; }" * 5_000, "deep groups"),
    ("echo " + "${x:-" * 3_000 + "}" * 3_000, "deep braces"),
    ("`" * 5_001, "backquotes"),
    ("ls\n" * 4_000 + "rm -rf x", "what is denied behind more than is looked into"),
    ("cat <<E\n" + "x\n" * 9_000 + "E\nrm -rf x", "what is denied behind a long here-document"),
]


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> RulePolicy:
    rules, problems = load_rules([(HERE / "shell_lines_rules.toml", 4)])
    assert problems == []
    own = Settings.model_validate({"tools": {"readingCommands": False}})
    return RulePolicy(rules, own, FolderWorkspace(tmp_path_factory.mktemp("work")))


def decisions(policy: RulePolicy, line: str) -> dict[str, tuple[str, str]]:
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    verdicts = {mode: policy.check(call, "execute", mode) for mode in MODES}
    return {mode: (v.decision, v.reason) for mode, v in verdicts.items()}


def test_the_table_holds_as_many_lines_as_were_promised() -> None:
    assert len({line for line, _ in LINES}) == len(LINES) >= 400
    assert all(len(verdicts) == len(MODES) and set(verdicts) <= set(WORDS) for _, verdicts in LINES)


@pytest.mark.parametrize("group", GROUPS)
def test_each_line_gets_the_verdict_that_a_person_gave_it(policy: RulePolicy, group: str) -> None:
    wrong: list[str] = []
    for verdicts, line in GROUPS[group]:
        got = decisions(policy, line)
        letters = "".join(next(k for k, v in WORDS.items() if v == d) for d, _ in got.values())
        if letters != verdicts:
            reasons = {
                m: r for (m, (_, r)), g, w in zip(got.items(), letters, verdicts, strict=True) if g != w
            }
            wrong.append(f"{line!r}: {letters}, expected {verdicts}: {reasons}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(("line", "why"), STRANGE, ids=[why for _, why in STRANGE])
def test_what_is_too_long_too_deep_or_no_text_is_never_allowed_by_a_rule_and_costs_little(
    policy: RulePolicy, line: str, why: str
) -> None:
    parse("ls")  # imports
    assert lines_run(lambda: parse.__wrapped__(line)) < 600_000
    assert [d for d, _ in decisions(policy, line).values()] in (
        ["ask", "ask", "deny", "ask"],
        ["deny", "deny", "deny", "deny"],
    )
