"""chat_model: the run's models as a LangChain chat model, for nodes and agents of any graph."""

import hashlib
import json
import queue
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from operator import itemgetter
from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.language_models.chat_models import agenerate_from_stream, generate_from_stream
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import JsonOutputParser, PydanticOutputParser
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable, RunnableMap, RunnablePassthrough
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import BaseModel

from interlock.nodes.chat_messages import declared, to_chunk, to_ours
from interlock.nodes.here import deps_here, info_here, on_loop
from interlock.state.deps import Deps
from interlock.state.errors import RunError, UserError
from interlock.state.messages import Message, ModelCall, Reply, TextDelta, ToolDeclaration

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
        ask = self._request(messages, stop, kwargs)

        async def pump() -> None:
            try:
                async with aclosing(self._pieces(ask)) as source:
                    async for piece in source:
                        pieces.put(piece)
            finally:
                pieces.put(None)

        done = on_loop("model().invoke()", "await model().ainvoke()", pump)
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
        async with aclosing(self._pieces(self._request(messages, stop, kwargs))) as source:
            async for piece in source:
                chunk = ChatGenerationChunk(message=piece)
                if run_manager:
                    await run_manager.on_llm_new_token(str(piece.text), chunk=chunk)
                yield chunk

    def _request(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, options: dict[str, Any]
    ) -> Callable[[Deps, str], ModelCall]:
        if stop:
            raise UserError("model() has no stop sequences; cut the answer instead.")
        sent, tools = [*map(to_ours, messages)], declared(options.get("tools") or ())
        sent, tools = _chosen(sent, tools, options.get("tool_choice"))
        shape = options.get("answer_schema")
        temperature = options.get("temperature", self.temperature)

        def call(deps: Deps, task: str) -> ModelCall:
            return ModelCall(
                task=task,
                role=self.role,
                head="",
                messages=sent,
                model=deps.models.resolve(self.named) if self.named else "",
                tools=tools,
                schema=shape,
                temperature=temperature,
            )

        return call

    async def _pieces(self, ask: Callable[[Deps, str], ModelCall]) -> AsyncGenerator[AIMessageChunk]:
        if (deps := deps_here()) is None:
            raise UserError(
                "model() answers inside a run of Interlock. Start one: interlock run FILE.py:graph"
            )
        task = info_here("model()", deps).task_id
        name = f"{task}#{_digest(ask(deps, ''))}"
        reply = None
        # A recorded answer that couldn't be used isn't used again: the run would fail for ever.
        while reply is None or (reply.problem and reply.replayed):
            streamed = False
            call = ask(deps, f"{name}.{deps.steps.numbered(task, name)}")
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
        yield to_chunk(reply, streamed=streamed)  # pyright: ignore[reportPossiblyUnboundVariable] - once at least


def _chosen(
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


def _digest(call: ModelCall) -> str:
    asked = [
        [call.role, call.model, call.temperature, call.schema],
        [message.model_dump(mode="json", exclude_defaults=True) for message in call.messages],
        [tool.model_dump(mode="json") for tool in call.tools],
    ]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]
