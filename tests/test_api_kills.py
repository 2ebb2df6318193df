"""`kill -9` of `interlock serve` under programs' runs."""

from pathlib import Path

import pytest
from api_kills import killed
from api_lab import Ours


@pytest.mark.sweep
def test_a_server_killed_at_any_moment_hurts_no_run_and_readers_get_everything_once(tmp_path: Path) -> None:
    ours = Ours(tmp_path / "work")
    try:
        for program in killed(ours, 3, tmp_path / "effects", programs=2):
            if program.error:
                raise program.error
            assert program.threads
    finally:
        ours.close()
