"""project_tools: the project's own tools, declared by one command and run by another (gemini-cli's mechanism)."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

from pydantic import BaseModel, model_validator

from interlock.services.tool_schemas import reduce_schema
from interlock.state.calls import Preview, ToolError, ToolResult, error_result
from interlock.state.settings import Settings
from interlock.state.text import make_visible, replace_surrogates, schema_violation, to_visible_json
from interlock.state.tooling import ProcessEnd, Processes, Tool, ToolContext
from interlock.tools.table import ALIASES, TOOLS

_DISCOVERY_S = 30
_DECLARED_CHARS = 2_000_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
"""Names that every provider accepts."""
_DESCRIPTION = 10_000
_KEYS = ("parametersJsonSchema", "parameters_json_schema", "parameters", "inputSchema")


async def discover_tools(
    settings: Settings, root: Path, processes: Processes
) -> tuple[dict[str, Tool], list[str]]:
    """Return tools by name and a line per unusable tool; both empty if no command is configured."""
    command = settings.tools.discovery_command.strip()
    if not command:
        return {}, []
    try:
        declared = _parse_declarations(await _run_discovery_command(command, root, processes))
    except ValueError as error:
        return {}, [f"tools.discoveryCommand {command!r} brought no tools: {error}."]
    tools: dict[str, Tool] = {}
    problems: list[str] = []
    for one in declared:
        name = str(one.get("name", ""))
        try:
            tools[name] = _build_tool(one, name, tools)
        except ValueError as error:
            problems.append(f"Tool {make_visible(name)!r} of tools.discoveryCommand can't be used: {error}.")
    return tools, problems


async def _run_discovery_command(command: str, root: Path, processes: Processes) -> str:
    argv = shlex.split(command)
    ended = await processes.run(
        argv, cwd=root, timeout_s=_DISCOVERY_S, limit_chars=_DECLARED_CHARS, trusted_helper=True
    )
    if ended.how != "exited" or ended.exit_code or ended.omitted:
        raise ValueError(
            f"{_describe_process_end(ended)}: {' '.join(ended.output.split())[-300:] or '(no output)'}"
        )
    return ended.output


def _describe_process_end(ended: ProcessEnd) -> str:
    if ended.omitted:
        return f"it wrote more than {_DECLARED_CHARS} characters"
    return (
        f"it ended with exit code {ended.exit_code}" if ended.how == "exited" else f"it ended by {ended.how}"
    )


def _parse_declarations(text: str) -> list[Mapping[str, Any]]:
    """Parse a list of declarations, or of objects containing such lists."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its output isn't JSON ({error})") from None
    if not isinstance(found, list):
        raise ValueError("its output isn't a JSON list of function declarations")
    return [*_flatten_declarations(cast(list[Any], found))]


def _flatten_declarations(entries: list[Any]) -> Iterator[Mapping[str, Any]]:
    for entry in entries:
        if not isinstance(entry, dict):
            continue
        one = cast(dict[str, Any], entry)
        inner = one.get("functionDeclarations", one.get("function_declarations"))
        if isinstance(inner, list):
            yield from _flatten_declarations(cast(list[Any], inner))
        else:
            yield one


def _build_tool(declaration: Mapping[str, Any], name: str, tools_so_far: Mapping[str, Tool]) -> Tool:
    """Raises `ValueError` saying why a declaration can't be used."""
    if not _NAME.fullmatch(name):
        raise ValueError("a name is letters, digits, `_` and `-`, at most 63")
    if name in {*TOOLS, *ALIASES} or name.startswith("mcp_"):
        raise ValueError("a tool of that name is here already")
    if name in tools_so_far:
        raise ValueError("it is declared twice")
    schemas = [
        cast(dict[str, Any], declaration[key]) for key in _KEYS if isinstance(declaration.get(key), dict)
    ]
    description = make_visible(str(declaration.get("description") or "").strip())[:_DESCRIPTION]
    return Tool(
        name=name,
        description=description or f"The project's own tool {name}.",
        args=_build_args_model(reduce_schema(schemas[0] if schemas else {})),
        risk="execute",
        summary=lambda args: f"{name} {to_visible_json(args.model_dump())}",
        run=lambda args, context: _run_tool(name, args, context),
        preview=lambda args, context: _preview_tool(name, args, context),
    )


def _build_args_model(schema: dict[str, Any]) -> type[BaseModel]:
    """Build an argument model validated against an external schema."""

    class Arguments(BaseModel, extra="allow"):
        @model_validator(mode="before")
        @classmethod
        def _fits(cls, value: Any) -> Any:
            if wrong := schema_violation(schema, value):
                raise ValueError(wrong)
            return value

        @classmethod
        def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
            return schema

    return Arguments


def _tool_call_argv(name: str, context: ToolContext) -> list[str]:
    command = context.settings.tools.call_command.strip()
    if not command:
        raise ToolError("no_command", f"Setting tools.callCommand names no command that runs {name!r}.")
    return [*shlex.split(command), name]


async def _run_tool(name: str, args: BaseModel, context: ToolContext) -> ToolResult:
    """Run a tool: arguments go to stdin, and its stdout and stderr are the result."""
    shell = context.settings.tools.shell
    ended = await context.processes.run(
        _tool_call_argv(name, context),
        cwd=context.workspace.root,
        timeout_s=min(shell.timeout_s, context.time_left_s or shell.timeout_s),
        inactivity_s=shell.inactivity_timeout_s,
        limit_chars=context.settings.tools.truncate_at,
        stdin=json.dumps(args.model_dump(), ensure_ascii=False).encode("utf-8", "replace"),
        on_output=context.emit_output,
    )
    if ended.how == "lost":
        return error_result("unknown_outcome", f"The process that ran {name!r} was killed.")
    text = replace_surrogates(ended.output.strip()) or "(no output)"
    if ended.full_output:
        text += f"\nThe output was too long to show. All of it: {ended.full_output}"
    if ended.how == "exited" and ended.exit_code == 0:
        return ToolResult(status="success", content=text, meta={"summary": "exit 0", "exit_code": 0})
    how = (
        ended.excess or ended.signal or f"exit code {ended.exit_code}" if ended.how == "exited" else ended.how
    )
    result = error_result("discovered_tool", f"{name} failed ({how}).", exit_code=ended.exit_code)
    return result.model_copy(update={"content": f"{name} failed ({how}).\n{text}"})


async def _preview_tool(name: str, args: BaseModel, context: ToolContext) -> Preview:
    command = shlex.join(_tool_call_argv(name, context))
    return Preview(text=f"{make_visible(command)}\nwith {to_visible_json(args.model_dump(), indent=2)}")
