"""api_page: the page of a public module: each name with its signature or its fields, and its docstring."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from interlock.state.errors import UserError

_PATHS = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z_a-z])")
_HIDDEN = re.compile(r" at 0x[0-9a-f]+")


def page(module: str) -> str:
    """Markdown. Raises `UserError` for a module that isn't there, or a name without a docstring."""
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(f"No module {module!r} to document.") from error
    return "\n".join(line for name in found.__all__ for line in _entry(found, name))


def _entry(module: ModuleType, name: str) -> Iterator[str]:
    thing: Any = getattr(module, name)
    if inspect.ismodule(thing):
        yield f"### `{name}.build`\n\n{_first_line(thing.__doc__ or '').partition(': ')[2]}\n"
        return
    if not _is_ours(thing):
        origin = getattr(thing, "__module__", "")
        text = f"`{thing!r}`" if isinstance(thing, str | tuple) else f"As in `{origin}`."
        yield f"### `{name}`\n\n{text}\n"
        return
    doc = inspect.getdoc(thing)
    if not doc:
        raise UserError(f"{module.__name__}.{name} has no docstring.")
    yield f"### `{name}`\n"
    if inspect.isfunction(thing):
        yield f"```python\n{'async ' if inspect.iscoroutinefunction(thing) else ''}def {_signature(name, thing)}\n```\n"
    yield f"{doc}\n"
    if inspect.isclass(thing):
        yield from _fields(thing)
        yield from _methods(thing)


def _is_ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").startswith("interlock.") and not isinstance(
        thing, str | tuple
    )


def _signature(name: str, function: Any) -> str:
    return _HIDDEN.sub("", _PATHS.sub("", f"{name}{inspect.signature(function)}".replace("'", "")))


def _fields(cls: type) -> Iterator[str]:
    """Annotated names of the class's body, with the strings that stand below them."""
    body = _body(cls)
    for place, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            if name.startswith("_"):
                continue
            kind, after = ast.unparse(statement.annotation).strip("'\""), body[place + 1 : place + 2]
            yield f"- `{name}: {kind}`{_told(after)}"
    yield ""


def _told(after: list[ast.stmt]) -> str:
    if after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant):
        return f": {' '.join(str(after[0].value.value).split())}"
    return ""


def _methods(cls: type) -> Iterator[str]:
    """Public ones of the class's own body that have a docstring."""
    for name, member in vars(cls).items():
        if inspect.isfunction(member) and not name.startswith("_") and (doc := inspect.getdoc(member)):
            yield f"- `{_signature(name, member)}`: {' '.join(doc.split())}"
    yield ""


def _body(cls: type) -> list[ast.stmt]:
    try:
        parsed = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0]
    except (OSError, TypeError):  # made at run time
        return []
    return parsed.body if isinstance(parsed, ast.ClassDef) else []


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
