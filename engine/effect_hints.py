"""effect_hints: nodes that look as if they act outside without `effect`: a kill could repeat what they do."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from interlock.graphs.pipeline import Pipeline
from interlock.nodes import effects

_MODULES = frozenset({"subprocess", "requests", "httpx", "shutil", "smtplib", "ftplib", "paramiko", "boto3"})
_OS = frozenset(
    (
        "system",
        "remove",
        "unlink",
        "rename",
        "replace",
        "mkdir",
        "makedirs",
        "rmdir",
        "removedirs",
        "popen",
        "kill",
        "symlink",
        "link",
    )
)
_METHODS = frozenset(
    ("write_text", "write_bytes", "unlink", "rmdir", "mkdir", "touch", "symlink_to", "urlopen", "sendmail")
)
_GUARDED = frozenset({"effect", "effect_sync"})


class Hint(NamedTuple):
    node: str
    call: str
    """Such as `open(…, 'w')`."""
    place: str
    """FILE:LINE"""


def find_unguarded_effects(workflow: Pipeline) -> list[Hint]:
    """Calls in the code of its nodes and tools, and in functions of theirs, that write files, start processes or send.

    A call is judged by its name alone: what a library does isn't seen. Calls inside `effect(…)` and functions that are
    `@durable` count as safe.
    """
    found: dict[Hint, None] = {}
    for node, function in workflow.node_functions():
        found.update(dict.fromkeys(Hint(node, *about) for about in _suspicious_calls(function, set())))
    return [*found]


def _suspicious_calls(function: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    """Text and place of each suspicious call."""
    if _is_durable(function):
        return
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    if code is None or code in seen or "site-packages" in code.co_filename:
        return
    seen.add(code)
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError, TypeError):
        return
    known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    for call in _unguarded_calls(tree):
        if text := _suspicious_call_text(call):
            yield text, f"{Path(code.co_filename).name}:{code.co_firstlineno + call.lineno - 1}"
        elif isinstance(call.func, ast.Name) and inspect.isfunction(known.get(call.func.id)):
            yield from _suspicious_calls(known[call.func.id], seen)


def _is_durable(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == effects.__file__


def _unguarded_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.Call):
            name = ast.unparse(child.func).rpartition(".")[2]
            if name in _GUARDED:
                continue
            yield child
        yield from _unguarded_calls(child)


def _suspicious_call_text(call: ast.Call) -> str:
    name = ast.unparse(call.func)
    top, _, last = name.rpartition(".")
    if last == "open":
        modes = [
            a.value for a in (*call.args, *(k.value for k in call.keywords)) if isinstance(a, ast.Constant)
        ]
        mode = next((m for m in modes if isinstance(m, str) and m and set(m) <= set("rwaxbt+")), "r")
        return f"{name}(…, {mode!r})" if set(mode) & set("wax+") else ""
    module = name.partition(".")[0]
    outside = (
        module in _MODULES or (top == "os" and last in _OS) or (top and last in _METHODS) or name == "urlopen"
    )
    return f"{name}(…)" if outside else ""
