"""goldens: files that hold what a test expects; they are rewritten only when asked."""

from collections.abc import Callable
from pathlib import Path

import pytest

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file; `pytest --update-golden` rewrites it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing; run `pytest --update-golden` and review the diff"
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} is stale; run `pytest --update-golden` and review the diff"
        )

    return check
