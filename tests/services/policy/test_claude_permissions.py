"""Permissions of Claude Code's settings: what each entry comes to, and that an allow never covers more than there."""

import json
import os
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest
from folders import put, table
from hypothesis import given
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.claude_permissions import read_permissions
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule_files import RulePlaces, list_rule_files, load_rules, read_rule_files
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings
from interlock.tools.table import TOOLS

CASES: dict[str, Any] = table(__file__, "claude_permissions.yaml")
Policy = Callable[..., RulePolicy]


def policy_in(place: FolderWorkspace, permissions: dict[str, Any], **others: str) -> RulePolicy:
    """The policy of a workspace with these permissions, and rule files of the workspace or user."""
    root = place.root
    files = [(put(root / ".claude/settings.json", {"permissions": permissions}), 3)]
    for name, text in others.items():
        files.append((put(root.parent / f"{name}.toml", text), {"workspace": 3, "user": 4}[name]))
    rules, _ = load_rules(files)
    return RulePolicy(WorkspaceRules(rules, Settings(), place))


def shell(line: str) -> CallView:
    return CallView(id="1", name="run_shell_command", args={"command": line})


@pytest.mark.parametrize("case", CASES["entries"], ids=lambda case: f"{case['list']} {case['entry']}")
def test_each_entry_counts_or_is_named_with_the_reason(case: dict[str, Any]) -> None:
    text = json.dumps({"permissions": {case["list"]: [case["entry"]]}})
    (entry,) = read_permissions(text, "/w/.claude/settings.json").entries
    assert (entry.fate, case.get("why", "") in entry.why) == (case["fate"], True), entry
    assert list(entry.rule.tools if entry.rule else ()) == case.get("tools", [])


@pytest.mark.parametrize("case", CASES["calls"], ids=lambda case: str(case["call"]))
def test_what_becomes_of_a_call(workspace: FolderWorkspace, case: dict[str, Any]) -> None:
    policy = policy_in(workspace, CASES["permissions"])
    for name in ("secret/a", "migrations/old"):
        put(workspace.root / name, "x")
    called = case["call"]
    view = shell(called) if isinstance(called, str) else CallView(id="1", name=called[0], args=called[1])
    risk = TOOLS[view.name].risk if view.name in TOOLS else "execute"
    assert policy.check(view, risk, case.get("mode", "default")).decision == case["is"]


def rule(decision: str) -> str:
    return f'[[rule]]\ntoolName = "run_shell_command"\ndecision = "{decision}"\npriority = 0\ncommandPrefix = "npm"\n'


@pytest.mark.parametrize("tier", ["workspace", "user"])
@pytest.mark.parametrize("decision", ["ask", "deny"])
def test_an_allow_never_beats_what_the_repository_or_the_user_restricts(
    workspace: FolderWorkspace, tier: str, decision: str
) -> None:
    policy = policy_in(workspace, {"allow": ["Bash(npm:*)"]}, **{tier: rule(decision)})
    assert policy.check(shell("npm test"), "execute", "default").decision == decision
    own = policy_in(workspace, {"allow": ["Bash(npm:*)"], decision: ["Bash(npm test)"]})
    assert own.check(shell("npm test"), "execute", "default").decision == decision
    assert own.check(shell("npm run x"), "execute", "default").decision == "allow"


def test_an_edit_through_a_link_is_allowed_only_if_both_places_are(workspace: FolderWorkspace) -> None:
    policy = policy_in(workspace, {"allow": ["Edit(src/**)"]})
    (workspace.root / "src" / "out").symlink_to("..")
    for path, decision in (("src/a", "allow"), ("src/out/b", "ask"), ("src/../b", "ask")):
        write = CallView(id="1", name="write_file", args={"file_path": path, "content": ""})
        assert policy.check(write, "write", "default").decision == decision, path


def test_a_run_keeps_the_permissions_and_nothing_else_of_the_file(workspace: FolderWorkspace) -> None:
    put(
        workspace.root / ".claude/settings.json",
        {"env": {"A_KEY": "s3cr3t"}, "permissions": {"deny": ["Bash"]}},
    )
    put(workspace.root / ".claude/settings.local.json", {"env": {"A_KEY": "s3cr3t"}})
    places = RulePlaces(workspace.root, workspace.root.parent, trusted=True)
    (kept,) = read_rule_files(list_rule_files(places))
    assert kept.text is not None and json.loads(kept.text) == {"permissions": {"deny": ["Bash"]}}
    assert list_rule_files(RulePlaces(workspace.root, workspace.root.parent, trusted=False)) == []


@pytest.mark.parametrize(
    "text", [b"{broken", b'{"permissions": []}', b'{"permissions": {"deny": {}}}', b"[]", b"\xff"]
)
def test_where_a_file_cant_be_read_everything_asks(workspace: FolderWorkspace, text: bytes) -> None:
    rules, problems = load_rules([(put(workspace.root / ".claude/settings.json", text), 3)])
    policy = RulePolicy(WorkspaceRules(rules, Settings(), workspace))
    assert len(problems) == 1
    assert policy.check(shell("ls"), "execute", "yolo").decision == "ask"


# ---- an allow covers no more than Claude Code's

WORD = st.sampled_from(["npm", "run", "test", "git", "push", "-f", "a", "x=1"])
ODD = st.sampled_from(["a b", "*", "$X", "'q'", "a;b", "$(id)", "", "--f=a b", "~", "{a,b}"])
MORE = st.lists(st.one_of(WORD, ODD.map(shlex.quote), ODD), max_size=3).map(" ".join)


