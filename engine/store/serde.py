"""serde: how the store keeps checkpoints and writes: LangGraph's MessagePack, deflated where that halves it."""

from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from interlock.engine.store.packed import packed, unpacked


class Serde(JsonPlusSerializer):
    """Reads what earlier versions wrote, too: those rows name another type."""

    def __init__(self) -> None:
        super().__init__(allowed_msgpack_modules=None)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        return packed(*super().dumps_typed(obj))

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        return super().loads_typed(unpacked(*data))
