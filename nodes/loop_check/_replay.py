"""_replay: events of a session, through all three levels."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from interlock.nodes.loop_check._chants import Chants
from interlock.nodes.loop_check._cycles import call_key, cycle, remembered, told
from interlock.nodes.loop_check._judging import judged
from interlock.state.loop_check import (
    FIRST_CHECK,
    INTERVAL,
    LONGEST_CYCLE,
    ContentEvent,
    Judgement,
    Kind,
    LoopEvent,
    ModelVerdictEvent,
    PromptEvent,
    ToolCallEvent,
)

NO_PROGRESS = "a model that looked at the last turns saw no progress in them"


@dataclass
class Replay:
    """What is known after some events. `at_event`, `kind` and `detail` are those of the first detection."""

    verdicts: list[bool] = field(default_factory=list[bool])
    at_event: int | None = None
    kind: Kind | None = None
    detail: str = ""
    count: int = 0
    interval: int = INTERVAL
    next_check: int = FIRST_CHECK
    due: bool = False
    """A model must judge before the next event."""
    turn: int = 0
    prompt_id: str | None = None
    prompt: str = ""
    _keys: list[str] = field(default_factory=list[str])
    _names: list[str] = field(default_factory=list[str])
    _chants: Chants = field(default_factory=Chants)

    def take(self, event: LoopEvent) -> None:
        """One event; its verdict is added."""
        self.verdicts.append(False)
        match event:
            case PromptEvent():
                if event.prompt_id != self.prompt_id:
                    self._begin(event)
            case ToolCallEvent():
                self._call(event)
            case ContentEvent():
                if text := self._chants.feed(event.text):
                    self._note("content", f"the text “{text}” was repeated again and again")
            case ModelVerdictEvent():
                self._verdict(event)
            case _:
                self.turn += 1

    @property
    def check_due(self) -> bool:
        """Whether a model's judgement would count now."""
        return self.turn >= self.next_check

    def judge(self, judgement: Judgement) -> None:
        """Take a model's judgement in, as part of the last event."""
        loop, self.interval = judged(judgement, self.interval)
        self.next_check = self.turn + self.interval
        if loop:
            self._note("model", NO_PROGRESS)

    def _begin(self, event: PromptEvent) -> None:
        self.prompt_id, self.prompt = event.prompt_id, event.text
        self.turn, self.count, self.interval, self.next_check = 0, 0, INTERVAL, FIRST_CHECK
        self._keys = []
        self._chants.reset()

    def _call(self, event: ToolCallEvent) -> None:
        self._chants.reset()
        self._keys = remembered(self._keys, call_key(event.name, event.args))
        self._names = [*self._names, event.name][-LONGEST_CYCLE:]
        if length := cycle(self._keys):
            self._note("tool_call", told(self._names, length, event.args))

    def _verdict(self, event: ModelVerdictEvent) -> None:
        if not self.check_due:
            return
        judgement: Judgement = {"confidence": event.confidence}
        if "double_check_confidence" in event.model_fields_set:
            judgement["double"] = event.double_check_confidence
        self.judge(judgement)

    def _note(self, kind: Kind, detail: str) -> None:
        self.count += 1
        self.verdicts[-1] = True
        if self.at_event is None:
            self.at_event, self.kind, self.detail = len(self.verdicts) - 1, kind, detail


def replay(events: Sequence[LoopEvent], judgements: Sequence[Judgement], asks: bool) -> Replay:
    """All events; with `asks` only up to the first turn that a model must judge and hasn't yet (`due`)."""
    state, given = Replay(), list(judgements)
    for event in events:
        state.take(event)
        if asks and event.type == "turn" and state.check_due:
            if not given:
                state.due = True
                return state
            state.judge(given.pop(0))
    return state
