"""failure: what a client's exception means: whether to ask again, when, and what to tell.

Works on what all clients' exceptions have in common (a status, a response, a cause), so that no client is imported.
"""

import json
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, cast

from interlock.state.errors import InterlockError, ModelAuthError, ModelError

_RETRIED = frozenset({408, 429, 499})
_TRANSPORT = ("APIConnectionError", "APITimeoutError", "UnknownApiResponseError", "JSONDecodeError")
_OVERFLOW = re.compile(
    r"exceeds the maximum number of tokens|context_length_exceeded|maximum context length|prompt is too long",
    re.I,
)
_BAD_KEY = re.compile(r"API[ _]key (not valid|expired|not found)|API_KEY_INVALID|invalid.{0,8}api.key", re.I)
_USED_UP = re.compile(r"Per(Day|Month)|Daily|QUOTA_EXHAUSTED|insufficient_quota", re.I)
_CAUSES = 5
"""How deep a chain of causes is searched (gemini-cli: 5)."""


def explain(error: Exception, model: str, now: float) -> ModelError:
    """The `ModelError` that an exception of a client stands for. `now` is Unix time, for dates in Retry-After."""
    if isinstance(error, ModelError):
        return error
    if isinstance(error, InterlockError):
        raise error
    for cause in _causes(error):
        status = _status(cause)
        if status is not None:
            return _answered(cause, status, model, now)
        if _is_lost(cause):
            return ModelError(
                f"Model {model!r} could not be reached: {type(cause).__name__}: {_line(str(cause)) or 'no text'}.",
                retryable=True,
            )
    overflow = "ContextOverflow" in type(error).__name__ or bool(_OVERFLOW.search(str(error)))
    return ModelError(
        f"The request to model {model!r} failed: {type(error).__name__}: {_line(str(error))}",
        overflow=overflow,
    )


def _answered(error: BaseException, status: int, model: str, now: float) -> ModelError:
    details, text = _details(error), _text(error)
    says = f"Model {model!r} answered {status}: {text}"
    evidence = f"{error} {json.dumps(details, default=str)}"
    if status in (401, 403) or (status == 400 and _BAD_KEY.search(evidence)):
        return ModelAuthError(f"{says} Check the API key, or use another model with -m.", status=status)
    if status == 404:
        return ModelError(
            f"{says} Name another model with -m, or in model.aliases.", status=status, terminal=True
        )
    if status < 500 and status != 429 and _OVERFLOW.search(evidence):
        return ModelError(says, status=status, overflow=True)
    used_up = status in (402, 429) and bool(_USED_UP.search(evidence))
    return ModelError(
        f"{says} The quota is used up: use another model with -m." if used_up else says,
        status=status,
        retryable=not used_up and (status in _RETRIED or status >= 500),
        retry_after_s=_server_delay(error, details, now),
        terminal=used_up,
    )


def _is_lost(error: BaseException) -> bool:
    """Resets, time-outs, answers that are no JSON: the request may work when it is made again."""
    import httpx

    lost = (httpx.TransportError, ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError)
    return isinstance(error, lost) or type(error).__name__ in _TRANSPORT


def _causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    for _ in range(_CAUSES):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def _status(error: BaseException) -> int | None:
    """google-genai says `code`, others `status_code`; some have only the response."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 400 <= value < 600:
                return value
    return None


def _details(error: BaseException) -> list[Mapping[str, Any]]:
    """Google's `error.details`: RetryInfo, QuotaFailure, ErrorInfo."""
    body = getattr(error, "details", None)
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    inner = cast("Mapping[str, Any]", body).get("error") if isinstance(body, Mapping) else None
    details = cast("Mapping[str, Any]", inner).get("details") if isinstance(inner, Mapping) else None
    return (
        [d for d in cast("list[Any]", details) if isinstance(d, Mapping)] if isinstance(details, list) else []
    )


def _text(error: BaseException) -> str:
    text = getattr(error, "message", None)
    return _line(text if isinstance(text, str) and text else str(error)) or "no reason given."


def _line(text: str) -> str:
    """One line, short: servers answer with pages of HTML too."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]}…"


def _server_delay(error: BaseException, details: list[Mapping[str, Any]], now: float) -> float | None:
    """Seconds from RetryInfo, else from Retry-After (seconds, or a date)."""
    for detail in details:
        if str(detail.get("@type", "")).endswith("RetryInfo"):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay", "")))
            if match:
                return float(match[1])
    headers = cast("Mapping[str, str] | None", getattr(getattr(error, "response", None), "headers", None))
    value = (headers or {}).get("retry-after", "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now) if value else None
    except ValueError:
        return None
