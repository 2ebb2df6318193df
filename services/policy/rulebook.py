"""rulebook: the fields of a rule as files and settings write them, and the rules of all tiers in their order."""

import os
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from interlock.services.policy.names import agent_of, canonical, names_of, of_server
from interlock.services.policy.patterns import Pattern, PatternError, compile_pattern
from interlock.services.policy.rule import SHIPPED, WORKSPACE, Rule, Scope, about, annotations_of
from interlock.state.calls import ApprovalMode, CallView, Decision, Risk

SHELL_TOOLS = frozenset({"run_shell_command", "execute_command"})
"""Tools whose argument `command` is a line of bash."""

_CONDITIONS = ("argsPattern", "commandPrefix", "commandRegex", "plainReading", "path", "host")
MODE_NAMES = {"autoEdit": "auto_edit"}
"""gemini-cli's spelling → ours."""


def _one_or_more(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _mode(value: object) -> object:
    return MODE_NAMES.get(value, value) if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_one_or_more), Field(min_length=1)]
Mode = Annotated[ApprovalMode, BeforeValidator(_mode)]


class RuleFields(BaseModel):
    """One `[[rule]]` table. Names are gemini-cli's, but for `path`, `host` and `workspace`."""

    model_config = ConfigDict(extra="forbid", strict=True)

    toolName: Names  # noqa: N815
    decision: Literal["allow", "ask", "ask_user", "deny"]
    priority: Annotated[int, Field(ge=0, le=999)]
    mcpName: str | None = None  # noqa: N815
    subagent: str | None = None
    toolAnnotations: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])  # noqa: N815
    argsPattern: str | None = None  # noqa: N815
    commandPrefix: Names | None = None  # noqa: N815
    commandRegex: str | None = None  # noqa: N815
    plainReading: Literal[True] | None = None  # noqa: N815
    """Shell commands that only read, with plain arguments inside the workspace."""
    path: str | None = None
    """As tools name it: relative to the workspace, absolute in an included directory."""
    host: str | None = None
    """Of every address that the call names, with the port where one is given."""
    workspace: str | None = None
    """Absolute path of the workspace that the rule is only about."""
    modes: list[Mode] = Field(default_factory=list[Mode])
    interactive: bool | None = None
    allowRedirection: bool = False  # noqa: N815
    denyMessage: str | None = None  # noqa: N815

    @model_validator(mode="after")
    def _consistent(self) -> "RuleFields":
        for name in self.toolName:
            if not usable_tool_name(name):
                raise ValueError(f"toolName {name!r}: expected a tool's name, '*', 'mcp_*' or 'mcp_SERVER_*'")
        given = [k for k in _CONDITIONS if getattr(self, k) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} exclude each other")
        command = not (self.commandPrefix is self.commandRegex is self.plainReading is None)
        if command and not all(canonical(n) in SHELL_TOOLS for n in self.toolName):
            raise ValueError(f"{given[0]} is only for toolName 'run_shell_command', got {self.toolName}")
        if (self.path or self.host or self.plainReading) and self.decision != "allow":
            raise ValueError(f"{given[0]} is only for decision 'allow'; to restrict, use argsPattern")
        if self.workspace is not None and not os.path.isabs(self.workspace):  # noqa: PTH117
            raise ValueError(f"workspace {self.workspace!r} is relative, expected an absolute path")
        return self


def usable_tool_name(name: str) -> bool:
    body = name[:-1] if name == "*" or (name.startswith("mcp_") and name.endswith("_*")) else name
    return name != "" and not set(body) & set("*?[] \t\n")


def to_rule(table: dict[str, Any], source: str, tier: int) -> Rule:
    """Raises `ValueError` whose text names the field."""
    try:
        fields = RuleFields.model_validate(table)
    except ValidationError as error:
        raise ValueError(first_error(error, RuleFields)) from None
    if fields.path and fields.workspace is None and tier != WORKSPACE and not os.path.isabs(fields.path):  # noqa: PTH117
        raise ValueError(f'path {fields.path!r} is relative: in which workspace? Name it by workspace = "…"')
    return Rule(
        source=source,
        tools=tuple(name for n in fields.toolName for name in of_server(n, fields.mcpName)),
        decision=decision_of(fields.decision),
        tier=tier,
        priority=fields.priority,
        modes=frozenset(fields.modes),
        prefixes=tuple(words(p) for p in fields.commandPrefix or ()),
        reading=fields.plainReading or False,
        command=_pattern("commandRegex", fields.commandRegex),
        args=_pattern("argsPattern", fields.argsPattern),
        allow_redirection=fields.allowRedirection,
        deny_message=fields.denyMessage,
        target=fields.path if fields.host is None else fields.host,
        workspace=fields.workspace,
        annotations=fields.toolAnnotations,
        server=fields.mcpName,
        subagent=fields.subagent,
        interactive=fields.interactive,
    )


