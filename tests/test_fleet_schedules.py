"""Runs that workers start at set times: once each time, also after a kill, and not beside one that is under way."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from commands import Run, run
from folders import put
from patience import until
from scripted import shell, tools
from test_fleet import Worker, fleet
from test_fleet_limits import writing

from interlock.state.errors import StoreError

__all__ = ["fleet", "run"]


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 2 * * 1-5", "UTC", "2026-11-27 03:00", "2026-11-30 02:30"),
        ("@daily", "Europe/Berlin", "2026-11-27 03:00", "2026-11-27 23:00"),
        (
            "30 2 * * *",
            "Europe/Berlin",
            "2026-03-28 12:00",
            "2026-03-29 01:00",
        ),  # 2:30 is skipped: 3:00 there
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-26 01:30"),  # 2:30 comes twice
        ("30 * * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:30"),
        ("@hourly", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:00"),  # the second 2:00
        ("0 0-23 * * *", "Europe/Berlin", "2026-10-25 00:30", "2026-10-25 01:00"),
        ("@hourly", "America/St_Johns", "2026-11-01 03:45", "2026-11-01 04:30"),
        ("@hourly", "Europe/Berlin", "2026-03-29 00:30", "2026-03-29 01:00"),  # 3:00 there
    ],
)
def test_a_time_counts_in_its_time_zone(cron: str, zone: str, after: str, expected: str) -> None:
    pytest.importorskip("croniter")
    from interlock.engine.store.queue import next_cron_time

    utc = ZoneInfo("UTC")
    found = next_cron_time(cron, zone, datetime.fromisoformat(after).replace(tzinfo=utc))
    assert found.astimezone(utc).strftime("%Y-%m-%d %H:%M") == expected


def test_a_schedule_that_cannot_be_kept_is_refused_in_one_line(fleet: Run, tmp_path: Path) -> None:
    _scheduled(fleet, tmp_path, "--name", "nightly")
    script = f"script:{tmp_path / 'script.json'}"
    for words, said in (
        (
            ("61 * * * *", "main", "x"),
            "'61 * * * *' isn't a cron line. Expected minute hour day month weekday",
        ),
        (("0 0 31 2 *", "main", "x"), "The time of '0 0 31 2 *' never comes."),
        (("* * * * * *", "main", "x"), "isn't a cron line"),
        (("0", "2", "*", "*", "*", "main", "x"), "'0' isn't a cron line."),
        (("@daily", "mian", "x"), "No workflow 'mian'. Did you mean 'main'?"),
        (("@daily", "main", "x", "--timezone", "Mars/Base"), "No time zone 'Mars/Base'."),
        (("@daily", "main", "x", "--timezone", "../UTC"), "No time zone '../UTC'."),
        (("@daily", "main", "x", "--name", "nightly"), "There is a schedule 'nightly' already."),
        (("@daily", "main", "x", "--name", "a b"), "--name 'a b': expected letters"),
        (("@daily", "main", "--batch", "x.jsonl"), "--batch names a file of now"),
        (("@daily", "main"), "No prompt."),
    ):
        refused = fleet("schedule", "add", *words, "-m", script)
        assert refused.code != 0 and said in refused.err and refused.err.count("\n") == 1, refused
    assert "No schedule 'nihgtly'. Did you mean 'nightly'?" in fleet("schedule", "remove", "nihgtly").err
    assert [one["name"] for one in fleet("schedule", "list", "--json").json] == ["nightly"]


def _scheduled(fleet: Run, tmp_path: Path, *flags: str) -> str:
    script = put(tmp_path / "script.json", [tools(shell("true")), {"text": "Done."}])
    added = fleet("schedule", "add", *flags, "@yearly", "main", "-m", f"script:{script}", "do it")
    assert added.code == 0, added.err
    return added.out.strip()


def _come(name: str) -> None:
    """Let a time of a schedule come."""
    with writing() as conn:
        due = conn.execute_raw(
            "update procrastinate_jobs set scheduled_at = now(), args = args || jsonb_build_object("
            "'due', (extract(epoch from clock_timestamp()) * 1000)::bigint) where lock = $1 and status = 'todo'",
            (f"schedule:{name}",),
        )
        assert due.rowcount == 1


def test_a_worker_starts_a_run_when_its_time_comes_but_none_beside_one_that_is_under_way(
    fleet: Run, tmp_path: Path
) -> None:
    name = _scheduled(fleet, tmp_path)
    with Worker():
        _come(name)
        until(lambda: fleet("schedule", "--json").json[0]["status"] == "waiting")
        (schedule,) = fleet("schedule", "--json").json
        (row,) = fleet("runs", "--json").json
        assert (row["run"], row["title"], schedule["said"]) == (schedule["run"], "do it", "")
        assert schedule["next"] and schedule["user"], "the next time is planned"
        _come(name)
        until(lambda: fleet("schedule", "--json").json[0]["said"])
        assert f"Run {row['run']!r} was waiting, so no other was started." in fleet("schedule", "list").out
        assert fleet("resume", row["run"], "--approve", "all").code == 0
        assert fleet("wait", row["run"]).code == 0
        assert fleet("schedule", "remove", name).code == 0
    assert (len(fleet("runs", "--json").json), fleet("schedule", "--json").json) == (1, [])


def _cut(*_: object) -> None:
    raise StoreError("the run is stored, and its schedule doesn't know")


def test_a_time_whose_worker_was_killed_is_tried_again_and_starts_one_run(
    fleet: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.engine.store import queue, resolve_state_directory
    from interlock.fleet import schedule_process

    name = _scheduled(fleet, tmp_path)
    _come(name)
    soon = "scheduled_at <= now() + interval '3 s'"
    jobs = f"select status::text, (args ->> 'due')::bigint, {soon} from procrastinate_jobs"
    fetch = "select (procrastinate_fetch_job_v2(null, null)).args ->> 'due'"
    with writing() as conn:
        (due,) = conn.execute(fetch).fetchone()
        queue.requeue_lost_schedule_starts(conn, 12)
        assert conn.execute(jobs).fetchall() == [("todo", int(due), True)]
    monkeypatch.setattr(schedule_process, "exit_when_worker_ends", lambda: None)
    with monkeypatch.context() as patch:
        patch.setattr(schedule_process.queue, "record_start_and_enqueue_next", _cut)
        assert schedule_process.main(name, due, str(resolve_state_directory())) == schedule_process.TRY_AGAIN
    assert schedule_process.main(name, due, str(resolve_state_directory())) == 0
    (row,) = fleet("runs", "--json").json
    (schedule,) = fleet("schedule", "--json").json
    assert (schedule["run"], schedule["said"]) == (row["run"], "")
    with writing() as conn:
        conn.execute_raw("delete from procrastinate_jobs")  # whatever lost it
        queue.requeue_lost_schedule_starts(conn, 12)
        assert [row[2] for row in conn.execute(jobs)] == [False], "a schedule without a job is planned"
