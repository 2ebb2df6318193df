"""test_command: finds the command line by which a project runs its own tests."""

import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

_NO_TEST = "no test specified"
"""What npm puts into a new package.json."""


def _find_npm_script(root: Path) -> str:
    with suppress(OSError, ValueError, AttributeError):
        script = (
            json.loads((root / "package.json").read_text(encoding="utf-8")).get("scripts", {}).get("test", "")
        )
        return "npm test --silent" if script and _NO_TEST not in script else ""
    return ""


def _find_make_target(root: Path) -> str:
    with suppress(OSError, UnicodeDecodeError):
        return (
            "make test" if re.search(r"^test:", (root / "Makefile").read_text(encoding="utf-8"), re.M) else ""
        )
    return ""


def _find_python_tests(root: Path) -> str:
    has_tests = any(
        any(root.glob(pattern)) for pattern in ("test_*.py", "test*/**/test_*.py", "test*/**/*_test.py")
    )
    if not has_tests:
        return ""
    named = ("pytest.ini", "conftest.py", "tests/conftest.py")
    uses_pytest = any((root / name).exists() for name in named)
    for name in ("pyproject.toml", "setup.cfg", "tox.ini", "requirements.txt", "requirements-dev.txt"):
        with suppress(OSError, UnicodeDecodeError):
            uses_pytest = uses_pytest or "pytest" in (root / name).read_text(encoding="utf-8")
    return "python3 -m pytest -q" if uses_pytest else "python3 -m unittest"


_FINDERS: Sequence[Callable[[Path], str]] = (
    _find_npm_script,
    lambda root: "cargo test" if (root / "Cargo.toml").exists() else "",
    lambda root: "go test ./..." if (root / "go.mod").exists() else "",
    _find_python_tests,
    _find_make_target,
)


def find_test_command(root: Path) -> str:
    """Return the command line that runs the tests of the project in a folder; empty: its files name none."""
    return next(filter(None, (find(root) for find in _FINDERS)), "")
