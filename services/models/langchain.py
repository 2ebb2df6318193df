"""langchain: `provider:model` through any installed LangChain chat model. Imported only when one is used."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from mimetypes import guess_extension
from typing import Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)

from interlock.services.models.caching import (
    CachePlans,
    add_chat_completion_cache_marks,
    conversation_cache_key,
    supports_cache_marks,
)
from interlock.services.models.client_classes import (
    INITIAL_USAGE,
    extra_constructor_options,
    parse_ollama_usage,
    subclass_with_fixes,
)
from interlock.services.models.facts import ModelFacts
from interlock.services.models.names import (
    PUBLIC_URLS,
    ProviderSpec,
    configured_server_url,
    disable_tracing,
    find_provider_spec,
    provider_name,
    silence_client_warnings,
)
from interlock.services.models.network import temporary_client_environment
from interlock.services.models.options import (
    BEDROCK_FIELDS,
    find_refused_option,
    has_thinking_enabled,
    ignored_thinking_level_notice,
    thinking_effort_options,
    without_refused_options,
)
from interlock.services.models.request import (
    OWN_ID,
    Chunk,
    MessageCache,
    ModelRequest,
    ParsedCall,
    read_base64_data,
    to_usage,
)
from interlock.services.models.sent_messages import attachment_digest
from interlock.services.models.thinking import (
    ThinkTagParser,
    ThoughtCollector,
    ThoughtStreamingClient,
    is_openai_client_class,
    prepend_thinking,
    subclass_to_read_and_resend_thoughts,
)
from interlock.services.packages import install_command
from interlock.state.errors import ModelError, UserError
from interlock.state.messages import ENDS, DataPart, Message, TextPart, Usage

_FIELDS = ("finish_reason", "stop_reason", "stopReason", "done_reason")
"""Where LangChain's clients keep an answer's end."""
_SHOWN_END = 100
_NORMAL = {"complete": "stop", "length": "length"}
"""Ends that have one name in records, whoever gave them."""


def extract_finish_reason(metadata: Mapping[str, Any]) -> str:
    """Return the name of the end that one piece of an answer tells, as the provider spells it; empty: none.

    Pieces are looked at one by one: some servers repeat the end, and LangChain joins what is repeated (`stopstop`).
    """
    for name in _FIELDS:
        if metadata.get(name):
            return str(metadata[name])
    if isinstance(stop := metadata.get("messageStop"), dict):  # Bedrock, streamed
        return str(cast("dict[str, Any]", stop).get("stopReason") or "")
    if (status := metadata.get("status")) == "incomplete":  # OpenAI's Responses
        details = cast("dict[str, Any]", metadata.get("incomplete_details") or {})
        return str(details.get("reason") or "incomplete")
    return "" if status in (None, "in_progress") else str(status)


def interpret_finish_reason(model: str, raw_reason: str) -> tuple[str | None, str | None, str]:
    """Return an end's name as records have it, the problem that it means, and a warning if it isn't known.

    Raises `ModelError` if the conversation fills the model's window.
    """
    reason = raw_reason.lower()
    kind = ENDS.get(reason)
    if not raw_reason:
        return None, None, ""
    if kind is None:
        return (
            reason,
            None,
            f"{model} ended the answer with {raw_reason[:_SHOWN_END]!r}, which isn't known. The answer counts.",
        )
    if kind == "overflow":
        raise ModelError(f"{model}: the conversation fills the model's window ({raw_reason}).", overflow=True)
    problem = f"{model} stopped the answer: {raw_reason}." if kind in ("blocked", "retry") else None
    return _NORMAL.get(kind, reason), problem, ""


def to_langchain_message(message: Message, model: str = "") -> BaseMessage:
    """Convert one message. Thinking goes back only to the model that made it."""
    data = any(isinstance(part, DataPart) for part in message.content)
    content: Any = (
        [_to_content_block(p) for p in message.content if not isinstance(p, str)] if data else message.text
    )
    if message.role == "system":
        return SystemMessage(content)
    if message.role == "user":
        return HumanMessage(content)
    if message.role == "tool":
        status = "success" if message.status in (None, "success") else "error"
        answered = to_provider_call_id(message.tool_call_id or "", model)
        return ToolMessage(content, tool_call_id=answered, name=message.name, status=status)
    calls = [
        {"type": "tool_call", "id": to_provider_call_id(c.id, model), "name": c.name, "args": c.args}
        for c in message.tool_calls
    ]
    made = AIMessage(content, tool_calls=calls)
    return (
        prepend_thinking(made, message.opaque) if message.opaque and message.opaque.model == model else made
    )


_STRICT = re.compile(r"(openai|azure):(?!.*/)|bedrock:.*(anthropic|amazon)\.")
"""Models whose servers refuse ids of calls that are longer or hold other signs, as those of other vendors do."""
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")


def to_provider_call_id(call_id: str, model: str) -> str:
    """Return the id under which a call is sent: a server's own goes back unchanged."""
    is_taken = not OWN_ID.fullmatch(call_id) and (_CALL_ID.fullmatch(call_id) or not _STRICT.match(model))
    return call_id if is_taken else f"call_{hashlib.sha256(call_id.encode()).hexdigest()[:24]}"


