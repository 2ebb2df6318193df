"""_pipeline: a workflow that users run by name: a declared graph, its input and its output."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import ValidationError

from interlock.graphs._contract import channels_of, of_types
from interlock.graphs._graph import Compiled, Graph
from interlock.graphs._langgraph import driven
from interlock.state.deps import Deps
from interlock.state.errors import RunError
from interlock.state.messages import Message
from interlock.state.run import WorkflowInput, WorkflowOutput, input_error
from interlock.state.text import clean, first_fault, json_text
from interlock.state.workflow import WorkflowContext


@dataclass(frozen=True)
class Pipeline:
    """A workflow that users run by name."""

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

    @property
    def continues(self) -> bool:
        """Whether a run can go on after its end."""
        return self.follow_up is not None

    def __post_init__(self) -> None:
        if cast(Any, self.enter) is None:
            object.__setattr__(self, "enter", self._entered)
        if cast(Any, self.leave) is None:
            object.__setattr__(self, "leave", self._left)

    def _entered(self, input: WorkflowInput, context: WorkflowContext) -> dict[str, Any]:
        known = channels_of(self.declared().state)
        of_run = {
            "model": context.model,
            "approval_mode": context.approval_mode,
            "max_turns": context.limits.max_turns,
            "max_session_turns": context.limits.max_session_turns,
        }
        own: dict[str, Any] = input.model_dump(mode="json", exclude=set(WorkflowInput.model_fields))
        return {**{key: value for key, value in of_run.items() if key in known}, **own}

    def _left(self, values: Mapping[str, Any], context: WorkflowContext) -> WorkflowOutput:  # noqa: ARG002 - its shape
        try:
            return self.output.model_validate({k: values[k] for k in self.output.model_fields if k in values})
        except ValidationError as error:
            fault = ": ".join(first_fault(error))
            ended = f"it ended with {sorted(values)} in its state."
            raise RunError(f"The output of {self.name!r}: {fault}; {ended}") from error

    def validated(self, values: Mapping[str, Any] | WorkflowInput) -> WorkflowInput:
        """The typed input, with valid Unicode. Raises `InputError` naming the field and what was expected."""
        if isinstance(values, WorkflowInput):
            return values
        given = {name: clean(value) if isinstance(value, str) else value for name, value in values.items()}
        try:
            return self.input.model_validate(given)
        except ValidationError as error:
            raise input_error(self.name, self.input, error) from error

    @property
    def takes_any_value(self) -> bool:
        """Whether an input needn't be an object: a LangGraph graph may take a list or a number."""
        return False

    def doubts(self, input: WorkflowInput) -> list[str]:  # noqa: ARG002 - a LangGraph graph has some
        """What of an input the workflow ignores, in a line each."""
        return []

    def started(self, first: dict[str, Any]) -> Any:
        """What its graph begins with, of the JSON that its run's row holds."""
        return of_types(self.declared().state, first)

    def title(self, input: WorkflowInput) -> str:
        """What lists call a run with this input: its prompt, else what else was given, else the workflow."""
        if self.prompt_field and (prompt := getattr(input, self.prompt_field)):
            return _in_words(prompt)
        given = input.model_dump(exclude=set(WorkflowInput.model_fields), exclude_defaults=True)
        parts = [name if value is True else _in_words(value) for name, value in given.items()]
        return " · ".join(filter(None, parts)) or self.name

    async def advance(self, app: Any, graph_input: Any, config: Any, deps: Deps, control: Any) -> None:
        """Drive its compiled graph until nothing is due."""
        await driven(app, graph_input, config, context=deps, durability="sync", control=control)

    def compile(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, depth: int | None = None
    ) -> Compiled:
        """The compiled graph of a run: the workflow wrapped in its session. `depth`: levels of sub-agents."""
        return self.declared(depth).compile(checkpointer)

    def declared(self, depth: int | None = None) -> Graph:
        """The declaration that `compile` compiles."""
        from interlock.graphs._session import rooted_of

        nests = "depth" in signature(self.build).parameters
        return cast(Any, rooted_of(cast(Any, self.build), depth if nests else None))  # as in `subgraph`


def _in_words(value: Any) -> str:
    """An input as a part of a title: of a conversation its last message, of calls and parts their names or texts."""
    match value:
        case str():
            return value
        case {"role": _, "content": content}:
            return _in_words(content)
        case [*_, {"role": _} as last]:
            return _in_words(last)
        case [{}, *_]:
            return ", ".join(map(_in_words, cast("list[Any]", value)))
        case {"text": str(text)} | {"name": str(text)} | {"type": str(text)}:
            return text
        case _:
            return json_text(value)
