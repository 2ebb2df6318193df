"""The task loop's reading tools: their own names and parameters, the same rules as ours."""

from dataclasses import replace
from pathlib import Path

import pytest
from tool_calls import Calls

from interlock.engine.client.health import check_machine
from interlock.prompts import load_prompt
from interlock.services.index.sources import cut_into_chunks
from interlock.tools.table import TOOLS


@pytest.fixture
def tree(call: Calls) -> Path:
    names = ("a.py", "src/b.py", "src/deep/c.txt", "built/d.py")
    call.write({".git/": "", ".gitignore": "built/\n", **{n: f"one\nNeedle in {n}\nthree\n" for n in names}})
    return call.folder


def test_a_listing_shows_the_upper_levels_first_and_leaves_out_what_is_ignored(
    call: Calls, tree: Path
) -> None:
    said = call("list_files", path=".", recursive=True).content
    names = said.split("\n")[1:]
    assert names == [".gitignore", "a.py", "src/", "src/b.py", "src/deep/", "src/deep/c.txt"]
    assert "[DIR] src" in call("list_files", path=".").content
    assert "b.py" not in call("list_files", path=".").content


def test_a_long_listing_says_what_it_leaves_out(call: Calls, folder: Path) -> None:
    for number in range(205):
        (folder / f"f{number:03}").touch()
    said = call("list_files", path=".", recursive=True).content
    assert said.startswith("205 entries below the workspace")
    assert said.endswith("f199\n… 5 more aren't shown; list one of the directories.")


def test_a_search_takes_the_task_loops_parameters(call: Calls, tree: Path) -> None:
    said = call.text("search_files", path=".", regex=r"N\w+ in", file_pattern="*.py")
    assert said.startswith("2 matches in 2 files")
    assert "src/b.py\n1-one\n2:Needle in src/b.py\n3-three" in said
    assert call.text("search_files", path=".", regex="needle", file_pattern="*.py").startswith("No matches")


SOURCE = """import os

@cached
def long(a,
         b):
    return a

class K:
    def method(self):
        x = 1
        return x

    def short(self): ...
"""


def test_definitions_are_listed_with_their_lines_and_short_ones_left_out(call: Calls, tree: Path) -> None:
    (tree / "src/k.py").write_text(SOURCE)
    (tree / "src/m.go").write_text("package m\n\nfunc Go() {\n\ta()\n\tb()\n}\n")
    (tree / "src/deep/n.py").write_text(SOURCE)
    said = call("list_code_definition_names", path="src").content
    assert said == ("# src/k.py\n3--6 | @cached\n8--13 | class K:\n\n# src/m.go\n3--6 | func Go() {")
    assert call("list_code_definition_names", path="src/m.go").content == "# src/m.go\n3--6 | func Go() {"
    assert call.text("list_code_definition_names", path="a.py") == "No source code definitions found."


def test_without_the_extra_code_is_cut_by_lines_and_one_line_says_what_to_install(
    call: Calls, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [c.name for c in cut_into_chunks(SOURCE.encode(), "python")] == ["long", "K"]
    monkeypatch.setattr("interlock.tools.code_definitions.find_spec", lambda _: None)
    assert "list_code_definition_names" not in {n for n, tool in TOOLS.items() if tool.installed()}
    needs = "list_code_definition_names needs the extra `code`; a person can run: interlock install code"
    assert call.failed("not_installed", "list_code_definition_names", path="src") == needs
    assert [chunk.name for chunk in cut_into_chunks(SOURCE.encode(), "python")] == [""]
    assert "none: code is indexed by lines, not by definition" in str([*check_machine()])


@pytest.mark.parametrize("task", ["create_mcp_server", "create_mode"])
def test_instructions_are_returned(call: Calls, task: str) -> None:
    call.context = replace(
        call.context, instructions=lambda name: load_prompt(f"instructions/{name}").render()
    )
    assert call.text("fetch_instructions", task=task).startswith("# Make a")
