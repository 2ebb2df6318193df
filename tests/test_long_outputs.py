"""Long outputs and long conversations inside `main`: shortened, masked, compressed, and nothing lost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Replies, Stage, answers, approve
from folders import put
from scripted import call, says, tools
from test_compress import compressor, snapshot

from interlock.engine import Outcome
from interlock.engine.store import Store, retention, select_rows
from interlock.engine.store.chain import list_dropped_messages
from interlock.engine.store.checkpoints import read_state_at_step
from interlock.engine.store.integrity import find_damaged_records
from interlock.engine.store.retention import remove_run_and_report_refused_paths
from interlock.services.files.filesystem import OutputFiles, store_content

DONE = {"text": "done"}
SEQ = call("run_shell_command", command="seq 1 5000")
"""23,893 characters: above a summary's 2,000 tokens, below what the tool itself cuts."""


def shell(command: str) -> dict[str, Any]:
    return says("run_shell_command", command=command)


def drive(stage: Stage, *replies: dict[str, Any]) -> Outcome:
    stage.write([*replies])
    return stage.run("main", {"prompt": "go"}, approval_mode="yolo")


def test_a_long_shell_output_is_summarised_and_the_whole_can_be_read(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "s", [])
    replies: Replies = [tools(SEQ), DONE, {"role": "summarizer", "text": "5,000 numbers, 1 to 5000."}]
    outcome = drive(stage, *replies)
    (told,) = answers(outcome)
    assert "5,000 numbers" in told and "\n2500\n" not in told
    path = re.search(r"in (/\S+\.txt): read it with read_file", told)
    assert path
    whole = Path(path[1]).read_text()
    assert whole.startswith("Output:\n1\n2\n") and "\n2500\n" in whole and whole.rstrip().endswith("\n5000")
    ((result, file),) = select_rows(stage.folder / "home", "select result, result_file from journal")
    kept = (stage.folder / "home" / "outputs" / file).read_text() if file else result
    assert "\n2500\n" in json.loads(kept)["content"], "the journal keeps what the model wasn't sent"
    # Check that the sentence's promise works, and no more than that.
    reading = call("read_file", file_path=path[1], start_line=2500, end_line=2502)
    found = call("grep_search", dir_path=path[1], pattern="^4321$")
    writing = call("write_file", file_path=path[1], content="gone")
    followed = drive(stage, tools(reading, found, writing), DONE)
    read, grepped, written = answers(followed)
    assert "2500" in read and "4321" in grepped
    assert "outside" in written and Path(path[1]).read_text() == whole, "outputs are never written"


def test_a_tools_output_may_be_left_alone_by_settings(tmp_path: Path) -> None:
    off = {"summarizeToolOutput": {"run_shell_command": {"how": "off"}}}
    whole = drive(Stage(tmp_path / "s", [], {"model": off}), shell("seq 1 5000"), DONE)
    assert "\n2500\n" in answers(whole)[0]


