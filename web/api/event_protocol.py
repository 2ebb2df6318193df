"""event_protocol: the second event protocol: a graph's own events as the messages of `/threads/{id}/stream/events`."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

CHANNELS = ("values", "updates", "checkpoints", "messages", "tools", "custom", "lifecycle", "input", "tasks")


def to_protocol_events(
    method: str, params: Mapping[str, Any], known_interrupts: set[str]
) -> Iterator[dict[str, Any]]:
    """What a program is sent of one event of a graph: `method` and `params`, without numbers.

    `known_interrupts`: ids of the interrupts that it was told of. Graphs around one that asks have the same interrupt.
    """
    data: Any = params.get("data")
    namespace: list[str] = params.get("namespace") or []
    if method == "values":
        found = [*(params.get("interrupts") or ()), *(_field_or_none(data, "__interrupt__") or ())]
        for one in found:
            if one["id"] not in known_interrupts:
                known_interrupts.add(one["id"])
                yield input_requested_event(one, namespace)
    if method == "lifecycle":  # of a graph inside: its own namespace is in the data
        namespace = _field_or_none(data, "namespace") or []
        if not namespace:
            return
        if data.get("event") != "started":
            data = {key: value for key, value in data.items() if key != "namespace"}
            data["graph_name"] = namespace[-1].partition(":")[0]
    shaped = _protocol_event_data(method, data)
    if method != "messages" or shaped is not None:
        yield build_protocol_event(method.partition(":")[0], shaped, namespace, params.get("node"))


def _protocol_event_data(method: str, data: Any) -> Any:
    """The data of an event as programs expect it; None for a whole message: those who stream get it in pieces."""
    kind, _, name = method.partition(":")
    if kind == "messages":
        piece = cast(Any, data[0] if isinstance(data, list) else data)
        return piece if _field_or_none(piece, "event") else None
    if kind == "custom":
        return (
            {"name": name, "payload": data}
            if name
            else data
            if _field_or_none(data, "name")
            else {"payload": data}
        )
    return _strip_empty_message_fields(strip_interrupts(data)) if kind == "values" else data


def _field_or_none(data: Any, name: str) -> Any:
    return cast("dict[str, Any]", data).get(name) if isinstance(data, dict) else None


def strip_interrupts(state: Any) -> Any:
    """Return a state without what waits in it."""
    if not isinstance(state, dict):
        return state
    return {key: value for key, value in cast("dict[str, Any]", state).items() if key != "__interrupt__"}


def _strip_empty_message_fields(data: Any) -> Any:
    """Return a state with its messages, which are without what is empty in them."""
    if isinstance(data, list):
        return [_strip_empty_message_fields(one) for one in cast("list[Any]", data)]
    if not isinstance(data, dict):
        return data
    values = cast("dict[str, Any]", data)
    if "content" in values and "type" in values and "additional_kwargs" in values:
        return {key: one for key, one in values.items() if one or key not in _EMPTY}
    return {key: _strip_empty_message_fields(one) for key, one in values.items()}


_EMPTY = frozenset(
    {
        *("additional_kwargs", "response_metadata", "name"),
        *("tool_calls", "invalid_tool_calls", "usage_metadata"),
    }
)


def build_protocol_event(
    method: str, data: Any, namespace: Sequence[str] = (), node: Any = None
) -> dict[str, Any]:
    more = {"node": node} if isinstance(node, str) and node else {}
    params = {"namespace": [*namespace], "timestamp": int(time.time() * 1000), "data": data, **more}
    return {"type": "event", "method": method, "params": params}


def input_requested_event(interrupt: Mapping[str, Any], namespace: Sequence[str]) -> dict[str, Any]:
    value = interrupt.get("value")
    schema = interrupt.get("response_schema")
    more = {"response_schema": schema} if schema else {}
    data = {"interrupt_id": interrupt["id"], "payload": value, **more}
    return build_protocol_event("input.requested", data, namespace)


def matches_subscription(subscription: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Return whether a subscription (channels, namespaces, depth, since) wants a numbered event."""
    method, params, since = event["method"], event["params"], subscription.get("since")
    if isinstance(since, int) and not isinstance(since, bool) and event["seq"] <= since:
        return False
    name = params["data"].get("name") if method == "custom" else None
    channel, channels = "input" if method == "input.requested" else method, subscription["channels"]
    if channel not in channels and not (name and f"custom:{name}" in channels):
        return False
    there: list[str] = params["namespace"]
    namespaces: Any = subscription.get("namespaces")
    return not namespaces or any(
        _is_in_namespace(there, prefix, subscription.get("depth")) for prefix in namespaces
    )


def _is_in_namespace(namespace: Sequence[str], prefix: Sequence[str], depth: Any) -> bool:
    limited = isinstance(depth, int) and not isinstance(depth, bool)
    if len(prefix) > len(namespace) or (limited and len(namespace) - len(prefix) > depth):
        return False
    pairs = zip(namespace, prefix, strict=False)
    return all(part == wanted or part.partition(":")[0] == wanted for part, wanted in pairs)
