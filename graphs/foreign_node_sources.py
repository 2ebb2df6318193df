"""foreign_node_sources: what the nodes of a foreign graph are made of, so that a change of one is noticed."""

import dis
import hashlib
import inspect
import linecache
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, cast

from interlock.graphs.langgraph_internals import code_parts_of_node, unconditional_writes

_PLAIN = (str, int, float, bool, bytes, type(None))
_DEPTH = 12
_STDLIB = sysconfig.get_path("stdlib")


def node_digests_and_fixed_channels(compiled: Any) -> dict[str, dict[str, Any]]:
    """Node → `source`, a hash of its code, and `fixed`, the channels that its edges without a condition write.

    The code is that of the function, of the routers behind it, and of functions, classes and plain constants of the
    project that they name. A node that is a graph has the code of its nodes.
    """
    return {
        name: {
            "source": _node_code_digest(compiled, name),
            "fixed": [channel for channel, _ in unconditional_writes(compiled, name)],
        }
        for name in compiled.nodes
    }


def graph_code_digest(compiled: Any) -> str:
    """A hash of the code of all of a graph's nodes."""
    return hashlib.sha256(
        "".join(_node_code_digest(compiled, name) for name in compiled.nodes).encode()
    ).hexdigest()[:12]


@cache
def function_code_digest(function: Any) -> str:
    """A hash of the code of a function, and of what it names of the project."""
    return hashlib.sha256("\0".join(_code_texts(function, set(), 0)).encode(errors="replace")).hexdigest()[
        :16
    ]


def _node_code_digest(compiled: Any, name: str) -> str:
    seen: set[int] = set()
    texts = [text for part in code_parts_of_node(compiled, name) for text in _code_texts(part, seen, 0)]
    return hashlib.sha256("\0".join(texts).encode(errors="replace")).hexdigest()[:16]


def _code_texts(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    """The code of an object, and of those of the project that it names."""
    if isinstance(value, _PLAIN):
        yield repr(value)
        return
    if id(value) in seen or depth > _DEPTH:
        return
    seen.add(id(value))
    if isinstance(value, MethodType):
        yield from _code_texts(value.__func__, seen, depth)
        yield from _code_texts(type(value.__self__), seen, depth + 1)
    elif isinstance(value, FunctionType):
        yield from _function_code_texts(value, seen, depth)
    elif isinstance(value, partial):
        parts = cast("partial[Any]", value)
        for one in (parts.func, parts.args, parts.keywords):
            yield from _code_texts(one, seen, depth + 1)
    elif isinstance(value, type):
        if _is_user_module(sys.modules.get(value.__module__)):
            yield _source_text(value)
    elif isinstance(value, list | tuple):
        for one in cast("list[Any]", value):
            yield from _code_texts(one, seen, depth + 1)
    elif isinstance(value, Mapping):
        for key, one in cast("Mapping[Any, Any]", value).items():
            yield str(key)
            yield from _code_texts(one, seen, depth + 1)
    else:
        yield from _object_code_texts(value, seen, depth)


def _object_code_texts(value: Any, seen: set[int], depth: int) -> Iterator[str]:
    """The code of a graph, a tool, a runnable, or an object of a class of the project."""
    if callable(getattr(value, "get_subgraphs", None)) and isinstance(getattr(value, "nodes", None), dict):
        for name in value.nodes:
            yield str(name)
            yield from _code_texts([*code_parts_of_node(value, name)], seen, depth + 1)
        return
    yield from _code_texts(type(value), seen, depth + 1)
    if type(value).__module__.partition(".")[0] not in _ENGINES:
        return
    for name in ("name", "description", "func", "afunc", "coroutine", "tools_by_name", "steps"):
        if (one := getattr(value, name, None)) is not None:
            yield from _code_texts(one, seen, depth + 1)


def _function_code_texts(function: FunctionType, seen: set[int], depth: int) -> Iterator[str]:
    yield _source_text(function)
    inner = inspect.unwrap(function)
    if isinstance(inner, FunctionType) and inner is not function:
        yield from _code_texts(inner, seen, depth + 1)
    yield from _code_texts([function.__defaults__ or (), function.__kwdefaults__ or {}], seen, depth + 1)
    for cell in function.__closure__ or ():
        try:
            yield from _code_texts(cell.cell_contents, seen, depth + 1)
        except ValueError:  # it isn't filled yet
            continue
    if not _is_user_file(function.__code__.co_filename):
        return
    names = [*dict.fromkeys(_used_names(function.__code__))]
    for name in names:
        one = function.__globals__.get(name)
        if isinstance(one, ModuleType):
            parts = [getattr(one, other, None) for other in names] if _is_user_module(one) else []
            yield from _code_texts([part for part in parts if _is_user_code(part)], seen, depth + 1)
        elif isinstance(one, _PLAIN) or _is_user_code(one):
            yield from _code_texts(one, seen, depth + 1)


def _is_user_code(value: Any) -> bool:
    return _is_user_module(sys.modules.get(getattr(value, "__module__", None) or type(value).__module__)) or (
        isinstance(value, FunctionType) and _is_user_file(value.__code__.co_filename)
    )


def _used_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _used_names(one)


def _source_text(function_or_class: Any) -> str:
    """The lines of a function or class; where there is no file, its instructions."""
    code = getattr(function_or_class, "__code__", None)
    if code is not None:
        linecache.checkcache(code.co_filename)
    try:
        return inspect.getsource(function_or_class)
    except (OSError, TypeError):
        shown = [f"{one.opname} {one.argrepr}" for one in dis.get_instructions(code)] if code else []
        return "\n".join([getattr(function_or_class, "__qualname__", ""), *shown])


def _is_user_module(module: Any) -> bool:
    return _is_user_file(getattr(module, "__file__", None) or "")


def _is_user_file(file: str) -> bool:
    """Whether it is a file of the project, and none of an installed package, Python or Interlock."""
    if not file or file.startswith(("<frozen", _STDLIB)) or "site-packages" in Path(file).parts:
        return False
    return _OURS not in Path(file).parents


_OURS = Path(__file__).parents[1]
_ENGINES = frozenset({"langgraph", "langchain", "langchain_core"})
