"""Arguments of `resume` become one checked decision per request."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from folders import put

from interlock.cli.commands.work import resume_parser as parser
from interlock.cli.decisions import decisions_from
from interlock.engine.options import Decision
from interlock.state.errors import InputError, UserError


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
    return decisions_from(parser().parse(["aa11", *typed]).decisions, _WAITING, _PAST)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("--approve aa11-2.1", [_for(1, "proceed_once")]),
        ("--approve 1", [_for(1, "proceed_once")]),
        ("--approve 1 --always", [_for(1, "proceed_always")]),
        ("--approve all", [_for(n, "proceed_once") for n in (1, 2, 5)]),
        ("--reject 1", [_for(1, "reject")]),
        ("--reject 1 --reason no", [_for(1, "reject", feedback="no")]),
        (
            "--reject 1 --reason a --reject 2 --reason b",
            [_for(1, "reject", feedback="a"), _for(2, "reject", feedback="b")],
        ),
        ("--reject all --reason stop", [_for(n, "reject", feedback="stop") for n in (1, 2, 5)]),
        ("--reject 3 --reason 'no idea'", [_for(3, "reject", feedback="no idea")]),
        ("--cancel 2", [_for(2, "cancel")]),
        ("--answer '3=as you like = fine'", [_for(3, "proceed_once", text="as you like = fine")]),
        ("--answer 3=2", [_for(3, "proceed_once", text="verbose")]),
        ("--answer 3=7", [_for(3, "proceed_once", text="7")]),
        ("--answer 4=redo", [_for(4, "proceed_once", text="redo")]),
        ("--answer 4=skip", [_for(4, "reject", text="skip")]),
        (
            '--edit \'1={"command": "git status"}\'',
            [_for(1, "modify", args={"command": "git status", "dir_path": "sub"})],
        ),
        ("--edit '1={\"dir_path\": null}'", [_for(1, "modify", args={"command": "git push"})]),
        (
            '--approve 1 --edit \'2={"command": "x"}\' --reject 5',
            [
                _for(1, "proceed_once"),
                _for(2, "modify", args={"command": "x", "dir_path": "sub"}),
                _for(5, "reject"),
            ],
        ),
        ("", []),
    ],
)
def test_what_is_typed_becomes_decisions(typed: str, expected: list[Decision]) -> None:
    assert _decide(*shlex.split(typed)) == expected


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("--approve 9", r"No request '9' waits. What waits: 1 \(aa11-2.1\), 2"),
        ("--approve aa11-2.11", "Did you mean 'aa11-2.1'"),
        ("--approve 2.1", "No request '2.1' waits"),
        ("--reject 7", r"Request 7 .glob. was approved at 09:12 by ann. What waits: 1 \(aa11-2.1\), 2"),
        ("--approve aa11-1.1", "was approved at 09:12 by ann. What waits"),
        (
            '--edit \'1={"comand": "ls"}\'',
            "no argument 'comand'. Did you mean 'command'. It takes comm.*dir_path",
        ),
        ("--edit '1={\"comand\": null}'", "no argument 'comand'"),
        ("--approve 1 --reject 1", "decided twice"),
        ("--approve all --reject 2", "decided twice"),
        ("--approve 3", "asks for an answer, not for a permission: --answer aa11-2.3=…"),
        ("--approve 4", "asks for an answer"),
        ("--answer 1=yes", "asks for a permission: --approve aa11-2.1"),
        ("--answer 3", "--answer needs a text"),
        ("--answer 3=", "--answer needs a text"),
        ("--answer 4=yes", "expected redo"),
        ("--answer all=yes", "each needs its own"),
        ("--edit all={}", "each needs its own"),
        ("--edit 5={}", "takes proceed_once, reject"),
        ("--approve 5 --always", "--always: request 'aa11-2.5' takes proceed_once, reject"),
        ("--always", "belongs after --approve ID"),
        ("--reject 1 --always", "belongs after --approve ID"),
        ("--reason x", "belongs after --reject ID"),
        ("--approve 1 --reason x", "belongs after --reject ID"),
        ("--approve 1=yes", "takes an id alone"),
        ("--edit 1", "no terminal to edit in"),
    ],
)
def test_a_wrong_decision_is_refused_before_anything_is_written(typed: str, expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        _decide(*shlex.split(typed))


def test_edited_arguments_come_from_a_file_and_errors_name_the_place(tmp_path: Path) -> None:
    file = put(tmp_path / "args.json", {"command": "a\nb"})
    assert _decide("--edit", f"1=@{file}")[0].args == {"command": "a\nb", "dir_path": "sub"}
    with pytest.raises(InputError, match=r"--edit 1 is not JSON: .* line 1, column 13"):
        _decide("--edit", '1={"command": }')


def test_nothing_is_approved_by_all_when_only_questions_wait() -> None:
    typed = parser().parse(["aa11", "--approve", "all"]).decisions
    with pytest.raises(UserError, match="no approval waits"):
        decisions_from(typed, _WAITING[2:4])


def test_the_editor_gets_the_arguments_and_its_result_replaces_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = put(
        tmp_path / "editor",
        '#!/bin/sh\nsed -i \'s/git push/git status/; s/"dir_path": "sub"/"timeout": 5/\' "$1"\n',
    )
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    assert _decide("--edit", "1")[0].args == {"command": "git status", "timeout": 5}
    monkeypatch.setenv("VISUAL", "false")
    with pytest.raises(UserError, match="nothing was decided"):
        _decide("--edit", "1")
    monkeypatch.setenv("VISUAL", "no-such-editor")
    with pytest.raises(UserError, match="can't start the editor"):
        _decide("--edit", "1")
