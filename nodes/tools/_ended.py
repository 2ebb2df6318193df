"""_ended: after a resume the model hears which of its background processes are gone (`engine.md` 13)."""

from interlock.prompts import load
from interlock.state.deps import Deps
from interlock.state.messages import Message


def ended_processes(deps: Deps, since: int) -> tuple[list[Message], int]:
    """The note, if there is something to tell, and the drive up to which everything is told."""
    ended, epoch = deps.journal.ended_background(since)
    if not ended:
        return [], epoch
    processes = "\n".join(f"- {call.args.get('command', call.name)}" for call in ended)
    text = load("run/processes_ended").text(processes=processes)
    return [Message(role="user", origin="context", content=text)], epoch
