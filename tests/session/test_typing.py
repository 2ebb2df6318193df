"""Typing in a terminal: long pastes, several lines, files, history, an editor."""

from pathlib import Path

from folders import put, tree
from patience import until
from scripted import shell, tools
from session.terminal import FROM_NOTHING, Opens

from interlock.engine.read import list_runs
from interlock.engine.store.chain import read_messages_up_to
from interlock.engine.store.checkpoints import read_state_at_step


def sent(folder: Path) -> list[str]:
    """The person's messages in the newest run's conversation."""
    home = folder.parent / "state"
    run = list_runs(home)[0].run
    messages = read_messages_up_to(home, run, read_state_at_step(home, run)["head"])
    return [m.text for m in messages if m.role == "user" and m.origin == "person"]


def test_what_is_pasted_typed_in_lines_completed_or_edited_is_sent_as_it_stands(
    folder: Path, opens: Opens
) -> None:
    editor = put(folder.parent / "editor", "#!/bin/sh\nprintf ' and more\\nfrom there' >> \"$1\"\n")
    put(folder / "src/deep/my notes.txt", "secret of the notes")
    text = "\n".join(f"line {n} ünïcode 語" for n in range(5_000))
    with opens([{"text": f"Answer {n}."} for n in range(5)], env={"EDITOR": str(editor)}) as terminal:
        terminal.waits_for("›")
        terminal.type("what is this? ")
        terminal.paste(text)
        terminal.waits_for("[pasted 5,000 lines #1]")
        terminal.type(" thanks", then="thanks")
        terminal.press("enter", then="Answer 0.")
        terminal.paste("x" * 3000)
        terminal.waits_for("[pasted 3,000 characters #2]")
        terminal.press("backspace")
        terminal.waits_for("characters", gone=True)
        terminal.paste("folded\nnever")
        terminal.waits_for("never")
        terminal.press("enter", then="Answer 1.")
        terminal.type("one")
        terminal.press("a-enter")
        terminal.type("two\\")
        terminal.press("enter")
        terminal.type("three")
        terminal.press("c-j")
        terminal.type("four\x1b[13;2ufive\x1b[27;2;13~six", then="six")
        terminal.press("enter", then="Answer 2.")
        terminal.type("read @dnotes", then="src/deep/my notes.txt")
        terminal.press("tab", then='read @"src/deep/my notes.txt"')
        terminal.press("enter", "enter", then="Answer 3.")
        terminal.type("some text", then="some text")
        terminal.press("c-x", "c-e", then="from there")
        terminal.press("enter", then="Answer 4.")
    assert sent(folder) == [
        f"what is this? {text} thanks",
        "folded\nnever",
        "one\ntwo\nthree\nfour\nfive\nsix",
        'read @"src/deep/my notes.txt"',
        "some text and more\nfrom there",
    ]


def test_what_interlock_name_takes_is_offered_behind_its_slash_as_in_a_shell(opens: Opens) -> None:
    with opens([{"text": "Hm."}], rows=40) as terminal:
        terminal.waits_for("›")
        terminal.type("/memory ", then="refresh")
        terminal.press("escape", "escape")
        terminal.say("hello", then="Hm.")
        terminal.type("/show --", then="--dropped")


def test_what_was_typed_comes_back_in_the_next_session_by_arrow_and_by_search(
    folder: Path, opens: Opens
) -> None:
    with opens([{"text": "A."}, {"text": "B."}]) as terminal:
        terminal.say("the first one", then="A.")
        terminal.say("the second", then="B.")
    with opens([{"text": "C."}]) as terminal:
        terminal.waits_for("›")
        terminal.press("up", then="› the second")
        terminal.press("c-c")
        terminal.waits_for("› the second", gone=True)
        terminal.press("c-r")
        terminal.type("first", then="› the first one")
        terminal.press("enter", "enter", then="C.")
    assert sent(folder) == ["the first one"]


def test_a_users_commands_skills_and_a_unique_beginning_are_called_by_a_slash(
    folder: Path, opens: Opens
) -> None:
    own = folder.parent / ".interlock"
    tree(
        own,
        {
            "commands/git/told.toml": 'description = "Say it"\nprompt = "Told: {{args}}"',
            "skills/weaving/SKILL.md": "---\nname: weaving\ndescription: How to weave.\n---\nWeave.\n",
        },
    )
    with opens([{"text": "One."}, {"text": "Two."}], rows=60) as terminal:
        terminal.waits_for("›")
        terminal.type("/git", then="Say it")
        terminal.type(":told loud")
        terminal.press("enter", then="One.")
        terminal.type("/wea a basket")
        terminal.press("enter", then="Two.")
        terminal.type("/hel\r", then="/git:told  Say it")
    told, woven = sent(folder)
    assert told == "Told: loud" and woven.endswith("\nWeave.\n\nThe user typed: /weaving a basket")


def test_what_is_typed_before_the_prompt_stands_is_sent_in_its_turn(folder: Path, opens: Opens) -> None:
    replies = [{"text": f"{answer}."} for answer in ("One", "Two", "Three", "Four")]
    with opens(replies, "first", command=FROM_NOTHING) as terminal:
        terminal.type("second\r")  # while the terminal echoes it and turns its Enter into a newline
        terminal.types_ahead("third\r")
        terminal.waits_for("Three.")
        assert not terminal.echoes
        terminal.press("c-d")
        assert terminal.ends() == 0
        assert terminal.restored
    assert sent(folder) == ["first", "second", "third"]
    with opens(None, "-c") as terminal:
        terminal.type("fourth\r", then="Four.")
    assert sent(folder) == ["first", "second", "third", "fourth"]


def test_escape_stops_what_is_under_way_and_twice_clears_the_line(opens: Opens) -> None:
    replies = [tools(shell("sleep 60"))]
    with opens(replies, "--yolo") as terminal:
        terminal.say("sleep long", then="● ")
        terminal.press("escape", then="It stopped midway")
        terminal.type("never mind", then="› never mind")
        terminal.press("escape", "escape")
        terminal.waits_for("› never mind", gone=True)
        terminal.press("up", then="› never mind")


def test_everything_fits_in_40_columns(folder: Path, opens: Opens) -> None:
    (folder / "a file with a rather long name in it.txt").write_text("x")
    with opens([{"text": "Narrow."}], "--approval-mode", "auto_edit", columns=40, rows=30) as terminal:
        terminal.waits_for("›")
        terminal.type("look at @rather", then="rather long")
        terminal.press("tab")
        terminal.press("enter", "enter", then="Narrow.")
        terminal.waits_for("accepts edits")
        for line, shown in (
            ("/help", "$EDITOR"),
            ("/model", "  flash-lite  "),
            ("/mcp", "No MCP servers"),
            ("/stats", "1 request,"),
        ):
            terminal.type(f"{line}\r")
            terminal.waits_for(shown)
            if line == "/model":
                terminal.press("escape")
                terminal.waits_for(shown, gone=True)
        footer = "accepts edits · replies.json · 100% left"
        until(lambda: terminal.screen[-1] == footer, "the footer, whole")
