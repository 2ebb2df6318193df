"""What the journal of calls promises: a row is of one call, and an intent is on disk before its effect."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.journal import SqlJournal
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey, CallView, ToolResult
from interlock.state.errors import RunError
from interlock.state.messages import Message, ToolCall


def test_the_row_of_a_call_is_no_result_of_another_tool_or_of_other_arguments(store: Store) -> None:
    with closing(store.connect()) as conn:
        chain = ChainTranscript(SqlChain(conn), store.outputs, "r")
        asked = ToolCall(id="0.0", name="run_shell_command", args={"command": "ls"})
        head = chain.append("", [Message(role="assistant", tool_calls=(asked,))])
        journal, key = SqlJournal(conn, chain, store.outputs, "r", 1), CallKey(message=head, index=0)
        ran = journal.read_call(key)
        journal.record_result(key, ran, ToolResult(status="success", content="a.txt"))
        found = journal.find_row(key, ran)
        assert found is not None and found.result is not None and found.result.content == "a.txt"
        for other in (
            CallView(id="0.0", name="run_shell_command", args={"command": "git push"}),
            CallView(id="0.0", name="read_file", args=ran.args),
        ):
            with pytest.raises(RunError, match=r"another call .* Nothing was run"):
                journal.find_row(key, other)


INTENT = """
import sys
from contextlib import closing
from pathlib import Path
from interlock.engine.store import Store
from interlock.engine.store.chain import SqlChain
from interlock.engine.store.journal import SqlJournal
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey
from interlock.state.messages import Message, ToolCall

store, said = Store(Path(sys.argv[1])), []
store.create_or_migrate()
with closing(store.connect_for_driver()) as conn:
    conn._conn.set_trace_callback(said.append)
    chain = ChainTranscript(SqlChain(conn), store.outputs, "r")
    head = chain.append("", [Message(role="assistant", tool_calls=(ToolCall(id="0.0", name="x", args={}),))])
    journal, key = SqlJournal(conn, chain, store.outputs, "r", 1), CallKey(message=head, index=0)
    journal.record_intent(key, journal.read_call(key))
    print(*(line.split("(")[0].strip().lower() for line in said), sep="\\n")
"""


@pytest.mark.sqlite
def test_an_intent_is_synced_to_disk_with_the_record_that_it_is_about(tmp_path: Path) -> None:
    """In a process of its own: stores of this one wait for no disk."""
    done = subprocess.run(
        [sys.executable, "-c", INTENT, tmp_path], capture_output=True, text=True, check=True
    )
    said = done.stdout.splitlines()
    assert [line for line in said if line.startswith(("pragma", "begin", "commit"))][:4] == [
        "pragma synchronous",
        "pragma synchronous = full",
        "begin immediate",
        "commit",
    ]
    begun, ended = said.index("begin immediate"), said.index("commit")
    inside = " ".join(said[begun:ended])
    assert "into chain" in inside and "into journal" in inside
