"""request_ids: what the id of a request says: where in the run it was asked, and by whom."""


def place_of(name: str) -> tuple[int, int]:
    """Batch and call from an id like `k3m9x2pa-2.1`, for sorting in call order instead of the order of asking.

    Requests from hooks, like `k3m9x2pa-h1`, come first; those that nodes ask themselves are like `k3m9x2pa-q1`.
    """
    place = name.rpartition("-")[2]
    if place.startswith(("h", "q")):
        return 0, int(place[1:])
    batch, call = place.split(".")[:2]
    return int(batch), int(call)


def is_about_call(name: str) -> bool:
    """Return whether the request with this id is about one of the model's calls, not asked by a node."""
    return not name.rpartition("-")[2].startswith("q")
