"""provider_errors: what providers' errors mean, by status, code and words, and the window that one names.

Data first, then its readers. Uses only what all clients' exceptions share, so that no client is imported."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from interlock.services.models.sent_messages import mentions_attachment

Meaning = Literal["key", "used_up", "overflow", "absent", "busy", ""]


@dataclass(frozen=True)
class ErrorSign:
    """What an error means that has one of these statuses and says this; 0 is an error without a status."""

    means: Meaning
    statuses: tuple[int, ...]
    says: re.Pattern[str]


def _make_error_sign(meaning: Meaning, statuses: tuple[int, ...], *words: str) -> ErrorSign:
    return ErrorSign(meaning, statuses, re.compile("|".join(words), re.I))


ERROR_SIGNS = (
    _make_error_sign(
        *("used_up", (402, 429)),
        *("Per(Day|Month)", "Daily", "QUOTA_EXHAUSTED", r"\bper[- _](day|month)\b", "ByDay"),
    ),
    _make_error_sign("used_up", (402,), ""),
    _make_error_sign(
        *("used_up", (0, 400, 403, 412, 429)),
        *(
            "insufficient_?quota",
            "exceeded_current_quota",
            "billing_(hard_limit|not_active)",
            "budget_exceeded",
        ),
        *(
            "credit balance is too low",
            "insufficient[ _](account )?(balance|credits?|funds)",
            "out of credits",
        ),
        *(
            "used all available credits",
            "spending limit",
            "account (is )?not active",
            "reached your .{0,20}usage limits",
        ),
        *(
            "Arrearage",
            "AllocationQuota",
            "ServiceQuotaExceeded",
            "budget has been exceeded",
            "key limit exceeded",
        ),
    ),
    _make_error_sign("overflow", (429,), r"request too large[\s\S]*tokens per min"),
    _make_error_sign(
        *("overflow", (0, 400, 413, 422, 500)),
        *(
            "context_length_exceeded",
            "exceed_context_size",
            "ContextWindowExceeded",
            "context_window_exceeded",
        ),
        *("request_too_large", "string_above_max_length", "max_prompt_tokens_exceeded"),
        "maximum (context|prompt|model|input) length",
        "(prompt|input|request|conversation)( is| was|) too long",
        r"(exceed\w*|greater than|larger than|longer than|overflows?|too large for)\b.{0,60}\bcontext\b",
        r"\bcontext (length|window|size|limit)\b.{0,20}\b(exceed|overflow|too)",
        r"exceed\w* (the |your |its |this )?(model'?s? )?(max\w* |model |input |configured )*"
        r"(number of (input )?tokens|token (limit|count)|input (tokens|length)|limit of [\d,]+ tokens)",
        r"reduce the (length|size) of (the|your) (messages|prompt|input|conversation)",
        r"too many (input |prompt |total )?tokens",
        r"prompt (contains|has) .{0,40}tokens.{0,20}too (large|many)",
        r"max_new_tokens`? must be",
        "range of input length should be",
        r"total number of tokens .{0,40}cannot exceed",
        r"decrease input length",
    ),
    _make_error_sign("overflow", (413,), ""),
    _make_error_sign(
        *("key", (0, 400)),
        *(r"API[ _-]?key (not valid|expired|not found)", "API_KEY_INVALID", r"invalid.{0,8}api.key"),
        *("incorrect api key", "UnrecognizedClient", "InvalidSignature", "ExpiredToken", "AccessDenied"),
        *("InvalidClientTokenId", "MissingAuthenticationToken", "authentication_error"),
        *(
            "Unable to locate credentials",
            "Partial credentials",
            "token .{0,20}(has )?expired and refresh failed",
        ),
    ),
    _make_error_sign("", (403,), "moderation", r"\bflagged\b"),
    _make_error_sign("key", (401, 403), ""),
    _make_error_sign("absent", (404,), ""),
    _make_error_sign(
        *("absent", (0, 400)),
        *("model_not_found", "model (identifier|id) is invalid", "is not a valid model", "model not exist"),
        *("invalid model:", "on-demand throughput isn.t supported"),
    ),
)
"""In order: the first that fits counts."""
RETRIED_STATUSES = frozenset({408, 409, 424, 425, 429, 498, 499})
"""Statuses below 500 after which the same request may succeed."""
_CODES = (
    (r"rate.?limit|throttling|too.?many.?requests|modelnotready|resource_exhausted", 429),
    (r"overloaded", 529),
    (r"timeout|timed.?out", 504),
    (r"serviceunavailable|service_unavailable", 503),
    (r"server_?error|api_error|internalserver|internal_error|modelstreamerror|modelerror", 500),
    (r"accessdenied|unrecognizedclient|expiredtoken|permission|authentication", 403),
    (r"resourcenotfound|not_found", 404),
    (r"validationexception|invalid_request|invalid_prompt", 400),
)
"""Words in the codes of errors that come without a status, as those inside of streams → status."""
_WORDS = re.compile(
    r"server had an error|error occurred while processing your request|\boverloaded\b|try again later", re.I
)
"""Said by errors inside of streams that have neither code nor status, but may pass."""
_IN_TEXT = (
    re.compile(r"AWS exception (\w+)"),
    re.compile(r"\bcode='(\w+)'"),
    re.compile(r"^([a-z][a-z_]+): "),
    re.compile(r"^Response \S+ (failed)\.$"),
)
"""How LangChain writes the code of an error inside of a stream into the text of a `ValueError`."""
_FETCHED = re.compile(r"^Error response \d+ while fetching \S+: (.+)$", re.S)
"""How Mistral's client tells of a refusal."""
_QUOTED = re.compile(r"""\bmessage=(['"])(.+?)\1, """)
"""A message in the text of an exception that shows an object."""
_TELLING = frozenset(
    {
        *(
            "message",
            "msg",
            "code",
            "type",
            "status",
            "error",
            "detail",
            "reason",
            "quotaId",
            "raw",
            "details",
        ),
        *("violations", "metadata", "Message", "Code", "Error"),
    }
)
"""Parts of a body that say why; others may repeat the request."""


