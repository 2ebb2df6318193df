"""foreign_interrupts: what `interrupt` returns in a foreign graph: the answer to this question only.

LangGraph hands out a task's answers by order. Parallel calls may ask in another order after a restart, so an answer
would reach a question that nobody saw. Here a question is named by the task that asks, the tool call and the whole
payload, and its answer is read from the row of that name (`docs/internals.md#answers-fit-their-question`).
"""

import hashlib
import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NoReturn, cast

from langgraph.errors import GraphInterrupt
from langgraph.types import Interrupt
from pydantic import ConfigDict, TypeAdapter

from interlock.graphs.foreign_requests import (
    requests_from_interrupt,
    resume_value_from_answers,
    to_json_value,
)
from interlock.graphs.langgraph_internals import (
    current_namespace_and_scratchpad,
    langgraph_interrupt_id,
    validate_answer,
)
from interlock.graphs.stored_channels import is_interrupt_id
from interlock.state.calls import Answer, ApprovalRequest
from interlock.state.deps import Deps

TOOL_CALL: ContextVar[str] = ContextVar("id of the tool call that runs", default="")
_RAISED = "raised"
"""Stands for the tool call of a question that was raised as an exception."""


@dataclass
class _Execution:
    """One execution of a task, from the start of its node."""

    marker: Any = None
    answers_given: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    """Question → the last of its answers that was given, and how often."""
    raised: Counter[str] = field(default_factory=Counter[str])
    """Ids of the interrupts that were raised."""
    earlier: set[int] = field(default_factory=set[int])
    """Answers that were given, of those that an earlier version stored by their order."""


class NodeInterrupts:
    """What the nodes of one drive ask."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._one = threading.Lock()  # nodes without `async` ask from threads
        self._executions: dict[str, _Execution] = {}

    def reset_task(self, task: str) -> None:
        """Forget what the task was given: its node starts again, and asks from the first question."""
        with self._one:
            self._executions.pop(task, None)

    def get_answer_or_interrupt(self, value: Any, response_schema: Any) -> Any:
        """Return a person's answer. Raises `GraphInterrupt` where there is none yet."""
        namespace, marker = current_namespace_and_scratchpad()
        schema, adapter = _schema_and_adapter(response_schema)
        call = TOOL_CALL.get()
        with self._one:
            node, _, task = namespace.rpartition("|")[2].rpartition(":")
            execution = self._executions.setdefault(task, _Execution())
            if execution.marker is not marker:
                execution = self._executions[task] = _Execution(marker)
            asked = f"{call}\n{_stable_payload_text([value, schema])}"
            number = self._next_answer_number(execution, task, call, asked)
            item = Interrupt(value, _hash_texts(task, asked, str(number)), response_schema=schema)
            requests = requests_from_interrupt(item, node, _request_key_prefix(task, call))
            found = self._find_answer(requests)
            if found is None:
                found = self._find_earlier_version_answer(execution, namespace, node, item)
            if found is None:
                self._write_requests_and_interrupt(
                    execution, item, requests, f"interrupt:{_request_key_prefix(task, call)}"
                )
            last, times = execution.answers_given.get(asked, (-1, 0))
            execution.answers_given[asked] = (number, times + 1 if number == last else 1)
        return validate_answer(adapter, found[0]) if adapter else found[0]

    def _next_answer_number(self, execution: _Execution, task: str, call: str, asked: str) -> int:
        """How many answers this very question had before in the execution: a loop asks the same again.

        Calls that asked it at the same time share one answer, as nothing tells them apart.
        """
        last, times = execution.answers_given.get(asked, (-1, 0))
        if last >= 0:
            key = f"{_request_key_prefix(task, call)}{_hash_texts(task, asked, str(last))}:0"
            request = self._deps.approvals.find_request(f"interrupt:{key}")
            if request is not None and times < request.alike:
                return last
        return last + 1

    def _find_answer(self, requests: Iterable[ApprovalRequest]) -> tuple[Any] | None:
        """The value of an answer, in a tuple; None: not all of the requests have one."""
        pairs = [(request, self._deps.approvals.find_answer(request.key)) for request in requests]
        if not all(answer for _, answer in pairs):
            return None
        return (resume_value_from_answers(cast("list[tuple[ApprovalRequest, Answer]]", pairs)),)

    def _find_earlier_version_answer(
        self, execution: _Execution, namespace: str, node: str, item: Any
    ) -> tuple[Any] | None:
        """The answer of a run that an earlier version parked, if what it showed is what asks now."""
        schema = item.response_schema
        for number in count():
            name = langgraph_interrupt_id(namespace, number)
            requests = requests_from_interrupt(Interrupt(item.value, name, response_schema=schema), node)
            stored = [self._deps.approvals.find_request(request.key) for request in requests]
            if stored[0] is None:
                return None
            same = all(
                was and _shown_fields(was) == _shown_fields(self._deps.approvals.redact_request(now))
                for was, now in zip(stored, requests, strict=True)
            )
            if same and number not in execution.earlier and (found := self._find_answer(requests)):
                execution.earlier.add(number)
                return found
        return None

    def _write_requests_and_interrupt(
        self, execution: _Execution, item: Any, requests: Sequence[ApprovalRequest], key_prefix: str
    ) -> NoReturn:
        """`key_prefix`: begins the keys of what the same call asks."""
        approvals = self._deps.approvals
        execution.raised[item.id] += 1
        for request in requests:
            approvals.write_request(request)
        if (alike := execution.raised[item.id]) > 1:
            approvals.record_parallel_count(requests[0].key, alike)
        else:
            approvals.withdraw_requests(key_prefix, item.id)  # this call asks something else by now
        raise GraphInterrupt((item,))

    def write_missing_interrupt_requests(self, task: str, node: str, interrupts: Iterable[Any]) -> None:
        """Name what a node raised itself (`NodeInterrupt`): an answer lets the node run once, then it is asked anew."""
        with self._one:
            known = self._executions.get(task, _Execution()).raised
            for place, item in enumerate(interrupts):
                if item.id in known or self._has_request(item):
                    continue
                self._assign_interrupt_id_and_write_requests(task, node, place, item)

    def _has_request(self, item: Any) -> bool:
        """Whether the request of an interrupt stands already: of an effect, a guarded tool, or a graph inside."""
        approvals = self._deps.approvals
        if isinstance(item.value, str) and approvals.find_request(item.value) is not None:
            return True
        return any(item.id in one.raised for one in self._executions.values())

    def _assign_interrupt_id_and_write_requests(self, task: str, node: str, place: int, item: Any) -> None:
        given, again = item.id if is_interrupt_id(item.id) else "", 0
        item.id = given or _hash_texts(task, f"{_RAISED} {place}", "0")
        requests = requests_from_interrupt(item, node, _request_key_prefix(task, _RAISED))
        while self._find_answer(requests) is not None:
            again += 1
            item.id = _hash_texts(task, f"{_RAISED} {place} {given}", str(again))
            requests = requests_from_interrupt(item, node, _request_key_prefix(task, _RAISED))
        for request in requests:
            self._deps.approvals.write_request(request)
        self._executions.setdefault(task, _Execution()).raised[item.id] += 1


