"""chat_model: the run's models as a LangChain chat model, for nodes and agents of any graph; messages both ways."""

import hashlib
import json
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import Any, cast

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import BaseModel

from interlock.nodes.current_run import current_deps, require_current_task_info, submit_to_run_loop
from interlock.state.deps import Deps
from interlock.state.errors import RunError, UserError
from interlock.state.messages import (
    DataPart,
    Message,
    ModelCall,
    Part,
    Reply,
    TextDelta,
    TextPart,
    ToolCall,
    ToolDeclaration,
)
from interlock.state.text import clean_json, replace_surrogates

_MUST_CALL = "Answer with a call of {which}, and with nothing else."


def model(name: str = "", *, role: str = "main", temperature: float | None = None) -> BaseChatModel:
    """A LangChain chat model that asks through the run: budget, retries, redaction and a record of each reply.

    A node that runs again after a kill or an answer gets the recorded replies, unpaid; one that raised asks anew.
    `name`: as for `-m`; empty: the run's own model. `role`: names the requests in the record and in scripts, and may
    have a model of its own in `model.roles`. Supports tools, streaming and `with_structured_output`. A required
    `tool_choice` becomes a line of the prompt. Outside a run of Interlock, calls raise `UserError`.
    """
    return RunModel(named=name, role=role, temperature=temperature)


