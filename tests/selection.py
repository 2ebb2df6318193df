"""selection: which tests run, and how many examples: a part of the sweeps, of those with PostgreSQL, of hypothesis."""

import os
from importlib.util import find_spec
from typing import Any
from zlib import crc32

import pytest
from databases import IN_POSTGRESQL
from hypothesis import HealthCheck, settings
from patience import sweep_part

# `make test` tries the same few examples each time, `make properties` many; outside CI they vary.
# The machine may be busy: how long an example takes says nothing about the code.
settings.register_profile(
    "test",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
    max_examples=60,
)
settings.register_profile(
    "sweep", settings.get_profile("test"), derandomize="CI" in os.environ, max_examples=600
)
settings.load_profile("test")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker that refuses its arguments, as `-m` with an unknown mark, ends all: xdist fails without a reason."""
    if getattr(node, "workeroutput", {}).get("exitstatus") == pytest.ExitCode.USAGE_ERROR:
        raise pytest.UsageError("a worker refused the arguments of pytest; `-n 0` with the same says why")


def _group_sampled_cases(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """The cases of each test of which every suite tries some, as `sample` says."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sample"):
            found.setdefault(item.nodeid.partition("[")[0], []).append(item)
    return [*found.values()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A part of the sweeps: those that don't divide their own moments are in one of the parts, by their name.

    Of the tests with every store in PostgreSQL each is in one of the parts.
    """
    for cases in _group_sampled_cases(items):
        kept = int(cases[0].get_closest_marker("sample").args[0])  # pyright: ignore[reportOptionalMemberAccess]
        often = {number * len(cases) // kept for number in range(kept)}
        for number, item in enumerate(cases):
            if number not in often:
                item.add_marker(pytest.mark.sweep)
    part, of = sweep_part()

    def is_elsewhere(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("sweep")
        if IN_POSTGRESQL and item.get_closest_marker("sqlite"):
            return True
        divided = IN_POSTGRESQL or bool(mark and not mark.kwargs.get("divides"))
        return divided and crc32(item.nodeid.encode()) % of != part

    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[is_elsewhere(item)].append(item)
    config.hook.pytest_deselected(items=parts[True])
    items[:] = parts[False]
    if find_spec("langgraph_api") is None:
        missing = pytest.mark.skip(reason="LangGraph's server isn't installed: pip install -e '.[studio]'")
        for item in items:
            if item.get_closest_marker("langgraph_server"):
                item.add_marker(missing)
