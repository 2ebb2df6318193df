"""dialects: how programs speak to a workflow of Interlock's: by prompts and requests."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel
from typing_extensions import override

from interlock.engine.client import Client, Outcome, Renderer
from interlock.engine.client.program_drive import Dialect
from interlock.graphs.pipeline import Pipeline
from interlock.state.errors import InputError
from interlock.web.api import shown


@dataclass(frozen=True)
class PromptDialect(Dialect):
    """Messages become prompts, the chain's records become messages, and requests become interrupts."""

    prompt_field: str
    """The input that a prompt fills; empty: none."""

    @override
    def input_of(self, given: Any) -> Any:
        """What a person said last in a list of messages is the prompt."""
        if isinstance(given, dict) and self.prompt_field not in given and "messages" in given:
            return {self.prompt_field: shown.prompt_in(cast("dict[str, Any]", given))}
        return cast(Any, given)

    @override
    def start_input(self, workflow: str, given: Any) -> Any:
        if not isinstance(given or {}, dict):
            raise InputError(f"The input of {workflow!r} must be a JSON object, not {given!r}.")
        return given or {}

    @override
    def begins_with(self, command: Any) -> bool:
        return False

    @override
    def fork_point(self, checkpoint: Mapping[str, Any]) -> str | None:
        return checkpoint.get("checkpoint_id")

    @override
    def renderers(self, emitted: Renderer) -> Sequence[Renderer]:
        return (emitted,)

    @override
    def stream_options(self, app: Any) -> dict[str, Any]:
        return {}

    @override
    def shaped(self, data: Any, transcript: Callable[[], Any], asked: Callable[[Any], dict[str, Any]]) -> Any:
        if not isinstance(data, dict):
            return data
        made: dict[str, Any] = {**cast("dict[str, Any]", data)}
        if isinstance(head := made.get("head"), str) and head:
            chain = transcript()
            made["messages"] = shown.messages((name, chain.message(name)) for name in chain.ids(head))
        if made.get("__interrupt__"):
            made["__interrupt__"] = [asked(one) for one in made["__interrupt__"]]
        return made

    @override
    def shaped_interrupts(self, params: Mapping[str, Any], asked: Callable[[Any], Any]) -> dict[str, Any]:
        return {**params, "interrupts": [asked(one) for one in params.get("interrupts") or ()]}

    @override
    def schemas(self, workflow: Pipeline) -> dict[str, type[BaseModel]]:
        return {"input_schema": workflow.input, "output_schema": workflow.output}

    @override
    async def go_on(
        self,
        client: Client,
        run: str,
        given: Any,
        moves: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        renderers: Sequence[Renderer],
    ) -> Outcome:
        text = str(given.get(self.prompt_field) or "").strip() if given else ""
        return await client.go_on(run, text or None, renderers=renderers, instead=True)


def dialect_of(workflow: Pipeline) -> Dialect:
    """Return how programs speak to a workflow."""
    return workflow.dialect(Dialect, PromptDialect)
