"""The table of tools has every tool: one that is forgotten would be silently absent."""

import re
from pathlib import Path

import pytest

from interlock.state.errors import SetupError
from interlock.tools import table

ROOMS = Path(__file__).parents[2] / "tools"


def test_every_module_that_defines_a_tool_is_in_the_table() -> None:
    defining = {
        ".".join(file.relative_to(ROOMS).with_suffix("").parts)
        for file in ROOMS.rglob("*.py")
        if re.search(r"^\w+ = (Tool|replace)\(", file.read_text(), re.MULTILINE)
    }
    assert defining <= set(table._MODULES), "add the module to _MODULES in tools/table.py"


def test_a_tool_that_is_in_one_of_both_tables_is_an_error_that_names_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = table.NAMES
    monkeypatch.setattr(table, "NAMES", (*names, "hello"))
    with pytest.raises(SetupError, match=r"\['hello'\] to _MODULES in tools/table.py"):
        table._load_installed_tools()
    monkeypatch.setattr(table, "NAMES", tuple(name for name in names if name != "glob"))
    with pytest.raises(SetupError, match=r"NAMES in tools/__init__.py.*\['glob'\]"):
        table._load_installed_tools()
