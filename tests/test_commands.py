"""Custom commands: how their text expands, and that their shell commands are decided like any call."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from folders import put
from hypothesis import given
from hypothesis import strategies as st
from places import Place
from scripted import call, tools

from interlock.engine import Decision, Outcome, resume_sync, run_sync
from interlock.engine.diagrams import declared_edges, taken_edges
from interlock.engine.read import list_step_rows
from interlock.engine.read.run_path import build_run_path
from interlock.services.context.commands import load_commands
from interlock.services.context.definition_files import Folders
from interlock.state.command import (
    MOST_PIECES,
    fill_template,
    list_shell_lines,
    split_slash_command,
    split_template,
)
from interlock.state.context import CustomCommand, Dialect

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

ALLOWED = {"tools": {"allowed": ["run_shell_command(echo)"]}, "model": {"skipNextSpeakerCheck": True}}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "place")
    command(place, "plain", "Look at {{args}} twice.")
    command(place, "bare", "Say hello.")
    command(place, "git/told", "Output: !{echo {{args}}}\nFile: @{a.txt}\nOdd: !{echo '{'}")
    return place


def command(place: Place, name: str, prompt: str, base: str = "user/.gemini") -> None:
    put(
        place.folder / base / "commands" / f"{name}.toml",
        f"prompt = '''{prompt}'''\ndescription = 'does it'\n",
    )


def play(place: Place, prompt: str, *choices: str, **options: Any) -> tuple[Outcome, list[Any]]:
    script = put(place.folder / "script.json", [{"text": "done"}] * 3)
    told: list[Any] = []
    options = {"model": f"script:{script}", "overrides": ALLOWED, **options}
    given = place.options(None, **options)
    outcome = run_sync("main", {"prompt": prompt}, options=given, renderers=[told.append])
    for choice in choices:
        assert outcome.status == "waiting", outcome
        decisions = [Decision(outcome.pending[0]["id"], choice)]
        outcome = resume_sync(outcome.run, decisions=decisions, options=given, renderers=[told.append])
    return outcome, told


def asked(outcome: Outcome) -> str:
    """The prompt as the model gets it."""
    content = next(m for m in outcome.output["history"] if m.get("origin") == "person")["content"]
    return content if isinstance(content, str) else "".join(p["text"] for p in content)


def test_arguments_stand_where_the_text_wants_them_or_behind_it(place: Place) -> None:
    assert asked(play(place, "/plain the tests")[0]) == "Look at the tests twice."
    assert asked(play(place, "/bare")[0]) == "Say hello."
    assert asked(play(place, "/bare to Ann")[0]) == "Say hello.\n\nThe user typed: /bare to Ann"


def test_shell_lines_and_files_are_put_in_and_not_looked_at_again(place: Place) -> None:
    (place.work / "a.txt").write_text("!{touch bad} @{b.txt} {{args}}")
    text = asked(play(place, "/git:told it's; touch bad")[0])
    assert "Output: it's; touch bad\n" in text
    assert "!{touch bad} @{b.txt} {{args}}" in text
    assert not (place.work / "bad").exists()
    assert "Odd: !{echo '{'}" in text


def test_what_rules_or_people_refuse_is_not_run_and_says_so(place: Place) -> None:
    command(place, "bad", "Now: !{touch bad}")
    outcome, _ = play(place, "/bad", overrides={**ALLOWED, "tools": {"exclude": ["run_shell_command"]}})
    assert "Now: " in asked(outcome) and "denied" in asked(outcome).lower()
    assert (outcome.exit_code, outcome.output["response"]) == (56, "done")
    outcome, _ = play(place, "/bad", "reject")
    assert "Now: " in asked(outcome) and "reject" in asked(outcome).lower()
    assert (outcome.exit_code, (outcome.error or {})["type"]) == (56, "refused")
    outcome, _ = play(place, "/bad", "cancel")
    assert (outcome.status, (place.work / "bad").exists()) == ("cancelled", False)
    outcome, _ = play(place, "/bad", "proceed_once")
    assert (outcome.status, (place.work / "bad").exists()) == ("done", True)


def test_every_edge_of_a_command_is_taken(place: Place) -> None:
    command(place, "ask", "Now: !{touch bad}")
    taken: set[tuple[str, str, str]] = set()
    for prompt, choices in (
        ("/bare", ()),
        ("/ask", ("proceed_once",)),
        ("/ask", ("cancel",)),
        ("go", ()),
        ("/no", ()),
    ):
        outcome, _ = play(place, prompt, *choices)
        rows = list_step_rows(place.folder / "home", outcome.run)
        taken |= taken_edges("main", build_run_path(rows, "done"))
    declared = {e for e in declared_edges("main") if e[0] == "command" or "command" in e[1:]}
    assert declared - taken == set()


def test_a_projects_commands_count_only_where_it_is_trusted(place: Place) -> None:
    command(place, "bare", "Say what the project says.", "work/.gemini")
    assert asked(play(place, "/bare")[0]) == "Say hello."
    assert asked(play(place, "/bare", skip_trust=True)[0]) == "Say what the project says."


@pytest.mark.parametrize(
    "prompt",
    [
        "/etc/hosts holds what?",
        "/tmp/ is full",
        "//",
        "/* why? */",
        "/",
        "/ a",
        "/.bashrc",
        "/^a$/ fails",
        " /no",
    ],
)
def test_what_has_no_commands_form_is_a_prompt(place: Place, prompt: str) -> None:
    outcome, told = play(place, prompt)
    assert (outcome.status, asked(outcome)) == ("done", prompt)
    assert [e.message for e in told if e.type == "error"] == []


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("prompt", "code", "says"),
    [
        ("/plan the tests", 42, "No command '/plan'. Did you mean 'plain'?"),
        ("/git:tol\nx", 42, "No command '/git:tol'. Did you mean 'git:told'?"),
        ("/etc is full", 42, "To send this as a prompt, begin it with another word."),
        ("/odd now", 42, "odd.toml was ignored: "),
        ("/theirs", 55, "theirs.toml was ignored: the folder isn't trusted (interlock trust)."),
    ],
)
def test_an_unknown_or_broken_command_is_an_error_that_a_resume_mends(
    place: Place, prompt: str, code: int, says: str
) -> None:
    (place.folder / "user/.gemini/commands/odd.toml").write_text("prompt = ")
    command(place, "theirs", "Say this.", "work/.gemini")
    outcome, _ = play(place, prompt)
    message = (outcome.error or {})["message"]
    assert (outcome.exit_code, outcome.output["history"]) == (code, [])
    assert says in message and "\n" not in message
    options = place.options(None, model=f"script:{place.folder / 'script.json'}", overrides=ALLOWED)
    command(place, prompt[1:].split()[0].replace(":", "/"), "It is there.")
    more = None if code == 42 else "go on"
    assert asked(resume_sync(outcome.run, prompt=more, options=options)).startswith(more or "It is there.")


def test_a_skill_is_called_by_its_name(place: Place) -> None:
    put(
        place.folder / "user/.gemini/skills/review/SKILL.md",
        "---\nname: review\ndescription: how we review\n---\nRead it twice.",
    )
    (place.work / "a.txt").write_text("the file")
    text = asked(play(place, "/review @a.txt")[0])
    folder = place.folder / "user/.gemini/skills/review"
    assert text.startswith(
        f"The user calls the skill `review`, whose files are in {folder}. Follow its instructions:\n"
    )
    assert (
        "\nRead it twice.\n\nThe user typed: /review @a.txt" in text and "--- a.txt ---\n\nthe file" in text
    )


def test_names_of_a_skills_files_are_no_part_of_its_text(place: Place) -> None:
    folder = place.folder / "user/.claude/skills/review"
    put(folder / "SKILL.md", "---\ndescription: how we review\n---\nRead it twice.")
    put(folder / "!`touch bad` @a.txt $ARGUMENTS.md", "")
    (place.work / "a.txt").write_text("the file")
    text = asked(play(place, "/review it")[0])
    assert "!`touch bad` @a.txt $ARGUMENTS.md]" in text and "the file" not in text
    assert "The user typed: /review it" in text and not (place.work / "bad").exists()


def test_a_skill_of_too_many_shell_lines_is_no_command(place: Place) -> None:
    put(place.folder / "user/.claude/skills/many/SKILL.md", "!`x`\n" * (MOST_PIECES + 1))
    assert play(place, "/many")[0].exit_code == 42


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("prompt = ", "Invalid value"),
        ("prompt = 1", "'prompt' is 1"),
        ("x = 1", "expected the text"),
        (
            f"prompt = '{'!{x}' * 60 + '@{y}' * 41}'",
            "it inserts 101 shell lines and files, expected at most 100",
        ),
        ("\0", ""),
    ],
)
def test_a_file_that_is_no_command_is_one_line_and_the_others_work(
    place: Place, text: str, says: str
) -> None:
    file = put(place.folder / "user/.gemini/commands/odd.toml", text)
    found = load_commands(Folders(place.work, place.folder / "user", False), {})
    problem = found.broken["odd"]
    assert {*found.usable} == {"plain", "bare", "git:told"}
    assert problem.startswith(f"{file} was ignored: ") and says in problem and "\n" not in problem
    outcome, told = play(place, "/bare")
    assert asked(outcome) == "Say hello."
    assert [e.message for e in told if e.type == "error"] == [problem]


def test_a_text_is_cut_at_its_marks_and_arguments_are_one_word_of_a_shell() -> None:
    assert [(p.kind, p.text) for p in split_template("a !{b {c} d} @{e} !{f")] == [
        ("text", "a "),
        ("shell", "b {c} d"),
        ("text", " "),
        ("file", "e"),
        ("text", " !{f"),
    ]
    long = "!{" * 100_000 + "}"  # by the square of its length it would take an hour
    assert [(p.kind, len(p.text)) for p in split_template(long)] == [("text", 199_998), ("shell", 0)]
    hostile = CustomCommand(name="x", prompt="${input:" * 30_000, source="x.md", dialect="copilot")
    assert fill_template(hostile, "").pieces[0].text == hostile.prompt  # by the cube, two minutes
    command = CustomCommand(name="x", prompt="!{echo {{args}}}", source="x.toml")
    assert [p.text for p in fill_template(command, "a'b; c").pieces] == ["echo 'a'\"'\"'b; c'"]
    assert [split_slash_command(p) for p in ("/a b c", "/a\nb", "a /b", "/")] == [
        ("a", "b c"),
        ("a", "b"),
        ("", ""),
        ("", ""),
    ]


AS_EACH_PROGRAM_READS_IT = [
    (
        ".claude/commands/ui/fix.md",
        "Fix $0, then $1: $ARGUMENTS.",
        "/ui:fix 'a b' c",
        "Fix a b, then c: 'a b' c.",
    ),
    (
        ".claude/commands/ui/fix.md",
        "Fix $1 and \\$0.",
        "/fix one",
        "Fix $1 and $0.\n\nThe user typed: /ui:fix one",
    ),
    (".claude/commands/a.md", "---\narguments: [who]\n---\nAsk $who.", "/a Ann", "Ask Ann."),
    (
        ".claude/commands/a.md",
        "See @a.txt, @scope/pkg, me@a.txt.",
        "/a",
        "See @a.txt, @scope/pkg, me@a.txt.{file}",
    ),
    (".claude/commands/a.md", "Said: !`echo hi $0`\n```!\necho ho\n```", "/a 'x;y'", "Said: hi x;y\nho"),
    (".claude/commands/a.md", "Said:\r\n```!\r\necho hi\r\necho ho\r\n```\r\n", "/a", "Said:\nhi\nho"),
    (".claude/commands/a.md", f"Pay ${'9' * 5000}.", "/a", f"Pay ${'9' * 5000}."),
    (".opencode/command/a.md", "Fix $1, then $2.", "/a one two three", "Fix one, then two three."),
    (".github/prompts/new form.prompt.md", "In ${input:name:which}.", "/new-form my form", "In my form."),
    (".cursor/commands/a.md", "Do $1.", "/a it", "Do $1.\n\nThe user typed: /a it"),
    (".clinerules/workflows/a.md", "Do it.", "/a.md", "Do it."),
    (".roo/commands/a.md", "---\ndescription: Formats. Usage: /a\nmode: nothing\n---\nDo.", "/a", "Do."),
]


@pytest.mark.parametrize(("file", "text", "typed", "prompt"), AS_EACH_PROGRAM_READS_IT)
def test_a_command_of_another_program_works_as_in_that_program(
    place: Place, file: str, text: str, typed: str, prompt: str
) -> None:
    put(place.work / file, text)
    (place.work / "a.txt").write_text("the file")
    outcome, told = play(place, typed, skip_trust=True)
    text, _, file_part = asked(outcome).partition("\n\nThe program put these files here")
    assert text == prompt.removesuffix("{file}") and ("the file" in file_part) == prompt.endswith("{file}")
    wanted = ["/a asks for mode 'nothing', but no mode has this name. It runs without it."]
    assert [e.message for e in told if e.type == "error"] == (wanted if ".roo" in file else [])


def test_a_command_attaches_as_many_of_the_files_that_it_mentions_as_it_may_insert(place: Place) -> None:
    names = [f"f{number}.txt" for number in range(MOST_PIECES + 1)]
    for name in names:
        (place.work / name).write_text(f"text of {name}")
    put(place.folder / "user/.claude/commands/a.md", " ".join(f"@{name}" for name in names))
    text = asked(play(place, "/a")[0])
    assert f"text of {names[-2]}" in text and f"text of {names[-1]}" not in text


def test_codex_prompts_of_the_user_take_names_and_numbers(place: Place) -> None:
    put(place.folder / "user/.codex/prompts/a.md", "Fix $1 for $WHO at $$5.")
    assert asked(play(place, "/prompts:a it WHO='Ann B'")[0]) == "Fix it for Ann B at $5."


def test_a_command_that_has_begun_stays_as_its_file_was(place: Place) -> None:
    file = put(place.work / ".claude/commands/a.md", "Now: !`touch made`\nOf before.")
    outcome, _ = play(place, "/a", skip_trust=True)
    file.write_text("Of after: !`touch bad`")
    options = place.options(
        None, model=f"script:{place.folder / 'script.json'}", overrides=ALLOWED, skip_trust=True
    )
    decisions = [Decision(outcome.pending[0]["id"], "proceed_once")]
    text = asked(resume_sync(outcome.run, decisions=decisions, options=options))
    assert text.endswith("\nOf before.") and not (place.work / "bad").exists()


def test_a_commands_mode_restricts_and_never_widens(place: Place) -> None:
    put(place.work / ".roo/commands/a.md", "---\nmode: ask\n---\nDo it.")
    edit = tools(call("write_file", file_path="b", content="x"))
    file = put(place.folder / "edits.json", [edit, {"text": "done"}])
    options = {"model": f"script:{file}", "skip_trust": True, "approval_mode": "yolo"}
    play(place, "/a", **options)
    assert not (place.work / "b").exists()
    other, told = play(place, "/a", mode="code", **options)
    assert (place.work / "b").exists(), other
    assert [e.message for e in told if e.type == "error"] == [
        "/a asks for mode 'ask', but this run is in mode 'code'. It runs without it."
    ]


DIALECTS: list[Dialect] = ["gemini", "claude", "codex", "opencode", "copilot", "plain"]
_TEXT = st.text(st.sampled_from("a1 $@!{}`\n\\'\";ARGUMENTS[]:input()*"), max_size=60)


@given(template=_TEXT, args=_TEXT, dialect=st.sampled_from(DIALECTS))
def test_arguments_never_become_commands_or_files_whatever_they_are(
    template: str, args: str, dialect: Dialect
) -> None:
    command = CustomCommand(name="x", prompt=template, source="x", dialect=dialect, argument_names=("a",))
    plain = fill_template(command, "")
    filled = fill_template(command, args)
    assert [p.kind for p in filled.pieces] == [p.kind for p in plain.pieces]
    whole = "".join(p.text for p in split_template(template, dialect) if p.kind == "text")
    assert len(whole) <= len(template)
    for piece, line in zip(filled.pieces, list_shell_lines(template, dialect), strict=False):
        if piece.kind == "shell" and dialect == "gemini":
            assert piece.text == line.replace("{{args}}", shlex.quote(args))


@given(words=st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=4))
def test_an_argument_is_one_word_of_a_shell_line(words: list[str]) -> None:
    args = shlex.join(words)
    for dialect, slots in (("claude", "$0 $ARGUMENTS"), ("opencode", "$1 $ARGUMENTS")):
        command = CustomCommand(name="x", prompt=f"!`echo {slots}`", source="x", dialect=dialect)
        (piece,) = fill_template(command, args).pieces
        first = words[:1] if dialect == "claude" else words
        assert shlex.split(piece.text) == ["echo", *first, *words]
