"""lazy_packages: what other packages import or make, and a run doesn't use, comes once it is asked for.

Three ways: of a package's `__init__`, what its modules have by name (`openai.types` alone would import 470 modules, of
which a chat needs 64); of a module, what it takes from other packages; of a module, its classes (`google.genai.types`
has a thousand, of which a chat needs a quarter).

Nothing stands in for anything that a program sees: the module's own statement is carried out, later. Its functions
find such a name as they find a builtin, other modules by its `__getattr__`. A module whose statements do more with such
names than inherit from them, unite them and annotate with them is run as it is.
"""

import builtins
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import resolve_name
from threading import RLock
from types import CodeType, FunctionType, GenericAlias, ModuleType, SimpleNamespace
from typing import Any, TypeVar, Union, cast, get_args

_LOCK = RLock()
"""Held while a class is made: two threads that ask for one get the same."""
Imports = Callable[[str, Sequence[str]], Any]
"""What a module's own statement gets for an import of these names from this module, or None: what is there."""


class Later:
    """What a statement makes or imports, once it is asked for."""

    __slots__ = ("make",)  # a module that sets anything on it is run as it is

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "__module__":  # packages name themselves there, for those who read what is printed
            super().__setattr__(name, value)

    def made(self) -> Any:
        return self.make()


class _Once(Later):
    """A class, or a union of classes: all who ask get the same. No lock is held while something is imported."""

    __slots__ = ("begun", "found")

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(make)
        self.begun, self.found = False, None

    def made(self) -> Any:
        """Raises `KeyError` for a class that is asked for by what its own statement asks for."""
        with _LOCK:
            if self.found is None:
                if self.begun:
                    raise KeyError
                self.begun = True
                try:
                    self.found = self.make()
                finally:
                    self.begun = False
            return self.found


class LateModule:
    """In place of a module that names are imported from."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Later:
        module = self._name
        return Later(lambda: getattr(import_module(module), name))


def run_lazily(
    code: CodeType, module: ModuleType, imports: Imports, classes: bool = False
) -> dict[str, Later]:
    """Execute the module; returns what it has by name, and makes later. `classes`: its own are, too."""
    space, later, before = module.__dict__, dict[str, Later](), {**module.__dict__}

    def find(name: str) -> Any:
        space[name] = found = later[name].made()
        return found

    own = space["__builtins__"] = _Builtins(builtins.__dict__)
    own.find = find
    own["__import__"] = _importing(module.__package__ or "", imports)
    own["__build_class__"] = _build if classes else builtins.__build_class__
    try:
        exec(code, space, cast(Any, _Names(space, later)))
    except Exception:  # it does more with them; whatever else is wrong is raised now
        space.clear()
        space.update(before)
        exec(code, space)
        return {}
    own.update({name: getattr(builtins, name) for name in ("__import__", "__build_class__")})
    _offer(space, later, find)
    return later


def _offer(space: dict[str, Any], later: Mapping[str, Later], find: Callable[[str], Any]) -> None:
    others: Callable[[str], Any] | None = space.get("__getattr__")

    def asked(name: str) -> Any:
        if name in later:
            return find(name)
        if others:
            return others(name)
        raise AttributeError(f"module {space['__name__']!r} has no attribute {name!r}")

    if later:
        space["__getattr__"] = asked
        space["__dir__"] = lambda: sorted({*space, *later})
        space.setdefault("__all__", [name for name in (*space, *later) if not name.startswith("_")])


class _Names:
    """The names of a module whose statements are being run, with those of what comes later."""

    def __init__(self, space: dict[str, Any], later: dict[str, Later]) -> None:
        self._space, self._later = space, later

    def __getitem__(self, name: str) -> Any:
        if self._space.get(name) is Union:
            return _Unions()
        return self._later[name] if name in self._later else self._space[name]

    def __setitem__(self, name: str, value: Any) -> None:
        if _waits(value) and not isinstance(value, Later):
            value = _Once(partial(_made, value))
        here, there = self._space, self._later
        if isinstance(value, Later):
            here, there = there, here
        here[name] = value
        there.pop(name, None)

    def __delitem__(self, name: str) -> None:
        del (self._later if name in self._later else self._space)[name]


class _Builtins(dict[str, Any]):
    """What a module's functions and classes find where its namespace has no such name."""

    find: Callable[[str], Any]

    def __missing__(self, name: str) -> Any:
        return self.find(name)


class _Unions:
    """`Union` for a module's own statements."""

    def __getitem__(self, parts: Any) -> Any:
        whole = cast("tuple[Any, ...]", parts if isinstance(parts, tuple) else (parts,))
        waiting = [_waits(part) for part in whole]
        make: Any = partial(_union, whole)
        return _Once(make) if any(waiting) else make()


def _union(parts: tuple[Any, ...]) -> Any:
    return Union[tuple(map(_made, parts))]  # noqa: UP007 - of any number


