"""definitions: sub-agents as Markdown files describe them, and what each may call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, JsonValue, ValidationError

from interlock.services.config.formats import front_matter, parse_yaml
from interlock.services.config.settings import FOLDERS
from interlock.state.subagent import INVESTIGATOR, AgentDefinition, Report
from interlock.state.tooling import Tool, naming
from interlock.tools import codebase_investigator, complete_task, invoke_agent
from interlock.tools.table import TASK_LOOP

AGENT_TOOLS = ("invoke_agent", "codebase_investigator")
PLAN_TOOLS = ("enter_plan_mode", "exit_plan_mode")
ONLY_AGENTS = ("complete_task", "update_scratchpad")
"""Only sub-agents have these."""


def agent_tools(definitions: Mapping[str, AgentDefinition]) -> dict[str, Tool]:
    """The tools that start agents, naming those there are."""
    if not definitions:
        return {}
    listed = "\n".join(f"- {d.name}: {d.description}{_inputs(d)}" for d in definitions.values())
    tools = {
        "invoke_agent": replace(
            invoke_agent.TOOL,
            description=f"{invoke_agent.TOOL.description}\nAgents:\n{listed}",
            args=naming(
                invoke_agent.InvokeAgentArgs, "agent_name", tuple(definitions), "no agent has this name"
            ),
        )
    }
    if INVESTIGATOR in definitions:
        tools[INVESTIGATOR] = codebase_investigator.TOOL
    return tools


def _inputs(definition: AgentDefinition) -> str:
    properties = (definition.input_schema or {}).get("properties")
    return f" Inputs: {', '.join(properties)}." if isinstance(properties, dict) else ""


def own_tools(definition: AgentDefinition, tools: Mapping[str, Tool], depth: int) -> dict[str, Tool]:
    """What a sub-agent may call, of all there is; with no level left nothing that starts agents."""
    never = {"ask_user", *PLAN_TOOLS, *(() if depth > 0 else AGENT_TOOLS)}
    if definition.tools is None:
        chosen: Sequence[str] = [
            n for n in tools if n not in (*AGENT_TOOLS, *ONLY_AGENTS, *TASK_LOOP, *never)
        ]
    else:
        chosen = [n for n in tools if n in definition.tools and n not in never]
    end, schema = complete_task.TOOL, definition.output_schema
    end = end if schema is None else replace(end, args=_report_args(schema))
    return {**{name: tools[name] for name in chosen}, "complete_task": end}


def names_server_tool(definition: AgentDefinition, name: str) -> bool:
    """Whether a sub-agent may call this tool of an MCP server: where it may call all, or names it, or its server's."""
    named = definition.tools
    return named is None or any(
        n == name or (n.startswith("mcp_") and n.endswith("_*") and name.startswith(n[:-1])) for n in named
    )


def _report_args(schema: Mapping[str, JsonValue]) -> type[BaseModel]:
    """Arguments `{report}` held to a JSON Schema, and declared to the model as that."""
    from jsonschema import Draft202012Validator

    validator: Any = Draft202012Validator(dict(schema))  # its overloads aren't fully typed

    def fits(report: Any) -> Any:
        error = next(iter(validator.iter_errors(report)), None)
        if error is not None:
            place = ".".join(str(part) for part in error.absolute_path)
            raise ValueError(f"{f'at {place!r}: ' if place else ''}{error.message}")
        return report

    class CompleteTaskArgs(BaseModel):
        model_config = ConfigDict(extra="forbid")
        report: Annotated[Any, AfterValidator(fits)]

        @classmethod
        def model_json_schema(cls, *_args: Any, **_kwargs: Any) -> dict[str, Any]:
            inner = {key: value for key, value in schema.items() if key != "$defs"}
            whole = {"type": "object", "properties": {"report": inner}, "required": ["report"]}
            return {**whole, "$defs": schema.get("$defs", {})}

    return CompleteTaskArgs


_NAMES = {
    "timeout_mins": "max_time_minutes",
    "timeoutMins": "max_time_minutes",
    "maxTurns": "max_turns",
    "maxTimeMinutes": "max_time_minutes",
    "inputSchema": "input_schema",
    "outputSchema": "output_schema",
}
"""Other spellings → ours; the first is gemini-cli's."""
_UNUSED = {"kind", "display_name", "color"}
"""Keys of gemini-cli and Claude Code that say nothing to us."""
_LARGEST = 256_000
"""Bytes of a definition."""


def load_agents(root: Path, home: Path, trusted: bool) -> tuple[dict[str, AgentDefinition], list[str]]:
    """Name → definition, and one line for each file that can't be used. Later folders win.

    Order: the package, the user's folders, the project's (only of a trusted folder).
    """
    found = {**_shipped()}
    problems: list[str] = []
    for base in (home, root) if trusted else (home,):
        for path in (p for name in FOLDERS for p in sorted((base / name / "agents").glob("*.md"))):
            try:
                definition = _read(path)
            except (OSError, ValueError, OverflowError, TypeError, RecursionError) as error:
                problems.append(f"{path} was ignored: {_told(error)}")
            else:
                found[definition.name] = definition
    return found, problems


@cache
def _shipped() -> Mapping[str, AgentDefinition]:
    found: dict[str, AgentDefinition] = {}
    for path in sorted(Path(__file__).parent.glob("*.md")):
        definition = _read(path, _shipped_front).model_copy(update={"source": "interlock"})
        if definition.name == INVESTIGATOR:
            definition = definition.model_copy(update={"output_schema": Report.model_json_schema()})
        found[definition.name] = definition
    return found


def _shipped_front(text: str) -> object:
    """With the fast parser, which strange files could crash."""
    import yaml

    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _read(path: Path, parsed: Callable[[str], object] = parse_yaml) -> AgentDefinition:
    """Raises `ValueError` saying what is wrong."""
    if path.stat().st_size > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST} bytes")
    front, body = front_matter(path.read_text(encoding="utf-8"), parsed)
    fields = {_NAMES.get(key, key): value for key, value in front.items() if key not in _UNUSED}
    fields.setdefault("name", path.stem)
    if fields.get("tools") in ("*", ["*"]):
        del fields["tools"]
    if isinstance(tools := fields.get("tools"), str):  # Claude Code's spelling
        fields["tools"] = [name.strip() for name in tools.split(",") if name.strip()]
    return AgentDefinition.model_validate({**fields, "system_prompt": body.strip(), "source": str(path)})


def _told(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return f"{place!r}: {first['msg']}; it knows {', '.join(AgentDefinition.model_fields)}."
    return f"{' '.join(str(error).split())}."
