"""stored_values: what the state of somebody's graph may hold, and how it is stored so that it comes back as it was: on
LangGraph's serializer, whose internals it touches."""

import sys
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from types import FunctionType
from typing import Any, cast

import ormsgpack
from langgraph.checkpoint.serde import jsonplus
from pydantic import BaseModel

from interlock.state.errors import RunError, exception_line

Names = Container[tuple[str, ...]]
"""Classes, by module and name."""


class StorableTypes:
    """The classes that a graph's checkpoints may hold: those that are named, and whatever the graph's program has
    imported to hold data. A forged checkpoint can name no function, and no class that does more than hold data; the
    constructors of those run, and their module is imported, as when LangGraph loads them."""

    def __init__(self, named: Iterable[tuple[str, ...]]) -> None:
        self._named = frozenset(named) | OF_PYTHON

    def __contains__(self, key: object) -> bool:
        return key in self._named or _is_importable_data_type(*cast("tuple[str, str]", key))


def _is_importable_data_type(module: str, name: str) -> bool:
    if module not in sys.modules:
        package, _, part = module.partition(".")
        if package not in sys.modules or part.endswith("__main__"):
            return False
        import_module(module)  # a node imports it only when it is run; LangGraph takes an error as no
    found = getattr(sys.modules[module], name, None)
    return isinstance(found, type) and is_data_type(found)


def is_data_type(kind: Any) -> bool:
    """Whether objects of a class are values that LangGraph stores by their fields."""
    return issubclass(kind, BaseModel | Enum) or is_dataclass(kind) or hasattr(kind, "_fields")


def make_type_loader(known: Names) -> Callable[[int, bytes], Any]:
    """What LangGraph's serializer loads objects by: one of a class that isn't known as plain data."""
    return jsonplus._create_msgpack_ext_hook(cast(Any, known))  # pyright: ignore[reportPrivateUsage]


def find_custom_serializer(graph: Any) -> Any:
    """The serializer of the saver that a graph was compiled with, if it is of another kind than LangGraph's usual
    one, such as one that encrypts: it stores all of the state. None: the graph has no such one."""
    serde = getattr(graph.checkpointer, "serde", None)
    return None if isinstance(serde, jsonplus.JsonPlusSerializer) else serde


@dataclass(frozen=True)
class StoredForm:
    """What the values of a graph may be, and whose serializer stores them."""

    types: frozenset[tuple[str, ...]] = frozenset()
    """Classes that its checkpoints may hold."""
    serde: Any = None
    """The serializer of the saver that the graph was compiled with; None: it has none."""
    hides: bool = False
    """Whether that serializer stores all of the state (`find_custom_serializer`)."""


def encode_hidden_input(serde: Any, graph_input: Any) -> dict[str, Any]:
    """An input, as JSON, in the form that a hiding serializer gives it."""
    kind, data = serde.dumps_typed(graph_input)
    return {_HIDDEN: [kind, b64encode(data).decode()]}


def decode_if_hidden(serde: Any, stored_input: dict[str, Any]) -> dict[str, Any]:
    """The input of a run's row, whether it is `hidden` or not. Raises `RunError` if its serializer doesn't bring it
    back."""
    if {*stored_input} != {_HIDDEN}:
        return stored_input
    kind, data = stored_input[_HIDDEN]
    if serde is None:
        raise RunError(f"The input was stored by the graph's own serializer ({kind!r}), which it lost since.")
    try:
        return serde.loads_typed((kind, b64decode(data)))
    except Exception as error:  # whatever its own methods raise
        raise RunError(
            f"The graph's own serializer doesn't bring back the input that it stored ({kind!r}): "
            f"{exception_line(error)}. Give it the key that it had."
        ) from error


_HIDDEN = "interlock: in the form of the graph's own serializer"


def describe_unstorable_value(value: Any, known: Names, serde: Any) -> str:
    """What of a value wouldn't come back as it is; empty: nothing."""
    if wrong := _describe_unloadable_class(value, known):
        return wrong
    try:
        serde.dumps_typed(value)
    except Exception as error:  # whatever its own methods raise
        why = exception_line(error).partition(": ")[2]
        lone = " (a lone surrogate, half of a character)" if "surrogate" in why or "UTF-8" in why else ""
        return f"{type(value).__name__} ({why}){lone}"
    return ""