def _waits(value: Any) -> bool:
    """Whether it has to be made later. Raises `TypeError` for what would keep something that isn't made yet."""
    if isinstance(value, Later):
        return True
    waits = [_waits(part) for part in _parts(value)]
    if any(waits) and not isinstance(value, GenericAlias):
        raise TypeError(f"{type(value).__name__} of what is made later")
    return any(waits)


def _parts(value: Any) -> Iterable[Any]:
    """What the value keeps, as far as a module's statements make it."""
    if isinstance(value, FunctionType):
        return [*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values()]
    if isinstance(value, TypeVar):
        return [value.__bound__, *value.__constraints__]
    if isinstance(value, dict):
        return [*cast("dict[Any, Any]", value).values()]
    if isinstance(value, list | tuple | set | frozenset):
        return cast("Iterable[Any]", value)
    return get_args(value)


def _made(value: Any) -> Any:
    if isinstance(value, GenericAlias):
        return GenericAlias(cast(Any, value.__origin__), tuple(map(_made, value.__args__)))
    return value.made() if isinstance(value, Later) else value


def _build(body: Any, name: str, *bases: Any, **options: Any) -> Any:
    def make() -> Any:
        return builtins.__build_class__(body, name, *map(_made, bases), **options)

    return _Once(make) if body.__qualname__ == name else make()


def _importing(package: str, imports: Imports) -> Callable[..., Any]:
    def imported(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> Any:
        whole = resolve_name("." * level + name, package) if level else name
        found = imports(whole, fromlist or ())
        return builtins.__import__(name, globals, locals, fromlist or (), level) if found is None else found

    return imported


_Run = Callable[[CodeType, ModuleType], object]


def import_lazily(*packages: str) -> None:
    """For these packages, and those in them. Call before anything imports them."""

    def run(code: CodeType, module: ModuleType) -> None:
        own = f"{module.__name__}."
        modules = set[str]()

        def imports(name: str, names: Sequence[str]) -> LateModule | None:
            if not name.startswith(own) or not names or "*" in names:
                return None
            modules.add(name.rpartition(".")[2])
            return LateModule(name)

        if not hasattr(module, "__path__"):
            exec(code, module.__dict__)
            return
        later = run_lazily(code, module, imports)
        for name in modules & {*later}:  # the module's own import would take the name's place
            getattr(module, name)

    dotted = tuple(f"{package}." for package in packages)
    _load(lambda name: f"{name}.".startswith(dotted), run)


def import_late(unused: Mapping[str, Sequence[str]]) -> None:
    """For modules, by name: packages that they import and a run doesn't use. Call before anything imports them."""

    def run(code: CodeType, module: ModuleType) -> None:
        def imports(name: str, names: Sequence[str]) -> Any:
            if name not in unused[module.__name__]:
                return None
            return LateModule(name) if names else Later(lambda: __import__(name))

        run_lazily(code, module, imports)

    _load(unused.__contains__, run)


def make_lazily(classes: str) -> None:
    """For the classes of this module. Call before anything imports it.

    Other modules of its package name them in annotations, which nobody evaluates.
    It does nothing in Python 3.14, which looks up otherwise what annotations name.
    """
    package, _, own = classes.rpartition(".")
    later = dict[str, Later]()

    def run(code: CodeType, module: ModuleType) -> None:
        def imports(name: str, names: Sequence[str]) -> Any:
            if name != package or own not in names:
                return None
            found = __import__(name, fromlist=names)
            beside = {one: getattr(found, one) for one in names}
            return SimpleNamespace(**beside | {own: _Named(beside[own], later)})

        if module.__name__ == classes:
            later.update(run_lazily(code, module, lambda _name, _names: None, classes=True))
            return
        run_lazily(code, module, imports)
        for name, value in [*vars(module).items()]:
            if isinstance(value, _Named):
                setattr(module, name, value.real)

    if sys.version_info < (3, 14):
        _load(lambda name: name.rpartition(".")[0] == package, run)


class _Named:
    """In place of a module with such classes, while one is run that names them."""

    def __init__(self, real: ModuleType, later: Mapping[str, Later]) -> None:
        self.real, self._later = real, later

    def __getattr__(self, name: str) -> Any:
        if name in self._later and name not in vars(self.real):
            return self._later[name]
        return getattr(self.real, name)


def _load(is_for: Callable[[str], bool], run: _Run) -> None:
    sys.meta_path.insert(0, _Finder(is_for, run))


class _Finder:
    """First of `sys.meta_path`: only for what it was made for."""

    def __init__(self, is_for: Callable[[str], bool], run: _Run) -> None:
        self._is_for, self._run = is_for, run

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._is_for(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec and type(spec.loader) is SourceFileLoader:
            spec.loader = _Loader(spec.loader.name, spec.loader.path, self._run)
        return spec


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, run: _Run) -> None:
        super().__init__(name, path)
        self._run = run

    def exec_module(self, module: ModuleType) -> None:
        code = self.get_code(module.__name__)
        assert code is not None
        self._run(code, module)
