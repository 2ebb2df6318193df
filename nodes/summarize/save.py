"""save: keep the whole output in a file, before anything is left out of it."""

import asyncio

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.summarize._source import SourceIn, source_of
from interlock.state.deps import Deps
from interlock.state.text import clean


class SaveOut(TypedDict, total=False):
    saved_to: str
    label: str


async def save(state: SourceIn, runtime: Runtime[Deps]) -> SaveOut:
    """A tool that was cut short by its own limit kept all of it already."""
    source = source_of(state, runtime.context)
    path = source.kept_in
    if not path:
        data = clean(source.text).encode()
        path = str(await asyncio.to_thread(runtime.context.outputs.save, data))
    return {"saved_to": path, "label": source.rule.how}
