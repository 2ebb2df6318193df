"""test_five_minutes: README's pictures can be recorded: from an empty home to a first edit, approved and undone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HANG_S

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.sweep
def test_the_pictures_are_made_of_a_real_run(tmp_path: Path) -> None:
    script = [sys.executable, "-P", ROOT / "docs" / "five_minutes.py", tmp_path]
    done = subprocess.run(script, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    drawn = {file.name: file.read_text().replace("&#160;", " ") for file in tmp_path.iterdir()}
    assert drawn.keys() == {file.name for file in (ROOT / "docs" / "pictures").glob("*.svg")}
    assert "Stored: the key in ~/.gemini/.env" in drawn["question.svg"]
    assert "[y] Yes" in drawn["edit.svg"] and "M prices.py" in drawn["undo.svg"]
    assert "not-a-real-key" not in "".join(drawn.values())


@pytest.mark.sweep
def test_the_casts_are_made_of_readmes_lines(tmp_path: Path) -> None:
    script = [sys.executable, "-P", ROOT / "docs" / "journeys.py", tmp_path]
    done = subprocess.run(script, capture_output=True, text=True, timeout=3 * HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"repair.cast", "graph.cast", "cron.cast"}
    for file in tmp_path.iterdir():
        header, *pieces = map(json.loads, file.read_text().splitlines())
        assert header["version"] == 2 and all(kind == "o" for _, kind, _ in pieces)
        assert [at for at, _, _ in pieces] == sorted(at for at, _, _ in pieces)
        assert "not-a-real-key" not in file.read_text()
