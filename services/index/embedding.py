"""embedding: text embeddings from Gemini, any OpenAI-compatible endpoint or a small local model."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib import import_module
from itertools import chain
from typing import Any

from interlock.services.models.names import find_gemini_key
from interlock.services.models.network import make_tls_context
from interlock.services.packages import outdated_package_problem
from interlock.services.secrets.redaction import Redactor
from interlock.state.calls import ToolError
from interlock.state.names import GEMINI_KEYS, GEMINI_URL

_OPENAI_URL = "https://api.openai.com/v1"
_BATCH, _AT_ONCE = 60, 8
"""Texts per request (Roo Code), and concurrent requests."""
_TRIES, _DELAY_S = 4, 0.5
"""Attempts in total and initial delay, which doubles (Roo Code)."""
_TIMEOUT_S = 60.0
_OK = 200
_AGAIN = (429, 500, 502, 503, 504)
_EXTRA = "run: interlock install search"

Vectors = Sequence[Sequence[float]]
_EmbedFunction = Callable[[list[str], bool], Awaitable[Vectors]]
"""Takes texts, and whether they are queries."""


class _TryAgain(Exception):  # noqa: N818 - no fault yet
    """The endpoint is busy; the text says what it answered."""


class Embedder:
    """One embedding model, named as in settings. Loaded and connected on first use."""

    def __init__(self, name: str, env: Mapping[str, str], redact: Redactor) -> None:
        """`name`: a Gemini id, `openai:MODEL` or `model2vec:FOLDER`."""
        self.name = name
        self._env, self._redact = env, redact
        self._ask: _EmbedFunction | None = None

    @property
    def identity(self) -> str:
        """Identifies compatible vectors: the model and where it is served."""
        served = self._env.get("OPENAI_BASE_URL", "") if self.name.startswith("openai:") else ""
        return f"{self.name} {served}".strip()

    async def embed_texts(self, texts: Sequence[str], *, is_query: bool = False) -> list[bytes]:
        """Return normalized float32 vectors. Raises `ToolError` with a one-line message."""
        if self._ask is None:
            self._ask = await asyncio.to_thread(self._make_embed_function)
        slots = asyncio.Semaphore(_AT_ONCE)
        parts = [list(texts[at : at + _BATCH]) for at in range(0, len(texts), _BATCH)]
        found = await asyncio.gather(*(self._embed_batch(part, is_query, slots) for part in parts))
        return await asyncio.to_thread(_normalize_and_encode_vectors, list(chain.from_iterable(found)))

    async def _embed_batch(self, texts: list[str], is_query: bool, semaphore: asyncio.Semaphore) -> Vectors:
        assert self._ask is not None
        async with semaphore:
            for attempt in range(_TRIES):
                try:
                    found = await self._ask(texts, is_query)
                except _TryAgain as busy:
                    if attempt == _TRIES - 1:
                        raise self._to_tool_error(str(busy)) from None
                    await asyncio.sleep(_DELAY_S * 2**attempt)
                    continue
                if len(found) != len(texts):
                    raise self._to_tool_error(f"it gave {len(found)} vectors for {len(texts)} texts")
                return found
        raise AssertionError

    def _to_tool_error(self, why: str) -> ToolError:
        return ToolError("embedding_failed", f"The embedding model {self.name!r} failed: {why}.")

    def _make_embed_function(self) -> _EmbedFunction:
        provider, colon, model = self.name.partition(":")
        if not colon:
            return self._make_gemini_embed_function(self.name)
        makers = {
            "openai": self._make_openai_embed_function,
            "model2vec": self._make_model2vec_embed_function,
            "gemini": self._make_gemini_embed_function,
        }
        if provider in makers:
            return makers[provider](model)
        raise self._to_tool_error("expected a Gemini id, openai:MODEL or model2vec:FOLDER")

    def _make_openai_embed_function(self, model: str) -> _EmbedFunction:
        import httpx

        url = f"{(self._env.get('OPENAI_BASE_URL') or _OPENAI_URL).rstrip('/')}/embeddings"
        key = self._env.get("OPENAI_API_KEY", "")
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        trusted = make_tls_context(url)

        async def ask(texts: list[str], question: bool) -> Vectors:  # noqa: ARG001 - its models take no task
            body = {"model": model, "input": [self._redact(text) for text in texts]}
            try:
                async with httpx.AsyncClient(timeout=_TIMEOUT_S, headers=headers, verify=trusted) as client:
                    answer = await client.post(url, json=body)
            except httpx.TransportError as error:
                raise _TryAgain(f"{url}: {error or type(error).__name__}") from error
            except (httpx.HTTPError, httpx.InvalidURL) as error:
                raise self._to_tool_error(f"{url}: {error}") from error
            if answer.status_code in _AGAIN:
                raise _TryAgain(f"{url} answered {answer.status_code}")
            if answer.status_code != _OK:
                raise self._to_tool_error(f"{url} answered {answer.status_code} {answer.text[:200]!r}")
            try:
                rows = sorted(answer.json()["data"], key=lambda row: row["index"])
                return [row["embedding"] for row in rows]
            except (ValueError, KeyError, TypeError) as error:
                raise self._to_tool_error(f"{url} answered something else than embeddings") from error

        return ask

    def _make_gemini_embed_function(self, model: str) -> _EmbedFunction:
        key = find_gemini_key(self._env)
        if key is None:
            raise self._to_tool_error(f"no API key: {' or '.join(GEMINI_KEYS)} is expected")
        if why := outdated_package_problem("google-genai"):
            raise self._to_tool_error(why)
        from langchain_google_genai import GoogleGenerativeAIEmbeddings
        from langchain_google_genai._common import GoogleGenerativeAIError

        from interlock.services.models.gemini import hide_vertex_variables

        url = self._env.get("GOOGLE_GEMINI_BASE_URL") or GEMINI_URL
        with hide_vertex_variables():
            client = GoogleGenerativeAIEmbeddings(
                model=model,
                api_key=key,  # pyright: ignore[reportArgumentType, reportCallIssue]
                base_url=url,
                vertexai=False,
            )

        async def ask(texts: list[str], question: bool) -> Vectors:
            task = "CODE_RETRIEVAL_QUERY" if question else "RETRIEVAL_DOCUMENT"
            try:
                sent = [self._redact(text) for text in texts]
                return await client.aembed_documents(sent, batch_size=_BATCH, task_type=task)
            except GoogleGenerativeAIError as error:
                code = getattr(error.__cause__, "code", None)
                why = " ".join(str(error.__cause__ or error).split())[:200]
                if code is None or code in _AGAIN:
                    raise _TryAgain(why) from error
                raise self._to_tool_error(why) from error

        return ask

    def _make_model2vec_embed_function(self, folder: str) -> _EmbedFunction:
        try:
            loader: Any = import_module("model2vec")
        except ImportError as error:
            raise self._to_tool_error(f"it isn't installed: {_EXTRA}") from error
        try:
            model = loader.StaticModel.from_pretrained(folder)
        except Exception as error:  # any error its loaders raise
            raise self._to_tool_error(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from error

        async def ask(texts: list[str], question: bool) -> Vectors:  # noqa: ARG001 - it has one task
            return await asyncio.to_thread(model.encode, texts)

        return ask


def _normalize_and_encode_vectors(vectors: Vectors) -> list[bytes]:
    try:
        np: Any = import_module("numpy")
    except ImportError as error:
        raise ToolError("embedding_failed", f"Vectors need numpy: {_EXTRA}") from error
    if not vectors:
        return []
    made = np.asarray(vectors, dtype=np.float32)
    made /= np.maximum(np.linalg.norm(made, axis=1, keepdims=True), 1e-12)
    return [row.tobytes() for row in made]
