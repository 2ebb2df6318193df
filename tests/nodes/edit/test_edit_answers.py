"""A helper's answer is JSON matching its schema, or nothing; an error kept in a checkpoint is short."""

import json

import pytest

from interlock.nodes.edit import edit_error, shorten_around_old_string
from interlock.nodes.helper_model import parse_json_as
from interlock.state.edit import FixAnswer, TargetAnswer

GOOD = {"search": "a", "replace": "b", "explanation": "c"}


@pytest.mark.parametrize(
    "text", [json.dumps(GOOD), f"```json\n{json.dumps(GOOD)}\n```", f"  {json.dumps(GOOD)}\n"]
)
def test_an_answer_is_read_also_out_of_a_code_fence(text: str) -> None:
    answer = parse_json_as(text, FixAnswer)
    assert answer is not None
    assert (answer.search, answer.replace, answer.noChangesRequired) == ("a", "b", False)


@pytest.mark.parametrize(
    "text", ["", " ", "{}", "null", '{"search": "a", "repl', '{"search": 1}', "no changes needed"]
)
def test_blank_cut_off_and_other_answers_are_none(text: str) -> None:
    assert parse_json_as(text, FixAnswer) is None
    assert parse_json_as(text, TargetAnswer) is None
    assert parse_json_as('{"corrected_target_snippet": ""}', TargetAnswer) is None


def test_of_a_long_text_a_helper_is_shown_what_is_around_the_likely_place() -> None:
    lines = [f"line number {number} of the text" for number in range(20_000)]
    shown = shorten_around_old_string("\n".join(lines), "line numbr 9000 of the text")
    assert len(shown) < 130_000
    assert "line number 9000 of the text" in shown
    assert shorten_around_old_string("short", "x") == "short"
    assert len(edit_error("no_occurrence", "x" * 100_000)["message"]) == 2_000, "in a checkpoint"
