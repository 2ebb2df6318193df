"""What a check takes for tests, what it puts back of files that hold more, and where a view leads."""

import json
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from folders import put, tree
from ordinary_user import told_to_ordinary_user

from interlock.services.checks.compare import Comparison
from interlock.services.checks.ignored_tests import store_ignored_tests
from interlock.services.checks.mixed_files import InseparableError, restore_tests_in_text
from interlock.services.checks.repair_files import RepairFiles
from interlock.services.checks.test_table import CheckTable, is_output_without_test_run, load_runners
from interlock.services.checks.view import open_view_with_restored_files, remove_leftover_views
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.snapshots.snapshots import ShadowRepository, WorkspaceSnapshots
from interlock.state.settings import SnapshotSettings

KINDS = {
    "test": (
        "test_a.py a_test.py tests/data/x.bin pkg/__tests__/a.js a.test.ts b.spec.jsx src/test/java/A.java x_test.go "
        "tests/it.rs a_spec.rb ATest.php a.bats t/one.t a_test.cc ATests.cs e2e/x.txt __snapshots__/a.snap run.feature"
    ),
    "settings": (
        "conftest.py a/conftest.py pytest.ini tox.ini jest.config.mjs vitest.config.ts .mocharc.json .npmrc "
        ".cargo/config.toml .rspec phpunit.xml.dist .mvn/maven.config sitecustomize.py pytest.py _pytest/a/b.py"
    ),
    "mixed": "package.json a/package.json pyproject.toml setup.cfg Cargo.toml Makefile GNUmakefile rules.mk justfile",
    "whole": "pom.xml build.gradle.kts Rakefile CMakeLists.txt",
    "code": "src/lib.rs calc.py latest/a.py contest.py src/testing/x.py",
    "": "README.md a.c node_modules/x/tests/a.js .venv/lib/tests/test_a.py target/tests/a.rs contested/a.txt",
}


@pytest.mark.parametrize(("kind", "path"), [(k, p) for k, paths in KINDS.items() for p in paths.split()])
def test_a_path_is_a_test_by_the_runners_own_patterns(kind: str, path: str) -> None:
    assert CheckTable("make test").file_kind(path) == kind


@pytest.mark.parametrize(
    ("line", "path", "files"),
    [
        ("pytest checks/half.py", "checks/half.py", {}),
        ("pytest", "check_half.py", {"pytest.ini": "[pytest]\npython_files = check_*.py\n"}),
        ("pytest", "qa/x.txt", {"pyproject.toml": '[tool.pytest.ini_options]\ntestpaths = ["qa"]\n'}),
        ("npx jest", "spec-half.js", {"package.json": '{"jest": {"testMatch": ["**/spec-*.js"]}}'}),
        ("python -m unittest discover -s checks -p 'c*.py'", "checks/c.py", {}),
        ("python -m unittest checks.half", "checks/half.py", {}),
    ],
)
def test_a_project_and_a_line_say_what_else_is_a_test(line: str, path: str, files: dict[str, str]) -> None:
    assert CheckTable(line, files.get).file_kind(path) == "test"
    assert CheckTable("make").file_kind(path) != "test"


RUST = """pub fn half(n: i32) -> i32 { n * 2 } // "}
const QUOTE: char = '"';
#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn halves() { assert_eq!(half(4), 2, "}}"); }
}
"""
MAKE = "RUN = pytest -q\nCC = gcc\nbuild: a.c\n\t$(CC) a.c\ntest: build\n\t$(RUN)\n"
PACKAGE = {"scripts": {"test": "npm run unit", "unit": "jest", "build": "x"}, "dependencies": {"a": "1"}}
CARGO = '[package]\nname = "a"\n[lib]\npath = "a.rs"\n'


