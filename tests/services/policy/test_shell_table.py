"""Shell lines and the verdict that a person gave them in each mode: under realistic rules, as developers' agents send
them every day, and where one line runs several targets."""

import subprocess
from pathlib import Path

import pytest
from folders import put, table
from patience import lines_run

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule_files import load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.services.shell.parse import parse_shell_line
from interlock.state.calls import CallView
from interlock.state.settings import Settings

HERE = Path(__file__).parent
MODES = ("default", "auto_edit", "plan", "yolo")
WORDS = {"a": "allow", "k": "ask", "d": "deny"}
GROUPS: dict[str, list[tuple[str, str]]] = table(__file__, "shell_lines.yaml")
EVERYDAY: dict[str, list[list[str]]] = table(__file__, "everyday_lines.yaml")
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


def call(line: str) -> CallView:
    return CallView(id="1", name="run_shell_command", args={"command": line})


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> RulePolicy:
    rules, problems = load_rules([(HERE / "shell_lines_rules.toml", 4)])
    assert problems == []
    own = Settings.model_validate({"tools": {"readingCommands": False}})
    return RulePolicy(WorkspaceRules(rules, own, FolderWorkspace(tmp_path_factory.mktemp("work"))))


def decisions(policy: RulePolicy, line: str) -> dict[str, tuple[str, str]]:
    verdicts = {mode: policy.check(call(line), "execute", mode) for mode in MODES}
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
    parse_shell_line("ls")  # imports
    assert lines_run(lambda: parse_shell_line.__wrapped__(line)) < 600_000
    assert [d for d, _ in decisions(policy, line).values()] in (
        ["ask", "ask", "deny", "ask"],
        ["deny", "deny", "deny", "deny"],
    )


@pytest.mark.parametrize(
    "line", ["strange " + "bash " * 1_500, "strange " + "git -C " * 1_000, f"sqlite3 x '{'git - ' * 3_000}'"]
)
def test_a_rule_is_looked_for_behind_so_many_words_and_no_more(policy: RulePolicy, line: str) -> None:
    policy.check(call("ls"), "execute", "yolo")  # imports
    assert lines_run(lambda: policy.check(call(line), "execute", "yolo")) < 600_000


FILES = "a.txt b.txt src/app.py src/a.py src/b.py README.md package.json tests/test_app.py data.csv names.txt data.txt"


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> list[RulePolicy]:
    """Under the shipped rules, and under those of a developer."""
    root = tmp_path_factory.mktemp("everyday")
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / ".gitignore").write_text("node_modules\n*.log\n")
    for name in (*FILES.split(), "app.log", "node_modules/.bin/eslint"):
        put(root / name, "foo\n")
    rules, problems = load_rules([(HERE / "shell_lines_rules.toml", 4)])
    assert problems == []
    return [
        RulePolicy(WorkspaceRules(r, Settings.model_validate({}), FolderWorkspace(root))) for r in ([], rules)
    ]


@pytest.mark.parametrize("verdicts", EVERYDAY)
def test_an_everyday_line_gets_its_verdicts(policies: list[RulePolicy], verdicts: str) -> None:
    wrong: list[str] = []
    for line, *_ in EVERYDAY[verdicts]:
        decided = [p.check(call(line), "execute", m).decision for p in policies for m in MODES]
        got = "".join({"allow": "a", "ask": "k", "deny": "d"}[d] for d in decided)
        if got != verdicts.replace(" ", ""):
            wrong.append(f"{line!r}: {got}")
    assert not wrong, "\n".join(wrong)


def test_an_always_covers_what_it_is_expected_to(policies: list[RulePolicy]) -> None:
    shipped, wrong = policies[0], list[str]()
    for line, *expected in (entry for lines in EVERYDAY.values() for entry in lines):
        choices = shipped.offered_choices(
            call(line), "execute", shipped.check(call(line), "execute", "default")
        )
        rule = shipped.session_rule_for_choice(call(line), "execute", "proceed_always", "default")
        covers = ""
        if rule and "proceed_always" in choices:
            each = zip(rule.commands, rule.also, strict=True)
            covers = "the line" if rule.line else " | ".join(c + (" +" if also else "") for c, also in each)
        if [covers] != (expected or [""]):
            wrong.append(f"{line!r}: {covers!r}, expected {expected}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("mode", ["default", "yolo"])
@pytest.mark.parametrize(
    "line", ["npx " * 3000 + "git push", "npx -p " * 40 + "git push", "make " + "test " * 5000]
)
def test_what_holds_too_many_commands_is_asked_about(tmp_path: Path, line: str, mode: str) -> None:
    allowed = {"allowed": ["run_shell_command(npx)", "run_shell_command(make)"]}
    excluded = {"exclude": ["run_shell_command(git push)", "run_shell_command(make deploy)"]}
    settings = Settings.model_validate({"tools": {**allowed, **excluded}})
    policy = RulePolicy(WorkspaceRules([], settings, FolderWorkspace(tmp_path)))
    assert policy.check(call(line), "execute", mode).decision in ("ask", "deny")


SPELLINGS: dict[str, dict[str, list[str]]] = table(__file__, "spellings.yaml")


@pytest.mark.parametrize("denied", SPELLINGS)
def test_a_denied_command_stays_denied_by_another_spelling_and_what_may_be_it_asks(
    tmp_path: Path, denied: str
) -> None:
    (tmp_path / "linked").symlink_to("/usr/bin/git")
    (tmp_path / "script").symlink_to("deploy.sh")
    settings = Settings.model_validate({"tools": {"exclude": [f"run_shell_command({denied})"]}})
    policy = RulePolicy(WorkspaceRules([], settings, FolderWorkspace(tmp_path)))
    wrong = [
        f"{line}: {got}"
        for want, lines in SPELLINGS[denied].items()
        for line in lines
        if (got := policy.check(call(line), "execute", "yolo").decision) != want
    ]
    assert wrong == []


@pytest.mark.parametrize("line", ["git p", "npm zzz", "make -f x", "cargo pub", "tox -m x", "hg pus"])
def test_where_no_rule_names_the_program_it_runs_as_before(tmp_path: Path, line: str) -> None:
    settings = Settings.model_validate({"tools": {"exclude": ["run_shell_command(terraform apply)"]}})
    policy = RulePolicy(WorkspaceRules([], settings, FolderWorkspace(tmp_path)))
    assert policy.check(call(line), "execute", "yolo").decision == "allow"


TARGETS: list[dict[str, list[str]]] = table(__file__, "targets.yaml")


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: " and not ".join(target["rules"]))
def test_each_target_is_a_command_and_a_variable_must_be_known(
    tmp_path: Path, target: dict[str, list[str]]
) -> None:
    text = '[[rule]]\ntoolName = "run_shell_command"\ndecision = "{}"\npriority = {}\ncommandPrefix = "{}"\n'
    allowed, denied = target["rules"]
    (tmp_path / "rules.toml").write_text(text.format("allow", 1, allowed) + text.format("deny", 9, denied))
    found, problems = load_rules([(tmp_path / "rules.toml", 4)])
    policy = RulePolicy(WorkspaceRules(found, Settings(), FolderWorkspace(tmp_path)))
    assert problems == []
    wrong: list[str] = []
    for want in ("deny", "ask", "allow"):
        for line in target.get(want, ()):
            got = {policy.check(call(line), "execute", "default").decision}
            hidden = denied == "./deploy.sh" and want == "ask"
            got |= {policy.check(call(line), "execute", "yolo").decision} if hidden else set()
            wrong += [f"{line}: {got}"] if got != {want} else []
    assert wrong == []
