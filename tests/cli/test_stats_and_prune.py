"""`stats` adds up what runs did; `store prune` deletes ended runs by age and size, and never a parked one."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Run
from databases import changed
from folders import put
from scripted import shell, tools
from starlette.requests import Request

from interlock.engine.client import Client
from interlock.engine.store import resolve_state_directory, select_rows
from interlock.engine.store.retention import CANDIDATES
from interlock.web.page_views import get_statistics

CALL = shell("touch a.txt")
ASKS = tools(CALL, usage={"input": 1000, "output": 100, "cached": 500})
ENDS = {"text": "ok", "usage": {"input": 2140, "output": 50}}
PRICE = {"input": 1.0, "output": 10.0, "cached": 0.1}
COST = (500 * 1 + 500 * 0.1 + 100 * 10 + 2140 * 1 + 50 * 10) / 1e6


@pytest.fixture
def ended(run: Run, home: Path) -> dict[str, str]:
    """Name → id of runs: approved, rejected, failed and parked."""
    (home / ".interlock").mkdir()
    settings: dict[str, Any] = {
        "models": {"script": {"price": PRICE}},
        "model": {"skipNextSpeakerCheck": True},
    }
    put(home / ".interlock" / "settings.json", settings)
    put(Path("s.json"), [ASKS, ENDS])
    put(Path("f.json"), [{"error": {"status": 400}}])
    found: dict[str, str] = {}
    for name, file, decided in (
        ("approved", "s.json", ("--approve", "all")),
        ("rejected", "s.json", ("--reject", "1", "--reason", "no")),
        ("failed", "f.json", ()),
        ("parked", "s.json", ()),
    ):
        run("-p", name, "-m", f"script:{file}")
        found[name] = run("runs", "--json").json[0]["run"]
        if decided:
            run("resume", found[name], *decided)
    return found


def _aged(home: Path, days: int, *runs: str) -> None:
    for name in runs:
        then = time.time() - days * 86_400
        changed(home / "interlock", "update runs set updated = $1 where run = $2", then, name)


def test_stats_add_up_runs_turns_tokens_cost_decisions_and_failures(run: Run, ended: dict[str, str]) -> None:
    (day,) = run("stats", "--json").json
    assert day == {
        "day": time.strftime("%Y-%m-%d"),
        "runs": 4,
        "turns": 5,
        "input_tokens": 3 * 1000 + 2 * 2140,
        "output_tokens": 3 * 100 + 2 * 50,
        "cached_tokens": day["cached_tokens"],
        "usd": pytest.approx(2 * COST + (500 + 50 + 1000) / 1e6),
        "unpriced": 0,
        "asked": 3,
        "given": 1,
        "refused": 1,
        "waited_s": pytest.approx(day["waited_s"]),
        "failures": {"model": 1, "refused": 1},
    }
    assert day["waited_s"] > 0 and day["cached_tokens"] > 0
    share = day["cached_tokens"] / day["input_tokens"]
    assert f" {share:.0%} " in run("stats").out
    (workflow,) = run("stats", "--by", "workflow", "--json").json
    assert {**workflow, "day": day["day"]} == {**day, "workflow": "main"}
    Path(".git").mkdir()
    Path("inner").mkdir()
    (folder,) = run("stats", "--by", "repository", "--json").json
    assert (folder["repository"], folder["runs"]) == (str(Path.cwd()), 4)
    first, second = run("stats", "--by", "model").out.splitlines()
    assert first.split()[0] == "model" and "3" in second.split()
    table = run("stats").out
    assert "1 model, 1 refused" in table and "$0.0099" in table
    assert run("stats", "--since", "2999-01-01").err.startswith("No runs with --since")
    for by, key in ((b"", time.strftime("%Y-%m-%d")), (b"by=workflow", "main")):
        request = Request({"type": "http", "query_string": by, "headers": []})
        made = get_statistics(SimpleNamespace(client=Client.for_this_user()), request)
        assert made["chart"]["bars"] == [{"key": key, "part": 1.0, "shown": "$0.0099"}]
        (row,) = made["rows"]
        assert row[:3] == [key, "4", "5"] and row[-1] == "1 model, 1 refused"


def test_stats_count_what_a_fork_copied_once(run: Run, ended: dict[str, str]) -> None:
    before = {by: run("stats", "--by", by, "--json").json[0] for by in ("day", "workflow", "model")}
    run("fork", ended["approved"], "--at", "5", "--in-place")
    for by, sums in before.items():
        (after,) = run("stats", "--by", by, "--json").json
        assert after == {**sums, "runs": sums["runs"] + (by != "model")}
    run("runs", "rm", ended["approved"])
    (after,) = run("stats", "--json").json
    assert (after["turns"], after["asked"]) == (5, 3)  # the fork's copies are the last record


def test_the_cost_of_a_run_stands_in_runs_show_and_its_result_and_doctor_says_what_is_stored(
    run: Run, ended: dict[str, str], home: Path
) -> None:
    rows = {row["run"]: row["usd"] for row in run("runs", "--json").json}
    assert rows[ended["approved"]] == pytest.approx(COST) and rows[ended["failed"]] is None
    assert "$0.0042" in run("runs").out and "$0.0042" in run("show", ended["approved"]).out
    (line,) = (found["text"] for found in run("doctor", "--json").json if found["what"] == "store")
    assert "4 runs" in line and "interlock.db " in line and "outputs " in line and "audit " in line
    done = run("-p", "again", "-m", "script:s.json", "-y", "-o", "json").json
    assert done["stats"]["usd"] == pytest.approx(COST)
    back = "update approvals set answered_at = asked_at - 864000 where run = $1"
    changed(home / "interlock", back, ended["approved"])
    (day,) = run("stats", "--json").json
    assert day["waited_s"] > 0, "a clock that steps back takes nothing from it"


def test_prune_deletes_what_is_old_and_names_the_parked_run_that_it_keeps(
    run: Run, home: Path, ended: dict[str, str]
) -> None:
    _aged(home, 40, *ended.values())
    _aged(home, 10, ended["approved"])
    told = run("store", "prune", "--dry-run", "--keep-days", "30", "--json").json
    assert {one["run"] for one in told["runs"]} == {ended["rejected"], ended["failed"]}
    assert told["kept"] == [ended["parked"]]
    assert len(run("runs", "--json").json) == 4, "a dry run deletes nothing"
    put(home / ".interlock" / "settings.json", {"store": {"keepDays": 30}})
    assert "2 runs may be deleted" in run("doctor").out
    done = run("store", "prune")
    assert (done.code, f"Kept 1 unfinished run, though old: {ended['parked']}." in done.err) == (0, True)
    assert {row["run"] for row in run("runs", "--json").json} == {ended["approved"], ended["parked"]}
    assert run("audit", "verify").code == 0


def test_prune_by_size_deletes_the_oldest_first_and_gives_the_bytes_back(
    run: Run, home: Path, ended: dict[str, str]
) -> None:
    _aged(home, 5, ended["rejected"])
    store = home / "interlock" / "interlock.db"
    before = store.stat().st_size
    most = (
        sum(run("store", "prune", "--dry-run", "--max-gb", "9", "--json").json[k] for k in ("before",)) / 1e9
    )
    first = run("store", "prune", "--dry-run", "--max-gb", str(most * 0.99), "--json").json["runs"]
    assert [one["run"] for one in first] == [ended["rejected"]]
    assert run("store", "prune", "--max-gb", "0").code == 0
    assert [row["run"] for row in run("runs", "--json").json] == [ended["parked"]]
    assert store.stat().st_size < before


def test_store_copies_runs_to_another_folder(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script.json").write_text('[{"text": "Hello."}]')
    assert run("-p", "hi", "-m", f"script:{tmp_path / 'script.json'}").code == 0
    assert run("store", "copy", "latest", "--to", str(tmp_path / "other")).err.startswith("Copied ")
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "other"))
    assert [row["title"] for row in run("runs", "--all", "--json").json] == ["hi"]
    assert "Expected: interlock store copy RUN…" in run("store", "copy").err


@pytest.mark.sqlite
def test_what_is_due_among_thousands_of_runs_is_found_in_one_pass(run: Run, ended: dict[str, str]) -> None:
    plan = [
        row["detail"] for row in select_rows(resolve_state_directory(), f"explain query plan {CANDIDATES}")
    ]
    assert plan and not [line for line in plan if "CORRELATED" in line]
