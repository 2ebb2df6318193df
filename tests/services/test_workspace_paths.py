"""Path safety: what a tool may touch, with real symlinks."""

import os
from pathlib import Path

import pytest
from folders import tree

from interlock.services.files.workspace import FolderWorkspace, open_workspace
from interlock.state.errors import ConfigError, UserError
from interlock.state.settings import Settings
from interlock.state.workspace import PathRefused

FILES = {
    **dict.fromkeys(("src/a.py", "a b", "@types", "x.log", "build/out", "private/x", "a.key"), ""),
    **dict.fromkeys(("node_modules/x/index.js", ".git/HEAD", "../project-two/x", "../elsewhere/deep/x"), ""),
    ".gitignore": "*.log\nbuild/\nnode_modules\n",
    ".geminiignore": "private/\n",
    ".rooignore": "*.key\n",
}
LINKS = {
    "out": "../secret.txt",
    "outdir": "..",
    "dangling": "../nowhere",
    "up": "../elsewhere/deep",
    "harmless": ".git",
    ".env": "src/a.py",
    "link.py": "src/a.py",
    "one": "two",
    "two": "one",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    tree(folder, FILES)
    for name, target in LINKS.items():
        (folder / name).symlink_to(target)
    return folder


@pytest.fixture
def workspace(root: Path) -> FolderWorkspace:
    return FolderWorkspace(root)


@pytest.mark.parametrize(
    ("path", "file"),
    [
        *(("src/a.py", "src/a.py"), ("./src/../src/a.py", "src/a.py"), ("{root}/src/a.py", "src/a.py")),
        *(("file://{root}/src/a.py", "src/a.py"), ("@src/a.py", "src/a.py"), ("link.py", "src/a.py")),
        # A URL is decoded, a plain percent sign isn't; a name may begin with an at sign.
        *(("file://{root}/a%20b", "a b"), ("a%20b", "a%20b"), ("@types", "@types")),
        # Names that only look private.
        *((name, name) for name in (".env.local", ".gitignore", ".github/x.yml", "env", "id_rsa.pub")),
        ("gha-creds.json", "gha-creds.json"),
    ],
)
def test_paths_inside_are_allowed_and_links_are_followed(
    workspace: FolderWorkspace, root: Path, path: str, file: str
) -> None:
    for check in (workspace.resolve_readable, workspace.resolve_writable):
        assert check(path.format(root=root)) == root.resolve() / file


OUTSIDE = (
    *("..", "../secret.txt", "src/../../secret.txt", "/etc/passwd", "~", "~/x"),
    *("file:///etc/passwd", "/", "@../x"),
    # A sibling whose name begins like the root's; links, also to what is missing; dots are taken where a link leads.
    *("../project-two", "out", "outdir", "outdir/secret.txt", "dangling", "src/../outdir/new.txt", "up/../x"),
)
PRIVATE = (
    *(".git/config", ".GIT/hooks/x", ".env", "src/.Env", ".env/x", "gha-creds-12ab.json", "GHA-creds-1.JSON"),
    *("id_rsa", "keys/id_ed25519", ".netrc", ".git-credentials", "src/../.git/HEAD", "harmless/config"),
)


@pytest.mark.parametrize(
    ("path", "unread", "unwritten"),
    [
        *((path, "outside the workspace", "outside the workspace") for path in OUTSIDE),
        *((path, "may not touch", "may not touch") for path in PRIVATE),
        *((path, "", "") for path in ("one", "x" * 5000)),
        *((path, ".", ".") for path in ("", "  ", "a\0b")),
        (".", "", "the workspace itself"),
        ("node_modules/x/index.js", "", "read only"),
        ("Node_Modules/x/index.js", "", "read only"),
        *((path, "ignored by git", "") for path in ("x.log", "build/out")),
        ("build", "", ""),
        *((path, "kept from tools", "kept from tools") for path in ("private/x", "a.key")),
    ],
)
def test_what_may_not_be_read_or_written_is_refused_in_one_line(
    workspace: FolderWorkspace, path: str, unread: str, unwritten: str
) -> None:
    for check, why in ((workspace.resolve_readable, unread), (workspace.resolve_writable, unwritten)):
        if not why:
            check(path)
            continue
        with pytest.raises(PathRefused, match=why) as caught:
            check(path)
        assert "\n" not in str(caught.value)


def test_a_root_is_its_real_directory_also_below_a_private_name(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    workspace = FolderWorkspace(tmp_path / "link")
    assert workspace.root == root.resolve()
    assert workspace.resolve_readable(str(tmp_path / "link" / "src")) == root.resolve() / "src"
    below = tmp_path / ".git" / "node_modules" / "worktree"
    below.mkdir(parents=True)
    assert FolderWorkspace(below).resolve_writable("a.py") == below.resolve() / "a.py"


def test_included_directories_are_reached_by_absolute_paths(root: Path, tmp_path: Path) -> None:
    def including(name: str) -> Settings:
        return Settings.model_validate({"context": {"includeDirectories": [name]}})

    other = tmp_path / "other"
    other.mkdir()
    workspace = open_workspace(root, including("../other"))
    path = workspace.resolve_writable(str(other / "x.txt"))
    assert workspace.roots == (root.resolve(), other.resolve())
    assert workspace.resolve_writable(workspace.display_path(path)) == path
    with pytest.raises(PathRefused):
        workspace.resolve_readable(str(other / ".env"))
    with pytest.raises(UserError, match="nowhere"):
        open_workspace(root / "nowhere", Settings())
    with pytest.raises(ConfigError, match="nowhere"):
        open_workspace(root, including("nowhere"))


def test_shown_paths_are_one_clean_line(workspace: FolderWorkspace, root: Path) -> None:
    odd = root.resolve() / "a\nb\x1b[31m.txt"
    assert workspace.display_path(odd) == "a\\x0ab\\x1b[31m.txt"
    assert workspace.display_path(Path(os.fsdecode(os.fsencode(root.resolve()) + b"/\xff"))).isprintable()
    assert workspace.display_path(root.resolve()) == "."
