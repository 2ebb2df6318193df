"""failure: interprets client exceptions: whether and when to retry, and what to report.

Uses only what all clients' exceptions share (a status, a response, a cause), so that no client is imported.
"""

import asyncio
import re
import socket
import ssl
import sys
import time
import traceback
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from random import Random
from typing import TYPE_CHECKING, TypeVar

from interlock.services.models.response_body import ExtendableTimeout, subscribe_to_body_bytes
from interlock.state.errors import InterlockError, ModelAuthError, ModelError

if TYPE_CHECKING:
    from interlock.services.models.provider_errors import Meaning, ProviderError

ATTEMPTS = 10
"""Maximum attempts in total (gemini-cli: 10)."""
PATIENCE_S = 150.0
"""No attempt begins after this, nor does a delay that ends after it; with the last attempt's maximum (a quarter of a
stall) that makes 3 minutes."""
_LONGEST_S = 60.0
"""If a server asks for a longer delay, the request fails instead."""
_YEAR_S = 366 * 86_400.0
"""A longer delay counts as this: no calendar holds every number that a server can send."""
_START_S, _FACTOR, _MAX_S, _JITTER = 5.0, 2.0, 30.0, 0.3
"""Constants of gemini-cli."""


@dataclass(frozen=True)
class Backoff:
    """Delays between attempts. `scale` shortens all of them, including the server's; `random` can be seeded."""

    scale: float = 1.0
    random: Random = field(default_factory=Random)
    patience_s: float = PATIENCE_S

    def delay_s(self, failures: int, error: ModelError) -> float:
        """Return the seconds to wait after this many consecutive failures (1 or more)."""
        if error.retry_after_s is not None:
            return error.retry_after_s * self.scale
        base = min(_MAX_S, _START_S * _FACTOR ** (failures - 1))
        return base * (1 + self.random.uniform(-_JITTER, _JITTER)) * self.scale

    def give_up_reason(
        self, error: ModelError, failures: int, elapsed_s: float, delay_s: float, now: float
    ) -> str:
        """Return why another attempt after `delay_s` is pointless and when to come back, or an empty string.

        `now` is Unix time.
        """
        asked_s = min(error.retry_after_s or 0.0, _YEAR_S)
        if asked_s > _LONGEST_S:
            back = time.strftime("%Y-%m-%d %H:%M", time.localtime(now + asked_s))
            return f"It asks to wait {_format_seconds(asked_s)}, until {back}."
        if elapsed_s + delay_s > self.patience_s:
            return f"Given up after {failures} attempts in {_format_seconds(elapsed_s)}."
        return ""


