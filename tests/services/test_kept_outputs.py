"""Full outputs can be read although they are outside the workspace; nothing else there can."""

from pathlib import Path

import pytest
from folders import tree

from interlock.services.files.workspace import FolderWorkspace
from interlock.state.workspace import PathRefused

KEPT, LINK = f"{'a' * 32}.txt", f"spool-{'0' * 16}.txt"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    outputs = tmp_path / "home" / "outputs"
    names = (KEPT, "a.txt", "chain.json", f"deep/{KEPT}", f"deep/outputs/{KEPT}")
    tree(outputs, dict.fromkeys(names, "whole"))
    (tmp_path / "home" / "secret.txt").write_text("secret")
    (outputs / LINK).symlink_to(tmp_path / "home" / "secret.txt")
    return tmp_path


@pytest.fixture
def workspace(place: Path) -> FolderWorkspace:
    return FolderWorkspace(place / "work", outputs=place / "home" / "outputs")


def test_a_kept_output_can_be_read_but_not_written(place: Path, workspace: FolderWorkspace) -> None:
    path = str(place / "home" / "outputs" / KEPT)
    assert workspace.resolve_readable(path) == Path(path)
    with pytest.raises(PathRefused, match="outside"):
        workspace.resolve_writable(path)
    with pytest.raises(PathRefused, match="outside"):
        FolderWorkspace(place / "work").resolve_readable(path)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "chain.json", "a.txt", f"deep/{KEPT}", f"deep/outputs/{KEPT}", LINK, f"{'b' * 32}.txt"),
        *("../secret.txt", "../interlock.db", f"{KEPT}\0.txt", f"\0/outputs/{KEPT}"),
    ],
)
def test_nothing_else_there_can_be_read(place: Path, workspace: FolderWorkspace, name: str) -> None:
    with pytest.raises(PathRefused):
        workspace.resolve_readable(f"{place}/home/outputs/{name}")
