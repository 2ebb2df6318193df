"""Always-choices: how they are narrowed, what they cover, and when they are offered."""

import pytest

from interlock.services.policy.rule import Scope
from interlock.state.calls import SessionRule

ALWAYS = "proceed_always"


@pytest.mark.parametrize(
    ("line", "prefixes"),
    [
        ("git status", ("git status",)),
        ("git status -s && git diff a b", ("git status", "git diff")),
        ("git push origin main", ("git push origin main",)),
        ("ls -la src | head -3", ("ls", "head")),
        ("npm run build -- --x", ("npm run build",)),
        ("npm install left-pad", ("npm install left-pad",)),
        ("python x.py 'a b'", ("python x.py 'a b'",)),
        ("timeout 5 pytest -q", ("pytest",)),
        ("bash -c 'git status; ls'", ("git status", "ls")),
        ("cd src && ls || true", ("cd", "ls")),
        ("for f in *.py; do cat $f; done", ("cat",)),
    ],
)
def test_a_shell_choice_is_narrowed_to_leading_words(
    make, shell, line: str, prefixes: tuple[str, ...]
) -> None:
    policy, _ = make()
    rule = policy.narrow(shell(line), "execute", ALWAYS, "default")
    assert rule is not None and rule.command_prefixes == prefixes
    assert rule.modes == ("default", "auto_edit", "yolo")
    assert policy.check(shell(line), "execute", "default", [rule]).decision == "allow"


@pytest.mark.parametrize(
    "line",
    [
        "rm -rf x",
        "$x",
        "eval $x",
        "sudo ls",
        "python $x",
        "ls; rm -rf x",
        "",
        "x=1",
        "ls 'x",
        "git -c a=b log",
    ],
)
def test_what_is_dangerous_or_unknown_is_never_remembered(make, shell, line: str) -> None:
    policy, _ = make()
    assert policy.narrow(shell(line), "execute", ALWAYS, "default") is None
    verdict = policy.check(shell(line), "execute", "default")
    assert policy.choices(shell(line), "execute", verdict) == ("proceed_once", "modify", "reject", "cancel")


@pytest.mark.parametrize(
    ("line", "decision"),
    [
        ("git status -s", "allow"),
        ("ls && git status", "allow"),
        ("git statuses", "ask"),
        ("git -c a=b status", "ask"),
        ("git status; git log", "ask"),
        ("git status > out", "ask"),
        ("git status $(rm x)", "ask"),
        ("./git status", "ask"),
        ("A=1 git status", "ask"),
        ("PATH=. git status", "ask"),
        ("ls $(", "ask"),
        ("$x status", "ask"),
    ],
)
def test_a_shell_rule_covers_every_part_or_nothing(make, shell, line: str, decision: str) -> None:
    policy, _ = make()
    session = [policy.narrow(shell("git status && ls"), "execute", ALWAYS, "default")]
    assert policy.check(shell(line), "execute", "default", session).decision == decision


def test_redirection_passes_only_when_the_rule_has_it(make, shell) -> None:
    policy, _ = make()
    rule = policy.narrow(shell("ls > out"), "execute", ALWAYS, "default")
    assert rule is not None and rule.redirection
    assert policy.check(shell("ls > other"), "execute", "default", [rule]).decision == "allow"
    assert policy.check(shell("ls > ../other"), "execute", "default", [rule]).decision == "ask"
    without = policy.narrow(shell("ls"), "execute", ALWAYS, "default")
    for mode in ("default", "auto_edit"):
        assert policy.check(shell("ls > other"), "execute", mode, [without]).decision == "ask"


def test_a_choice_holds_in_its_mode_and_looser_ones_and_never_in_plan(make, shell, call) -> None:
    policy, _ = make()
    rule = policy.narrow(shell("git status"), "execute", ALWAYS, "auto_edit")
    assert policy.check(shell("git status"), "execute", "auto_edit", [rule]).decision == "allow"
    assert policy.check(shell("git status"), "execute", "default", [rule]).decision == "ask"
    blanket = SessionRule(tool="run_shell_command", command_prefixes=("git status",))
    assert policy.check(shell("git status"), "execute", "plan", [blanket]).decision == "deny"
    file = SessionRule(tool="write_file", path="a.py")
    assert policy.check(call("write_file", file_path="a.py"), "write", "plan", [file]).decision == "deny"


