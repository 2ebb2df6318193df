"""Properties of every rule file, tool, mode and spelling of a command."""

import json
import shlex
from pathlib import Path
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.load import load_rules
from interlock.services.policy.policy import RulePolicy
from interlock.services.shell.parse import parse
from interlock.state.calls import ApprovalMode, CallView, Risk
from interlock.state.settings import Settings

RISKS = get_args(Risk)
MODES = get_args(ApprovalMode)

TOOLS = st.sampled_from(
    ["run_shell_command", "write_file", "web_fetch", "mcp_s_t", "*", "mcp_*", "read_file", "x*", ""]
)
RULES = st.fixed_dictionaries(
    {"toolName": TOOLS, "decision": st.sampled_from(["allow", "ask", "deny", "no"])},
    optional={
        "priority": st.integers(-1, 1000),
        "modes": st.lists(st.sampled_from([*MODES, "autoEdit", "other"]), max_size=3),
        "commandPrefix": st.sampled_from(["ls", "git status", "", "'"]),
        "argsPattern": st.sampled_from([".*", "a", "("]),
        "interactive": st.booleans(),
        "allowRedirection": st.booleans(),
        "mcpName": st.just("s"),
        "odd": st.just(1),
    },
)
CALLS = st.one_of(
    st.builds(
        lambda c: ("run_shell_command", {"command": c}),
        st.sampled_from(["ls", "git status", "rm -rf x", "$x"]),
    ),
    st.just(("write_file", {"file_path": "a.py", "content": "x"})),
    st.just(("web_fetch", {"prompt": "http://a/"})),
    st.just(("mcp_s_t", {})),
)


def toml(rules: list[dict]) -> str:
    return "".join(
        "[[rule]]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in rule.items())
        for rule in rules
    )


def policy_of(folder: Path, rules: list[dict], tier: int) -> RulePolicy:
    path = folder / "rules.toml"
    path.write_text(toml(rules))
    return RulePolicy(load_rules([(path, tier)])[0], Settings.model_validate({}), FolderWorkspace(folder))


@given(rules=st.lists(RULES, max_size=4), tier=st.integers(2, 5), call=CALLS, mode=st.sampled_from(MODES))
def test_a_file_with_an_error_allows_nothing_that_the_shipped_rules_do_not(
    tmp_path, rules, tier, call, mode
) -> None:
    name, args = call
    view = CallView(id="1", name=name, args=args)
    policy = policy_of(tmp_path, [*rules, {"toolName": 5}], tier)
    bare = RulePolicy([], Settings.model_validate({}), FolderWorkspace(tmp_path))
    if policy.check(view, "execute", mode, []).decision == "allow":
        assert bare.check(view, "execute", mode, []).decision == "allow"


@given(
    line=st.one_of(st.text(), st.text("ls ;|&<>()$`'\"\\{}[]#!=\n\t*~-xEOF", max_size=60)),
    mode=st.sampled_from(MODES),
    risk=st.sampled_from(RISKS),
)
def test_no_line_makes_it_raise_and_every_verdict_has_a_reason(tmp_path, line, mode, risk) -> None:
    policy = RulePolicy([], Settings.model_validate({}), FolderWorkspace(tmp_path))
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    verdict = policy.check(call, risk, mode, [])
    assert verdict.reason and verdict.rule
    assert policy.choices(call, risk, verdict)
    policy.narrow(call, risk, "proceed_always", mode)
    assert policy.explain(call, risk, mode).verdict == verdict


WORD = st.text(st.characters(codec="ascii", min_codepoint=32, max_codepoint=126), max_size=8)


def spell(draw, word: str) -> str:
    """Another spelling of the word for bash."""
    pieces: list[str] = []
    for char in word:
        ways = [shlex.quote(char), f"'{char}'" if char != "'" else "\\'", f"$'\\x{ord(char):02x}'"]
        if char not in '$`"\\!':
            ways.append(f'"{char}"')
        if char.isalnum():
            ways.append(f"{char}\\\n")
            ways.append(char)
        else:
            ways.append(f"\\{char}")
        pieces.append(draw(st.sampled_from(ways)))
    text = "".join(pieces).removesuffix("\\\n")
    return text or "''"


@st.composite
def denied_lines(draw) -> str:
    """A line that runs `git push`, in any spelling."""
    command = " ".join(
        [spell(draw, "git"), spell(draw, "push"), *(spell(draw, w) for w in draw(st.lists(WORD, max_size=2)))]
    )
    for _ in range(draw(st.integers(0, 3))):
        command = draw(
            st.sampled_from(
                [
                    f"ls; {command}",
                    f"ls && {command} | cat",
                    f"# x\n{command}",
                    f"ls # it's \\\n{command}",
                    f"({command})",
                    f"{{ {command}\n}}",
                    f"if true; then {command}\nfi",
                    f"for a in 1 2; do {command}\ndone",
                    f"bash -c {shlex.quote(command)}",
                    f"eval {shlex.quote(command)}",
                    f"env A=1 bash -c {shlex.quote(command)}",
                    f'echo "$({command})"',
                    f"cat <({command})",
                    f"cat <<E\n$({command})\nE",
                    f"ls\n\n  {command} &",
                    f"! {command}",
                    f"f() {{ {command}\n}}; f",
                ]
            )
        )
    return command


@given(line=denied_lines(), mode=st.sampled_from(MODES))
def test_a_denied_command_is_never_allowed_however_it_is_written(tmp_path, line: str, mode: str) -> None:
    rules = [
        {"toolName": "run_shell_command", "decision": "allow", "priority": 1},
        {"toolName": "run_shell_command", "decision": "deny", "priority": 2, "commandPrefix": "git push"},
    ]
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    verdict = policy_of(tmp_path, rules, 4).check(call, "execute", mode, [])
    assert verdict.decision == "deny" or (verdict.decision == "ask" and parse(line).opaque), (
        verdict,
        parse(line),
    )


@given(
    runner=st.sampled_from(["make", "gmake", "just", "rake", "inv", "gradle", "./gradlew"]),
    before=st.lists(st.sampled_from(["test", "-k", "-j4", "-f x", "V=1", "lint", "--"]), max_size=4),
    after=st.lists(st.sampled_from(["test", "-k", "-j4", "V=1", "2>&1", "| cat"]), max_size=3, unique=True),
    mode=st.sampled_from(MODES),
)
def test_a_denied_target_is_never_run_among_others(tmp_path, runner, before, after, mode) -> None:
    rules = [
        {"toolName": "run_shell_command", "decision": "allow", "priority": 1},
        *(
            {
                "toolName": "run_shell_command",
                "decision": "deny",
                "priority": 2,
                "commandPrefix": f"{name} deploy",
            }
            for name in ("make", "just", "rake", "invoke", "gradle")
        ),
    ]
    line = " ".join([runner, *before, "deploy", *after])
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    assert policy_of(tmp_path, rules, 4).check(call, "execute", mode, []).decision == "deny", line
