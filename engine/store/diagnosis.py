"""diagnosis: whether damaged rows are why something failed."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from interlock.engine.store import explain_store_errors, open_adapter, open_reader
from interlock.state.errors import InterlockError, StoreError

_LISTED_ROWS = 3
"""Damaged rows an error lists; `doctor --store` lists all."""


@contextmanager
def explain_store_errors_and_damage(path: Path) -> Generator[None]:
    """Convert errors of the database and the disk as `explain_store_errors` does, and blame unreadable rows for any
    other failure, as they are its most likely cause. Raises `StoreError`.
    """
    with explain_store_errors(path):
        try:
            yield
        except Exception as error:
            if not isinstance(error, (InterlockError, *open_adapter(path).connection.errors)):
                _raise_if_damaged(path, error)
            raise


def _raise_if_damaged(path: Path, error: Exception) -> None:
    """Raise `StoreError` if the store has unreadable rows; otherwise `error` is a bug."""
    from interlock.engine.store.integrity import find_unreadable_rows  # deferred: it reads messages

    with open_reader(path.parent) as conn:
        found = list(find_unreadable_rows(conn, path.parent / "outputs")) if conn else []
    if found:
        more = f" and {len(found) - _LISTED_ROWS} more" if len(found) > _LISTED_ROWS else ""
        raise StoreError(
            f"The store {str(path)!r} is damaged: {'; '.join(found[:_LISTED_ROWS])}{more}. See all with: interlock "
            "doctor --store; remove a run with: interlock runs rm RUN; or move the store away to start anew. What "
            f"failed, if that isn't why: {type(error).__name__}: {error}"
        ) from error
