"""Arguments of `resume` become one checked decision per request."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from folders import put

from interlock.cli.catalog import build_parser
from interlock.cli.decisions import build_decisions
from interlock.engine.options import Decision
from interlock.state.errors import InputError, UserError

TYPED: dict[str, dict[str, Any]] = yaml.load(
    Path(__file__).with_name("decisions.yaml").read_text(), yaml.CSafeLoader
)


def _request(number: int, kind: str = "approval", **changes: Any) -> dict[str, Any]:
    choices = ["proceed_once", "proceed_always", "modify", "reject", "cancel"]
    return {
        "id": f"aa11-2.{number}",
        "number": number,
        "kind": kind,
        "tool_name": "run_shell_command",
        "args": {"command": "git push", "dir_path": "sub"},
        "reason": "commands ask",
        "preview": "git push",
        "choices": choices if kind == "approval" else ["proceed_once", "reject"],
        "questions": [],
        "parameters": ["command", "description", "dir_path", "timeout"],
        **changes,
    }


_OPTIONS = [{"question": "Which?", "options": [{"label": "terse"}, {"label": "verbose"}]}]
_WAITING = [
    _request(1),
    _request(2),
    _request(3, "question", questions=_OPTIONS),
    _request(4, "outcome"),
    _request(5, choices=["proceed_once", "reject"]),
]
_PAST = dict.fromkeys(("7", "aa11-1.1"), "Request 7 (glob) was approved at 09:12 by ann")


def _for(number: int, choice: str, **more: Any) -> Decision:
    return Decision(f"aa11-2.{number}", choice, **more)


def _decide(*typed: str) -> list[Decision]:
    return build_decisions(build_parser("resume").parse(["aa11", *typed]).decisions, _WAITING, _PAST)


@pytest.mark.parametrize("typed", TYPED["decided"])
def test_what_is_typed_becomes_decisions(typed: str) -> None:
    expected = [_for(number, choice, **dict(*more)) for number, choice, *more in TYPED["decided"][typed]]
    assert _decide(*shlex.split(typed)) == expected


@pytest.mark.parametrize("typed", TYPED["refused"])
def test_a_wrong_decision_is_refused_before_anything_is_written(typed: str) -> None:
    with pytest.raises(UserError, match=TYPED["refused"][typed]):
        _decide(*shlex.split(typed))


def test_edited_arguments_come_from_a_file_and_errors_name_the_place(tmp_path: Path) -> None:
    file = put(tmp_path / "args.json", {"command": "a\nb"})
    assert _decide("--edit", f"1=@{file}")[0].args == {"command": "a\nb", "dir_path": "sub"}
    with pytest.raises(InputError, match=r"--edit 1 is not JSON: .* line 1, column 13"):
        _decide("--edit", '1={"command": }')


def test_nothing_is_approved_by_all_when_only_questions_wait() -> None:
    typed = build_parser("resume").parse(["aa11", "--approve", "all"]).decisions
    with pytest.raises(UserError, match="no approval waits"):
        build_decisions(typed, _WAITING[2:4])


def test_one_answer_is_for_all_questions_that_ask_the_same_and_for_no_others() -> None:
    typed = build_parser("resume").parse(["aa11", "--answer", "all=2"]).decisions
    alike = [_request(number, "question", questions=_OPTIONS) for number in (1, 2)]
    answers = [Decision(f"aa11-2.{number}", "proceed_once", text="verbose") for number in (1, 2)]
    assert [replace(made, door="") for made in build_decisions(typed, [*alike, _request(3)])] == answers
    other = _request(3, "question", questions=[{"question": "How many?"}])
    with pytest.raises(UserError, match=r"each needs its own\. Name one: aa11-2\.1, aa11-2\.2, aa11-2\.3"):
        build_decisions(typed, [*alike, other])


def test_the_editor_gets_the_arguments_and_its_result_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    editor = put(
        tmp_path / "editor",
        f'#!/bin/sh\ncp "$1" {seen}\nsed -i \'s/git push/git status/; s/"dir_path": "sub"/"timeout": 5/\' "$1"\n',
    )
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert _decide("--edit", "1")[0].args == {"command": "git status", "dir_path": "sub"}
    assert seen.read_text() == "git push\n", (
        "the one text among the arguments is edited as it is, not as JSON"
    )
    two_texts = _request(1, args={"command": "git push", "line": "2", "dir_path": "sub"}, parameters=[])
    typed = build_parser("resume").parse(["aa11", "--edit", "1"]).decisions
    (made,) = build_decisions(typed, [two_texts])
    assert made.args == {"command": "git status", "line": "2", "timeout": 5}
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(UserError, match="nothing was decided"):
        _decide("--edit", "1")
    monkeypatch.setenv("VISUAL", "no-such-editor")
    with pytest.raises(UserError, match="can't start the editor"):
        _decide("--edit", "1")
