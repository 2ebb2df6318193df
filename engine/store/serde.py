"""serde: how the store keeps checkpoints and writes: LangGraph's MessagePack, deflated where that halves it."""

import zlib
from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

_DEFLATED = "+deflate"
_SHORT = 256
"""Bytes below which deflating gains nothing."""


class Serde(JsonPlusSerializer):
    """Reads what earlier versions wrote, too: those rows name another type."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        kind, data = super().dumps_typed(obj)
        return (kind, data) if len(data) < _SHORT else (kind + _DEFLATED, zlib.compress(data, 1))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, saved = data
        if not kind.endswith(_DEFLATED):
            return super().loads_typed(data)
        return super().loads_typed((kind.removesuffix(_DEFLATED), zlib.decompress(saved)))
