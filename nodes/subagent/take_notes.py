"""take_notes: bring the scratchpad up to date with what the last batch said of it."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.subagent._batch import succeeded
from interlock.state.deps import Deps
from interlock.state.subagent import Scratchpad
from interlock.tools.update_scratchpad import UpdateScratchpadArgs


class TakeNotesIn(TypedDict, total=False):
    head: str
    reply: str
    scratchpad: Scratchpad


class TakeNotesOut(TypedDict, total=False):
    scratchpad: Scratchpad


async def take_notes(state: TakeNotesIn, runtime: Runtime[Deps]) -> TakeNotesOut:
    """Lists that are given replace the old ones; findings and ignored paths are added."""
    calls = succeeded(runtime.context.transcript, state["head"], state["reply"], "update_scratchpad")
    if not calls:
        return {}
    pad = state["scratchpad"]
    for call in calls:
        args = {key: value for key, value in call.args.items() if key in UpdateScratchpadArgs.model_fields}
        new = UpdateScratchpadArgs.model_validate(args)
        pad = Scratchpad(
            checklist=pad["checklist"] if new.checklist is None else new.checklist,
            questions=pad["questions"] if new.questions is None else new.questions,
            findings=[*pad["findings"], *(f for f in new.findings if f not in pad["findings"])],
            ignored_paths=[
                *pad["ignored_paths"],
                *(p for p in new.ignored_paths if p not in pad["ignored_paths"]),
            ],
        )
    return {"scratchpad": pad}
