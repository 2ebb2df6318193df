"""tool_catalogue: tools as text, for models that call them by tags: out of the schemas of their argument models."""

from collections.abc import Mapping, Sequence
from typing import Any

from interlock.state.models import ToolDeclaration
from interlock.state.tool_names import WAIT

_PLAIN = ("string", "integer", "number", "boolean")


def catalogue(tools: Sequence[ToolDeclaration]) -> str:
    return "\n\n".join(map(_tool, tools))


def _tool(tool: ToolDeclaration) -> str:
    properties: dict[str, Mapping[str, Any]] = {**tool.parameters.get("properties", {})}
    properties.pop(WAIT, None)  # so many words for each tool, and a small model would rather not
    required: Sequence[str] = tool.parameters.get("required", ())
    listed = [_parameter(name, schema, name in required) for name, schema in properties.items()]
    tags = [f"<{name}>…</{name}>" for name in properties if name in required]
    usage = "\n".join([f"<{tool.name}>", *tags, f"</{tool.name}>"])
    return "\n".join([f"## {tool.name}", "", tool.description, *listed, "", usage])


def _parameter(name: str, schema: Mapping[str, Any], required: bool) -> str:
    kind = schema.get("type")
    form = shape(schema) if kind in _PLAIN else f"JSON: {shape(schema)}"
    # Lines stay lines: some show a form.
    description = "\n  ".join(str(schema.get("description", "")).splitlines())
    return f"- {name} ({form}{', required' if required else ''}): {description}"


def shape(schema: Mapping[str, Any]) -> str:
    """What a value looks like, in short."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(shape, schema["anyOf"])))
    if schema.get("type") == "array":
        return f"[{shape(schema.get('items', {}))}, …]"
    if "properties" in schema:
        required = schema.get("required", ())
        fields = (f'"{n}"{"" if n in required else "?"}: {shape(s)}' for n, s in schema["properties"].items())
        return f"{{{', '.join(fields)}}}"
    return str(schema.get("type", "any value"))
