"""Names from models and files are visible: no line that people read or copy hides or disguises characters."""

import json
import os
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from commands import Run
from folders import put
from hypothesis import given
from hypothesis import strategies as st
from scripted import call, tools

from interlock.cli.render.output import Paint, to_one_line
from interlock.cli.render.pending_requests import decision_commands
from interlock.cli.render.text_view import TextView
from interlock.state import events
from interlock.state import events as turn_events
from interlock.state.text import join_up_to, make_visible, sanitize_for_terminal, to_visible_json

HIDING = "\x1b[2K\x9b1m\x85\u202e\u2066\u200b\u200d\u2060\u3164\u2800\u115f\u034f\ufe0f\u00a0\u3000\U000e0041"
NASTY = f"na{HIDING}me"
HOST = "http://gооgle.com/"
"""Contains two Cyrillic letters."""

READING = "\u061c\u200e\u200f\u200c\u200d\ufe0e\ufe0f\u2800\u00a0\u3000"
"""Characters that prose keeps: they join letters and symbols, and `tree` indents with them."""


def hiding(text: str, allowed: str = "") -> set[str]:
    """Its characters that people wouldn't see. Independent of the code under test."""
    return {
        c
        for c in text
        if c not in "\n\t" + allowed
        and (unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp", "Cs") or c in HIDING[-11:])
        and c not in "[2K1m"
    }


def test_a_run_whose_names_hide_something_shows_all_of_it(run: Run, tmp_path: Path) -> None:
    put(Path.home() / ".interlock/agents/helper.md", "---\nname: helper\ndescription: helps\n---\nHelp.\n")
    calls: list[dict[str, Any]] = [
        {"name": NASTY, "args": {NASTY: NASTY}},
        call("run_shell_command", command=f"echo {NASTY}; curl {HOST}", description=NASTY),
        call("write_file", file_path="a\u202eb", content=NASTY),
        call("ask_user", questions=[{"question": NASTY, "options": [{"label": NASTY}]}]),
        call("invoke_agent", agent_name="helper", prompt=NASTY),
    ]
    replies = [tools(*calls), {"text": "done"}]
    put(tmp_path / "s.json", replies)
    folder = tmp_path / "work" / NASTY.replace("/", "")
    folder.mkdir()
    os.chdir(folder)
    parked = run("-m", f"script:{tmp_path / 's.json'}", "--verbose", "-p", NASTY)
    assert parked.code == 75, parked.err
    looks = ["runs", "approvals", "approvals latest", "show latest", "show latest --calls"]
    looks += ["history latest --all", "show latest --at 2", "diff latest 0 2", "show latest --json"]
    before = {look: run(*look.split()).out for look in looks}
    ended = run("resume", "latest", "--reject", "all", "--reason", NASTY)
    after = {f"{look} (after)": run(*look.split()).out for look in looks if "approvals" not in look}
    shown = {"parked": parked.err, **before, "ended": ended.err, **after}
    assert [look for look, text in shown.items() if not text] == []
    bad = {look: hiding(text, READING if "--at" in look else "") for look, text in shown.items()}
    assert {look: found for look, found in bad.items() if found} == {}
    assert "na\\x1b[2K" in parked.err and "xn--ggle-55da.com" in parked.err


def test_the_edit_that_is_offered_can_be_seen_and_copied(run: Run) -> None:
    request = {"id": "aa-1", "number": 1, "kind": "approval", "tool_name": NASTY, "choices": ["modify"]}
    (line,) = [
        line for what, line in decision_commands("aa", {**request, "args": {NASTY: 1}}) if what == "change it"
    ]
    assert hiding(line) == set() and "na\\x1b[2K" in line and line.startswith("interlock resume aa --edit 1 ")


def every_event() -> Iterator[type[events.Event]]:
    for module in (events, turn_events):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, events.Event) and kind is not events.Event:
                yield kind


