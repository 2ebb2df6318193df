"""`interlock audit`: what people and programs get from the record, and the exit codes of a check."""

import csv
import io
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from databases import changed

SECRET = "sk-proj-4f8Zt0aQe7Rn2Lx9Vb6Ym1Kc3Wd5Hj8Ps0Tu2Ov4Ig6"


@pytest.fixture
def audit(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`interlock audit …`, after a run that a person approved, in a folder whose name holds a secret."""
    folder = tmp_path / SECRET
    folder.mkdir()
    monkeypatch.chdir(folder)
    call = {"name": "run_shell_command", "args": {"command": "touch a.txt"}}
    (folder / "s.json").write_text(json.dumps([{"tool_calls": [call]}, {"text": "ok"}]))
    assert run("-p", "go", "-m", "script:s.json").code == 75
    assert run("resume", "latest", "--approve", "all").code == 0
    return lambda *words: run("audit", *words)


def test_the_log_says_who_decided_what_and_where(audit: Any) -> None:
    lines = audit("log").out.splitlines()
    assert lines[0].split() == ["at", "run", "what", "tool", "who", "how"]
    (answer,) = (line for line in lines if " answer " in line)
    assert "run_shell_command" in answer and "proceed_once" in answer and "--approve" in answer
    assert any(" intent " in line for line in lines) and any(" effect " in line for line in lines)
    decisions = [line for line in lines if " decision " in line]
    assert decisions and all("run_shell_command" in line for line in decisions)
    entries = json.loads(audit("log", "--json", "--since", "1h", "--run", "latest").out)
    assert {"request", "answer", "intent", "effect"} <= {entry["kind"] for entry in entries}
    assert json.loads(audit("log", "--json", "--since", "2999-01-01").out) == []


def test_the_log_of_a_removed_run_is_found_by_its_id(audit: Any, run: Run) -> None:
    name = run("runs", "--json").json[0]["run"]
    assert run("runs", "rm", name).code == 0
    log = audit("log", "--run", name)
    assert (log.code, " answer " in log.out, log.out.rstrip().endswith("  removed")) == (0, True, True)


def test_an_export_is_whole_and_masks_secrets(audit: Any) -> None:
    text = audit("export").out
    *entries, last = map(json.loads, text.splitlines())
    assert [entry["seq"] for entry in entries] == [*range(1, len(entries) + 1)]
    assert (last["head"]["seq"], last["head"]["hash"]) == (len(entries), entries[-1]["hash"])
    table = audit("export", "--format", "csv", "--since", "7d").out
    rows = [*csv.DictReader(io.StringIO(table))]
    assert [row["hash"] for row in rows] == [entry["hash"] for entry in entries]
    assert SECRET not in text + table


def test_verify_ends_with_1_and_names_what_was_changed(audit: Any, home: Path, tmp_path: Path) -> None:
    kept = tmp_path / "heads"
    assert audit("head", "--to", str(kept)).code == 0
    whole = audit("verify", "--against", str(kept))
    assert (whole.code, "nothing was changed" in whole.out) == (0, True)
    changed(home / "interlock", "update approvals set answered_by = 'somebody else'")
    found = audit("verify")
    assert found.code == 1 and "a row of 'approvals' was changed, run" in found.out
    assert json.loads(audit("verify", "--json").out)["problems"]


def test_a_key_that_is_missing_is_named(audit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("INTERLOCK_AUDIT_KEY", str(tmp_path / "no-such-key"))
    refused = audit("verify")
    assert refused.code == 1 and f"{tmp_path}/no-such-key" in refused.err


def test_a_git_ref_holds_heads_and_shows_that_the_end_was_cut_off(audit: Any, home: Path) -> None:
    subprocess.run(("git", "init", "-q"), check=True)
    assert audit("head", "--ref", "refs/audit/head").code == 0
    assert audit("verify", "--against", "refs/audit/head").code == 0
    changed(home / "interlock", "delete from audit where seq = (select max(seq) from audit)")
    assert "cut off or replaced" in audit("verify", "--against", "refs/audit/head").out
