"""gemini: Gemini through langchain-google-genai. Imported only when a Gemini model is used.

The client converts every message for every request, 0.3–0.4 ms each: 200 ms per request after 300 turns. So `contents`,
`systemInstruction` and `tools` are built and encoded once per message, which takes 7 ms, and passed as the SDK's
`extra_body`. The client handles configuration, transport, errors and answers."""

import json
import os
import re
import ssl
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from copy import copy
from typing import Any, cast

from google.genai import Client
from google.genai.types import GenerateContentConfig, HttpOptions
from httpx2 import AsyncClient
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGenerationChunk
from langchain_google_genai import ChatGoogleGenerativeAI, Modality
from langchain_google_genai._common import get_user_agent

from interlock.services.models.names import disable_tracing, silence_client_warnings
from interlock.services.models.network import temporary_client_environment
from interlock.services.models.request import (
    OWN_ID,
    Chunk,
    MessageCache,
    ModelRequest,
    ParsedCall,
    ToolsCache,
    normalize_finish_reason,
    read_base64_data,
    to_usage,
)
from interlock.services.models.response_body import prepare_streamed_response
from interlock.state.errors import ModelError
from interlock.state.messages import DataPart, Message, TextPart, ToolCall, ToolDeclaration
from interlock.state.settings import Thinking

Json = dict[str, Any]
NO_SIGNATURE = "skip_thought_signature_validator"
"""Accepted by Gemini 3 for calls made by another model or a person (Google's documentation of thought signatures)."""
_UNSIGNED = ("gemini-1", "gemini-2", "gemma", "learnlm")
"""Families that require no signature."""


class GeminiBodyBuilder:
    """Builds the `contents`, `systemInstruction` and `tools` of a request."""

    def __init__(self, model: str) -> None:
        self._signed = not model.startswith(_UNSIGNED)
        self._parts = MessageCache(_to_gemini_parts)
        self._tools = ToolsCache(_to_function_declarations)

    def __call__(self, request: ModelRequest) -> Json:
        system = [m for m in request.messages if m.role == "system"]
        rest = [m for m in request.messages if m.role != "system"]
        body: Json = {"contents": self._build_merged_contents(rest)}
        if system:
            body["systemInstruction"] = {"parts": [{"text": m.text} for m in system]}
        if request.feature == "web":
            body["tools"] = [{"googleSearch": {}}]
        elif request.tools:
            body["tools"] = [self._tools(request.tools)]
        return body

    def _build_merged_contents(self, messages: Sequence[Message]) -> list[Json]:
        """Merge neighbours of one role: Gemini's roles must alternate, and answers directly follow their calls."""
        contents: list[Json] = []
        unsigned_from = _turn_start_index(messages) if self._signed else len(messages)
        for index, (message, parts) in enumerate(zip(messages, self._parts(messages), strict=True)):
            if not parts:
                continue
            if index > unsigned_from and message.role == "assistant":
                parts = _sign_first_call_with_placeholder(parts)
            role = "model" if message.role == "assistant" else "user"
            if contents and contents[-1]["role"] == role:
                contents[-1]["parts"] = [*contents[-1]["parts"], *parts]
            else:
                contents.append({"role": role, "parts": parts})
        return contents


class BodyEncoder:
    """Encodes a body as JSON, caching the last one's parts: the client would encode all of it for each request."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Json, bytes]] = {}
        self._rest: tuple[Json, bytes] = ({}, b"")

    def __call__(self, body: Json) -> bytes:
        """Return the value of `contents`, with the other fields after it."""
        found = [self._reuse_or_encode_content(content) for content in body["contents"]]
        self._known = {id(content["parts"]): (content, encoded) for content, encoded in found}
        rest = {name: value for name, value in body.items() if name != "contents"}
        if rest != self._rest[0]:
            self._rest = (rest, b", " + json.dumps(rest).encode()[1:-1] if rest else b"")
        return b"[%b]%b" % (b", ".join([encoded for _, encoded in found]), self._rest[1])

    def _reuse_or_encode_content(self, content: Json) -> tuple[Json, bytes]:
        known = self._known.get(id(content["parts"]))
        if known and known[0]["parts"] is content["parts"]:
            return known
        return content, json.dumps(content).encode()


def _to_function_declarations(tools: Sequence[ToolDeclaration]) -> Json:
    declared = [
        {"name": t.name, "description": t.description, "parametersJsonSchema": t.parameters} for t in tools
    ]
    return {"functionDeclarations": declared}


def _turn_start_index(messages: Sequence[Message]) -> int:
    """Return the index of the user message that began this turn: after it, the first call of every answer needs a
    signature. A user message that follows a tool's answer is sent in the same content, so it begins no turn."""
    asked = (i for i, m in enumerate(messages) if m.role == "user" and not m.is_empty)
    return max((i for i in asked if i == 0 or messages[i - 1].role != "tool"), default=-1)


