"""Questions are answered here, later, or elsewhere; what is being typed is no answer."""

import time
from pathlib import Path

import warm
from folders import put
from patience import until
from scripted import call, says, shell, tools
from session.terminal import Opens, Terminal, edit

from interlock.engine.read import list_runs

SEEN = tools(call("read_file", file_path="notes.txt"))


def elsewhere(terminal: Terminal, *arguments: str) -> str:
    """Run a command in another terminal."""
    done = warm.run(arguments, cwd=terminal.folder, env=terminal.env)
    return done.stdout + done.stderr


def test_words_a_command_or_a_paste_at_a_question_go_to_the_input_line_and_decide_nothing(
    folder: Path, opens: Opens
) -> None:
    with opens([edit(), {"text": "Written."}], rows=50) as terminal:
        terminal.say("write it", then="[n] No")
        for word in ("yes, ", "always ", "every ", "yacht"):
            terminal.type(word)  # its letters arrive together, however slow we are
            time.sleep(0.02)
        terminal.waits_for("› yes, always every yacht")
        time.sleep(0.5)
        terminal.waits_for("[n] No")
        assert not (folder / "notes.txt").exists()
        terminal.press("escape")
        terminal.waits_for("yacht", gone=True)
        terminal.type("/approvals", then="› /approvals")
        terminal.press("enter", then="interlock resume")
        terminal.waits_for("[?] more")
        terminal.paste("y")
        terminal.waits_for("› y")
        time.sleep(0.5)
        assert not (folder / "notes.txt").exists()
        terminal.press("escape")
        terminal.waits_for("› y", gone=True)
        terminal.press("down", "up", "enter", then="Written.")


def test_each_of_a_batch_is_asked_and_what_is_left_open_again_here_and_in_the_next_session(
    folder: Path, opens: Opens
) -> None:
    calls = [edit("1\n", "one.txt")["tool_calls"][0], edit("2\n", "two.txt")["tool_calls"][0]]
    with opens([tools(*calls), {"text": "Both."}]) as terminal:
        terminal.say("write two files", then="[i] Decide one by one")
        terminal.press("i", then="1 of 2")
        terminal.waits_for("[y] Yes")
        terminal.press("y", then="2 of 2")
        terminal.waits_for("[y] Yes")
        terminal.press("l", then="Left open")
        terminal.press("enter", then="[y] Yes")
        terminal.press("escape")
        terminal.waits_for("[?] more", gone=True)
        terminal.press("c-d")
        terminal.ends()
    (run,) = list_runs(folder.parent / "state")
    with opens(None, "-r", run.run) as terminal:
        terminal.waits_for("[y] Yes")
        terminal.waits_for("two.txt")
        terminal.press("y", then="Both.")
    assert (folder / "one.txt").exists() and (folder / "two.txt").exists()


def test_a_prompt_after_escape_goes_on_in_the_same_run_and_the_model_is_told(
    folder: Path, opens: Opens
) -> None:
    told = {"text": "As you wish.", "expect": "Cancelled before it ran(.|\n)*now another thing"}
    with opens([edit(), told]) as terminal:
        terminal.say("write it", then="[?] more")
        terminal.press("escape", then="Left open")
        terminal.say("now another thing", then="As you wish.")
    assert len(list_runs(folder.parent / "state")) == 1
    assert not (folder / "notes.txt").exists()


def test_saving_for_good_asks_once_more_and_shift_tab_changes_the_mode_meanwhile(
    folder: Path, opens: Opens
) -> None:
    with opens([edit(), {"text": "Written."}]) as terminal:
        terminal.say("write it", then="[?] more")
        terminal.press("s", then="[y] Yes, save this rule: don't ask again")
        time.sleep(0.5)
        terminal.press("enter", then="[?] more")  # the marked entry is "No, back"
        assert not (folder / "notes.txt").exists()
        terminal.press("s-tab", then="accepts edits")
        terminal.waits_for("[?] more")
        time.sleep(0.5)
        terminal.press("y", then="Written.")
        terminal.waits_for("accepts edits")
    assert not [*(folder.parent / ".interlock").rglob("*.toml")]


