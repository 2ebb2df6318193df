"""test_init_and_notify: /init and /run, beside the conversation; and notifications when a session waits."""

import json
import time
from pathlib import Path

from session.terminal import Opens, edit


def test_init_shows_the_file_first_and_the_conversation_goes_on_as_it_was(folder: Path, opens: Opens) -> None:
    (folder / "a.py").write_text("x = 1\n")
    written = edit("# Demo\n\nOne module.\n", "GEMINI.md")
    replies = [{**written, "expect": "the owners"}, {"text": "It holds the module."}]
    with opens(replies, rows=40) as terminal:
        terminal.say("/init name the owners", then="[y] Yes")
        terminal.waits_for("One module.")
        assert not (folder / "GEMINI.md").exists()
        terminal.press("y", then="It holds the module.")
        assert (folder / "GEMINI.md").read_text() == "# Demo\n\nOne module.\n"
        while "Nothing has run yet in this conversation." not in "\n".join(terminal.screen):
            terminal.say("/diff")  # a moment longer, the screen shows what /init has written
            time.sleep(0.1)


def test_a_session_that_waits_rings_once_and_says_what_could_not_be_sent(folder: Path, opens: Opens) -> None:
    (folder.parent / ".interlock").mkdir()
    notify = {"terminal": ["bell", "osc9"], "command": "echo no luck; exit 3"}
    (folder.parent / ".interlock" / "settings.json").write_text(json.dumps({"general": {"notify": notify}}))
    with opens([edit(), {"text": "It is written."}]) as terminal:
        terminal.waits_for("›")
        assert b"\a" not in terminal.written
        terminal.say("write notes.txt", then="[y] Yes")
        terminal.waits_for("general.notify.command: exit 3. no luck")
        rung = b"\a\x1b]9;Interlock waits: write notes.txt: write_file notes.txt\a"
        assert terminal.written.count(rung) == 1
        terminal.press("y", then="It is written.")
        assert terminal.written.count(b"\x1b]9;") == 1


def test_another_workflow_runs_beside_the_conversation_and_its_output_is_shown(
    folder: Path, opens: Opens
) -> None:
    (folder / "agent.py").write_text(
        "from langgraph.graph import START, StateGraph\n"
        "from langgraph.types import interrupt\n"
        "from typing_extensions import TypedDict\n"
        "State = TypedDict('State', {'topic': str})\n"
        "def ask(state):\n    return {'topic': f\"{state['topic']} or {interrupt('Instead?')}\"}\n"
        "graph = StateGraph(State).add_node(ask).add_edge(START, 'ask').compile()\n"
    )
    with opens([{"text": "Here again."}]) as terminal:
        terminal.say('/run agent.py:graph {"topic": "tea"}', then="Enter answers")
        terminal.say("rum", then="topic: tea or rum")
        terminal.say("/run agent.py:graph {", then="The input of /run isn't JSON")
        terminal.say("/run route now", then="(default, ")
        terminal.say("/run nowhere", then="No workflow 'nowhere'")
        terminal.waits_for_line("asks first · replies.json")  # the model of the conversation stays
        terminal.say("hello", then="Here again.")
