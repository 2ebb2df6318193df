"""Memory files in use: a sub-directory's are read just in time; the model and people add facts."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from folders import tree
from places import Place

from interlock.engine import Decision, Outcome, resume_sync, run_sync
from interlock.engine.travel.replay import replay_run
from interlock.services.files.blobs import inflate_if_deflated
from interlock.tools.save_memory import add_fact_to_text


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "place")
    (place.work / "lib/deep").mkdir(parents=True)
    (place.work / "lib/GEMINI.md").write_text("lib rules, and @deep/more.md")
    (place.work / "lib/deep/more.md").write_text("more of them")
    (place.work / "lib/deep/AGENTS.md").write_text("deep rules")
    (place.work / "lib/deep/x.py").write_text("x = 1\n")
    return place


def play(place: Place, calls: list[dict[str, Any]], **options: Any) -> tuple[Outcome, list[dict[str, Any]]]:
    """The run, and the program's own messages that it got after its calls."""
    script = place.folder / "script.json"
    replies = [*({"tool_calls": [call]} for call in calls), {"text": "done"}]
    script.write_text(json.dumps(replies))
    given = place.options(None, model=f"script:{script}", **options)
    outcome = run_sync("main", {"prompt": "go"}, options=given)
    return outcome, requests(place)


def requests(place: Place) -> list[dict[str, Any]]:
    from interlock.engine.store import Store

    conn = Store(place.folder / "home").connect()
    bodies = [row[0] for row in conn.execute("select body from chain order by rowid")]
    conn.close()
    found = [json.loads(inflate_if_deflated(body)) for body in bodies if body]
    return [m for m in found if m.get("origin") == "context" and "came to just now" in json.dumps(m)]


def read(path: str) -> dict[str, Any]:
    return {"name": "read_file", "args": {"file_path": path}}


def test_rules_of_a_directory_are_told_when_a_call_comes_there_and_once(place: Place) -> None:
    outcome, notes = play(
        place, [read("a.txt"), read("lib/deep/x.py"), read("lib/deep/more.md")], skip_trust=True
    )
    assert outcome.status == "done"
    [note] = notes
    text = "".join(part["text"] for part in note["content"])
    assert text.index("lib rules, and") < text.index("more of them") < text.index("deep rules")
    assert "--- lib/deep/AGENTS.md (project) ---" in text


def test_a_rule_comes_with_the_first_file_that_it_names_and_each_text_once(place: Place) -> None:
    tree(
        place.work,
        {
            "src/a.ts": "1",
            "src/b.ts": "2",
            "web/c.py": "3",
            ".claude/rules/ts.md": "---\npaths:\n  - **/*.{ts,tsx}\n---\nTYPES",
            ".cursor/rules/ts.mdc": "---\nglobs: *.ts, *.tsx\n---\nTYPES",
            ".cursor/rules/py.mdc": "---\nglobs: *.py\n---\nPYTHON",
            "web/CLAUDE.md": "WEB @more.md",
            "web/more.md": "MORE",
            "web/AGENTS.md": "@CLAUDE.md",
            "web/.claude/rules/always.md": "NESTED",
        },
    )
    calls = [read("src/a.ts"), read("src/b.ts"), read("web/c.py"), read("web/c.py")]
    outcome, notes = play(place, calls, skip_trust=True)
    texts = ["".join(part["text"] for part in note["content"]) for note in notes]
    assert ["TYPES" in texts[0], texts[0].count("TYPES"), len(texts)] == [True, 1, 2]
    assert "--- .claude/rules/ts.md (for src/a.ts) ---" in texts[0]
    assert [texts[1].count(word) for word in ("WEB", "MORE", "PYTHON", "NESTED", "TYPES")] == [1, 1, 1, 1, 0]
    assert asyncio.run(replay_run(place.folder / "home", outcome.run)).divergence is None


def test_what_ignore_files_keep_away_is_no_rule(place: Place) -> None:
    (place.work / ".geminiignore").write_text("lib/GEMINI.md\n")
    _, [note] = play(place, [read("lib/deep/x.py")], skip_trust=True)
    assert "lib rules" not in json.dumps(note) and "deep rules" in json.dumps(note)


def remember(file: str = "GEMINI.md") -> dict[str, Any]:
    return {"name": "save_memory", "args": {"fact": "Tests run\nwith make.", "file_path": file}}


@pytest.mark.parametrize("mode", ["default", "auto_edit", "yolo"])
def test_what_a_model_wants_remembered_is_asked_about_in_every_mode(place: Place, mode: str) -> None:
    outcome, _ = play(place, [remember()], approval_mode=mode)
    assert outcome.status == "waiting"
    assert "+- Tests run with make." in outcome.pending[0]["preview"]
    script = f"script:{place.folder / 'script.json'}"
    decisions = [Decision(outcome.pending[0]["id"], "proceed_once")]
    resume_sync(outcome.run, decisions=decisions, options=place.options(None, model=script))
    assert (place.work / "GEMINI.md").read_text() == "## Remembered\n\n- Tests run with make.\n"


def test_only_memory_files_are_written_so(place: Place) -> None:
    outcome, _ = play(place, [remember("notes.md")], approval_mode="yolo")
    assert outcome.status == "done"
    assert "isn't a memory file; expected GEMINI.md or AGENTS.md" in json.dumps(outcome.output["history"])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "## Remembered\n\n- b\n"),
        ("Rules.", "Rules.\n\n## Remembered\n\n- b\n"),
        ("## Remembered\n\n- a\n", "## Remembered\n\n- a\n- b\n"),
        ("## Remembered\n\n- b\n", "## Remembered\n\n- b\n"),
        ("## Remembered\n\n- a\n\n# End\n", "## Remembered\n\n- a\n- b\n\n# End\n"),
        ("## Remembered\n", "## Remembered\n\n- b\n"),
    ],
)
def test_a_fact_stands_below_its_heading_once(before: str, after: str) -> None:
    assert add_fact_to_text(before, "b") == after
