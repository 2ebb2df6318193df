"""Calls take no memory from the kernel and give none back, however deep they are made."""

from resource import RUSAGE_SELF, getrusage

from interlock.state.frames import with_frame_room

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
    roomy = with_frame_room(_faults)
    assert max(map(roomy, range(200))) < _CALLS / 2


def test_a_function_with_room_takes_and_gives_what_it_does_otherwise() -> None:
    assert with_frame_room(dict[str, int])(a=1) == {"a": 1} and with_frame_room(max)(2, 1) == 2
