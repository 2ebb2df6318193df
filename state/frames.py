"""frames: runs a function so that the frames of what it calls have room."""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_T = TypeVar("_T")
_ROOM = 40_000
"""In words of 8 bytes; what isn't used takes no memory."""


def reserve_stack_space(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Python keeps frames in pieces of 16 KB, and gives one back to the kernel when the last frame in it returns.

    Calls at the end of a piece take 10 µs each for that, and a start made 4,700. A frame that claims more than it needs
    brings a larger piece, which stays until it returns.
    """

    def roomy(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    roomy.__code__ = roomy.__code__.replace(co_stacksize=_ROOM)
    return roomy
