"""Plan mode and read-only agents never allow more, whatever rule files say; a typo loosens no file, no line raises.

That a denied command stays denied however it is spelled and embedded is tried by the oracle (`test_bash_oracle.py`).
"""

import json
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from interlock.services.context.agents import load_agents, select_agent_tools
from interlock.services.context.definition_files import Folders
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule import ANYBODY, Scope
from interlock.services.policy.rule_files import load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView, Risk, SessionRule
from interlock.state.settings import Settings
from interlock.tools.table import TOOLS

MODES = ("default", "auto_edit", "yolo", "plan")
STRICT = {"allow": 0, "ask": 1, "deny": 2}
LISTED = {
    *("glob", "grep_search", "search_file_content", "read_file", "read_many_files", "list_directory"),
    *("codebase_search", "web_search", "write_todos", "ask_user", "codebase_investigator", "exit_plan_mode"),
    *("complete_task", "update_scratchpad", "update_todo_list"),
    *("search_files", "list_files", "list_code_definition_names", "fetch_instructions"),
    *("ask_followup_question", "attempt_completion", "find_skills"),
}
"""Tools of `docs/internals.md#plan-mode`, the task loop's names for them, and the investigator's report."""
OTHERS = {
    "mcp_s_read": "read",
    "mcp_s_write": "write",
    "mcp_s_any": "execute",
    "web_search": "network",
    "discovered": "execute",
    "a_new_reader": "read",
    "a_new_state": "state",
}
RISKS = {**{name: tool.risk for name, tool in TOOLS.items()}, **OTHERS}
ARGS = {
    "run_shell_command": [{"command": c} for c in ("ls", "git status", "rm -rf x", "eval $x", "")],
    "write_file": [{"file_path": p, "content": "x"} for p in ("a.md", "../plans/a.md", "{plans}/a.md", "")],
    "replace": [{"file_path": p} for p in ("a.md", "{plans}/../a.md", "{plans}/a.md", "{plans}/a.txt")],
    "web_fetch": [{"prompt": "https://a.example/"}],
}
CALLS = st.sampled_from([(name, args) for name in RISKS for args in ARGS.get(name, [{}, {"x": "y"}])])
NAMES = st.sampled_from([*RISKS, "*", "mcp_*", "mcp_s_*"])
RULE = st.fixed_dictionaries(
    {
        "toolName": st.one_of(NAMES, st.lists(NAMES, min_size=1, max_size=3)),
        "decision": st.sampled_from(["allow", "allow", "ask_user", "deny"]),
        "priority": st.integers(0, 999),
    },
    optional={
        "modes": st.lists(st.sampled_from([*MODES, "autoEdit"]), max_size=3),
        "mcpName": st.just("s"),
        "subagent": st.sampled_from(["codebase_investigator", "other"]),
        "interactive": st.booleans(),
        "argsPattern": st.sampled_from([".*", "a", "x"]),
        "toolAnnotations": st.sampled_from(
            [{}, {"readOnlyHint": True}, {"risk": "write"}, {"planFile": True}]
        ),
    },
)
FILES = st.lists(
    st.tuples(st.integers(2, 5), st.lists(st.one_of(RULE, st.just({"toolName": 5})), max_size=5)), max_size=4
)
EVERYTHING = [
    (tier, [{"toolName": "*", "decision": "allow", "priority": 999, "modes": [*MODES]}]) for tier in (3, 4, 5)
]
HINTS = st.sampled_from([{}, {"readOnlyHint": True}, {"planFile": True}, {"risk": "read"}])
SCOPES = st.builds(
    Scope, st.sampled_from(["", "codebase_investigator"]), st.booleans(), st.just(frozenset({"s"}))
)

SESSIONS = st.lists(
    st.builds(
        SessionRule,
        tool=st.sampled_from(["run_shell_command", "write_file", "web_fetch", "mcp_s_any", "a_new_reader"]),
        commands=st.sampled_from([(), ("ls",), ("git",)]),
        path=st.sampled_from([None, "a.py", "a"]),
        server=st.sampled_from([None, "s"]),
        line=st.sampled_from(["", "rm -rf x", "$x"]),
    ),
    max_size=2,
)


def inline(value: object) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{k} = {json.dumps(v)}' for k, v in value.items())} }}"
    return json.dumps(value)


def toml(rules: list[dict]) -> str:
    lines: list[str] = []
    for rule in rules:
        lines.append("[[rule]]")
        lines += [f"{key} = {inline(value)}" for key, value in rule.items()]
    return "\n".join(lines) + "\n"


def policy_of(folder: Path, files: list[tuple[int, list[dict]]], scope: Scope = ANYBODY) -> RulePolicy:
    found: list[tuple[Path, int]] = []
    for number, (tier, rules) in enumerate(files):
        path = folder / f"{number}.toml"
        path.write_text(toml(rules))
        found.append((path, tier))
    (folder / "work").mkdir(exist_ok=True)
    (folder / "plans").mkdir(exist_ok=True)
    space = FolderWorkspace(folder / "work")
    space.plans = folder / "plans"
    allowed = Settings.model_validate({"tools": {"allowed": ["write_file", "run_shell_command", "mcp_*"]}})
    return RulePolicy(WorkspaceRules(load_rules(found)[0], allowed, space, scope=scope))


def view(folder: Path, call: tuple[str, dict]) -> CallView:
    name, args = call
    return CallView(
        id="1", name=name, args={k: v.replace("{plans}", str(folder / "plans")) for k, v in args.items()}
    )


