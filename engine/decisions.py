"""decisions: what people say, checked and written before anything moves (`engine.md` 14)."""

import getpass
import json
import socket
import time
from collections.abc import Sequence
from typing import cast

from pydantic import ValidationError

from interlock.engine.approvals import decide, not_waiting
from interlock.engine.listing import Request, waiting_requests
from interlock.engine.options import Decision
from interlock.engine.store import Store
from interlock.services.sqlite import explained
from interlock.state.calls import Answer, Choice
from interlock.state.errors import UserError
from interlock.state.text import clean, clean_json
from interlock.tools import TOOLS


def record_decisions(store: Store, run: str, decisions: Sequence[Decision]) -> None:
    """Write each answer, power-safe. Every decision is checked before the first is written.

    Raises `UserError` for a request that doesn't wait, a choice it doesn't take, or arguments that can't be used.
    """
    if not decisions:
        return
    waiting = {request.id: request for request in waiting_requests(store.home, run)}
    with explained(store.path):
        conn = store.connect("FULL")
        try:
            for decision in decisions:
                if decision.approval != "all" and decision.approval not in waiting:
                    raise not_waiting(conn, run, decision.approval)
            chosen = [(name, _answer(waiting, name, d)) for d in decisions for name in _named(waiting, d)]
            for name, answer in chosen:
                decide(conn, run, name, answer)
        finally:
            conn.close()


def _named(waiting: dict[str, Request], decision: Decision) -> list[str]:
    """`all` means every permission that waits; questions and unknown outcomes are answered one by one."""
    if decision.approval != "all":
        return [decision.approval]
    return [name for name, request in waiting.items() if request.fields["kind"] == "approval"]


def _answer(waiting: dict[str, Request], name: str, decision: Decision) -> Answer:
    request = waiting[name].fields
    if decision.choice not in request["choices"]:
        raise UserError(f"Request {name!r} takes {', '.join(request['choices'])}; got {decision.choice!r}.")
    args = None
    if decision.choice == "modify":
        args = json.loads(json.dumps(clean_json(dict(decision.args or {}))))
        _check_arguments(name, request["tool_name"], args)
    return Answer(
        choice=cast(Choice, decision.choice),
        feedback=clean(decision.feedback) if decision.feedback else None,
        args=args,
        text=clean(decision.text) if decision.text else None,
        by=f"{getpass.getuser()}@{socket.gethostname()}",
        at=time.time(),
    )


def _check_arguments(name: str, tool: str, args: object) -> None:
    """A person's mistake is told to the person, not to the model."""
    found = TOOLS.get(tool)
    if found is None:
        return
    try:
        found.args.model_validate(args)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "arguments"
        raise UserError(f"The arguments for {name!r} don't fit {tool!r}: {place}: {first['msg']}.") from error
