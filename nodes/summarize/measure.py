"""measure: is the output longer than its tool's limit?"""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.summarize._rules import is_long
from interlock.nodes.summarize._source import SourceIn, source_of
from interlock.state.deps import Deps


class MeasureOut(TypedDict, total=False):
    label: str
    saved_to: str
    shortened: str
    summarize_status: str


async def measure(state: SourceIn, runtime: Runtime[Deps]) -> MeasureOut:
    source = source_of(state, runtime.context)
    long = is_long(runtime.context.settings, source.rule, source.text)
    return {
        "label": "long" if long else "short",
        "saved_to": "",
        "shortened": "",
        "summarize_status": "unchanged",
    }
