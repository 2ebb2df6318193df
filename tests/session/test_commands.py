"""Each command of the session, in a terminal."""

import json
import os
from pathlib import Path

from folders import put
from patience import until
from scripted import says
from session.terminal import HELD, Opens, edit


def test_what_there_is_is_listed_and_what_isnt_gets_a_hint(folder: Path, opens: Opens) -> None:
    commands = folder.parent / ".gemini/commands"
    put(commands / "odd.toml", "prompt = ")
    with opens([], rows=100) as terminal:
        terminal.waits_for("›")
        terminal.sends("/help", "/model [NAME]", "Show or choose the model", "Shift-Tab", "Edit the line")
        terminal.sends("/help undo", "/restore")
        terminal.sends("/nothing", "No command '/nothing'.", "/help")
        terminal.sends("/odd", "Command '/odd' can't be used", "Invalid value")
        terminal.sends("/chat save one", "Every conversation is saved already.", "/resume")
        terminal.sends("/mcp login docs", "Sign in with: ")
        terminal.sends("/config", "Settings are in ~/.interlock/settings.json")
        terminal.sends("/loop 5m check it", "Let workers start runs at")  # not /loops
        terminal.sends("/compact the tests", "/compress takes no argument, and 'the tests' was given.")
        terminal.sends("/permissions", "Rules are in ~/.interlock/policies")
        terminal.sends("/mdoel", "Did you mean 'model'")
        terminal.sends("/m", "It could be /model, /mode, /mcp, /memory.")
        terminal.sends("/tools", "run_shell_command", "execute")


def test_looking_at_a_run(folder: Path, opens: Opens) -> None:
    with opens([edit(), {"text": "It is written."}], "--approval-mode", "auto_edit", rows=50) as terminal:
        terminal.waits_for("›")
        terminal.sends("/diff", "Nothing has run yet")
        terminal.say("write notes.txt", then="It is written.")
        terminal.sends("/diff", "+new")
        terminal.sends("/show", "path    open_prompt")
        terminal.sends("/history", "open_prompt")
        terminal.sends("/stats", "2 requests")
        terminal.sends("/copy", "Sent 14 characters")
        terminal.sends("/export out.md", "Exported run")
        assert "It is written." in (folder / "out.md").read_text()
        terminal.sends("/runs", "write notes.txt")
        terminal.sends("/runs --json", '"title": "write notes.txt"')
        terminal.sends("/undo", "Undoing the last change (write_file notes.txt)", "D notes.txt")
        assert not (folder / "notes.txt").exists()
        terminal.sends("/undo", "Nothing to undo")


def test_looking_at_the_folder(opens: Opens) -> None:
    with opens([], rows=50) as terminal:
        terminal.waits_for("›")
        terminal.sends("/memory", "No memory file applies", "add 'what to remember'")
        terminal.sends("/memory nosuch", "Expected: /memory show, add or refresh")
        terminal.sends("/memory add 'Tests run with make'", "Added:")
        terminal.sends("/memory", "Tests run with make")
        terminal.sends("/memory add --global don't use tabs, won't you", "/.gemini/GEMINI.md")
        terminal.sends("/memory", "- don't use tabs, won't you")
        terminal.sends("/mcp", "No MCP servers configured here.")
        terminal.sends("/agents", "codebase_investigator")
        terminal.sends("/hooks", "No hooks")
        terminal.sends("/approvals", "No open requests in any run.")
        terminal.sends('/policy check read_file \'{"file_path": "x"}\'', "allow")


def test_what_counts_for_a_session_that_was_told_to_trust_is_listed_in_it(folder: Path, opens: Opens) -> None:
    hook = {"hooks": [{"type": "command", "command": "true", "name": "check-it"}]}
    server = {"no-such-server": {"command": "/no/such"}}
    settings = {"hooks": {"BeforeAgent": [hook]}, "mcpServers": server}
    put(folder / ".interlock/settings.json", json.dumps(settings))
    put(folder / ".interlock/agents/looker.md", "---\nname: looker\ndescription: Looks.\n---\nLook.\n")
    with opens([], "--skip-trust", rows=50) as terminal:
        terminal.waits_for("›")
        terminal.sends("/hooks", "check-it")
        terminal.sends("/agents", "looker")
        terminal.sends("/mcp", "no-such-server")
        assert "isn't trusted" not in terminal.text


