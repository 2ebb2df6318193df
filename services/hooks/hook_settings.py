"""hook_settings: the hooks configured in settings: their events, matchers and commands."""

import hashlib
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar, cast, get_args

from pydantic import BaseModel, Field, JsonValue, ValidationError

from interlock.services.config.settings import (
    HookLayer,
    describe_validation_error,
    expand_variables,
    format_value_for_error,
)
from interlock.services.hooks import claude_dialect
from interlock.services.policy.rule import Pattern, PatternError, all_tool_names, compile_pattern
from interlock.state.errors import ConfigError
from interlock.state.run import HookEvent
from interlock.state.text import did_you_mean, first_validation_error

EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
ALIASES: dict[str, HookEvent] = {
    "PreToolUse": "BeforeTool",
    "PostToolUse": "AfterTool",
    "UserPromptSubmit": "BeforeAgent",
    "Stop": "AfterAgent",
    "PreCompact": "PreCompress",
}
"""Claude Code's names, where they differ."""


def find_hook_event(name: str) -> HookEvent | None:
    """Return the event with this name, ours or Claude Code's."""
    return name if name in EVENTS else ALIASES.get(name)


def unknown_event_message(name: str) -> str:
    """Explain that a name is not an event, suggesting the one probably meant."""
    if name in ("enabled", "disabled", "notifications"):
        return f"unknown event; write hooksConfig.{name}."
    return f"unknown event.{did_you_mean(name, [*EVENTS, *ALIASES], cutoff=0.6)}"


TOOL_EVENTS: frozenset[HookEvent] = frozenset({"BeforeTool", "AfterTool"})
_ALL = ("", "*")


@dataclass(frozen=True)
class Matcher:
    """A hook's matcher. With `pattern` None, the text is compared literally."""

    text: str = ""
    pattern: Pattern | None = None
    names: frozenset[str] | None = None
    """Claude Code's: the exact names that it lists."""
    is_claudes: bool = False
    """Its pattern is compared with Claude Code's names of tools only."""

    def is_matching(self, subjects: Collection[str]) -> bool:
        """Return whether the hook applies to any of these names of one subject; events without a subject match
        every hook."""
        if self.text in _ALL or not any(subjects):
            return True
        if self.names is not None:
            return not self.names.isdisjoint(subjects)
        if self.is_claudes:
            subjects = claude_dialect.claude_tool_names(frozenset(subjects))
        return any(self.pattern.is_found_in(s) if self.pattern else self.text == s for s in subjects)


def build_matcher(event: HookEvent, text: str) -> tuple[Matcher, str]:
    """Build the matcher; if its pattern is unusable, one that compares literally, with the reason."""
    if event not in TOOL_EVENTS or text in _ALL:
        return Matcher(text), ""
    try:
        return Matcher(text, compile_pattern(text)), ""
    except PatternError as error:
        why = f"{error}; only a tool of exactly this name matches, and for required hooks every tool"
        return Matcher(text), why


def event_subject_names(event: HookEvent, subject: str, payload: Mapping[str, JsonValue]) -> Collection[str]:
    """Return all names of an event's subject: tools have aliases, and an agent also matches by its own name."""
    args = payload.get("tool_input")
    return (
        all_tool_names(subject, args if isinstance(args, dict) else {})
        if event in TOOL_EVENTS
        else (subject,)
    )


