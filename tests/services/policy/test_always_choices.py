"""Always-choices: how they are narrowed, what they cover, and when they are offered."""

import asyncio
import shlex
from typing import Any

import pytest
from folders import table
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.grant_coverage import find_grant_row
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule import Scope
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView, SessionRule
from interlock.state.settings import Settings

TABLE: dict[str, list[Any]] = table(__file__, "rules.yaml")

ALWAYS = "proceed_always"
ONCE = ("proceed_once", "modify", "reject", "cancel")

GRANTS: dict[str, dict[str, list[str]]] = table(__file__, "grants.yaml")


@pytest.mark.parametrize("shown_line", GRANTS)
def test_a_grant_covers_what_was_shown_and_what_the_table_knows_to_be_harmless(
    make, shell, workspace, shown_line: str
) -> None:
    root, grant = workspace.root, GRANTS[shown_line]
    (root / "tests").mkdir()
    for name in ("src/a.py", "tests/test_a.py", "deploy.py", ".env", "../outside.py", "-x.ts"):
        (root / name).write_text("")
    (root / "link").symlink_to(root.parent)
    policy, _ = make()
    rule = policy.session_rule_for_choice(shell(shown_line), "execute", ALWAYS, "default")
    session = [rule] if rule else []
    asked = grant["covers"] + grant["not"]
    allowed = [x for x in asked if policy.check(shell(x), "execute", "default", session).decision == "allow"]
    assert allowed == grant["covers"]
    assert rule is None or rule.modes == ("default", "auto_edit", "yolo")


_ARGUMENTS = st.one_of(
    st.sampled_from(
        ["-c", "-o", "--config", "--config-file=x", "--", "-", "../x", "/etc/passwd", ".env", "x=1", "@x"]
    ),
    st.sampled_from(
        ["-x", "-q", "--output", "--exec=./x", "-e", "$x", "$(ls)", "*", "http://evil/", "3", "deploy"]
    ),
    st.text("-=./ax1@:", min_size=1, max_size=6),
)


@given(
    shown_line=st.sampled_from([*GRANTS]), argument=_ARGUMENTS, place=st.integers(1, 9), drop=st.booleans()
)
def test_a_command_with_an_argument_that_was_not_shown_is_covered_only_by_the_table(
    tmp_path, shown_line: str, argument: str, place: int, drop: bool
) -> None:
    """Added or put in another's place: a known option or flag, a path inside, a word where the row has one."""
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), FolderWorkspace(tmp_path)))
    words = shlex.split(shown_line)
    assume(not set(words) & {"|", "<", "&&"})
    place = min(place, len(words))
    changed = [*words[:place], argument, *words[place + drop :]]
    line = " ".join(w if w == argument and "$" in w else shlex.quote(w) for w in changed)
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    rule = policy.session_rule_for_choice(
        call.model_copy(update={"args": {"command": shown_line}}), "execute", ALWAYS, "default"
    )
    if rule is None or changed == words or policy.check(call, "execute", "default").decision == "allow":
        return
    if policy.check(call, "execute", "default", [rule]).decision != "allow":
        return
    found = find_grant_row(words)
    assert found is not None, f"{line!r} isn't {shown_line!r}, and nothing is known of it"
    _, row = found
    searched = words[0] in ("grep", "rg") or (row.reading and changed[place - 1].startswith("-"))
    text = row.anything or searched or "word" in (*row.operands, row.option_kind(changed[place - 1]))
    outside = argument.startswith(("/", "../", "~")) or argument in ("..", ".env", "$x", "$(ls)")
    assert text or not outside, line
    if not row.reading:  # its options are those of `plain_reading.py`
        listed = {"-", "--", *row.flags, *row.shown, *row.keep, *row.options}
        known = argument.partition("=")[0] in listed or {f"-{c}" for c in argument[1:]} <= listed
        assert known or row.anything or not argument.startswith("-"), line
        assert text or argument != "deploy" or row.operands[-1:] in (("path",), ("name",)), line


@pytest.mark.parametrize("choice", [ALWAYS, "proceed_always_and_save"])
@pytest.mark.parametrize(
    "line",
    [
        *("rm -rf x", "$x", "eval $x", "sudo ls", "python $x", "ls; rm -rf x", "", "x=1", "ls 'x"),
        "git -c a=b log",
    ],
)
def test_what_is_dangerous_or_unknown_is_never_remembered(make, shell, line: str, choice: str) -> None:
    policy, _ = make()
    assert policy.session_rule_for_choice(shell(line), "execute", choice, "default") is None
    verdict = policy.check(shell(line), "execute", "default")
    assert policy.offered_choices(shell(line), "execute", verdict) == ONCE


