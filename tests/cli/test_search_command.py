"""`interlock run search`: its flags, its output and its progress."""

import os
from pathlib import Path

import pytest
from commands import Run
from folders import put

CODE = "def open_garage(door):\n    return door.lift(height=2.5, slowly=True)\n"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    workspace = tmp_path / "work"
    for name in ("src/garage.py", "lib/garage.py", "lib/other.ts"):
        file = put(workspace / name, CODE)
        os.utime(file, (1_700_000_000, 1_700_000_000))
    return workspace


def test_flags_narrow_a_search_and_json_is_its_output(run: Run, code: Path) -> None:
    done = run("run", "search", "open the garage", "--path", "lib", "--limit", "1", "--json")
    assert (done.code, [hit["path"] for hit in done.json["results"]]) == (0, ["lib/garage.py"])
    assert done.json["index"] == {"state": "indexed", "files": 3, "chunks": 3, "added": 3, "removed": 0}
    typed = run("run", "search", "open the garage", "--language", "typescript", "--json")
    assert [hit["path"] for hit in typed.json["results"]] == ["lib/other.ts"]


def test_an_index_is_made_without_a_question(run: Run, code: Path) -> None:
    done = run("run", "search", "--index", "only", "--json")
    assert (done.code, done.json["results"], done.json["index"]["added"]) == (0, [], 3)


def test_indexing_tells_how_far_it_is(run: Run, code: Path) -> None:
    told = [e for e in run("run", "search", "x", "-o", "stream-json").events if e["type"] == "progress"]
    assert [(e["what"], e["done"], e["total"], e["unit"]) for e in told] == [("indexing", 3, 3, "files")]


def test_a_folder_that_is_not_there_is_one_line(run: Run, code: Path) -> None:
    done = run("run", "search", "x", "--path", "nowhere", "--json")
    assert done.code == 1
    assert done.json["error"]["message"] == "No file or folder 'nowhere' in the workspace."


def test_show_begins_with_what_an_ended_search_found(run: Run, code: Path) -> None:
    found = run("run", "search", "open the garage", "--path", "lib", "--json").json["results"]
    shown = run("show", "latest").out
    output = shown[shown.index("output  lib/garage.py:1-") : shown.index("\npath ")]
    assert "      return door.lift(height=2.5, slowly=True)\n" in output
    assert run("show", "latest", "--json").json["output"]["results"] == found
