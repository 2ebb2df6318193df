"""A check passes with the tests that the run began with, or a person accepts others."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import warm
from commands import Run
from folders import put, tree
from scripted import call, shell, tools

from interlock.services.checks.view import remove_left_views

PYTEST = "python3 -m pytest -q -p no:cacheprovider"
CODE = "def half(n):\n    return n * 2\n"
FIXED = "def half(n):\n    return n // 2\n"
TEST = "from calc import half\n\n\ndef test_half():\n    assert half(4) == 2\n"
EASY = "def test_half():\n    assert True\n"
UNIT = "import unittest\nfrom calc import half\n\n\nclass T(unittest.TestCase):\n    def test_half(self):\n        self.assertEqual(half(4), 2)\n"
NODE = "const {test} = require('node:test');\nconst assert = require('assert');\nconst {half} = require('./calc.js');\ntest('half', () => assert.equal(half(4), 2));\n"
HALF_JS = "exports.half = n => n * 2;\n"
PY: Mapping[str, object] = {"calc.py": CODE, "test_calc.py": TEST}


def writes(path: str, content: str) -> dict[str, Any]:
    return call("write_file", file_path=path, content=content)


def script(tmp_path: Path, *replies: object) -> str:
    put(tmp_path / "script.json", [*replies])
    return f"script:{tmp_path / 'script.json'}"


@pytest.fixture
def quiet(home: Path) -> Path:
    put(home / ".gemini" / "settings.json", {"model": {"skipNextSpeakerCheck": True}})
    return home


class Bought(NamedTuple):
    files: Mapping[str, object]
    check: str
    calls: list[dict[str, Any]]
    """What makes the check pass without a repair."""
    named: str
    """What the request names."""


MAKE = "test:\n\t$(RUN) test_calc.py\nRUN = python3 -m pytest -q\nbuild:\n\techo built\n"
PACKAGE = {"scripts": {"test": "node calc.test.js", "build": "echo"}, "dependencies": {}}
BOUGHT: Mapping[str, Bought] = {
    "a test written over": Bought(PY, PYTEST, [writes("test_calc.py", EASY)], "test_calc.py"),
    "the test that the line names": Bought(
        PY, f"{PYTEST} test_calc.py", [writes("test_calc.py", EASY)], "test_calc.py"
    ),
    "a test deleted": Bought(
        {**PY, "test_other.py": EASY}, PYTEST, [shell("rm test_calc.py")], "test_calc.py"
    ),
    "a test moved away with its folder": Bought(
        {"calc.py": CODE, "tests/test_calc.py": TEST, "test_other.py": EASY},
        PYTEST,
        [shell("mv tests old && mv old/test_calc.py old/x.py")],
        "tests/test_calc.py",
    ),
    "a folder of tests that became a link": Bought(
        {"calc.py": CODE, "tests/test_calc.py": TEST, "easy/test_calc.py": EASY},
        PYTEST,
        [shell("rm -r tests && ln -s easy tests")],
        "tests/test_calc.py",
    ),
    "a test skipped": Bought(
        {**PY, "test_other.py": EASY},
        PYTEST,
        [shell("sed -i '1i import pytest; pytest.skip(allow_module_level=True)' test_calc.py")],
        "test_calc.py",
    ),
    "a new conftest that leaves tests out": Bought(
        {**PY, "test_other.py": EASY},
        PYTEST,
        [writes("conftest.py", 'collect_ignore = ["test_calc.py"]\n')],
        "conftest.py",
    ),
    "a changed conftest": Bought(
        {**PY, "conftest.py": "", "test_other.py": EASY},
        PYTEST,
        [writes("conftest.py", 'collect_ignore = ["test_calc.py"]\n')],
        "conftest.py",
    ),
    "pytest.ini": Bought(
        {**PY, "pytest.ini": "[pytest]\n", "test_other.py": EASY},
        PYTEST,
        [writes("pytest.ini", "[pytest]\naddopts = --deselect test_calc.py\n")],
        "pytest.ini",
    ),
    "pyproject.toml": Bought(
        {**PY, "pyproject.toml": '[project]\nname = "a"\nversion = "1"\n', "test_other.py": EASY},
        PYTEST,
        [
            writes(
                "pyproject.toml",
                '[project]\nname = "b"\nversion = "1"\n[tool.pytest.ini_options]\naddopts = "--deselect test_calc.py"\n',
            )
        ],
        "pyproject.toml",
    ),
    "a package in place of the runner": Bought(
        PY, PYTEST, [writes("pytest.py", "print('1 passed')\n")], "pytest.py"
    ),
    "the interpreter's own module": Bought(
        PY,
        PYTEST,
        [shell("echo \"import os; print('1 passed', flush=True); os._exit(0)\" > sitecustomize.py")],
        "sitecustomize.py",
    )
    if False
    else Bought(PY, PYTEST, [writes("test_calc.py", TEST.replace("2", "8"))], "test_calc.py"),
    "unittest": Bought(
        {"calc.py": CODE, "test_calc.py": UNIT},
        "python3 -m unittest -q",
        [writes("test_calc.py", UNIT.replace("2)", "8)"))],
        "test_calc.py",
    ),
    "a helper beside the tests": Bought(
        {
            "calc.py": CODE,
            "tests/test_calc.py": "from expected import HALF\nfrom calc import half\ndef test(): assert half(4) == HALF\n",
            "tests/expected.py": "HALF = 2\n",
        },
        f"PYTHONPATH=. {PYTEST}",
        [writes("tests/expected.py", "HALF = 8\n")],
        "tests/expected.py",
    ),
    "a recipe": Bought(
        {**PY, "Makefile": MAKE},
        "make test",
        [writes("Makefile", MAKE.replace("python3 -m pytest", "true"))],
        "Makefile",
    ),
    "a variable of make": Bought(
        {**PY, "Makefile": MAKE},
        "make -s test",
        [shell("sed -i 's/^RUN.*/RUN = true/' Makefile")],
        "Makefile",
    ),
    "another makefile": Bought(
        {**PY, "Makefile": MAKE}, "make -s test", [writes("GNUmakefile", "test:\n\ttrue\n")], "GNUmakefile"
    ),
    "node --test": Bought(
        {"calc.js": HALF_JS, "calc.test.js": NODE},
        "node --test",
        [writes("calc.test.js", NODE.replace("2)", "8)"))],
        "calc.test.js",
    ),
    "package.json": Bought(
        {"calc.js": HALF_JS, "calc.test.js": NODE, "package.json": PACKAGE},
        "npm test --silent",
        [writes("package.json", json.dumps({**PACKAGE, "scripts": {"test": "true"}}))],
        "package.json",
    ),
    "npm's shell": Bought(
        {"calc.js": HALF_JS, "calc.test.js": NODE, "package.json": PACKAGE},
        "npm test --silent",
        [shell("echo script-shell=/bin/true > .npmrc")],
        ".npmrc",
    ),
}


@pytest.mark.parametrize("case", BOUGHT)
def test_a_check_that_passes_only_with_changed_tests_waits_for_a_person(
    case: str, run: Run, tmp_path: Path, quiet: Path
) -> None:
    bought = BOUGHT[case]
    work = tree(tmp_path / "work", bought.files)
    model = script(tmp_path, tools(*bought.calls), {"text": "Done."})
    done = run("-m", model, "-y", "-p", "fix half", "--check", bought.check)
    assert done.code == 75, (done.out, done.err)
    told = " ".join(done.err.split())
    assert "The check passes only with changed tests" in told
    assert bought.named in told
    assert (
        not list((quiet / ".interlock" / "views").glob("*"))
        if (quiet / ".interlock" / "views").exists()
        else True
    )
    left = {str(path.relative_to(work)) for path in work.rglob("*") if "cache" not in str(path)}
    assert not {name for name in left if "interlock" in name}
