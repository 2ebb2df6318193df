"""suite_saver: a pytest plugin that puts our saver in the place of LangGraph's in-memory one (`suite.py`)."""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false

import os
import tempfile
from collections.abc import Collection, Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.foreign_saver import ForeignSaver
from interlock.engine.store.steps import StepLog
from interlock.graphs.langgraph_internals import always_storable_types
from interlock.graphs.stored_values import StorableTypes, StoredForm

FIXTURES = ("sync_checkpointer", "async_checkpointer")


class _Saver(ForeignSaver):
    """The saver of a drive; which classes it may store is asked of each graph, as a drive asks its workflow."""

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> Any:
        made = super().with_allowlist(extra_allowlist)
        made.known = StorableTypes(always_storable_types() | frozenset(extra_allowlist))
        return made


@contextmanager
def _saver() -> Generator[ForeignSaver]:
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.create_or_migrate()
        with closing(store.connect_for_driver()) as conn:
            yield _Saver(conn, StepLog(), StoredForm(), SqlApprovals(conn, "suite"), None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only tests that are given a checkpointer, and of those it is given only the one that we replace."""

    def wanted(item: Any) -> bool:
        params = item.callspec.params if hasattr(item, "callspec") else {}
        return "memory" in {params.get(name) for name in FIXTURES} and params.get("cache") in (None, "memory")

    config.hook.pytest_deselected(items=[item for item in items if not wanted(item)])
    items[:] = [item for item in items if wanted(item)]


# Before their conftest imports it from there.
if os.environ["SUITE_SAVER"] == "interlock":
    import tests.conftest_checkpointer as theirs

    theirs._checkpointer_memory = _saver
