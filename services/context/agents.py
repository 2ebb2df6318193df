"""agents: sub-agents that the project, the user and the package define in files, and the tools that start them."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, BaseModel, JsonValue, ValidationError

from interlock.services.config.formats import split_front_matter
from interlock.services.context.definition_files import (
    DefinitionFile,
    Folders,
    Loaded,
    find_definition_files,
    first_paragraph,
    list_within_budget,
    load_definitions,
    note_unknown_fields,
    shorten,
)
from interlock.services.context.front_matter import parse_front_matter, to_flag, to_list, to_text
from interlock.services.context.tool_names import resolve_tool_names
from interlock.services.files.disk import read_text_file
from interlock.state.names import SHORT
from interlock.state.subagent import BUILT_IN, INVESTIGATOR, AgentDefinition, Report
from interlock.state.text import did_you_mean, first_validation_error, replace_surrogates, schema_violation
from interlock.state.tooling import Tool, restrict_field
from interlock.tools.control import (
    CODEBASE_INVESTIGATOR,
    COMPLETE_TASK,
    INVOKE_AGENT,
    InvokeAgentArgs,
)
from interlock.tools.table import ALIASES, TASK_LOOP, TOOLS

AGENT_TOOLS = ("invoke_agent", "codebase_investigator")
PLAN_TOOLS = ("enter_plan_mode", "exit_plan_mode")
ONLY_AGENTS = ("complete_task", "update_scratchpad")
"""Available to sub-agents only."""
_DESCRIPTIONS_BUDGET = 16_000
"""Characters that the descriptions of all agents share."""
_LONGEST_DESCRIPTION = 1_024
"""Characters of one description that a model sees."""


def build_agent_tools(definitions: Mapping[str, AgentDefinition]) -> dict[str, Tool]:
    """Build the tools that start agents; their descriptions list the agents available."""
    offered = {name: d for name, d in definitions.items() if not d.only_for_persons}
    if not offered:
        return {}
    described = [(d.name, f"{d.description}{_describe_inputs(d)}") for d in offered.values()]
    lines, _ = list_within_budget(described, _DESCRIPTIONS_BUDGET, _LONGEST_DESCRIPTION)
    tools = {
        "invoke_agent": replace(
            INVOKE_AGENT,
            description="\n".join([INVOKE_AGENT.description, "Agents:", *lines]),
            args=restrict_field(InvokeAgentArgs, "agent_name", tuple(offered), "no agent has this name"),
        )
    }
    if INVESTIGATOR in offered:
        tools[INVESTIGATOR] = CODEBASE_INVESTIGATOR
    return tools


def _describe_inputs(definition: AgentDefinition) -> str:
    properties = (definition.input_schema or {}).get("properties")
    return f" Inputs: {', '.join(properties)}." if isinstance(properties, dict) else ""


def select_agent_tools(definition: AgentDefinition, tools: Mapping[str, Tool], depth: int) -> dict[str, Tool]:
    """Return the tools a sub-agent may call; at depth 0 it can't start agents."""
    never = {"ask_user", *PLAN_TOOLS, *(() if depth > 0 else AGENT_TOOLS), *definition.without_tools}
    if definition.tools is None:
        chosen: Sequence[str] = [
            n for n in tools if n not in (*AGENT_TOOLS, *ONLY_AGENTS, *TASK_LOOP, *never)
        ]
    else:
        wanted = {n if n in tools else ALIASES.get(n, n) for n in definition.tools}
        chosen = [n for n in tools if n in wanted and n not in never]
    if definition.only_reads:
        chosen = [name for name in chosen if tools[name].risk not in ("write", "execute")]
    end, schema = COMPLETE_TASK, definition.output_schema
    end = end if schema is None else replace(end, args=_build_report_args_model(schema))
    return {**{name: tools[name] for name in chosen}, "complete_task": end}


def can_call_server_tool(definition: AgentDefinition, name: str) -> bool:
    """Return whether a sub-agent may call this MCP server tool: it may call all tools, or lists this one or its
    server, and doesn't exclude it."""
    named = definition.tools
    if definition.only_reads or _names_server_tool(definition.without_tools, name):
        return False
    return named is None or _names_server_tool(named, name)


def _names_server_tool(names: Sequence[str], name: str) -> bool:
    return any(
        n == name or (n.startswith("mcp_") and n.endswith("_*") and name.startswith(n[:-1])) for n in names
    )


