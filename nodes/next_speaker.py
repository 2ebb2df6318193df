"""next_speaker: decide whether the model must continue after its last answer, or it is the user's turn."""

from collections.abc import Callable, Mapping

from langgraph.runtime import Runtime

from interlock.nodes.helper_model import ask_json, build_question_messages
from interlock.prompts import load_prompt
from interlock.state.deps import Deps
from interlock.state.messages import Message, curate_history, unanswered_calls
from interlock.state.next_speaker import NEXT_SPEAKER_TIMEOUT_S, NextSpeakerState, Verdict
from interlock.state.node import Part, node, require_task_id

_RULES: Mapping[str, tuple[str, Callable[[list[Message]], bool]]] = {
    "the conversation is empty": ("", lambda history: not curate_history(history)),
    "a tool has answered": ("model", lambda h: h[-1].role == "tool"),
    "calls are still open": ("model", lambda history: bool(unanswered_calls(history))),
    "the last answer is empty": ("model", lambda h: h[-1].role == "assistant" and not h[-1].text.strip()),
    "the last message isn't the model's": ("", lambda history: history[-1].role != "assistant"),
}
"""Reason → speaker (empty: undecided), and when it holds."""

_ENDS: dict[str, tuple[str, str]] = {
    "stop": ("user", "the answer is complete"),
    "length": ("model", "the answer was cut off at its greatest length"),
}
"""End of an answer → speaker and reason, where the vendor's ends are reliable."""
_PAUSED: dict[str, tuple[str, str]] = {"pause_turn": ("model", "the vendor paused the answer")}
"""The same, for ends that no vendor means otherwise."""


@node(
    reads=("head", "finish_reason", "sticky_model"),
    writes=("next_speaker", "decided_by", "speaker_reason"),
    labels=("decided", "open"),
    parts=(
        Part("the first that holds", tuple(f"{why}: {who or 'nobody'}" for why, (who, _) in _RULES.items())),
        Part(
            "the end, where it is reliable",
            tuple(f"{why}: {who}" for who, why in (*_PAUSED.values(), *_ENDS.values())),
        ),
    ),
)
async def precheck(state: NextSpeakerState, runtime: Runtime[Deps]) -> NextSpeakerState:
    """The first rule that applies decides; if none does, a model must (`docs/internals.md#who-speaks-next`)."""
    history = runtime.context.transcript.read(state["head"]) if state["head"] else []
    spoken = [m for m in history if m.role != "system"]
    for reason, (speaker, holds) in _RULES.items():
        if holds(spoken):
            _record_deciding_rule(runtime, reason)
            decided: NextSpeakerState = {"decided_by": "precheck", "speaker_reason": reason}
            return {**decided, "label": "decided", "next_speaker": speaker}
    reliable = runtime.context.models.has_reliable_finish_reasons(state.get("sticky_model", ""))
    if ended := (_ENDS | _PAUSED if reliable else _PAUSED).get(state.get("finish_reason", "")):
        speaker, reason = ended
        _record_deciding_rule(runtime, reason)
        said: NextSpeakerState = {"decided_by": "precheck", "speaker_reason": reason}
        return {**said, "label": "decided", "next_speaker": speaker}
    return {"label": "open"}


def _record_deciding_rule(runtime: Runtime[Deps], reason: str) -> None:
    """Record with the step which rule decided."""
    runtime.context.steps.record_reason(require_task_id(runtime, "A rule"), reason)


@node(reads=("head",), writes=("next_speaker", "decided_by", "speaker_reason"))
async def ask_model(state: NextSpeakerState, runtime: Runtime[Deps]) -> NextSpeakerState:
    """On any failure the speaker stays undecided: the run waits for the user."""
    history = [
        m for m in curate_history(runtime.context.transcript.read(state["head"])) if m.role != "system"
    ]
    system, task = load_prompt("next_speaker/judge").render_system_and_user()
    messages = build_question_messages(system, task, history)
    found = await ask_json(runtime, Verdict, "next_speaker", messages, state["head"], NEXT_SPEAKER_TIMEOUT_S)
    if found is None:
        return {"next_speaker": "", "decided_by": "none", "speaker_reason": "the helper model gave no answer"}
    verdict = found.answer
    return {
        "next_speaker": verdict.next_speaker,
        "decided_by": "model",
        "speaker_reason": verdict.reasoning[:1000],
    }
