"""`interlock memory`: shows the memory files and adds a line to them."""

import json
from pathlib import Path

from commands import Run
from folders import put, tree


def test_it_shows_adds_and_reads_anew(run: Run, tmp_path: Path) -> None:
    assert "No memory file applies" in run("memory").err
    added = run("memory", "add", "Tests run with make test")
    assert (added.code, (tmp_path / "work/GEMINI.md").read_text()) == (
        0,
        "## Remembered\n\n- Tests run with make test\n",
    )
    assert "Already there" in run("memory", "add", "Tests run with make test").out
    assert "needs one" in run("memory", "add", " ").err
    assert "isn't trusted, so these were ignored: GEMINI.md" in run("memory", "show").err
    run("trust", "--yes")
    assert "- Tests run with make test" in run("memory", "show").out
    again = run("memory", "refresh").out
    assert "GEMINI.md" in again and "- Tests run" not in again
    run("memory", "add", "--global", "Answer", "in", "English")
    assert "- Answer in English" in (Path.home() / ".gemini/GEMINI.md").read_text()
    assert (Path.home() / ".gemini/GEMINI.md").exists()
    [mine, theirs] = json.loads(run("memory", "--json").out)
    assert (mine["level"], theirs["level"]) == ("global", "project")


def test_it_shows_what_a_run_reads(run: Run, tmp_path: Path) -> None:
    tree(
        tmp_path,
        {".git/HEAD": "x", "CLAUDE.md": "Above.", "work/CLAUDE.md": "Here.", "more/CLAUDE.md": "More."},
    )
    settings = Path.home() / ".interlock/settings.json"
    put(settings, '{"context": {"includeDirectories": ["../more"]}}')
    run("trust", "--yes")
    shown = run("memory", "show").out
    assert "Here." in shown and "More." in shown and "Above." not in shown, "that folder isn't trusted"
    put(settings, '{"context": {"read": {"memory": false}}}')
    assert "No memory file applies" in run("memory").err
