"""Rules are read from every documented place, each in its tier; files that others could have written don't count."""

import os
from pathlib import Path

import pytest
from folders import put

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule_files import (
    ADMIN_FOLDERS,
    RulePlaces,
    list_rule_files,
    list_workspace_rule_files,
    load_rules,
)
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings

DENY = '[[rule]]\ntoolName = "w"\ndecision = "deny"\npriority = 5\n'
ALLOW = DENY.replace("deny", "allow")


def rule(folder: Path, text: str = DENY, name: str = "a.toml", mode: int = 0o644) -> Path:
    file = put(folder / name, text)
    file.chmod(mode)
    return file


@pytest.fixture
def places(tmp_path: Path) -> RulePlaces:
    root, home, admin = tmp_path / "work", tmp_path / "user", tmp_path / "etc"
    for folder in (root, home, admin):
        folder.mkdir()
    return RulePlaces(root, home, True, (admin / "a", admin / "b"))


def test_every_documented_place_has_its_tier(places: RulePlaces) -> None:
    expected = [
        (rule(places.home / ".gemini/extensions/x/policies"), 2),
        (rule(places.home / ".interlock/extensions/y/policies"), 2),
        (rule(places.root / ".gemini/policies"), 3),
        (rule(places.root / ".interlock/policies"), 3),
        (rule(places.home / ".gemini/policies"), 4),
        (rule(places.home / ".interlock/policies"), 4),
        (rule(places.admin[0]), 5),
        (rule(places.admin[1]), 5),
    ]
    rule(places.home / ".interlock/policies", name="notes.md")
    rule(places.home / ".interlock/policies", name=".hidden.toml")
    assert list_rule_files(places) == expected
    assert [str(p) for p in ADMIN_FOLDERS] == ["/etc/gemini-cli/policies", "/etc/interlock/policies"]


def test_a_workspace_counts_only_when_it_is_trusted_and_at_home_the_users_rules_are_the_users(
    places: RulePlaces,
) -> None:
    mine = rule(places.root / ".gemini/policies")
    untrusted = RulePlaces(places.root, places.home, False, places.admin)
    assert (list_rule_files(untrusted), list_rule_files(places)) == ([], [(mine, 3)])
    assert list_workspace_rule_files(places.root, places.home) == [mine]
    mine = rule(places.home / ".gemini/policies")
    assert list_rule_files(RulePlaces(places.home, places.home, True, ())) == [(mine, 4)]


def test_a_folder_that_is_a_file_or_a_pipe_is_reported_and_asks(places: RulePlaces) -> None:
    put(places.home / ".gemini" / "policies", DENY)
    put(places.home / ".interlock/policies/notes.md")
    os.mkfifo(places.home / ".interlock/policies/pipe.toml")
    files = list_rule_files(places)
    assert [f.name for f, _ in files] == ["policies", "pipe.toml"]
    rules, problems = load_rules(files)
    assert "pipe.toml:1: can't be read: it isn't a file" in str(problems[0])
    assert {r.decision for r in rules} == {"deny", "ask"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_folder_that_cannot_be_listed_is_reported(places: RulePlaces) -> None:
    rule(places.home / ".gemini/policies").parent.chmod(0)
    _, problems = load_rules(list_rule_files(places))
    assert "can't be read: Permission denied" in str(problems[0])


@pytest.mark.parametrize(
    ("tier", "file_mode", "folder_mode", "counts"),
    [
        (5, 0o644, 0o755, True),
        (5, 0o666, 0o755, False),
        (5, 0o664, 0o755, False),
        (5, 0o644, 0o777, False),
        (5, 0o644, 0o775, False),
        (4, 0o664, 0o775, True),
        (4, 0o666, 0o755, False),
        (4, 0o644, 0o777, False),
        (2, 0o646, 0o755, False),
        (3, 0o666, 0o777, True),
    ],
)
def test_what_others_may_write_does_not_count_and_its_tier_asks(
    tmp_path: Path, tier: int, file_mode: int, folder_mode: int, counts: bool
) -> None:
    file = rule(tmp_path / "policies", DENY, mode=file_mode)
    file.parent.chmod(folder_mode)
    rules, problems = load_rules([(file, tier)])
    assert [r.decision for r in rules] == (["deny"] if counts else ["ask"])
    assert bool(problems) is not counts
    if problems:
        assert "others may write" in str(problems[0]) and str(file) in str(problems[0])


def test_a_file_that_does_not_count_never_allows_and_weakens_nothing_of_others(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    open_to_all = rule(tmp_path / "etc", ALLOW, mode=0o666)
    users = rule(tmp_path / "user", DENY.replace('"w"', '"d"'))
    rules, problems = load_rules([(users, 4), (open_to_all, 5)])
    policy = RulePolicy(WorkspaceRules(rules, Settings(), FolderWorkspace(tmp_path / "work")))
    calls = [CallView(id="1", name=n, args={}) for n in ("w", "d")]
    assert [policy.check(call, "write", "yolo").decision for call in calls] == ["ask", "deny"]
    assert len(problems) == 1
