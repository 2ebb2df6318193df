"""send_back: name the questions that the report left open."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.prompts import render
from interlock.state.deps import Deps
from interlock.state.messages import Message
from interlock.state.subagent import Scratchpad


class SendBackIn(TypedDict, total=False):
    head: str
    scratchpad: Scratchpad


class SendBackOut(TypedDict, total=False):
    head: str
    sent_back: bool


async def send_back(state: SendBackIn, runtime: Runtime[Deps]) -> SendBackOut:
    questions = "\n".join(f"- {question}" for question in state["scratchpad"]["questions"])
    text = render("subagent/open_questions", questions=questions)
    message = Message(role="user", origin="nudge", content=text)
    return {"head": runtime.context.transcript.append(state["head"], [message]), "sent_back": True}
