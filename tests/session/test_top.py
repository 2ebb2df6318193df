"""The live list of runs: what each does, opening one to decide what it asks, stopping another."""

import json
import subprocess
from pathlib import Path

from patience import until
from session.terminal import HELD, Terminal, edit
from warm import Warm

from interlock.engine.read import list_runs


def test_one_watches_runs_decides_what_one_asks_and_stops_another(folder: Path) -> None:
    subprocess.run(["git", "init", "-q", "-b", "trunk"], cwd=folder, check=True)
    terminal = Terminal(folder, "top")

    def start(name: str, *arguments: str) -> Warm:
        script = folder.parent / f"{name}.json"
        script.write_text(json.dumps([HELD if name == "works" else edit(), {"text": "Done."}]))
        words = ["-m", f"script:{script}", "-p", f"the one that {name}", "--skip-trust", *arguments]
        return Warm(words, cwd=folder, env=terminal.env, stderr=subprocess.DEVNULL)

    works = start("works", "-y")
    until((folder / "began").exists)
    assert start("asks").wait(60) == 75
    with terminal:
        terminal.waits_for("1 waiting · 1 running")
        terminal.waits_for("Create notes.txt (+1)")
        terminal.waits_for("run_shell_command touch began")
        terminal.waits_for("⎇ trunk")
        assert "the one that asks" in terminal.screen[2], "what waits for a person comes first"
        terminal.press("enter", then="[y] Yes")
        terminal.press("y", then="Done.")
        terminal.waits_for("›")
        terminal.press("c-d", then="q quit")
        terminal.waits_for("1 running")
        terminal.press("x", then="y stops it")
        terminal.press("down", then="q quit")
        assert works.poll() is None, "any other key leaves it"
        terminal.press("x", then="y stops it")
        terminal.press("y", then="was asked to stop")
        works.wait(60)
        terminal.press("q")
        assert terminal.ends() == 0 and terminal.restored
    assert (folder / "notes.txt").read_text() == "new\n"
    assert {row.title[13:]: row.status for row in list_runs(folder.parent / "state")} == {
        "asks": "done",
        "works": "interrupted",
    }


def test_the_list_is_printed_once_for_a_script_and_without_a_terminal(folder: Path) -> None:
    terminal = Terminal(folder, "top")
    script = folder.parent / "replies.json"
    script.write_text(json.dumps([edit()]))
    words = ["-m", f"script:{script}", "-p", "add a note", "--skip-trust"]
    assert Warm(words, cwd=folder, env=terminal.env, stderr=subprocess.DEVNULL).wait(60) == 75

    def printed(*arguments: str) -> str:
        return Warm(arguments, cwd=folder, env=terminal.env, stdout=subprocess.PIPE).ends()[1]

    (row,) = json.loads(printed("top", "--json"))
    assert (row["status"], row["activity"], row["title"]) == (
        "waiting",
        "Create notes.txt (+1)",
        "add a note",
    )
    assert row["workspace"] == str(folder) and row["waiting"] == 1 and row["since"] > row["created"]
    assert "Create notes.txt (+1)" in printed("top")
