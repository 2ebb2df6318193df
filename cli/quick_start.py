"""quick_start: what a process of the command line leaves for later, so that the first request is made sooner.

Never where a program imports Interlock: when its modules are read and its memory is searched is its own affair.
"""

import gc
import sys
from collections.abc import Callable
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any

from interlock.cli import no_tracing

PACKAGES = ("langgraph_sdk",)
"""They import all they have for the one type that a run takes: 45 modules, for the type of a user."""
_BETWEEN_COLLECTIONS = 20_000
"""Objects; Python's 700 collect several times a turn, and find next to nothing."""
_reading = RLock()


def begin() -> None:
    """Before anything of LangChain's is imported."""
    gc.disable()  # imports leave no garbage behind, and looking for it is a seventh of a start
    _build_schemas_late()
    no_tracing.stand_in()
    for name in PACKAGES:
        _leave_unread(name)


def settle() -> None:
    """The run is set up: what there is now stays, and garbage is collected among what comes."""
    if gc.isenabled():
        return
    gc.freeze()
    gc.set_threshold(_BETWEEN_COLLECTIONS, 10, 10)
    gc.enable()


def _build_schemas_late() -> None:
    """Of pydantic's classes, libraries' too: a run uses few, and all of them take 0.3 s of each start."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True


def _leave_unread(name: str) -> None:
    """The package stands there, and its modules can be imported; whatever else somebody takes from it reads it."""
    spec = find_spec(name)
    if spec and spec.loader and name not in sys.modules:
        sys.modules[name] = _unread(name, spec, spec.loader)


def _unread(name: str, spec: ModuleSpec, loader: Loader) -> "_Unread":
    package = _Unread(name, loader.exec_module)
    package.__spec__, package.__loader__, package.__package__ = spec, loader, name
    package.__file__, package.__path__ = spec.origin, [*(spec.submodule_search_locations or ())]
    return package


class _Unread(ModuleType):
    def __init__(self, name: str, read: Callable[[ModuleType], None]) -> None:
        super().__init__(name)
        self._read: Callable[[ModuleType], None] | None = read

    def __getattr__(self, name: str) -> Any:
        with _reading:  # whoever comes while another thread reads it waits
            read, self._read = self._read, None
            if read is not None:
                read(self)
        return super().__getattribute__(name)
