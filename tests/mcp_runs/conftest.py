"""conftest: a place for runs that have MCP servers."""

from pathlib import Path

import pytest
from mcp_servers.place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
