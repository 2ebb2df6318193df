"""Full outputs can be read although they are outside the workspace; nothing else there can."""

from pathlib import Path

import pytest
from folders import tree

from interlock.services.files.workspace import FolderWorkspace
from interlock.state.workspace import PathRefused


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    outputs = tmp_path / "home" / "outputs"
    tree(outputs, {"a.txt": "whole", "chain.json": "{}", "deep/b.txt": "deep"})
    (tmp_path / "home" / "secret.txt").write_text("secret")
    (outputs / "link.txt").symlink_to(tmp_path / "home" / "secret.txt")
    return tmp_path


def workspace(place: Path) -> FolderWorkspace:
    return FolderWorkspace(place / "work", outputs=place / "home" / "outputs")


def test_a_kept_output_can_be_read_but_not_written(place: Path) -> None:
    path = str(place / "home" / "outputs" / "a.txt")
    assert workspace(place).readable(path) == Path(path)
    with pytest.raises(PathRefused, match="outside"):
        workspace(place).writable(path)
    with pytest.raises(PathRefused, match="outside"):
        FolderWorkspace(place / "work").readable(path)


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "chain.json", "deep/b.txt", "link.txt", "none.txt", "../secret.txt", "../interlock.db"),
        "a.txt\0.txt",
    ],
)
def test_nothing_else_there_can_be_read(place: Path, name: str) -> None:
    with pytest.raises(PathRefused):
        workspace(place).readable(f"{place}/home/outputs/{name}")


def test_a_link_in_the_workspace_to_a_secret_beside_the_outputs_is_refused(place: Path) -> None:
    (place / "work" / "l.txt").symlink_to(place / "home" / "secret.txt")
    with pytest.raises(PathRefused):
        workspace(place).readable("l.txt")