def test_modes_models_and_looks_are_chosen(folder: Path, opens: Opens) -> None:
    with opens([{"text": "Hello."}], rows=40) as terminal:
        terminal.waits_for("›")
        terminal.press("s-tab", then="accepts edits")
        terminal.press("s-tab", then="plan mode")
        terminal.press("s-tab")
        terminal.waits_for("plan mode", gone=True)
        terminal.sends("/approval-mode yolo", "yolo is only for sessions that are started with it")
        terminal.sends("/plan", "writes a plan that you approve")
        terminal.sends("/mode", "Which mode of work?", "architect")
        terminal.type("debu")
        terminal.press("enter", then="debug mode")
        terminal.sends("/theme dark", "Theme dark; kept")
        terminal.sends("/theme nosuch", "There are default, dark")
        terminal.sends("/vim", "vi keys are on")
        terminal.press("escape")
        terminal.type("i/vim")
        terminal.press("enter", then="vi keys are off")
        kept = json.loads((folder.parent / ".interlock/settings.json").read_text())
        assert kept == {"ui": {"theme": "dark"}, "general": {"vimMode": False}}
        terminal.sends("/model nosuchmodel", "No model 'nosuchmodel'")
        terminal.sends("/model", "Which model?", "flash-lite")
        terminal.type("flash-l")
        terminal.press("enter")
        terminal.waits_for("Which model?", gone=True)
        terminal.waits_for("No API key for model 'gemini-3.5-flash-lite'")
        (folder / "other.json").write_text('[{"text": "Another one answers."}]')
        terminal.sends("/model script:other.json", "other.json ·")
        terminal.press("s-tab")  # out of plan mode
        terminal.waits_for("plan mode", gone=True)
        terminal.sends("/mode code", "mode code")


def test_doctor_says_what_it_finds_also_where_much_is_wrong(folder: Path, opens: Opens) -> None:
    """Nothing waits for a word that only some machines show: here there is no sandbox, and the store is open."""
    put(folder / "bwrap", "#!/bin/sh\necho 'bwrap: no' >&2; exit 1\n")
    state = folder.parent / "state"
    with opens(
        [{"text": "Hello."}], columns=200, rows=20, env={"PATH": f"{folder}:{os.environ['PATH']}"}
    ) as terminal:
        terminal.say("hello")
        terminal.waits_for("Hello.")
        state.chmod(0o755)
        terminal.sends("/doctor")
        for text in (
            "packages",
            "Bubblewrap can't make a sandbox here",
            "made private",
            "ok      store",
        ):
            terminal.waits_for(text, anywhere=True)
    assert state.stat().st_mode & 0o077 == 0


def test_a_conversation_is_left_forked_and_taken_up_again(opens: Opens) -> None:
    replies = [{"text": f"Answer {n}."} for n in range(5)]
    with opens(replies, rows=40) as terminal:
        terminal.say("the first question", then="Answer 0.")
        terminal.sends("/fork", "forked from")
        terminal.sends("/clear", "A new conversation.")
        terminal.say("another thing", then="Answer 0.")
        terminal.sends("/resume", "Go on with which run?", "the first question")
        terminal.press("escape")
        terminal.waits_for("which run?", gone=True)
        terminal.sends("/resume", "Go on with which run?")
        terminal.press("down")
        terminal.press("enter")
        terminal.waits_for("which run?", gone=True)
        terminal.say("and more", then="Answer 1.")
        terminal.sends("/quit")
        assert terminal.ends() == 0


