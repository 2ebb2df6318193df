"""chat: one request to a model, from sending it to recording the reply."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

from interlock.services.models.facts import ModelFacts
from interlock.services.models.failure import (
    ATTEMPTS,
    PATIENCE_S,
    Backoff,
    is_empty_stream_error,
    stream_with_timeouts,
    to_model_error_or_reraise,
)
from interlock.services.models.json_calls import (
    build_file_writing_prompt,
    extract_fenced_or_bare_calls,
    extract_json_calls,
    with_json_call_rules,
)
from interlock.services.models.names import (
    choose_helper_model_and_fallback,
    find_provider_spec,
    has_reliable_completion_signal,
    provider_name,
    resolve_model,
    script_models_in_settings,
    unresolved_model_for_role,
)
from interlock.services.models.providers import Providers
from interlock.services.models.request import (
    AnswerBuilder,
    Budget,
    Chunk,
    MessageCache,
    ModelLog,
    ModelRequest,
    RequestHash,
    ToolsCache,
    extract_tagged_calls,
)
from interlock.services.models.script import append_script_entry, to_script_entry
from interlock.services.models.sent_messages import (
    AttachmentPlacer,
    escape_message_control_characters,
    escape_tool_control_characters,
    is_attachment_refusal,
    newest_unrefused_digests,
    replace_refused_attachments,
)
from interlock.services.secrets.redaction import SHAPES, Redactor
from interlock.state.deps import Clock
from interlock.state.errors import ModelError
from interlock.state.events import Asking, Emit, ErrorEvent, Progress, Retry
from interlock.state.messages import (
    IncrementalScan,
    Message,
    ModelCall,
    ModelItem,
    Reply,
    RetryPlan,
    ToolDeclaration,
    estimate_message_tokens,
)
from interlock.state.settings import Settings
from interlock.state.text import estimate_tokens
from interlock.state.tooling import SHELL
from interlock.tools.call_arguments import TaggedTools
from interlock.tools.json_calls import (
    RepairFileRules,
    allowed_writes,
    build_answer_schema,
    render_message_as_json,
)
from interlock.tools.tag_calls import render_message_as_text


async def stream_and_settle_budget(
    budget: Budget, task: str, items: AsyncGenerator[ModelItem, None]
) -> AsyncGenerator[ModelItem, None]:
    """Pass items through. A provider's error settles the reservation, as does a reply; any other ending forfeits it."""
    settled = False
    try:
        async with aclosing(items):
            async for item in items:
                settled = settled or isinstance(item, Reply)
                yield item
    except ModelError:
        settled = True
        budget.settle_reservation(task)
        raise
    finally:
        if not settled:
            budget.forfeit_reservation(task)


STALL_S = 120.0
"""Seconds without output after which a request fails; a warning follows each of the first three quarters."""
_FILLED = 0.8
"""Share of a small model's window that a helper's request may take."""
_Stage = Literal["connecting", "reading", "thinking"]
_Pieces = AsyncGenerator[Chunk, None]
_TimeLimit = Callable[[_Pieces], _Pieces]
_FEATURE_PROVIDERS = ("gemini", "script")
"""Providers that support features; a script returns whatever it contains."""
_TEMPERATURE, _HELPER_TEMPERATURE, _NEAR_TEMPERATURE = 1.0, 0.0, 0.2
"""As in gemini-cli: 1 for conversation, 0 for answers that follow a schema. Small models invent paths at 1."""