def _sign_first_call_with_placeholder(parts: list[Json]) -> list[Json]:
    """Return the parts with a signature on the first call."""
    first = next((i for i, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return parts
    return [*parts[:first], {**parts[first], "thoughtSignature": NO_SIGNATURE}, *parts[first + 1 :]]


def _to_gemini_parts(message: Message) -> list[Json]:
    """Convert a message. Thoughts aren't sent back, but their signatures are."""
    if message.role == "tool":
        return _function_response_parts(message)
    content = message.content
    pieces = (TextPart(text=content),) if isinstance(content, str) else content
    parts = [_content_part(piece) for piece in pieces if not isinstance(piece, TextPart) or piece.text]
    if message.signature:
        if not parts or "text" not in parts[-1]:
            parts.append({"text": ""})
        parts[-1]["thoughtSignature"] = message.signature
    return [*parts, *(_function_call_part(call) for call in message.tool_calls)]


def _function_call_part(call: ToolCall) -> Json:
    part: Json = {"functionCall": {"name": call.name, "args": call.args, **_gemini_call_id_field(call.id)}}
    if call.signature:
        part["thoughtSignature"] = call.signature
    return part


def _function_response_parts(message: Message) -> list[Json]:
    """Send the text verbatim: the client would parse what looks like JSON and change it."""
    key = "output" if message.status in (None, "success") else "error"
    response: Json = {
        "name": message.name or "",
        "response": {key: message.text},
        **_gemini_call_id_field(message.tool_call_id),
    }
    data = () if isinstance(message.content, str) else message.content
    return [{"functionResponse": response}, *(_content_part(p) for p in data if isinstance(p, DataPart))]


def _gemini_call_id_field(call_id: str | None) -> Json:
    """Send back only ids assigned by Gemini."""
    return {} if not call_id or OWN_ID.fullmatch(call_id) else {"id": call_id}


def _content_part(part: TextPart | DataPart) -> Json:
    if isinstance(part, TextPart):
        return {"text": part.text}
    return {"inlineData": {"mimeType": part.mime_type, "data": read_base64_data(part)}}


_CONTENTS: ContextVar[bytes] = ContextVar("contents")
"""The encoded `contents` of the current request, and what follows it."""
_ANSWERS: ContextVar[list[Any]] = ContextVar("answers")
"""Responses to the current request."""
_PLACE = ["contents of the request"]
"""Placeholder that the client encodes instead; a list, as it expects one."""


async def _insert_encoded_contents(request: Any) -> None:
    """Replace the placeholder with the encoded contents: a request hook of httpx, or of httpx2, which the SDK prefers.

    Raises `ModelError` for a redirect, which would carry the key and the conversation to where nobody sent them.
    """
    try:
        head, place, rest = request.content.partition(json.dumps(_PLACE).encode())
    except RuntimeError:  # RequestNotRead: a redirect's
        head = place = rest = b""
    if not place:
        raise ModelError(
            f"The model's server redirects to {str(request.url.copy_with(query=None))!r}. If requests should go there,"
            " name its address in GOOGLE_GEMINI_BASE_URL."
        )
    request.stream = type(request.stream)(head + _CONTENTS.get() + rest)
    request.headers["Content-Length"] = str(len(head) + len(_CONTENTS.get()) + len(rest))


async def _track_response(response: Any) -> None:
    """Keep the response, so that it can be closed: the SDK leaves that to the garbage collector."""
    _ANSWERS.get().append(response)


FIXED_SAMPLING = frozenset({"gemini-3.5-flash-lite", "gemini-3.6-flash"})
"""Models that reject a temperature (the client's own list)."""
_THINKS = re.compile(r"gemini-(2\.5|[3-9]|\d\d)")
_BUDGETS = {"low": 1024, "medium": 8192, "high": 24_576}
"""Thought level → tokens, for the models that count them; every one of these models takes each."""
_RANDOM_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
"""The client's made-up id (uuid4) for calls to which Gemini gave none."""
_SIGNATURES = "__gemini_function_call_thought_signatures__"
_HOOKS = {"request": [_insert_encoded_contents], "response": [_track_response, prepare_streamed_response]}
_REPLACED: list[BaseMessage] = [HumanMessage(".")]
"""The client requires a message; `extra_body` replaces it."""


class _Config(GenerateContentConfig):
    """Finds a field by its name: the SDK asks `name in config` forty times, and each time would compare all fields."""

    def __contains__(self, name: object) -> bool:
        return name in self.__dict__

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> "_Config":
        return self  # the SDK copies it to change its tools, which are in the body instead


class _Client(ChatGoogleGenerativeAI):
    """Prepares a request once for all with the same options, whose messages are replaced anyway."""

    _prepared: tuple[Json, Json] = ({}, {})
    """The last options, and what the SDK is asked with them."""

    def _prepare_request(self, messages: list[BaseMessage], **options: Any) -> Json:
        asked = {"model": self.model, **options}
        if asked != self._prepared[0]:
            request = super()._prepare_request(messages, **options)  # pyright: ignore[reportUnknownMemberType]
            config: GenerateContentConfig = request["config"]
            (request["contents"],) = request["contents"]  # in a list, the SDK would try each type it may have
            request["config"] = _Config.model_construct(config.model_fields_set, **config.__dict__)
            self._prepared = (asked, request)
        return self._prepared[1]


class GeminiProvider:
    def __init__(self, model: str, key: str, base_url: str, tls: ssl.SSLContext | None = None) -> None:
        """`tls`: the trusted certificates; without it the client loads them itself, twice."""
        disable_tracing()
        silence_client_warnings()
        self._set_model(model)
        with hide_vertex_variables(), temporary_client_environment():
            self._model = _Client(
                model=model,
                api_key=key,  # pyright: ignore[reportArgumentType]
                # Explicit: otherwise an environment variable could redirect runs to a gateway.
                base_url=base_url,  # pyright: ignore[reportCallIssue]
                vertexai=False,
                temperature=None,
                include_thoughts=_true_if_thinking_model(model),
                max_retries=1,  # pyright: ignore[reportCallIssue] - one attempt: retrying is our job
                # httpx uses `verify`; websockets, never opened here, uses `ssl`.
                client_args={"verify": tls, "ssl": tls} if tls else {},
            )
            # A client of our own: where aiohttp is installed, the SDK would ask by that, which has no request hook.
            self._http = AsyncClient(verify=tls or True, follow_redirects=True, event_hooks=_HOOKS)
            own = HttpOptions(
                base_url=base_url,
                headers={"user-agent": get_user_agent("ChatGoogleGenerativeAI")[1]},
                client_args=self._model.client_args,
                async_client_args=self._model.client_args,
                httpx_async_client=self._http,
            )
            self._model.client = Client(api_key=key, http_options=own)

    def copy_for_model(self, model: str) -> "GeminiProvider":
        """Return another model on the same client; closing any of them closes it."""
        own = copy(self)
        own._set_model(model)
        changes = {"model": model, "include_thoughts": _true_if_thinking_model(model), "profile": None}
        own._model = self._model.model_copy(update=changes)
        return own

    def _set_model(self, model: str) -> None:
        self._body, self._encoded = GeminiBodyBuilder(model), BodyEncoder()
        self._fixed = model in FIXED_SAMPLING

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Chunk, None]:
        """Make the request once."""
        answers = list[Any]()
        _CONTENTS.set(self._encoded(self._body(request)))
        _ANSWERS.set(answers)
        options: dict[str, Any] = {
            "http_options": {"extra_body": {"contents": _PLACE}},
            "automatic_function_calling": {"disable": True},  # otherwise the SDK copies its request again
        }
        if not self._fixed:
            options["temperature"] = request.temperature
        if request.most:
            options["max_output_tokens"] = request.most
        if request.thinking != "auto" and _true_if_thinking_model(request.model):
            options |= _thinking_options(request.model, request.thinking)
        if request.feature == "picture":
            options["response_modalities"] = [Modality.TEXT, Modality.IMAGE]
        if request.schema is not None:
            options |= {
                "response_mime_type": "application/json",
                "response_json_schema": dict(request.schema),
            }
        async with aclosing(_stream_messages(self._model, options)) as pieces:
            try:
                async for piece in pieces:
                    yield _to_chunk(piece)
            finally:
                for answer in answers:
                    await answer.aclose()

    async def aclose(self) -> None:
        await self._model.aclose()
        await self._http.aclose()


async def _stream_messages(model: _Client, options: dict[str, Any]) -> AsyncGenerator[AIMessageChunk, None]:
    """Like `astream` without its callbacks, which are unused here and cost a tenth of a request."""
    source = model._astream(_REPLACED, **options)  # pyright: ignore[reportPrivateUsage, reportUnknownMemberType]
    async with aclosing(cast(AsyncGenerator[ChatGenerationChunk], source)) as found:
        async for piece in found:
            message = cast(AIMessageChunk, piece.message)
            message.response_metadata = {**(piece.generation_info or {}), **message.response_metadata}
            yield message


def _true_if_thinking_model(model: str) -> bool | None:
    return True if _THINKS.match(model) and not model.endswith("-image") else None


def _thinking_options(model: str, level: Thinking) -> dict[str, Any]:
    if model.startswith("gemini-2.5"):
        return {"thinking_budget": _BUDGETS[level]}
    return {"thinking_level": level}


@contextmanager
def hide_vertex_variables() -> Generator[None]:
    """Hide variables that override the SDK's `vertexai=False` and then require a Google Cloud project."""
    names = ("GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_GENAI_USE_ENTERPRISE")
    taken = {name: os.environ.pop(name) for name in names if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(taken)


def _to_chunk(message: AIMessageChunk) -> Chunk:
    text, thought, signature = _split_text_and_thought(message.content)
    finish = cast("str | None", message.response_metadata.get("finish_reason"))
    reason, problem = normalize_finish_reason("Gemini", finish, {"max_tokens": "length"})
    feedback = cast("Mapping[str, Any] | None", message.response_metadata.get("prompt_feedback"))
    if blocked := (feedback or {}).get("block_reason"):
        name = str(getattr(blocked, "name", blocked))
        reason, problem = "prompt_blocked", f"Gemini refused the request: {name}."
    sources = cast("Mapping[str, Any] | None", message.response_metadata.get("grounding_metadata"))
    return Chunk(
        text=text + _format_sources(sources or {}),
        data=_extract_pictures(message.content),
        thought=thought,
        calls=_to_parsed_calls(message),
        signature=signature,
        finish_reason=reason,
        problem=problem,
        usage=to_usage(cast("Mapping[str, Any] | None", message.usage_metadata)),
    )


def _split_text_and_thought(content: Any) -> tuple[str, str, str | None]:
    """Return text, thought and the text's signature. Content is a string, or a list of strings and typed blocks."""
    text, thought, signature = "", "", None
    for block in [content] if isinstance(content, str) else content:
        if isinstance(block, str):
            text += block
        elif block.get("type") == "thinking":
            thought += block.get("thinking") or ""
        elif block.get("type") == "text":
            text += block.get("text") or ""
            signature = block.get("extras", {}).get("signature") or signature
    return text, thought, signature


def _extract_pictures(content: Any) -> tuple[DataPart, ...]:
    typed = (cast(Json, block) for block in content if isinstance(block, dict))
    pictures = (block["image_url"]["url"] for block in typed if block.get("type") == "image_url")
    urls = [str(url).partition(";base64,") for url in pictures]
    return tuple(
        DataPart(type="image", mime_type=head.removeprefix("data:"), data=data) for head, _, data in urls
    )


def _format_sources(grounding: Mapping[str, Any]) -> str:
    """Format the sources to append to the answer's text."""
    found = [chunk.get("web") for chunk in grounding.get("grounding_chunks") or ()]
    named = [
        f"[{n}] {web.get('title') or web.get('uri')} ({web.get('uri')})"
        for n, web in enumerate(found, 1)
        if web
    ]
    return "\n\nSources:\n" + "\n".join(named) if named else ""


def _to_parsed_calls(message: AIMessageChunk) -> tuple[ParsedCall, ...]:
    signatures = cast("dict[str, str]", message.additional_kwargs.get(_SIGNATURES, {}))
    return tuple(
        ParsedCall(
            name=call["name"] or "",
            args=json.loads(call["args"] or "{}"),
            id=None if _RANDOM_ID.fullmatch(call["id"] or "") else call["id"],
            signature=signatures.get(call["id"] or ""),
        )
        for call in message.tool_call_chunks
    )
