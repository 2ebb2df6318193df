"""A conversation of `main` that is compressed on request, between two prompts."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from agent_runs.stage import Stage

from interlock.cli.main import main
from interlock.engine import Outcome, resume_sync, run_sync
from interlock.engine.store.chain import list_dropped_messages
from interlock.state.errors import UserError

LONG = [
    {"text": f"answer {n} " + " ".join(f"Line {n}{m} is as it was." for m in range(150))} for n in range(4)
]
SNAPSHOT = "<state_snapshot><overall_goal>ship it</overall_goal></state_snapshot>"
CHECKED = [{"role": "compressor", "text": SNAPSHOT}] * 2


def talked(stage: Stage) -> Outcome:
    outcome = run_sync("main", {"prompt": "question 0"}, options=stage.options)
    for number in range(1, 4):
        outcome = resume_sync(outcome.run, prompt=f"question {number}", options=stage.options)
    return outcome


def compressed(stage: Stage, run: str) -> Outcome:
    return resume_sync(run, options=replace(stage.options, compress=True))


def test_it_is_compressed_and_the_next_prompt_goes_on_with_the_summary(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", [*LONG, *CHECKED, {"text": "Well."}])
    before = talked(stage)
    after = compressed(stage, before.run)
    assert (after.status, after.output["response"]) == ("done", before.output["response"])
    told = [json.dumps(m["content"]) for m in after.output["history"] if m.get("origin") == "snapshot"]
    assert len(told) == 1 and "ship it" in told[0]
    assert len(after.output["history"]) < len(before.output["history"])
    assert any(
        "question 0" in m.text for part in list_dropped_messages(stage.options.home, after.run) for m in part
    )
    further = resume_sync(after.run, prompt="well?", options=stage.options)
    assert further.output["response"] == "Well."
    assert further.output["history"][: len(after.output["history"])] == after.output["history"]
    assert {("main", "open_prompt", "compress"), ("main", "compress", "finish")} <= stage.edges(after)


def test_it_is_no_prompt_and_other_workflows_have_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "stage", LONG)
    run = run_sync("main", {"prompt": "hello"}, options=stage.options).run
    with pytest.raises(UserError, match="only `main` is, and without a prompt"):
        resume_sync(run, prompt="more", options=replace(stage.options, compress=True))
    done = [{"tool_calls": [{"name": "attempt_completion", "args": {"result": "Done."}}]}]
    other = Stage(tmp_path / "task", done)
    task = run_sync("task", {"prompt": "hello"}, options=other.options).run
    with pytest.raises(UserError, match="only `main` is, and without a prompt"):
        compressed(other, task)


def test_the_command_line_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = Stage(tmp_path / "stage", [*LONG, *CHECKED])
    run = talked(stage).run
    monkeypatch.setenv("INTERLOCK_HOME", str(stage.options.home))
    assert main(["resume", run, "--compress"]) == 0
    assert "ompress" in capsys.readouterr().err
    assert list_dropped_messages(stage.options.home, run)


def test_neither_a_full_window_nor_an_output_as_large_ends_a_run(tmp_path: Path) -> None:
    """The model gives no summary, and its window takes neither what was said nor the whole of the file."""
    read = {"tool_calls": [{"name": "read_file", "args": {"file_path": "big.txt"}}]}
    long = {"text": "\n".join(f"{n} is a line of an answer that goes on" for n in range(400))}
    silent = [{"role": "compressor", "text": ""}] * 6
    folder = tmp_path / "stage"
    window = {"models": {"script": {"contextWindow": 16_000}}}
    stage = Stage(folder, [long, long, read, {"text": "read"}, *silent], settings=window)
    (stage.work / "big.txt").write_text("\n".join(f"{n} is a line of a long file" for n in range(1_900)))
    outcome = run_sync("main", {"prompt": "keep the API"}, options=stage.options)
    for prompt in ("more", "read big.txt"):
        outcome = resume_sync(outcome.run, prompt=prompt, options=stage.options)
    assert (outcome.status, outcome.output["response"]) == ("done", "read")
    told = json.dumps(outcome.output["history"])
    assert "there is no summary" in told and "- keep the API" in told
    assert "read it in parts" in told and "n7 is a line of a long file" not in told
