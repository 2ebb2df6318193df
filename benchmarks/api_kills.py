"""Kill `interlock serve` at random moments while five programs work through its API; count what was hurt.

usage: python -P benchmarks/api_kills.py [KILLS] [SEED]
"""

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from api_kills import killed
from api_lab import Ours


def main() -> int:
    kills, seed = int([*sys.argv, "200"][1]), int([*sys.argv, "1", "1"][2])
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(Path(folder) / "work")
        try:
            programs = killed(ours, kills, Path(folder) / "effects", seed)
        finally:
            ours.close()
    for number, one in enumerate(programs, 1):
        said = f"hurt: {one.error!r}" if one.error else "nothing hurt, lost or doubled"
        print(f"program {number}: {one.threads} threads, {one.cuts} readings cut or refused: {said}")
    threads, cuts = sum(one.threads for one in programs), sum(one.cuts for one in programs)
    print(
        f"{kills} kills (seed {seed}): {2 * threads} runs on {threads} threads, {cuts} readings cut or refused"
    )
    return int(any(one.error for one in programs))


if __name__ == "__main__":
    raise SystemExit(main())
