"""lazy_classes: a module's classes, and unions of them, are made once they are asked for.

`google.genai.types` has a thousand, of which a chat needs an eighth. Nothing stands in for a class: its own statement
is run, later. Other modules of the package name its classes in annotations, which nobody evaluates. A module that does
more with its classes than inherit from them, unite and annotate is run as it is.
"""

import builtins
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from threading import RLock
from types import CodeType, GenericAlias, ModuleType, SimpleNamespace
from typing import Any, Union

_LOCK = RLock()
"""Held while a class is made: two threads that ask for one get the same."""


class _Later:
    """What a statement makes, once it is asked for; until then it may stand in annotations."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._made, self._begun = make, None, False

    def made(self) -> Any:
        """Raises `KeyError` for a class that is asked for by what its own statement asks for."""
        with _LOCK:
            if self._made is None:
                if self._begun:
                    raise KeyError
                self._begun = True
                self._made = self._make()
            return self._made


def _made(value: Any) -> Any:
    if isinstance(value, GenericAlias):
        return GenericAlias(value.__origin__, tuple(map(_made, value.__args__)))
    return value.made() if isinstance(value, _Later) else value


class _Unions:
    """`Union` for the module's own statements."""

    def __getitem__(self, parts: Any) -> _Later:
        whole = parts if isinstance(parts, tuple) else (parts,)
        return _Later(lambda: Union[tuple(map(_made, whole))])  # noqa: UP007 - of any number


class _Names:
    """The names of a module whose statements are being run, with those of what is made later."""

    def __init__(self, space: dict[str, Any], later: dict[str, _Later]) -> None:
        self._space, self._later = space, later

    def __getitem__(self, name: str) -> Any:
        if self._space.get(name) is Union:
            return _Unions()
        return self._later[name] if name in self._later else self._space[name]

    def __setitem__(self, name: str, value: Any) -> None:
        (self._later if isinstance(value, _Later) else self._space)[name] = value


class _Builtins(dict[str, Any]):
    """What functions and classes of a module find where its namespace has no such name."""

    find: Callable[[str], Any]

    def __missing__(self, name: str) -> Any:
        return self.find(name)


class _Loader(SourceFileLoader):
    def exec_module(self, module: ModuleType) -> None:
        code, before = self.get_code(module.__name__), {**module.__dict__}
        assert code is not None
        try:
            self.run(code, module)
        except Exception:  # it does more with them; whatever else is wrong is raised now
            module.__dict__.clear()
            module.__dict__.update(before)
            exec(code, module.__dict__)

    def run(self, code: CodeType, module: ModuleType) -> None:
        raise NotImplementedError


class _Making(_Loader):
    """Loads the module that has the classes."""

    later: Mapping[str, _Later] = {}

    def run(self, code: CodeType, module: ModuleType) -> None:
        space, later = module.__dict__, dict[str, _Later]()

        def find(name: str) -> Any:
            space[name] = found = later[name].made()
            return found

        own = space["__builtins__"] = _Builtins(builtins.__dict__)
        own["__build_class__"], own.find = _built, find
        exec(code, space, _Names(space, later))
        own["__build_class__"] = builtins.__build_class__
        others: Callable[[str], Any] = space.get("__getattr__", module.__getattribute__)
        space["__getattr__"] = lambda name: find(name) if name in later else others(name)
        space["__dir__"] = lambda: sorted({*space, *later})
        space.setdefault("__all__", [name for name in (*space, *later) if not name.startswith("_")])
        self.later = later


def _built(body: Any, name: str, *bases: Any, **options: Any) -> Any:
    def make() -> Any:
        return builtins.__build_class__(body, name, *map(_made, bases), **options)

    return _Later(make) if body.__qualname__ == name else make()


class _Annotating(_Loader):
    """Loads a module that names the classes in annotations: while it is run, they aren't made for that."""

    def __init__(self, name: str, path: str, classes: str) -> None:
        super().__init__(name, path)
        self._package, _, self._module = classes.rpartition(".")

    def run(self, code: CodeType, module: ModuleType) -> None:
        space, named = module.__dict__, list[_Classes]()

        def imported(
            name: str, given: Any = None, local: Any = None, names: Sequence[str] | None = (), level: int = 0
        ) -> Any:
            found = builtins.__import__(name, given, local, names or (), level)
            if self._module not in (names or ()) or found is not sys.modules[self._package]:
                return found
            named.append(_Classes(getattr(found, self._module)))
            return SimpleNamespace(**{n: getattr(found, n) for n in names or ()} | {self._module: named[-1]})

        own = space["__builtins__"] = {**builtins.__dict__, "__import__": imported}
        exec(code, space)
        own["__import__"] = builtins.__import__
        space.update({name: value.real for name, value in space.items() if value in named})


class _Classes:
    """In place of the module with the classes."""

    def __init__(self, real: ModuleType) -> None:
        self.real = real

    def __getattr__(self, name: str) -> Any:
        loader = self.real.__spec__ and self.real.__spec__.loader
        later = loader.later if isinstance(loader, _Making) else {}
        return later[name] if name in later and name not in vars(self.real) else getattr(self.real, name)


class _Finder:
    """First of `sys.meta_path`: only for the module named, and those beside it."""

    def __init__(self, module: str) -> None:
        self._module = module

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.rpartition(".")[0] != self._module.rpartition(".")[0]:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader and not spec.submodule_search_locations:
            own = spec.loader.name, spec.loader.path
            spec.loader = _Making(*own) if name == self._module else _Annotating(*own, self._module)
        return spec


def make_lazily(module: str) -> None:
    """Call before anything imports it. It does nothing in Python 3.14, which looks names up elsewhere."""
    if sys.version_info < (3, 14):
        sys.meta_path.insert(0, _Finder(module))
