"""run: `make bench`: measures everything next to its lower bound in the same run; the machine may be noisy."""

import importlib.util
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PARTS = {
    "figures": "figures.py",
    "startup": "startup.py",
    "turns": "turns.py",
    "modules": "modules.py",
    "edit": "edit/run.py",
    "loops": "loops/run.py",
    "policy": "policy/run.py",
    "search": "search/run.py",
    "travel": "travel.py",
    "stats": "stats.py",
}
"""In the order they run."""


def main() -> int:
    """Run the parts named on the command line, or all. Returns 1 if any of them fails."""
    wanted = sys.argv[1:] or list(PARTS)
    if unknown := set(wanted) - set(PARTS):
        raise SystemExit(f"No benchmark {sorted(unknown)}; there are {', '.join(PARTS)}.")
    failed = False
    for part in wanted:
        file = HERE / PARTS[part]
        started = time.perf_counter()
        print(f"\n== {part}", flush=True)
        spec = importlib.util.spec_from_file_location(f"benchmark_{part}", file)
        if spec is None or spec.loader is None:
            raise SystemExit(f"{file} can't be loaded")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        failed |= bool(module.main())
        print(f"({time.perf_counter() - started:.0f} s)", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
