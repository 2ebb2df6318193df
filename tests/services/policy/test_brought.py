"""With `-y`, what changes a file that Interlock or git obeys asks, however it is written; everyday lines run unasked.
What a rule denies stays denied in a text and as a copy."""

import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from folders import table, tree

from interlock.services.files.protected import ProtectedPaths
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView
from interlock.state.settings import Settings

TABLE: dict[str, Any] = table(__file__, "unasked.yaml")
GIT = shutil.which("git") or "git"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with two branches, archives, and a copy of git."""
    root = tmp_path_factory.mktemp("brought")
    tree(
        root,
        {
            "AGENTS.md": "1",
            "x": "x",
            "sub/AGENTS.md": "1",
            "src/a.py": "1",
            "plaindir/b.txt": "b",
            "dist/c.js": "c",
        },
    )
    tree(root, {"evil/AGENTS.md": "2", "evil/sub/y": "y", "tmpl/.github/workflows/ci.yml": "x"})
    _git(root, "init", "-q", "-b", "main")
    _git(root, "add", "-A")
    _git(root, "commit", "-qm", "x")
    _git(root, "checkout", "-qb", "other")
    tree(root, {"AGENTS.md": "2", "src/a.py": "2"})
    _git(root, "commit", "-qam", "y")
    _git(root, "checkout", "-q", "main")
    with tarfile.open(root / "a.tar", "w") as archive:
        archive.add(root / "evil", arcname=".")
    with tarfile.open(root / "ok.tgz", "w:gz") as archive:
        archive.add(root / "src", arcname="src")
    with zipfile.ZipFile(root / "a.zip", "w") as archive:
        archive.write(root / "evil/AGENTS.md", "AGENTS.md")
    shutil.copy2(GIT, root / "g")
    (root / "lnk").symlink_to(GIT)
    return root


def _git(root: Path, *words: str) -> None:
    name = ("-c", "user.email=a@b.c", "-c", "user.name=a")
    subprocess.run([GIT, *name, *words], cwd=root, check=True)


def decisions(root: Path, lines: list[str], *denied: str) -> dict[str, str]:
    """Return what is decided on each line under -y, where rules deny some commands."""
    excluded = {"exclude": [f"run_shell_command({one})" for one in denied]} if denied else {}
    space = FolderWorkspace(root, protected=ProtectedPaths(home=Path.home()))
    policy = RulePolicy(WorkspaceRules([], Settings.model_validate({"tools": excluded}), space))
    calls = {line: CallView(id="1", name="run_shell_command", args={"command": line}) for line in lines}
    return {line: policy.check(call, "execute", "yolo").decision for line, call in calls.items()}


def test_what_changes_a_file_that_the_program_obeys_asks_however_the_line_names_it(root: Path) -> None:
    assert {line: got for line, got in decisions(root, TABLE["changes"]).items() if got != "ask"} == {}


def test_what_shows_a_private_file_asks_however_the_line_names_it(tmp_path: Path) -> None:
    tree(tmp_path, {".env": "KEY=x", "x": "x", "sub/y": "y"})
    _git(tmp_path, "init", "-q")
    assert {line: got for line, got in decisions(tmp_path, TABLE["shows"]).items() if got != "ask"} == {}


@pytest.mark.parametrize(
    "line",
    [
        "tee AGENTS.md # " + "a" * 21_000,
        "true;" * 400 + "tee AGENTS.md",
        "cp x AGENTS\\\n.md",
        "tee AGENTS\u200b.md",
        "cat .env # " + "a" * 21_000,
    ],
    ids=["long", "many", "glued", "invisible", "private"],
)
def test_a_line_that_is_not_read_to_its_end_asks_if_it_holds_a_name_that_the_program_obeys(
    root: Path, line: str
) -> None:
    assert decisions(root, [line]) == {line: "ask"}
    plain = line.replace("AGENTS", "x").replace(".env", "y")
    assert decisions(root, [plain]) == {plain: "allow"}


def test_everyday_lines_run_unasked(root: Path) -> None:
    free = decisions(root, [*TABLE["everyday"], *TABLE["opaque"]])
    assert {line: got for line, got in free.items() if got != "allow"} == {}
    ruled = decisions(root, TABLE["everyday"], "git push")
    assert {line: got for line, got in ruled.items() if got != "allow"} == {}


@pytest.mark.parametrize("want", ["deny", "ask"])
def test_what_a_rule_denies_stays_denied_in_a_text_and_as_a_copy(root: Path, want: str) -> None:
    lines = TABLE["push"][want]
    if want == "deny" and not Path("/usr/bin/git").exists():
        pytest.skip("git isn't /usr/bin/git")
    assert {line: got for line, got in decisions(root, lines, "git push").items() if got != want} == {}
    assert decisions(root, ["./g status", "make -f - <<< 'x:; ls'"], "hg push")["./g status"] == "allow"


def test_a_folder_or_an_archive_asks_only_for_names_that_the_program_obeys(
    root: Path, tmp_path: Path
) -> None:
    """An ignore file that isn't there yet could only take rights away. What can't be looked at asks at the top only."""
    tree(tmp_path, {"new/.gitignore": "x", "new/a.py": "x", "many/x": ""})
    for number in range(5_001):
        (tmp_path / f"many/{number}").touch()
    with tarfile.open(tmp_path / "linked.tar", "w") as archive:
        link = tarfile.TarInfo("docs")
        link.type, link.linkname = tarfile.SYMTYPE, ".github"
        archive.addfile(link)
    (tmp_path / "packed.tar.zst").write_bytes(b"\x28\xb5\x2f\xfd" + b"x" * 100)
    wanted = {
        "cp -r new/. .": "allow",
        "cp -r many/. .": "ask",
        "cp -r many plain": "allow",
        "tar xf linked.tar": "ask",
        "tar xf packed.tar.zst": "ask",
        "tar xf packed.tar.zst -C out": "allow",
        "tar xf missing.tar": "allow",
        "make x.tar && tar xf x.tar": "ask",
    }
    assert decisions(tmp_path, [*wanted]) == wanted
    (tmp_path / ".gitignore").touch()
    assert decisions(tmp_path, ["cp -r new/. ."]) == {"cp -r new/. .": "ask"}
