"""routes: where the question goes."""

from typing import Literal

from typing_extensions import TypedDict


class AfterPrecheckIn(TypedDict, total=False):
    decided_by: str


def after_precheck(state: AfterPrecheckIn) -> Literal["decided", "open"]:
    return "decided" if state["decided_by"] else "open"