def _to_content_block(part: TextPart | DataPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    block = {"type": part.type, "base64": read_base64_data(part), "mime_type": part.mime_type}
    if part.type == "image":
        return block
    name = f"attachment-{attachment_digest(part)}"  # Bedrock takes no dot in it, OpenAI wants an ending
    return {**block, "name": name, "filename": f"{name}{guess_extension(part.mime_type) or ''}"}


_MOST = ("max_tokens", "max_output_tokens", "num_predict")
"""How classes name the most tokens of a reply."""
_SHOWN = 300
"""Characters shown of arguments that can't be read."""
_TOGETHER = 1000
"""Chunks added up at a time: each sum parses the arguments of calls anew, so one per chunk is quadratic."""


_ADDING = ("ChatAnthropic", "ChatBedrockConverse")
"""Clients whose pieces hold parts of the usage. Others repeat a running total, if they tell it more than once."""


def _merge_chunks(pieces: list[AIMessageChunk]) -> AIMessageChunk:
    return pieces[0] + pieces[1:]


def _to_message_chunk(message: BaseMessage) -> AIMessageChunk:
    """Return the message as a piece of a stream: clients of models that don't stream give the whole of it."""
    if isinstance(message, AIMessageChunk):
        return message
    whole = cast(AIMessage, message)
    return AIMessageChunk(
        content=cast(Any, whole.content),
        additional_kwargs=whole.additional_kwargs,
        response_metadata=whole.response_metadata,
        usage_metadata=whole.usage_metadata,
        tool_call_chunks=[
            {
                "type": "tool_call_chunk",
                "id": c["id"],
                "name": c["name"],
                "args": json.dumps(c["args"]),
                "index": at,
            }
            for at, c in enumerate(whole.tool_calls)
        ],
    )


class LangChainProvider:
    def __init__(self, model: str, env: Mapping[str, str], facts: ModelFacts) -> None:
        disable_tracing()
        silence_client_warnings()
        self._spec = _require_provider_spec(model)
        self._name = model
        options = _constructor_options(model, self._spec, env)
        if (api := facts.configured_openai_api(model)) and self._spec.cls in (
            "ChatOpenAI",
            "AzureChatOpenAI",
        ):
            options["use_responses_api"] = api == "responses"
        if is_openai_client_class(cls := load_chat_class(model)):
            options["stream_chunk_timeout"] = None  # ours counts: it knows pings
            if facts.model_server(model).near:
                options["timeout"] = None  # the client's own is 10 minutes
            cls = subclass_to_read_and_resend_thoughts(cls)
        if facts.model_server(model).kind == "llama.cpp":
            options["extra_body"] = {"return_progress": True}
        if self._spec.cls == "ChatOpenAI":
            cls = _subclass_with_cache_marks_and_cost(cls)
        cls = subclass_with_fixes(cls)
        with temporary_client_environment():
            options |= _async_api_key_option(options) if self._spec.cls == "ChatOpenAI" else {}
            options |= extra_constructor_options(cls, options)
            made: Any = cls(**options)
            getattr(made, "_async_client", None)  # Anthropic's is made when it is first used
        if is_openai_client_class(cls):
            made.root_async_client = ThoughtStreamingClient(made.root_async_client)
        self._model: BaseChatModel = made
        self._plans = CachePlans()
        self._told_effort = facts.observations(model).effort_told
        self._facts, self._refused = facts, set(facts.observations(model).refuses)
        self._messages = MessageCache(partial(to_langchain_message, model=model))

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Make the request once, and again without an option that the server refuses, which is remembered."""
        while True:
            begun = False
            try:
                async with aclosing(self._stream_once(request)) as pieces:
                    async for piece in pieces:
                        begun = True
                        yield piece
                return
            except Exception as error:
                refused = "" if begun else find_refused_option(error, self._request_options(request))
                if not refused:
                    raise
            self._refused.add(refused)
            self._facts.record_observations(self._name, refuses=sorted(self._refused))

    async def _stream_once(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Make one attempt. Calls are yielded at the end: their arguments arrive in pieces."""
        pieces: list[AIMessageChunk] = []
        usd: float | None = None
        begun: Usage | None = None
        thinking, tags, end, total = ThoughtCollector(self._name), ThinkTagParser(), "", None
        async for piece in self._bind_model_to_request(request).astream(self._messages(request.messages)):
            chunk = _to_message_chunk(piece)
            end, total = extract_finish_reason(chunk.response_metadata) or end, chunk.usage_metadata or total
            pieces.append(chunk)
            if len(pieces) == _TOGETHER:
                pieces = [_merge_chunks(pieces)]
            text, thought = tags.split_thoughts(_chunk_text(chunk))
            thought += thinking.collect_thought_text(chunk)
            progress = chunk.response_metadata.pop(_PROGRESS, None)
            usd = chunk.response_metadata.pop(_COST, usd)
            begun = chunk.response_metadata.pop(INITIAL_USAGE, begun)
            yield Chunk(text=text, thought=thought, progress=progress)  # also an empty one: the server lives
        text, thought = tags.flush()
        yield Chunk(text=text, thought=thought, warning=self._take_effort_notice(request))
        if pieces:
            whole = _merge_chunks(pieces)
            usage = to_usage(cast(Any, whole.usage_metadata if self._spec.cls in _ADDING else total))
            if usage and begun and not usage.input:
                usage = begun.model_copy(update={"output": usage.output, "thoughts": usage.thoughts})
            usage = usage or parse_ollama_usage(whole.response_metadata)
            last = self._build_last_chunk(whole, end, usage, usd)
            if thinking.refusal:
                problem = f"{self._name} refused: {thinking.refusal}"
                last = replace(last, finish_reason="refusal", problem=problem)
            yield replace(last, opaque=thinking.build_opaque(whole))

    def _caching_options(self, request: ModelRequest) -> dict[str, Any]:
        """Return the options with which the provider caches the start of a conversation."""
        plan = self._plans.plan_marks_and_remember_request(request)
        if plan is None:
            return {}
        if supports_cache_marks(self._spec.cls, self._name.partition(":")[2]):
            return {"cache_control": plan}
        return {"prompt_cache_key": conversation_cache_key(request)} if self._spec.cls == "ChatOpenAI" else {}

    def _request_options(self, request: ModelRequest) -> dict[str, Any]:
        """Return the options that this model's server takes."""
        warm = {"temperature": request.temperature} if self._facts.abilities(self._name).temperature else {}
        name = self._name.partition(":")[2]
        effort = thinking_effort_options(self._spec.cls, name, request.thinking, request.most)
        if effort and has_thinking_enabled(effort):
            warm = {}
        return without_refused_options(
            {**warm, **(effort or {}), **self._caching_options(request)}, self._refused
        )

    def _take_effort_notice(self, request: ModelRequest) -> str:
        """Return what is said, once, of a model that takes no thought level."""
        if self._told_effort or request.thinking == "auto":
            return ""
        taken = thinking_effort_options(self._spec.cls, self._name.partition(":")[2], request.thinking)
        if taken is not None and not self._refused & taken.keys():
            return ""
        self._told_effort = True
        self._facts.record_observations(self._name, effort_told=True)
        return ignored_thinking_level_notice(self._name, request.thinking)

    def _bind_model_to_request(self, request: ModelRequest) -> Any:
        options = self._request_options(request)
        if request.schema is not None and self._spec.json == "format":
            options["format"] = dict(request.schema)
        elif request.schema is not None and self._spec.json:
            schema = {"name": request.role, "schema": dict(request.schema)}
            options["response_format"] = {"type": "json_schema", "json_schema": schema}
        tools = [{"type": "function", "function": t.model_dump()} for t in request.tools]
        own = self._model
        field = next((name for name in _MOST if name in type(own).model_fields), "")
        fields = {field: request.most} if request.most and field else {}
        if BEDROCK_FIELDS in options:
            fields[BEDROCK_FIELDS] = options.pop(BEDROCK_FIELDS)
        if fields:
            own = own.model_copy(update=fields)
        return (own.bind_tools(tools) if tools else own).bind(**options)

    def _build_last_chunk(
        self, whole: AIMessageChunk, raw_reason: str, usage: Usage | None, usd: float | None
    ) -> Chunk:
        reason, problem, warning = interpret_finish_reason(self._name, raw_reason)
        calls, broken = _parse_calls_or_first_bad_call(whole)
        if broken:
            problem = f"{self._name} sent a call that can't be read: {broken}"
            reason = "malformed_function_call"
        if usage and usd is not None:
            usage = usage.model_copy(update={"usd": usd})
        return Chunk(calls=calls, finish_reason=reason, problem=problem, usage=usage, warning=warning)


def load_chat_class(model: str) -> type[BaseChatModel]:
    """Return the class that serves `provider:model`. Raises `UserError` if it can't be loaded or is no chat model."""
    spec = _require_provider_spec(model)
    try:
        cls = getattr(import_module(spec.module), spec.cls, None)
    except ImportError as error:
        raise UserError(
            f"Model {model!r}: {spec.module} can't be loaded: {error}. "
            f"Run: {install_command(spec.package, upgrade=True)}"
        ) from error
    if not isinstance(cls, type) or not issubclass(cls, BaseChatModel):
        raise UserError(
            f"Model {model!r}: {spec.module}.{spec.cls} isn't a LangChain chat model. Expected a class."
        )
    return cls


_PROGRESS, _COST = "prompt_progress", "cost"


_AS_IT_IS = ("messages", "tools", "response_format")
"""Parts of a request that are as the server takes them."""


@cache
def _subclass_with_cache_marks_and_cost(cls: type[BaseChatModel]) -> type[BaseChatModel]:
    """Return the class with marks, llama.cpp's progress, and OpenRouter's cost and cache writes: the client drops them.

    A request's large parts go with the fields that the client doesn't know. Of those it knows it looks at every value
    for names to translate: half of a turn's CPU time after 20 turns, and growing. For a schema it imports 690 modules
    (0.4 s after the first answer, 15 MB), to parse a reply that we parse ourselves.
    """

    class Lighter(cls):
        def _get_request_payload(
            self, *request: Any, cache_control: Any = None, **options: Any
        ) -> dict[str, Any]:
            payload: dict[str, Any] = cast(Any, super())._get_request_payload(*request, **options)
            if "messages" not in payload:  # not for chat completions
                return payload
            if cache_control is not None:
                add_chat_completion_cache_marks(payload["messages"], cache_control)
            parts = {name: payload.pop(name) for name in _AS_IT_IS if name in payload}
            extra: dict[str, Any] = payload.get("extra_body") or {}
            return {**payload, "messages": (), "extra_body": {**parts, **extra}}

        def _convert_chunk_to_generation_chunk(self, chunk: dict[str, Any], *rest: Any) -> Any:
            own = cast(Any, super())
            made = own._convert_chunk_to_generation_chunk(chunk, *rest)
            if made is not None and (told := chunk.get(_PROGRESS)):
                made.message.response_metadata[_PROGRESS] = (told["processed"], told["total"])
            usage: dict[str, Any] = chunk.get("usage") or {}
            if made is not None and isinstance(usage.get(_COST), int | float):
                made.message.response_metadata[_COST] = float(usage[_COST])
            told_of_input: dict[str, Any] = usage.get("prompt_tokens_details") or {}
            written = told_of_input.get("cache_write_tokens")
            if made is not None and written and made.message.usage_metadata:
                details = made.message.usage_metadata.setdefault("input_token_details", {})
                details["cache_creation"] = written
            return made

    return Lighter


def _async_api_key_option(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the key as a function: so LangChain makes an asynchronous client only."""
    key = options.get("api_key")

    async def api_key() -> Any:
        return key

    return {"api_key": api_key} if key else {}


def _require_provider_spec(model: str) -> ProviderSpec:
    spec = find_provider_spec(provider_name(model))
    if spec is None:
        raise UserError(f"No provider in {model!r}. Expected provider:model, for example openai:gpt-5.")
    return spec


def _constructor_options(model: str, spec: ProviderSpec, env: Mapping[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"model": model.partition(":")[2], **spec.fixed}
    options |= {field: env[name] for field, name in spec.fields.items() if env.get(name)}
    if spec.retries_off is not None:
        options["max_retries"] = spec.retries_off
    url = env.get(spec.url) if spec.url else None
    # Named even if it is the provider's own: else another variable could send the key elsewhere.
    if address := configured_server_url(model, env) or PUBLIC_URLS.get(provider_name(model), ""):
        options[spec.url_field] = (
            address.rstrip("/").removesuffix(spec.url_adds) if spec.url_adds else address
        )
    if spec.key and (env.get(spec.key) or url):
        options[spec.key_field] = env.get(spec.key) or "none"
    if spec.cls == "ChatOpenAI":
        options["stream_usage"] = True  # off by default where a base URL is set
    return options


def _chunk_text(chunk: AIMessageChunk) -> str:
    return "".join(block["text"] for block in chunk.content_blocks if block["type"] == "text")


def _parse_calls_or_first_bad_call(whole: AIMessageChunk) -> tuple[tuple[ParsedCall, ...], str]:
    """Return the calls in order, and the first whose arguments are no JSON object."""
    pieces: list[ParsedCall] = []
    for call in whole.tool_call_chunks:
        if not call["name"] and not call["id"]:
            continue  # of a tool that runs at the provider's, such as Nova's code interpreter
        try:
            args = json.loads(call["args"] or "{}", strict=False)  # some servers leave line breaks in strings
        except (ValueError, RecursionError):
            args = None
        if not isinstance(args, dict):
            return (), f"{call['name']} {(call['args'] or '')[:_SHOWN]!r}"
        pieces.append(ParsedCall(name=call["name"] or "", args=cast("dict[str, Any]", args), id=call["id"]))
    return tuple(pieces), ""
