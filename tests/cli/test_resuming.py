"""What a resumed run gets from the command line and where it works: piped prompts, and its own folder."""

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put
from scripted import says

from interlock.engine.store import Store, resolve_state_directory
from interlock.engine.store.runs import read_options
from interlock.engine.working_folder import use_working_folder

GRAPH = """
import pathlib
from typing import TypedDict
from langgraph.graph import START, StateGraph
from langgraph.types import interrupt

AT_LOAD = pathlib.Path("made_at_load.txt")
AT_LOAD.touch()

class State(TypedDict, total=False):
    said: str

def ask(state):
    pathlib.Path("asked.txt").touch()
    said = interrupt("go on?")
    pathlib.Path("answered.txt").write_text(said)
    return {"said": said}

graph = StateGraph(State).add_node("ask", ask).add_edge(START, "ask").compile()
"""
MADE = ["answered.txt", "asked.txt", "made_at_load.txt"]


@pytest.fixture
def replies(tmp_path: Path) -> tuple[str, str]:
    script = [{"text": f"answer {name}"} for name in ("one", "two", "three", "four")]
    return ("-m", f"script:{put(tmp_path / 'replies.json', script)}")


def _prompts(run: Run, name: str = "latest") -> list[str]:
    messages = json.loads(run("export", name, "--format", "json").out)["messages"]
    said = [m["content"] for m in messages if m["role"] == "user"]
    texts = [text if isinstance(text, str) else text[-1]["text"] for text in said]
    return texts[-2:]


@pytest.mark.parametrize("how", [("-c",), ("-r", "latest"), ("resume", "latest"), ("-c", "-p", "-")])
def test_text_piped_to_a_finished_conversation_is_its_next_prompt(
    run: Run, replies: tuple[str, str], how: tuple[str, ...]
) -> None:
    run("-p", "what is 2+2", *replies)
    again = run(*how, *replies, stdin="and 3+3\n")
    assert (again.code, again.out) == (0, "answer two\n"), again
    assert _prompts(run) == ["what is 2+2", "and 3+3"]


def test_text_piped_beside_words_comes_before_them(run: Run, replies: tuple[str, str]) -> None:
    run("-p", "begin", *replies)
    run("-c", "-p", "review this", *replies, stdin="some diff")
    assert _prompts(run)[-1] == "some diff\n\nreview this"
    run("resume", "latest", "-p", "and this", *replies, stdin="another")
    assert _prompts(run)[-1] == "another\n\nand this"


def test_nothing_piped_still_resumes_without_a_prompt(run: Run, replies: tuple[str, str]) -> None:
    run("-p", "begin", *replies)
    assert run("-c", *replies).out == "answer one\n" and _prompts(run)[-1] == "begin"
    empty = run("-c", "-p", "-", *replies)
    assert empty.code == 42 and "stdin is empty" in empty.err


def test_a_decision_leaves_stdin_alone_unless_a_dash_asks_for_it(run: Run, tmp_path: Path) -> None:
    agent = f"{put(tmp_path / 'agent.py', GRAPH)}:graph"
    parked = run("run", agent, "--skip-trust")
    assert parked.code == 75, parked
    done = run("resume", "latest", "--answer", "1=yes", "--skip-trust", stdin="the next id of a loop")
    assert done.code == 0 and Path("answered.txt").read_text() == "yes", done

    script = [says("write_file", file_path="a", content="1"), {"text": "wrote it"}, {"text": "answered"}]
    model = ("-m", f"script:{put(tmp_path / 'writes.json', script)}")
    assert run("-p", "write", *model).code == 75
    more = run("resume", "latest", "--approve", "1", "-p", "-", *model, stdin="now explain")
    assert (more.code, more.out) == (0, "answered\n") and _prompts(run)[-1] == "now explain"


def test_piped_text_never_answers_a_request(run: Run, tmp_path: Path) -> None:
    agent = f"{put(tmp_path / 'agent.py', GRAPH)}:graph"
    run("run", agent, "--skip-trust")
    left = run("resume", "latest", "--skip-trust", stdin="yes\n")
    assert left.code != 0 and not Path("answered.txt").exists(), left
    assert run("approvals", "--json").json[0]["kind"] == "question"


@pytest.mark.parametrize("form", ["file", "declared"])
def test_a_graph_works_in_its_runs_folder_whoever_resumes_it_from_where(
    run: Run, tmp_path: Path, form: str
) -> None:
    own = Path.cwd()
    if form == "file":
        agent = f"{put(tmp_path / 'agent.py', GRAPH)}:graph"
    else:
        agent = put(own / ".interlock/workflows/asks.py", f"{GRAPH}\nWORKFLOW = graph\n").stem
    name = run("run", agent, "--skip-trust", "-o", "json").json["session_id"]
    other = tmp_path / "other"
    other.mkdir()
    os.chdir(other)
    done = run("resume", name, "--answer", "1=yes", "--skip-trust")
    assert done.code == 0, done
    assert sorted(p.name for p in own.glob("*.txt")) == MADE and not [*other.iterdir()]
    assert Path.cwd() == other


