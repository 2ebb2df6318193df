"""hooks: what a user's hook may be told and may say, and how nodes fire them (`pipelines.md` §18)."""

from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field, JsonValue

from interlock.state.events import Emit
from interlock.state.messages import Frozen
from interlock.state.run import HookEvent, Labelled

HookDecision = Literal["none", "allow", "ask", "block"]
NO_REASON = "It gave no reason."
"""The reason of a hook that said no and not why."""


class HookVerdict(Frozen):
    """What one hook said."""

    name: str
    """As settings name it, else its command."""
    source: str
    """The settings file that it stands in."""
    decision: HookDecision
    reason: str = ""
    warning: str = ""
    """Why its answer doesn't count: a failure, a time-out, output that can't be read. Empty: it counts."""
    exit_code: int | None = None
    """Null when it was ended, or never started."""
    duration_ms: int = 0


class HookOutcome(Frozen):
    """What the hooks of one event said together."""

    decision: HookDecision = "none"
    """Any block wins over ask, ask over allow."""
    reason: str = ""
    """Of the decision; for people, and for the model when it is told of a block."""
    stop: str | None = None
    """Why the run must end (`continue: false`); null: it goes on."""
    messages: tuple[str, ...] = ()
    """For people (`systemMessage`)."""
    context: str = ""
    """For the model (`additionalContext`), still to be marked as a hook's by whoever appends it."""
    output: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The merged `hookSpecificOutput`: tool_input, llm_request, llm_response, toolConfig, …"""
    verdicts: tuple[HookVerdict, ...] = ()
    """Each hook that ran, in the order of settings; empty: none did."""
    unknown: str = ""
    """Key of the request to write: a kill hid whether the hooks took effect, so a person must say (`engine.md` 13).

    Empty: nothing has to be asked. The rest of the outcome says nothing then.
    """


class HookWait(Labelled, total=False):
    """What a graph that fires hooks, or asks a person, knows of the request that it waits for."""

    hook_event: str
    """The event whose hooks haven't answered: cancelled, or cut off by a kill; empty: none."""
    hook_key: str
    """Key of that firing."""
    approval: str
    """Key of the request that a person is asked, or was asked last; empty: nobody was."""


class HookedPrompt(HookWait, total=False):
    """A prompt on its way past the hooks."""

    asked: str
    """Chain record (detached) of the prompt that is worked on."""
    hook_stage: str
    """Empty: hooks before the agent haven't let the prompt pass; `admitted`: they have, or there were none to ask;
    `answered`: those after it ended the prompt when it was answered."""


class Unsettled(Frozen):
    """A firing that a kill cut off: what a person must look for before they answer."""

    event: str
    subject: str
    """What its matchers looked at: a tool's name, a trigger or a source; may be empty."""
    commands: tuple[str, ...]
    """Of the hooks that were started and may or may not have taken effect."""


class Hooks(Protocol):
    """The hooks that settings configure, journaled: none runs twice behind anybody's back."""

    @property
    def configured(self) -> str:
        """Names of the events that have hooks, comma-joined and sorted; empty: there are none."""
        ...

    async def fire(
        self,
        event: HookEvent,
        key: str,
        payload: Mapping[str, JsonValue],
        *,
        subject: str = "",
        emit: Emit,
    ) -> HookOutcome:
        """Run the hooks of an event, unless `key` has an outcome already: then that one.

        `key` names this firing within the run, the same after a kill. `payload` holds the event's own fields
        (gemini-cli's names); those that every event has are added. `subject` is what matchers look at: the tool's
        name, the trigger or the source. Warnings, messages and what each hook said are told through `emit`.
        """
        ...

    def unsettled(self, unknown: str) -> Unsettled:
        """What the request named by `HookOutcome.unknown` is about."""
        ...
