"""_hooks: what hooks said of a call, for people, for the model and for the record."""

from langgraph.runtime import Runtime

from interlock.nodes.tools._decided import note
from interlock.state.calls import CallKey
from interlock.state.decided import Decided
from interlock.state.deps import Deps
from interlock.state.hooks import HookOutcome

_REASON = 2000
"""Characters of a hook's reason that go into state and requests; the record of decisions holds all of it."""


def one_reason(outcome: HookOutcome) -> str:
    """The reason, never empty."""
    return outcome.reason.strip()[:_REASON] or "no reason given"


def names(outcome: HookOutcome) -> str:
    """The hooks whose decision it is: `hook lint`, `hooks lint, audit`."""
    word = "block" if outcome.stop is not None else outcome.decision
    said = [v.name for v in outcome.verdicts if v.decision == word and not v.warning]
    found = list(dict.fromkeys(said or [v.name for v in outcome.verdicts]))
    return f"{'hook' if len(found) == 1 else 'hooks'} {', '.join(found)}"


def note_hooks(
    runtime: Runtime[Deps], key: CallKey, event: str, outcome: HookOutcome, becomes: int = 0
) -> None:
    """The entry for the call's record, where a hook has run."""
    if not outcome.verdicts:
        return
    what = Decided(
        by="hook",
        decision="stop" if outcome.stop is not None else outcome.decision,
        who=names(outcome),
        event=event,
        reason=outcome.stop or outcome.reason,
        hooks=outcome.verdicts,
        becomes=becomes,
    )
    note(runtime, key, what)