def _describe_unloadable_class(value: Any, known: Names, depth: int = 0) -> str:
    """The first class inside that would be loaded as plain data; empty: none."""
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if value is None or kind in _PLAIN or depth > 20:
        return ""
    if kind is defaultdict and value.default_factory not in (None, *_DEFAULTS):
        return f"a defaultdict whose default is made by {value.default_factory!r}, not by a class such as int"
    if kind in _CONTAINERS:
        inner: Any = [*value.values()] if isinstance(value, dict) else value
        return next(filter(None, (_describe_unloadable_class(one, known, depth + 1) for one in inner)), "")
    if (kind.__module__, kind.__qualname__) in known or (kind.__module__, kind.__name__) in known:
        return ""
    if isinstance(value, str) and not isinstance(value, Enum):
        return ""  # such as a message's `.text`: it comes back as a text
    package = kind.__module__.partition(".")[0]
    of: Any = getattr(value, "dtype", None) if package == "numpy" else None
    if of is not None and (of.hasobject or of.names):
        return f"an array of numpy's type {of}"
    if isinstance(value, BaseException) or package in ("numpy", "langgraph"):
        return ""
    return f"{kind.__module__}.{kind.__qualname__}"


_PLAIN = (str, int, float, bool, bytes, bytearray, memoryview)
_CONTAINERS = (list, tuple, set, frozenset, dict, deque, Counter, OrderedDict, defaultdict)


@cache
def make_class_preserving_encoder() -> Callable[[Any], bytes]:
    """LangGraph's encoder, by which tuples and the dictionaries of `collections` come back as what they were, and a
    deque with its limit: its own makes lists, plain dictionaries and an endless deque of them."""
    # LangGraph's own has `?` for a lone surrogate, so a text would come back as another one.
    own: int = jsonplus._option & ~ormsgpack.OPT_REPLACE_SURROGATES  # pyright: ignore[reportPrivateUsage]
    option = own | ormsgpack.OPT_PASSTHROUGH_TUPLE | ormsgpack.OPT_PASSTHROUGH_SUBCLASS

    def encoded(value: Any) -> bytes:
        # What its own default hands on is a tuple of class and arguments.
        listed = [*cast("tuple[Any, ...]", value)] if type(value) is tuple else value
        return ormsgpack.packb(listed, default=default, option=option)

    their_default: Any = jsonplus._msgpack_default  # pyright: ignore[reportPrivateUsage]
    others = FunctionType(their_default.__code__, {**vars(jsonplus), "_msgpack_enc": encoded})

    def default(value: Any) -> Any:
        kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
        if kind is tuple:
            return made_of(tuple, [*value])
        if kind is defaultdict:
            factory = value.default_factory
            return made_of(defaultdict, factory and made_of(type, factory()), dict(value))
        if kind is deque:
            return made_of(deque, [*value], value.maxlen)
        if kind in (Counter, OrderedDict):
            return made_of(kind, dict(value))
        base: Any = next((one for one in (str, int, float, list, dict) if isinstance(value, one)), None)
        return others(value) if base is None or isinstance(value, Enum) else base(value)

    def made_of(kind: type, *arguments: Any) -> Any:
        code = jsonplus.EXT_CONSTRUCTOR_POS_ARGS if arguments[1:] else jsonplus.EXT_CONSTRUCTOR_SINGLE_ARG
        given = [*arguments] if arguments[1:] else arguments[0]
        return ormsgpack.Ext(code, encoded([kind.__module__, kind.__name__, given]))

    return lambda value: (
        encoded(value) if type(value) is not tuple else ormsgpack.packb(value, default, option)
    )


_DEFAULTS: tuple[Any, ...] = (*_CONTAINERS, *_PLAIN[:5])
"""What may make the missing values of a defaultdict: an empty one is stored, and the class is read from it."""
OF_PYTHON = {(one.__module__, one.__name__) for one in (tuple, type, Counter, OrderedDict, defaultdict)}
"""Classes that the encoder names beside LangGraph's."""
