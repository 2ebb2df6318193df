"""modes: the available modes (built in, the user's and a trusted project's) and the tools each allows."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
)

from interlock.prompts import render_prompt
from interlock.services.config.formats import parse_yaml
from interlock.services.config.settings import format_value_for_error
from interlock.services.files.disk import read_file
from interlock.services.files.protected import SETTINGS_FOLDERS
from interlock.services.policy.rule import PatternError, compile_pattern
from interlock.state.calls import CallView
from interlock.state.mode import ALWAYS, BUILT_IN, Group, Mode
from interlock.state.text import clean_json
from interlock.state.tooling import Tool, restrict_field
from interlock.tools.control import NEW_TASK, SWITCH_MODE

PROJECT_FILE = ".roomodes"
GLOBAL_FILE = Path(SETTINGS_FOLDERS[-1]) / "custom_modes.yaml"
"""Below the home directory; Roo Code's name for it."""
_LARGEST = 1_000_000
"""Maximum size of a modes file in bytes."""
_TYPOGRAPHY = str.maketrans(
    {
        "\u00a0": " ",
        **dict.fromkeys("\u200b\u200c\u200d\ufeff"),
        **dict.fromkeys("\u2018\u2019", "'"),
        **dict.fromkeys("\u201c\u201d", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    }
)
"""Typographic characters from editors and web pages → the plain ones that YAML requires."""
_QUOTES = frozenset("\u2018\u2019\u201c\u201d")


class _Restriction(BaseModel, strict=True, defer_build=True):
    file_regex: str = Field("", alias="fileRegex")
    description: str = ""

    @field_validator("file_regex")
    @classmethod
    def _require_valid_pattern(cls, text: str) -> str:
        try:
            compile_pattern(text)
        except PatternError as error:
            raise ValueError(str(error)) from None
        return text


def _reject_duplicates(kind: str, names: Sequence[str]) -> None:
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{kind} {twice!r} stands there twice")


def _to_group_and_restriction(value: object) -> object:
    """Return `edit` and `[edit]` as `[edit, {}]`."""
    items = cast(list[object], value) if isinstance(value, list) else [value]
    return (items[0], dict[str, object]()) if len(items) == 1 else items


class _Mode(BaseModel, defer_build=True):
    """One mode in a file; keys used only by Roo Code's editor are ignored."""

    slug: str = Field(pattern=r"^[a-zA-Z0-9-]+$")
    name: str = Field(min_length=1)
    role: str = Field(min_length=1, validation_alias=AliasChoices("roleDefinition", "role"))
    when_to_use: str = Field("", alias="whenToUse")
    description: str = ""
    instructions: str = Field("", alias="customInstructions")
    groups: list[Annotated[tuple[Group, _Restriction], BeforeValidator(_to_group_and_restriction)]]

    @field_validator("groups")
    @classmethod
    def _require_unique_groups(
        cls, groups: list[tuple[Group, _Restriction]]
    ) -> list[tuple[Group, _Restriction]]:
        _reject_duplicates("group", [name for name, _ in groups])
        return groups


class _ModesFile(BaseModel, defer_build=True):
    modes: list[_Mode] = Field(default_factory=list[_Mode], alias="customModes")

    @field_validator("modes")
    @classmethod
    def _require_unique_slugs(cls, modes: list[_Mode]) -> list[_Mode]:
        _reject_duplicates("slug", [mode.slug for mode in modes])
        return modes


class ModeRegistry:
    """Implements `Modes`."""

    def __init__(self, modes: Iterable[Mode], at_start: Iterable[Mode] = ()) -> None:
        """`at_start`: changed modes as they were when the run began; what those refuse stays refused."""
        self._modes = {mode.slug: mode for mode in modes}
        self._then = {mode.slug: mode for mode in at_start}

    def find_mode(self, slug: str) -> Mode | None:
        return self._modes.get(slug)

    def list_modes(self) -> Sequence[Mode]:
        return [*self._modes.values()]

    def refusal_reason(self, slug: str, call: CallView, tool: str, files: Iterable[str] | None) -> str | None:
        mode = self._modes.get(slug)
        if mode is None:
            return f"Mode {slug!r} no longer exists; {call.name} asked for it. Switch to another mode."
        named = None if files is None else [*files]
        refusal = _mode_refusal_reason(mode, call, tool, named)
        if refusal is None and (
            before := _mode_refusal_reason(self._then.get(slug, mode), call, tool, named)
        ):
            return (
                f"{before} So it was when this run began; what the mode allows since then needs --new-rules."
            )
        return refusal


def _mode_refusal_reason(mode: Mode, call: CallView, tool: str, files: Iterable[str] | None) -> str | None:
    if tool in ALWAYS:
        return None
    rule = mode.find_group_rule(tool)
    if rule is None:
        return f"{call.name} is not a tool of mode {mode.slug!r} ({mode.name}), which has {_describe_groups(mode)}."
    if rule.name != "edit" or not rule.file_regex:
        return None
    may = f"Mode {mode.slug!r} ({mode.name}) may only edit files that match {rule.file_regex}"
    may += f" ({rule.description})" if rule.description else ""
    if files is None:
        return f"{may}, and which file {call.name} would write can't be known."
    pattern = compile_pattern(rule.file_regex)
    wrong = next((file for file in files if not pattern.is_found_in(file)), None)
    return None if wrong is None else f"{may}; {call.name} would write {wrong!r}."


def _describe_groups(mode: Mode) -> str:
    return f"the groups {', '.join(g.name for g in mode.groups)}" if mode.groups else "no group of tools"


def restrict_mode_tools(registry: ModeRegistry) -> dict[str, Tool]:
    """Return the tools with a mode parameter, restricted to the available modes."""
    slugs = tuple(mode.slug for mode in registry.list_modes())
    named = {"switch_mode": (SWITCH_MODE, "mode_slug"), "new_task": (NEW_TASK, "mode")}
    return {
        name: replace(tool, args=restrict_field(tool.args, field, slugs, "no mode has this slug"))
        for name, (tool, field) in named.items()
    }


def load_modes(root: Path, home: Path, trusted: bool) -> tuple[ModeRegistry, list[str]]:
    """Return all modes, and a line for each file ignored as a whole because of an error."""
    problems: list[str] = []
    modes = {
        mode.slug: mode.model_copy(update={"role": render_prompt(f"modes/{mode.slug}")}) for mode in BUILT_IN
    }
    custom: dict[str, Mode] = {}
    for file, source in ((root / PROJECT_FILE, "project"), (home / GLOBAL_FILE, "global")):
        if source == "project" and not trusted:
            continue
        try:
            found = _read_modes_file(file, source)
        except (OSError, ValueError) as error:
            problems.append(f"{file} was ignored as a whole: {_describe_error(error)}")
        else:
            custom |= {mode.slug: mode for mode in found if mode.slug not in custom}
    return ModeRegistry((modes | custom).values()), problems


def _read_modes_file(file: Path, source: str) -> list[Mode]:
    """Return the modes of a file. Raise `OSError`, or `ValueError` saying what is wrong."""
    try:
        text = read_file(file, _LARGEST).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [_to_mode(mode, source) for mode in _parse_modes(text)]


def _parse_modes(text: str) -> list[_Mode]:
    """Return the file's modes as YAML (a superset of JSON), else with typography undone, else as JSON."""
    ways: tuple[Callable[[], object], ...] = (
        lambda: parse_yaml(text),
        lambda: parse_yaml(text.translate(_TYPOGRAPHY)),
        lambda: json.loads(text),
    )
    problems: list[Exception] = []
    for parsed in ways:
        try:
            data = _strip_typographic_quotes(parsed())
            if data is not None and not isinstance(data, dict):
                raise ValueError("expected a mapping with the key customModes")
            return _ModesFile.model_validate({} if data is None else data).modes
        except (ValueError, RecursionError) as error:
            problems.append(error)
    raise problems[0]


def _strip_typographic_quotes(value: object) -> object:
    """Return `value` without the quotes that an editor put around texts: to YAML they are part of them."""
    match value:
        case str() if len(value) > 1 and {value[0], value[-1]} <= _QUOTES:
            inner = value[1:-1]
            return value if value[0] in inner or value[-1] in inner else inner
        case list():
            return [*map(_strip_typographic_quotes, cast(list[object], value))]
        case dict():
            return {
                _strip_typographic_quotes(k): _strip_typographic_quotes(v)
                for k, v in cast(dict[object, object], value).items()
            }
        case _:
            return value


def _to_mode(mode: _Mode, source: str) -> Mode:
    groups = [{"name": name, **more.model_dump()} for name, more in mode.groups]
    fields = {**mode.model_dump(exclude={"groups"}), "groups": groups, "source": source}
    return Mode.model_validate(clean_json(fields))


def _describe_error(error: Exception) -> str:
    if isinstance(error, ValidationError):
        found = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in found["loc"])
        return f"{place}: {found['msg'].removeprefix('Value error, ')}, got {format_value_for_error(found['input'])}."
    return f"{' '.join(str(error).split())}."
