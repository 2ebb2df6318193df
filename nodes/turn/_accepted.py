"""_accepted: an answer enters the conversation."""

from typing_extensions import TypedDict

from interlock.state.deps import Transcript
from interlock.state.hooks import is_hooked
from interlock.state.messages import Message
from interlock.state.text import is_visible


class AcceptedIn(TypedDict, total=False):
    hooked: str
    said: str


class Accepted(TypedDict, total=False):
    head: str
    reply: str
    said: str
    turn_status: str


def accepted(state: AcceptedIn, transcript: Transcript, reply: str) -> Accepted:
    """`reply` is the record of the answer, after the conversation's head. AfterAgent hooks are told what was said."""
    message = transcript.message(reply)
    update: Accepted = {"head": reply, "reply": reply, "turn_status": "calls" if message.tool_calls else "ok"}
    if is_hooked(state.get("hooked", ""), "AfterAgent") and is_visible(message.text):
        said = Message(role="assistant", content=message.text)
        update["said"] = transcript.append(state.get("said", ""), [said])
    return update
