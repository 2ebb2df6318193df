"""Rule files: which count, in which order, and what happens to odd ones."""

from pathlib import Path

import pytest
from folders import put, tree

from interlock.services.context.rules import load_rule_files
from interlock.state.context import RuleFile


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    (tmp_path / "home").mkdir()
    return tmp_path / "work"


def rules(root: Path, mode: str = "code") -> list[RuleFile]:
    return load_rule_files(root, root.parent / "home", mode, trusted=True)


def texts(root: Path, mode: str = "code") -> list[str]:
    return [file.text for file in rules(root, mode) if file.text]


@pytest.mark.parametrize("suffix", ["", "-code"])
def test_folders_come_before_single_files_and_an_empty_one_does_not_count(root: Path, suffix: str) -> None:
    put(root / f".clinerules{suffix}", "cline")
    assert texts(root) == ["cline"]
    put(root / f".roorules{suffix}", " \n")
    assert texts(root) == ["cline"]
    put(root / f".roorules{suffix}", "roo")
    assert texts(root) == ["roo"]
    (root / f".roo/rules{suffix}").mkdir(parents=True)
    assert texts(root) == ["roo"]
    put(root / f".roo/rules{suffix}/empty.md", "\n")
    assert texts(root) == ["roo"]
    put(root / f".roo/rules{suffix}/deep/er/x", "folder")
    put(root.parent / f"home/.roo/rules{suffix}/x", "mine")
    assert texts(root) == ["mine", "folder"]


def test_files_of_a_folder_are_ordered_by_their_names_whatever_their_case_and_place(root: Path) -> None:
    for name in ("z/a.md", "B.txt", "c", "ä.md", "a b.md"):
        put(root / f".roo/rules/{name}", name)
    own = root.parent / "home/.roo/rules/mine"
    put(own).unlink()
    own.symlink_to(put(root.parent / "dotfiles/mine.md", "a person's own links may lead anywhere"))
    expected = ["a person's own links may lead anywhere", "a b.md", "z/a.md", "B.txt", "c", "ä.md"]
    for name in ("AGENT.md", "AGENTS.md"):  # of these the first that says something counts
        put(root / name, name)
        assert texts(root) == [name, *expected]
    assert texts(root, "ask") == texts(root)


def test_odd_files_get_one_line_each_and_the_rest_works(root: Path) -> None:
    put(root.parent / "secret.txt", "outside")
    folder = root / ".roo/rules"
    odd = {
        "binary": b"\0\1",
        "latin": b"caf\xe9",
        "x.lock": "left behind",
        "line\nbreak \x1b[2J.md": "named oddly",
    }
    tree(folder, {"good.md": "good", "crlf": b"\xef\xbb\xbfone\r\ntwo\r\n", **odd})
    (folder / "loop").symlink_to(folder)
    (folder / "gone").symlink_to("nowhere")
    (folder / "out").symlink_to(root.parent / "secret.txt")
    (folder / "inside").symlink_to(put(root / "docs/rules.md", "linked"))
    (folder / "key").symlink_to(put(root / ".env", "KEY=1"))
    found = {file.shown: file for file in rules(root)}
    said = {name.rpartition("/")[2]: file.problem for name, file in found.items() if file.problem}
    assert said == {
        "binary": "not a text file",
        "x.lock": "editors and systems leave such files behind",
        "out": "outside the project",
        "key": "may hold secrets",
    }
    assert texts(root) == ["one\ntwo", "good", "linked", "café", "named oddly"]
    assert all(name.isprintable() for name in found)


def test_a_huge_file_is_cut_and_all_of_them_together_are_bounded(root: Path) -> None:
    for number in range(8):
        put(root / f".roo/rules/{number}", f"rule {number}\n" + "x" * 10_000_000)
    found = rules(root)
    assert "Cut here: the file has 10,000,007 bytes" in found[0].text
    assert sum(len(file.text) for file in found) < 300_000
    assert found[-1].problem.startswith("the rule files before it hold")


def test_imports_work_in_the_task_loop_and_a_text_comes_once(root: Path) -> None:
    tree(
        root,
        {
            "AGENTS.md": "agents @docs/a.md @scope/tool",
            "docs/a.md": "imported",
            ".roo/rules/b.md": "imported",
        },
    )
    assert texts(root) == [
        "agents \n<!-- from docs/a.md -->\nimported\n<!-- end of docs/a.md -->\n @scope/tool",
    ]
    assert [file.problem for file in rules(root) if file.problem] == [
        f"the same text as {root / 'docs/a.md'}"
    ]
