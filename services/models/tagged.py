"""tagged: models that write their calls as tags in the text (`state/xml_calls.py`), read as if they called."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from interlock.services.models.request import CallPiece, Chunk
from interlock.state.models import ToolDeclaration
from interlock.state.xml_calls import TagParser, arguments

_MALFORMED = "malformed_function_call"


async def tagged(
    pieces: AsyncGenerator[Chunk, None], tools: Sequence[ToolDeclaration]
) -> AsyncGenerator[Chunk, None]:
    """The pieces without their tags, and at the end the calls. One that was cut off makes the answer malformed."""
    schemas = {tool.name: tool.parameters for tool in tools}
    parser = TagParser({name: _names(schema) for name, schema in schemas.items()})
    reason = problem = None
    async with aclosing(pieces):
        async for chunk in pieces:
            reason, problem = chunk.finish_reason or reason, chunk.problem or problem
            yield replace(chunk, text=parser.feed(chunk.text))
    rest = parser.close(cut=reason != "stop")
    if parser.problem and not problem:
        yield Chunk(text=rest, finish_reason=_MALFORMED, problem=f"a call can't be read: {parser.problem}")
        return
    yield Chunk(text=rest, calls=tuple(_piece(c.name, c.params, schemas) for c in parser.calls))


def _names(schema: Mapping[str, Any]) -> frozenset[str]:
    """Models that learned Roo Code's tools say `path` whatever they are told."""
    names = frozenset(schema.get("properties", {}))
    return names | {"path"} if "file_path" in names else names


def _piece(name: str, params: dict[str, str], schemas: Mapping[str, Mapping[str, Any]]) -> CallPiece:
    schema = schemas[name]
    if "path" in params and "path" not in schema.get("properties", {}):
        params = {("file_path" if key == "path" else key): value for key, value in params.items()}
    return CallPiece(name=name, args=arguments(params, schema))