def _build_report_args_model(schema: Mapping[str, JsonValue]) -> type[BaseModel]:
    """Build an argument model `{report}` validated against a JSON Schema and declared to the model with it."""

    def validate_report(report: Any) -> Any:
        if wrong := schema_violation(schema, report):
            raise ValueError(wrong)
        return report

    class CompleteTaskArgs(BaseModel, extra="forbid"):
        report: Annotated[Any, AfterValidator(validate_report)]

        @classmethod
        def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            whole = {"type": "object", "properties": {"report": inner}, "required": ["report"]}
            return {**whole, "$defs": schema.get("$defs", {})}

    return CompleteTaskArgs


_FIELD_SYNONYMS = {
    "timeout_mins": "max_time_minutes",
    "timeoutMins": "max_time_minutes",
    "maxTurns": "max_turns",
    "steps": "max_turns",
    "maxSteps": "max_turns",
    "maxTimeMinutes": "max_time_minutes",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
    "modelId": "model",
}
"""Other programs' spellings → ours."""
_FIELDS_TAKEN_AS_GIVEN = (
    *("role", "temperature", "max_turns", "max_time_minutes", "input_schema", "output_schema", "query"),
)
"""Fields whose values are taken as they are."""
_REQUIRED_IF_GIVEN = {"input_schema", "output_schema", "query"}
"""Fields without which an agent would be another one."""


def load_agents(folders: Folders) -> Loaded[AgentDefinition]:
    """Load agents; users' definitions override the built-in ones."""
    loaded = load_definitions(find_definition_files("agents", folders), _read_agent)
    loaded.by_name = {**_load_builtin_agents(), **loaded.by_name}
    return loaded


@cache
def _load_builtin_agents() -> Mapping[str, AgentDefinition]:
    found: dict[str, AgentDefinition] = {}
    for path in sorted(Path(__file__).parent.glob("*.md")):
        fields, body = split_front_matter(read_text_file(path), tomllib.loads)
        if fields.get("tools") == "*":
            fields = {key: value for key, value in fields.items() if key != "tools"}
        definition = AgentDefinition.model_validate(
            {**fields, "system_prompt": body.strip(), "source": BUILT_IN}
        )
        if definition.name == INVESTIGATOR:
            definition = definition.model_copy(update={"output_schema": Report.model_json_schema()})
        found[definition.name] = definition
    return found


def _read_agent(file: DefinitionFile) -> tuple[str, AgentDefinition, list[str]]:
    text = replace_surrogates(file.read_text())
    if file.path.suffix == ".toml":
        fields: dict[str, Any] = tomllib.loads(text)
        body, notes = to_text(fields.get("developer_instructions")), list[str]()
        if not body.strip():
            raise ValueError("'developer_instructions' is missing")
    else:
        fields, body, problem = parse_front_matter(text)
        notes = [problem] if problem else []
        if not fields and not file.path.name.endswith((".agent.md", ".chatmode.md")):
            raise ValueError(problem or "it has no front matter with a description, so it is no agent")
    if (why := _find_reason_to_skip(file, fields)) is not None:
        raise ValueError(why)
    definition, more = _build_definition(file, fields, body.strip())
    return definition.name, definition, [*notes, *more, *note_unknown_fields(fields, file.row)]


def _find_reason_to_skip(file: DefinitionFile, fields: Mapping[str, Any]) -> str | None:
    if to_flag(fields.get("disable")) or to_flag(fields.get("disabled")):
        return "its file disables it"
    is_primary = "mode" in file.row.fields and fields.get("mode") == "primary"
    return "it is a primary agent (mode)" if is_primary else None


def _build_definition(
    file: DefinitionFile, fields: Mapping[str, Any], body: str
) -> tuple[AgentDefinition, list[str]]:
    """Return an agent and notes. What can't be said of a field's value leaves the field out, never widens it."""
    notes: list[str] = []
    named = {_FIELD_SYNONYMS.get(key, key): value for key, value in fields.items()}
    stem = re.sub(r"\.(agent|chatmode)$", "", file.path.stem)
    own = to_text(fields.get("name")) if "name" in file.row.fields else ""
    name = make_agent_name(own) or make_agent_name(stem) or "agent"
    description = " ".join(to_text(fields.get("description")).split()) or first_paragraph(body)
    if not description:
        raise ValueError("it has no 'description' and no text")
    made: dict[str, Any] = {
        "name": name,
        "description": replace_surrogates(description),
        "system_prompt": body,
        "source": str(file.path),
        "model": _read_model(named.get("model")),
    }
    made |= _read_tools(file, fields, notes)
    forbids_models = (
        to_flag(fields.get("disable-model-invocation")) is True or to_flag(fields.get("infer")) is False
    )
    made |= {"only_for_persons": True} if forbids_models else {}
    for key in _FIELDS_TAKEN_AS_GIVEN:
        if key in named:
            made = _add_field(made, key, named[key], notes)
    return AgentDefinition.model_validate(made), notes


