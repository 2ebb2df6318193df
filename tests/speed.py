"""speed: what makes the suite fast: garbage collection, order of files, shared processes, folders. No test needs it."""

import gc
import os
from collections.abc import Generator
from itertools import count
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

gc.disable()  # until all is collected: imports leave no garbage, and looking for it takes a fifth of their time


def pytest_configure(config: pytest.Config) -> None:
    from databases import server  # not above: it is a plugin, which pytest must import first
    from shared import offer
    from warm import forker

    if config.getoption("hypothesis_profile") != "sweep":
        # Else it reads all modules of ours for constants to try: 2 s of each worker where none has done so before.
        providers._get_local_constants = lambda: providers._local_constants
    if config.getoption("dist", "no") != "no":  # not a worker, which has none of its own
        offer(
            {
                "forker": lambda: ("door", [forker().connect_or_start_server().fileno()]),
                "server": lambda: (server(), []),
            }
        )


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins with another part of the files: what one has compiled, the others needn't."""
    report = yield
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and collector.path == Path(__file__).parent:
        at = len(report.result or ()) * int(worker[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*(report.result or ())[at:], *(report.result or ())[:at]]
    return report


QUICK = ("nodes", "prompts", "services", "tools")
"""Folders of tests that mostly compute, and not for long."""


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the files to the workers: each begins with an equal part of this list. Files whose tests start processes and
    wait come first, so that no worker is left with a long one at the end. All workers must get the same list.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    tests = Path(__file__).parent
    order = sorted(files, key=lambda path: (path.relative_to(tests).parts[0] in QUICK, path))
    return [item for n in range(workers) for path in order[n::workers] for item in files[path]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = _dealt(items, workers)


def pytest_collection_finish() -> None:
    """Exclude what there is so far from garbage collection, unseen: to find its garbage takes half a second.

    From now on, wait for no disk.
    """
    from unsynced import sync_nothing

    sync_nothing()
    gc.freeze()
    gc.enable()


_LOOKED_THROUGH = [0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What a full collection has left is looked through no more: modules, graphs and reports stay to the end."""
    if (times := gc.get_stats()[2]["collections"]) > _LOOKED_THROUGH[-1]:
        _LOOKED_THROUGH[-1] = times
        gc.collect(1)
        gc.freeze()


_FOLDERS = count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder. Pytest's own reads the names of all folders before it makes another: 2 ms after 4,000."""
    folder = tmp_path_factory.getbasetemp() / str(next(_FOLDERS))
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True, scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep Graphviz compiled for all tests and what they start: nothing else of ours is cached there."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")
