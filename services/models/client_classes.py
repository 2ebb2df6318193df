"""client_classes: the providers' clients, by subclasses without faults of their packages, which `docs/models.md` names.

Their HTTP clients hear of each byte of an answer (`response_body`), and requests carry marks for caches (`caching`).
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextvars import copy_context
from functools import cache, cached_property
from importlib import import_module
from typing import Any, TypeVar, cast

from interlock.services.models.caching import Json, add_anthropic_cache_marks, add_bedrock_cache_marks
from interlock.services.models.names import PUBLIC_URLS, REGION
from interlock.services.models.network import make_tls_context
from interlock.services.models.response_body import prepare_streamed_response
from interlock.services.models.thinking import is_openai_client_class
from interlock.state.messages import Usage

INITIAL_USAGE = "interlock_begun"
"""Key of a piece's `response_metadata`: the usage that the beginning of Anthropic's stream tells."""
_UNASKED = "unasked"
"""What `reasoning` is for Ollama where no level is set: its client drops the thoughts of models that think unasked."""
_ARN = "arn:"


def subclass_with_fixes(cls: type[Any]) -> type[Any]:
    """Return the client class without the faults that a subclass can mend."""
    name = next((one.__name__ for one in cls.__mro__ if one.__name__ in _FIXES), "")
    return _FIXES[name](cls) if name else cls


def parse_ollama_usage(metadata: Mapping[str, Any]) -> Usage | None:
    """Return what Ollama counted, which its client drops where a prompt was cached. `metadata`: a piece's metadata."""
    counts = [metadata.get(name) for name in ("prompt_eval_count", "eval_count")]
    return None if counts == [None, None] else Usage(input=counts[0] or 0, output=counts[1] or 0)


def _bedrock_model_vendor(model: str) -> str:
    """Return whose model an id of Bedrock names. That of an application's profile is found by its client later."""
    own = REGION.sub("", model, count=1)
    return own.partition(".")[0] if "." in own else "anthropic"


@cache
def _subclass_anthropic(cls: type[Any]) -> type[Any]:
    class Heard(cls):
        """Asks by a client of ours, marks requests, and tells tokens that only the beginning of a stream has."""

        @cached_property
        def _async_client(self) -> Any:
            anthropic, options = import_module("anthropic"), self._client_params
            made = _make_http_client("anthropic", str(options.get("base_url") or ""))
            return anthropic.AsyncClient(**options, http_client=made)

        def _get_request_payload(self, *request: Any, cache_control: Any = None, **options: Any) -> Json:
            own: Any = super()
            payload: Json = own._get_request_payload(*request, **options)
            if cache_control is not None:
                add_anthropic_cache_marks(payload, cache_control)
            return payload

        def _make_message_chunk_from_anthropic_event(self, event: Any, **options: Any) -> Any:
            own: Any = super()
            made: Any = own._make_message_chunk_from_anthropic_event(event, **options)
            if event.type == "message_start" and made[0] is not None:
                told = event.message.usage
                cached, written = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
                total = (told.input_tokens or 0) + cached + written
                made[0].response_metadata[INITIAL_USAGE] = Usage(input=total, cached=cached, written=written)
            return made

    return Heard


@cache
def _subclass_bedrock(cls: type[Any]) -> type[Any]:
    class Resolved(cls):
        """Knows whose model an application's profile stands for, marks requests, and blocks only a thread."""

        def _configure_streaming_for_resolved_model(self) -> None:
            own: Any = super()
            if base := cast(Any, self).base_model_id:
                cast(Any, self).provider = _bedrock_model_vendor(base)
            own._configure_streaming_for_resolved_model()

        def _apply_cache_points(
            self, cache_control: Any, system: list[Json], bedrock_messages: list[Json], params: Json
        ) -> None:
            if cache_control is not None:
                model = cast(Any, self)._get_base_model()
                add_bedrock_cache_marks(model, system, bedrock_messages, params, cache_control)

        async def _astream(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
        ) -> AsyncGenerator[Any]:
            own, manager = cast(Any, self), run_manager.get_sync() if run_manager else None
            async for piece in iterate_in_thread(lambda: own._stream(messages, stop, manager, **options)):
                yield piece

        async def _agenerate(
            self, messages: Any, stop: Any = None, run_manager: Any = None, **options: Any
        ) -> Any:
            own, manager = cast(Any, self), run_manager.get_sync() if run_manager else None
            answers = iterate_in_thread(lambda: iter([own._generate(messages, stop, manager, **options)]))
            (answer,) = [one async for one in answers]
            return answer

    return Resolved