def test_rewind_goes_back_before_a_prompt_with_the_files(folder: Path, opens: Opens) -> None:
    replies = [{"text": "Hello."}, edit("one\n"), {"text": "Written."}]
    with opens(replies, "--approval-mode", "auto_edit", rows=40) as terminal:
        terminal.say("say hello", then="Hello.")
        terminal.say("write a note", then="Written.")
        terminal.sends("/rewind", "Back to before which prompt?", "say hello")
        terminal.press("enter", then="Change these files, and go back?")
        terminal.waits_for("D notes.txt")
        terminal.press("enter", then="Nothing was changed.")
        assert (folder / "notes.txt").exists()
        terminal.sends("/rewind 99", "has no step 99: it has -1 to")
        terminal.sends("/rewind", "Back to before which prompt?")
        terminal.press("enter", then="Change these files, and go back?")
        terminal.press("down", "enter", then="› write a note")
        assert not (folder / "notes.txt").exists()


def test_a_shell_line_is_shown_folded_and_goes_to_the_model_with_the_next_prompt(opens: Opens) -> None:
    replies = [
        {"text": "I see it.", "expect": "echo is-it-\\$MINE.*is-it-mine.*exit 3"},
        {"text": "Not again."},
    ]
    with opens(replies, rows=50, env={"MINE": "mine"}) as terminal:
        terminal.waits_for("›")
        terminal.sends("!seq 10000", "  60", "… 9,900 lines …", "  10000")
        terminal.sends("!echo is-it-$MINE; pwd; exit 3", "is-it-mine", "/work", "exit 3")
        terminal.say("what was that?", then="I see it.")
        terminal.sends("!sleep 100 & echo started", "  started")
        terminal.sends("!echo begun; sleep 100", "│ begun")
        terminal.type("what next?\r", then="queued: what next?")
        terminal.press("c-c", then="SIGINT")
        terminal.waits_for("› what next?")
        terminal.press("enter", then="Not again.")


def test_a_command_that_would_disturb_waits_until_the_agent_is_done(folder: Path, opens: Opens) -> None:
    with opens([HELD, {"text": "Slept."}], "--yolo", rows=40) as terminal:
        terminal.say("sleep a while")
        until((folder / "began").exists)
        terminal.sends("/clear", "queued: /clear")
        terminal.sends("/tools", "web_fetch")
        (folder / "go").touch()
        terminal.waits_for("Slept.")
        terminal.waits_for("A new conversation.")


def test_a_conversation_is_compressed_when_somebody_asks(opens: Opens) -> None:
    words = [" ".join(f"{n}w{m}" for m in range(600)) for n in range(3)]
    summary = "<state_snapshot><overall_goal>ship it</overall_goal></state_snapshot>"
    replies = [{"text": text} for text in words] + [{"role": "compressor", "text": summary}] * 2
    with opens([*replies, {"text": "We ship it."}], rows=40) as terminal:
        terminal.waits_for("›")
        terminal.sends("/compress", "Nothing has run yet")
        for number in range(3):
            terminal.say(f"question {number}", then=f"{number}w599")
        terminal.sends("/compress", "ompressed")
        terminal.say("and now?", then="We ship it.")
        terminal.sends("/compress", "Nothing was compressed")


def test_a_run_that_a_loop_has_ended_goes_on_without_loop_detection(folder: Path, opens: Opens) -> None:
    (folder / "a.txt").write_text("x")
    again = says("read_file", file_path="a.txt")
    with opens([*[again] * 8, {"text": "Done at last."}], rows=60) as terminal:
        terminal.waits_for("›")
        terminal.type("read it")
        terminal.press("enter", then="Go on without loop detection: /loops off")
        assert "let it go on: /loops off" in " ".join(terminal.text.split())
        terminal.sends("/loops", "Loop detection?", "nothing stops a model that repeats itself")
        terminal.type("off")
        terminal.press("enter", then="Loop detection is off")
        terminal.waits_for("Done at last.")
        terminal.sends("/loops maybe", "No choice 'maybe'")
