"""A choice allows exactly the later calls that its words name, and at most four stand first."""

from pathlib import Path
from typing import Any

import pytest
from agent_runs.stage import Stage
from scripted import says, shell, tools

from interlock.engine.client.answer_choices import answer_choices, choices_by_key
from interlock.engine.client.requests import make_decision


@pytest.mark.parametrize(
    ("first", "words", "allowed", "asked"),
    [
        (
            tools(shell("touch a")),
            "Yes, and don't ask again in this run for exactly `touch a`",
            tools(shell("touch a")),
            tools(shell("touch b")),
        ),
        (
            says("write_file", file_path="a.txt", content="1\n"),
            "Yes to all edits in this run",
            says("write_file", file_path="b.txt", content="2\n"),
            tools(shell("touch c")),
        ),
    ],
)
def test_the_choice_behind_a_names_what_it_allows_and_allows_no_more(
    tmp_path: Path, first: dict[str, Any], words: str, allowed: dict[str, Any], asked: dict[str, Any]
) -> None:
    stage = Stage(tmp_path, [first, allowed, asked, {"text": "Done."}])
    outcome = stage.run("main", {"prompt": "go"})
    (request,) = outcome.pending
    choice = choices_by_key(request)["a"]
    assert choice.label_with_scope == words
    assert len([way for way in answer_choices(request) if not way.is_extra]) <= 4
    outcome = stage.resume(outcome, make_decision(request, choice))
    (other,) = outcome.pending
    assert other["args"] == asked["tool_calls"][0]["args"], "the allowed call ran, and the other one asks"
