"""rule_schema: parses rules from `[[rule]]` tables, and from settings such as `tools.exclude` and `mcp.allowed`."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)

from interlock.services.policy.rule import (
    USER,
    WORKSPACE,
    Pattern,
    PatternError,
    Rule,
    canonical_tool_name,
    compile_pattern,
)
from interlock.state.calls import ApprovalMode, Decision, Risk
from interlock.state.names import mcp_tool_name
from interlock.state.settings import Settings
from interlock.state.text import first_validation_error
from interlock.state.tooling import SHELL

_CONDITIONS = (
    *("argsPattern", "commandPrefix", "commandRegex", "command", "line", "plainReading", "path", "host"),
)
SAVED_FILE = "auto-saved.toml"
SAVED_PRIORITY = 950
"""Priority within its tier (gemini-cli's for always-choices)."""
_UNKNOWN = "unknown"
"""No server's fingerprint."""
MODE_NAMES = {"autoEdit": "auto_edit"}
"""gemini-cli's spelling → ours."""
Names = Annotated[list[str], BeforeValidator(lambda v: [v] if isinstance(v, str) else v), Field(min_length=1)]
Mode = Annotated[ApprovalMode, BeforeValidator(lambda v: MODE_NAMES.get(v, v) if isinstance(v, str) else v)]


class RuleFields(BaseModel, extra="forbid", strict=True, defer_build=True):
    """One `[[rule]]` table. Names are gemini-cli's, except `path`, `host`, `workspace` and `mcpFingerprint`."""

    toolName: Names
    decision: Literal["allow", "ask", "ask_user", "deny"]
    priority: Annotated[int, Field(ge=0, le=999)]
    mcpName: str | None = None
    mcpFingerprint: str | None = None
    """Written by Interlock: what the server was when the rule was saved; another one of that name isn't covered."""
    subagent: str | None = None
    toolAnnotations: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    argsPattern: str | None = None
    commandPrefix: Names | None = None
    commandRegex: str | None = None
    command: Names | None = None
    """Exactly these commands, and what `commands.toml` lists beside them: a saved grant."""
    line: str | None = Field(default=None, min_length=1)
    """Exactly this shell line: a saved grant."""
    plainReading: Literal[True] | None = None
    """Shell commands that only read, with plain arguments inside the workspace."""
    path: str | None = None
    """As tools name it: relative to the workspace, absolute in an included directory."""
    host: str | None = None
    """Must be the host of every URL in the call, with the port if there is one."""
    workspace: str | None = None
    """Absolute path of the only workspace that the rule applies to."""
    modes: list[Mode] = Field(default_factory=list[Mode])
    interactive: bool | None = None
    allowRedirection: bool = False
    denyMessage: str | None = None

    @model_validator(mode="after")
    def _require_consistency(self) -> "RuleFields":
        for name in self.toolName:
            if not is_usable_tool_name(name):
                raise ValueError(f"toolName {name!r}: expected a tool's name, '*', 'mcp_*' or 'mcp_SERVER_*'")
        conditions = [k for k in _CONDITIONS if getattr(self, k) is not None]
        if len(conditions) > 1:
            raise ValueError(f"{' and '.join(conditions)} exclude each other")
        about_line = (self.commandPrefix, self.commandRegex, self.command, self.line, self.plainReading)
        command = any(condition is not None for condition in about_line)
        if command and not all(canonical_tool_name(n) in SHELL for n in self.toolName):
            raise ValueError(f"{conditions[0]} is only for toolName 'run_shell_command', got {self.toolName}")
        if (
            self.path or self.host or self.plainReading or self.command or self.line
        ) and self.decision != "allow":
            raise ValueError(f"{conditions[0]} is only for decision 'allow'; to restrict, use argsPattern")
        if self.mcpFingerprint is not None and (self.mcpName is None or self.decision != "allow"):
            raise ValueError("mcpFingerprint needs mcpName, and is only for decision 'allow'")
        if self.workspace is not None and not os.path.isabs(self.workspace):  # noqa: PTH117
            raise ValueError(f"workspace {self.workspace!r} is relative, expected an absolute path")
        return self


def is_usable_tool_name(name: str) -> bool:
    body = name[:-1] if name == "*" or (name.startswith("mcp_") and name.endswith("_*")) else name
    return name != "" and not set(body) & set("*?[] \t\n")


def to_rule(table: Mapping[str, Any], source: str, tier: int) -> Rule:
    """Return the rule of a table. Raise `ValueError` naming the field."""
    try:
        fields = RuleFields.model_validate(_convert_saved_table(table, source))
    except ValidationError as error:
        raise ValueError(first_error_message(error, RuleFields)) from None
    if fields.path and fields.workspace is None and tier != WORKSPACE and not os.path.isabs(fields.path):  # noqa: PTH117
        raise ValueError(f'path {fields.path!r} is relative: in which workspace? Name it by workspace = "…"')
    return Rule(
        source=source,
        tools=tuple(_qualify_tool_name(name, fields.mcpName) for name in fields.toolName),
        decision="ask" if fields.decision == "ask_user" else fields.decision,
        tier=tier,
        priority=fields.priority,
        modes=frozenset(fields.modes),
        prefixes=tuple(_split_command("commandPrefix", p) for p in fields.commandPrefix or ()),
        granted=tuple(_split_command("command", c) for c in fields.command or ()),
        line=fields.line,
        saved=_is_saved(table, source),
        reading=fields.plainReading or False,
        command=_compile_field("commandRegex", fields.commandRegex),
        args=_compile_field("argsPattern", fields.argsPattern),
        allow_redirection=fields.allowRedirection,
        deny_message=fields.denyMessage,
        target=fields.path if fields.host is None else fields.host,
        workspace=fields.workspace,
        annotations=fields.toolAnnotations,
        server=fields.mcpName,
        program=fields.mcpFingerprint,
        subagent=fields.subagent,
        interactive=fields.interactive,
    )


def _convert_saved_table(table: Mapping[str, Any], source: str) -> Mapping[str, Any]:
    """Return what was saved by 0.1 or gemini-cli as what the person saw. A prefix is a grant for these words:
    nobody wrote a prefix. A server's name alone covers nothing any more, as any program could have it: the tool is
    asked about once more.

    A prefix is a grant for these words: nobody wrote a prefix. A server's name alone covers nothing any more, as any
    program could have it: the tool is asked about once more.
    """
    if not _is_saved(table, source):
        return table
    if "mcpName" in table and "mcpFingerprint" not in table:
        return {**table, "mcpFingerprint": _UNKNOWN}
    rest = {k: v for k, v in table.items() if k not in ("commandPrefix", "allowRedirection")}
    return {**rest, "command": table["commandPrefix"]} if "commandPrefix" in table else table


def _is_saved(table: Mapping[str, Any], source: str) -> bool:
    own = os.path.basename(source.rpartition(":")[0] or source) == SAVED_FILE  # noqa: PTH119
    return own and table.get("priority") == SAVED_PRIORITY and table.get("decision") == "allow"


def _qualify_tool_name(tool: str, server: str | None) -> str:
    """Return a tool's name as used in calls: with `mcpName` it may be the server's own name for it."""
    plain = tool == "*" or tool.startswith("mcp_")
    return canonical_tool_name(tool) if server is None or plain else mcp_tool_name(server, tool)


def _split_command(field: str, text: str) -> tuple[str, ...]:
    """Return the words of a command, or its leading ones, as bash splits them. Raise `ValueError`."""
    try:
        split = tuple(shlex.split(text))
    except ValueError as error:
        raise ValueError(f"{field} {text!r}: {error}") from None
    if not split:
        raise ValueError(f"{field} is empty, expected the leading words of a command")
    return split


def _compile_field(field: str, text: str | None) -> Pattern | None:
    """Return the field's pattern compiled. Raise `ValueError` naming the field."""
    try:
        return None if text is None else compile_pattern(text)
    except PatternError as error:
        raise ValueError(f"{field}: {error}") from None


def first_error_message(error: ValidationError, fields: type[BaseModel]) -> str:
    """Return the first error, naming the field."""
    place, message = first_validation_error(error)
    message = message.removeprefix("Value error, ")
    if error.errors()[0]["type"] == "extra_forbidden":
        return f"unknown key {place!r}, expected one of: {', '.join(fields.model_fields)}"
    return f"{place}: {message}" if place else message


def stand_in_rule(source: str, tier: int, tools: tuple[str, ...], problem: str) -> Rule:
    """Return a rule that asks in place of an unusable one, which may have been meant to deny."""
    return Rule(
        source=source, tools=tools, decision="ask", tier=tier, priority=999, broken=problem, lowers=True
    )


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A problem in a rule file or setting, and its effect."""

    source: str
    """`FILE:LINE`, or the setting's name."""
    text: str
    effect: str

    def __str__(self) -> str:
        return f"{self.source}: {self.text}; {self.effect}"


_OUTSIDE: tuple[Risk, ...] = ("read", "write", "execute", "network")
"""Risks restricted by `tools.core`; questions and changes to the run itself are always allowed."""
_CALL = re.compile(r"(\w+)\((.*)\)", re.DOTALL)


def rules_from_settings(settings: Settings) -> tuple[list[Rule], list[RuleProblem]]:
    """Return the rules that settings make. An unreadable allow entry allows nothing; if it was to deny or ask,
    everything asks. Priorities, here and below, are gemini-cli's within the user tier: 400 is its 4.4.

    Priorities, here and below, are gemini-cli's within the user tier: 400 is its 4.4.
    """
    tools = settings.tools
    lists: tuple[tuple[str, Iterable[str], Decision, int], ...] = (
        ("tools.exclude", tools.exclude, "deny", 400),
        ("tools.confirmationRequired", tools.confirmation_required, "ask", 350),
        ("tools.allowed", tools.allowed, "allow", 300),
        ("tools.core", tools.core, "allow", 250),
    )
    rules: list[Rule] = []
    problems: list[RuleProblem] = []
    for setting, entries, decision, priority in lists:
        for entry in entries:
            source = f"settings {setting} {entry!r}"
            try:
                rules.append(_to_entry_rule(entry, source, decision, priority))
            except ValueError as error:
                effect = "it allows nothing" if decision == "allow" else "everything asks until it is right"
                problems.append(RuleProblem(source, str(error), effect))
                if decision != "allow":
                    rules.append(stand_in_rule(source, USER, ("*",), str(error)))
    more = (
        *(_rules_against_other_tools() if tools.core else ()),
        *_server_rules(settings),
        *auto_approval_rules(settings),
    )
    return [*rules, *more], problems


def _to_entry_rule(entry: str, source: str, decision: Decision, priority: int) -> Rule:
    """Return the rule of one entry in settings. Raise `ValueError`."""
    narrowed = _CALL.fullmatch(entry.strip())
    name = canonical_tool_name(narrowed[1] if narrowed else entry.strip())
    prefix = narrowed[2].strip() if narrowed else ""
    if not is_usable_tool_name(name):
        raise ValueError(f"{name!r} isn't a tool's name")
    if prefix and name not in SHELL:
        raise ValueError("only run_shell_command(…) can be narrowed by a command prefix")
    prefixes = (_split_command("commandPrefix", prefix),) if prefix else ()
    return Rule(source, (name,), decision, USER, priority, prefixes=prefixes)


def _rules_against_other_tools() -> Iterator[Rule]:
    """Yield rules that deny what `tools.core` doesn't name; plan mode is exempt: it has its own list."""
    for risk in _OUTSIDE:
        yield Rule(
            source="settings tools.core",
            tools=("*",),
            decision="deny",
            tier=USER,
            priority=240,
            modes=frozenset({"default", "auto_edit", "yolo"}),
            annotations={"risk": risk},
            deny_message="Only the tools that the setting tools.core names may be used.",
        )


def _server_rules(settings: Settings) -> Iterator[Rule]:
    trusted = [name for name, server in settings.mcp_servers.items() if server.trust]
    lists: tuple[tuple[str, Iterable[str], Decision, int], ...] = (
        ("mcp.excluded", settings.mcp.excluded, "deny", 900),
        ("mcpServers", trusted, "allow", 200),
        ("mcp.allowed", settings.mcp.allowed, "allow", 100),
    )
    for setting, names, decision, priority in lists:
        for name in names:
            yield Rule(f"settings {setting} {name!r}", ("*",), decision, USER, priority, server=name)
    for name, server in settings.mcp_servers.items() if settings.task.auto_approval else ():
        if tools := tuple(mcp_tool_name(name, tool) for tool in server.always_allow):
            yield Rule(f"settings mcpServers.{name}.alwaysAllow", tools, "allow", USER, 200, server=name)


# ---- the task loop's auto-approval (Roo Code's names)

_PRIORITY = 300
"""Same as `tools.allowed`."""
_WRITING = ("write_to_file", "apply_diff", "insert_content", "generate_image")
_LONGEST = 90
_MODES: frozenset[ApprovalMode] = frozenset({"default", "auto_edit"})


def auto_approval_rules(settings: Settings) -> Iterator[Rule]:
    """Yield rules for the task loop's own tools. The longest matching command prefix wins; of equal ones, the
    denial."""
    task = settings.task
    if not task.auto_approval:
        return
    switches = (
        ("alwaysAllowWrite", task.allow_write, _WRITING),
        ("alwaysAllowBrowser", task.allow_browser, ("browser_action",)),
        ("alwaysAllowModeSwitch", task.allow_mode_switch, ("switch_mode",)),
        ("alwaysAllowSubtasks", task.allow_subtasks, ("new_task",)),
        (
            "alwaysAllowMcp",
            task.allow_mcp,
            tuple(mcp_tool_name(n, "read_resource") for n in settings.mcp_servers),
        ),
    )
    yield from (_auto_approval_rule(name, tools, "allow") for name, on, tools in switches if on and tools)
    if task.allow_execute:
        yield from _command_prefix_rules("allowedCommands", task.allowed_commands, "allow", 0)
    yield from _command_prefix_rules("deniedCommands", task.denied_commands, "deny", 0.5)


def _auto_approval_rule(
    name: str, tools: tuple[str, ...], decision: Decision, prefix: str = "", more: float = 0
) -> Rule:
    return Rule(
        source=f"settings task.{name}",
        tools=tools,
        decision=decision,
        tier=USER,
        priority=_PRIORITY + more,
        modes=_MODES if decision == "allow" else frozenset(),
        prefixes=((*prefix.split(),),) if prefix else (),
    )


def _command_prefix_rules(
    name: str, beginnings: Iterable[str], decision: Decision, more: float
) -> Iterator[Rule]:
    for text in (beginning.strip() for beginning in beginnings):
        prefix, length = ("", 0) if text == "*" else (text, min(len(text), _LONGEST))
        if text:
            yield _auto_approval_rule(
                f"{name} {text!r}", ("execute_command",), decision, prefix, length + more
            )
