"""state_types: the channels of a graph and their types, as LangGraph reads them from classes."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, get_type_hints

from typing_extensions import TypedDict

from interlock.state.run import RunChannels


@cache
def type_hints(annotated: Any) -> Mapping[str, Any]:
    """Cached type hints of a class or function: read thousands of times while graphs are declared."""
    return get_type_hints(annotated, include_extras=True)


@cache
def channel_types(state: type) -> Mapping[str, Any]:
    """A graph's channels and their types: its state's, plus those every graph has."""
    return {**type_hints(state), **type_hints(RunChannels)}


@cache
def with_run_channels(state: type) -> type:
    """The TypedDict plus the channels every graph has."""
    return make_state_type(state.__name__, channel_types(state))


def make_state_type(name: str, keys: Mapping[str, Any]) -> type:
    """A state type whose keys are known only at run time."""
    channels = dict(keys)
    return TypedDict(name, channels, total=False)  # pyright: ignore[reportArgumentType,reportReturnType]


def reducer_of(kind: Any) -> Callable[[Any, Any], Any] | None:
    """The function that merges two values, if a channel's type names one."""
    return next((m for m in getattr(kind, "__metadata__", ()) if callable(m)), None)
