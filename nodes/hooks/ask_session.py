"""ask_session: write the request about a session's hooks whose effect a kill hid."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.hooks._request import ask_about
from interlock.state.deps import Deps


class AskSessionIn(TypedDict, total=False):
    session_request: str


class AskSessionOut(TypedDict, total=False):
    session_request: str


async def ask_session(state: AskSessionIn, runtime: Runtime[Deps]) -> AskSessionOut:
    ask_about(state["session_request"], runtime)
    return {"session_request": state["session_request"]}