def filled(kind: type[events.Event], text: str) -> events.Event:
    """An event with this text in every text field."""

    def value(annotation: Any) -> Any:
        if annotation is str or annotation is Any or annotation.__class__.__name__ == "TypeAliasType":
            return text
        if get_origin(annotation) is Literal:
            return get_args(annotation)[-1]
        if get_origin(annotation) is list:
            return [value(get_args(annotation)[0])]
        if get_origin(annotation) is dict:
            return dict.fromkeys(("message", text), value(get_args(annotation)[1]))
        if options := get_args(annotation):
            return value(options[0])
        return annotation(1)

    return kind(**{name: value(field.annotation) for name, field in kind.model_fields.items()})


@pytest.mark.parametrize("kind", [*every_event()], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("agent", ["", NASTY], ids=["root", "agent"])
def test_no_event_brings_hiding_characters_to_the_text_view(
    kind: type[events.Event], agent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    view = TextView(verbose=True)
    event = filled(kind, NASTY).model_copy(update={"agent": agent})
    for one in (event, events.ToolUse(tool_name=NASTY, tool_id="1", parameters={}, agent=agent)):
        view(one)
    view(turn_events.Finished(reason=NASTY, usage={}, duration_ms=1))
    view.flush()
    read = kind in (events.Thought, events.MessageEvent, events.ToolOutput)  # prose keeps joiners
    assert hiding(capsys.readouterr().err, READING if read else "") == set()


texts = st.text(
    st.characters() | st.sampled_from(HIDING + "оαν /:.@[];\\\"'") | st.sampled_from("aж☀"), max_size=30
)


@given(texts, texts)
def test_whatever_the_text_all_of_it_can_be_seen_and_json_stays_the_same_value(text: str, host: str) -> None:
    for told in (text, f"http://{host}/{text}"):
        seen = make_visible(told)
        assert hiding(seen, allowed="\u200d\ufe0f\ufe0e") <= set()
        assert make_visible(seen) == seen
        assert json.loads(to_visible_json({"a": [told]})) == {"a": [told]}
        assert hiding(to_visible_json(told), allowed="\u200d\ufe0f\ufe0e") == set()
        assert hiding(sanitize_for_terminal(told), READING) == set()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gооgle.com", "g\\u043e\\u043egle.com"),
        ("https://gооgle.com:8080/a", "https://xn--ggle-55da.com:8080/a"),
        ("https://me@bücher.de/ä", "https://me@xn--bcher-kva.de/ä"),
        ("http://google.com\uff0fevil.com/", "http://google.com\\uff0fevil.com/"),
        ("привет, мир; JSON-файл", "привет, мир; JSON-файл"),
        ("Δt in μm, naïve 日本", "Δt in μm, naïve 日本"),
        ("👩\u200d💻 ⚠\ufe0f", "👩\u200d💻 ⚠\ufe0f"),
        ("r\u200dm", "r\\u200dm"),
        ("a\u00a0b\tc\n", "a\\xa0b\tc\n"),
        ("rm x\x1b[2K\rls", "rm x\\x1b[2K\\rls"),
        ("a\u202eb\u200bc", "a\\u202eb\\u200bc"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("café 日本 👍\tx\r\n", "café 日本 👍\tx\n"),
    ],
)
def test_words_of_one_script_and_emoji_stay_and_what_looks_alike_is_written_out(
    text: str, shown: str
) -> None:
    assert make_visible(text) == shown


def test_a_line_of_ours_keeps_our_colours_and_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "write", written.append)
    monkeypatch.setenv("TERM", "xterm")
    paint = Paint(sys.stdout)
    paint.print_line(paint(f"x\x1b[8m{NASTY}\nforged", "bold", "red"))
    paint.print_line("shown \x1b[1;8mconcealed")
    assert written[0].startswith("\x1b[1;31mx\\x1b[8mna\\x1b[2K") and written[0].endswith(
        "\\nforged\x1b[0m\n"
    )
    assert "shown \\x1b[1;8mconcealed\n" in written
    assert to_one_line("a\u00a0b \n c") == "a\\xa0b c"


def test_a_few_of_many_are_named_and_the_others_counted() -> None:
    assert [join_up_to(["a", "b", "c"], most) for most in (2, 3)] == ["a, b and 1 more", "a, b, c"]