def test_all_edits_of_this_session_are_asked_about_no_more(folder: Path, opens: Opens) -> None:
    redirects = tools(shell("echo hi > three.txt"))
    replies = [edit(), edit("2\n", "two.txt"), redirects, {"text": "Both."}]
    with opens(replies, "--allowed-tools", "run_shell_command(echo)") as terminal:
        terminal.say("write two files", then="[a] Yes to all edits in this session")
        terminal.press("a", then="redirects input or output")
        time.sleep(0.5)
        terminal.press("n", then="Reason (optional)")
        terminal.press("enter", then="Both.")
        terminal.waits_for("– Run echo hi > three.txt · refused", anywhere=True)
        terminal.waits_for("accepts edits")
        assert (folder / "notes.txt").exists() and (folder / "two.txt").exists()
        time.sleep(1.5)
        terminal.say("/clear", then="A new conversation")
        (folder / "two.txt").unlink()
        terminal.say("once more", then="❯ once more")
        terminal.waits_for("two.txt", gone=False)
        until((folder / "two.txt").exists, "the second conversation's edit")
        terminal.waits_for("accepts edits")
        terminal.waits_for("redirects input or output")
        assert not (folder / "three.txt").exists()


def test_several_edits_are_decided_as_one_list_and_stopping_stops_them_all(
    folder: Path, opens: Opens
) -> None:
    calls = [edit("x\n", f"{n}.txt")["tool_calls"][0] for n in range(10)]
    with opens([tools(*calls), {"text": "All ten."}], rows=40) as terminal:
        terminal.say("write ten files", then="[y] Yes (all 10)")
        terminal.waits_for("10 edits")
        terminal.press("y", then="All ten.")
    assert len([*folder.glob("*.txt")]) == 10
    others = [edit("y\n", f"other{n}.txt")["tool_calls"][0] for n in range(10)]
    with opens([tools(*others), {"text": "Never."}], rows=40) as terminal:
        terminal.say("write ten others", then="[i] Decide one by one")
        terminal.press("i", then="1 of 10")
        terminal.press("?", then="[c] No, and stop the run")
        terminal.press("c", then="Cancelled")
        assert "2 of 10" not in "\n".join(terminal.scrollback)


def test_a_long_diff_is_shown_whole_in_a_pager_and_opens_in_the_difftool(folder: Path, opens: Opens) -> None:
    paged, compared = folder.parent / "paged", folder.parent / "compared"
    tool = f'[diff]\n\ttool = t\n[difftool "t"]\n\tcmd = cat $LOCAL $REMOTE > {compared}\n'
    (folder.parent / ".gitconfig").write_text(tool)
    (folder / "notes.txt").write_text("the first of all\nold\n")
    long = "the first of all\n" + "".join(f"line {n}\n" for n in range(500))
    with opens([SEEN, edit(long), {"text": "Written."}], rows=40, env={"PAGER": f"tee {paged}"}) as terminal:
        terminal.say("write it", then="v shows all")
        terminal.until("[o] difftool")
        terminal.waits_for("notes.txt (+")  # its headline is still there
        terminal.press("v")
        terminal.until("line 499")
        terminal.until("[o] difftool")
        assert "line 499" in paged.read_text(), "by the pager"
        time.sleep(0.5)
        terminal.press("o")
        until(lambda: compared.exists() and "line 499" in compared.read_text(), "the difftool")
        assert compared.read_text() == "the first of all\nold\n" + long
        terminal.until("[o] difftool")
        time.sleep(0.5)
        terminal.press("y", then="Written.")


