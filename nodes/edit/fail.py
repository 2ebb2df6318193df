"""fail: end without a change; the first error is what is told."""

from typing_extensions import TypedDict


class FailIn(TypedDict, total=False):
    error: dict[str, str]


class FailOut(TypedDict, total=False):
    edit_status: str
    error: dict[str, str]


async def fail(state: FailIn) -> FailOut:
    """Nothing was written."""
    return {"edit_status": "failed", "error": state["error"]}
