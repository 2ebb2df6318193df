"""The default matrix, what rules and settings come to (verdicts.yaml), and how a verdict says why."""

import shlex
from itertools import product

import pytest
from folders import table

from interlock.services.policy.rule import Scope
from interlock.state.calls import CallView, Risk, SessionRule
from interlock.tools.table import TOOLS

VERDICTS: dict[str, list[dict]] = table(__file__, "verdicts.yaml")
TIERS = {"extension", "workspace", "user", "admin"}

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


def test_the_reason_is_a_sentence_that_names_what_and_why(make, call, shell) -> None:
    policy, _ = make()
    asked = policy.check(shell("npm install"), "execute", "default")
    assert asked.reason == "No rule allows `npm install`."
    assert asked.rule.startswith("built-in rule")
    both = policy.check(shell("npm install && npm test"), "execute", "default")
    assert both.reason == ("No rule allows 2 of 2 commands: `npm install`, `npm test`.")
    assert [p.text for p in both.parts] == ["npm install", "npm test"]
    denied = policy.check(call("write_file"), "write", "plan")
    assert denied.reason == "`write_file` changes files, which mode plan doesn't allow."
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
    policy, _ = make(settings={"tools": {"core": ["glob"], "allowed": ["glob"]}})
    got = [policy.check(call(name), "read", "default").rule for name in ("read_file", "glob")]
    assert got == ["settings tools.core", "settings tools.allowed 'glob'"]


def rule(tool: str, decision: str, priority: str = "", more: str = "") -> str:
    lines = (f'toolName = "{tool}"', f'decision = "{decision}"', priority and f"priority = {priority}", more)
    return "\n".join(["[[rule]]", *filter(None, lines), ""])


def called(line: str) -> tuple[CallView, Risk]:
    """A call as the table writes it: `$` and a shell line, or a tool's name and its arguments."""
    if line.startswith("$ "):
        return CallView(id="1", name="run_shell_command", args={"command": line[2:]}), "execute"
    name, *words = shlex.split(line)
    unknown = "execute" if name.startswith("mcp_") else "write"
    args = dict(word.split("=", 1) for word in words)
    return CallView(id="1", name=name, args=args), TOOLS[name].risk if name in TOOLS else unknown


@pytest.mark.parametrize("case", [pytest.param(c, id=title) for title, cs in VERDICTS.items() for c in cs])
def test_rules_and_settings_come_to_what_the_table_says(make, workspace, case: dict) -> None:
    given = {**case}
    texts = {
        tier: "".join(rule(*line.split(" ", 3)) for line in given.pop(tier)) for tier in TIERS & case.keys()
    }
    files = {tier: text.replace("{root}", str(workspace.root)) for tier, text in sorted(texts.items())}
    scope = Scope(given.pop("agent", ""), servers=frozenset(given.pop("servers", ())))
    told = given.pop("problems", [])
    reason = given.pop("reason", "")
    session = [SessionRule(**choice) for choice in given.pop("session", ())]
    policy, problems = make(settings={"tools": given.pop("tools", {})}, scope=scope, **files)
    assert all(part in str(problem) for part, problem in zip(told, problems, strict=True))
    if (idle := given.pop("idle", None)) is not None:
        found = [*policy.workspace_rules.find_unmatchable_rules(["generalist"], ["docs"])]
        assert [(idle in one.text, one.source[-11:]) for one in found] == [(True, "user.toml:1")] * bool(idle)
    for verdict, calls in given.items():
        *modes, decision = verdict.split()
        for (view, risk), mode in product(map(called, calls), modes or ["default"]):
            got = policy.check(view, risk, mode, session)
            assert got.decision == decision, (view, mode, got.reason)
            assert decision == "allow" or reason in got.reason


@pytest.mark.parametrize(
    ("decision", "plan_file", "other"),
    [("allow", "allow", "deny"), ("ask", "ask", "deny"), ("deny", "deny", "deny")],
)
def test_in_plan_mode_a_users_rule_can_only_make_it_stricter(
    make, call, workspace, tmp_path, decision, plan_file, other
) -> None:
    policy, _ = make(user=rule("write_file", decision, "5"))
    workspace.plans = tmp_path / "plans"
    plan = call("write_file", file_path=str(workspace.plans / "x.md"))
    assert policy.check(plan, "write", "plan").decision == plan_file
    assert policy.check(call("write_file", file_path="x.md"), "write", "plan").decision == other
    claimed = policy.check(call("write_file", file_path="x.md"), "write", "plan", [], {"planFile": True})
    assert claimed.decision == other


def test_a_rule_about_a_path_holds_for_every_spelling_of_the_file(make, call, workspace) -> None:
    (workspace.root / "src" / "café.py").write_text("")
    spellings = ("src/café.py", "src/cafe\u0301.py", '"src/café.py"', "src/café.py,", r'"src/caf\303\251.py"')
    for decision, others in (("deny", "deny"), ("allow", "ask")):
        policy, _ = make(
            user=rule("write_file", decision, "5", 'argsPattern = \'"file_path":"src/café.py"\'')
        )
        got = [policy.check(call("write_file", file_path=p), "write", "default").decision for p in spellings]
        assert got == [decision, *[others] * 4], decision
