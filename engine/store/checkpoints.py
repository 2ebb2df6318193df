"""checkpoints: how rows hold them, deflated where that halves them, and a run's state and messages read out of them.

Light: no LangGraph is needed to read. Half of a checkpoint of 1.5 KB is names, the same in every row; a preset
dictionary (RFC 1950) holds them.
"""

import json
import sqlite3
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

from interlock.engine.store import reading, select
from interlock.services.transcript import ChainTranscript
from interlock.state.errors import UserError
from interlock.state.messages import Message

_DEFLATED, _PRESET = "+deflate", "+deflate1"
"""Suffixes of a row's type: without a dictionary, as written before there was one, and with `_NAMES`."""
_SHORT = 256
"""Bytes below which deflating gains nothing."""
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
"""A checkpoint of `main` without its ids. Rows are read with it for ever: a better one is added, under a new suffix."""


def packed(kind: str, data: bytes) -> tuple[str, bytes]:
    """Type and bytes of a row."""
    if len(data) < _SHORT:
        return kind, data
    deflate = zlib.compressobj(zdict=_NAMES)
    return kind + _PRESET, deflate.compress(data) + deflate.flush()


def unpacked(kind: str, saved: bytes) -> tuple[str, bytes]:
    """What was packed; rows of earlier versions, too."""
    if kind.endswith(_PRESET):
        return kind.removesuffix(_PRESET), _inflated(saved)
    if kind.endswith(_DEFLATED):
        return kind.removesuffix(_DEFLATED), zlib.decompress(saved)
    return kind, saved


def checkpoint_of(kind: str, saved: bytes) -> dict[str, Any]:
    """A checkpoint's plain values; an object of LangGraph's own, as of a task that is due, is shown as True."""
    import ormsgpack

    def other(_code: int, _data: bytes) -> bool:
        return True

    data = unpacked(kind, saved)[1]
    return ormsgpack.unpackb(data, ext_hook=other, option=ormsgpack.OPT_NON_STR_KEYS)


def _inflated(saved: bytes) -> bytes:
    inflate = zlib.decompressobj(zdict=_NAMES)
    data = inflate.decompress(saved)
    if not inflate.eof:  # nor does zlib say so
        raise ValueError("the row ends too soon")
    return data


def state_at(home: Path, run: str, step: int | None = None) -> dict[str, Any]:
    """The state after a root step; the newest without one. Raises `UserError` naming the steps that there are."""
    rows = select(
        home,
        "select type, checkpoint, json_extract(cast(metadata as text), '$.step') as step from checkpoints "
        "where thread_id = ? and checkpoint_ns = '' order by checkpoint_id",
        run,
    )
    steps = [row["step"] for row in rows]
    if not rows:
        raise UserError(
            f"Run {run!r} has no checkpoint yet. Look again, or resume it: interlock resume {run}"
        )
    if step is not None and step not in steps:
        raise UserError(
            f"Run {run!r} has no step {step}: it has {steps[0]} to {steps[-1]}. See: interlock history {run}"
        )
    # A root step that was done again after a crash has two checkpoints: the newer one counts.
    values = _values(rows[-1] if step is None else [r for r in rows if r["step"] == step][-1])
    return {k: v for k, v in values.items() if not k.startswith(("__", "branch:"))}


def state_within(home: Path, run: str) -> dict[str, Any]:
    """The newest state of a batch that is under way or waits; empty where there is none."""
    rows = select(
        home,
        "select type, checkpoint from checkpoints where thread_id = ? and checkpoint_ns like 'tools:%' "
        "and instr(checkpoint_ns, '|') = 0 order by checkpoint_id desc limit 1",
        run,
    )
    return _values(rows[0]) if rows else {}


def _values(row: sqlite3.Row) -> dict[str, Any]:
    return checkpoint_of(row["type"], row["checkpoint"])["channel_values"]


def first_prompt(home: Path, run: str) -> str:
    """What a run was begun with, also before its first checkpoint; empty: it takes none."""
    rows = select(home, "select input from runs where run = ?", run)
    record = str(json.loads(rows[0]["input"]).get("prompt") or "") if rows else ""
    told = messages_at(home, run, record)
    return told[-1].text if told else ""


def messages_at(home: Path, run: str, head: str) -> list[Message]:
    """The conversation up to a record of the chain."""
    with reading(home) as conn:
        if conn is None or not head:
            return []
        return ChainTranscript(conn, home / "outputs", run).read(head)


def dropped(home: Path, run: str) -> list[list[Message]]:
    """What each compression or masking of the conversation took out of it, word for word, oldest first."""
    head = str(state_at(home, run).get("head") or "")
    found: list[list[Message]] = []
    with reading(home) as conn:
        if conn is None:
            return []
        chain = ChainTranscript(conn, home / "outputs", run)
        while head and (old := chain.continued(head)):
            kept = Counter(m.model_dump_json() for m in chain.read(head))
            gone: list[Message] = []
            for message in chain.read(old):
                text = message.model_dump_json()
                kept[text] -= 1
                if kept[text] < 0:
                    gone.append(message)
            found.append(gone)
            head = old
    return found[::-1]
