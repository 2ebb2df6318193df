"""pipeline: a workflow that users run by name: a declared graph, its input and its output."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, ClassVar, Literal, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import ValidationError

from interlock.graphs.graph import Compiled, Graph
from interlock.graphs.langgraph_internals import drive_without_stream
from interlock.graphs.node_contract import channel_types
from interlock.graphs.stored_values import StoredForm
from interlock.state.conversation import refusals_from_state, settled_refusal_warnings
from interlock.state.deps import Deps
from interlock.state.errors import InputError, RunError, SetupError, UserError
from interlock.state.messages import Message
from interlock.state.run import BY_PROCESS, WorkflowInput, WorkflowOutput, to_input_error
from interlock.state.text import first_validation_error, replace_surrogates, to_json_text
from interlock.state.workflow import WorkflowContext


@dataclass(frozen=True)
class Ending:
    """How a run ended, by its final state and output."""

    status: str = "done"
    error: Mapping[str, str] | None = None
    carried_on_by: str | None = None
    """The run that carries on its work."""
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class Pipeline:
    """A workflow that users run by name.

    What engine and front ends ask of it depends on who wrote the graph: Interlock (this class), a user with `Graph`
    (`Workflow`), or a user with LangGraph alone (`ForeignWorkflow`). Nobody asks which of these a workflow is.
    """

    name: str
    build: Callable[..., Graph]
    """Takes `depth` if its calls may start sub-agents."""
    input: type[WorkflowInput]
    output: type[WorkflowOutput]
    enter: Callable[[Any, WorkflowContext], dict[str, Any]] = field(kw_only=True, default=cast(Any, None))
    """Maps the validated input to the initial state. Default: the input's own fields, plus the run's `model`,
    `approval_mode` and limits if the state has these keys.
    """
    leave: Callable[[Mapping[str, Any], WorkflowContext], WorkflowOutput] = field(
        kw_only=True, default=cast(Any, None)
    )
    """Maps the final state to the output. Default: the keys they share."""
    summary: str = ""
    """One line; a workflow file without one uses the first line of its docstring."""
    outcome: str = "status"
    """State key that says how it ended, for `runs`; empty means `done`."""
    follow_up: Callable[[Message | None, WorkflowContext], dict[str, Any]] | None = None
    """State for a further prompt or, with None, for retrying the last; absent: not supported."""
    prompt_field: str | None = None
    """Input field that the positional PROMPT fills (★)."""
    hands_over_to: str = ""
    """Output field that names the run that carries on its work; the engine drives that run next."""
    notes: tuple[str, ...] = ()
    """Warnings that a run begins with."""
    needs_model: bool = False
    """Requires a model: refused before it starts without a key. Others do what they can."""

    run_fields: ClassVar[frozenset[str]] = frozenset(WorkflowInput.model_fields)
    """Fields of its input that count for the run, not for its graph."""
    runs_user_code: ClassVar[bool] = False
    """Whether a user wrote its nodes: they may block, and what they return may hold secrets."""
    checkpoint_values: ClassVar[Literal["json", "classes", "any"]] = "json"
    """What its checkpoints hold, which decides on their saver: JSON-like state, objects of known classes that a user's
    nodes write, or any value that LangGraph stores."""
    speaks_langgraph: ClassVar[bool] = False
    """Whether programs speak to its runs as to LangGraph, in place of by prompts in a field of its input."""

    @property
    def can_continue_after_end(self) -> bool:
        """Whether a run can go on after its end."""
        return self.follow_up is not None

    def __post_init__(self) -> None:
        if cast(Any, self.enter) is None:
            object.__setattr__(self, "enter", self._default_initial_state)
        if cast(Any, self.leave) is None:
            object.__setattr__(self, "leave", self._default_output)

    def _default_initial_state(self, input: WorkflowInput, context: WorkflowContext) -> dict[str, Any]:
        known = channel_types(self.build_uncompiled_graph().state)
        of_run = {
            "model": context.model,
            "approval_mode": context.approval_mode,
            "max_turns": context.limits.max_turns,
            "max_session_turns": context.limits.max_session_turns,
        }
        own: dict[str, Any] = input.model_dump(mode="json", exclude=set(WorkflowInput.model_fields))
        return {**{key: value for key, value in of_run.items() if key in known}, **own}

    def _default_output(self, values: Mapping[str, Any], context: WorkflowContext) -> WorkflowOutput:  # noqa: ARG002 - its shape
        try:
            return self.output.model_validate({k: values[k] for k in self.output.model_fields if k in values})
        except ValidationError as error:
            fault = ": ".join(first_validation_error(error))
            ended = f"it ended with {sorted(values)} in its state."
            raise RunError(f"The output of {self.name!r}: {fault}; {ended}") from error

    def validate_input(self, values: Mapping[str, Any] | WorkflowInput) -> WorkflowInput:
        """The typed input, with valid Unicode. Raises `InputError` naming the field and what was expected."""
        if isinstance(values, WorkflowInput):
            return values
        given = {
            name: replace_surrogates(value) if isinstance(value, str) else value
            for name, value in values.items()
        }
        try:
            return self.input.model_validate(given)
        except ValidationError as error:
            raise to_input_error(self.name, self.input, error) from error

    def parse_program_input(self, value: Any) -> WorkflowInput:
        """Return the input that a program means by a value. Raise `InputError` if it doesn't fit."""
        return self.validate_input(value)

    @property
    def accepts_non_object_input(self) -> bool:
        """Whether an input needn't be an object: a LangGraph graph may take a list or a number."""
        return False

    def warnings_at_start(self, input: WorkflowInput, env: Mapping[str, str]) -> list[str]:  # noqa: ARG002 - a LangGraph graph ignores some
        """Return the lines that a run with this input begins with."""
        return [*self.notes]

    def check_guard_flag_supported(self, guard: bool) -> None:
        """Raise `InputError` if its calls can't be put under the policy by `--guard`."""
        if guard:
            raise InputError(
                f"{self.name!r} guards its calls without --guard: that is for graphs of LangGraph.", "guard"
            )

    def validate_context(self, context: Mapping[str, Any] | None) -> Any:
        """Return the context that its nodes find beside `Deps`. Raise `InputError` if it takes no such one."""
        if context:
            raise InputError(f"{self.name!r} takes no context: only graphs of LangGraph do.", "context")

    def first_state(
        self, input: WorkflowInput, context: WorkflowContext, channels: Callable[[], Mapping[str, str]]
    ) -> dict[str, Any]:
        """Return the JSON-like state that a run's row holds. `channels`: makes those that the run sets itself."""
        entered = self.enter(input, context)
        if (mode := entered.get("approval_mode", context.approval_mode)) != context.approval_mode:
            raise SetupError(
                f"{self.name!r} begins in the approval mode {mode!r}, but the run was started in "
                f"{context.approval_mode!r}. Only a person switches it: leave it out of `enter`."
            )
        return {**entered, **channels()}

    def graph_input(self, first: dict[str, Any], channels: Mapping[str, str]) -> Any:
        """Return what its graph begins with. `first`: the state in the run's row; `channels`: those of this prompt."""
        return {**first, **channels}

    def run_title(self, input: WorkflowInput) -> str:
        """What lists call a run with this input: its prompt, else what else was given, else the workflow."""
        if self.prompt_field and (prompt := getattr(input, self.prompt_field)):
            return _title_part(prompt)
        given = input.model_dump(exclude=set(WorkflowInput.model_fields), exclude_defaults=True)
        parts = [name if value is True else _title_part(value) for name, value in given.items()]
        return " · ".join(filter(None, parts)) or self.name

    async def advance(self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any) -> None:
        """Drive its compiled graph until nothing is due."""
        await drive_without_stream(app, graph_input, config, context=deps, durability="sync", control=control)

    def wrap_read_errors(self) -> AbstractContextManager[None]:
        """Return a context within which what its own types raise while they are read is a `NodeError`."""
        return nullcontext()

    def split_immediate_modes(
        self, requested: Mapping[str, str]
    ) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """Return which modes, chosen while a prompt is under way, count at once, and which from the next prompt on."""
        return {}, requested

    def ending_from_final_state(self, values: Mapping[str, Any], output: Mapping[str, Any]) -> Ending:
        """Return how a run with this final state and output ended."""
        return Ending(
            output.get("status", "done"),
            output.get("error"),
            output.get(self.hands_over_to),
            settled_refusal_warnings(refusals_from_state(values)) if output else (),
        )

    def with_langgraph_config(self, config: Mapping[str, Any]) -> "Pipeline":  # noqa: ARG002 - a function may make a LangGraph graph
        """Return the workflow as a configuration of LangGraph's makes it."""
        return self

    def require_thread_format(self) -> StoredForm:
        """Return what a thread of its graph, which LangGraph drove elsewhere, may hold. Raise `UserError`."""
        raise UserError(
            f"{self.name!r} isn't a LangGraph graph, so it can't continue a thread. Give FILE.py:graph."
        )

    def check_state_writable(self) -> None:
        """Raise `UserError` if programs can't write to its state."""
        raise UserError(
            f"The state of {self.name!r} can't be written: fork the run (copy), or send it a prompt."
        )

    def check_model_switch(self, run: str) -> None:
        """Raise `UserError` if a fork of a run can't continue with another model."""

    @classmethod
    def conversation_head(cls, values: Mapping[str, Any]) -> str | None:
        """Return the newest record of a state's conversation; None: the state has no conversation of the chain."""
        return str(values.get("head") or "")

    @classmethod
    def stored_output(cls, values: Mapping[str, Any]) -> Mapping[str, Any] | None:  # noqa: ARG003 - its shape
        """Return the output of an ended run as its checkpoint holds it; None: `leave` makes it."""
        return None

    def node_functions(self) -> Iterator[tuple[str, Any]]:
        """Yield each node, and each tool of a node, with its function."""
        for declare, given in self.build().declarations:
            if declare.__name__ == "node":
                yield cast("tuple[str, Any]", given)

    def should_run_nodes_in_replay(self, live: bool) -> bool:
        """Return whether a replay runs its nodes, in place of applying what they wrote.

        `live`: their effects are wanted. Raise `UserError` if they never have any.
        """
        if live:
            raise UserError(
                f"{self.name!r} always replays without effects. --live is for graphs of LangGraph."
            )
        return True

    def replay_comparable_state(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what of a state is the same in every replay."""
        return {key: value for key, value in values.items() if key not in BY_PROCESS}

    def request_identity_across_replays(self, request: Mapping[str, Any]) -> tuple[str, str]:
        """Return what tells a request from others with the same call, in every replay.

        Ids of tasks are new ones in any replay; a question that a workflow asks has one for its call.
        """
        call: str = request["call"]
        if _TASK.search(call) and not _TASK.fullmatch(call):  # a model's own id may look like that
            return _TASK.sub("", call), request["reason"]
        return call, ""

    def compile(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, depth: int | None = None
    ) -> Compiled:
        """The compiled graph of a run: the workflow wrapped in its session. `depth`: levels of sub-agents."""
        return self.build_uncompiled_graph(depth).compile(checkpointer)

    def build_uncompiled_graph(self, depth: int | None = None) -> Graph:
        """The declaration that `compile` compiles."""
        from interlock.graphs.hook_nodes import cached_session_graph

        nests = "depth" in signature(self.build).parameters
        return cast(
            Any, cached_session_graph(cast(Any, self.build), depth if nests else None)
        )  # as in `subgraph`


_TASK = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def _title_part(value: Any) -> str:
    """An input as a part of a title: of a conversation its last message, of calls and parts their names or texts."""
    match value:
        case str():
            return value
        case {"role": _, "content": content}:
            return _title_part(content)
        case [*_, {"role": _} as last]:
            return _title_part(last)
        case [{}, *_]:
            return ", ".join(map(_title_part, cast("list[Any]", value)))
        case {"text": str(text)} | {"name": str(text)} | {"type": str(text)}:
            return text
        case _:
            return to_json_text(value)
