"""A thread that LangGraph drove elsewhere, with its own savers, becomes a run with all its steps, and goes on here."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import Done, Run
from databases import fresh_database

pytest_plugins = ["commands"]

AGENT = """
import asyncio, operator, sys
from dataclasses import dataclass
from typing import Annotated
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt
from typing_extensions import TypedDict

@dataclass
class Note:
    text: str

class Inner(TypedDict):
    topic: str
    notes: Annotated[list[Note], operator.add]

class State(MessagesState):
    topic: str
    notes: Annotated[list[Note], operator.add]
    end: str

def draft(state):
    return {"messages": [AIMessage("About " + state["topic"], id="1")]}

def ask(state):
    return {"notes": [Note(interrupt({"question": "What of it?", "topic": state["topic"]}))]}

def review(state):
    (note,) = state["notes"]
    return {"end": f"{state['messages'][0].text}: {type(note).__name__} {note.text}, {interrupt('Publish?')}"}

inner = StateGraph(Inner).add_node(ask).add_edge(START, "ask").compile()
builder = StateGraph(State).add_node(draft).add_node("inner", inner).add_node(review)
graph = builder.add_edge(START, "draft").add_edge("draft", "inner").add_edge("inner", "review").compile()
other = StateGraph(Inner).add_node(ask).add_edge(START, "ask").compile()

async def main(url):
    if url.startswith("postgresql"):
        from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver as Saver
    else:
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver as Saver
    async with Saver.from_conn_string(url) as saver:
        await saver.setup()
        driven = builder.compile(saver)
        for thread, *answers in (("asks", ), ("ends", "new", "yes")):
            config = {"configurable": {"thread_id": thread}}
            await driven.ainvoke({"topic": "tea"}, config)
            for answer in answers:
                await driven.ainvoke(Command(resume=answer), config)

if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
"""


class Threads(NamedTuple):
    run: Run
    url: str

    def imported(self, thread: str, graph: str = "agent.py:graph") -> Done:
        return self.run("import", "--from", self.url, graph, thread, "--json")


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Threads of `python agent.py`, where the state's class is one of `__main__`."""
    pytest.importorskip("langgraph.checkpoint.postgres")
    folder = tmp_path_factory.mktemp("threads")
    url = str(folder / "threads.db") if request.param == "sqlite" else fresh_database()
    (folder / "agent.py").write_text(AGENT)
    subprocess.run([sys.executable, "-P", folder / "agent.py", url], check=True, capture_output=True)
    return url


@pytest.fixture
def threads(url: str, run: Run) -> Threads:
    Path("agent.py").write_text(AGENT)
    return Threads(run, url)


@pytest.mark.sample(1)
def test_a_thread_that_asks_in_a_subgraph_goes_on_here_and_can_be_forked(threads: Threads) -> None:
    run = threads.imported("asks").json
    assert (run["status"], run["step"]) == ("waiting", 1)
    (request,) = threads.run("approvals", run["run"], "--json").json
    assert (request["kind"], request["preview"]) == ("question", "question: What of it?\ntopic: tea")
    assert threads.run("resume", run["run"], "--answer", "1=old").code == 75
    done = threads.run("resume", run["run"], "--answer", "2=yes", "-o", "json")
    assert (done.code, done.json["end"]) == (0, "About tea: Note old, yes")
    fork = threads.run("fork", run["run"], "--at", "1", "--in-place", "--json").json["run"]
    again = threads.run("resume", fork, "-o", "json").json["pending_approvals"]
    assert [one["preview"] for one in again] == ["question: What of it?\ntopic: tea"]
    assert threads.run("show", "--verify", run["run"]).code == 0


