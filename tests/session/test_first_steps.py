"""test_first_steps: a prompt, its answer, an edit with approval, one more prompt, and out again."""

from pathlib import Path

from session.terminal import Opens, edit


def test_a_prompt_is_answered_an_edit_is_asked_and_the_next_prompt_goes_on_in_the_same_run(
    folder: Path, opens: Opens
) -> None:
    replies = [edit(), {"text": "It is written."}, {"text": "You are welcome.", "expect": "thanks"}]
    with opens(replies) as terminal:
        terminal.say("write notes.txt", then="[y] yes")
        assert not (folder / "notes.txt").exists()
        terminal.press("y", then="It is written.")
        assert (folder / "notes.txt").read_text() == "new\n"
        terminal.say("thanks a lot", then="You are welcome.")
        terminal.press("c-d")
        assert terminal.ends() == 0
        assert "Go on with: interlock -r " in "\n".join(terminal.screen)


def test_a_key_stands_beside_what_it_does_however_narrow_the_terminal(opens: Opens) -> None:
    with opens([edit()], columns=47) as terminal:
        terminal.say("write notes.txt", then="[y] yes")
        for key in ("[s] always and save it", "[n] no, and why", "[c] stop the run", "[l] later"):
            terminal.waits_for(key)