@dataclass(frozen=True)
class ProviderError:
    """What a provider's error says."""

    status: int
    text: str
    """For people."""
    evidence: str
    """All of its words and codes."""
    headers: Mapping[str, str]
    details: Sequence[Mapping[str, Any]] = ()
    """Google's: RetryInfo, QuotaFailure, ErrorInfo."""

    @property
    def meaning(self) -> Meaning:
        fits = (
            sign for sign in ERROR_SIGNS if self.status in sign.statuses and sign.says.search(self.evidence)
        )
        sign = next(fits, None)
        if sign and sign.means == "overflow" and self.status == 413 and mentions_attachment(self.evidence):
            return ""
        return sign.means if sign else "busy" if self.status in RETRIED_STATUSES or self.status >= 500 else ""


def parse_provider_error(error: BaseException) -> ProviderError | None:
    """Return what a client's exception tells of the provider's error; None if it isn't of a provider."""
    response = getattr(error, "response", None)
    body: Any = getattr(error, "body", None)
    if isinstance(response, Mapping):  # botocore's
        body = cast("Mapping[str, Any]", response)
    if body is None:
        body = getattr(error, "details", None) or _parse_quoted_body(str(error))
    said = [*_iterate_error_strings(body)]
    evidence = "\n".join([str(error), *said])
    status = _http_status(error, body) or _status_from_error_codes(error, body)
    if not status:
        return None
    text = _error_message_in_body(body) or str(getattr(error, "message", "") or error)
    quoted = _QUOTED.search(text)
    text, details = quoted[2] if quoted else text, _google_error_details(getattr(error, "details", None))
    return ProviderError(status, text, evidence, _response_headers(error), details)


def _parse_quoted_body(text: str) -> Any:
    """Return the body that Mistral's client quotes in its text, where it keeps none; None: there is none."""
    found = _FETCHED.search(text)
    try:
        return json.loads(found[1]) if found else None
    except ValueError:
        return None


def classify_error_text(text: str) -> Meaning:
    """Return what an error means of which only the text is known."""
    return ProviderError(0, text, text, {}).meaning


def _http_status(error: BaseException, body: Any) -> int:
    """Return the HTTP status: `code` in google-genai, `status_code` in others, sometimes only on the response."""
    for holder in (error, getattr(error, "response", None)):
        for name in ("status_code", "code"):
            value = getattr(holder, name, None)
            if isinstance(value, int) and 400 <= value < 600:
                return value
    if not isinstance(body, Mapping):
        return 0
    told = cast("Mapping[str, Any]", body)
    value = _mapping_or_empty(told.get("ResponseMetadata")).get("HTTPStatusCode")  # botocore's
    return value if isinstance(value, int) and 400 <= value < 600 else 0