def test_an_edit_is_remembered_for_its_file_only(make, call, workspace) -> None:
    policy, _ = make()
    rule = policy.narrow(call("replace", file_path="src/../src/a.py"), "write", ALWAYS, "default")
    assert rule is not None and (rule.tool, rule.path) == ("replace", "src/a.py")
    session = [rule]
    absolute = str(workspace.root / "src" / "a.py")
    assert policy.check(call("replace", file_path=absolute), "write", "default", session).decision == "allow"
    assert policy.check(call("replace", file_path="src/b.py"), "write", "default", session).decision == "ask"
    assert (
        policy.check(call("write_file", file_path="src/a.py"), "write", "default", session).decision == "ask"
    )
    (workspace.root / "link.py").symlink_to(workspace.root / "src" / "b.py")
    assert policy.check(call("replace", file_path="link.py"), "write", "default", session).decision == "ask"


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", ".git/config", None, 5])
def test_a_path_that_tools_may_not_touch_is_not_remembered(make, call, path) -> None:
    policy, _ = make()
    assert policy.narrow(call("write_file", file_path=path), "write", ALWAYS, "default") is None
    assert policy.narrow(call("write_file"), "write", ALWAYS, "default") is None


@pytest.mark.parametrize(
    ("url", "decision"),
    [
        ("https://docs.example.com/b", "allow"),
        ("http://DOCS.example.com", "allow"),
        ("https://docs.example.com.evil.org/", "ask"),
        ("https://docs.example.com@evil.org/", "ask"),
        ("https://evil.org\\@docs.example.com/", "ask"),
        ("https://docs.example.com:8080/", "ask"),
        ("https://docs.example.com/ and https://evil.org", "ask"),
        ("https://[", "ask"),
        ("no url", "ask"),
    ],
)
def test_a_fetch_is_remembered_for_its_host_only(make, call, url: str, decision: str) -> None:
    policy, _ = make()
    rule = policy.narrow(
        call("web_fetch", prompt="read https://docs.example.com/a now"), "network", ALWAYS, "default"
    )
    assert rule is not None and rule.path == "docs.example.com"
    assert policy.check(call("web_fetch", prompt=url), "network", "default", [rule]).decision == decision


def test_there_is_no_blanket_choice_for_our_own_tools(make, call, shell) -> None:
    policy, _ = make()
    for choice in ("proceed_always_tool", "proceed_always_server", "proceed_always_and_save"):
        assert policy.narrow(shell("ls"), "execute", choice, "default") is None
        assert policy.narrow(call("write_file", file_path="a"), "write", choice, "default") is None
    assert policy.narrow(call("discovered_tool", x=1), "execute", ALWAYS, "default") is None
    crafted = [SessionRule(tool="run_shell_command"), SessionRule(tool="write_file")]
    assert policy.check(shell("ls"), "execute", "default", crafted).decision == "ask"
    assert policy.check(call("write_file", file_path="a"), "write", "default", crafted).decision == "ask"


def test_an_mcp_tool_or_server_can_be_remembered(make, call) -> None:
    policy, _ = make(scope=Scope(servers=frozenset({"s", "s_t"})))
    tool = policy.narrow(call("mcp_s_read"), "execute", "proceed_always_tool", "default")
    server = policy.narrow(call("mcp_s_read"), "execute", "proceed_always_server", "default")
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
    assert policy.choices(shell("git status"), "execute", verdict)[:2] == ("proceed_once", ALWAYS)
    text = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "git status"\ndecision = "ask"\npriority = 1\n'
    policy, _ = make(user=text)
    verdict = policy.check(shell("ls; git status"), "execute", "default")
    assert ALWAYS not in policy.choices(shell("ls; git status"), "execute", verdict)
    rule = policy.narrow(shell("ls; git status"), "execute", ALWAYS, "default")
    assert policy.check(shell("git status"), "execute", "default", [rule]).decision == "ask"


def test_a_session_rule_never_lifts_a_deny(make, shell) -> None:
    text = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "rm"\ndecision = "deny"\npriority = 1\n'
    policy, _ = make(workspace=text)
    session = [SessionRule(tool="run_shell_command", command_prefixes=("rm",))]
    assert policy.check(shell("rm x"), "execute", "default", session).decision == "deny"


def test_a_damaged_session_rule_covers_nothing(make, shell) -> None:
    policy, _ = make()
    session = [SessionRule(tool="run_shell_command", command_prefixes=("ls 'x", ""))]
    assert policy.check(shell("ls"), "execute", "default", session).decision == "ask"


def test_a_choice_in_a_mode_that_is_not_known_is_not_remembered(make, shell) -> None:
    policy, _ = make()
    assert policy.narrow(shell("ls"), "execute", ALWAYS, "other") is None
    assert policy.narrow(shell("ls"), "execute", ALWAYS, "autoEdit").modes == ("auto_edit", "yolo")
