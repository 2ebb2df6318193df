"""tagged: models that write their calls as tags in the text (`tools/_tags.py`), read as if they called."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace

from interlock.services.models.request import CallPiece, Chunk
from interlock.state.models import ToolDeclaration
from interlock.tools._tags import parser_of, typed

_MALFORMED = "malformed_function_call"


async def tagged(
    pieces: AsyncGenerator[Chunk, None], tools: Sequence[ToolDeclaration]
) -> AsyncGenerator[Chunk, None]:
    """The pieces without their tags, and at the end the calls. One that was cut off makes the answer malformed."""
    schemas = {tool.name: tool.parameters for tool in tools}
    parser, reason, problem = parser_of(schemas), None, None
    async with aclosing(pieces):
        async for chunk in pieces:
            reason, problem = chunk.finish_reason or reason, chunk.problem or problem
            yield replace(chunk, text=parser.feed(chunk.text))
    rest = parser.close(cut=reason != "stop")
    if parser.problem and not problem:
        yield Chunk(text=rest, finish_reason=_MALFORMED, problem=f"a call can't be read: {parser.problem}")
        return
    yield Chunk(text=rest, calls=tuple(CallPiece(c.name, typed(c, schemas)) for c in parser.calls))
