"""no_tracing: stands in for LangSmith in the command line, where nothing is traced (`services/models/tracing.py`).

LangChain reads the whole library to ask whether it is on: 110 modules, 12 MB, 0.2 s of a start. What LangChain takes
from it stands here and says that it is off; whoever takes anything else gets the library itself, turned off.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

NAME = "langsmith"


class Untraced:
    """In place of a traced run, of the client that sends it, and of an agent's address; nobody makes one."""


def _context() -> dict[str, Any]:
    """`get_tracing_context`."""
    fields = ("parent", "project_name", "tags", "metadata", "client", "replicas", "distributed_parent_id")
    return {**dict.fromkeys(fields), "enabled": False}


def _off(*_: Any, **__: Any) -> bool:
    return False


TAKEN: dict[str, dict[str, Any]] = {
    NAME: {"RunTree": Untraced, "Client": Untraced, "get_tracing_context": _context, "configure": _off},
    f"{NAME}.run_trees": {"RunTree": Untraced},
    f"{NAME}.run_helpers": {"get_tracing_context": _context, "_set_tracing_context": _off},
    f"{NAME}.utils": {"tracing_is_enabled": _off},
    f"{NAME}.address": {"AgentAddress": Untraced},
}
"""What LangChain and LangGraph take where nothing is traced."""


def stand_in() -> None:
    """Before anything of LangChain's is imported."""
    spec = find_spec(NAME)
    if spec is None or NAME in sys.modules:
        return
    for name, taken in TAKEN.items():
        sys.modules[name] = module = _StandIn(name, taken)
        _, _, child = name.rpartition(".")
        if name != NAME:
            setattr(sys.modules[NAME], child, module)
    package = sys.modules[NAME]
    package.__spec__, package.__path__ = spec, [*(spec.submodule_search_locations or ())]


def stands() -> bool:
    """Nobody has taken anything else so far."""
    return isinstance(sys.modules.get(NAME), _StandIn)


class _StandIn(ModuleType):
    def __init__(self, name: str, taken: dict[str, Callable[..., Any]]) -> None:
        super().__init__(name)
        self.__dict__.update(taken)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if stands():
            for known in [n for n in sys.modules if n.partition(".")[0] == NAME]:
                del sys.modules[known]
            import_module(NAME).configure(enabled=False)
        return getattr(import_module(self.__name__), name)
