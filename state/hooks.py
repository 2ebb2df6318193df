"""hooks: what hooks receive and return, and how nodes fire them (`docs/internals.md#hooks-in-graphs`)."""

from collections.abc import Mapping
from typing import Literal, Protocol

from pydantic import Field, JsonValue

from interlock.state.events import Emit
from interlock.state.messages import Frozen
from interlock.state.run import HookEvent, Labelled

HookDecision = Literal["none", "allow", "ask", "block"]
NO_REASON = "It gave no reason."
"""Used when a hook refuses without a reason."""


class HookVerdict(Frozen):
    """What one hook answered."""

    name: str
    """As named in settings, else its command."""
    source: str
    """The settings file that defines it."""
    decision: HookDecision
    reason: str = ""
    warning: str = ""
    """Why its answer is ignored: failure, timeout or unparsable output. Empty: it counts."""
    exit_code: int | None = None
    """Null if it was killed or never started."""
    duration_ms: int = 0


class HookOutcome(Frozen):
    """Combined outcome of all hooks of one event."""

    decision: HookDecision = "none"
    """Any block beats ask; ask beats allow."""
    reason: str = ""
    """Reason for the decision, for people; also for the model if a block is reported to it."""
    stop: str | None = None
    """Why the run must end (`continue: false`); null: it continues."""
    messages: tuple[str, ...] = ()
    """For people (`systemMessage`)."""
    context: str = ""
    """For the model (`additionalContext`); whoever appends it must still mark it as a hook's."""
    output: dict[str, JsonValue] = Field(default_factory=dict[str, JsonValue])
    """The merged `hookSpecificOutput`: tool_input, llm_request, llm_response, toolConfig, …"""
    verdicts: tuple[HookVerdict, ...] = ()
    """Each hook that ran, in settings order; empty: none."""
    unknown: str = ""
    """Key of the request to write: a kill hid whether the hooks took effect, so a person must say
    (`docs/internals.md#unknown-outcomes`).

    Empty: nothing to ask. If set, the other fields are meaningless.
    """


class HookWait(Labelled, total=False):
    """State of a graph that fires hooks or asks a person: the request it is waiting on."""

    hook_event: str
    """The event whose hooks haven't answered (cancelled or killed); empty: none."""
    hook_key: str
    """Key of that firing."""
    approval: str
    """Key of the pending or latest request to a person; empty: none."""


class HookedPrompt(HookWait, total=False):
    """State of a prompt passing through the hooks."""

    asked: str
    """Chain record (detached) of the prompt in progress."""
    hook_stage: str
    """Empty: the hooks before the agent haven't admitted the prompt. `admitted`: they have, or there were none.
    `answered`: hooks after the agent ended the prompt once it was answered."""


class InterruptedFiring(Frozen):
    """A firing interrupted by a kill: what a person must check before answering."""

    event: str
    subject: str
    """What matchers compare with: a tool name, a trigger or a source; may be empty."""
    commands: tuple[str, ...]
    """Commands of the hooks that were started and may or may not have taken effect."""


class Hooks(Protocol):
    """The configured hooks, journaled: none runs twice without a person's consent."""

    @property
    def hooked_events(self) -> str:
        """Names of the events that have hooks, sorted and comma-joined; empty: none."""
        ...

    async def fire(
        self, event: HookEvent, key: str, payload: Mapping[str, JsonValue], *, subject: str = "", emit: Emit
    ) -> HookOutcome:
        """Run the hooks of an event; if `key` already has an outcome, return that instead.

        `key` identifies this firing within the run and survives a kill. `payload` holds the event's own fields
        (gemini-cli's names); common fields are added. `subject` is what matchers compare with: the tool name, trigger
        or source. Warnings, messages and each hook's answer go to `emit`.
        """
        ...

    def load_interrupted_firing(self, request_key: str) -> InterruptedFiring:
        """The firing that the request `HookOutcome.unknown` is about."""
        ...
