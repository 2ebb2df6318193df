"""recorded_effects: what nodes' effects gave, for a replay, in which none takes place."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.engine.store.connection import Connection
from interlock.engine.store.journal import to_effect_row
from interlock.engine.store.saver import Notice, ignore_stored_value
from interlock.engine.store.tables import where_sql
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.errors import RunError
from interlock.state.journal import EffectRow, NodeUpdate


@dataclass
class RecordedEffects:
    """Implements `Effects` for a replay, in which nothing takes place: results come from the record, in its order."""

    conn: Connection
    run: str
    serde: Any
    storable_classes: frozenset[tuple[str, ...]] = frozenset()
    redact: Redactor = SHAPES
    on_stored_value: Notice = ignore_stored_value

    def __post_init__(self) -> None:
        self._given: dict[tuple[str, str], EffectRow] = {}
        self._left: dict[tuple[str, str], list[EffectRow]] = {}
        rows = "select place, key, attempt, type, value from recorded_effects where state = 'done' order by intent_at"
        for place, key, *row in self.conn.execute(rows, tables=("recorded_effects",)).fetchall():
            self._left.setdefault((place, key), []).append(to_effect_row(self.serde, "done", *row))

    def find_row(self, task: str, key: str, node_path: str) -> EffectRow | None:
        left = self._left.get((node_path, key))
        if (task, key) not in self._given and left:
            self._given[task, key] = left.pop(0)
        return self._given.get((task, key))

    def record_intent(self, task: str, key: str, node_path: str) -> None:  # noqa: ARG002 - as Effects
        raise RunError(f"The run has no effect {key!r} in {node_path!r}, so a replay has no result of it.")

    def record_failure(self, task: str, key: str) -> None: ...

    def record_result(self, task: str, key: str, result: Any) -> None: ...

    def record_node_update(self, task: str, update: NodeUpdate) -> None: ...

    def find_recorded_node_update(self, task: str, update: NodeUpdate) -> NodeUpdate | None:
        place, node, code, state = update[:4]
        where = {"run": self.run, "place": place, "node": node, "code": code, "state": state}
        same, values = where_sql(where)
        with self.conn.transaction() as conn:
            number = conn.execute(
                f"select number from taken_updates where {same} and task = $6", (*values, task)
            ).fetchone()
            if number is None:  # equal ones come in their order, also in the next drive of the replay
                number = conn.execute(f"select count(*) from taken_updates where {same}", values).fetchone()
                conn.insert("taken_updates", {**where, "task": task, "number": number[0]})
            sql = f"select task, type, wrote, raised from recorded_updates where {same} order by at"
            rows = conn.execute(sql, values).fetchall()
            if number[0] >= len(rows):
                raise RunError(self._missing_update_error_template(where).format(node=node))
            then, kind, data, raised = rows[number[0]]
            # Its model calls count, too: those of later nodes have the next ordinals.
            names = [column.name for column in conn.list_columns("recorded_calls")]
            sql = f"select {', '.join(names)} from recorded_calls where task like $1"
            calls = conn.execute(sql, (f"{then}%",)).fetchall()
            conn.insert_all("model_calls", [dict(zip(names, call, strict=True)) for call in calls], "keep")
        return update._replace(wrote=self.serde.loads_typed((kind, data)), raised=raised)

    def _missing_update_error_template(self, where: Mapping[str, str]) -> str:
        same = "max(case when code = $4 then 1 else 0 end)"
        sql = f"select {same} from recorded_updates where run = $1 and place = $2 and node = $3"
        known = self.conn.execute(
            sql, [where[k] for k in ("run", "place", "node", "code")], tables=("recorded_updates",)
        ).fetchone()[0]
        return _NOT_KEPT if known is None else _OF_OTHER_STATE if known else _OF_OTHER_CODE


_NOT_KEPT = "Node {node!r} doesn't run in a replay, and the record has nothing that it wrote."
_OF_OTHER_STATE = (
    "Node {node!r} doesn't run in a replay, and the record has nothing that it wrote of such a state."
)
_OF_OTHER_CODE = "Node {node!r} has changed since it ran, and doesn't run in a replay."
