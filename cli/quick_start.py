"""quick_start: what a process of the command line leaves for later, so that the first request is made sooner.

Never where a program imports Interlock: when its modules are read and its memory is searched is its own affair.

LangSmith is left out: nothing is traced there (`services/models/tracing.py`), and LangChain reads the whole library,
110 modules, 12 MB, 0.2 s of a start, to ask whether it is on. What LangChain takes from it stands here and says that
it is off; whoever takes anything else gets the library itself, turned off.
"""

import gc
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any, cast


class _NeverRaised(Exception):  # noqa: N818 - in place of a class of another name
    """In place of an error that only the library itself raises, once it is read."""


PACKAGES: Mapping[str, Mapping[str, type]] = {
    "langgraph_sdk": {},
    "requests": {"HTTPError": _NeverRaised, "Response": object},
}
"""Package → what a run takes of it: types, for which they import all they have, 45 modules and 96."""
_OPTIONAL = ("httpx._main", "zstandard")
"""What httpx takes if it is installed, and no run needs: its own command line (click, pygments, rich), a coding."""
_BETWEEN_COLLECTIONS = 1_000
"""Objects. A request is in cycles with its answer, half a megabyte of them late in a run: 20,000 objects between
collections kept 20 MB more after 90 turns, and saved no time that could be measured."""
_reading = RLock()
own_process = False
"""This process is a command line's own; else `begin` does nothing."""


def begin() -> None:
    """Before anything of LangChain's is imported."""
    if not own_process:
        return
    import_lightly()
    leave_tracing_out()
    for name, taken in PACKAGES.items():
        _leave_unread(name, taken)
    _import_httpx()


def import_lightly() -> None:
    """Before anything of pydantic's is imported."""
    if own_process:
        gc.disable()  # imports leave no garbage behind, and looking for it is a seventh of a start
        _build_schemas_late()


def settle() -> None:
    """What a run needs is imported: what there is now stays, and garbage is collected among what comes."""
    if gc.isenabled():
        return
    gc.freeze()
    gc.set_threshold(_BETWEEN_COLLECTIONS, 10, 10)
    gc.enable()


def _build_schemas_late() -> None:
    """Of pydantic's classes, libraries' too: a run uses few, and all of them take 0.3 s of each start."""
    from pydantic import BaseModel

    BaseModel.model_config["defer_build"] = True


def _import_httpx() -> None:
    absent = [name for name in _OPTIONAL if name not in sys.modules]
    sys.modules.update(
        dict.fromkeys(absent, cast("ModuleType", None))
    )  # what Python takes for "not installed"
    import_module("httpx")  # now, as long as they are
    for name in absent:
        del sys.modules[name]


def _leave_unread(name: str, taken: Mapping[str, type]) -> None:
    """The package stands there, and its modules can be imported; whatever else somebody takes from it reads it."""
    spec = find_spec(name)
    if spec and spec.loader and name not in sys.modules:
        sys.modules[name] = package = _unread(name, spec, spec.loader)
        package.__dict__.update(taken)


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


LANGSMITH = "langsmith"


class Untraced:
    """In place of a traced run, of the client that sends it, and of an agent's address; nobody makes one."""


def _tracing_context() -> dict[str, Any]:
    """`get_tracing_context`."""
    fields = ("parent", "project_name", "tags", "metadata", "client", "replicas", "distributed_parent_id")
    return {**dict.fromkeys(fields), "enabled": False}


def _off(*_: Any, **__: Any) -> bool:
    return False


TAKEN: dict[str, dict[str, Any]] = {
    LANGSMITH: {
        "RunTree": Untraced,
        "Client": Untraced,
        "get_tracing_context": _tracing_context,
        "configure": _off,
    },
    f"{LANGSMITH}.run_trees": {"RunTree": Untraced},
    f"{LANGSMITH}.run_helpers": {"get_tracing_context": _tracing_context, "_set_tracing_context": _off},
    f"{LANGSMITH}.utils": {"tracing_is_enabled": _off},
    f"{LANGSMITH}.address": {"AgentAddress": Untraced},
}
"""What LangChain and LangGraph take where nothing is traced."""


def leave_tracing_out() -> None:
    """Before anything of LangChain's is imported."""
    spec = find_spec(LANGSMITH)
    if spec is None or LANGSMITH in sys.modules:
        return
    for name, taken in TAKEN.items():
        sys.modules[name] = module = _StandIn(name, taken)
        _, _, child = name.rpartition(".")
        if name != LANGSMITH:
            setattr(sys.modules[LANGSMITH], child, module)
    package = sys.modules[LANGSMITH]
    package.__spec__, package.__path__ = spec, [*(spec.submodule_search_locations or ())]


def is_left_out() -> bool:
    """Nobody has taken anything else so far."""
    return isinstance(sys.modules.get(LANGSMITH), _StandIn)


class _StandIn(ModuleType):
    def __init__(self, name: str, taken: dict[str, Callable[..., Any]]) -> None:
        super().__init__(name)
        self.__dict__.update(taken)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if is_left_out():
            for known in [n for n in sys.modules if n.partition(".")[0] == LANGSMITH]:
                del sys.modules[known]
            import_module(LANGSMITH).configure(enabled=False)
        return getattr(import_module(self.__name__), name)
