"""ask_hook: write the request about hooks whose effect a kill hid."""

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.hooks._request import ask_about
from interlock.state.deps import Deps


class AskHookIn(TypedDict, total=False):
    approval: str
    """`HookOutcome.unknown`, as the node that fired wrote it."""


class AskHookOut(TypedDict, total=False):
    approval: str


async def ask_hook(state: AskHookIn, runtime: Runtime[Deps]) -> AskHookOut:
    """`await_person` stops for the answer, and the hook's own node reads it by firing again."""
    ask_about(state["approval"], runtime)
    return {"approval": state["approval"]}
