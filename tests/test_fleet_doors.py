"""What the commands and the page say of runs in PostgreSQL, and what the API starts there."""

from collections.abc import Generator
from pathlib import Path

import pytest
from api_lab import Ours
from commands import Run, run
from test_fleet import fleet
from test_fleet_limits import begin, writing

__all__ = ["fleet", "run"]


@pytest.fixture
def ours(fleet: Run, tmp_path: Path) -> Generator[Ours]:
    """A server on the fleet's store."""
    found = Ours(tmp_path / "served")
    yield found
    found.close()


def test_a_queued_run_says_that_no_worker_is_alive_and_how_to_start_one(
    fleet: Run, tmp_path: Path, ours: Ours
) -> None:
    begin(fleet, tmp_path, "anna")
    name = begin(fleet, tmp_path, "anna", "--queue", "repairs")
    with ours.http() as page:

        def told() -> dict[str, str]:
            return {
                "show": fleet("show", name).out,
                "show --json": fleet("show", name, "--json").json["no_worker"],
                "its page": page.get(f"/api/runs/{name}").json()["no_worker"],
                "wait": fleet("wait", name, "--timeout", "1s").err,
                "runs": fleet("runs").err,
                "all runs": page.get("/api/runs").json()["no_worker"],
            }

        for door, text in told().items():
            line = next(line for line in text.splitlines() if "No worker is alive" in line)
            both = door in ("runs", "all runs")
            who = "2 queued runs wait, the first for " if both else "a queued run waits for "
            how = "interlock worker" if both else "interlock worker --queue repairs"
            assert who in line and line.endswith(f". Start one with: {how}"), (door, line)
        with writing() as conn:
            conn.execute(
                "insert into procrastinate_workers default values"
            )  # it has just given a sign of life
        assert not [text for text in told().values() if "No worker" in text]
