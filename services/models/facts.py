"""facts: what is known of a run's models: what their own servers say, windows, limits, and what was seen here."""

import ipaddress
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import BaseModel, TypeAdapter, ValidationError

from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock
from interlock.services.models.model_table import (
    ABILITIES,
    FREE,
    Abilities,
    Prices,
    Rates,
    TableEntry,
    look_up_table_entry,
    price_table_cache_stamp,
    read_abilities,
    request_cost_usd,
)
from interlock.services.models.names import (
    configured_context_window,
    configured_server_url,
    find_provider_spec,
    has_credentials,
    provider_name,
    resolve_model,
)
from interlock.services.models.provider_api import bearer_header, fetch_json
from interlock.state.errors import UserError
from interlock.state.messages import Reply, Usage
from interlock.state.settings import Settings
from interlock.state.text import dict_or_empty

Kind = Literal["", "llama.cpp", "ollama", "vllm", "lm studio"]
_OWNERS: Mapping[str, Kind] = {"llamacpp": "llama.cpp", "library": "ollama", "vllm": "vllm"}
"""What servers name as the owner of a model → their kind."""
_ANSWER_S = 2.0
"""Seconds for each question; a server that is busy may be asked again."""


@dataclass(frozen=True)
class ModelServer:
    """A server of models. Only one nearby is asked what it is; of others nothing is known."""

    url: str = ""
    near: bool = False
    """On this machine or in a private network."""
    kind: Kind = ""
    models: Mapping[str, int | None] | None = None
    """Model → window in tokens, None if it isn't told; None: the server didn't answer."""


def identify_model_server(model: str, env: Mapping[str, str], *, probe: bool = True) -> ModelServer:
    """Return the server of `provider:model`; `probe`: whether one nearby is asked what it is."""
    url = configured_server_url(model, env)
    near = is_self_hosted(model, url)
    if not near or not probe:
        return ModelServer(url, near)
    spec = find_provider_spec(provider_name(model))
    return probe_model_server(url, env.get(spec.key, "") if spec else "", model.partition(":")[2])


_SERVED_NEARBY = ("openai", "ollama")
"""Protocols of servers that have models of their own: what speaks another on this machine is a gateway."""


def is_self_hosted(model: str, url: str) -> bool:
    """Return whether a server on this machine or in a private network has the model itself."""
    return bool(url) and provider_name(model) in _SERVED_NEARBY and is_private_address(url)


def is_private_address(url: str) -> bool:
    """Return whether the address is on this machine or in a private network, by its name alone."""
    host = urlsplit(url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))
    return address.is_private or address.is_loopback or address.is_link_local


def probe_model_server(url: str, key: str, model: str) -> ModelServer:
    """Ask a server what it is and has; `model`: the one whose window matters."""
    root = url.rstrip("/").removesuffix("/v1")

    def fetch_or_empty(path: str, body: object = None) -> dict[str, Any]:
        with suppress(UserError):
            return fetch_json(f"{root}{path}", bearer_header(key), body, _ANSWER_S)
        return {}

    listed = _to_object_list(fetch_or_empty("/v1/models").get("data"))
    if not listed:
        return ModelServer(url, True)
    owners = (str(one.get("owned_by")) for one in listed)
    kinds: list[Kind] = [_OWNERS[owner] for owner in owners if owner in _OWNERS]
    kind: Kind = kinds[0] if kinds else ""
    models = {str(one.get("id")): _positive_int_or_none(one.get("max_model_len")) for one in listed}
    if kind == "llama.cpp":
        own = dict_or_empty(fetch_or_empty("/props").get("default_generation_settings"))
        models = dict.fromkeys(models, _positive_int_or_none(own.get("n_ctx")))
    elif kind == "ollama" and model:
        models[model] = _ollama_context_window(fetch_or_empty("/api/show", {"model": model}))
    elif not kind and (own := _to_object_list(fetch_or_empty("/api/v0/models").get("data"))):
        kind = "lm studio"
        models = {str(one.get("id")): _lm_studio_context_window(one) for one in own}
    return ModelServer(url, True, kind, models)


def _ollama_context_window(show_response: Mapping[str, Any]) -> int | None:
    """Return the window that Ollama was given, else the model's own."""
    lines = (line.split() for line in str(show_response.get("parameters", "")).splitlines())
    given = next((line[1] for line in lines if len(line) == 2 and line[0] == "num_ctx"), "")
    if given.isdecimal():
        return int(given)
    facts = dict_or_empty(show_response.get("model_info"))
    return next(
        (_positive_int_or_none(v) for name, v in facts.items() if name.endswith(".context_length")), None
    )


