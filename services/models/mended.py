"""mended: clients without some of the faults of their packages, by subclasses; `docs/models.md` names all."""

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from interlock.services.models.vendors import REGION
from interlock.state.messages import Usage

INITIAL_USAGE = "interlock_begun"
"""Key of a piece's `response_metadata`: the usage that the beginning of Anthropic's stream tells."""
_UNASKED = "unasked"
"""What `reasoning` is for Ollama where no level is set: its client drops the thoughts of models that think unasked."""
_ARN = "arn:"


def fix_client_class(cls: type[Any]) -> type[Any]:
    """Return the client class without the faults that a subclass can mend."""
    name = next((one.__name__ for one in cls.__mro__ if one.__name__ in _FIXES), "")
    return _FIXES[name](cls) if name else cls


def parse_ollama_usage(told: Mapping[str, Any]) -> Usage | None:
    """Return what Ollama counted, which its client drops where a prompt was cached. `told`: a piece's metadata."""
    counts = [told.get(name) for name in ("prompt_eval_count", "eval_count")]
    return None if counts == [None, None] else Usage(input=counts[0] or 0, output=counts[1] or 0)


def fixed_class_options(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that a mended class needs."""
    names = {one.__name__ for one in cls.__mro__}
    if "ChatOllama" in names:
        return {"reasoning": _UNASKED}
    if "ChatBedrockConverse" in names and options["model"].startswith(_ARN):
        return {"provider": _model_vendor(options["model"].rpartition("/")[2])}
    return {}


def _model_vendor(model: str) -> str:
    """Return whose model an id of Bedrock names. That of an application's profile is found by its client later."""
    own = REGION.sub("", model, count=1)
    return own.partition(".")[0] if "." in own else "anthropic"


@cache
def _fix_anthropic(cls: type[Any]) -> type[Any]:
    class Begun(cls):
        """Tells the input's tokens where only the beginning of a stream has them."""

        def _make_message_chunk_from_anthropic_event(self, event: Any, **options: Any) -> Any:
            own: Any = super()
            made: Any = own._make_message_chunk_from_anthropic_event(event, **options)
            if event.type == "message_start" and made[0] is not None:
                told = event.message.usage
                cached, written = told.cache_read_input_tokens or 0, told.cache_creation_input_tokens or 0
                total = (told.input_tokens or 0) + cached + written
                made[0].response_metadata[INITIAL_USAGE] = Usage(input=total, cached=cached, written=written)
            return made

    return Begun


@cache
def _fix_bedrock(cls: type[Any]) -> type[Any]:
    class Resolved(cls):
        """Knows whose model an application's profile stands for."""

        def _configure_streaming_for_resolved_model(self) -> None:
            own: Any = super()
            if base := cast(Any, self).base_model_id:
                cast(Any, self).provider = _model_vendor(base)
            own._configure_streaming_for_resolved_model()

    return Resolved


@cache
def _fix_ollama(cls: type[Any]) -> type[Any]:
    class Thinking(cls):
        """Keeps thoughts also where no level was asked for."""

        def _chat_params(self, *request: Any, **options: Any) -> dict[str, Any]:
            own: Any = super()
            params: dict[str, Any] = own._chat_params(*request, **options)
            return {**params, "think": None if params.get("think") == _UNASKED else params.get("think")}

    return Thinking


_FIXES = {
    "ChatAnthropic": _fix_anthropic,
    "ChatBedrockConverse": _fix_bedrock,
    "ChatOllama": _fix_ollama,
}
