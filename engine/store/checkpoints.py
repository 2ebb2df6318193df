"""checkpoints: a run's root checkpoints, which people know as steps, and its state at each."""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.engine.store import select_rows
from interlock.graphs.stored_channels import (
    BOOKKEEPING,
    is_internal_channel,
    node_of_task_path,
    nodes_due_by_edge,
)
from interlock.state.errors import UserError

_DEFLATED, _PRESET = "+deflate", "+deflate1"
"""Suffixes of a row's type: deflated without a dictionary, as earlier versions wrote it, and with `_NAMES`."""
_SHORT = 256
"""Size in bytes below which deflating gains nothing."""
_NAMES = (
    b"\x87\xa1v\x04\xa2ts\xd9 2026-\xa2id\xd9$1f1\xaechannel_values\xde\x00%\xa5agent\xa0\xa6hooked\xa0\xa4mode\xa0"
    b"\xa8protocol\xa6native\xa5label\xa4done\xa5asked\xd9@\xaahook_stage\xa0\xa9loop_keys\xdc\x00\x19\xac\xaaloop_"
    b"count\x00\xadloop_interval\x0f\xa9loop_next<\xaaloop_found\x80\xa4head\xd9@\xa5model\xaegemini-2.5-pro\xacsti"
    b"cky_model\xaegemini-2.5-pro\xb2last_prompt_tokens\xcd\x89y\xabunavailable\x80\xa9max_turnsd\xb1max_session_tu"
    b"rns\xff\xa7turn_no1\xadsession_turns1\xabturn_status\xa5calls\xa5reply\xd9@\xadfinish_reason\xa4stop\xa5error"
    b"\x80\xadapproval_mode\xa4yolo\xaaplan_phase\xa0\xa4stop\xa0\xaastopped_by\xa0\xa7refused\x80\xa6prompt\xa0"
    b"\xa4said\xa0\xa8fed_back\xc2\xabnoted_epoch\x01\xb2next_speaker_check\xc3\xa6status\xa7running\xaebranch:to:t"
    b"urn\xc0\xb0channel_versions\xde\x00(\xa9__start__\x02\xa6prompt\x03\xadapproval_modee\xa5model\x02\xa9max_tur"
    b"ns\x02\xb1max_session_turns\x02\xa4heade\xadsession_turnsd\xb2last_prompt_tokensd\xa4modee\xa8protocole\xa6ho"
    b"okede\xb5branch:to:open_prompt\x03\xa7turn_nod\xacsticky_model\\\xabturn_statusd\xa5errord\xa9loop_keysd\xaal"
    b"oop_count\\\xadloop_interval\\\xa9loop_next\\\xaaloop_foundd\xa4stope\xa6status\x03\xabunavailable\\\xaaplan_"
    b"phasee\xb2next_speaker_check\x03\xaahook_stage\x03\xa4said\\\xa8fed_back\x03\xa7refusede\xa5asked\x03\xa5labe"
    b"le\xaebranch:to:turne\xa5replyd\xadfinish_reasond\xafbranch:to:toolse\xa5agente\xaastopped_bye\xabnoted_epoch"
    b"e\xadversions_seen\x85\xa9__input__\x80\xa9__start__\x81\xa9__start__\x01\xabopen_prompt\x81\xb5branch:to:ope"
    b"n_prompt\x02\xa4turn\x81\xaebranch:to:turnc\xa5tools\x81\xafbranch:to:toolsd\xb0updated_channels\x9d\xa5agent"
    b"\xadapproval_mode\xaebranch:to:turn\xa4head\xa6hooked\xa5label\xa4mode\xabnoted_epoch\xaaplan_phase\xa8protoc"
    b"ol\xa7refused\xa4stop\xaastopped_by"
)
"""Deflate dictionary: a checkpoint of `main` without ids. Stored rows depend on it: add others under a new suffix."""


def compress_row_if_long(kind: str, data: bytes) -> tuple[str, bytes]:
    """Compress a row; returns its type and bytes."""
    if len(data) < _SHORT:
        return kind, data
    deflate = zlib.compressobj(zdict=_NAMES)
    return kind + _PRESET, deflate.compress(data) + deflate.flush()


def decompress_row(kind: str, saved: bytes) -> tuple[str, bytes]:
    """Undo `packed`, also for rows of earlier versions."""
    if kind.endswith(_PRESET):
        return kind.removesuffix(_PRESET), _inflate_with_dictionary(saved)
    if kind.endswith(_DEFLATED):
        return kind.removesuffix(_DEFLATED), zlib.decompress(saved)
    return kind, saved


def decode_checkpoint_to_plain_values(kind: str, saved: bytes) -> dict[str, Any]:
    """A checkpoint's plain values: objects become what they are made of, LangGraph's own, such as a `Send`, True."""
    import ormsgpack

    def other(_code: int, data: bytes) -> Any:
        made: Any = ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)
        parts = cast("list[Any]", made) if isinstance(made, list) else []
        if len(parts) < 3 or str(parts[0]).startswith("langgraph."):
            return True
        if parts[1] == "OwnForm" and str(parts[0]).startswith("interlock."):
            return f"(stored by the graph's own serializer: {parts[2]['kind']})"
        return sorted(parts[2], key=repr) if parts[1] in ("set", "frozenset") else parts[2]

    data = decompress_row(kind, saved)[1]
    return ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)