def _lm_studio_context_window(entry: Mapping[str, Any]) -> int | None:
    return _positive_int_or_none(entry.get("loaded_context_length")) or _positive_int_or_none(
        entry.get("max_context_length")
    )


def _positive_int_or_none(value: Any) -> int | None:
    return value if isinstance(value, int) and value > 0 else None


def _to_object_list(value: Any) -> list[dict[str, Any]]:
    return [*map(dict_or_empty, cast(list[Any], value))] if isinstance(value, list) else []


_FILE = "models.json"
_WAIT_S = 1.0
"""Seconds to wait for another process that writes there."""
_NEAR_FIRST_S = 900.0
"""Seconds until the first token of a server nearby: a laptop may read a prompt for minutes."""
_TRIED = 2
"""Replies without a call after which another way of calling tools is tried."""
_SMALL_WINDOW = 32_000
_SLOW_PER_S = 200.0
"""Tokens read in a second; a full prompt would take half a minute."""
_OFF, _KEPT = 3.0, 0.03
"""An estimate isn't off by more; and how much one must change to be kept."""
_PARTS_KEPT = 200
_LESS = 0.9
"""Share of a refused request that is taken to fit."""
_LONG = 500
"""Tokens of a request from which its reading is measured, and its estimate."""


class Observations(BaseModel, defer_build=True):
    """What one model on one server was seen to do."""

    protocol: Literal["native", "xml", "json"] | None = None
    """How it called a tool last."""
    read_per_s: float | None = None
    per_estimate: float | None = None
    """Tokens that the provider counted for each that was estimated: tokenizers differ."""
    answered: bool = False
    warned: bool = False
    """Whether the user was told what is assumed of it."""
    effort_told: bool = False
    """Whether the user was told that it takes no thought level."""
    table: str = ""
    """Edition of the table of models that these are from."""
    window: int | None = None
    told_window: int | None = None
    """As its server named it when it refused a request; counts for the day of `table`."""
    prices: list[Rates] | None = None
    refuses: list[str] = []
    """Options of a request that its server refused (`options.py`)."""
    refused_parts: list[str] = []
    """Attachments that its server refused (`sent_messages.py`)."""


_OBSERVATIONS = TypeAdapter(dict[str, Observations])


