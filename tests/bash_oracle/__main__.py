"""The oracle for as long as is wanted: `PYTHONPATH=tests python -m bash_oracle --seconds 3600`.

Rounds of a minute with a new seed each; prints the counts, and every line that got past. Exit code 1 if any did.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from bash_oracle.check import policy_of, run, work, work_mutated, work_narrow
from bash_oracle.stubs import BASH, cage

ROUND_S = 30.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="bash_oracle", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument(
        "--seed", type=int, default=None, help="of the first round; default: another one each time"
    )
    given = parser.parse_args()
    rng = random.Random(given.seed)
    wrong: list[str] = []
    lines = 0
    end = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        if BASH is None or not cage(folder):
            print("needs bash and bubblewrap: nothing is run outside of a cage", file=sys.stderr)
            return 2
        (folder / "work").mkdir()
        kinds = [
            (work, "oracle_rules.toml"),
            (work_mutated, "oracle_rules.toml"),
            (work_narrow, "narrow_rules.toml"),
        ]
        while (left := end - time.monotonic()) > 0:
            for kind, rules in kinds:
                seed = rng.randrange(1_000_000_000)
                told, tallies = run(
                    kind, policy_of(rules, folder / "work"), folder, seed, seconds=min(ROUND_S, left)
                )
                lines += sum(t.lines for t in tallies)
                found = [w for t in tallies for w in t.wrong]
                wrong += found
                print(told, *found, sep="\n", flush=True)
    print(f"{lines} lines, {len(wrong)} got past")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