@pytest.mark.parametrize(
    ("path", "old", "new", "kept", "gone"),
    [
        (
            "src/lib.rs",
            RUST,
            RUST.replace("n * 2", "n / 3").replace("4), 2", "4), 1"),
            "n / 3;;4), 2",
            "4), 1",
        ),
        ("src/lib.rs", RUST, RUST.partition("#[cfg")[0].replace("n * 2", "n / 2"), "n / 2;;mod tests", ""),
        ("src/lib.rs", RUST, RUST.replace("    #[test]", "    #[test]\n    #[ignore]"), "halves", "ignore"),
        (
            "Makefile",
            MAKE,
            MAKE.replace("pytest -q", "true").replace("gcc", "cc"),
            "CC = cc;;pytest -q",
            "true",
        ),
        ("Makefile", MAKE, MAKE.replace("$(RUN)", "true"), "\t$(RUN)", "true"),
        ("Makefile", MAKE, f"SHELL = /bin/true\n{MAKE}", "pytest", "SHELL"),
        (
            "package.json",
            json.dumps(PACKAGE),
            json.dumps({"scripts": {**PACKAGE["scripts"], "unit": "true"}, "dependencies": {"a": "2"}}),
            'jest;;"2"',
            "true",
        ),
        (
            "package.json",
            json.dumps(PACKAGE),
            json.dumps({**PACKAGE, "jest": {"testMatch": []}}),
            "jest",
            "testMatch",
        ),
        (
            "package.json",
            json.dumps(PACKAGE),
            json.dumps({**PACKAGE, "scripts": {"pretest": "exit", **PACKAGE["scripts"]}}),
            "jest",
            "pretest",
        ),
        (
            "pyproject.toml",
            "[tool.pytest.ini_options]\naddopts = '-q'\n",
            "x = 1\n[tool.pytest.ini_options]\naddopts = '-k no'\n",
            '"x" = 1;;-q',
            "-k no",
        ),
        (
            "pyproject.toml",
            "",
            "x = 1979-05-27T07:32:00Z\n[tool.pytest.ini_options]\naddopts = '-k no'\n",
            "1979",
            "-k no",
        ),
        (
            "setup.cfg",
            "[metadata]\nName = a\n",
            "[metadata]\nName = b\n[tool:pytest]\naddopts = -k no\n",
            "Name = b",
            "-k no",
        ),
        ("Cargo.toml", CARGO, f"{CARGO}test = false\n", "a.rs", "test"),
        (
            "Taskfile.yml",
            "tasks:\n  test: pytest\n",
            "tasks:\n  test: 'true'\n  b: c\n",
            "pytest;;b: c",
            "true",
        ),
    ],
)
def test_only_what_concerns_tests_is_put_back(path: str, old: str, new: str, kept: str, gone: str) -> None:
    made = restore_tests_in_text(path, old, new, CheckTable("make test"))
    assert made != new
    assert all(part in made for part in kept.split(";;")), made
    assert not gone or gone not in made, made


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("src/lib.rs", RUST, RUST.replace("n * 2", "n / 2")),
        ("Makefile", MAKE, f"{MAKE}lint:\n\truff check\n"),
        ("Makefile", MAKE, MAKE.replace("gcc", "cc").replace("a.c\ntest", "a.c b.c\ntest"))
        if False
        else ("Makefile", MAKE, f"X = 1\n{MAKE}"),
        ("package.json", json.dumps(PACKAGE), json.dumps({**PACKAGE, "dependencies": {}})),
        ("pyproject.toml", "[project]\nname = 'a'\n", "[project]\nname = 'b'\n"),
        ("a.py", '"""\n>>> 1\n1\n"""\n', '"""\n>>> 1\n1\n>>> 2\n2\n"""\n'),
        ("a.ts", "1\nif (import.meta.vitest) {\n}\n", "2\nif (import.meta.vitest) {\n}\n"),
    ],
)
def test_a_change_of_the_rest_is_no_change_of_tests(path: str, old: str, new: str) -> None:
    assert restore_tests_in_text(path, old, new, CheckTable("make test")) == new


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("Makefile", MAKE, f"{MAKE}include more.mk\n"),
        ("pom.xml", "<a/>", "<b/>"),
        ("package.json", json.dumps(PACKAGE), "{"),
        ("a.py", '"""\n>>> 1\n1\n"""\n', '"""\n>>> 1\n2\n"""\n'),
        ("src/lib.rs", f"mod inner {{\n{RUST}}}\n", f"mod inner {{\n{RUST.replace('4), 2', '4), 1')}}}\n"),
        ("src/lib.rs", "/// ```\n/// assert!(true);\n/// ```\nfn a() {}\n", "fn a() {}\n"),
        ("a.ts", "if (import.meta.vitest) {\n a\n}\n", "if (import.meta.vitest) {\n}\n"),
    ],
)
def test_what_cant_be_told_apart_is_said(path: str, old: str, new: str) -> None:
    with pytest.raises(InseparableError):
        restore_tests_in_text(path, old, new, CheckTable("make test"))