@dataclass(frozen=True)
class Hook:
    """One command of one definition."""

    event: HookEvent
    source: str
    """The settings file that defines it."""
    place: str
    """Its dotted key in the file: `hooks.BeforeTool.0.hooks.1`."""
    command: str = ""
    name: str = ""
    matcher: Matcher = field(default_factory=Matcher)
    sequential: bool = False
    timeout_s: float = 60.0
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    required: bool = False
    """A failure of this hook blocks."""
    idempotent: bool = False
    """May be rerun without asking after a kill."""
    is_claudes: bool = False
    """It gets Claude Code's input, and its replies are read as there."""
    broken: str = ""
    """Why it can't be run; only required hooks are kept when broken, and they block."""

    @property
    def display_name(self) -> str:
        return self.name or self.command or self.place

    @property
    def id(self) -> str:
        """Stable for the same name and command, whichever file defines it."""
        what = f"{self.name}\0{self.command}" if not self.broken else f"{self.source}\0{self.place}"
        return hashlib.sha256(what.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class HookRegistry:
    """All active hooks in the order they run: the project's, then the user's."""

    hooks: Sequence[Hook] = ()
    problems: Sequence[str] = ()
    """One line each, with file and place."""
    notifications: bool = True
    """Whether to report hooks that return nothing."""

    @property
    def joined_event_names(self) -> str:
        """Names of the events that have hooks, comma-joined and sorted."""
        return ",".join(sorted({hook.event for hook in self.hooks}))

    def select_hooks(self, event: HookEvent, *subjects: str) -> list[Hook]:
        """Return the hooks to run for a subject with these names.

        Hooks with the same name and command run once, with the strictest of their definitions.
        """
        chosen: dict[str, Hook] = {}
        for hook in self.hooks:
            if hook.event != event or not hook.matcher.is_matching(subjects):
                continue
            known = chosen.get(hook.id, hook)
            chosen[hook.id] = replace(
                known,
                required=known.required or hook.required,
                sequential=known.sequential or hook.sequential,
                idempotent=known.idempotent and hook.idempotent,
            )
        return list(chosen.values())


class _ClaudeCommand(BaseModel, extra="allow", strict=True, defer_build=True):
    type: str = "command"
    command: str = ""
    args: list[str] = Field(default_factory=list[str])
    timeout: float | None = Field(None, gt=0)
    shell: str = "bash"
    status_message: str = Field("", alias="statusMessage")
    async_: bool = Field(False, alias="async")


class _ClaudeGroup(BaseModel, extra="allow", strict=True, defer_build=True):
    matcher: str = ""
    hooks: list[Any]


@dataclass
class ClaudeHookReader:
    """Reads the hooks of one settings file of Claude Code. What can't be said here doesn't count and is named."""

    source: str
    problems: list[str]

    def read_hooks(self, data: object) -> Iterator[Hook]:
        if not isinstance(data, dict):
            self._report("hooks", f"it is {format_value_for_error(data)}, expected an object")
            return
        for name, groups in cast(dict[str, Any], data).items():
            event = claude_dialect.EVENTS.get(name)
            if event is None:
                known = name in claude_dialect.OTHER_EVENTS
                self._report(f"hooks.{name}", "Interlock has no such event" if known else "unknown event")
            elif not isinstance(groups, list):
                self._report(f"hooks.{name}", "expected an array")
            else:
                for number, group in enumerate(cast(list[Any], groups)):
                    yield from self._read_group(name, event, f"hooks.{name}.{number}", group)

    def _read_group(self, name: str, event: HookEvent, dotted_key: str, data: object) -> Iterator[Hook]:
        try:
            group = _ClaudeGroup.model_validate(data)
            matcher = _build_claude_matcher(event, group.matcher)
        except (ValidationError, PatternError) as error:
            why = first_validation_error(error)[1] if isinstance(error, ValidationError) else str(error)
            self._report(dotted_key, why)
            return
        self._report_unknown(dotted_key, group)
        for number, item in enumerate(group.hooks):
            place = f"{dotted_key}.hooks.{number}"
            try:
                command = _ClaudeCommand.model_validate(item)
            except ValidationError as error:
                self._report(place, ": ".join(first_validation_error(error)))
                continue
            if why := _unsupported_claude_hook(command):
                self._report(place, why)
                continue
            self._report_unknown(place, command)
            timeout = command.timeout or claude_dialect.TIMEOUTS_S.get(name, claude_dialect.TIMEOUT_S)
            words = f" {shlex.join(command.args)}" if command.args else ""
            first = shlex.quote(command.command) if command.args else command.command
            yield Hook(
                event,
                self.source,
                place,
                f"{first}{words}",
                matcher=matcher,
                timeout_s=timeout,
                is_claudes=True,
            )

    def _report(self, dotted_key: str, why: str) -> None:
        self.problems.append(f"{self.source}: {dotted_key}: {why}; it doesn't count.")

    def _report_unknown(self, dotted_key: str, found: BaseModel) -> None:
        for key in found.model_extra or ():
            self.problems.append(f"{self.source}: {dotted_key}: unknown setting {key!r}.")


def _build_claude_matcher(event: HookEvent, text: str) -> Matcher:
    """Return a matcher as Claude Code reads it. Raises `PatternError`."""
    names = None if text in _ALL else claude_dialect.exact_matcher_names(text)
    if text in _ALL or names is not None:
        return Matcher(text, names=names, is_claudes=True)
    return Matcher(text, compile_pattern(text), is_claudes=event in TOOL_EVENTS)


def _unsupported_claude_hook(command: _ClaudeCommand) -> str:
    """Return why a hook can't run here; empty if it can."""
    if command.type != "command":
        return f"Interlock runs no hooks of type {command.type!r}"
    if "if" in (command.model_extra or {}):
        return "Interlock doesn't know `if`, so it would run too often"
    if command.shell != "bash":
        return f"Interlock runs no hooks in {command.shell}"
    return "" if command.command else "command is missing"


TIMEOUT_MS = 60_000
"""Default of gemini-cli."""
_SUSPICIOUS_MS = 1_000


class _Command(BaseModel, extra="allow", strict=True, defer_build=True):
    type: Literal["command"] = "command"
    command: str = Field(min_length=1)
    name: str = ""
    description: str = ""
    timeout: float = Field(TIMEOUT_MS, gt=0)
    env: dict[str, str] = Field(default_factory=dict[str, str])
    required: bool = False
    idempotent: bool = False


class _Group(BaseModel, extra="allow", strict=True, defer_build=True):
    matcher: str = ""
    sequential: bool = False
    description: str = ""
    hooks: list[Any]


_Model = TypeVar("_Model", bound=BaseModel)


@dataclass
class _HookReader:
    """Reads the hooks of one settings file."""

    source: str
    env: Mapping[str, str]
    problems: list[str]

    def read_hooks(self, data: object) -> Iterator[Hook]:
        if not isinstance(data, dict):
            self._report_or_raise_if_required(
                f"hooks is {format_value_for_error(data)}, expected an object.", data
            )
            return
        for name, groups in cast(dict[str, Any], data).items():
            event = find_hook_event(name)
            if event is None:
                self._report_or_raise_if_required(f"hooks.{name}: {unknown_event_message(name)}", groups)
            elif not isinstance(groups, list):
                yield from self._report_and_block_if_required(
                    event,
                    f"hooks.{name}",
                    groups,
                    self._wrong_type_message(f"hooks.{name}", groups, "an array"),
                )
            else:
                for number, group in enumerate(cast(list[Any], groups)):
                    yield from self._read_group(event, f"hooks.{name}.{number}", group, event != name)

    def _read_group(self, event: HookEvent, dotted_key: str, data: object, aliased: bool) -> Iterator[Hook]:
        try:
            group = self._validate_settings(_Group, dotted_key, data)
        except ConfigError as error:
            yield from self._report_and_block_if_required(event, dotted_key, data, str(error))
            return
        match, problem = build_matcher(event, group.matcher)
        if problem:
            self.problems.append(f"{self.source}: {dotted_key}.matcher: {problem}.")
        for number, item in enumerate(group.hooks):
            for hook in self._read_command(event, f"{dotted_key}.hooks.{number}", item, aliased):
                # A guard with an unreadable matcher applies to everything.
                found = Matcher() if problem and hook.required else match
                yield replace(hook, matcher=found, sequential=group.sequential)

    def _read_command(self, event: HookEvent, dotted_key: str, data: object, aliased: bool) -> Iterator[Hook]:
        try:
            command = self._validate_settings(_Command, dotted_key, data)
        except ConfigError as error:
            yield from self._report_and_block_if_required(event, dotted_key, data, str(error))
            return
        if aliased and "timeout" in command.model_fields_set and command.timeout < _SUSPICIOUS_MS:
            self.problems.append(
                f"{self.source}: {dotted_key}.timeout is {command.timeout:g} milliseconds; for seconds write "
                f"{command.timeout * 1000:g}."
            )
        unset: list[str] = []
        env = {name: expand_variables(value, self.env, unset) for name, value in command.env.items()}
        self.problems += [
            f"{self.source}: {dotted_key}.env names ${name}, which is not set." for name in unset
        ]
        yield Hook(
            event=event,
            source=self.source,
            place=dotted_key,
            command=command.command,
            name=command.name,
            timeout_s=command.timeout / 1000,
            env=env,
            required=command.required,
            idempotent=command.idempotent,
        )

    def _validate_settings(self, model: type[_Model], dotted_key: str, data: object) -> _Model:
        """Validate `data` and report unknown keys. Raises `ConfigError`."""
        if not isinstance(data, dict):
            raise ConfigError(self._wrong_type_message(dotted_key, data, "an object"))
        table = cast(dict[str, Any], data)
        try:
            found = model.model_validate(table)
        except ValidationError as error:
            raise ConfigError(
                describe_validation_error(self.source, table, error, f"{dotted_key}.")
            ) from None
        for key in found.model_extra or ():
            hint = did_you_mean(key, model.model_fields, cutoff=0.6)
            self.problems.append(f"{self.source}: {dotted_key}: unknown setting {key!r}.{hint}")
        return found

    def _wrong_type_message(self, dotted_key: str, data: object, expected: str) -> str:
        return f"{self.source}: {dotted_key} is {format_value_for_error(data)}, expected {expected}."

    def _report_and_block_if_required(
        self, event: HookEvent, dotted_key: str, data: object, problem: str
    ) -> Iterator[Hook]:
        """Skip a malformed definition, unless it is marked required: then it blocks."""
        required = _is_marked_required(data)
        effect = (
            f"it is required, so {event} blocks until it is corrected"
            if required
            else "this hook doesn't count"
        )
        self.problems.append(f"{problem.rstrip('.')}; {effect}.")
        if required:
            yield Hook(event=event, source=self.source, place=dotted_key, required=True, broken=problem)

    def _report_or_raise_if_required(self, problem: str, data: object) -> None:
        if _is_marked_required(data):
            raise ConfigError(f"{self.source}: {problem} A hook in it is required, so nothing runs.")
        self.problems.append(f"{self.source}: {problem} Its hooks don't count.")


def load_hooks(layers: Sequence[HookLayer], env: Mapping[str, str]) -> HookRegistry:
    """Load the hooks of all sources, the project's first, so that the user's take precedence.

    A project can't disable the user's hooks. Raises `ConfigError` for a required hook of an unknown event.
    """
    problems: list[str] = []
    hooks: list[Hook] = []
    for layer in sorted(layers, key=lambda layer: not layer.project):
        reader = (
            ClaudeHookReader(layer.source, problems)
            if layer.is_claudes
            else _HookReader(layer.source, env, problems)
        )
        found = list(reader.read_hooks(layer.hooks))
        off = _disabled_hook_names([other for other in layers if layer.project or not other.project])
        if off is not None:
            hooks += [hook for hook in found if not {hook.name, hook.command} & off - {""}]
    shows = [layer.config.get("notifications", True) for layer in layers if not layer.project]
    return HookRegistry(tuple(hooks), tuple(problems), notifications=all(shows[-1:]))


def _disabled_hook_names(layers: Sequence[HookLayer]) -> set[str] | None:
    """Return the names and commands that are disabled; None if all are."""
    enabled = [layer.config["enabled"] for layer in layers if "enabled" in layer.config]
    if not all(enabled[-1:]):
        return None
    return {name for layer in layers for name in layer.config.get("disabled", ())}


def _is_marked_required(data: object) -> bool:
    """Return whether `required` occurs anywhere in it with a value other than false."""
    if isinstance(data, dict):
        found = cast(dict[str, Any], data)
        return found.get("required") not in (None, False) or any(map(_is_marked_required, found.values()))
    return isinstance(data, list) and any(map(_is_marked_required, cast(list[Any], data)))