def _status_from_error_codes(error: BaseException, body: Any) -> int:
    """Return the status of an error sent inside a stream that began with 200: by its code, else by its words."""
    inner = _error_object_in_body(body)
    codes = [str(inner[name]) for name in ("code", "type", "Code") if inner.get(name)]
    if isinstance(error, ValueError):
        codes += [found[1] for pattern in _IN_TEXT if (found := pattern.search(str(error)))][:1]
    if number := next((code for code in codes if re.fullmatch("[45][0-9][0-9]", code)), ""):
        return int(number)
    if not codes:
        return 500 if isinstance(error, ValueError) and _WORDS.search(str(error)) else 0
    words = " ".join(codes)
    if classify_error_text(f"{words} {_error_message_in_body(body) or error}") == "overflow":
        return 400
    found = next((status for word, status in _CODES if re.search(word, words, re.I)), 0)
    return found or (500 if codes == ["failed"] else 429 if classify_error_text(words) == "used_up" else 0)


def _error_message_in_body(body: Any) -> str:
    """Return the sentence that a body has for people; OpenAI's client takes it out of some."""
    if isinstance(body, str):
        return body
    inner = _error_object_in_body(body)
    around = _mapping_or_empty(body)
    choices = (
        inner.get("message"),
        inner.get("Message"),
        around.get("message"),
        around.get("error"),
        around.get("detail"),
    )
    return next((text for text in choices if isinstance(text, str) and text), "")


def _google_error_details(body: Any) -> list[Mapping[str, Any]]:
    """Return Google's `error.details` (RetryInfo, QuotaFailure, ErrorInfo), or an empty list for other bodies."""
    found = _error_object_in_body(body).get("details")
    if not isinstance(found, list):
        return []
    return [_mapping_or_empty(detail) for detail in cast("list[Any]", found)]


def _error_object_in_body(body: Any) -> Mapping[str, Any]:
    if isinstance(body, list) and body:
        body = cast("list[Any]", body)[0]
    around = _mapping_or_empty(body)
    return _mapping_or_empty(around.get("error")) or _mapping_or_empty(around.get("Error")) or around


def _mapping_or_empty(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _iterate_error_strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _iterate_error_strings(item)
    else:
        for name, item in _mapping_or_empty(value).items():
            if name in _TELLING:
                yield from _iterate_error_strings(item)


def _response_headers(error: BaseException) -> Mapping[str, str]:
    response = getattr(error, "response", None)
    if isinstance(response, Mapping):
        metadata = _mapping_or_empty(cast("Mapping[str, Any]", response).get("ResponseMetadata"))
        return cast("Mapping[str, str]", _mapping_or_empty(metadata.get("HTTPHeaders")))
    return cast("Mapping[str, str]", getattr(response, "headers", None) or {})


_NUMBER = r"(\d[\d,_.]*\d|\d)"
_LIMITS = (
    re.compile(rf"(?:>|<=) *{_NUMBER}(?!\d)"),
    re.compile(rf"with {_NUMBER} maximum", re.I),
    re.compile(
        r"(?:tokens allowed|context (?:length|window|size|limit)|maximum|limit|n_ctx|up to|at most|allowed)"
        rf"[^\d\n]{{0,40}}?{_NUMBER}(?!\d)(?! *\+)",
        re.I,
    ),
)
"""How servers name the limit: the first that matches counts."""
_COUNTS = re.compile(_NUMBER)
_LEAST, _MOST = 256, 50_000_000
"""Tokens that a window can have."""


class OverflowLimits(NamedTuple):
    """What a server says of a request that is too long; 0: it doesn't."""

    window: int
    counted: int


def parse_overflow_limits(text: str) -> OverflowLimits:
    """Return the window and the request's tokens that the text of a refusal names."""
    found = (match for limit in _LIMITS for match in limit.finditer(text))
    window = next((n for match in found if _LEAST <= (n := _parse_number(match[1])) <= _MOST), 0)
    numbers = [n for match in _COUNTS.finditer(text) if (n := _parse_number(match[1])) <= _MOST]
    counted = max((n for n in numbers if n > window), default=0) if window else 0
    return OverflowLimits(window, counted)


def _parse_number(text: str) -> int:
    return int(re.sub(r"\D", "", text))