@pytest.mark.parametrize(
    ("line", "output", "none"),
    [
        ("python -m pytest", "no tests ran in 0.01s", True),
        ("python -m pytest", "2 skipped in 0.01s", True),
        ("python -m pytest -q", "", True),
        ("python -m pytest -q", ".s.   [100%]\n3 passed, 1 skipped in 0.1s", False),
        ("pytest -qq", "", False),
        ("pytest > log", "", False),
        ("python -m unittest", "Ran 0 tests in 0.000s\n\nOK", True),
        ("python -m unittest", "Ran 1 test in 0.000s\n\nOK", False),
        ("node --test", "ℹ tests 0\nℹ pass 0", True),
        ("node --test", "# tests 1\n# pass 1", False),
        ("npx jest --passWithNoTests", "No tests found, exiting with code 0", True),
        ("npx jest", "Tests:       1 passed, 1 total", False),
        ("go test ./...", "?   \ta\t[no test files]\nok  \tb\t0.002s", False),
        ("go test ./...", "ok  \tb\t0.002s [no tests to run]", True),
        ("cargo test", "running 0 tests\n\ntest result: ok. 0 passed; 0 failed", True),
        ("cargo test", "running 1 test\n\ntest result: ok. 1 passed\nrunning 0 tests", False),
        ("mvn -q test", "Tests are skipped.", True),
        ("make test", "\x1b[32mno tests ran\x1b[0m in 0.01s", True),
        ("make build", "built", False),
    ],
)
def test_no_tests_ran_is_told_from_a_pass(line: str, output: str, none: bool) -> None:
    assert is_output_without_test_run(CheckTable(line), output) == none


