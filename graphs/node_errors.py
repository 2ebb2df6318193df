"""node_errors: errors of user code: which node failed, at which of their lines, and where their threads are."""

import sys
import sysconfig
import traceback
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from langgraph.errors import GraphDrained, NodeTimeoutError

from interlock.graphs.foreign_callbacks import (
    ExitError,
    redirect_stdout_and_catch_exits,
)
from interlock.graphs.stored_channels import node_named_by_error
from interlock.state.errors import (
    InterlockError,
    RunError,
    exception_line,
)


class NodeError(RunError):
    """A node of somebody's graph raised, or what stands between its nodes: a reducer, a type of its state."""

    kind = "node"

    @classmethod
    def from_exception(cls, error: Exception, node: str = "") -> "NodeError":
        """`node`: the one that failed, if that is known."""
        blamed = _find_failed_node(error, node)
        return cls(
            node_error_line(blamed, (error.__cause__ or error) if isinstance(error, ExitError) else error)
        )


@contextmanager
def convert_node_errors_and_redirect_stdout() -> Generator[None]:
    """Within it, what a node of a user's workflow raises is a `NodeError`, and an exit of it, too."""
    try:
        with redirect_stdout_and_catch_exits():
            yield
    except (InterlockError, GraphDrained):
        raise
    except Exception as error:
        if not isinstance(error, ExitError) and not _is_user_error(error):
            raise
        raise NodeError.from_exception(error, node_named_by_error(error)) from error


_FRAMES = 3
"""Of their own code, in an error's line."""


_STDLIB = sysconfig.get_path("stdlib")


_ENGINES = frozenset({"langgraph", "langchain_core", "pydantic"})


def _find_failed_node(error: Exception, known_node: str) -> str:
    """The node that failed, or couldn't be given its state; empty: the graph did, between its nodes."""
    return error.node if isinstance(error, NodeTimeoutError) else known_node or node_named_by_error(error)


def node_error_line(node: str, error: BaseException) -> str:
    """`plan: ValueError: no steps (agent.py:12 in plan < agent.py:40 in split)`: theirs, so no bug of ours."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [f for f in frames if not _is_library_or_engine_file(f.filename)] or [
        f for f in frames[-1:] if not _is_engine_file(f.filename)
    ]
    shown = " > ".join(f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in theirs[-_FRAMES:])
    told = exception_line(error, 1_000)
    if told == type(error).__name__ and isinstance(error, TimeoutError):
        told = f"{told}: {_SLOW}"
    return f"{f'Node {node!r}' if node else 'The graph'} failed: {told}{f' ({shown})' if shown else ''}"


_SLOW = "it took longer than it may (its step_timeout, if it sets one)"


def _is_engine_file(file: str) -> bool:
    """Whether it is LangGraph, what it stands on, or Python: its lines say nothing to who wrote the graph."""
    parts = Path(file).parts
    python = file.startswith(("<frozen", _STDLIB)) and "site-packages" not in parts
    return python or not _ENGINES.isdisjoint(parts)


def _is_library_or_engine_file(file: str) -> bool:
    """Whether it is one of the libraries that call nodes, or of ours."""
    parts = Path(file).parts
    return "site-packages" in parts or file.startswith(("<frozen", _STDLIB)) or _OURS in Path(file).parents


_OURS = Path(__file__).parents[1]


def thread_positions_in_user_code() -> list[str]:
    """Return where threads of this process are in somebody's own code: `look_up (agent.py:6)`."""
    found: list[str] = []
    for stack in _thread_stacks():
        theirs = (
            f
            for f in stack
            if f.f_code.co_name != "<module>" and not _is_library_or_engine_file(f.f_code.co_filename)
        )
        if at := next(theirs, None):
            found.append(f"{at.f_code.co_name} ({Path(at.f_code.co_filename).name}:{at.f_lineno})")
    return [*dict.fromkeys(found)]


def _thread_stacks() -> Iterable[Iterator[FrameType]]:
    """The frames of each thread, the innermost first."""

    def outwards(frame: FrameType | None) -> Iterator[FrameType]:
        while frame:
            yield frame
            frame = frame.f_back

    return map(outwards, sys._current_frames().values())  # pyright: ignore[reportPrivateUsage] - Python has no other way


def _is_user_error(error: Exception) -> bool:
    """Whether a line of theirs raised it, or called the library that did."""
    files = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    told = [file for file in files if _OURS in file.parents or not _is_library_or_engine_file(str(file))]
    return bool(told) and _OURS not in told[-1].parents