def test_masking_moves_older_outputs_to_files_when_it_frees_enough(tmp_path: Path) -> None:
    """Six outputs of 20,000 tokens: two stay, the newest is unseen; the earlier chain still exists."""
    stage = Stage(tmp_path / "s", [])
    for i in range(6):
        (stage.work / f"{i}.txt").write_text("\n".join(f"{i} {'x' * 40}" for _ in range(1850)))
    reads = [says("read_file", file_path=f"{i}.txt") for i in range(6)]
    outcome = drive(stage, *reads, DONE)
    told = answers(outcome)
    masked = [t.startswith("<tool_output_masked>") for t in told]
    assert masked == [True, True, True, False, False, False] or masked == [
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    for text in told[:3]:
        path = re.search(r"moved to (/\S+\.txt): read it", text)
        assert path and "x" * 40 in Path(path[1]).read_text()
    gone = list_dropped_messages(stage.folder / "home", outcome.run)
    assert sum(len(part) for part in gone) >= 3
    assert all(not m.text.startswith("<tool_output_masked>") for part in gone for m in part)
    assert list(find_damaged_records(stage.folder / "home", outcome.run)) == []


TODOS = call(
    "write_todos",
    todos=[
        {"description": "understand the bug", "status": "completed"},
        {"description": "write <the> & fix", "status": "in_progress"},
    ],
)


def test_after_twenty_compressions_rules_todos_and_open_approvals_are_there(tmp_path: Path) -> None:
    """The window is so small that every second turn compresses; each time the model gets all of it."""
    stage = Stage(tmp_path / "s", [], {"model": {"compressionThreshold": 0.001}})
    (stage.work / "GEMINI.md").write_text("RULE: tabs, not spaces & <never> push.\n")
    replies: Replies = [tools(TODOS)]
    for i in range(60):
        listed = tools(
            call("read_file", file_path="a.txt", start_line=1, end_line=1 + i),
            text=" ".join(f"step {i}, word {j}" for j in range(40)),
        )
        grown = int(1_200 * 1.11**i)  # what doesn't grow isn't compressed again
        replies.append({**listed, "usage": {"input": grown, "output": 1}})
    replies += [shell("/bin/echo wait"), DONE]
    replies += [compressor(snapshot(f"goal {i // 2}")) for i in range(200)]
    put(stage.work / "a.txt", "one\ntwo\n")
    stage.write(replies)
    outcome = stage.run("main", {"prompt": "please fix it"}, skip_trust=True)
    assert outcome.status == "waiting", outcome.error
    home = stage.folder / "home"
    assert len(list_dropped_messages(home, outcome.run)) >= 20, "compressions in a row"
    # The approval is pending; this is the conversation as the next request will send it:
    messages = sent(home, outcome.run)
    assert messages[0].role == "system" and len(messages[0].text) > 1000
    assert "RULE: tabs, not spaces & <never> push." in messages[1].text
    (told,) = (m for m in messages if m.origin == "snapshot")  # the earlier ones are merged into it
    assert "- [completed] understand the bug\n- [in_progress] write <the> & fix" in told.text
    assert [m.text for m in messages].count("please fix it") <= 1
    assert [p["tool_name"] for p in outcome.pending] == ["run_shell_command"]
    assert list(find_damaged_records(home, outcome.run)) == []
    first = list_dropped_messages(home, outcome.run)[0]
    assert any(m.text == "please fix it" for m in first) or any(m.text == "please fix it" for m in messages)
    ended = stage.resume(outcome, *approve(outcome))
    assert ended.status == "done", ended.error


def sent(home: Path, run: str) -> list[Any]:
    from interlock.engine.store.chain import read_messages_up_to

    return read_messages_up_to(home, run, str(read_state_at_step(home, run)["head"]))


@pytest.mark.sqlite
def test_a_store_of_an_earlier_version_lists_what_its_runs_name_when_the_first_is_removed(
    tmp_path: Path,
) -> None:
    stage, home = Stage(tmp_path / "s", []), tmp_path / "s" / "home"
    replies: Replies = [shell("seq 1 5000"), DONE, {"role": "summarizer", "text": "numbers"}]
    first, second = (drive(stage, *replies).run for _ in range(2))
    listed = sorted(map(tuple, select_rows(home, "select name, run from named_files")))
    assert {run for _, run in listed} == {"", first, second}
    with Store(home).write_transaction() as conn:
        conn.execute_raw("delete from named_files")
    files = {path.name for path in OutputFiles(home).directory.iterdir()}
    remove_run_and_report_refused_paths(home, first)
    assert {path.name for path in OutputFiles(home).directory.iterdir()} <= files
    now = sorted(map(tuple, select_rows(home, "select name, run from named_files")))
    assert now == [one for one in listed if one[1] != first]
    assert {name for name, _ in now} - {""} == {path.name for path in OutputFiles(home).directory.iterdir()}
    remove_run_and_report_refused_paths(home, second)
    assert [*OutputFiles(home).directory.iterdir()] == []


def test_files_of_long_outputs_go_with_the_last_run_that_names_them_or_has_begun_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, home = Stage(tmp_path / "s", []), tmp_path / "s" / "home"
    replies: Replies = [shell("seq 1 5000"), DONE, {"role": "summarizer", "text": "numbers"}]
    first, second = (drive(stage, *replies).run for _ in range(2))
    outputs = OutputFiles(home)

    def kept() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in outputs.directory.glob("*.txt")}

    before = kept()
    assert before, "the whole output"
    remove_run_and_report_refused_paths(home, first)
    assert kept() == before
    remove = retention.remove_file_if_older_than

    def meanwhile(path: Path, since: float) -> None:
        """Another run stores the same bytes; its row comes later."""
        if path in before:
            store_content(outputs.directory, path.name, before[path])
        remove(path, since)

    with monkeypatch.context() as patch:
        patch.setattr(retention, "remove_file_if_older_than", meanwhile)
        remove_run_and_report_refused_paths(home, second)
    assert kept() == before
    remove_run_and_report_refused_paths(home, drive(stage, *replies).run)
    assert [*outputs.directory.iterdir()] == []
