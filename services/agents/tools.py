"""tools: the tools that depend on the agents there are: who can be invoked, and what `complete_task` must hold."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue, create_model

from interlock.state.investigate import INVESTIGATOR
from interlock.state.subagent import AgentDefinition
from interlock.state.tooling import Tool
from interlock.tools import codebase_investigator, complete_task, invoke_agent

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
            args=_invoke_args(tuple(definitions)),
        )
    }
    if INVESTIGATOR in definitions:
        tools[INVESTIGATOR] = codebase_investigator.TOOL
    return tools


def _inputs(definition: AgentDefinition) -> str:
    properties = (definition.input_schema or {}).get("properties")
    return f" Inputs: {', '.join(properties)}." if isinstance(properties, dict) else ""


def _invoke_args(names: tuple[str, ...]) -> type[BaseModel]:
    def known(name: str) -> str:
        if name not in names:
            raise ValueError(f"no agent has this name; there are {', '.join(names)}")
        return name

    field = Field(description="Name of the agent.", json_schema_extra={"enum": list(names)})
    return create_model(
        "InvokeAgentArgs",
        __base__=invoke_agent.InvokeAgentArgs,
        agent_name=(Annotated[str, AfterValidator(known)], field),
    )


def own_tools(definition: AgentDefinition, tools: Mapping[str, Tool], depth: int) -> dict[str, Tool]:
    """What a sub-agent may call, of all there is; with no level left nothing that starts agents."""
    never = {"ask_user", *PLAN_TOOLS, *(() if depth > 0 else AGENT_TOOLS)}
    if definition.tools is None:
        chosen: Sequence[str] = [n for n in tools if n not in (*AGENT_TOOLS, *ONLY_AGENTS, *never)]
    else:
        chosen = [n for n in tools if n in definition.tools and n not in never]
    return {**{name: tools[name] for name in chosen}, "complete_task": _complete_task(definition)}


def _complete_task(definition: AgentDefinition) -> Tool:
    if definition.output_schema is None:
        return complete_task.TOOL
    return replace(complete_task.TOOL, args=_report_args(definition.output_schema))


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