def test_a_run_in_another_folder_works_there(run: Run, tmp_path: Path) -> None:
    put(tmp_path / "agent.py", GRAPH)
    here, there = Path.cwd(), tmp_path / "there"
    there.mkdir()
    run("run", "../agent.py:graph", "-C", str(there), "--skip-trust")
    run("resume", "latest", "-C", str(there), "--answer", "1=yes", "--skip-trust")
    assert sorted(p.name for p in there.iterdir()) == MADE and not [*here.iterdir()]


def test_a_process_stays_in_the_folder_that_another_of_its_runs_works_in(tmp_path: Path) -> None:
    before, first, second = Path.cwd(), tmp_path / "first", tmp_path / "second"
    first.mkdir(), second.mkdir()
    with (
        use_working_folder(first) as inside,
        use_working_folder(second) as also,
        use_working_folder(first) as again,
    ):
        assert (inside, also, again) == (True, False, True) and Path.cwd() == first
    assert Path.cwd() == before
    with use_working_folder(tmp_path / "nowhere") as inside:
        assert not inside and Path.cwd() == before


def test_a_process_returns_to_its_own_folder_when_the_last_run_ends(tmp_path: Path) -> None:
    before, entered, leave = Path.cwd(), threading.Event(), threading.Event()

    def drive() -> None:
        with use_working_folder(tmp_path):
            entered.set()
            leave.wait(30)

    other = threading.Thread(target=drive)
    with use_working_folder(tmp_path):
        other.start()
        assert entered.wait(30)
    assert Path.cwd() == tmp_path
    leave.set()
    other.join()
    assert Path.cwd() == before


@pytest.mark.parametrize("granted", [True, False], ids=["all edits were allowed", "the mode was chosen"])
def test_all_edits_allowed_by_a_person_cover_no_shell_line_with_a_redirection(
    run: Run, tmp_path: Path, granted: bool
) -> None:
    script = [
        says("write_file", file_path="a.txt", content="a\n"),
        says("write_file", file_path="b.txt", content="b\n"),
        says("run_shell_command", command="echo hi > c.txt"),
        {"text": "done"},
    ]
    model = ("-m", f"script:{put(tmp_path / 'edits.json', script)}")
    mode = () if granted else ("--approval-mode", "auto_edit")
    begun = run("-p", "write", *model, "--allowed-tools", "run_shell_command(echo)", *mode)
    if not granted:
        assert begun.code == 0, begun
        return
    assert not Path("a.txt").exists()
    parked = run("resume", "latest", "--approve", "all", "--always-edits")
    assert Path("b.txt").exists() and not Path("c.txt").exists()
    assert (
        parked.code == begun.code
        and "redirects input or output, which “all edits” doesn't allow" in parked.err
    ), parked


def test_a_mode_chosen_while_a_prompt_is_under_way_counts_from_the_next_one(run: Run, tmp_path: Path) -> None:
    """And a fork of a step before doesn't have it."""

    def redirects(name: str) -> dict[str, Any]:
        return says("run_shell_command", command=f"echo hi > {name}")

    edit, done = says("write_file", file_path="a.txt", content="a\n"), {"text": "done"}
    script = [edit, redirects("c.txt"), done, redirects("d.txt"), done]
    model = ("-m", f"script:{put(tmp_path / 'modes.json', script)}")
    run("-p", "write", *model, "--allowed-tools", "run_shell_command(echo)")
    (name,) = (row["run"] for row in run("runs", "--json").json)
    chosen = run("resume", name, "--approve", "all", "--always-edits", "--approval-mode", "auto_edit")
    assert chosen.err.count("'auto_edit' counts from the next prompt") == 1, chosen.err
    assert "which “all edits” doesn't allow" in chosen.err and not Path("c.txt").exists()
    step = run("show", name, "--json").json["step"]
    assert run("resume", name, "--approve", "all").code == 0
    again = run("resume", name, "-p", "more")
    assert again.code == 0 and Path("d.txt").exists(), again.err
    assert run("replay", name, "--json").json["divergence"] is None
    forked = run("fork", name, "--at", str(step + 1), "--json").json
    with Store(resolve_state_directory()).create_or_migrate().write_transaction() as conn:
        kept = read_options(conn, forked["run"])
        assert (kept["approval_mode"], kept["next_asked"]) == ("default", {})
