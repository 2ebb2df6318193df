"""Path safety: what a tool may touch, with real symlinks."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.services.files.workspace import FolderWorkspace, open_workspace
from interlock.state.errors import ConfigError, UserError
from interlock.state.settings import Settings
from interlock.state.tooling import PathRefused


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "a.py").write_text("a\n")
    (tmp_path / "secret.txt").write_text("secret\n")
    return folder


@pytest.fixture
def workspace(root: Path) -> FolderWorkspace:
    return FolderWorkspace(root)


def test_relative_and_absolute_paths_inside_are_allowed(workspace: FolderWorkspace, root: Path) -> None:
    expected = root.resolve() / "src" / "a.py"
    for path in (
        "src/a.py",
        "./src/../src/a.py",
        str(root / "src" / "a.py"),
        f"file://{root}/src/a.py",
        "@src/a.py",
    ):
        assert workspace.readable(path) == expected
        assert workspace.writable(path) == expected


def test_a_file_url_is_decoded_but_a_plain_percent_sign_is_not(
    workspace: FolderWorkspace, root: Path
) -> None:
    (root / "a b").write_text("")
    assert workspace.readable(f"file://{root}/a%20b") == root.resolve() / "a b"
    assert workspace.readable("a%20b") == root.resolve() / "a%20b"


def test_a_name_that_begins_with_an_at_sign_is_found(workspace: FolderWorkspace, root: Path) -> None:
    (root / "@types").write_text("")
    assert workspace.readable("@types").name == "@types"


OUTSIDE = [
    *("..", "../secret.txt", "src/../../secret.txt", "/etc/passwd", "~", "~/x", "file:///etc/passwd", "/"),
    "@../x",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_paths_that_lead_outside_are_refused_in_one_line(workspace: FolderWorkspace, path: str) -> None:
    for check in (workspace.readable, workspace.writable):
        with pytest.raises(PathRefused, match="outside the workspace") as caught:
            check(path)
        assert "\n" not in str(caught.value)


def test_a_sibling_whose_name_begins_like_the_root_is_outside(workspace: FolderWorkspace, root: Path) -> None:
    sibling = root.with_name("project-two")
    sibling.mkdir()
    with pytest.raises(PathRefused):
        workspace.readable(str(sibling))


@pytest.mark.parametrize("path", ["", "  ", "a\0b"])
def test_empty_paths_and_nul_are_refused(workspace: FolderWorkspace, path: str) -> None:
    with pytest.raises(PathRefused):
        workspace.readable(path)


def test_a_symlink_out_is_refused_even_when_its_target_is_missing(
    workspace: FolderWorkspace, root: Path
) -> None:
    (root / "out").symlink_to(root.parent / "secret.txt")
    (root / "outdir").symlink_to(root.parent)
    (root / "dangling").symlink_to(root.parent / "nowhere")
    for path in ("out", "outdir", "outdir/secret.txt", "dangling", "src/../outdir/new.txt"):
        with pytest.raises(PathRefused, match="outside"):
            workspace.readable(path)
        with pytest.raises(PathRefused, match="outside"):
            workspace.writable(path)


def test_dots_after_a_symlink_are_taken_where_it_leads(workspace: FolderWorkspace, root: Path) -> None:
    """`link/..` is the parent of the link's target, not the workspace."""
    (root.parent / "elsewhere" / "deep").mkdir(parents=True)
    (root / "link").symlink_to(root.parent / "elsewhere" / "deep")
    with pytest.raises(PathRefused, match="outside"):
        workspace.readable("link/../x")


def test_a_symlink_inside_leads_to_the_real_file(workspace: FolderWorkspace, root: Path) -> None:
    (root / "link.py").symlink_to("src/a.py")
    assert workspace.writable("link.py") == root.resolve() / "src" / "a.py"


def test_a_symlink_loop_is_no_crash(workspace: FolderWorkspace, root: Path) -> None:
    (root / "one").symlink_to("two")
    (root / "two").symlink_to("one")
    workspace.readable("one")


def test_a_name_that_is_too_long_is_no_crash(workspace: FolderWorkspace) -> None:
    workspace.readable("x" * 5000)
    workspace.writable("x" * 5000)


PRIVATE = [
    *(".git/config", ".GIT/hooks/x", ".env", "src/.Env", ".env/x", "gha-creds-12ab.json", "GHA-creds-1.JSON"),
]
PRIVATE += ["id_rsa", "keys/id_ed25519", ".netrc", ".git-credentials", "src/../.git/HEAD"]