@cache
def _subclass_ollama(cls: type[Any]) -> type[Any]:
    class Thinking(cls):
        """Keeps thoughts also where no level was asked for."""

        def _chat_params(self, *request: Any, **options: Any) -> dict[str, Any]:
            own: Any = super()
            params: dict[str, Any] = own._chat_params(*request, **options)
            return {**params, "think": None if params.get("think") == _UNASKED else params.get("think")}

    return Thinking


_FIXES = {
    "ChatAnthropic": _subclass_anthropic,
    "ChatBedrockConverse": _subclass_bedrock,
    "ChatOllama": _subclass_ollama,
}


_HOOKS = {"response": [prepare_streamed_response]}


def extra_constructor_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the subclass of a LangChain class needs, most of which give it an HTTP client of ours."""
    url = str(options.get("base_url") or options.get("azure_endpoint") or "")
    names = {one.__name__ for one in cls.__mro__}
    if is_openai_client_class(cls):
        return {"http_async_client": _make_http_client("openai", url)}
    if "ChatGroq" in names:
        return {"http_async_client": _make_http_client("groq", url)}
    if "ChatOllama" in names:
        return {"reasoning": _UNASKED, "async_client_kwargs": {"event_hooks": _HOOKS}}
    if "ChatBedrockConverse" in names and options["model"].startswith(_ARN):
        return {"provider": _bedrock_model_vendor(options["model"].rpartition("/")[2])}
    return _mistral_client_options(options) if "ChatMistralAI" in names else {}


def _make_http_client(package: str, url: str) -> Any:
    """Return the package's default client. It loads no certificates for a plain address: that takes 20 ms."""
    return import_module(package).DefaultAsyncHttpxClient(verify=make_tls_context(url), event_hooks=_HOOKS)


def _mistral_client_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options with the client that LangChain would make, but for the certificates, which it takes from nowhere else."""
    import httpx

    url = options.get("base_url") or PUBLIC_URLS["mistralai"]
    headers = {"Accept": "application/json", "Authorization": f"Bearer {options.get('api_key', '')}"}
    made = httpx.AsyncClient(
        base_url=url, headers=headers, timeout=None, verify=make_tls_context(url), event_hooks=_HOOKS
    )
    return {"async_client": made}


T = TypeVar("T")


async def iterate_in_thread(make_iterator: Callable[[], Iterator[T]]) -> AsyncGenerator[T]:
    """Yield what the iterator of `make_iterator` yields, both called in a daemon thread. Raises what they raise.

    So neither a stop nor the end of the process waits for the next byte of a server whose client can only block. Once
    it is closed, the thread ends with the iterator's next item.
    """
    loop, is_closed = asyncio.get_running_loop(), threading.Event()
    items: asyncio.Queue[tuple[bool, Any]] = asyncio.Queue()
    """Whether it is the last, and an item, or what was raised; the last of an iterator that ended is None."""

    def tell(is_last: bool, item: Any) -> bool:
        if not is_closed.is_set():
            try:
                loop.call_soon_threadsafe(items.put_nowait, (is_last, item))
            except RuntimeError:  # the loop is closed: nobody waits any more
                is_closed.set()
        return not is_closed.is_set()

    def read() -> None:
        try:
            for item in make_iterator():
                if not tell(False, item):
                    return
        except BaseException as error:
            tell(True, error)
        else:
            tell(True, None)

    threading.Thread(target=copy_context().run, args=(read,), daemon=True).start()
    try:
        while True:
            is_last, item = await items.get()
            if not is_last:
                yield item
            elif item is None:
                return
            else:
                raise item
    finally:
        is_closed.set()
