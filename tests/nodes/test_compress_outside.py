"""Every snapshot's message includes what the run itself knows: plan, list of steps, open requests."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals, record_decision
from interlock.engine.store.chain import SqlChain
from interlock.nodes.compress import _render_plan_todos_and_requests
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import Answer, ApprovalRequest, CallKey, CallView
from interlock.state.messages import Message


def request(number: int) -> ApprovalRequest:
    call = CallView(id=f"{number}.0", name="run_shell_command", args={"command": f"make step{number} && é"})
    about = {"kind": "approval", "call": call, "reason": "r", "preview": "p", "choices": ("proceed_once",)}
    return ApprovalRequest(attempt=CallKey(message="ab" * 32, index=number), **about)


def test_plan_steps_and_open_requests_are_told_and_answered_ones_are_not(tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    store.create_or_migrate()
    conn = store.connect()
    chain, approvals = ChainTranscript(SqlChain(conn), store.outputs, "run"), SqlApprovals(conn, "run")
    deps = cast(Any, SimpleNamespace(transcript=chain, approvals=approvals))
    assert _render_plan_todos_and_requests({}, deps) == [], "a run that knows nothing says nothing"
    approvals.write_request(request(1))
    record_decision(conn, "run", approvals.write_request(request(2)), Answer(choice="proceed_once"))
    todos = [{"description": "look <here>", "status": "pending"}]
    record = chain.append("", [Message(role="tool", name="write_todos", content=json.dumps(todos))])
    plan = [{"text": "first", "done": True}, {"text": "second", "done": False}]
    told = "\n\n".join(
        _render_plan_todos_and_requests(cast(Any, {"todos": record, "plan_steps": plan}), deps)
    )
    conn.close()
    assert "- [x] first\n- [ ] second" in told
    assert "- [pending] look <here>" in told
    assert 'run_shell_command {"command": "make step1 && é"}' in told
    assert "step2" not in told
