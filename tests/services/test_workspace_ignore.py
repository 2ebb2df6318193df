"""Ignore rules: like git's, with the user's own files having the last word."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from folders import tree
from hypothesis import example, given, settings
from hypothesis import strategies as st

from interlock.services.files.ignore import IgnoreRules
from interlock.services.files.workspace import FolderWorkspace, open_workspace
from interlock.state.settings import Settings
from interlock.state.workspace import PathRefused


def files_in(root: Path, files: dict[str, Any], empty: str = "") -> FolderWorkspace:
    tree(root, {**files, **dict.fromkeys(empty.split(), "")})
    return FolderWorkspace(root)


def walked(workspace: FolderWorkspace, start: str = ".", *, include_ignored: bool = False) -> list[str]:
    found = workspace.list_files(workspace.resolve_readable(start), include_ignored=include_ignored)
    return [workspace.display_path(Path(path)) for path in found]


def git(root: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "repo")
    return tmp_path / "repo"


NESTED = {
    ".gitignore": "*.log\n!keep.log\n/only-root\nbuild/\ndoc/*.txt\n",
    "sub/.gitignore": "!wanted.log\nlocal\n",
}
NAMES_IN_IT = """a.py a.log keep.log only-root sub/only-root sub/wanted.log sub/deep/wanted.log sub/local/x sub/build/x
build/keep.log doc/a.txt doc/b/a.txt local"""


def test_nested_gitignores_hold_as_in_git(repo: Path) -> None:
    workspace = files_in(repo, NESTED, NAMES_IN_IT)
    seen = git(repo, "ls-files", "-co", "--exclude-standard").split()
    assert walked(workspace) == sorted(seen, key=lambda name: name.split("/"))
    for path in repo.rglob("*"):
        if path.is_file() and ".git/" not in str(path):
            assert workspace.is_ignored(path) == (path.relative_to(repo).as_posix() not in seen), path


def test_rules_of_git_hold_where_there_is_a_repository_also_one_made_during_the_run(tmp_path: Path) -> None:
    workspace = files_in(tmp_path, {".gitignore": "*.log"}, "a.log")
    assert walked(workspace) == [".gitignore", "a.log"]
    git(tmp_path, "init", "-q")
    assert walked(workspace) == [".gitignore"]
    assert workspace.is_ignored(tmp_path / "a.log")
    (tmp_path / ".gitignore").write_text("*.other\n")
    assert not workspace.is_ignored(tmp_path / "a.log"), "a changed file is read again"


def test_info_exclude_counts_also_in_linked_work_trees(repo: Path, tmp_path: Path) -> None:
    files_in(repo, {}, "a")
    git(repo, "add", "a")
    git(repo, "commit", "-q", "-m", "a")
    (repo / ".git" / "info" / "exclude").write_text("*.tmp\n")
    git(repo, "worktree", "add", "-q", str(tmp_path / "linked"))
    for root in (repo, tmp_path / "linked"):
        assert walked(files_in(root, {}, "x.tmp")) == ["a"]


OWN = {".gitignore": "*.log\ndist/\n", ".geminiignore": "!debug.log\n!dist/\nsecret\n"}
CLAUDE = ".claude/settings.json"
READ_DENIALS = ["Read(*.key)", "Read(./sub/x)", "Read(s/**)", "Read(!y/z)", "Read(.env*)", "Bash(cat y/z)", 3]
BROKEN = b"\xef\xbb\xbf*.log\n[z-a]\n[[[a]\nfoo\\\n\xff\xfe\n*.tmp\n"
DEEP = "/".join("a" * 60)


@pytest.mark.parametrize(
    ("files", "names", "top", "found"),
    [
        # The rules of a repository hold for a workspace below its top.
        ({".gitignore": "*.log\n/sub/x\n"}, "sub/a.log sub/x sub/y", "sub", ["y"]),
        # The user's own files come last and bring back, but for what is below an ignored directory.
        ({**OWN, ".rooignore": "debug.log"}, "debug.log x.log dist/a secret", ".", ["dist/a"]),
        (OWN, "debug.log x.log dist/a secret", ".", ["debug.log", "dist/a"]),
        ({".gitignore": "dist/", ".geminiignore": "!dist/keep\n"}, "dist/keep", ".", []),
        # Other agents' files only hide, each by itself, below the repository's top too.
        (
            {".cursorignore": "*.key\n!a.key\n", ".clineignore": "!a.key\n!b.key"},
            "a.key b.key",
            ".",
            ["a.key"],
        ),
        ({".aiexclude": "x\n", ".codeiumignore": "/sub/y\n"}, "sub/x sub/y sub/z", "sub", ["z"]),
        ({".gitignore": "*.log\n", ".cursorignore": "!*.log\n"}, "a.log", ".", []),
        (
            {CLAUDE: {"permissions": {"deny": READ_DENIALS}}},
            "a.key sub/a.key sub/x sub/s/t y/z .envx",
            ".",
            ["y/z"],
        ),
        ({CLAUDE: b'// x\n{"permissions": {"deny": ["Read(*.key)",]}}'}, "a.key b", ".", ["b"]),
        ({CLAUDE: b"{broken"}, "a", ".", ["a"]),
        # Broken lines are skipped as git skips them; no pattern of a project can hold us up.
        ({".gitignore": BROKEN}, "a.log b.tmp c", ".", ["c"]),
        ({".gitignore": "*a" * 40 + "b\n" + "**/a/" * 30 + "x\n"}, "a" * 200, ".", ["a" * 200]),
        ({".gitignore": "**/a/" * 12 + "x\n"}, DEEP, ".", [DEEP]),
    ],
    ids=[
        *(
            "below the top",
            "own files",
            "brought back",
            "below",
            "others' files",
            "their top",
            "not brought back",
        ),
        *("Claude's denials", "with comments", "Claude's, broken", "broken", "many stars", "deep"),
    ],
)
def test_ignore_files_leave(
    repo: Path, files: dict[str, Any], names: str, top: str, found: list[str]
) -> None:
    files_in(repo, files, names)
    shown = walked(FolderWorkspace(repo / top))
    assert [name for name in shown if not name.startswith(".")] == found


def test_custom_ignore_files_and_switches_of_the_settings_hold(repo: Path) -> None:
    files_in(repo, {".gitignore": "a", ".geminiignore": "b", "mine.ignore": "c"}, "a b c d")
    switches = dict.fromkeys(("respectGitIgnore", "respectGeminiIgnore"), False)
    chosen = {**switches, "customIgnoreFilePaths": ["mine.ignore"]}
    workspace = open_workspace(repo, Settings.model_validate({"context": {"fileFiltering": chosen}}))
    assert [name for name in walked(workspace) if len(name) == 1] == ["a", "b", "d"]


def test_asking_for_ignored_files_never_shows_what_the_user_keeps(repo: Path) -> None:
    files = {".gitignore": "*.log", ".geminiignore": "*.key"}
    workspace = files_in(repo, files, "a.log a.key .env node_modules/x")
    assert walked(workspace, include_ignored=True) == [*sorted(files), "a.log", "node_modules/x"]
    assert walked(workspace) == sorted(files)
    assert walked(workspace, "node_modules") == ["node_modules/x"]
    assert workspace.is_ignored(repo / "a.log") and not workspace.is_ignored(repo / "a.log", git=False)


def test_links_are_listed_only_when_they_lead_to_a_file_of_ours(repo: Path, tmp_path: Path) -> None:
    files_in(tmp_path, {}, "outside repo/a repo/dir/x repo/.env")
    links = {"in": "a", "out": "../outside", "dirlink": "dir", "gone": "nowhere", "env": ".env"}
    for name, target in links.items():
        (repo / name).symlink_to(target)
    assert walked(FolderWorkspace(repo)) == ["a", "dir/x", "in"]


def test_where_case_makes_no_difference_a_name_in_another_case_is_ignored_too(repo: Path) -> None:
    workspace = files_in(repo, {".geminiignore": "secret.txt\nprivate/\n", "private/a": "", "SECRET.txt": ""})
    assert walked(workspace) == [".geminiignore", "SECRET.txt"]
    (repo / ".GEMINIIGNORE").hardlink_to(repo / ".geminiignore")  # as it looks there
    (repo / ".geminiignore").write_text("private/\nsecret.txt\nmore\n")
    assert walked(workspace) == [".GEMINIIGNORE", ".geminiignore"]
    for path in ("SECRET.txt", "Private/a"):
        with pytest.raises(PathRefused):
            workspace.resolve_readable(path)
            workspace.resolve_writable(path)


def test_no_ignore_file_of_a_project_can_hold_us_up_by_its_size(repo: Path) -> None:
    files_in(
        repo, {".gitignore": "a.txt\n" + "x" * 100_000 + "\n" + "y\n" * 30_000 + "b.txt\n"}, "a.txt b.txt"
    )
    rules = IgnoreRules(repo)
    assert rules.is_ignored(str(repo / "a.txt"), False)
    assert len(rules._load_patterns(str(repo / ".gitignore"))) == 20_000  # pyright: ignore[reportPrivateUsage]


NAMES = st.sampled_from(["a", "b", "ab", "a.x", "b.x", "dir"])
PARTS = st.sampled_from(["a", "b", "*", "a*", "*b", "*.x", "?", "[ab]", "[!a]", "**", "dir", "*a*b*"])
PATTERN = st.tuples(
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(PARTS, min_size=1, max_size=3),
    st.sampled_from(["", "/"]),
).map(lambda p: p[0] + p[1] + "/".join(p[2]) + p[3])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


@example(lines=["a/", "!a/**/"], paths=["a/a"])
@example(lines=["*", "!dir/"], paths=["dir/a.x"])
@settings(max_examples=settings.default.max_examples // 3)  # each starts git
@given(
    lines=st.lists(PATTERN, min_size=1, max_size=5),
    paths=st.lists(PATHS, min_size=1, max_size=8, unique=True),
)
def test_our_verdict_is_gits(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], paths: list[str]
) -> None:
    repo = tmp_path_factory.mktemp("repo")
    git(repo, "init", "-q")
    (repo / ".gitignore").write_text("\n".join(lines) + "\n")
    for name in paths:
        path = repo / name
        if not any(parent.is_file() for parent in path.parents) and not path.exists():
            files_in(repo, {name: ""})
    # A .gitignore that ignores itself is one more name that both must agree on.
    seen = git(repo, "ls-files", "-co", "--exclude-standard", "-z").split("\0")
    assert set(walked(FolderWorkspace(repo))) == {name for name in seen if name}


def test_roo_codes_ignore_file_hides_itself(tmp_path: Path) -> None:
    (tmp_path / ".rooignore").write_text("!.rooignore\n")
    (tmp_path / "a.txt").touch()
    workspace = FolderWorkspace(tmp_path)
    assert workspace.resolve_readable("a.txt")
    with pytest.raises(PathRefused, match="kept from tools"):
        workspace.resolve_readable(".rooignore")
