"""quick_start: defers imports and other work of a command-line process, so that its first request is made sooner.

Does nothing in a program that imports Interlock: when to import and collect garbage is that program's affair.

LangSmith isn't imported: nothing is traced (`services/models/names.py`), yet LangChain would import all of it to ask
whether tracing is on, which takes 15 % of a start's CPU time and 15 MB. Stand-ins for what LangChain uses of it say
that tracing is off; taking anything else imports the library itself, turned off. No other package has a stand-in: one
stays only if it saves 5 % of a start. What packages import or make beyond what a run uses comes when it is asked for
(`lazy_packages.py`).
"""

import dataclasses
import gc
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from interlock.cli.lazy_packages import import_late, import_lazily, make_lazily
from interlock.services.packages import why_off

_BETWEEN_COLLECTIONS = 1_000
"""In objects. A request and its response form cycles, half a megabyte of them late in a run: with 20,000 objects
between collections, 90 turns kept 20 MB more and saved no measurable time."""
_LAZY = (
    *("openai.types", "langchain_google_genai", "httpx", "httpx2", "httpcore2", "langgraph_sdk"),
    *("charset_normalizer", "tiktoken", "pathspec"),
)
"""Packages that import much more than a run uses: together a tenth of a start and 11 MB, none alone more than 5 %."""
_PARSERS = tuple(f"langchain_core.output_parsers{name}" for name in ("", ".base", ".openai_tools"))
_TRACERS = tuple(
    f"langchain_core.tracers.{name}" for name in ("event_stream", "log_stream", "root_listeners")
)
_PROTOCOL = ("langchain_protocol.protocol",)
_UNUSED = {
    "langchain_core.utils.utils": ("requests",),
    "langchain_core.runnables.base": _TRACERS,
    "langchain_core.messages.block_translators.google_genai": ("filetype",),
    "langchain_core.language_models.chat_models": (*_PARSERS, *_PROTOCOL),
    "langchain_core.language_models._compat_bridge": _PROTOCOL,
    "langgraph.stream.transformers": _PROTOCOL,
    "langchain_google_genai.chat_models": ("filetype", *_PARSERS),
    "langchain_google_genai._image_utils": ("filetype", "requests"),
}
"""Module → what it imports for what no run does; together 5 % of a start and 3 MB."""
_CLASSES = "google.genai.types"
"""Making all of its classes at once takes 8 % of a start and 4 MB."""
own_process = False
"""Whether this process is a command line's own; otherwise `begin` does nothing."""


def begin() -> None:
    """Call before importing anything of LangChain."""
    if not own_process:
        return
    import_lightly()
    leave_tracing_out()
    import_lazily(*_LAZY)
    import_late(_UNUSED)
    if not why_off("google-genai"):  # others may make their classes in another way
        make_lazily(_CLASSES)


def import_lightly() -> None:
    """Call before importing anything of pydantic."""
    start_lightly()
    if own_process:
        _build_schemas_late()


def start_lightly() -> None:
    """Call before importing anything with data classes."""
    if own_process:
        gc.disable()  # imports leave no garbage behind, and looking for it takes a fifth of a start's CPU time
        _compile_late()


def settle() -> None:
    """Call once a run's imports are done: freezes the objects made so far and turns garbage collection on.

    Then the next start may be prepared, too.
    """
    if gc.isenabled():
        return
    gc.freeze()
    gc.set_threshold(_BETWEEN_COLLECTIONS, 10, 10)
    gc.enable()
    if own_process:
        from interlock.cli.keep_warm import keep

        keep()


def _build_schemas_late() -> None:
    """Defer the schemas of all pydantic classes: a run uses few, and building all takes 9 % of a start's CPU time."""
    from pydantic import BaseModel
    from pydantic._internal import _model_construction

    made: Any = _model_construction
    if not isinstance(made.set_model_mocks, partial):
        made.set_model_mocks = partial(_put_off, made.set_model_mocks)
    BaseModel.model_config["defer_build"] = True


def _put_off(mock: Callable[..., None], cls: Any, *given: Any) -> None:
    """Make a class without its schema, and with a signature all the same."""
    mock(cls, *given)
    cls.__signature__ = _Signature()


class _Signature:
    """A class's signature, made with its schema: LangChain finds by it what it adds to a tool's arguments."""

    def __get__(self, instance: object, owner: Any) -> Any:
        if instance is None and owner.model_rebuild(raise_errors=False):
            return owner.__signature__
        raise AttributeError("__signature__")


def _compile_late() -> None:
    """Compile a data class's method when it is first asked for: those of the 280 classes that a run has by its first
    request took 0.1 s of a start. From 3.13 on, Python has no such function, and compiles faster.
    """
    create: Callable[..., Any] | None = getattr(dataclasses, "_create_fn", None)
    if create is not None and not isinstance(create, partial):
        dataclasses._create_fn = partial(_Late, create)  # pyright: ignore[reportAttributeAccessIssue]


class _Late:
    """Stands where a data class has a method, until that is asked for."""

    def __init__(self, create: Callable[..., Any], name: str, *how: Any, **options: Any) -> None:
        self.__name__, self._made = name, cache(partial(create, name, *how, **options))

    def __get__(self, instance: object, owner: type) -> Any:
        made = self._made()
        for one in owner.__mro__:
            if vars(one).get(self.__name__) is self:
                made.__qualname__ = f"{one.__qualname__}.{self.__name__}"
                setattr(one, self.__name__, made)
        return made.__get__(instance, owner)

    def __call__(self, *given: Any) -> Any:
        return self._made()(*given)  # a `__repr__` is wrapped before it is set


LANGSMITH = "langsmith"


class Untraced:
    """Stands in for a traced run, its client and an agent's address; never instantiated."""


def _tracing_context() -> dict[str, Any]:
    """Stands in for `get_tracing_context`."""
    fields = ("parent", "project_name", "tags", "metadata", "client", "replicas", "distributed_parent_id")
    return {**dict.fromkeys(fields), "enabled": False}


def _off(*_: Any, **__: Any) -> bool:
    return False


def _no_run(*_: Any, **__: Any) -> None:
    """Stands in for `get_current_run_tree`: nothing is traced."""


TAKEN: dict[str, dict[str, Any]] = {
    LANGSMITH: {
        "RunTree": Untraced,
        "Client": Untraced,
        "get_tracing_context": _tracing_context,
        "configure": _off,
    },
    f"{LANGSMITH}.run_trees": {"RunTree": Untraced},
    f"{LANGSMITH}.run_helpers": {
        "get_tracing_context": _tracing_context,
        "_set_tracing_context": _off,
        "get_current_run_tree": _no_run,
    },
    f"{LANGSMITH}.utils": {"tracing_is_enabled": _off},
    f"{LANGSMITH}.address": {"AgentAddress": Untraced},
}
"""What LangChain and LangGraph use when nothing is traced."""


def leave_tracing_out() -> None:
    """Call before importing anything of LangChain."""
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
    """Whether LangSmith is still a stand-in."""
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
