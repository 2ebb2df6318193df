"""Servers that people have, as the table starts them."""

import sys
from pathlib import Path

import pytest
from language_servers.lab import Edit, check_edits

from interlock.services.language_servers.table import load_server_table

BEFORE = "import os\n\nbad = old\n"


@pytest.mark.parametrize("name", ["ruff", pytest.param("pyright", marks=pytest.mark.sweep)])
def test_a_server_for_python_tells_what_an_edit_brought(name: str, tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "é [x]"
    folder.mkdir()
    programs = str(Path(sys.executable).parent)
    server = load_server_table()[name]
    if not (Path(programs) / server.command[0]).exists():
        pytest.skip(f"{name} isn't installed")
    edits: list[Edit] = [
        ("a.py", BEFORE, "# moved\n" + BEFORE + "x = '😀' + unknown\n"),
        ("a.py", "# moved\n" + BEFORE, BEFORE),
        ("new é.py", None, "print(unknown)\n"),
    ]
    (told, nothing, new), warnings = check_edits(
        folder, {name: server.model_dump()}, edits, path=f"{programs}:/usr/bin:/bin"
    )
    assert (nothing, warnings) == ("", [])
    assert told and "line 5, column 11" in told and "unknown" in told and "old" not in told
    assert new and new.startswith("New problems in new é.py:\n- line 1, column 7: ")
