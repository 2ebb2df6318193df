"""Calls take no memory from the kernel and give none back, however deep they are made."""

from resource import RUSAGE_SELF, getrusage

from interlock.state.frames import reserve_stack_space

_CALLS = 1_000


def _faults(depth: int) -> int:
    """Page faults of a function's calls in a frame that is so deep."""
    if depth:
        return _faults(depth - 1)
    before = getrusage(RUSAGE_SELF).ru_minflt
    for number in range(_CALLS):
        _leaf(number, number, number, number, number, number)
    return getrusage(RUSAGE_SELF).ru_minflt - before


def _leaf(*numbers: int) -> int:
    return len(numbers)


def test_calls_map_no_memory_at_any_depth() -> None:
    roomy = reserve_stack_space(_faults)
    assert max(map(roomy, range(200))) < _CALLS / 2


def test_a_function_with_room_takes_and_gives_what_it_does_otherwise() -> None:
    assert reserve_stack_space(dict[str, int])(a=1) == {"a": 1} and reserve_stack_space(max)(2, 1) == 2