def test_a_diff_has_colours_and_line_numbers_marks_words_and_fits_the_width(
    folder: Path, opens: Opens
) -> None:
    rest = "stays here and more and more, so that the line is wider than the terminal, by far"
    (folder / "notes.txt").write_text(f"one\nthe old word {rest}\nthree\n")
    with opens([SEEN, edit(f"one\nthe new word {rest}\nthree\n")], columns=60, rows=30) as terminal:
        terminal.say("write it", then="[?] more")
        screen = "\n".join(terminal.screen)
        assert "  1   one\n  2 - the old word" in screen and "  2 + the new word" in screen
        assert screen.count("by far") == 2, "long lines are wrapped, not cut"
        for word, colour in (("old", "red"), ("new", "green")):
            looks = terminal.looks_of(f"{word} word")
            assert {fg for fg, _, _ in looks} == {colour}
            assert [marked for _, _, marked in looks] == [True] * 3 + [False] * 5, "the word that changed"


def test_what_another_terminal_decides_or_asks_appears_and_what_came_of_it(
    folder: Path, opens: Opens
) -> None:
    answers = ("It is written.", "Anything else?", "Not here.", "Here.")
    with opens([edit(), *({"text": text} for text in answers)], rows=40) as terminal:
        terminal.say("write it", then="[y] Yes")
        assert "It is written." in elsewhere(terminal, "resume", "latest", "--approve", "all")
        terminal.waits_for("Decided in another terminal.")
        terminal.waits_for("It is written.")
        terminal.waits_for("[y] Yes", gone=True)
        terminal.say("thanks", then="Anything else?")
        assert "Not here." in elsewhere(terminal, "resume", "latest", "-p", "and elsewhere?")
        terminal.say("and here?", then="Here.")
        shown = "\n".join(terminal.scrollback)
        said = ("❯ thanks", "❯ and elsewhere?", "Not here.", "❯ and here?")
        assert [*map(shown.index, said)] == sorted(map(shown.index, said))
    assert (folder / "notes.txt").read_text() == "new\n"


def test_a_question_is_answered_by_arrows_a_number_or_words_and_several_in_one_form(opens: Opens) -> None:
    options = [{"label": "red", "description": "warm"}, {"label": "blue", "description": "cold"}]
    one = [{"question": "Which colour?", "header": "Colour", "type": "choice", "options": options}]
    sizes = [{"label": "small"}, {"label": "large"}]
    two = [
        {"question": "Which size?", "header": "size", "type": "choice", "options": sizes},
        {"question": "Which name?", "header": "name", "type": "text"},
    ]
    asks = [says("ask_user", questions=asked) for asked in (one, two)]
    with opens(
        [asks[0], {**asks[1], "expect": "blue"}, {"text": "So be it.", "expect": "large(.|\n)*Otto"}]
    ) as terminal:
        terminal.say("paint it", then="❯ 1. red  warm")
        terminal.press("down", then="❯ 2. blue  cold")
        terminal.press("enter", then="❯ 1. small")
        terminal.type("2")
        terminal.waits_for("❯ 2. large")
        terminal.press("enter", then="Question 2 of 2")
        terminal.press("escape", then="❯ 1. small")
        terminal.type("large", then="› large")
        terminal.press("enter", then="✓ 1. Which size?: large")
        terminal.type("Otto", then="› Otto")
        terminal.press("enter", then="So be it.")
        terminal.waits_for("✓ Which colour? · blue")
        terminal.waits_for("✓ Which size? large · Which name? Otto")


def test_what_a_sub_agent_wants_is_asked_in_its_name(folder: Path, opens: Opens) -> None:
    call = {"name": "invoke_agent", "args": {"agent_name": "generalist", "prompt": "Write notes.txt"}}
    done = {"name": "complete_task", "args": {"result": "written"}}
    agent = {"agent": "generalist:0.0"}
    replies = [tools(call), {**agent, **edit()}, {**agent, "tool_calls": [done]}, {"text": "Well done."}]
    with opens(replies, rows=40) as terminal:
        terminal.say("have it written", then="for sub-agent generalist:0.0")
        terminal.waits_for("[?] more")
        terminal.press("y", then="Well done.")
        terminal.waits_for_line("▪ generalist")
    assert (folder / "notes.txt").exists()


