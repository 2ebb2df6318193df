"""The registry names every table of the store, with the column that says whose rows it holds."""

from contextlib import closing
from pathlib import Path

from interlock.engine.store import Store
from interlock.engine.store.damage import readers
from interlock.engine.store.tables import TABLES


def test_every_table_is_in_the_registry_and_can_be_checked(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.open()
    with closing(store.connect()) as conn:
        made = {name for (name,) in conn.execute("select name from sqlite_master where type = 'table'")}
        owners = {
            table.name
            for table in TABLES
            if table.owner in {row[1] for row in conn.execute(f"pragma table_info({table.name})")}
        }
    assert made == {table.name for table in TABLES} == owners == readers().keys()
