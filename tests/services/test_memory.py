"""test_memory: which memory files are read, in which order, and what their imports may do."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from folders import table, tree
from hypothesis import given
from hypothesis import strategies as st
from patience import lines_run

from interlock.services.context.imports import IncludedTexts, find_import_targets
from interlock.services.context.memory import (
    FILE_LIMIT,
    TOTAL_LIMIT,
    find_memory_files_down_to,
    load_memory_files,
)
from interlock.services.files.workspace import FolderWorkspace

TABLE: dict[str, list[Any]] = table(__file__, "memory.yaml")
NAMES = ["GEMINI.md", "AGENTS.md"]


def memory(folder: Path, *roots: str) -> list[tuple[str, str]]:
    """(path, text), with paths relative to `folder`; home is `folder/home`, the root by default `folder/repo`."""
    wanted = [folder / r for r in roots or ("repo",)]
    home, included = folder / "home", IncludedTexts()
    files = load_memory_files(roots=wanted, home=home, names=NAMES, trusted=True, included=included)
    found = [file for file in files if not file.unused]
    return [(f.path.relative_to(folder).as_posix(), f.text) for f in found]


def only(folder: Path, files: Mapping[str, str | bytes]) -> str:
    """Text of repo/GEMINI.md, with `files` in a git repository."""
    tree(folder / "repo", {".git/HEAD": "x", **files})
    [(path, text)] = memory(folder)
    assert path == "repo/GEMINI.md"
    return text


REPO = {"repo/.git/HEAD": "x"}


@pytest.mark.parametrize(("files", "roots", "texts"), TABLE["found"])
def test_the_files_of_a_folder_are_found_in_their_order(
    tmp_path: Path, files: dict[str, str], roots: list[str], texts: list[str]
) -> None:
    tree(tmp_path, files)
    assert [text for _, text in memory(tmp_path, *roots)] == texts


def test_no_file_is_read_twice(tmp_path: Path) -> None:
    tree(tmp_path, {**REPO, "repo/GEMINI.md": "r"})
    (tmp_path / "repo/AGENTS.md").symlink_to("GEMINI.md")
    assert memory(tmp_path, "repo", "repo") == [("repo/GEMINI.md", "r")]


def test_a_project_can_not_send_a_file_from_elsewhere(tmp_path: Path) -> None:
    tree(tmp_path, {"secret.txt": "hunter2", "repo/.git/HEAD": "x"})
    (tmp_path / "repo/GEMINI.md").symlink_to("../secret.txt")
    assert memory(tmp_path) == [("repo/GEMINI.md", "<!-- not read: outside the project -->")]


def test_a_person_may_link_their_own_file(tmp_path: Path) -> None:
    tree(tmp_path, {"dotfiles/mine.md": "@./more.md and @extra.md", "dotfiles/more.md": "MORE"})
    tree(tmp_path / "home", {".gemini/extra.md": "EXTRA", ".gemini/more.md": "beside the link"})
    (tmp_path / "home/.gemini/GEMINI.md").symlink_to(tmp_path / "dotfiles/mine.md")
    [(_, text)] = memory(tmp_path)
    assert "beside the link" in text
    assert "EXTRA" in text


@pytest.mark.parametrize(("source", "targets"), TABLE["references"])
def test_references_are_found_where_words_begin_and_never_in_code(source: str, targets: list[str]) -> None:
    found = list(find_import_targets(source))
    assert [target for _, _, target in found] == targets
    assert all(source[start:end] == f"@{target}" for start, end, target in found)


@given(st.text(alphabet="`@a. \n>-\\#~é\t<!", max_size=60))
def test_references_always_name_what_stands_there(source: str) -> None:
    for start, end, target in find_import_targets(source):
        assert source[start:end] == f"@{target}"


@pytest.mark.parametrize("piece", ["` `` ", "`", "@a ", "> ", "["])
def test_references_of_a_hostile_file_cost_what_its_length_costs(piece: str) -> None:
    def read(size: int) -> None:
        list(find_import_targets("@" + piece * (size // len(piece)) + "@"))

    read(10)  # imports
    assert lines_run(lambda: read(2_000)) < 2.5 * lines_run(lambda: read(1_000)) + 1_000


@pytest.mark.parametrize(("target", "reason"), TABLE["refused"])
def test_what_can_not_be_imported_stays_and_says_why(tmp_path: Path, target: str, reason: str | None) -> None:
    tree(tmp_path, {"secret.txt": "hunter2", "repo/.env": "KEY=1", "repo/docs/.ENV": "KEY=2"})
    tree(tmp_path / "repo", {"docs/a.md": "x", "binary.bin": b"a\0b"})
    os.mkfifo(tmp_path / "repo/pipe.md")
    for name, leads in {"link.md": "../secret.txt", "innocent.md": ".env", "loop.md": "loop.md"}.items():
        (tmp_path / "repo" / name).symlink_to(leads)
    text = only(tmp_path, {"GEMINI.md": f"before @{target} after"})
    note = f" <!-- not imported: {reason} -->" if reason else ""
    assert text == f"before @{target}{note} after"


IN_PLACE = (
    "one\n\n<!-- from docs/a.md -->\nA, \n<!-- from b.md -->\nB\n<!-- end of b.md -->\n!\n"
    "<!-- end of docs/a.md -->\n\ntwo"
)
DEEP = {f"{n}.md": f"text{n} @{n + 1}.md" for n in range(1, 9)}
LAYERS = {f"{n}.md": f"@{n + 1}.md " * 50 for n in range(1, 5)}


def test_imports_are_put_in_place_five_deep_and_each_once(tmp_path: Path) -> None:
    def text(name: str, source: str, files: Mapping[str, str]) -> str:
        return only(tmp_path / name, {"GEMINI.md": source, **files})

    assert text("1", "one\n@docs/a.md\ntwo", {"docs/a.md": "A, @b.md!", "docs/b.md": "B"}) == IN_PLACE
    deep = text("2", "@1.md", DEEP)
    assert "text5 @6.md <!-- not imported: imports nest deeper than 5 -->" in deep
    assert "text6" not in deep
    ring = text("3", "@a.md", {"a.md": "A @b.md", "b.md": "B @a.md @GEMINI.md"})
    assert ring.count("already included above") == 2
    assert text("4", "@1.md", {**LAYERS, "5.md": "END"}).count("END") == 1


def test_a_huge_file_is_cut_and_says_so(tmp_path: Path) -> None:
    text = only(tmp_path, {"GEMINI.md": "ä" * FILE_LIMIT})
    assert len(text.encode()) < FILE_LIMIT + 200
    assert text.endswith(
        f"[Cut here: the file has {2 * FILE_LIMIT:,} bytes, the first {FILE_LIMIT:,} are shown.]"
    )


def test_imports_count_to_the_size_of_their_file(tmp_path: Path) -> None:
    parts = {f"{n}.md": str(n) * (FILE_LIMIT // 2) for n in range(1, 5)}
    text = only(tmp_path, {"GEMINI.md": "@1.md @2.md @3.md @4.md", **parts})
    assert len(text.encode()) < FILE_LIMIT + 1000
    assert "@4.md <!-- not imported: the memory file and its imports are too large -->" in text


def test_all_files_together_have_a_limit(tmp_path: Path) -> None:
    folders = [f"repo{'/d' * n}" for n in range(8)]
    texts = {f"{folder}/GEMINI.md": str(n) * FILE_LIMIT for n, folder in enumerate(folders)}
    tree(tmp_path, {"repo/.git/HEAD": "x", **texts})
    found = memory(tmp_path, folders[-1])
    assert sum(len(text) for _, text in found) < TOTAL_LIMIT + 2000
    assert found[-1][1].startswith("<!-- not read: the memory files before it hold")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        *((data, "a\nb") for data in (b"\xef\xbb\xbfa\r\nb\r\n", b"a\rb", b"a\nb")),
        (b"un caf\xe9 cr\xe8me", "un café crème"),
        ("éé".encode() + b"\xf0\x9f", "éé\ufffd\ufffd"),
        ("café".encode("utf-16"), "café"),
        (b"\x7fELF\0\0", "<!-- not read: not a text file -->"),
        (b"x\r\n\r\n@a.md\r\n", "x\n\n\n<!-- from a.md -->\nA\n<!-- end of a.md -->"),
    ],
)
def test_text_reaches_the_model_without_marks_and_other_line_ends(
    tmp_path: Path, data: bytes, text: str
) -> None:
    assert only(tmp_path, {"GEMINI.md": data, "a.md": "A\r\n"}) == text


def test_the_files_on_the_way_to_a_path_are_looked_for_anew_each_time(tmp_path: Path) -> None:
    tree(tmp_path, {"GEMINI.md": "the root's own", "a/b/code.py": "", ".env/x": "", "dist/code.py": ""})
    tree(tmp_path, {".geminiignore": "dist\n", ".env/GEMINI.md": "secret"})
    workspace = FolderWorkspace(tmp_path)

    def below(path: str) -> list[str]:
        found = find_memory_files_down_to(path, workspace, NAMES)
        return [file.relative_to(tmp_path).as_posix() for file in found]

    assert below("a/b/code.py") == []
    tree(tmp_path, {"a/GEMINI.md": "1", "a/b/AGENTS.md": "2", "dist/GEMINI.md": "ignored"})
    assert below("a/b/code.py") == below("@a/b/code.py") == ["a/GEMINI.md", "a/b/AGENTS.md"]
    assert below("a/b") == ["a/GEMINI.md", "a/b/AGENTS.md"]
    assert [*below("dist/code.py"), *below(".env/x"), *below("../x"), *below("code.py"), *below("")] == []
    tree(tmp_path, {".geminiignore": "a/GEMINI.md\n"})
    assert below("a/b/code.py") == ["a/b/AGENTS.md"]
    assert below("dist/code.py") == ["dist/GEMINI.md"]
