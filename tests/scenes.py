"""scenes: a place to run in, and results that the tests of a file share."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Any:
    """A workspace with a store and a home."""
    from places import Place  # not above: what starts the workers would import all of LangGraph

    return Place(tmp_path / "place")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`played(play, scene)`: the result of `play(scene, folder)`, computed once for all tests of a file."""
    kept: dict[int, tuple[Any, Any]] = {}

    def once(play: Callable[[Any, Path], Any], scene: Any) -> Any:
        if id(scene) not in kept:
            kept[id(scene)] = scene, play(scene, tmp_path_factory.mktemp("scene") / "stage")
        return kept[id(scene)][1]

    return once


@pytest.fixture
def model_has_seen_all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted model may write over files without reading them: the test is about something else.

    What happens otherwise: `tests/travel/test_seen_files.py`.
    """
    from interlock.engine.store.seen_files import SqlSeenFiles

    monkeypatch.setattr(SqlSeenFiles, "before", lambda *_: None)
