"""compare: what "the same" means for two runs (`docs/kill-tests.md#what-the-same-means`)."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kill_runs.scene import RUN, Scene

from interlock.engine.rebuild import rebuild_run_statuses_from_checkpoints
from interlock.engine.store.blobs import open_blob_storage
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.connection import Connection
from interlock.engine.store.integrity import find_damaged_records
from interlock.services.files.blobs import Blobs
from interlock.services.transcript import ChainTranscript


@dataclass(frozen=True)
class Ending:
    """How a run ended, without what may differ: times, usage, pids."""

    status: str
    exit_code: int
    response: str
    chain: tuple[tuple[Any, ...], ...]
    tree: dict[str, tuple[str, int]]
    journal: dict[str, tuple[str, str, str]]
    effects: tuple[str, ...]
    unanswered: tuple[str, ...]
    asked_calls: frozenset[str]
    """Calls whose outcome was asked about; their answers and attempts may differ."""
    damage: tuple[str, ...]
    """Records of the chain that are missing or were changed."""
    more: dict[str, Any] = field(default_factory=dict[str, Any])
    """What else must be the same for this scene, unless an outcome was asked about."""

    @property
    def asked(self) -> int:
        return len(self.asked_calls)

    def differences(self, expected: "Ending") -> list[str]:
        names = ("status", "exit_code", "response", "tree", "effects", "unanswered", "damage")
        found = unlike_in(names, self, expected)
        asked = self.asked_calls
        theirs = {k: v for k, v in expected.journal.items() if k.rpartition(".")[0] not in asked}
        found += unlike("journal", self.journal, theirs)
        if not asked:
            found += unlike("more", self.more, expected.more)
        if _without(self.chain, asked) != _without(expected.chain, asked):
            found.append(f"chain: {self.chain!r}, expected {expected.chain!r}")
        return found


@dataclass(frozen=True)
class TreeEnding:
    """How a run with others below it ended, without times and record ids."""

    status: str
    effects: tuple[str, ...]
    same: dict[str, Any]
    """Response, files, and what is below: none lost, one child per call."""
    told: dict[str, str]
    """Whole conversations, and the journal. Answers to what was asked differ, as they should."""
    asked: int

    def differences(self, expected: "TreeEnding") -> list[str]:
        found = unlike_in(("status", "effects"), self, expected) + unlike("", self.same, expected.same)
        return found if self.asked else found + unlike("", self.told, expected.told)


def tree_ending(
    scene: Scene,
    below: Callable[[Connection], dict[str, Any]],
    chains: Callable[[Connection], dict[str, str]],
) -> TreeEnding:
    outcome = scene.outcome()
    with scene.reading() as conn:
        requests = conn.execute("select request from approvals").fetchall()
        asked = sum(json.loads(request)["kind"] == "outcome" for (request,) in requests)
        same = {"response": outcome["output"].get("response", ""), "tree": scene.tree(), **below(conn)}
        told = {**chains(conn), **_calls(conn)}
    return TreeEnding(outcome["status"], tuple(sorted(scene.effects())), same, told, asked)


def conversation(conn: Connection, scene: Scene, run: str, record: str) -> str:
    messages = ChainTranscript(SqlChain(conn), scene.home / "outputs", run).read(record)
    return json.dumps([m.model_dump(mode="json") for m in messages if m.origin != "context"])


def _calls(conn: Connection) -> dict[str, str]:
    """Agent, ordinal of the reply, index and attempt → tool, state and result."""
    places = {
        record: f"{agent}#{ordinal}"
        for record, agent, ordinal in conn.execute("select record, agent, ordinal from model_calls")
    }
    rows = conn.execute("select message, idx, attempt, tool, state, result, result_file from journal")
    return {
        f"{places[m]}.{i}.{a}": json.dumps([tool, state, json.loads(result or "{}").get("content"), file])
        for m, i, a, tool, state, result, file in rows
    }


def _without(chain: tuple[tuple[Any, ...], ...], asked: frozenset[str]) -> list[tuple[Any, ...]]:
    """The chain, with the answers of asked calls blanked."""
    return [(*record[:3], "asked") if record[2] in asked else record for record in chain]


def unlike_in(names: Sequence[str], mine: object, theirs: object) -> list[str]:
    pairs = ((name, getattr(mine, name), getattr(theirs, name)) for name in names)
    return [f"{name}: {one!r}, expected {other!r}" for name, one, other in pairs if one != other]


def unlike(what: str, mine: dict[str, Any], theirs: dict[str, Any]) -> list[str]:
    return [
        f"{what} {key}: {mine.get(key)!r}, expected {theirs.get(key)!r}"
        for key in sorted(mine.keys() | theirs.keys())
        if mine.get(key) != theirs.get(key)
    ]


def ending(scene: Scene) -> Ending:
    outcome = scene.outcome()
    with scene.reading() as conn:
        asked = frozenset(
            json.loads(r)["call"]["id"]
            for (r,) in conn.execute("select request from approvals")
            if json.loads(r)["kind"] == "outcome"
        )
        return Ending(
            status=outcome["status"],
            exit_code=outcome["exit_code"],
            response=outcome["output"].get("response", ""),
            chain=_chain(outcome),
            tree=scene.tree(),
            journal=_journal(conn, open_blob_storage(conn, scene.home / "outputs"), asked),
            effects=tuple(sorted(scene.effects())),
            unanswered=tuple(_unanswered(outcome)),
            asked_calls=asked,
            damage=tuple(find_damaged_records(scene.home, RUN)),
        )


def _chain(outcome: dict[str, Any]) -> tuple[tuple[Any, ...], ...]:
    return tuple(
        (m["role"], tuple(c["id"] for c in m.get("tool_calls", ())), m.get("tool_call_id"), json.dumps(m))
        for m in outcome["output"]["history"]
    )


def _unanswered(outcome: dict[str, Any]) -> list[str]:
    """Calls without exactly one answer."""
    history = outcome["output"]["history"]
    calls = [c["id"] for m in history for c in m.get("tool_calls", ())]
    answers = [m["tool_call_id"] for m in history if m["role"] == "tool"]
    return [name for name in calls if answers.count(name) != 1]


def _journal(conn: Connection, outputs: Blobs, asked: frozenset[str]) -> dict[str, tuple[str, str, str]]:
    """Place of the call → tool, state, result, without calls whose outcome was asked about.

    Keys hold record ids, which depend on earlier answers, so the place (ordinal of the message, index) is compared.
    """
    rows = conn.execute(
        "select message, idx, attempt, tool, state, result, result_file from journal"
    ).fetchall()
    order = [
        m for (m,) in conn.execute("select record from model_calls where role = 'main' order by ordinal")
    ]
    found: dict[str, tuple[str, str, str]] = {}
    for message, index, attempt, tool, state, result, file in rows:
        place = f"{order.index(message)}.{index}"
        if place in asked:
            continue
        text = (outputs.load_named_body(file) or b"").decode() if file else result
        told = json.loads(text) if text else {}
        for timed in ("duration_ms", "duration_s", "summary"):
            told.get("meta", {}).pop(timed, None)
        found[f"{place}.{attempt}"] = (tool, state, json.dumps(told, sort_keys=True))
    return found


def store_matches(scene: Scene) -> str | None:
    """After a kill, runs and approvals must agree with the checkpoints. None: they do.

    `docs/internals.md#lists-agree-with-checkpoints`.
    """
    if not scene.exists():
        return None
    lines = rebuild_run_statuses_from_checkpoints(scene.home)
    return "; ".join(lines) or None