def decision_of(word: Literal["allow", "ask", "ask_user", "deny"]) -> Decision:
    return "ask" if word == "ask_user" else word


def words(prefix: str) -> tuple[str, ...]:
    """A command prefix as the words that bash would make of it. Raises `ValueError`."""
    try:
        split = tuple(shlex.split(prefix))
    except ValueError as error:
        raise ValueError(f"commandPrefix {prefix!r}: {error}") from None
    if not split:
        raise ValueError("commandPrefix is empty, expected the leading words of a command")
    return split


def _pattern(field: str, text: str | None) -> Pattern | None:
    if text is None:
        return None
    try:
        return compile_pattern(text)
    except PatternError as error:
        raise ValueError(f"{field}: {error}") from None


def first_error(error: ValidationError, fields: type[BaseModel]) -> str:
    """The first of its errors, naming the field."""
    detail = error.errors(include_url=False)[0]
    place = ".".join(str(p) for p in detail["loc"])
    message = detail["msg"].removeprefix("Value error, ")
    if detail["type"] == "extra_forbidden":
        return f"unknown key {place!r}, expected one of: {', '.join(fields.model_fields)}"
    return f"{place}: {message}" if place else message


_STRICTNESS = {"deny": 0, "ask": 1, "allow": 2}
_HARMLESS: frozenset[Risk] = frozenset({"read", "question", "state"})
_INERT: frozenset[Risk] = frozenset({"question", "state"})
_MODE_TOOLS = frozenset({"enter_plan_mode", "exit_plan_mode", "invoke_agent"})
"""Whether they may be called at all depends on the mode alone."""


class RuleBook:
    """Rules, highest rank first; at equal rank the stricter first, then in the order given."""

    def __init__(self, rules: Iterable[Rule], scope: Scope) -> None:
        self.rules = tuple(sorted(rules, key=lambda r: (-r.rank, _STRICTNESS[r.decision])))
        self._scope = scope
        self._known: dict[tuple[str, str | None, Risk, str], tuple[Rule, ...]] = {}

    def about(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        """The rules about a call, arguments aside, highest rank first."""
        if annotations:
            return self._select(call, risk, mode, annotations)
        key = (call.name, agent_of(call.name, call.args), risk, mode)
        if key not in self._known:
            self._known[key] = self._select(call, risk, mode, annotations)
        return self._known[key]

    def _select(
        self, call: CallView, risk: Risk, mode: str, annotations: Mapping[str, JsonValue]
    ) -> tuple[Rule, ...]:
        own, every = frozenset({call.name, canonical(call.name)}), names_of(call.name, call.args)
        hints = annotations_of(risk, annotations)
        fitting = (
            # What allows a name allows no agent of that name; what restricts one restricts all that it stands for.
            r
            for r in self.rules
            if about(r, own if r.decision == "allow" else every | _through(r, call), mode, hints, self._scope)
        )
        counted = tuple(c for r in fitting if (c := _counted(r, risk, mode)) is not None)
        shipped = [r.decision for r in counted if r.tier == SHIPPED]
        if own & _MODE_TOOLS and "deny" in shipped:
            # Where the mode has no place for it, no rule makes one.
            return tuple(r for r in counted if r.decision == "deny" or r.tier == SHIPPED)
        return counted


def _through(rule: Rule, call: CallView) -> frozenset[str]:
    """A rule against one agent by its name among the arguments is against the tool that starts just that one, too."""
    one = rule.args is not None and agent_of(call.name, call.args) is not None
    return frozenset({"invoke_agent"}) if one else frozenset()


def _counted(rule: Rule, risk: Risk, mode: str) -> Rule | None:
    """The rule as it counts for such calls; None: it doesn't."""
    if rule.broken is not None:
        return None if risk in _INERT else rule
    if mode != "plan" or rule.tier == SHIPPED or rule.decision == "deny":
        return rule
    # What plan mode may do is said once: no extension, workspace, user or admin can add to it.
    return replace(rule, lowers=True) if rule.decision == "ask" else None


def first(rules: Iterable[Rule], met: Callable[[Rule], bool]) -> Rule | None:
    """The deciding rule."""
    lowering: Rule | None = None
    for rule in rules:
        if not met(rule):
            continue
        if not rule.lowers:
            return lowering if lowering is not None and rule.decision == "allow" else rule
        lowering = lowering or rule
    return lowering


def harmless(risk: Risk) -> bool:
    """It changes nothing outside the run."""
    return risk in _HARMLESS
