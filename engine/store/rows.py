"""rows: how rows of registered tables are inserted, changed and deleted, as SQL that both databases speak.

Parameters of all SQL of the store are `$1`, `$2` …, which both databases' drivers take as they are.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Literal, NamedTuple

from interlock.engine.store.tables import TABLE

Row = Mapping[str, object]
"""Column → value. In a condition: None stands for null, and other comparisons than equality are a `Condition`."""
Again = Literal["refuse", "replace", "keep"]
"""What becomes of a row with the same key: it is an error, it gets the new row's columns, or it stays as it is."""


class Condition(NamedTuple):
    """A comparison of a column."""

    operator: str
    value: object = None


NOT_NULL = Condition("is not null")


class Plus(NamedTuple):
    """A column's new value: its old one and a number."""

    by: int


class Statement(NamedTuple):
    """A write that `Connection.insert`, `update` and `delete` can't express. It changes no audited row."""

    sql: str
    writes: tuple[str, ...]
    """The tables that it writes."""


class Write(NamedTuple):
    """A write of a table's rows."""

    tables: tuple[str, ...]
    sql: str
    values: tuple[object, ...]
    kind: Literal["insert", "update", "delete", "statement"]
    row: Row = MappingProxyType({})
    """What is inserted, or set."""
    where: Row = MappingProxyType({})
    """Which rows: those that are changed, deleted, or may be there already."""
    again: Again = "refuse"

    @property
    def identity(self) -> object:
        """Equal for a later write after which this one makes no difference."""
        if self.kind not in ("insert", "update") or (self.kind == "insert" and self.again != "replace"):
            return object()
        key = tuple(self.where.values())
        known = tuple(self.where) == TABLE[self.tables[0]].key and not any(
            isinstance(value, Condition) for value in key
        )
        return (self.sql, key) if known else object()


def insertion(table: str, row: Row, again: Again = "refuse") -> Write:
    """Insert a row."""
    where = {} if again == "refuse" else {name: row[name] for name in TABLE[table].key}
    values = tuple(map(_plain, row.values()))
    return Write((table,), _insert(table, tuple(row), again), values, "insert", row, where, again)


def updating(table: str, row: Row, where: Row) -> Write:
    """Change the rows that meet every condition."""
    changes = tuple((name, isinstance(value, Plus)) for name, value in row.items())
    values = (
        *(value.by if isinstance(value, Plus) else _plain(value) for value in row.values()),
        *given(where),
    )
    return Write((table,), _update(table, changes, shape(where)), values, "update", row, where)


def deletion(table: str, where: Row) -> Write:
    """Delete the rows that meet every condition."""
    return Write(
        (table,), f"delete from {table} where {conditions(shape(where))}", given(where), "delete", {}, where
    )


def _plain(value: object) -> object:
    return int(value) if isinstance(value, bool) else value


_Shape = tuple[tuple[str, str], ...]
_ALONE = ("is null", "is not null")
"""Operators that compare with nothing."""


def _condition(value: object) -> Condition:
    if isinstance(value, Condition):
        return value
    return Condition("is null") if value is None else Condition("=", value)


def shape(where: Row) -> _Shape:
    """The columns and operators of conditions."""
    return tuple((name, _condition(value).operator) for name, value in where.items())


def given(where: Row) -> tuple[object, ...]:
    """The parameters of conditions."""
    made = map(_condition, where.values())
    return tuple(_plain(one.value) for one in made if one.operator not in _ALONE)


@lru_cache(maxsize=256)
def conditions(shape: _Shape, first: int = 1) -> str:
    """The SQL of conditions. `first`: number of their first parameter."""
    parts: list[str] = []
    for name, operator in shape:
        takes = operator not in _ALONE
        parts.append(f"{name} {operator} ${first}" if takes else f"{name} {operator}")
        first += takes
    return " and ".join(parts)


@lru_cache(maxsize=128)
def _insert(table: str, names: tuple[str, ...], again: Again) -> str:
    places = ", ".join(f"${number}" for number in range(1, len(names) + 1))
    sql = f"insert into {table} ({', '.join(names)}) values ({places})"
    if again == "refuse":
        return sql
    key = TABLE[table].key
    changed = ", ".join(f"{name} = excluded.{name}" for name in names if name not in key)
    act = f"update set {changed}" if again == "replace" else "nothing"
    return f"{sql} on conflict ({', '.join(key)}) do {act}"


@lru_cache(maxsize=128)
def _update(table: str, changes: tuple[tuple[str, bool], ...], shape: _Shape) -> str:
    made = (
        f"{name} = {name} + ${number}" if adds else f"{name} = ${number}"
        for number, (name, adds) in enumerate(changes, 1)
    )
    return f"update {table} set {', '.join(made)} where {conditions(shape, len(changes) + 1)}"
