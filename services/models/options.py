"""options: options of a request that some servers refuse, and that a request can do without."""

import re
from collections.abc import Collection, Mapping
from typing import Any

_OPTIONS = {
    "temperature": re.compile(r"temperature", re.I),
    "reasoning_effort": re.compile(r"reasoning[._ ]?effort|output_config|thinking[_ ]level", re.I),
    "thinking": re.compile(r"thinking", re.I),
    "reasoning": re.compile(r"support(s|ed)? thinking|\bthink\b", re.I),
    "additional_model_request_fields": re.compile(
        r"thinking|reasoning|output_config|extraneous key|additionalModelRequestFields", re.I
    ),
    "extra_body": re.compile(r"\breasoning\b", re.I),
    "prompt_cache_key": re.compile(r"prompt_cache_key"),
    "cache_control": re.compile(r"cache_control|cache_?point|prompt caching", re.I),
}
"""Option → how a refusal names it."""


def find_refused_option(error: Exception, sent: Collection[str]) -> str:
    """Return which of the options that were sent the server refuses by name; empty: none."""
    text = f"{error} {getattr(error, 'body', '')}"
    return next((name for name, named in _OPTIONS.items() if name in sent and named.search(text)), "")


def drop_refused_options(options: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the options that the model takes."""
    return {name: value for name, value in options.items() if name not in refused}