def _format_seconds(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


T = TypeVar("T")


class StalledError(TimeoutError):
    """No output arrived within the time limit."""


_FIRST = " (models.NAME.firstTokenTimeout sets this limit)"
_PARTS = 4
"""Parts of a stall; `on_silence` is called after each but the last."""
_TOLERANCE = 0.05
"""Share by which a timer may be early, or bytes at the beginning of a wait be late."""


async def stream_with_timeouts(
    source: AsyncGenerator[T, None],
    *,
    stall_s: float,
    total_s: float | None,
    first_s: float | None = None,
    is_output: Callable[[T], bool] = lambda _item: True,
    on_silence: Callable[[float, float], None] = lambda _seconds, _limit: None,
) -> AsyncGenerator[T, None]:
    """Yield from `source`, which is always closed.

    Raises `StalledError` after `stall_s` without a byte or an item (`first_s` until one `is_output`; pings alone count
    for ten minutes), `TimeoutError` after `total_s` overall. `on_silence` is called after each of the first three
    quarters of a stall, with the seconds after which the wait ends.
    """
    loop = asyncio.get_running_loop()
    deadline = None if total_s is None else loop.time() + total_s
    lasting_s, stall_s, limit = stall_s, first_s or stall_s, _FIRST
    async with aclosing(source):
        while True:
            left_s = None if deadline is None else deadline - loop.time()
            wait_s = stall_s if left_s is None else min(left_s, stall_s)
            # In this task: one of its own for each piece, and a wait for it, took 2 % of a turn.
            timer = asyncio.timeout(wait_s)
            timeout = ExtendableTimeout(timer, stall_s, deadline)
            reminders = [*_schedule_silence_warnings(loop, stall_s, wait_s, timeout, on_silence)]
            try:
                async with timer:
                    with subscribe_to_body_bytes(timeout.extend_on_activity):
                        item = await anext(source)
            except StopAsyncIteration:
                return
            except Exception as error:
                if not timer.expired():
                    raise
                if deadline is not None and loop.time() >= deadline:
                    raise TimeoutError(f"over {total_s:g} s") from error
                raise StalledError(f"{timeout.describe_silence()}{limit}") from error
            finally:
                for reminder in reminders:
                    reminder.cancel()
            yield item
            if is_output(item):
                stall_s, limit = lasting_s, ""


def _schedule_silence_warnings(
    loop: asyncio.AbstractEventLoop,
    stall_s: float,
    limit_s: float,
    timeout: ExtendableTimeout,
    on_silence: Callable[[float, float], None],
) -> Iterator[asyncio.TimerHandle]:
    """Report silence after each part of a stall but the last, as far as the wait lasts."""

    def remind(seconds: float) -> None:
        if timeout.silent_s >= seconds * (1 - _TOLERANCE):
            on_silence(seconds, limit_s)

    for part in range(1, _PARTS):
        if (silent_s := stall_s * part / _PARTS) < limit_s:
            yield loop.call_later(silent_s, remind, silent_s)


_TRANSPORT = ("APIConnectionError", "APITimeoutError", "UnknownApiResponseError", "JSONDecodeError")
_LOST = frozenset({"TransportError", "DecodingError"})
"""Classes of httpx, and of httpx2, which some clients prefer."""
_ABSENT = ("ConnectError", "ClientConnectorError", "ClientConnectorDNSError")
"""Exceptions of httpx and aiohttp for failed connections."""
_ABSENT_ATTEMPTS, _ABSENT_S = 3, 1.0
_TLS = (
    (
        re.compile("CERTIFICATE_VERIFY_FAILED"),
        "Its certificate isn't trusted: name the file of its authority in SSL_CERT_FILE or NODE_EXTRA_CA_CERTS.",
    ),
    (
        re.compile("WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|RECORD_LAYER_FAILURE|PACKET_LENGTH_TOO_LONG"),
        "It speaks no TLS: its address may have to begin with http://",
    ),
)
"""What TLS says where no waiting helps → what to do."""
_CLOSED = re.compile("ConnectionResetError|RemoteProtocolError|ReadError")
_MAYBE_TLS = "If it expects TLS, its address has to begin with https://"
_PLAIN = ("builtins", "pydantic_core._pydantic_core")
"""Modules of exceptions that any code can raise."""
_ADVICE: Mapping["Meaning", str] = {
    "key": "Check the API key, or use another model with -m.",
    "used_up": "The quota is used up: use another model with -m.",
    "absent": "Name another model with -m, or in model.aliases.",
    "overflow": "",
    "busy": "",
    "": "",
}
_NEVER = re.compile(
    r"Illegal header (value|name)|missing an '?https?://|UnsupportedProtocol|InvalidURL", re.I
)
"""What clients say of a key or an address that no repetition mends."""
_CAUSES = 5
"""Maximum length of the cause chain searched (gemini-cli: 5)."""


def to_model_error_or_reraise(error: Exception, model: str, now: float) -> ModelError:
    """Convert a client's exception to a `ModelError`; our own bugs are re-raised unchanged.

    `now` is Unix time, for dates in Retry-After.
    """
    if isinstance(error, ModelError):
        return error
    if isinstance(error, InterlockError) or _is_our_bug(error):
        raise error
    if isinstance(error, StalledError):
        return ModelError(f"Model {model!r} does not answer: {error}.", retryable=True, attempts=1)
    from interlock.services.models.provider_errors import (
        classify_error_text,
        parse_provider_error,
    )  # late: most runs fail at nothing

    for cause in _iterate_error_and_causes(error):
        if told := parse_provider_error(cause):
            return _convert_provider_error(told, model, now)
        if _NEVER.search(f"{type(cause).__name__} {cause}"):
            says = f"Model {model!r} can't be asked: {_shorten_to_line(str(cause))} Correct its API key or its address."
            return ModelError(says)
    for cause in _iterate_error_and_causes(error):
        if _is_transport_error(cause):
            inner = _most_informative_cause(cause)
            why = _shorten_to_line(str(inner)).rstrip(".") or "no text"
            says = f"Model {model!r} could not be reached: {type(inner).__name__}: {why}."
            if advice := next((does for named, does in _TLS if named.search(why)), ""):
                return ModelError(f"{says} {advice}")
            if any(map(_was_sent_without_tls, _iterate_error_and_causes(error))) and _CLOSED.search(
                type(inner).__name__
            ):
                says += f" {_MAYBE_TLS}"
            if any(map(_is_unreachable, _iterate_error_and_causes(error))):
                says += " Check the connection and the address."
                return ModelError(says, retryable=True, attempts=_ABSENT_ATTEMPTS, retry_after_s=_ABSENT_S)
            return ModelError(says, retryable=True)
    says = f"The request to model {model!r} failed: {type(error).__name__}: {_shorten_to_line(str(error))}"
    means = classify_error_text(f"{type(error).__name__} {error}")
    if means == "key":
        return ModelAuthError(_add_advice(says, means))
    overflow = means == "overflow" or "ContextOverflow" in type(error).__name__
    return ModelError(_add_advice(says, means), overflow=overflow, terminal=means in ("used_up", "absent"))


def _add_advice(text: str, meaning: "Meaning") -> str:
    """Return what an error says with what to do about it, as sentences of their own."""
    end = "" if re.search(r"[.!?…]$", text) else "."
    return f"{text}{end} {_ADVICE[meaning]}" if _ADVICE[meaning] else text


def _convert_provider_error(provider_error: "ProviderError", model: str, now: float) -> ModelError:
    status, means = provider_error.status, provider_error.meaning
    text = f"Model {model!r} answered {status}: {_shorten_to_line(provider_error.text) or 'no reason given.'}"
    says = _add_advice(text, means)
    if means == "key":
        return ModelAuthError(says, status=status)
    if means in ("used_up", "absent"):
        return ModelError(says, status=status, terminal=True)
    if means == "overflow":
        return ModelError(says, status=status, overflow=True)
    delay_s = _parse_retry_delay_s(provider_error, now)
    return ModelError(says, status=status, retryable=means == "busy", retry_after_s=delay_s)


def _is_transport_error(error: BaseException) -> bool:
    """Return whether it is a reset, time-out, or invalid gzip or JSON: a repeated request may succeed."""
    lost = (ConnectionError, TimeoutError, socket.gaierror, ssl.SSLError, UnicodeDecodeError)
    of_client = (c.__name__ for c in type(error).__mro__ if c.__module__.startswith("httpx"))
    return isinstance(error, lost) or type(error).__name__ in _TRANSPORT or not _LOST.isdisjoint(of_client)


def _most_informative_cause(error: BaseException) -> BaseException:
    """Return the cause that says most: clients wrap it as "Connection error."."""
    said = [
        c
        for c in _iterate_error_and_causes(error)
        if str(c) and (_is_transport_error(c) or type(c).__module__.startswith("http"))
    ]
    return said[-1] if said else error


def _was_sent_without_tls(error: BaseException) -> bool:
    """Return whether it is of a request that a client sent without TLS."""
    return str(getattr(getattr(error, "_request", None), "url", "")).startswith("http://")


def _is_unreachable(error: BaseException) -> bool:
    """Return whether nothing listens there or the host is unknown: long waiting won't help."""
    return isinstance(error, (ConnectionRefusedError, socket.gaierror)) or type(error).__name__ in _ABSENT


def _is_our_bug(error: Exception) -> bool:
    """Return whether it is a bug of this program: raised in our own code, not in a client."""
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    roots = [name.partition(".")[0] for name in names]
    inner = next((root for root in reversed(roots) if root not in sys.stdlib_module_names), "")
    return inner == "interlock" and not _is_transport_error(error) and type(error).__module__ in _PLAIN


def is_empty_stream_error(error: Exception) -> bool:
    """Return whether LangChain reports a stream without chunks: for every provider, an answer without a finish
    reason."""
    return isinstance(error, ValueError) and "No generation chunks" in str(error)


def _iterate_error_and_causes(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    for _ in range(_CAUSES):
        if at is None:
            return
        yield at
        at = at.__cause__ or at.__context__


def _shorten_to_line(text: str) -> str:
    """Return a text as one short line: some servers answer with pages of HTML."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:300]}…"


def _parse_retry_delay_s(provider_error: "ProviderError", now: float) -> float | None:
    """Return the delay in seconds from RetryInfo, else from Retry-After-Ms or Retry-After (seconds or a date)."""
    for detail in provider_error.details:
        if str(detail.get("@type", "")).endswith("RetryInfo"):
            match = re.fullmatch(r"(\d+(?:\.\d+)?)s", str(detail.get("retryDelay", "")))
            if match:
                return float(match[1])
    milliseconds, value = (
        provider_error.headers.get(name, "").strip() for name in ("retry-after-ms", "retry-after")
    )
    if re.fullmatch(r"\d+(\.\d+)?", milliseconds):
        return float(milliseconds) / 1000
    if re.fullmatch(r"\d+(\.\d+)?", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now) if value else None
    except ValueError:
        return None