class RunModel(BaseChatModel):
    """See `model`."""

    named: str = ""
    role: str = "main"
    temperature: float | None = None

    @property
    def _llm_type(self) -> str:
        return "interlock"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | bool | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer these tools; see `model` for `tool_choice`."""
        return self.bind(
            tools=[convert_to_openai_tool(tool) for tool in tools], tool_choice=tool_choice, **kwargs
        )

    def with_structured_output(
        self, schema: Any, *, include_raw: bool = False, **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Answers are JSON of this shape, and come as the class if `schema` is a pydantic model."""
        if unknown := kwargs.keys() - {"method", "strict"}:
            raise ValueError(
                f"with_structured_output got {sorted(unknown)}; expected schema and include_raw."
            )
        asked = self.bind(answer_schema=convert_to_json_schema(schema))
        parser: Any = JsonOutputParser()
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            parser = PydanticOutputParser[Any](pydantic_object=schema)
        if not include_raw:
            return asked | parser
        parsed = RunnablePassthrough.assign(
            parsed=itemgetter("raw") | parser, parsing_error=lambda _: None
        ).with_fallbacks([RunnablePassthrough.assign(parsed=lambda _: None)], exception_key="parsing_error")
        return RunnableMap(raw=asked) | parsed

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return generate_from_stream(self._stream(messages, stop, run_manager, **kwargs))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await agenerate_from_stream(self._astream(messages, stop, run_manager, **kwargs))

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        pieces: queue.SimpleQueue[AIMessageChunk | None] = queue.SimpleQueue()
        ask = self._make_model_call_factory(messages, stop, kwargs)

        async def pump() -> None:
            try:
                async with aclosing(self._stream_chunks(ask)) as source:
                    async for piece in source:
                        pieces.put(piece)
            finally:
                pieces.put(None)

        done = submit_to_run_loop("model().invoke()", "await model().ainvoke()", pump)
        while (piece := pieces.get()) is not None:
            chunk = ChatGenerationChunk(message=piece)
            if run_manager:
                run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
            yield chunk
        done.result()

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async with aclosing(
            self._stream_chunks(self._make_model_call_factory(messages, stop, kwargs))
        ) as source:
            async for piece in source:
                chunk = ChatGenerationChunk(message=piece)
                if run_manager:
                    await run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
                yield chunk

    def _make_model_call_factory(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> Callable[[Deps, str], ModelCall]:
        if stop:
            raise UserError("model() has no stop sequences; cut the answer instead.")
        sent, tools = (
            [*map(convert_langchain_message, messages)],
            tool_declarations_from_openai(options.get("tools") or ()),
        )
        sent, tools = _apply_tool_choice_by_prompt(sent, tools, options.get("tool_choice"))
        shape = options.get("answer_schema")
        temperature = options.get("temperature", self.temperature)

        def call(deps: Deps, task: str) -> ModelCall:
            return ModelCall(
                task=task,
                role=self.role,
                head="",
                messages=sent,
                model=deps.models.resolve_alias(self.named) if self.named else "",
                tools=tools,
                schema=shape,
                temperature=temperature,
            )

        return call

    async def _stream_chunks(
        self, make_call: Callable[[Deps, str], ModelCall]
    ) -> AsyncGenerator[AIMessageChunk]:
        if (deps := current_deps()) is None:
            raise UserError(
                "model() answers inside a run of Interlock. Start one: interlock run FILE.py:graph"
            )
        task = require_current_task_info("model()", deps).task_id
        name = f"{task}#{_model_call_digest(make_call(deps, ''))}"
        reply = None
        # A recorded answer that couldn't be used isn't used again: the run would fail for ever.
        while reply is None or (reply.problem and reply.replayed):
            streamed = False
            call = make_call(deps, f"{name}.{deps.steps.next_occurrence_index(task, name)}")
            async with aclosing(deps.models.stream(call, deps.emit)) as items:
                async for item in items:
                    if isinstance(item, Reply):
                        reply = item
                        break
                    streamed = True
                    if isinstance(item, TextDelta):
                        yield AIMessageChunk(content=item.text)
                    else:
                        yield AIMessageChunk(content="", additional_kwargs={"reasoning_content": item.text})
        if reply.problem:
            raise RunError(
                f"The model's answer can't be used: {reply.problem} Try again with: interlock resume"
            )
        yield build_final_chunk(reply, already_streamed=streamed)  # pyright: ignore[reportPossiblyUnboundVariable] - once at least


def _apply_tool_choice_by_prompt(
    messages: list[Message], tools: list[ToolDeclaration], choice: str | bool | dict[str, Any] | None
) -> tuple[list[Message], list[ToolDeclaration]]:
    """A demand for a call as a line of the prompt; a tool that is named is the only one on offer."""
    if isinstance(choice, dict):
        choice = str(choice.get("function", {}).get("name", "any"))
    if choice in (None, False, "auto"):
        return messages, tools
    if choice == "none":
        return messages, []
    only = [tool for tool in tools if tool.name == choice]
    which = f"the tool {choice}" if only else "one of the tools"
    return [*messages, Message(role="user", content=_MUST_CALL.format(which=which))], only or tools


def _model_call_digest(call: ModelCall) -> str:
    asked = [
        [call.role, call.model, call.temperature, call.schema],
        [message.model_dump(mode="json", exclude_defaults=True) for message in call.messages],
        [tool.model_dump(mode="json") for tool in call.tools],
    ]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


_OWN = "interlock"
"""Key of `additional_kwargs` with what LangChain has no field for: the provider's signatures."""


def convert_langchain_message(message: BaseMessage) -> Message:
    """The message as the models service reads it. Raises `UserError` for content that it can't send."""
    if isinstance(message, SystemMessage):
        return Message(role="system", content=replace_surrogates(str(message.text)))
    if isinstance(message, HumanMessage):
        return Message(role="user", content=_convert_message_content(message))
    if isinstance(message, ToolMessage):
        status = "error" if message.status == "error" else "success"
        return Message(
            role="tool",
            content=replace_surrogates(str(message.text)),
            tool_call_id=message.tool_call_id,
            name=message.name,
            status=status,
        )
    if isinstance(message, AIMessage):
        return _convert_ai_message(message)
    raise UserError(
        f"model() can't send a {type(message).__name__}; expected system, human, AI or tool messages."
    )


def _convert_ai_message(message: AIMessage) -> Message:
    own: Mapping[str, Any] = message.additional_kwargs.get(_OWN) or {}
    signatures: Mapping[str, str] = own.get("calls") or {}
    calls = tuple(
        ToolCall(
            id=call["id"] or "",
            name=call["name"],
            args=cast(dict[str, Any], clean_json(call["args"])),
            signature=signatures.get(call["id"] or ""),
        )
        for call in message.tool_calls
    )
    return Message(
        role="assistant",
        content=replace_surrogates(str(message.text)),
        tool_calls=calls,
        signature=own.get("signature"),
    )


def _convert_message_content(message: BaseMessage) -> str | tuple[Part, ...]:
    if isinstance(message.content, str):
        return replace_surrogates(message.content)
    return tuple(_convert_content_block(cast("Mapping[str, Any]", block)) for block in message.content_blocks)


def _convert_content_block(block: Mapping[str, Any]) -> Part:
    kind = block["type"]
    if kind in ("text", "text-plain"):
        return TextPart(text=replace_surrogates(str(block.get("text") or "")))
    if kind in ("image", "file", "audio", "video") and block.get("base64"):
        mime = str(block.get("mime_type") or "application/octet-stream")
        return DataPart(
            type="image" if kind == "image" else "file", mime_type=mime, data=str(block["base64"])
        )
    raise UserError(f"model() can't send a block of type {kind!r}; expected text, or a file as base64.")


def tool_declarations_from_openai(tools: Sequence[Mapping[str, Any]]) -> list[ToolDeclaration]:
    """Tools in OpenAI's format, as `bind_tools` keeps them."""
    functions = [tool["function"] for tool in tools]
    return [
        ToolDeclaration(
            name=function["name"],
            description=function.get("description") or "",
            parameters=function.get("parameters") or {"type": "object", "properties": {}},
        )
        for function in functions
    ]


def build_final_chunk(reply: Reply, *, already_streamed: bool) -> AIMessageChunk:
    """The reply as the last piece of a stream; `already_streamed`: its text was sent in pieces before."""
    message, usage = reply.message, reply.usage
    signatures = {call.id: call.signature for call in message.tool_calls if call.signature}
    own = {"signature": message.signature, "calls": signatures}
    more: dict[str, Any] = {_OWN: own} if message.signature or signatures else {}
    if message.thought and not already_streamed:
        more["reasoning_content"] = message.thought
    return AIMessageChunk(
        content="" if already_streamed else message.text,
        id=f"run-{reply.record[:32]}",
        additional_kwargs=more,
        tool_calls=[
            {"type": "tool_call", "id": call.id, "name": call.name, "args": call.args}
            for call in message.tool_calls
        ],
        usage_metadata={
            "input_tokens": usage.input,
            "output_tokens": usage.output,
            "total_tokens": usage.total,
            "input_token_details": {"cache_read": usage.cached},
            "output_token_details": {"reasoning": usage.thoughts},
        },
        response_metadata={"model_name": reply.model, "finish_reason": reply.finish_reason},
    )
