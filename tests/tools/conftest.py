"""conftest: a workspace on disk, and single tool calls in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tool_calls import Calls

from interlock.state.tooling import ToolContext


@pytest.fixture
def call(tmp_path: Path) -> Iterator[Calls]:
    made = Calls(tmp_path / "project")
    yield made
    made.close()


@pytest.fixture
def folder(call: Calls) -> Path:
    return call.folder


@pytest.fixture
def context(call: Calls) -> ToolContext:
    return call.context
