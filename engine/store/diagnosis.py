"""diagnosis: whether damaged rows are why something failed."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.engine.store import adapter_of, explained, reading
from interlock.state.errors import InterlockError, StoreError


@contextmanager
def diagnosed(path: Path) -> Generator[None]:
    """Like `explained`, but also blames unreadable rows for any other failure, as they are its most likely cause."""
    with explained(path):
        try:
            yield
        except Exception as error:
            if not isinstance(error, (InterlockError, *adapter_of(path).connection.errors)):
                _raise_if_damaged(path, error)
            raise


_MOST = 3
"""Damaged rows an error lists; `doctor --store` lists all."""


def _raise_if_damaged(path: Path, error: Exception) -> None:
    """Raise `StoreError` if the store has unreadable rows; otherwise `error` is a bug."""
    from interlock.engine.store.integrity import (
        unreadable,  # deferred: it reads messages, and lists need none
    )

    with reading(path.parent) as conn:
        found = list(unreadable(conn, path.parent / "outputs")) if conn else []
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        raise StoreError(
            f"The store {str(path)!r} is damaged: {'; '.join(found[:_MOST])}{more}. See all with: interlock doctor "
            "--store; remove a run with: interlock runs rm RUN; or move the store away to start anew. What failed, "
            f"if that isn't why: {type(error).__name__}: {error}"
        ) from error