def test_what_is_being_typed_when_a_question_comes_is_no_answer_to_it(folder: Path, opens: Opens) -> None:
    with opens([{**edit(), "delay_s": 1}, {"text": "Written."}, {"text": "Next."}]) as terminal:
        terminal.say("write it")
        while [run.status for run in list_runs(folder.parent / "state")] != ["waiting"]:
            terminal.type("yyy")
            time.sleep(0.05)
        for _ in range(10):
            terminal.type("yyy")
            time.sleep(0.05)
        assert "[y] Yes" not in "\n".join(terminal.screen), "it waits until nobody types"
        terminal.waits_for("[y] Yes")
        assert not (folder / "notes.txt").exists()
        terminal.press("y", then="Written.")
        terminal.waits_for_line("› yyy")  # the draft is back


def test_the_editor_opens_the_text_that_will_be_written_and_changes_it(
    folder: Path, opens: Opens, tmp_path: Path
) -> None:
    editor = put(tmp_path / "editor.sh", '#!/bin/sh\n[ "$(cat "$1")" = new ] && echo changed > "$1"\n')
    with opens([edit(), {"text": "Written."}], env={"EDITOR": str(editor)}) as terminal:
        terminal.say("write it", then="[e] change it")
        terminal.press("e", then="Written.")
    assert (folder / "notes.txt").read_text() == "changed\n"


def test_a_key_stands_beside_what_it_does_however_narrow_the_terminal(opens: Opens) -> None:
    with opens([edit()], columns=47) as terminal:
        terminal.say("write notes.txt", then="[y] Yes")
        for key in ("[a] Yes to all edits in this session", "[n] No, and say why", "[v] view all"):
            terminal.waits_for(key)
        terminal.press("?", then="[s] Yes, and don't ask again")
        terminal.waits_for("[c] No, and stop the run")


def test_a_long_command_and_a_long_diff_share_one_screen_with_all_their_choices(
    folder: Path, opens: Opens
) -> None:
    line = "\n".join(f"python3 migrate.py --step {n}" for n in range(40))
    (folder / "notes.txt").write_text("".join(f"old {n}\n" for n in range(150)))
    long = edit("".join(f"new {n}\n" for n in range(150)))
    command = tools(call("run_shell_command", command=line, description="Migrate step by step"))
    with opens([command, SEEN, long, {"text": "Over."}]) as terminal:
        terminal.say("migrate", then="[?] more")
        screen = terminal.screen
        assert "Run this command" in screen[:3] and "  python3 migrate.py --step 9" in screen
        for text in (
            "more lines · v shows all",
            "The model says: Migrate step by step",
            "[y] Yes",
            "[n] No, and say why",
        ):
            terminal.waits_for(text)
        terminal.press("n", then="Reason (optional)")
        terminal.type("not today", then="› not today")
        terminal.press("enter", then="Edit notes.txt (+150 −150)")
        terminal.waits_for("[?] more")
        assert any(row.startswith("    1 - old 0") for row in terminal.screen)
        for text in (
            "286 more lines · v shows all",
            "[a] Yes to all edits in this session",
            "[n] No, and say why",
        ):
            terminal.waits_for(text)
        time.sleep(0.5)
        terminal.press("y", then="✓ Edit notes.txt · accepted (+150 −150)")
        terminal.waits_for("Over.")
        shown = "\n".join(terminal.scrollback)
        assert "– Run python3 migrate.py" in shown and "· refused: not today" in shown
        assert "✗" not in shown and "new 100" not in shown, (
            "a refusal is no failure, and an answer is one line"
        )
