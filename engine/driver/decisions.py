"""decisions: checks what people decide on requests that wait, and records it before the run resumes."""

import json
import socket
from collections.abc import Sequence
from contextlib import closing

from pydantic import ValidationError

from interlock.engine.options import Decision
from interlock.engine.read import Request, check_edited_arguments, list_waiting_requests
from interlock.engine.store import Store, explain_store_errors
from interlock.engine.store.approvals import (
    cancel_run_family,
    current_account_name,
    enqueue_decided_run,
    is_run_ended_by_cancel,
    record_decision,
    request_not_waiting_error,
)
from interlock.engine.store.queries import is_call_request_id, parse_request_id
from interlock.state.calls import Answer
from interlock.state.clock import unix_time
from interlock.state.errors import UserError
from interlock.state.text import clean_json, first_validation_error, replace_surrogates
from interlock.tools.table import TOOLS


def record_decisions(
    store: Store, run: str, decisions: Sequence[Decision], decided_by: str = "", door: str = "program"
) -> None:
    """Persist each answer, power-safe. Every decision is checked before the first is written.

    `decided_by`: who decided; empty: this user. `door`: where, unless the decision says.

    Raises `UserError` for a request that isn't pending, a choice it doesn't offer, or invalid arguments.
    """
    if not decisions:
        return
    waiting = {request.id: request for request in list_waiting_requests(store.home, run)}
    with explain_store_errors(store.path), closing(store.connect("FULL")) as conn:
        for decision in decisions:
            if decision.approval != "all" and decision.approval not in waiting:
                raise request_not_waiting_error(conn, run, decision.approval)
        named = [(name, d) for d in decisions for name in _expand_all_to_approval_ids(waiting, d)]
        chosen = [
            (name, _check_and_make_answer(waiting, name, d, decided_by, door))
            for name, d in [*named, *_decisions_on_cancelled_batches(waiting, named)]
        ]
        with conn.transaction():
            for name, answer in chosen:
                record_decision(conn, run, name, answer)
            if any(
                d.choice == "cancel" and is_run_ended_by_cancel(waiting[name].fields["choices"])
                for name, d in named
            ):
                return cancel_run_family(conn, run)
            enqueue_decided_run(conn, run)


def is_run_cancelled_by_decisions(store: Store, run: str, decisions: Sequence[Decision]) -> bool:
    """Whether one of these decisions ends the run itself."""
    if all(decision.choice != "cancel" for decision in decisions):
        return False
    waiting = {request.id: request for request in list_waiting_requests(store.home, run)}
    named = [
        name for d in decisions if d.choice == "cancel" for name in _expand_all_to_approval_ids(waiting, d)
    ]
    return any(is_run_ended_by_cancel(waiting[name].fields["choices"]) for name in named if name in waiting)


def _expand_all_to_approval_ids(waiting: dict[str, Request], decision: Decision) -> list[str]:
    """Request ids; `all` means every pending permission, but no question or unknown outcome unless that is all."""
    if decision.approval != "all":
        return [decision.approval]
    found = [name for name, request in waiting.items() if request.fields["kind"] == "approval"]
    return found or ([*waiting] if decision.choice == "cancel" else [])


def _decisions_on_cancelled_batches(
    waiting: dict[str, Request], named: Sequence[tuple[str, Decision]]
) -> list[tuple[str, Decision]]:
    """A cancelled call takes the rest of its batch along: nobody has to be asked about it again."""
    batches = {parse_request_id(name)[0]: decision for name, decision in named if decision.choice == "cancel"}
    if not batches:
        return []
    batches.pop(0, None)  # requests of hooks: in no batch
    decided = {name for name, _ in named}
    return [
        (name, batches[batch])
        for name, request in waiting.items()
        if (batch := parse_request_id(name)[0]) in batches
        and name not in decided
        and "cancel" in request.fields["choices"]
    ]


UNKNOWN_OUTCOME_CHOICES = {"redo": "proceed_once", "skip": "reject"}
"""What is said of an unknown outcome, and the choice that acts on it: a call that was to be left must not run again."""


def _check_and_make_answer(
    waiting: dict[str, Request], request_id: str, decision: Decision, decided_by: str, door: str
) -> Answer:
    request = waiting[request_id].fields
    if decision.choice not in (*request["choices"], "cancel"):
        raise UserError(
            f"Request {request_id!r} takes {', '.join(request['choices'])}; got {decision.choice!r}."
        )
    means = UNKNOWN_OUTCOME_CHOICES.get(decision.text or "") if request["kind"] == "outcome" else None
    if means not in (None, decision.choice):
        raise UserError(
            f"Request {request_id!r} takes {decision.text!r} with the choice {means!r}; got {decision.choice!r}."
        )
    args = None
    if not is_call_request_id(request_id) and (schema := (request["questions"] or [{}])[0].get("schema")):
        from interlock.graphs.foreign_requests import check_answer_fits_schema

        check_answer_fits_schema(request_id, decision.text or "", schema)
    if decision.choice == "modify":
        args = json.loads(json.dumps(clean_json(dict(decision.args or {}))))
        check_edited_arguments(request, args)
        if is_call_request_id(request_id):  # a node's tools may have the names of ours
            _check_arguments(request_id, request["tool_name"], args)
    return Answer(
        choice=decision.choice,
        feedback=replace_surrogates(decision.feedback) if decision.feedback else None,
        args=args,
        text=replace_surrogates(decision.text) if decision.text else None,
        by=replace_surrogates(decided_by) or f"{current_account_name()}@{socket.gethostname()}",
        door=decision.door or door,
        at=unix_time(),
    )


def _check_arguments(request_id: str, tool: str, args: object) -> None:
    """Report a person's mistake to the person, not to the model."""
    found = TOOLS.get(tool)
    if found is None:
        return
    try:
        found.args.model_validate(args)
    except ValidationError as error:
        place, what = first_validation_error(error)
        place = place or "arguments"
        raise UserError(f"The arguments for {request_id!r} don't fit {tool!r}: {place}: {what}.") from error
