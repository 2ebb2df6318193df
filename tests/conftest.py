"""conftest: names the plugins of all tests, one a subject. `tests` is no package: each is imported by its own name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

pytest_plugins = [
    "speed",  # first: it puts garbage collection off until everything is imported
    "safety",  # no home of this machine, no keys, no network, no test that hangs
    "databases",
    "selection",  # how many examples, and which part of the sweeps
    "goldens",
    "scenes",
    "outside",
    "commands",
    "fake_gemini.plugin",
    "local_server",
    "given_answers",
]