def _run(root: Path, prefix: list[str], line: str) -> str:
    return subprocess.run(
        [*prefix, "sh", "-c", line], cwd=root, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("copy", [False, True])
def test_a_view_shows_files_as_before_and_leaves_nothing(copy: bool, tmp_path: Path) -> None:
    root = tree(
        tmp_path / "work: a,b",
        {
            "a.py": "today",
            "ignored/big": "x",
            ".gitignore": "ignored/",
            "sub/t.py": "new",
            "sub/__pycache__/t.cpython-311.pyc": "old",
        },
    )
    outside = put(tmp_path / "outside" / "t.py", "outside")
    (root / "tests").symlink_to(outside.parent)
    (root / "own").symlink_to(root / "a.py")
    put(root / "bin" / "tool", f"#!{root}/bin/python\n").chmod(0o755)
    before = [
        ("a.py", 0o100644, b"before"),
        ("tests/t.py", 0o100755, b"old"),
        ("sub/t.py", 0, b""),
        ("gone/x/y", 0o100644, b"back"),
        ("link", 0o120777, b"a.py"),
    ]
    home = tmp_path / "home"
    with open_view_with_restored_files(
        root, before, home, force_copy=copy, check_cancelled=lambda: None
    ) as view:
        line = (
            "cat a.py own tests/t.py gone/x/y link ignored/big; ls sub sub/__pycache__; test -x tests/t.py; "
        )
        line += "echo w > a.py; echo w > made; head -1 bin/tool"
        said = _run(view.root, [*view.prefix], line)
        assert (view.root == root) is not copy or not view.prefix
    assert said.startswith("before" * 2 + "oldbackbeforex"), said
    assert "t.py" not in said and "t.cpython" not in said
    assert (
        (root / "a.py").read_text() == "today"
        and not (root / "made").exists()
        and not (root / "gone").exists()
    )
    assert outside.read_text() == "outside"
    assert [*(home / "views").iterdir()] == []


def test_a_view_that_a_kill_left_is_removed_and_that_of_a_living_run_isnt(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tree(tmp_path / "work", {"a": "1"})
    with open_view_with_restored_files(root, [], home, force_copy=True, check_cancelled=lambda: None):
        left = tree(home / "views" / "interlock-left", {"lock": "", "work/work/": "", "copy/a": ""})
        (left / "work" / "work").chmod(0)
        remove_leftover_views(home)
        assert not left.exists() and len([*(home / "views").iterdir()]) == 1


OUTPUT = """Traceback:
  File "/usr/lib/python3/x.py", line 2, in a
  File "%s/pkg/half.py", line 3, in half
test_half.py:7: AssertionError
"""


def test_what_a_traceback_or_the_imports_of_a_test_name_is_to_be_repaired(tmp_path: Path) -> None:
    root = tree(
        tmp_path, {"pkg/half.py": "", "calc.py": "", "test_half.py": "", "lib/a.js": "", "lib/a.test.js": ""}
    )
    files = RepairFiles(root)
    test = {"test_half.py": "import os\nfrom calc import half\n"}
    assert [*files.find_modules_to_repair(OUTPUT % root, test)] == ["pkg/half.py", "calc.py"]
    assert [*files.find_modules_to_repair("", {"lib/a.test.js": "const {a} = require('./a')"})] == [
        "lib/a.js"
    ]
    assert files.is_test(f"{root}/test_half.py") and not files.is_test("calc.py")


@pytest.mark.parametrize(
    ("task", "wants"),
    [
        ("fix the bug, don't change the tests", False),
        ("make the test pass", False),
        ("The test in test_half.py fails. Find out why and fix it.", False),
        ("fix half; do not add tests", False),
        ("write a test for half", True),
        ("update test_half.py for the new name", True),
        ("update calc.py so that it works", False),
        ("Adapt the tests", True),
    ],
)
def test_a_task_says_whether_tests_may_be_written(task: str, wants: bool, tmp_path: Path) -> None:
    assert RepairFiles(tmp_path).is_test_change_requested(task) == wants


def test_sources_of_the_table_are_named() -> None:
    assert all("http" in runner.source for runner in load_runners())


def _unreadable(folder: Path) -> dict[str, list[str]]:
    """What an ordinary user is told of tests that can't be read."""
    tempfile.tempdir = str(folder)  # which may be root's
    work = tree(folder / "work", {"test_a.py": "", "mine/test_b.py": "", "test_c.py": ""})
    for name in ("test_a.py", "mine"):
        (work / name).chmod(0)
    time.sleep(0.1)  # a change within one tick of the file system's clock would be no known one
    workspace, repository = FolderWorkspace(work), ShadowRepository(folder / "repository")
    taken = WorkspaceSnapshots(folder, workspace, SnapshotSettings.model_validate({}), repository)
    before = taken.take_snapshot("refs/runs/a")
    ignored = store_ignored_tests(repository, "refs/ignored/a", before, workspace, "pytest")

    def changed() -> list[str]:
        now = taken.take_snapshot("refs/runs/a")
        found = Comparison(workspace, repository, before, now, ignored, "pytest", {}).find_changes()
        return [f"{change.path} {change.how}" for change in found.changes]

    found = {"the same": changed()}
    for name in ("test_a.py", "mine"):
        (work / name).chmod(0o700)
    put(work / "mine/test_b.py", "def test(): 1\n")
    found["changed"] = changed()
    (work / "test_c.py").chmod(0)
    (work / "mine").chmod(0)
    found["closed"] = changed()
    (work / "mine").chmod(0o700)
    return found


def test_a_test_that_cant_be_read_is_named_once_it_changes() -> None:
    found = told_to_ordinary_user(_unreadable)
    both = ["mine/ not kept", "test_a.py not kept"]
    assert found == {"the same": [], "changed": both, "closed": ["test_c.py gone", *both]}