def test_a_finished_thread_has_its_steps_and_is_gone_back_to(threads: Threads) -> None:
    run = threads.imported("ends").json["run"]
    assert threads.imported("ends").json["run"] != run  # it is copied, not moved
    shown = threads.run("show", run, "--json").json
    assert shown["status"] == "done"
    assert [step["node"] for step in threads.run("history", run, "--json").json["steps"]] == [
        "draft",
        "inner",
        "review",
    ]
    fork = threads.run("fork", run, "--at", "2", "--in-place", "--json").json["run"]
    (request,) = threads.run("resume", fork, "-o", "json").json["pending_approvals"]
    done = threads.run("resume", fork, "--answer", f"{request['id']}=no", "-o", "json")
    assert done.json["end"] == "About tea: Note new, no"


def test_what_cannot_be_imported_is_one_line(threads: Threads) -> None:
    def refused(thread: str, graph: str = "agent.py:graph", url: str = threads.url) -> str:
        done = threads.run("import", "--from", url, graph, thread)
        assert (done.code, done.out) == (2, ""), done
        (line,) = done.err.splitlines()
        return line.removeprefix("interlock: ")

    assert "No thread 'none'" in (line := refused("none")) and "The newest are: ends, asks" in line
    assert "stands before node 'inner'" in refused("asks", "agent.py:other")
    assert "isn't a LangGraph graph" in refused("asks", "turn")
    assert "No file 'gone.db'" in refused("asks", url="gone.db")
    assert "isn't a SqliteSaver database" in refused("asks", url="agent.py")
    assert "postgresql://me@127.0.0.1:1/x can't be read" in refused(
        "asks", url="postgresql://me:word@127.0.0.1:1/x"
    )
    assert "Which graph?" in refused("asks", graph="--json")
    assert threads.run("runs", "--json").json == []
    Path("agent.py").write_text(AGENT.replace("Note", "Remark"))
    assert "holds a __main__.Note" in refused("ends")


def test_the_graph_may_be_the_only_one_of_a_trusted_langgraph_json(threads: Threads) -> None:
    Path("langgraph.json").write_text(json.dumps({"graphs": {"mine": "./agent.py:graph"}}))
    for where in (("--from", threads.url, "asks"), ("asks", "--from", threads.url)):
        assert threads.run("import", *where, "--skip-trust", "--json").json["status"] == "waiting"


HIDDEN = """
import sys
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

class Cipher:
    def encrypt(self, plaintext):
        return "upside down", plaintext[::-1]

    def decrypt(self, ciphername, ciphertext):
        return ciphertext[::-1]

State = TypedDict("State", {"text": str, "end": str}, total=False)

def send(state):
    return Command(goto=Send("ask", {"text": state["text"] + " sent"}))

def ask(sent):
    return {"end": interrupt("go on?") + sent["text"]}

serde = EncryptedSerializer(Cipher())
builder = StateGraph(State).add_node("send", send, destinations=("ask",)).add_node(ask).add_edge(START, "send")
graph = builder.compile(InMemorySaver(serde=serde))

if __name__ == "__main__":
    with SqliteSaver.from_conn_string(sys.argv[1]) as saver:
        saver.serde = serde
        builder.compile(saver).invoke({"text": "a private text"}, {"configurable": {"thread_id": "hides"}})
"""


@pytest.mark.sqlite
def test_a_thread_that_its_serializer_hides_stays_hidden(run: Run, tmp_path: Path) -> None:
    Path("agent.py").write_text(HIDDEN)
    url = str(tmp_path / "threads.db")
    subprocess.run([sys.executable, "-P", "agent.py", url], check=True, capture_output=True)
    made = run("import", "--from", url, "agent.py:graph", "hides", "--json").json
    assert made["status"] == "waiting"
    stored = b"".join(file.read_bytes() for file in Path(os.environ["INTERLOCK_HOME"]).glob("interlock.db*"))
    assert stored and b"private" not in stored and b"etavirp" in stored
    done = run("resume", made["run"], "--answer", '1="It was: "', "-o", "json")
    assert done.json["end"] == "It was: a private text sent", done