class ChatModels:
    """Implements `Models` for one drive of a run; close it with `aclose` on the same loop."""

    def __init__(
        self,
        *,
        settings: Settings,
        log: ModelLog,
        clock: Clock,
        env: Mapping[str, str],
        budget: Budget,
        agent: str = "",
        record_to: Path | None = None,
        fake: Path | None = None,
        delay_scale: float = 1.0,
        seed: int | None = None,
        stall_s: float = STALL_S,
        patience_s: float = PATIENCE_S,
        redact: Redactor = SHAPES,
        facts: ModelFacts | None = None,
        on_commands: Callable[[], None] = lambda: None,
        files: RepairFileRules | None = None,
        only_own_scripts: bool = False,
    ) -> None:
        """`on_commands`: called once, in a thread, while a model is asked for what may be a command.

        `files`: those of the workspace, of which a small model doesn't rewrite tests. `only_own_scripts`: a script is
        read only if the settings name it, so that whoever submitted the run names no file of this host.
        """
        self._files = files
        self._settings = settings
        self.facts = facts or ModelFacts(settings, env)
        self._log = log
        self._clock = clock
        self._agent = agent
        self._temperature: float | None = None
        self._providers = Providers(
            env, fake, self.facts, script_models_in_settings(settings) if only_own_scripts else None
        )
        self._record_to = record_to
        self._backoff = Backoff(delay_scale, Random(seed), patience_s)
        self._stall_s = stall_s
        self._on_commands, self._done = on_commands, set[str]()
        self._media: dict[tuple[str, bool], AttachmentPlacer] = {}
        self._absent = set[str]()
        """Small models of helpers that can't be had."""
        self._hash = RequestHash()
        self.budget = budget
        self._sizes = MessageCache(estimate_message_tokens)
        self._tool_size = ToolsCache(_estimate_tool_tokens)
        self._redact = redact
        self._redacted = MessageCache(
            lambda message: escape_message_control_characters(redact.redact_message(message))
        )
        self._declared = ToolsCache(escape_tool_control_characters)
        self._taken = IncrementalScan(
            set[str], lambda taken, message: taken.update(c.id for c in message.tool_calls)
        )
        """Ids of a conversation's calls."""
        self._texts = {
            "xml": MessageCache(render_message_as_text),
            "json": MessageCache(render_message_as_json),
        }

    async def stream(self, call: ModelCall, emit: Emit) -> AsyncGenerator[ModelItem, None]:
        """Yield thoughts and text as they arrive, and the `Reply` last. Raises `Stopped` when the budget is used up.

        Retryable failures are retried until output was shown; then the stream ends with a `Reply` of the partial text,
        `finish_reason` None, no tool calls, and a `problem` saying that it was cut off. Other failures raise
        `ModelError`, output shown or not. Callers that stop early must close the stream (`aclosing`).
        """
        known = self._log.recorded(call.task)
        if known is not None:
            yield known.model_copy(update={"replayed": True})
            return
        request = self._to_request(call)
        recorded = False
        try:
            _require_supported_feature(request)
            for text in (text for places in self._media.values() for text in places.take_warnings()):
                emit(ErrorEvent(agent=self._agent, severity="warning", message=text))
            room = await self.budget.reserve(
                call, self._agent, request.model, self._estimate_request_tokens(request)
            )
            if room is not None:
                request = replace(request, most=self._reply_limit_if_budget_binds(request, room))
            replies = stream_and_settle_budget(
                self.budget, call.task, self._stream_with_retries(call, request, emit)
            )
            async with aclosing(replies):
                async for item in replies:
                    recorded = isinstance(item, Reply)
                    yield item
        finally:
            if not recorded:
                self._log.unused(self._agent, call.role, request.ordinal)

    async def _stream_with_retries(
        self, call: ModelCall, request: ModelRequest, emit: Emit
    ) -> AsyncGenerator[ModelItem, None]:
        started, failures = self._clock.monotonic(), 0
        while True:
            answer = AnswerBuilder()
            try:
                async with aclosing(self._attempt_request(request, call, answer, emit)) as items:
                    async for item in items:
                        if not isinstance(item, Reply) and call.watch and (why := call.watch(item)):
                            answer.mark_abandoned(why, call.messages)
                            break
                        yield item
                break
            except ModelError as error:
                failures += 1
                if error.overflow:
                    self.facts.learn_from_overflow(request.model, str(error), request.size)
                if lighter := self._drop_newest_attachment_if_refused(request, error, emit):
                    request, failures = lighter, failures - 1
                    continue
                if request.instead and not error.retryable:
                    self._absent.add(request.model)
                    request = replace(request, model=request.instead, instead="")
                    continue
                if error.retryable and answer.shown:
                    answer.mark_cut_off(error)
                    break
                spent_s = self._clock.monotonic() - started
                delay_s = self._retry_delay_or_add_give_up_reason(
                    error, failures, call.attempts or ATTEMPTS, spent_s
                )
                if delay_s is None:
                    raise
                told = Retry(
                    agent=self._agent, reason=str(error), delay_s=round(delay_s, 3), attempt=failures + 1
                )
                emit(told)
                await asyncio.sleep(delay_s)
                request = replace(request, attempt=call.failures + failures)
        unknown = self.facts.take_unknown_model_notice(request.model)
        for text in (unknown, _cut_off_warning(request, answer), answer.warning):
            if text:
                emit(ErrorEvent(agent=self._agent, severity="warning", message=text))
        yield self._record_reply(call, request, answer, started)

    def _drop_newest_attachment_if_refused(
        self, request: ModelRequest, error: ModelError, emit: Emit
    ) -> ModelRequest | None:
        """Return the request without the newest attachment, if the server may have refused it; the model is told."""
        if not is_attachment_refusal(error):
            return None
        refused = newest_unrefused_digests(
            request.messages, self.facts.refused_attachment_digests(request.model)
        )
        if not refused:
            return None
        self.facts.record_refused_attachments(request.model, refused)
        text = f"{error} What was attached last is left out, and the model is told."
        emit(ErrorEvent(agent=self._agent, severity="warning", message=text))
        return replace(request, messages=self._drop_refused_attachments(request.model, request.messages))

    def _adapt_attachments_to_model(
        self, model: str, messages: Sequence[Message], tools: bool
    ) -> Sequence[Message]:
        """Return the messages with attachments where the model takes them."""
        messages = self._drop_refused_attachments(model, messages)
        spec = find_provider_spec(provider_name(model))
        if spec is None:  # Gemini takes all of them anywhere; a script is text
            return messages
        if (model, tools) not in self._media:
            self._media[model, tools] = AttachmentPlacer(
                model, spec.cls, self.facts.abilities(model), tools=tools
            )
        return self._media[model, tools](messages)

    def _drop_refused_attachments(self, model: str, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages without attachments that the model's server refused."""
        refused = self.facts.refused_attachment_digests(model)
        return (
            [replace_refused_attachments(message, refused) for message in messages] if refused else messages
        )

    def plan_retry(self, problem: ModelError | str, failed_attempts: int, spent_s: float = 0) -> RetryPlan:
        """Plan the next try after so many in a row that failed, or whose answers were invalid."""
        if isinstance(problem, str):
            failures, delay_s = 0, self._settings.model.stream_retry_delay_s * 2 ** (failed_attempts - 1)
        else:
            failures, delay_s = (
                failed_attempts,
                self._retry_delay_or_add_give_up_reason(problem, failed_attempts, ATTEMPTS, spent_s),
            )
        plan: RetryPlan = {"reason": str(problem), "failures": failures, "spent_s": 0, "delay_s": 0, "at": 0}
        if delay_s is None:
            return plan
        at = self._clock.now() + delay_s
        return {**plan, "spent_s": spent_s + delay_s, "delay_s": delay_s, "at": at}

    def resolve_alias(self, name: str) -> str:
        return resolve_model(self._settings, name)

    def resolve_role_model(self, role: str) -> str:
        return resolve_model(self._settings, unresolved_model_for_role(self._settings, role))

    def for_agent(self, agent: str, temperature: float | None) -> "ChatModels":
        """Return a copy for the sub-agent with this path, sharing connections and records."""
        own = copy(self)
        own._agent, own._temperature = agent, temperature
        return own

    def reuse_caches_of(self, other: "ChatModels") -> None:
        """Know what another drive of the run computed of each message. Both redact the same."""
        self._sizes, self._redacted, self._hash = other._sizes, other._redacted, other._hash

    def context_window(self, model: str) -> int:
        return self.facts.context_window_tokens(model)

    def adjust_token_estimate(self, model: str, tokens: int) -> int:
        return self.facts.scale_estimate(model, tokens)

    def has_reliable_finish_reasons(self, model: str) -> bool:
        return has_reliable_completion_signal(model)

    def next_call_protocol(self, model: str, reply: Reply, replies_without_call: int) -> str:
        return self.facts.choose_and_record_call_protocol(model, reply, replies_without_call)

    async def aclose(self) -> None:
        await self._providers.aclose()

    def _to_request(self, call: ModelCall) -> ModelRequest:
        own = self._temperature if call.schema is None else None
        chosen = (call.temperature, own, self._settings.model.temperature)
        model, instead = self._choose_model_and_fallback(call)
        usual = _NEAR_TEMPERATURE if self.facts.model_server(model).near else _TEMPERATURE
        default = usual if call.schema is None else _HELPER_TEMPERATURE
        messages, schema = (
            self._adapt_attachments_to_model(model, self._redacted(call.messages), bool(call.tools)),
            call.schema,
        )
        if texts := self._texts.get(call.protocol):
            messages = texts(messages)
        if call.protocol == "json" and call.tools:
            messages = with_json_call_rules(messages, call.tools)
            schema = build_answer_schema(call.tools, call.messages, self._files)
        tools = () if texts else self._declared(call.tools)
        return ModelRequest(
            model=model,
            messages=messages,
            tools=tools,
            schema=schema,
            temperature=next((t for t in chosen if t is not None), default),
            agent=self._agent,
            role=call.role,
            ordinal=self._log.ordinal(self._agent, call.role),
            feature=call.feature,
            thinking=self._settings.model.thinking if call.schema is None else "auto",
            size=sum(self._sizes(messages)) + self._tool_size(tools),
            attempt=call.failures,
            instead=instead,
        )

    def _choose_model_and_fallback(self, call: ModelCall) -> tuple[str, str]:
        """Return the model that is asked, and the one to ask if a helper's small model can't be had or is too
        small."""
        if call.model:
            return self.resolve_alias(call.model), ""
        main = self.resolve_alias(unresolved_model_for_role(self._settings, "main"))
        near = self.facts.model_server(main).near
        model, instead = choose_helper_model_and_fallback(self._settings, call.role, is_self_hosted=near)
        too_long = instead and sum(self._sizes(call.messages)) > _FILLED * self.facts.context_window_tokens(
            model
        )
        return (instead, "") if instead and (too_long or model in self._absent) else (model, instead)

    def _estimate_request_tokens(self, request: ModelRequest) -> int:
        """Estimate the request's tokens, tools included."""
        return self.facts.scale_estimate(request.model, request.size)

    def _reply_limit_if_budget_binds(self, request: ModelRequest, budget_tokens: int) -> int | None:
        """Return what a budget leaves for the reply, where it is less than the model could write: servers
        refuse more."""
        window = self.facts.context_window_tokens(request.model) - self._estimate_request_tokens(request)
        return (
            budget_tokens if budget_tokens < (self.facts.abilities(request.model).output or window) else None
        )

    async def _attempt_request(
        self, request: ModelRequest, call: ModelCall, answer: AnswerBuilder, emit: Emit
    ) -> AsyncGenerator[ModelItem, None]:
        """Make one attempt. Raise `ModelError` for a client's failure; our own bugs propagate unchanged."""
        stall_s = self._stall_s if request.attempt == 0 else self._stall_s / 4
        first_s = self.facts.first_token_timeout_s(request.model, stall_s)
        started, report_stage = self._clock.monotonic(), self._make_stage_reporter(request, call, emit)

        def warn_of_silence(seconds: float, limit_s: float) -> None:
            limit = f"it is given up after {round(limit_s, 1):g} s"
            text = f"Model {request.model!r} has said nothing for {seconds:g} s; {limit}."
            emit(ErrorEvent(agent=self._agent, severity="warning", message=text))

        try:
            report_stage("connecting")
            source = (await self._providers.provider_for(request.model)).stream(request)
            report_stage("reading")
            if _can_call_shell(request, call):
                self._run_once_in_thread("commands", self._on_commands)
            waits = partial(stream_with_timeouts, stall_s=stall_s, first_s=first_s, total_s=call.timeout_s)
            limited = partial(waits, is_output=_is_answer_chunk, on_silence=warn_of_silence)
            write = partial(self._stream_requested_file, request, call, limited)
            async with aclosing(_extract_calls(limited(source), call, write, self._files)) as pieces:
                async for chunk in pieces:
                    if not answer.begun_s and not chunk.progress:
                        answer.begun_s = self._clock.monotonic() - started
                        report_stage("thinking")
                        self._run_once_in_thread(request.model, partial(self.facts.prices, request.model))
                    if chunk.progress:
                        done, total = chunk.progress
                        emit(
                            Progress(agent=self._agent, what="reading", done=done, total=total, unit="tokens")
                        )
                    for item in answer.add_chunk(chunk):
                        yield item
        except Exception as error:
            if is_empty_stream_error(error):
                return
            explained = to_model_error_or_reraise(error, request.model, self._clock.now())
            explained.args = (self._redact(str(explained)),)  # clients quote the URL, which contains the key
            raise explained from error

    async def _stream_requested_file(
        self, request: ModelRequest, call: ModelCall, limit_time: _TimeLimit, path: str, text: str
    ) -> _Pieces:
        """Return the answer to the request for a file that the model wants to write."""
        messages = build_file_writing_prompt(path, text, self._redacted(call.messages))
        provider = await self._providers.provider_for(request.model)
        async with aclosing(
            limit_time(provider.stream(replace(request, messages=messages, schema=None)))
        ) as pieces:
            async for chunk in pieces:
                yield chunk

    def _run_once_in_thread(self, key: str, function: Callable[[], object]) -> None:
        """Run a function once, in a thread, while a first answer comes: for each request it would take time."""
        if key not in self._done:
            self._done.add(key)
            asyncio.get_running_loop().run_in_executor(None, function)

    def _make_stage_reporter(
        self, request: ModelRequest, call: ModelCall, emit: Emit
    ) -> Callable[[_Stage], None]:
        """Return a function that tells how far a call of the main model has come, with the tokens it sends."""
        sizes: dict[str, Any] = {}
        if call.role == "main":
            tools, window = self._tool_size(request.tools), self.facts.context_window_tokens(request.model)
            sizes = {"tokens": self._estimate_request_tokens(request), "tools": tools, "window": window}

        def report_stage(stage: _Stage) -> None:
            if sizes:
                emit(Asking(agent=self._agent, stage=stage, model=request.model, **sizes))

        return report_stage

    def _retry_delay_or_add_give_up_reason(
        self, error: ModelError, failures: int, attempts: int, spent_s: float
    ) -> float | None:
        """Return the seconds to wait before another attempt, or None; then the error's text may say why."""
        if not error.retryable or failures >= min(attempts, error.attempts or attempts):
            return None
        delay_s = self._backoff.delay_s(failures, error)
        why = self._backoff.give_up_reason(error, failures, spent_s, delay_s, self._clock.now())
        error.args = (f"{error} {why}",) if why else error.args
        return None if why else delay_s

    def _record_reply(
        self, call: ModelCall, request: ModelRequest, answer: AnswerBuilder, started: float
    ) -> Reply:
        answer.problem = self._redact(answer.problem) if answer.problem else None
        message = self._redact.redact_message(
            answer.build_message(request.ordinal, self._taken(call.messages, self))
        )
        if self._record_to is not None:
            about = {"role": request.role, "agent": request.agent, "ordinal": request.ordinal}
            end = {"finish_reason": answer.finish_reason, "problem": answer.problem}
            # Before the row: a kill in between repeats the request, and the later entry for an ordinal wins.
            append_script_entry(self._record_to, to_script_entry(message, **about, **end, usage=answer.usage))
        self.facts.record_answer_and_speed(
            request.model, answer.usage.input - answer.usage.cached, answer.begun_s
        )
        self.facts.calibrate_token_estimate(request.model, answer.usage.input, request.size)
        usage = answer.usage.model_copy(update={"usd": self.facts.cost_usd(request.model, answer.usage)})
        self.budget.settle_reservation(
            call.task, usage
        )  # committed with the reply: a kill leaves both or neither
        reply = Reply(
            record="",
            message=message,
            model=request.model,
            finish_reason=answer.finish_reason,
            problem=answer.problem,
            usage=usage,
            duration_ms=round((self._clock.monotonic() - started) * 1000),
            called=answer.call_protocol,
        )
        return self._log.record(call, request, reply, self._hash(request))


def _is_answer_chunk(chunk: Chunk) -> bool:
    return not chunk.progress


def _can_call_shell(request: ModelRequest, call: ModelCall) -> bool:
    """Return whether the answer may call a command; not for a script: its answer is there at once."""
    return provider_name(request.model) != "script" and any(tool.name in SHELL for tool in call.tools)


def _require_supported_feature(request: ModelRequest) -> None:
    if request.feature and provider_name(request.model) not in _FEATURE_PROVIDERS:
        doing = {"picture": "draw", "web": "search the web"}[request.feature]
        text = f"Model {request.model!r} can't {doing}; name one of Gemini's in the setting"
        raise ModelError(f"{text} model.roles.{request.role}.")


def _cut_off_warning(request: ModelRequest, answer: AnswerBuilder) -> str:
    if answer.finish_reason != "length":
        return ""
    where = "at the model's limit"
    if request.most:
        where = f"after {request.most:,} tokens: the budget leaves no more"
    return f"The answer of {request.model!r} was cut off {where}. It may be incomplete."


def _extract_calls(
    pieces: _Pieces,
    call: ModelCall,
    request_file: Callable[[str, str], _Pieces],
    files: RepairFileRules | None,
) -> _Pieces:
    """Return the chunks with the calls that the protocol finds in the text."""
    if call.protocol == "json" and call.tools:
        return extract_json_calls(pieces, call.tools, request_file, allowed_writes(call.messages, files))
    if call.protocol in ("xml", "auto") and call.tools:
        found = extract_tagged_calls(pieces, TaggedTools(call.tools, call.withheld))
        return extract_fenced_or_bare_calls(found, call.tools)
    return pieces


def _estimate_tool_tokens(tools: Sequence[ToolDeclaration]) -> int:
    return sum(estimate_tokens(f"{t.name}{t.description}{t.parameters}") for t in tools)