class ModelFacts:
    """Facts of the models of one drive. A server is asked once; what models do is kept in the state directory."""

    def __init__(
        self, settings: Settings, env: Mapping[str, str], home: Path | None = None, *, ask: bool = True
    ) -> None:
        """`home`: the state directory; `ask`: False if no server will be needed, as with a script."""
        self._settings = settings
        self._file = home / _FILE if home else None
        self._env, self._ask = env, ask
        self._servers: dict[str, ModelServer] = {}
        self._windows: dict[str, tuple[int, bool]] = {}
        self._prices: dict[str, Prices | None] = {}
        self._answered: set[str] = set()
        self._factors: dict[str, float] = {}
        self._refused_parts: dict[str, frozenset[str]] = {}

    def model_server(self, model: str) -> ModelServer:
        if model not in self._servers:
            self._servers[model] = identify_model_server(model, self._env, probe=self._ask)
        return self._servers[model]

    def resolve_context_window(self, model: str) -> tuple[int, bool]:
        """The window in tokens, and whether it is known: set, told by the server, or in the table of models."""
        if model not in self._windows:
            self._windows[model] = self._look_up_context_window(model)
        return self._windows[model]

    def learn_from_overflow(self, model: str, error_text: str, estimated_tokens: int) -> None:
        """Learn from a refusal: the window that it names, and how far the estimate `estimated_tokens` was off.

        Where it names none, the window is taken to be a little less than this request, for this drive.
        """
        from interlock.services.models.provider_errors import (
            parse_overflow_limits,  # late: most runs fail at nothing
        )

        told = parse_overflow_limits(error_text)
        window = told.window or round(_LESS * self.scale_estimate(model, estimated_tokens))
        if told.window:
            self._load_or_refresh_table_entry(model)  # of today, so that it counts with it
            self.record_observations(model, told_window=told.window)
            self.calibrate_token_estimate(model, told.counted, estimated_tokens)
        self._windows[model] = (min(window, self.context_window_tokens(model)), True)

    def _look_up_context_window(self, model: str) -> tuple[int, bool]:
        own, seen = self._settings.model_entry(model).context_window, self.observations(model)
        if seen.told_window and seen.table == price_table_cache_stamp():
            return min(seen.told_window, own or seen.told_window), True
        found = own or self._server_context_window(model)
        if found is None and provider_name(model) in ("gemini", "script"):
            return configured_context_window(self._settings, model), True
        found = found or self._load_or_refresh_table_entry(model).window
        return found or configured_context_window(self._settings, model), found is not None

    def context_window_tokens(self, model: str) -> int:
        """Return the window in tokens: as set, as its server says, as known by name."""
        return self.resolve_context_window(model)[0]

    def take_unknown_model_notice(self, model: str) -> str:
        """Return what is assumed of a model that nobody knows, and how to set it: said once in its life. Empty:
        nothing is."""
        window, is_known = self.resolve_context_window(model)
        prices = provider_name(model) == "script" or self.prices(model)
        if (is_known and prices) or self.observations(model).warned:
            return ""
        self.record_observations(model, warned=True)
        parts = (
            []
            if is_known
            else [f"a context window of {window:,} tokens is assumed (models.NAME.contextWindow)"]
        )
        parts += [] if prices else ["its cost isn't counted (models.NAME.price)"]
        return f"Model {model!r} isn't in the table of models: {'; '.join(parts)}. Set it in settings."

    def prices(self, model: str) -> Prices | None:
        """As settings say; nothing for servers nearby; else as the table of models says. None: unknown.

        The first call of a day loads the table.
        """
        if model not in self._prices:
            own, url = configured_prices(self._settings, model), configured_server_url(model, self._env)
            near = is_self_hosted(model, url)
            self._prices[model] = own or (FREE if near else self._load_or_refresh_table_entry(model).prices)
        return self._prices[model]

    def _load_or_refresh_table_entry(self, model: str) -> TableEntry:
        kept = self.observations(model)
        if kept.table == price_table_cache_stamp():
            return TableEntry(kept.window, kept.prices)
        found = look_up_table_entry(model, configured_server_url(model, self._env))
        self.record_observations(
            model, table=price_table_cache_stamp(), window=found.window, prices=found.prices, told_window=None
        )
        return found

    def abilities(self, model: str) -> Abilities:
        """Return what it can take and write: as settings say, else as its provider's package does."""
        own, found = self._settings.model_entry(model), read_abilities(model)
        takes = found.takes if own.takes is None else tuple(own.takes)
        refuses = found.refuses if own.takes is None else tuple(k for k in ABILITIES if k not in takes)
        return found._replace(output=own.output_limit or found.output, takes=takes, refuses=refuses)

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """Return US dollars for a request; the provider's own figure where it gave one. None: unknown."""
        prices = self.prices(model) if usage.usd is None else None
        return usage.usd if prices is None else request_cost_usd(prices, usage)

    def _server_context_window(self, model: str) -> int | None:
        windows = self.model_server(model).models or {}
        # Llama.cpp serves one model, under whatever name it is asked for.
        only = next(iter(windows.values())) if len(windows) == 1 else None
        return windows.get(model.partition(":")[2]) or only

    def first_token_timeout_s(self, model: str, default_s: float) -> float:
        own = self._settings.model_entry(model).first_token_timeout_s
        return own or (_NEAR_FIRST_S if self.model_server(model).near else default_s)

    def configured_openai_api(self, model: str) -> str:
        """Return which of OpenAI's APIs settings name for the model; empty: what the client chooses."""
        return self._settings.model_entry(model).api or ""

    def supports_json_schema(self, model: str) -> bool:
        """Return whether settings say, or its server's kind is known for it, that answers hold to a JSON Schema."""
        own = self._settings.model_entry(model).response_format
        return bool(self.model_server(model).kind) if own is None else own

    def resolve_call_protocol(self, model: str, requested: str) -> str:
        """Return how the model calls tools; `auto` only if that has to be found out."""
        if requested != "auto":
            return requested
        own = self._settings.model_entry(model).protocol
        if own or not self.model_server(model).near:
            return own or "native"
        return self.observations(model).protocol or "auto"

    def choose_and_record_call_protocol(self, model: str, reply: Reply, replies_without_call: int) -> str:
        """Return how it calls tools from now on; `auto`: that isn't known yet."""
        found = reply.called
        if not found:
            return (
                ("json" if self.supports_json_schema(model) else "auto")
                if replies_without_call + 1 >= _TRIED
                else "auto"
            )
        if found != "native" and self.supports_json_schema(model):
            found = "json"
        self.record_observations(model, protocol=found)
        # Tags are declared in a system prompt, which this conversation has already.
        return "auto" if found == "xml" else found

    def uses_small_prompt(self, model: str) -> bool:
        """Return whether the model gets the small prompt where nobody says which."""
        if own := self._settings.model_entry(model).prompt_profile:
            return own == "small"
        if not self.model_server(model).near:
            return False
        speed = self.observations(model).read_per_s
        return self.context_window_tokens(model) < _SMALL_WINDOW or (
            speed is not None and speed < _SLOW_PER_S
        )

    def record_answer_and_speed(self, model: str, prompt_tokens: int, first_token_s: float) -> None:
        """Note that a model answered, and how fast one nearby read a long request."""
        if model not in self._answered:
            self._answered.add(model)
            self.record_observations(model, answered=True)
        if prompt_tokens >= _LONG and first_token_s > 0 and self.model_server(model).near:
            self.record_observations(model, read_per_s=float(f"{prompt_tokens / first_token_s:.1g}"))

    def scale_estimate(self, model: str, tokens: int) -> int:
        """Return the estimate of a request, by how far the last ones of this model were off."""
        return round(tokens * self._token_estimate_factor(model))

    def calibrate_token_estimate(self, model: str, counted_tokens: int, estimate: int) -> None:
        """Note what the provider counted for a request whose plain estimate is given. Small changes aren't kept."""
        if estimate < _LONG or counted_tokens <= 0:
            return
        found = min(max(counted_tokens / estimate, 1 / _OFF), _OFF)
        if abs(found - self._token_estimate_factor(model)) > _KEPT:
            self._factors[model] = round(found, 2)
            self.record_observations(model, per_estimate=self._factors[model])

    def _token_estimate_factor(self, model: str) -> float:
        if model not in self._factors:
            self._factors[model] = self.observations(model).per_estimate or 1.0
        return self._factors[model]

    def refused_attachment_digests(self, model: str) -> frozenset[str]:
        """Return digests of the attachments that the model's server refused."""
        if model not in self._refused_parts:
            self._refused_parts[model] = frozenset(self.observations(model).refused_parts)
        return self._refused_parts[model]

    def record_refused_attachments(self, model: str, digests: Sequence[str]) -> None:
        self._refused_parts[model] = self.refused_attachment_digests(model) | {*digests}
        known = self.observations(model).refused_parts
        self.record_observations(model, refused_parts=[*known, *digests][-_PARTS_KEPT:])

    def observations(self, model: str) -> Observations:
        return self._read_observations().get(self._observation_key(model), Observations())

    def record_observations(self, model: str, **found: object) -> None:
        if self._file is None or provider_name(model) == "script":
            return
        before = self.observations(model).model_dump()
        if {**before, **found} == before:
            return
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)  # `models` may be the first command
        # Read again under the lock: another thread or process may have seen more by now.
        with lock_folder(self._file.parent, _WAIT_S):
            known, key = self._read_observations(), self._observation_key(model)
            known[key] = Observations.model_validate({**known.get(key, Observations()).model_dump(), **found})
            data = {name: one.model_dump(exclude_none=True) for name, one in known.items()}
            replace_private_file_holding_lock(self._file, json.dumps(data, indent=2).encode())

    def _read_observations(self) -> dict[str, Observations]:
        """Return all that was seen; a file that can't be read counts as empty: it is learned again."""
        try:
            return _OBSERVATIONS.validate_json(self._file.read_bytes()) if self._file else {}
        except (OSError, ValidationError):
            return {}

    def _observation_key(self, model: str) -> str:
        return f"{model} {self.model_server(model).url}".strip()


def configured_prices(settings: Settings, model: str) -> Prices | None:
    """Return what settings say, by the model's name, one of its aliases, or its provider."""
    if (found := settings.model_entry(model).price) is None:
        return None
    cached, written = (found.input if one is None else one for one in (found.cached, found.written))
    return [Rates(0, found.input, found.output, cached, written)]


def list_available_models(settings: Settings, env: Mapping[str, str], facts: ModelFacts) -> list[str]:
    """Return the models that settings name and credentials serve, then all those of servers nearby."""
    named = [settings.model.name, *settings.model.aliases, *(n for n in settings.models if ":" in n)]
    resolved = dict.fromkeys(resolve_model(settings, name) for name in named)
    found = [name for name in resolved if has_credentials(name, env)]
    for provider in ("openai", "ollama"):
        served = facts.model_server(f"{provider}:").models or {}
        found += [f"{provider}:{name}" for name in served if f"{provider}:{name}" not in found]
    return [name for name in found if provider_name(name) != "script"]
