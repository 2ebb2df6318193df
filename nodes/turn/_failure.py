"""_failure: what a model's failure means for the turn and for the choice of models."""

from collections.abc import Mapping
from typing import NamedTuple

from interlock.state.errors import ModelError


class Failure(NamedTuple):
    error: dict[str, str]
    unavailable: dict[str, str]
    failed_model: str
    """Empty: the model isn't to blame, another would fail as well."""


def failure(error: ModelError, model: str, unavailable: Mapping[str, str]) -> Failure:
    """A quota used up or an unknown model lasts for the run, a server that is overloaded for the prompt."""
    kind = "context_overflow" if error.overflow else error.kind
    told = {"type": kind, "message": str(error)}
    if error.terminal:
        return Failure(told, {**unavailable, model: "run"}, model)
    if error.retryable and error.status is not None:
        return Failure(told, {**unavailable, model: "prompt"}, model)
    return Failure(told, dict(unavailable), "")
