"""cut_short: what a person stopped ends where it stands, so that another prompt can take its place."""

from langgraph.types import StateSnapshot

from interlock.engine.driver.drive import Drive
from interlock.prompts import load
from interlock.services.sqlite import transaction
from interlock.state.calls import CallKey, ToolResult, cancelled
from interlock.state.messages import Message, open_calls


def end_cut_short(drive: Drive, snapshot: StateSnapshot, prompt: str) -> tuple[str, str]:
    """For the pass that `snapshot` stands in the middle of: what to say now, with what was said and isn't in the
    conversation yet, and its head without loose ends. LangGraph drops the tasks that are left where a pass begins.

    Calls that are done keep their results, all others are answered as cancelled.
    """
    head = _with_answers(drive, _furthest(drive, snapshot))
    with transaction(drive.conn) as conn:
        conn.execute(
            "update approvals set superseded = 1 where run = ? and answer is null", (drive.lease.run,)
        )
    waits = str(snapshot.values.get("prompt") or "")
    unheard = drive.services.transcript.message(waits).text if waits else ""
    return f"{unheard}\n\n{prompt}" if unheard else prompt, head


def _furthest(drive: Drive, snapshot: StateSnapshot) -> str:
    """The conversation's head, or what the part that was under way has added to it."""
    transcript = drive.services.transcript
    head = str(snapshot.values.get("head") or "")
    for task in snapshot.tasks:
        inner = str(task.state.values.get("head") or "") if isinstance(task.state, StateSnapshot) else ""
        if inner and head in transcript.ids(inner):
            head = inner
    return head


def _with_answers(drive: Drive, head: str) -> str:
    """No request is made while a call has no answer."""
    transcript = drive.services.transcript
    if not head or not (left := open_calls(transcript.read(head))):
        return head
    asked = next(r for r in reversed(transcript.ids(head)) if transcript.message(r).tool_calls)
    calls = [*transcript.message(asked).tool_calls]
    answers: list[Message] = []
    for call in left:
        result = _result(drive, asked, calls.index(call))
        answers.append(
            Message(
                role="tool",
                tool_call_id=call.id,
                name=call.name,
                content=result.content,
                status=result.status,
            )
        )
    return transcript.append(head, answers)


def _result(drive: Drive, asked: str, index: int) -> ToolResult:
    journal = drive.services.journal
    (attempt,) = drive.conn.execute(
        "select max(attempt) from journal where run = ? and message = ? and idx = ?",
        (drive.lease.run, asked, index),
    ).fetchone()
    key = CallKey(message=asked, index=index, attempt=attempt or 1)
    call = journal.call(key)
    row = journal.find(key, call)
    if row is not None and row.result is not None:
        return row.result
    if row is not None and row.state == "intent":
        text = load("run/call_cut_short").text()
    else:
        text = load("run/call_cancelled").text(reason="the user stopped the agent")
    journal.finish(key, call, result := cancelled(text))
    return result
