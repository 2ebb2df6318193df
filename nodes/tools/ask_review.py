"""ask_review: put a finished plan before a person."""

import asyncio
from pathlib import Path

from langgraph.runtime import Runtime
from typing_extensions import TypedDict

from interlock.nodes.tools._requests import put_request
from interlock.prompts import render
from interlock.state.calls import ApprovalRequest, CallKey, CallView, FileState, ToolResult
from interlock.state.deps import Deps


class AskReviewIn(TypedDict, total=False):
    message: str
    index: int
    attempt: int
    asks: int


class AskReviewOut(TypedDict, total=False):
    approval: str
    asks: int
    label: str


async def ask_review(state: AskReviewIn, runtime: Runtime[Deps]) -> AskReviewOut:
    """Whatever rules say: no policy, no mode and no flag approves a plan. Without a plan the model is told so."""
    deps = runtime.context
    key = CallKey(message=state["message"], index=state["index"], attempt=state["attempt"])
    call = deps.journal.call(key)
    name = str(call.args["plan_filename"])
    path = deps.plans.find(name)
    text = await asyncio.to_thread(_read, path)
    if path is None or not text.strip():
        told = render("plan/missing", file=repr(name), folder=str(deps.plans.folder))
        deps.journal.finish(key, call, ToolResult(status="success", content=told))
        return {"label": "no plan"}
    asks = (state.get("asks") or 0) + 1
    request = _request(f"{key}:review:{asks}", call, path, text, deps.toolset.now(str(path)), asks > 1)
    put_request(runtime, request)
    return {"label": "asked", "approval": request.key, "asks": asks}


def _read(path: Path | None) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path else ""
    except OSError:
        return ""  # gone meanwhile: as if it had never been written


def _request(
    key: str, call: CallView, path: Path, text: str, sha256: str | None, again: bool
) -> ApprovalRequest:
    return ApprovalRequest(
        key=key,
        kind="approval",
        call=call,
        reason="The plan is ready for your review. Approved, it is carried out; with always, edits aren't asked about.",
        preview=text,
        files=(FileState(path=str(path), sha256=sha256, on_disk=sha256),),
        choices=("proceed_once", "proceed_always", "modify", "reject", "cancel"),
        note="The plan file changed since it was shown; this is the new text." if again else None,
    )
