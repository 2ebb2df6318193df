"""conftest: one browser and one served home for the tests of a file."""

from collections.abc import Callable, Generator
from contextlib import nullcontext
from typing import Any

import pytest
import warm
from databases import IN_POSTGRESQL
from web.lab import Lab, Person, browsing


@pytest.fixture(scope="module")  # its loop would stand in the way of other files
def browser() -> Generator[Any]:
    with browsing() as made:
        yield made


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
