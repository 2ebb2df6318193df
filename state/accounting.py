"""accounting: settings of what a run costs, what is kept for how long, and who else is told of a run."""

from typing import Literal, Self

from pydantic import BaseModel, Field, field_validator

from interlock.state.text import parse_duration


class Section(BaseModel, extra="allow", populate_by_name=True, defer_build=True):
    """A part of the settings. Unknown keys are kept."""

    @classmethod
    def default(cls) -> Self:
        return cls.model_validate({})


class Price(Section):
    """US dollars per million tokens."""

    input: float = Field(ge=0)
    """Price of a million input tokens, in US dollars."""
    output: float = Field(ge=0)
    """Price of a million output tokens, in US dollars."""
    cached: float | None = Field(None, ge=0)
    """Price of a million input tokens read from the provider's cache; null: as `input`."""
    written: float | None = Field(None, alias="cacheWrite", ge=0)
    """Price of a million input tokens written to the provider's cache; null: as `input`."""


class StoreSettings(Section):
    """How long runs are kept. Honoured only in the user's own settings. `interlock store prune` applies them."""

    keep_days: int | None = Field(None, alias="keepDays", ge=1)
    """Delete ended runs unchanged for so many days; null: keep them."""
    max_gb: float | None = Field(None, alias="maxGb", gt=0)
    """Delete the oldest ended runs while the state directory is larger, in GB; null: no limit."""


class StartSettings(Section):
    """How commands and sessions start. Honoured only in the user's own settings."""

    keep_warm: str = Field("", alias="keepWarm")
    """Keep a process ready (`interlock warm`) until it is unused for this long: `90s`, `15m`, `2h`; empty: don't.
    Linux."""

    @field_validator("keep_warm")
    @classmethod
    def _is_a_duration(cls, value: str) -> str:
        if value and not parse_duration(value) > 0:
            raise ValueError("a duration such as 90s, 15m or 2h, or nothing")
        return value


class TelemetrySettings(Section):
    """gemini-cli's settings. Honoured only in the user's own settings and environment: they send data elsewhere."""

    enabled: bool = False
    """Send traces, metrics and logs of runs to a collector (OpenTelemetry). Needs the extra `[otel]`."""
    target: Literal["local", "gcp"] = "local"
    """`gcp` needs a collector, too (gemini-cli's `useCollector`): nothing is sent to Google directly."""
    otlp_endpoint: str = Field("http://localhost:4317", alias="otlpEndpoint")
    """Address of the collector."""
    otlp_protocol: Literal["grpc", "http"] = Field("grpc", alias="otlpProtocol")
    """How the collector is spoken to; over `http`, paths such as `/v1/traces` are added to the address."""
    log_prompts: bool = Field(False, alias="logPrompts")
    """Include prompts, answers, arguments and results. (gemini-cli's default is true.)"""
    outfile: str = ""
    """Write JSON lines to this file instead."""
    use_collector: bool = Field(False, alias="useCollector")
    """Only for `target: gcp`: a collector at `otlpEndpoint` passes on what it gets."""
