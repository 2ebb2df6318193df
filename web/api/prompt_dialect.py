"""prompt_dialect: how programs speak to a workflow of Interlock's: by prompts and requests."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from pydantic import BaseModel
from typing_extensions import override

from interlock.engine.client import Client, Outcome, Renderer
from interlock.engine.client.answer_choices import answer_choices
from interlock.engine.client.program_drive import ProgramDialect
from interlock.engine.client.requests import summarize_arguments
from interlock.graphs.pipeline import Pipeline
from interlock.state.calls import ApprovalRequest
from interlock.state.errors import InputError
from interlock.state.messages import Message


@dataclass(frozen=True)
class PromptDialect(ProgramDialect):
    """Messages become prompts, the chain's records become messages, and requests become interrupts."""

    prompt_field: str
    """The input that a prompt fills; empty: none."""

    @override
    def parse_input(self, given: Any) -> Any:
        """Return the input, with what a person said last in a list of messages as the prompt."""
        if isinstance(given, dict) and self.prompt_field not in given and "messages" in given:
            return {self.prompt_field: last_prompt_text(cast("dict[str, Any]", given))}
        return cast(Any, given)

    @override
    def build_start_input(self, workflow: str, given: Any) -> Any:
        if not isinstance(given or {}, dict):
            raise InputError(f"The input of {workflow!r} must be a JSON object, not {given!r}.")
        return given or {}

    @override
    def can_start_with_command(self, command: Any) -> bool:
        return False

    @override
    def fork_checkpoint_id(self, checkpoint: Mapping[str, Any]) -> str | None:
        return checkpoint.get("checkpoint_id")

    @override
    def select_renderers(self, event_writer: Renderer) -> Sequence[Renderer]:
        return (event_writer,)

    @override
    def stream_options(self, app: Any) -> dict[str, Any]:
        return {}

    @override
    def format_state(
        self, data: Any, get_transcript: Callable[[], Any], format_interrupt: Callable[[Any], dict[str, Any]]
    ) -> Any:
        if not isinstance(data, dict):
            return data
        made: dict[str, Any] = {**cast("dict[str, Any]", data)}
        if isinstance(head := made.get("head"), str) and head:
            chain = get_transcript()
            made["messages"] = to_langchain_messages(
                (name, chain.read_message(name)) for name in chain.record_ids(head)
            )
        if made.get("__interrupt__"):
            made["__interrupt__"] = [format_interrupt(one) for one in made["__interrupt__"]]
        return made

    @override
    def format_interrupts(
        self, params: Mapping[str, Any], format_interrupt: Callable[[Any], Any]
    ) -> dict[str, Any]:
        return {**params, "interrupts": [format_interrupt(one) for one in params.get("interrupts") or ()]}

    @override
    def models_replacing_graph_schemas(self, workflow: Pipeline) -> dict[str, type[BaseModel]]:
        return {"input_schema": workflow.input, "output_schema": workflow.output}

    @override
    async def continue_run(
        self,
        client: Client,
        run: str,
        graph_input: Any,
        command_fields: Mapping[str, Any],
        checkpoint: Mapping[str, Any],
        renderers: Sequence[Renderer],
    ) -> Outcome:
        text = str(graph_input.get(self.prompt_field) or "").strip() if graph_input else ""
        return await client.resume(run, text or None, renderers=renderers, replace_unfinished=True)


def dialect_for_workflow(workflow: Pipeline) -> ProgramDialect:
    """Return how programs speak to a workflow."""
    return ProgramDialect() if workflow.speaks_langgraph else PromptDialect(workflow.prompt_field or "")


def to_langchain_messages(records: Iterable[tuple[str, Message]]) -> list[dict[str, Any]]:
    """Return what a person and the model said, and the calls, as LangChain's messages, each with its record's id."""
    ours = [(name, one) for name, one in records if one.role != "system" and one.origin in (None, "person")]
    return [_to_langchain_message(name, one) for name, one in ours]


def _to_langchain_message(record_id: str, message: Message) -> dict[str, Any]:
    kinds = {"user": "human", "assistant": "ai", "tool": "tool", "system": "system"}
    made: dict[str, Any] = {
        "type": kinds.get(message.role, message.role),
        "id": record_id,
        "content": message.text,
        "additional_kwargs": {},
        "response_metadata": {},
        "name": message.name,
    }
    if message.role == "assistant":
        calls = [
            {"type": "tool_call", "id": c.id, "name": c.name, "args": c.args} for c in message.tool_calls
        ]
        made |= {"tool_calls": calls, "invalid_tool_calls": []}
    if message.role == "tool":
        made |= {
            "tool_call_id": message.tool_call_id,
            "status": "success" if message.status == "success" else "error",
        }
    return made


def request_payload(request_id: str, request: ApprovalRequest) -> dict[str, Any]:
    """Return what a request asks, readable by people and programs."""
    return {
        "request": request_id,
        "kind": request.kind,
        "question": f"{request.call.name} {summarize_arguments(request.call.args)}".strip(),
        "tool": request.call.name,
        "args": request.call.args,
        "reason": request.reason,
        "preview": request.preview,
        "choices": [*request.choices],
        "questions": [*request.questions],
    }


def answer_schema(request: ApprovalRequest) -> dict[str, Any]:
    """Return the JSON Schema of the answers that a request takes; each choice is named with what it does and needs."""
    call = {"tool_name": request.call.name, "args": request.call.args}
    known = {
        way.choice: way.label_with_scope + (f" ({way.text})" if way.text else "")
        for way in answer_choices(cast(Any, {**request.model_dump(), **call}))
    }
    meant = [f"{choice}: {known[choice]}" if choice in known else choice for choice in request.choices]
    fields: dict[str, Any] = {
        "choice": {"type": "string", "enum": [*request.choices], "description": ". ".join(meant) + "."}
    }
    about = "The request that this answers: refused if another one waits by then."
    fields["request"] = {"type": "string", "description": about}
    if "reject" in request.choices and request.kind != "outcome":
        fields["feedback"] = {
            "type": "string",
            "description": "With reject: why, in words that the model reads.",
        }
    if "modify" in request.choices:
        fields["args"] = {"type": "object", "description": "With modify: all arguments to run with."}
    if request.kind == "outcome":
        about = "The same in one word: redo stands for proceed_once, skip for reject."
        fields["text"] = {"type": "string", "enum": ["redo", "skip"], "description": about}
    if request.kind == "question":
        fields["text"] = {"type": "string", "description": "With proceed_once: the answer."}
    either = (
        {"anyOf": [{"required": ["choice"]}, {"required": ["text"]}]}
        if "text" in fields
        else {"required": ["choice"]}
    )
    return {"type": "object", "properties": fields, **either, "additionalProperties": False}


def last_prompt_text(graph_input: Mapping[str, Any]) -> str:
    """Return the text of what a person said last, in an input that has messages."""
    found: Any = graph_input.get("messages")
    last = cast(Any, found[-1] if isinstance(found, list) and found else found)
    content: Any = cast("dict[str, Any]", last).get("content") if isinstance(last, dict) else last
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        return "".join(
            str(cast("dict[str, Any]", one).get("text", "")) for one in parts if isinstance(one, dict)
        )
    return str(content or "")
