"""routes: from one strategy to the next."""

from typing import Literal

from typing_extensions import TypedDict


class AfterStrategyIn(TypedDict, total=False):
    chosen_model: str


def after_strategy(state: AfterStrategyIn) -> Literal["chosen", "abstained"]:
    return "chosen" if state["chosen_model"] else "abstained"