@st.composite
def patterns_and_commands(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A pattern, and commands that differ a little from what it matches."""
    words = draw(
        st.lists(
            st.one_of(WORD, st.sampled_from(["*", "n*", "'a b'", "*.ts", '"*"'])), min_size=1, max_size=4
        )
    )
    pattern = " ".join(words) + draw(st.sampled_from(["", "", " *", ":*", "*", ":x"]))

    def command() -> str:
        text = re.sub(r":?\*", lambda _: draw(st.one_of(MORE, st.just(""), st.just("s"))), pattern)
        changed = draw(st.sampled_from(["same", "same", "more", "less", "glued", "other"]))
        more = draw(MORE)
        return {
            "same": text,
            "more": f"{text} {more}",
            "less": text[:-2],
            "glued": f"{text}s",
            "other": more,
        }[changed]

    return pattern, [command() for _ in range(draw(st.integers(1, 2)))]


JOIN = st.sampled_from([" && ", "; ", " | ", " || ", "\n", " & "])


def claude_matches(pattern: str, command: str) -> bool:
    """Whether Claude Code's pattern matches a command, by its documentation; quotes of the command aside."""
    text = pattern[:-2] + " *" if pattern.endswith(":*") else pattern
    optional = text.endswith(" *") and text.count("*") == 1
    body = text[:-2] if optional else text
    regex = ".*".join(map(re.escape, body.split("*"))) + ("( .*)?" if optional else "")
    if any(re.fullmatch(regex, one, re.DOTALL) for one in (command, command.replace("'", '"'))):
        return True
    try:
        words, wanted = shlex.split(command), shlex.split(pattern)
    except ValueError:
        return False
    # The same words in other quotes are the same command.
    return words == wanted or re.fullmatch(regex, " ".join(words), re.DOTALL) is not None


@given(drawn=patterns_and_commands(), join=JOIN)
def test_an_allow_matches_no_command_that_claude_codes_doesnt(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, list[str]], join: str
) -> None:
    pattern, commands = drawn
    workspace = FolderWorkspace(tmp_path_factory.mktemp("w"))
    policy = policy_in(workspace, {"allow": [f"Bash({pattern})"]})
    verdict = policy.check(shell(join.join(commands)), "execute", "default")
    if verdict.decision == "allow" and "settings.json" in verdict.rule:
        assert all(claude_matches(pattern, one.strip()) for one in commands if one.strip())


@given(drawn=patterns_and_commands())
def test_a_denial_matches_every_command_that_claude_codes_does(
    tmp_path_factory: pytest.TempPathFactory, drawn: tuple[str, list[str]]
) -> None:
    pattern, command = drawn[0], drawn[1][0].strip()
    workspace = FolderWorkspace(tmp_path_factory.mktemp("w"))
    policy = policy_in(workspace, {"deny": [f"Bash({pattern})"]})
    if claude_matches(pattern, command):
        assert policy.check(shell(command), "execute", "yolo").decision in ("ask", "deny")


PART = st.sampled_from(["a", "b", "src", "*", "**", "*.py", "..", ".", "a.py", "S?c"])
PATH_PATTERN = st.builds(
    lambda start, parts, end: start + "/".join(parts) + end,
    st.sampled_from(["", "/", "./", "//", "~/", "!"]),
    st.lists(PART, min_size=1, max_size=3),
    st.sampled_from(["", "/", "/**"]),
)
PATH = st.builds(
    lambda start, parts: start + "/".join(parts),
    st.sampled_from(["", "./", "../", "x/../", "{root}/"]),
    st.lists(st.sampled_from(["a", "b", "src", "SRC", "a.py", ".."]), min_size=1, max_size=4),
)


def claude_path_matches(pattern: str, path: str) -> bool:
    """Whether an allow of Claude Code's matches a path below the folder of its settings."""
    text = pattern[1:] if pattern.startswith("./") else pattern
    if pattern.startswith(("//", "~", "!")) or path.startswith(".."):
        return False
    anchored = text if text.startswith("/") or "/" not in text.rstrip("/") else f"/{text}"
    return GitIgnoreSpec.from_lines([anchored]).match_file(path)


@given(pattern=PATH_PATTERN, path=PATH)
def test_an_allow_of_edits_matches_no_path_that_claude_codes_doesnt(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, path: str
) -> None:
    root = tmp_path_factory.mktemp("w")
    policy = policy_in(FolderWorkspace(root), {"allow": [f"Edit({pattern})"]})
    given_path = path.replace("{root}", str(root))
    write = CallView(id="1", name="write_file", args={"file_path": given_path, "content": ""})
    if policy.check(write, "write", "default").decision == "allow":
        assert claude_path_matches(pattern, os.path.relpath(os.path.normpath(root / given_path), root))


HOST = st.lists(st.sampled_from(["a", "b", "docs", "com", "evil"]), min_size=1, max_size=4).map(".".join)


@given(
    host=HOST,
    star=st.sampled_from(["", "*.", "a*."]),
    url=HOST,
    port=st.sampled_from(["", ":80", "@evil.com", "\\evil"]),
)
def test_an_allow_of_a_host_matches_no_other(
    tmp_path_factory: pytest.TempPathFactory, host: str, star: str, url: str, port: str
) -> None:
    policy = policy_in(
        FolderWorkspace(tmp_path_factory.mktemp("w")), {"allow": [f"WebFetch(domain:{star}{host})"]}
    )
    fetch = CallView(id="1", name="web_fetch", args={"url": f"https://{url}{port}/x"})
    if policy.check(fetch, "network", "default").decision == "allow":
        ends = {
            "": url == host,
            "*.": url.endswith(f".{host}"),
            "a*.": url.startswith("a") and url.endswith(f".{host}"),
        }
        assert ends[star] and port in ("", ":80")
