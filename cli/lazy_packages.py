"""lazy_packages: a package's `__init__` that names what its modules have imports each of them once it is asked for.

`openai.types` alone would import 470 modules, of which a chat needs 64. Nothing stands in for anything: `__init__` is
run, what it imports by name from its own modules is noted, and the package's `__getattr__` imports it. Not for packages
whose `__init__` uses what it imports.
"""

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from types import ModuleType
from typing import Any


class _Noted:
    """An import not made yet: of a name from a module."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def made(self) -> Any:
        return getattr(import_module(self.module), self.name)


class _Module:
    """In place of a module that `__init__` imports names from."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> _Noted:
        return _Noted(self._name, name)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        assert code is not None
        space = module.__dict__
        space["__builtins__"] = {**builtins.__dict__, "__import__": _importing(module.__name__)}
        exec(code, space)
        space["__builtins__"] = builtins.__dict__
        noted = {name: one for name, one in space.items() if isinstance(one, _Noted)}
        modules = {one.module.rpartition(".")[2] for one in noted.values()}
        for name in modules & {*noted}:  # the module's own import would take the name's place
            space[name] = noted.pop(name).made()
        for name in noted:
            del space[name]
        if noted:
            space["__getattr__"] = _asked(module, noted)
            space["__dir__"] = lambda: sorted({*space, *noted})
            space.setdefault("__all__", [name for name in dir(module) if not name.startswith("_")])


def _importing(package: str) -> Callable[..., Any]:
    def imported(
        name: str,
        space: Mapping[str, object] | None = None,
        own: Mapping[str, object] | None = None,
        names: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        whole = resolve_name("." * level + name, package) if level else name
        if whole.startswith(f"{package}.") and names and "*" not in names:
            return _Module(whole)
        return builtins.__import__(name, space, own, names or (), level)

    return imported


def _asked(module: ModuleType, noted: Mapping[str, _Noted]) -> Callable[[str], Any]:
    def asked(name: str) -> Any:
        if name not in noted:
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        found = noted[name].made()
        setattr(module, name, found)
        return found

    return asked


class _Finder:
    """First of `sys.meta_path`: only for the packages named, and those in them."""

    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not any(name == package or name.startswith(f"{package}.") for package in self._packages):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and spec.submodule_search_locations and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path)
        return spec


def import_lazily(*packages: str) -> None:
    """Call before anything imports them."""
    sys.meta_path.insert(0, _Finder(packages))
