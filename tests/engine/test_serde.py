"""Serialized checkpoints: long ones are deflated, earlier versions' are still readable."""

import zlib
from hashlib import sha256

import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from interlock.engine.store.checkpoints import _NAMES
from interlock.engine.store.saver import Serde

LONG = {f"key {n}": [n, None, "text", {"nested": True}] for n in range(80)}


def test_a_long_state_takes_half_the_room_and_rows_of_before_are_read() -> None:
    kind, before = JsonPlusSerializer().dumps_typed(LONG)
    assert len(Serde().dumps_typed(LONG)[1]) < len(before) / 2
    assert Serde().loads_typed((kind, before)) == LONG
    assert Serde().loads_typed((kind + "+deflate", zlib.compress(before, 1))) == LONG


def test_the_dictionary_that_rows_are_read_with_never_changes() -> None:
    assert sha256(_NAMES).hexdigest()[:16] == "a3edf97fa30c6b0e"


def test_a_row_that_is_cut_short_is_an_error() -> None:
    kind, saved = Serde().dumps_typed(LONG)
    for cut in (saved[:-1], saved[: len(saved) // 2], saved[:3]):
        with pytest.raises((ValueError, zlib.error)):
            Serde().loads_typed((kind, cut))