class RecordedAnswers:
    """Answers what a function asks in a replay: as a person answered the same question in the record, each once."""

    def __init__(
        self,
        answered: Iterable[tuple[ApprovalRequest, Answer]],
        as_kept: Callable[[ApprovalRequest], ApprovalRequest],
    ) -> None:
        """`as_kept`: a request as the record has it, with marks in place of secrets."""
        self._left = [*answered]
        self._as_kept = as_kept

    def get_answer_or_interrupt(self, value: Any, response_schema: Any) -> Any:
        """Return the recorded answer. Raises `GraphInterrupt` if nobody was asked this."""
        namespace, _ = current_namespace_and_scratchpad()
        schema, adapter = _schema_and_adapter(response_schema)
        item = Interrupt(value, _hash_texts(namespace), response_schema=schema)
        found: list[tuple[ApprovalRequest, Answer]] = []
        for request in requests_from_interrupt(item, namespace.rpartition("|")[2].rpartition(":")[0]):
            same = next(
                (
                    pair
                    for pair in self._left
                    if _shown_fields(pair[0]) == _shown_fields(self._as_kept(request))
                ),
                None,
            )
            if same is None:
                raise GraphInterrupt((item,))
            self._left.remove(same)
            found.append(same)
        return (
            validate_answer(adapter, resume_value_from_answers(found))
            if adapter
            else resume_value_from_answers(found)
        )


def _request_key_prefix(task: str, call: str) -> str:
    """Begins the key of what a call of a task asks."""
    return f"{task}:{_hash_texts(call)[:8] if call else '-'}:"


def _hash_texts(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:32]


def _shown_fields(request: ApprovalRequest) -> tuple[Any, ...]:
    return request.kind, request.call.name, request.call.args, request.preview, request.questions


def _schema_and_adapter(response_schema: Any) -> tuple[Any, Any]:
    """The JSON schema of an answer, and what makes the answer of it."""
    if response_schema is None or isinstance(response_schema, dict):
        return cast(Any, response_schema), None
    adapter: Any = TypeAdapter(response_schema)
    return adapter.json_schema(), adapter


_ANY: TypeAdapter[Any] = TypeAdapter(Any, config=ConfigDict(ser_json_bytes="base64"))
_HEX = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MODEL_RUN = re.compile(rf'"id": "(?:lc_)?run-+{_HEX}(?:-\d+)?"')
"""LangChain's id of a message: another one each time, also for the same message."""


def _stable_payload_text(value: Any) -> str:
    """The payload as a text that is the same in another process exactly if the payload is."""
    try:
        made = _ANY.dump_python(
            _sort_sets(value), mode="json", fallback=_text_without_address, warnings=False
        )
    except (ValueError, TypeError):  # such as a key that is no text
        made = to_json_value(value)
    return _MODEL_RUN.sub('"id": ""', json.dumps(made, sort_keys=True))


def _sort_sets(value: Any) -> Any:
    """The value with its sets as sorted lists: their order is another one in each process."""
    if isinstance(value, dict):
        return {key: _sort_sets(one) for key, one in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_sort_sets(one) for one in cast("list[Any]", value)]
    if isinstance(value, set | frozenset):
        return sorted((_sort_sets(one) for one in cast("set[Any]", value)), key=repr)
    return value


def _text_without_address(value: object) -> str:
    """The object's text, without the address that Python's own text of it has."""
    return str(value) if type(value).__str__ is not object.__str__ else type(value).__qualname__