def _add_field(made: dict[str, Any], key: str, value: object, notes: list[str]) -> dict[str, Any]:
    """Return the fields with one more, if it is valid; else a note says why not. Raises `ValueError` if the agent would
    be another one without it."""
    try:
        AgentDefinition.model_validate({**made, key: value})
    except ValidationError as error:
        place, what = first_validation_error(error)
        if key in _REQUIRED_IF_GIVEN:
            raise ValueError(f"{place!r}: {what}") from error
        notes.append(f"{place!r}: {what}")
        return made
    return {**made, key: value}


def _read_model(value: object) -> str:
    """Return the model that a file names, by a name of ours as far as that is possible."""
    names = cast("list[object]", value) if isinstance(value, list) else [value]
    text = next((to_text(name).strip() for name in names if to_text(name).strip()), "")
    for opening, closing in ("()", "[]"):  # VS Code's, Cursor's
        if text.endswith(closing) and opening in text:
            text = text[: text.rindex(opening)].rstrip()
    if " " in text:  # as VS Code shows it: `Claude Sonnet 4.5`
        text = next((word for word in text.casefold().split() if word in SHORT), "inherit")
    if not text or text.casefold() in ("inherit", "default", "auto"):
        return "inherit"
    if text[0].isupper() and text.isascii() and not {*"/:"} & {*text}:
        text = text.casefold()  # `GPT-5`, `Sonnet`
    provider, slash, name = text.partition("/")
    return f"{provider}:{name}" if slash and provider and name else text


_READ_ONLY_VALUES = {
    "permissionMode": ("plan",),
    "sandbox_mode": ("read-only",),
}
"""Field → values by which other programs' agents change nothing."""


def _read_tools(file: DefinitionFile, fields: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Return which tools an agent has. A permission that a file grants counts for nothing, one that it denies does."""
    given, without = fields.get("tools"), to_list(fields.get("disallowedTools"))
    listed: list[str] | None = None
    if isinstance(given, dict):  # opencode's: which are on and off
        switches = cast("dict[str, object]", given)
        without += [name for name, on in switches.items() if to_flag(on) is False]
        if "*" in without:
            listed = [name for name, on in switches.items() if to_flag(on) is not False]
    elif given is not None and given != "":
        listed = to_list(given)
    if isinstance(rules := fields.get("permission"), dict):
        without += [key for key, rule in cast("dict[str, object]", rules).items() if _denies_all(rule)]
    made: dict[str, Any] = {}
    if listed is not None and "*" not in listed:
        made["tools"], unknown = resolve_tool_names(listed)
        notes += _note_unknown_tools(file, unknown)
        if listed and not made["tools"]:
            notes.append("none of its tools is here, so it can only answer")
    denied, unknown = resolve_tool_names(name for name in without if name != "*")
    if denied:
        made["without_tools"] = denied
    writes_nothing = any(fields.get(key) in values for key, values in _READ_ONLY_VALUES.items())
    return made | ({"only_reads": True} if writes_nothing or to_flag(fields.get("readonly")) else {})


def _denies_all(rule: object) -> bool:
    """Return whether a permission of opencode's denies each call: patterns other than `*` could only allow some."""
    return rule == "deny" or (
        isinstance(rule, dict) and {*cast("dict[str, object]", rule).values()} == {"deny"}
    )


def _note_unknown_tools(file: DefinitionFile, unknown: Sequence[str]) -> list[str]:
    if file.is_own:
        return [f"names {name!r}, no tool here.{did_you_mean(name, [*TOOLS])}" for name in unknown]
    return [f"no tools here: {', '.join(unknown)}"] if unknown else []


_NOT_IN_NAMES = re.compile(r"[^\w .+#&()-]+")


def make_agent_name(text: str) -> str:
    """Return a name that can stand in rules, paths and lists: without signs such as quotes, colons and slashes."""
    return shorten(" ".join(_NOT_IN_NAMES.sub("-", text).split()).strip("- ."), 100)