def test_an_edit_is_remembered_for_its_file_only(make, call, workspace) -> None:
    policy, _ = make()
    rule = policy.session_rule_for_choice(
        call("replace", file_path="src/../src/a.py"), "write", ALWAYS, "default"
    )
    assert rule is not None and (rule.tool, rule.path) == ("replace", "src/a.py")
    (workspace.root / "link.py").symlink_to(workspace.root / "src" / "b.py")
    absolute = str(workspace.root / "src" / "a.py")
    for tool, path, decision in (
        ("replace", absolute, "allow"),
        ("replace", "src/b.py", "ask"),
        ("write_file", "src/a.py", "ask"),
        ("replace", "link.py", "ask"),
    ):
        assert policy.check(call(tool, file_path=path), "write", "default", [rule]).decision == decision


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", ".git/config", None, 5])
def test_a_path_that_tools_may_not_touch_is_not_remembered(make, call, path) -> None:
    policy, _ = make()
    assert (
        policy.session_rule_for_choice(call("write_file", file_path=path), "write", ALWAYS, "default") is None
    )
    assert policy.session_rule_for_choice(call("write_file"), "write", ALWAYS, "default") is None


@pytest.mark.parametrize(("url", "decision"), TABLE["fetches"])
def test_a_fetch_is_remembered_for_its_host_only(make, call, url: str, decision: str) -> None:
    policy, _ = make()
    rule = policy.session_rule_for_choice(
        call("web_fetch", prompt="read https://docs.example.com/a now"), "network", ALWAYS, "default"
    )
    assert rule is not None and rule.path == "docs.example.com"
    assert policy.check(call("web_fetch", prompt=url), "network", "default", [rule]).decision == decision


HOST = '[[rule]]\ntoolName = "web_fetch"\nhost = "localhost:3000"\ndecision = "allow"\npriority = {}\n'


@pytest.mark.parametrize(
    ("url", "mode", "user", "decision"),
    [
        *(
            (f"http://{h}/", "default", "", "ask")
            for h in ("127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]")
        ),
        ("http://localhost:3000/", "auto_edit", "", "ask"),
        ("http://localhost:3000/", "yolo", "", "allow"),
        ("http://localhost:3000/", "default", HOST.format(500), "allow"),
        ("http://localhost:3001/", "default", HOST.format(500), "ask"),
        ("http://93.184.216.34/", "default", "", "allow"),
    ],
)
def test_a_private_address_is_asked_about_each_time_whatever_allows_the_tool(
    make, call, url: str, mode: str, user: str, decision: str
) -> None:
    policy, _ = make(user=user, settings={"tools": {"allowed": ["web_fetch", "browser_action"]}})
    session = [SessionRule(tool="web_fetch", path=host) for host in ("localhost:3000", "127.0.0.1")]
    for name in ("web_fetch", "browser_action"):
        wanted = call(name, url=url)
        verdict = asyncio.run(policy.decide_by_rules_and_checkers(wanted, "network", mode, session))
        assert verdict.decision == (decision if name == "web_fetch" or not user else "ask")
        if verdict.decision == "ask":
            assert "private address" in verdict.reason
            assert policy.offered_choices(wanted, "network", verdict) == ONCE


def test_there_is_no_blanket_choice_for_our_own_tools(make, call, shell) -> None:
    policy, _ = make()
    for choice in ("proceed_always_tool", "proceed_always_server", "proceed_always_and_save"):
        assert policy.session_rule_for_choice(shell("ls"), "execute", choice, "default") is None
        assert (
            policy.session_rule_for_choice(call("write_file", file_path="a"), "write", choice, "default")
            is None
        )
    assert policy.session_rule_for_choice(call("discovered_tool", x=1), "execute", ALWAYS, "default") is None


def test_an_mcp_tool_or_server_can_be_remembered(make, call) -> None:
    policy, _ = make(scope=Scope(servers=frozenset({"s", "s_t"})))
    tool = policy.session_rule_for_choice(call("mcp_s_read"), "execute", "proceed_always_tool", "default")
    server = policy.session_rule_for_choice(call("mcp_s_read"), "execute", "proceed_always_server", "default")
    for name, with_tool, with_server in (
        ("mcp_s_read", "allow", "allow"),
        ("mcp_s_write", "ask", "allow"),
        ("mcp_s_t_read", "ask", "ask"),
    ):
        assert policy.check(call(name), "execute", "default", [tool]).decision == with_tool
        assert policy.check(call(name), "execute", "default", [server]).decision == with_server


def test_choices_offer_always_where_it_would_spare_the_next_question(make, shell, call) -> None:
    policy, _ = make()
    verdict = policy.check(shell("git status"), "execute", "default")
    assert policy.offered_choices(shell("git status"), "execute", verdict)[:2] == ("proceed_once", ALWAYS)
    text = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "git status"\ndecision = "ask"\npriority = 1\n'
    policy, _ = make(user=text)
    verdict = policy.check(shell("ls; git status"), "execute", "default")
    assert ALWAYS not in policy.offered_choices(shell("ls; git status"), "execute", verdict)
    rule = policy.session_rule_for_choice(shell("ls; git status"), "execute", ALWAYS, "default")
    assert policy.check(shell("git status"), "execute", "default", [rule]).decision == "ask"
    assert policy.session_rule_for_choice(shell("ls"), "execute", ALWAYS, "other") is None, (
        "a mode that isn't known"
    )
    assert policy.session_rule_for_choice(shell("ls"), "execute", ALWAYS, "autoEdit").modes == (
        "auto_edit",
        "yolo",
    )
