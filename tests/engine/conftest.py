"""The databases that a store may stand in: what the engine asks of a store is tried in each."""

from pathlib import Path

import pytest
from databases import DATABASES

from interlock.engine.store import Store


@pytest.fixture(params=DATABASES)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    made = DATABASES[request.param](tmp_path)
    made.create_or_migrate()
    return made