@pytest.mark.parametrize("path", PRIVATE)
def test_private_names_are_neither_read_nor_written(workspace: FolderWorkspace, path: str) -> None:
    for check in (workspace.readable, workspace.writable):
        with pytest.raises(PathRefused, match="may not touch"):
            check(path)


@pytest.mark.parametrize(
    "path", [".env.local", ".gitignore", ".github/x.yml", "env", "id_rsa.pub", "gha-creds.json"]
)
def test_names_that_only_look_private_are_fine(workspace: FolderWorkspace, path: str) -> None:
    workspace.readable(path)
    workspace.writable(path)


def test_a_link_to_or_named_like_something_private_is_refused(workspace: FolderWorkspace, root: Path) -> None:
    (root / ".git").mkdir()
    (root / "harmless").symlink_to(".git")
    (root / ".env").symlink_to("src/a.py")
    for path in ("harmless/config", ".env"):
        with pytest.raises(PathRefused, match="may not touch"):
            workspace.readable(path)


def test_node_modules_is_readable_but_not_writable(workspace: FolderWorkspace, root: Path) -> None:
    (root / "node_modules" / "x").mkdir(parents=True)
    (root / "node_modules" / "x" / "index.js").write_text("")
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("node_modules\n")
    workspace.readable("node_modules/x/index.js")
    with pytest.raises(PathRefused, match="read only"):
        workspace.writable("Node_Modules/x/index.js")


def test_a_root_below_a_private_name_is_usable(tmp_path: Path) -> None:
    root = tmp_path / ".git" / "node_modules" / "worktree"
    root.mkdir(parents=True)
    assert FolderWorkspace(root).writable("a.py") == root.resolve() / "a.py"


def test_a_root_given_by_a_link_is_its_real_directory(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    workspace = FolderWorkspace(tmp_path / "link")
    assert workspace.root == root.resolve()
    assert workspace.readable(str(tmp_path / "link" / "src")) == root.resolve() / "src"


def test_the_workspace_itself_cannot_be_written(workspace: FolderWorkspace) -> None:
    with pytest.raises(PathRefused, match="the workspace itself"):
        workspace.writable(".")


def test_included_directories_are_reached_by_absolute_paths(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    workspace = open_workspace(
        root, Settings.model_validate({"context": {"includeDirectories": ["../other"]}})
    )
    path = workspace.writable(str(other / "x.txt"))
    assert workspace.roots == (root.resolve(), other.resolve())
    assert workspace.writable(workspace.relative(path)) == path
    with pytest.raises(PathRefused):
        workspace.readable(str(other / ".env"))


def test_missing_directories_are_named(root: Path) -> None:
    with pytest.raises(UserError, match="nowhere"):
        open_workspace(root / "nowhere", Settings())
    with pytest.raises(ConfigError, match="nowhere"):
        open_workspace(root, Settings.model_validate({"context": {"includeDirectories": ["nowhere"]}}))


def test_shown_paths_are_one_clean_line(workspace: FolderWorkspace, root: Path) -> None:
    odd = root.resolve() / "a\nb\x1b[31m.txt"
    assert workspace.relative(odd) == "a\\x0ab\\x1b[31m.txt"
    assert workspace.relative(Path(os.fsdecode(os.fsencode(root.resolve()) + b"/\xff"))).isprintable()
    assert workspace.relative(root.resolve()) == "."


Refusal = Callable[[str], Path]


def test_what_git_ignores_can_be_written_but_not_read(workspace: FolderWorkspace, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".gitignore").write_text("*.log\nbuild/\n")
    (root / "x.log").write_text("log")
    (root / "build").mkdir()
    (root / "build" / "out").write_text("out")
    for path in ("x.log", "build/out"):
        with pytest.raises(PathRefused, match="ignored by git"):
            workspace.readable(path)
        workspace.writable(path)
    assert workspace.readable("build") == root.resolve() / "build"


def test_what_the_user_keeps_from_tools_is_neither_read_nor_written(
    workspace: FolderWorkspace, root: Path
) -> None:
    (root / ".geminiignore").write_text("private/\n")
    (root / ".rooignore").write_text("*.key\n")
    (root / "private").mkdir()
    for name in ("private/x", "a.key"):
        (root / name).write_text("")
        with pytest.raises(PathRefused, match="kept from tools"):
            workspace.readable(name)
        with pytest.raises(PathRefused, match="kept from tools"):
            workspace.writable(name)