@given(files=st.one_of(FILES, st.just(EVERYTHING)), call=CALLS, session=SESSIONS, scope=SCOPES, hints=HINTS)
def test_in_plan_mode_nothing_is_allowed_but_what_is_listed_and_the_plan(
    tmp_path, files, call, session, scope, hints
) -> None:
    """Whatever a person has said always to, but for the host of a fetch."""
    made = view(tmp_path, call)
    verdict = policy_of(tmp_path, files, scope).check(made, RISKS[made.name], "plan", session, hints)
    if verdict.decision != "allow" or (made.name == "web_fetch" and session):
        return
    plan = str(tmp_path / "plans" / "a.md")
    assert made.name in LISTED or (
        made.name in ("write_file", "replace") and made.args["file_path"] == plan
    ), f"plan mode allows {made.name!r}: if it only reads, add it to LISTED here"


def test_in_plan_mode_each_listed_tool_does_work(tmp_path) -> None:
    policy = policy_of(tmp_path, [])
    for name in LISTED & RISKS.keys():
        assert policy.check(view(tmp_path, (name, {})), RISKS[name], "plan").decision == "allow", name
    plan = view(tmp_path, ("write_file", {"file_path": "{plans}/a.md"}))
    assert policy.check(plan, "write", "plan").decision == "allow"
    fetch = view(tmp_path, ("web_fetch", {"prompt": "https://a.example/"}))
    assert policy.check(fetch, "network", "plan").decision == "ask"


def test_an_agent_with_reading_tools_has_nothing_that_writes_runs_or_reaches_the_network(tmp_path) -> None:
    agents = load_agents(Folders(tmp_path, tmp_path, trusted=True)).by_name
    found = select_agent_tools(agents["codebase_investigator"], TOOLS, depth=2)
    assert {n for n, t in found.items() if t.risk not in ("read", "state")} <= {"web_fetch"}
    assert not {"invoke_agent", "write_todos", "enter_plan_mode", "run_shell_command"} & set(found)


DENIALS = st.lists(RULE.map(lambda r: {**r, "decision": "deny"}), max_size=2)
BROKEN = st.one_of(st.lists(RULE, max_size=3), st.just(EVERYTHING[0][1])).map(lambda r: [*r, {"toolName": 5}])


@given(
    files=FILES,
    added=st.tuples(st.integers(2, 5), DENIALS | BROKEN),
    call=CALLS,
    mode=st.sampled_from(MODES),
    scope=SCOPES,
)
def test_adding_denials_or_a_broken_file_makes_nothing_looser(
    tmp_path, files, added, call, mode, scope
) -> None:
    made = view(tmp_path, call)
    before = policy_of(tmp_path, files, scope).check(made, RISKS[made.name], mode)
    after = policy_of(tmp_path, [*files, added], scope).check(made, RISKS[made.name], mode)
    assert STRICT[after.decision] >= STRICT[before.decision]


@given(
    files=FILES,
    bad=st.sampled_from(["toolName", "decision", "priority"]),
    place=st.integers(0, 9),
    call=CALLS,
    mode=st.sampled_from(MODES),
    scope=SCOPES,
)
def test_a_rule_that_breaks_makes_no_call_looser_than_denied_by_nobody(
    tmp_path, files, bad, place, call, mode, scope
) -> None:
    """A denied call is at least asked about when its file gets a typo; an allow never appears."""
    if not files:
        return
    number = place % len(files)
    tier, rules = files[number]
    if not rules:
        return
    slip = [({**r, bad: 5.5} if i == place % len(rules) else r) for i, r in enumerate(rules)]
    made = view(tmp_path, call)
    risk = RISKS[made.name]
    before = policy_of(tmp_path, files, scope).check(made, risk, mode)
    after = policy_of(tmp_path, [*files[:number], (tier, slip), *files[number + 1 :]], scope)
    verdict = after.check(made, risk, mode)
    if before.decision != "allow" and risk in ("write", "execute", "network", "read"):
        assert verdict.decision != "allow"


@given(
    line=st.one_of(st.text(), st.text("ls ;|&<>()$`'\"\\{}[]#!=\n\t*~-xEOF", max_size=60)),
    mode=st.sampled_from(MODES),
    risk=st.sampled_from(get_args(Risk)),
)
def test_no_line_makes_it_raise_and_every_verdict_has_a_reason(tmp_path, line, mode, risk) -> None:
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), FolderWorkspace(tmp_path)))
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    verdict = policy.check(call, risk, mode, [])
    assert verdict.reason and verdict.rule
    assert policy.offered_choices(call, risk, verdict)
    policy.session_rule_for_choice(call, risk, "proceed_always", mode)
    assert policy.explain_decision(call, risk, mode).verdict == verdict


RUNNERS = ("make", "just", "rake", "invoke", "gradle")


@given(
    runner=st.sampled_from(["make", "gmake", "just", "rake", "inv", "gradle", "./gradlew"]),
    before=st.lists(st.sampled_from(["test", "-k", "-j4", "-f x", "V=1", "lint", "--"]), max_size=4),
    after=st.lists(st.sampled_from(["test", "-k", "-j4", "V=1", "2>&1", "| cat"]), max_size=3, unique=True),
    mode=st.sampled_from(MODES),
)
def test_a_denied_target_is_never_run_among_others(tmp_path, runner, before, after, mode) -> None:
    rule = {"toolName": "run_shell_command", "decision": "deny", "priority": 2}
    rules = [
        {**rule, "decision": "allow"},
        *({**rule, "commandPrefix": f"{name} deploy"} for name in RUNNERS),
    ]
    line = " ".join([runner, *before, "deploy", *after])
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    assert policy_of(tmp_path, [(4, rules)]).check(call, "execute", mode).decision == "deny", line
