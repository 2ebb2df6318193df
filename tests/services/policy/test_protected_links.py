"""What a link below a protected name leads to asks in every mode, as the name itself does."""

import os
import tempfile
from pathlib import Path

import pytest
from folders import tree
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.files import protected_links
from interlock.services.files.protected import ProtectedPaths, builtin_protected_names
from interlock.services.files.protected_links import LinkFolder
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings

LINKS = {
    ".gemini/skills/x": "../../tools/x",
    "tools/x/reference": "../../shared",
    "way": "docs",
    "pkg/a/.claude/commands": "../../../way/commands",
    ".git/hooks/pre-commit": "../../scripts/check",
    "CLAUDE.md": "docs/model.md",
    ".cursor/rules/gone.mdc": "../../rules/later.mdc",
}
ASKED = (
    *("tools/x/SKILL.md", "tools/x/scripts/new.py", "TOOLS/X/skill.md", "shared/a.md", "rules/later.mdc"),
    *(
        "way/commands/a.md",
        "docs/commands/a.md",
        "scripts/check",
        "docs/model.md",
        "same.md",
        "around/tools/x/a",
    ),
)
FREE = ("tools/y", "docs/a.md", "scripts/other", "README.md", "around/README.md", "rules/a.mdc", "alone.md")


@pytest.fixture(autouse=True)
def _check_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protected_links, "_REST", 0)


def link(root: Path, links: dict[str, str]) -> None:
    for name, target in links.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(target)


def decide(space: FolderWorkspace, path: str) -> str:
    """Return what is decided on a tool and on a command that writes the file, where nothing else asks."""
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({}), space))
    write = CallView(id="1", name="write_file", args={"file_path": path})
    copy = CallView(id="1", name="run_shell_command", args={"command": f"cp a {path}"})
    decided = (policy.check(write, "write", "yolo"), policy.check(copy, "execute", "yolo"))
    return "/".join(dict.fromkeys(one.decision for one in decided))


def test_what_a_protected_link_leads_to_is_asked_about(tmp_path: Path) -> None:
    tree(
        tmp_path,
        {"tools/x/SKILL.md": "x", "docs/model.md": "x", "scripts/check": "", "shared/a.md": "", "twin": ""},
    )
    link(tmp_path, LINKS)
    (tmp_path / "around").symlink_to(".")
    os.link(tmp_path / "tools/x/SKILL.md", tmp_path / "same.md")
    os.link(tmp_path / "twin", tmp_path / "alone.md")
    space = FolderWorkspace(tmp_path)
    assert {path: decide(space, path) for path in (*ASKED, "way")} == dict.fromkeys((*ASKED, "way"), "ask")
    assert {path: decide(space, path) for path in FREE} == dict.fromkeys(FREE, "allow")
    found = space.find_protection("tools/x/SKILL.md")
    assert found is not None and found.what.endswith("; .gemini/skills/x leads to it")
    (tmp_path / ".gemini/skills/x").unlink()
    link(tmp_path, {"new/.agents/skills": "../more"})
    assert (decide(space, "tools/x/a"), decide(space, "new/more/a")) == ("allow", "ask")


def test_a_link_to_the_workspace_itself_protects_what_is_obeyed_of_it(tmp_path: Path) -> None:
    link(tmp_path, {"one/.claude/skills/me": "../../..", "two/.claude/commands": "../.."})
    both, skill = FolderWorkspace(tmp_path), FolderWorkspace(tmp_path / "one")
    assert [decide(both, path) for path in ("SKILL.md", "go.md", "src/a.py")] == ["ask", "ask", "allow"]
    (tmp_path / "one/.claude/skills/me").unlink()
    link(tmp_path / "one", {".claude/skills/me": "../.."})
    assert [decide(skill, path) for path in ("SKILL.md", "README.md")] == ["ask", "allow"]


def test_links_of_the_users_own_configuration_count(tmp_path: Path) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    tree(work, {"bashrc": "", "skill/SKILL.md": "", "other": ""})
    link(home, {".bashrc": "../work/bashrc", ".claude/skills/s": "../../../work/skill", ".src": "../work"})
    folders = [LinkFolder(str(home), "yours", 0, "."), LinkFolder(str(home / ".claude"), "yours", 1)]
    space = FolderWorkspace(work, protected=ProtectedPaths(link_folders=folders))
    found = [decide(space, path) for path in ("bashrc", "skill/SKILL.md", "other")]
    assert found == ["ask", "ask", "allow"]


NAMES = st.sampled_from(["a", "b", "skills", ".claude", ".Gemini"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@given(folders=st.lists(PATHS, max_size=4), links=st.lists(st.tuples(PATHS, PATHS), max_size=5))
def test_exactly_what_is_found_below_a_protected_name_is_protected(
    folders: list[str], links: list[tuple[str, str]]
) -> None:
    """Whatever the links: chains, circles, links to folders around them, and to nothing."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        for folder in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
            (root / folder / "f").touch()
        for at, target in links:
            place = root / at
            if not os.path.lexists(place) and os.path.isdir(place.parent):  # noqa: PTH112 - circles
                place.symlink_to(os.path.relpath(root / target, place.parent.resolve()))
        obeyed = {os.path.realpath(path) for path in walk(root, ()) if is_named(path.relative_to(root))}
        space = FolderWorkspace(root)
        files = {str(file) for file in root.rglob("*") if file.is_file() and not file.is_symlink()}
        asked = {file for file in files if space.find_protection(file)}
        assert asked == {file for file in files if file in obeyed}


def is_named(path: Path) -> bool:
    return any(part.casefold() in builtin_protected_names() for part in path.parts)


def walk(folder: Path, real_parents: tuple[str, ...]) -> list[Path]:
    """Return all paths below a folder, links followed, but for circles."""
    real = os.path.realpath(folder)
    if real_parents.count(real) > 1 or not os.path.isdir(real):  # noqa: PTH112 - circles
        return [folder]
    names = sorted(os.listdir(real))  # noqa: PTH208 - as above
    return [folder, *(path for name in names for path in walk(folder / name, (*real_parents, real)))]