def _inflate_with_dictionary(saved: bytes) -> bytes:
    inflate = zlib.decompressobj(zdict=_NAMES)
    data = inflate.decompress(saved)
    if not inflate.eof:  # zlib doesn't check this
        raise ValueError("the row ends too soon")
    return data


@dataclass(frozen=True)
class RootCheckpoint:
    """A stored step of a run's own graph."""

    id: str
    step: int
    source: str
    """input | loop | update | fork"""
    kind: str
    saved: bytes

    @cached_property
    def _decoded_checkpoint(self) -> dict[str, Any]:
        return decode_checkpoint_to_plain_values(self.kind, self.saved)

    @property
    def created_at(self) -> float:
        """Unix time, seconds."""
        return datetime.fromisoformat(self._decoded_checkpoint["ts"]).timestamp()

    @property
    def values(self) -> dict[str, Any]:
        """The channels' values, LangGraph's own among them."""
        return self._decoded_checkpoint["channel_values"]


def list_root_checkpoints(home: Path, run: str) -> list[RootCheckpoint]:
    """Oldest first. A step repeated after a crash has two: the newer counts."""
    rows = select_rows(
        home,
        "select checkpoint_id, metadata, type, checkpoint from checkpoints "
        "where thread_id = $1 and checkpoint_ns = '' order by checkpoint_id",
        run,
    )
    found: list[RootCheckpoint] = []
    for name, metadata, kind, saved in rows:
        details: Mapping[str, Any] = json.loads(metadata)
        found.append(RootCheckpoint(name, details.get("step", 0), details.get("source", ""), kind, saved))
    return found


def get_checkpoint_at_step(home: Path, run: str, step: int | None = None) -> tuple[RootCheckpoint, bool]:
    """The checkpoint of a root step, by default the newest, and whether it is the newest.

    Raises `UserError` naming the existing steps.
    """
    there = list_root_checkpoints(home, run)
    if not there:
        raise UserError(
            f"Run {run!r} has no checkpoint yet. Look again, or resume it: interlock resume {run}"
        )
    found = [one for one in there if step in (None, one.step)]
    if not found:
        raise UserError(
            f"Run {run!r} has no step {step}: it has {there[0].step} to {there[-1].step}. See: interlock history {run}"
        )
    return found[-1], found[-1] is there[-1]


def read_state_at_step(home: Path, run: str, step: int | None = None) -> dict[str, Any]:
    """The state after a root step, by default the newest. Raises `UserError` naming the existing steps."""
    values = get_checkpoint_at_step(home, run, step)[0].values
    return {key: value for key, value in values.items() if not is_internal_channel(key)}


def read_newest_state(home: Path, run: str) -> dict[str, Any]:
    """The newest state; empty for a run that was killed before its first checkpoint."""
    try:
        return read_state_at_step(home, run)
    except UserError:
        return {}


def read_tool_batch_state(home: Path, run: str) -> dict[str, Any]:
    """The newest state of a tool batch in progress or waiting; empty if there is none."""
    rows = select_rows(
        home,
        "select type, checkpoint, checkpoint_ns from checkpoints where thread_id = $1 "
        "and checkpoint_ns like 'tools:%' order by checkpoint_id desc",
        run,
    )
    batch = next((row for row in rows if "|" not in row["checkpoint_ns"]), None)
    return (
        decode_checkpoint_to_plain_values(batch["type"], batch["checkpoint"])["channel_values"]
        if batch
        else {}
    )


class DueNode(NamedTuple):
    """A node that runs next, or was running when its process ended."""

    namespace: str
    """Of its graph, with whole task ids."""
    node: str

    @property
    def place(self) -> tuple[str, ...]:
        """Names of the nodes around it, outermost first, and its own."""
        return (*(part.partition(":")[0] for part in self.namespace.split("|") if part), self.node)


def list_innermost_due_nodes(home: Path, run: str) -> list[DueNode]:
    """Return the nodes that the newest checkpoints of a run's graphs lead to and that haven't ended, innermost ones
    only. Empty for a run that is over, or whose next tasks are payloads.
    """
    newest = select_rows(
        home,
        "select checkpoint_ns, checkpoint_id, type, checkpoint from checkpoints c where thread_id = $1 "
        "and checkpoint_id = (select max(checkpoint_id) from checkpoints n where n.thread_id = c.thread_id "
        "and n.checkpoint_ns = c.checkpoint_ns)",
        run,
    )
    over = {
        (row["checkpoint_ns"], row["checkpoint_id"], node_of_task_path(row["task_path"]))
        for row in select_rows(
            home,
            "select checkpoint_ns, checkpoint_id, task_path, channel from writes where thread_id = $1",
            run,
        )
        if row["channel"] not in BOOKKEEPING
    }
    found = [
        DueNode(row["checkpoint_ns"], node)
        for row in newest
        for node in nodes_due_by_edge(
            decode_checkpoint_to_plain_values(row["type"], row["checkpoint"])["channel_values"]
        )
        if (row["checkpoint_ns"], row["checkpoint_id"], node) not in over
    ]
    inside = [f"{due.namespace}|" for due in found]
    return [
        due for due in found if not any(f"|{ns}".startswith(_inner_namespace_prefix(due)) for ns in inside)
    ]


def _inner_namespace_prefix(due: DueNode) -> str:
    """How the namespaces of graphs inside a node begin."""
    return f"|{due.namespace}|{due.node}:" if due.namespace else f"|{due.node}:"
