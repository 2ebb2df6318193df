"""conftest: one browser for the tests of the page that follow each other, one served home for those of a file."""

from collections.abc import Callable, Generator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import warm
from databases import IN_POSTGRESQL
from web.lab import Lab, Person, browsing

_BROWSER = ExitStack()
_open: list[Any] = []


@pytest.fixture(scope="module")
def browser() -> Any:
    """The open one, or a new one."""
    if not _open:
        _open.append(_BROWSER.enter_context(browsing()))
    return _open[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Close it when the next test isn't of the page: its loop would stand in the way."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _open.clear()
        _BROWSER.close()


@pytest.fixture(scope="module")
def lab(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Generator[Lab]:
    made = Lab(tmp_path_factory.mktemp("lab"))
    with warm.worker(made.work("work"), made.env) if IN_POSTGRESQL else nullcontext():
        made.serve()
        yield made
        made.kill()


@pytest.fixture
def person(browser: Any, lab: Lab) -> Generator[Callable[..., Person]]:
    met: list[Person] = []

    def meet(**context: Any) -> Person:
        met.append(Person(browser, lab, **context))
        return met[-1]

    yield meet
    for one in met:
        one.stays_well()
