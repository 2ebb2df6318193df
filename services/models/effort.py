"""effort: how `model.thinking` is said to each provider, and which models take none."""

import re
from collections.abc import Mapping
from typing import Any

from interlock.state.settings import Thinking

_BUDGETS: Mapping[str, int] = {"low": 4_096, "medium": 12_288, "high": 24_576}
"""Tokens of thought, for the models of Anthropic that count them."""
_LEAST = 1_024
"""The least that Anthropic takes."""
_WORD = frozenset({"ChatOpenAI", "AzureChatOpenAI", "ChatXAI", "ChatGroq", "ChatGoogleGenerativeAI"})
"""Clients that take the level as a word."""
_PLAIN = re.compile(r"gpt-[34]|claude-3|claude-[12]|chatgpt-4|gemini-[12]\.0")
"""Models that don't reason."""
_COUNTING = re.compile(r"claude-(3-7|haiku-4|sonnet-4-(0|5|2)|sonnet-4$|opus-4-(0|1|2)|opus-4$)")
"""Models of Anthropic that take a number of tokens and no word."""


def effort_options(
    client: str, model: str, level: Thinking, most: int | None = None
) -> dict[str, Any] | None:
    """Return the options of a request that say how much to think; None: the model doesn't take a level.

    `client`: the name of its LangChain class; `model`: its name without the provider. `most`: the most tokens of the
    reply.
    """
    name = model.rpartition("/")[2]
    if level == "auto":
        return {}
    if _COUNTING.match(name) and client == "ChatAnthropic":
        budget = min(_BUDGETS[level], most // 2) if most else _BUDGETS[level]
        return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST else {}
    if _PLAIN.match(name):
        return None
    if client == "ChatOllama":
        return {"reasoning": level if "gpt-oss" in name else level != "low"}
    if client == "ChatAnthropic" or client in _WORD:
        return {"reasoning_effort": level}
    return None


def effort_untaken(model: str, level: Thinking) -> str:
    """Return what the person reads, once, of a model that takes no level."""
    return f"Model {model!r} takes no thought level: {level!r} has no effect on it."
