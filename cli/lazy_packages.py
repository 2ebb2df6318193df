"""lazy_packages: what other packages import or make, and a run doesn't use, comes once it is asked for.

Three ways: of a package's `__init__`, what its modules have by name (`openai.types` alone would import 470 modules, of
which a chat needs 64); of a module, what it takes from other packages; of a module, its classes (`google.genai.types`
has a thousand, of which a chat needs a quarter).
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from interlock.cli.lazy_names import LateModule, Later, run_lazily

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
