"""options: options of a request: how `model.thinking` is said to each provider, and what a server refuses.

What a server refuses is left out from then on."""

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from interlock.state.settings import Thinking

Options = dict[str, Any]
BEDROCK_FIELDS = "additional_model_request_fields"
"""Field of Bedrock's client for what Converse passes on to a model as it is."""
EXTRA_BODY = "extra_body"
"""Option of OpenAI's client for fields that it doesn't know."""
_BUDGETS: Mapping[str, int] = {"low": 4_096, "medium": 12_288, "high": 24_576}
"""Tokens of thought, for the models of Anthropic that count them."""
_LEAST = 1_024
"""The least that Anthropic takes."""
_PLAIN = re.compile(r"gpt-[34]|claude-3|claude-[12]|chatgpt-4|gemini-[12]\.0")
"""Models that don't reason."""
_COUNTING = re.compile(r"claude-(3-7|haiku-4|sonnet-4-(0|5|2)|sonnet-4$|opus-4-(0|1|2)|opus-4$)")
"""Models of Anthropic that take a number of tokens and no word."""


def thinking_effort_options(
    client: str, model: str, level: Thinking, max_tokens: int | None = None
) -> Options | None:
    """Return the options of a request that say how much to think; None: the model doesn't take a level.

    `client`: the name of its LangChain class; `model`: its name without the provider. `max_tokens`: the most
    of the reply.
    """
    if level == "auto":
        return {}
    ways = _WAYS.get(client)
    return ways(model.rpartition("/")[2].lower(), level, max_tokens) if ways else None


def _reasoning_effort_option(name: str, level: str, _max_tokens: int | None) -> Options | None:
    return None if _PLAIN.match(name) else {"reasoning_effort": level}


def _effort_for_anthropic(name: str, level: str, max_tokens: int | None) -> Options | None:
    if _COUNTING.match(name):
        return _thinking_budget_option(level, max_tokens)
    return _reasoning_effort_option(name, level, max_tokens)


def _thinking_budget_option(level: str, max_tokens: int | None) -> Options:
    budget = min(_BUDGETS[level], max_tokens // 2) if max_tokens else _BUDGETS[level]
    return {"thinking": {"type": "enabled", "budget_tokens": budget}} if budget >= _LEAST else {}


def _effort_for_bedrock(name: str, level: str, max_tokens: int | None) -> Options | None:
    _, of_claude, claude = name.rpartition("anthropic.")
    fields: Options | None = None
    if of_claude and _COUNTING.match(claude):
        fields = _thinking_budget_option(level, max_tokens)
    elif of_claude and not _PLAIN.match(claude):
        fields = {"thinking": {"type": "adaptive"}, "output_config": {"effort": level}}
    elif "amazon.nova-2" in name:
        fields = {"reasoningConfig": {"type": "enabled", "maxReasoningEffort": level}}
    elif re.search(r"gpt-oss|moonshot|zai\.glm", name):
        fields = {"reasoning_effort": level}
    return {BEDROCK_FIELDS: fields} if fields else fields


def _effort_for_ollama(name: str, level: str, _max_tokens: int | None) -> Options:
    return {"reasoning": level if "gpt-oss" in name else level != "low"}


def _effort_for_groq(name: str, level: str, _max_tokens: int | None) -> Options | None:
    if "gpt-oss" in name:
        return {"reasoning_effort": level}
    return {"reasoning_effort": "none" if level == "low" else "default"} if "qwen3" in name else None


def _effort_for_mistral(name: str, level: str, _max_tokens: int | None) -> Options | None:
    takes = re.match(r"mistral-(small|medium|large)", name)  # Magistral always thinks, others never
    return {"reasoning_effort": "none" if level == "low" else "high"} if takes else None


def is_thinking_deepseek_model(model: str) -> bool:
    """Return whether a model is one of DeepSeek's since version 4: all of them think, and take a level."""
    name = model.rpartition("/")[2].lower()
    return bool(re.match(r"deepseek-(?!(chat|reasoner|coder|r1|v[1-3])\b)", name))


def _effort_for_deepseek(name: str, level: str, _max_tokens: int | None) -> Options | None:
    return {"reasoning_effort": level} if is_thinking_deepseek_model(name) else None


def _effort_for_xai(name: str, level: str, _max_tokens: int | None) -> Options | None:
    if name.startswith("grok-3-mini"):
        return {"reasoning_effort": "low" if level == "low" else "high"}
    fixed = re.match(r"grok-([123]\b|4$|4-|4\.20|code|build|beta|vision)", name)  # until 4.3, and the coders
    return None if fixed else {"reasoning_effort": level}


def _effort_for_together(name: str, level: str, _max_tokens: int | None) -> Options | None:
    if re.match(r"gpt-oss|deepseek-v[4-9]", name):
        return {"reasoning_effort": level}
    toggled = re.match(r"deepseek-v3[.-]1|qwen3\.[56]|glm-5(\.[012])?$|kimi-k2\.[56]|cogito|nemotron-3", name)
    return {EXTRA_BODY: {"reasoning": {"enabled": level != "low"}}} if toggled else None


def _effort_for_fireworks(name: str, level: str, _max_tokens: int | None) -> Options | None:
    if re.match(r"glm-[5-9]", name):  # none of them knows "medium"
        return {"reasoning_effort": "low" if level == "low" else "high"}
    takes = re.match(
        r"gpt-oss|deepseek-(v3p[12]|v[4-9])|qwen3(?!.*(instruct|coder))|glm-4|kimi-k(?!2-instruct)|minimax",
        name,
    )
    return {"reasoning_effort": level} if takes else None


_WAYS: Mapping[str, Callable[[str, str, int | None], Options | None]] = {
    "ChatOpenAI": _reasoning_effort_option,
    "AzureChatOpenAI": _reasoning_effort_option,
    "ChatGoogleGenerativeAI": _reasoning_effort_option,
    "ChatAnthropic": _effort_for_anthropic,
    "ChatBedrockConverse": _effort_for_bedrock,
    "ChatOllama": _effort_for_ollama,
    "ChatGroq": _effort_for_groq,
    "ChatMistralAI": _effort_for_mistral,
    "ChatDeepSeek": _effort_for_deepseek,
    "ChatXAI": _effort_for_xai,
    "ChatTogether": _effort_for_together,
    "ChatFireworks": _effort_for_fireworks,
}
"""Client class → how a level is said."""


def has_thinking_enabled(options: Mapping[str, Any]) -> bool:
    """Return whether the options make Claude think, beside which it takes no temperature."""
    return "thinking" in options or "thinking" in options.get(BEDROCK_FIELDS, {})


def ignored_thinking_level_notice(model: str, level: Thinking) -> str:
    """Return what the person reads, once, of a model that takes no level."""
    return f"Model {model!r} takes no thought level: {level!r} has no effect on it."


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


def find_refused_option(error: Exception, sent_options: Collection[str]) -> str:
    """Return which of the options that were sent the server refuses by name; empty: none."""
    text = f"{error} {getattr(error, 'body', '')}"
    return next((name for name, named in _OPTIONS.items() if name in sent_options and named.search(text)), "")


def without_refused_options(options: Mapping[str, Any], refused: Collection[str]) -> dict[str, Any]:
    """Return the options that the model takes."""
    return {name: value for name, value in options.items() if name not in refused}
