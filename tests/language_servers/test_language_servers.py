"""Language servers say which problems an edit brought, and nothing that they do hurts the edit or the run."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import warm
from language_servers.lab import Edit, check_edits, toy
from patience import HANG_S, until
from sandboxes import needs_sandbox

from interlock.services.language_servers import server as server_module
from interlock.services.language_servers.problems import Problem, find_new_problems
from interlock.services.language_servers.table import ServerFinder, load_server_table, merge_server_settings
from interlock.state.settings import LanguageServer

FIRST: Edit = ("a.toy", "one\nBAD old\n", "zero\none\nBAD old\n😀 BAD\n")
HELD = Path(__file__).with_name("held_server.py")
TOLD = "New problems in a.toy:\n- line 4, column 3: BAD is in line 4 (toy 7)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path.resolve() / "blank and é"
    made.mkdir()
    return made


def methods(folder: Path) -> list[str]:
    return [line for line in (folder / "log").read_text().splitlines() if line and line[0] not in "[p"]


@pytest.mark.parametrize("way", ["push", "unversioned", "pieces", "pull", "registers", "asks", "odd"])
def test_only_problems_that_the_edit_brought_are_told(way: str, folder: Path) -> None:
    edits: list[Edit] = [
        FIRST,
        ("a.toy", FIRST[2], FIRST[2] + "WARN\n"),
        ("a.toy", FIRST[2] + "WARN\n", "BAD old\r\nBAD\r\n"),
        ("a.toy", "BAD old\r\nBAD\r\n", "BAD new\nBAD\n"),
        ("new [é].toy", None, "BAD\n"),
    ]
    told, warnings = check_edits(folder, {"toy": toy(way, folder)}, edits)
    new = "New problems in new [é].toy:\n- line 1, column 1: BAD is in line 1 (toy 7)"
    assert (told, warnings) == ([TOLD, "", "", "", new], [])


def test_a_first_answer_that_is_incomplete_blames_no_later_edit(folder: Path) -> None:
    edits: list[Edit] = [("a.toy", "BAD\n", "BAD\nx\n"), ("a.toy", "BAD\nx\n", "BAD\nx\ny\n")]
    assert check_edits(folder, {"toy": toy("incomplete", folder)}, edits) == (["", ""], [])


def test_a_server_gets_its_settings_and_may_not_edit(folder: Path) -> None:
    check_edits(folder, {"toy": toy("asks", folder, settings={"toy": {"level": 3}})}, [FIRST])
    lines = (folder / "log").read_text().splitlines()
    answers = [line for line in lines if line.startswith("[")]
    assert answers[0] == '["workspace/configuration", [3, null], false]'
    assert answers[2].startswith('["workspace/applyEdit", {"applied": false')
    assert [line.endswith("true]") for line in answers] == [False] * 6 + [True]


@pytest.mark.parametrize(
    ("way", "why"),
    [
        ("crash", "it ended with code 3: toy: no licence"),
        ("hang", "it didn't answer"),
        ("mute", "it said nothing about 'a.toy'"),
        ("flood", "it sent too much"),
        ("garbage", "it doesn't speak the Language Server Protocol"),
    ],
)
def test_a_server_that_fails_is_left_out_with_one_line(
    way: str, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way in ("hang", "mute"):
        monkeypatch.setattr(server_module, "_ANSWER_S", 0.5)
        monkeypatch.setattr(server_module, "_SILENCE_S", 0.1)
    told, warnings = check_edits(folder, {"toy": toy(way, folder)}, [FIRST, FIRST])
    assert told == ["", None] and len(warnings) == 1
    assert warnings[0].startswith(f"Language server 'toy' is left out from here on: {why}")
    assert methods(folder).count("initialize") == 1


def test_a_program_that_cannot_be_started_is_left_out_with_one_line(folder: Path) -> None:
    program = folder / "none"
    program.write_text("#!/nowhere/none\n")
    program.chmod(0o755)
    told, warnings = check_edits(folder, {"x": {"command": [str(program)], "suffixes": [".toy"]}}, [FIRST])
    assert told == [""] and len(warnings) == 1 and "it can't be started" in warnings[0]


def test_silence_about_a_file_without_problems_is_an_answer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "_SILENCE_S", 0.01)
    assert check_edits(folder, {"toy": toy("silent", folder)}, [FIRST]) == ([""], [])


def test_the_server_forgets_files_that_are_gone(folder: Path) -> None:
    (folder / "other").mkdir()

    class Renames(str):
        """The text of a second edit, by whose time a command has renamed the first file."""

        __slots__ = ()

        def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
            (folder / "b.toy").rename(folder / "c.toy")
            return super().encode(encoding, errors)

    edits: list[Edit] = [("b.toy", None, "x"), ("a.toy", None, Renames("y")), ("a.toy", "y", "z")]
    check_edits(folder, {"toy": toy("push", folder)}, edits)
    assert "textDocument/didClose" in methods(folder)


def test_each_project_has_a_server_in_its_own_folder_started_once(folder: Path) -> None:
    (folder / "one/src").mkdir(parents=True)
    (folder / "one/toy.json").touch()
    servers = {"toy": toy("push", folder, roots=["toy.json"])}
    edits: list[Edit] = [(name, None, "x") for name in ("one/src/a.toy", "one/b.toy", "two/c.toy", "d.toy")]
    check_edits(folder, servers, edits)
    started = [line.split()[2:] for line in (folder / "log").read_text().splitlines() if line[:4] == "pid "]
    assert started == [["one"], folder.name.split()]
    needing = {"toy": toy("push", folder, roots=["toy.json"], needsRoot=True)}
    assert check_edits(folder, needing, [("d.toy", None, "BAD")]) == ([None], [])


def test_of_one_role_the_first_that_is_installed_checks(folder: Path) -> None:
    nearest = folder / "node_modules/.bin"
    nearest.mkdir(parents=True)
    (nearest / "tool").symlink_to(sys.executable)
    arguments = toy("push", folder)["command"][1:]
    servers = {
        "missing": toy("push", folder, command=["no-such-program"]),
        "own": toy("push", folder, command=["tool", *arguments]),
        "second": toy("crash", folder),
        "linter": toy("push", folder, role="lint"),
    }
    told, warnings = check_edits(folder, servers, [("a.toy", None, "BAD")])
    assert (told, warnings) == (["New problems in a.toy:\n- line 1, column 1: BAD is in line 1 (toy 7)"], [])
    assert methods(folder).count("initialize") == 2


def test_nothing_is_started_for_other_files_and_nothing_without_a_program(folder: Path) -> None:
    table = load_server_table()
    finder = ServerFinder(table, [folder], os.devnull)
    assert not any(finder.has_server_for(folder / name) for name in ("a.txt", "Makefile", "a.md", "a"))
    suffixes = {suffix for one in table.values() for suffix in one.suffixes}
    assert all(finder.find_servers(folder / f"a{suffix}") == [] for suffix in suffixes)
    assert finder.list_installed() == []


def test_settings_change_the_named_fields_of_a_known_server_and_prefer_new_ones() -> None:
    changes = {
        "new": {"command": ["x"], "suffixes": [".py"]},
        "ruff": {"disabled": True},
        "pyright": {"settings": {"python": {"analysis": {"typeCheckingMode": "strict"}}}},
    }
    servers = merge_server_settings(
        {name: LanguageServer.model_validate(one) for name, one in changes.items()}
    )
    assert next(iter(servers)) == "new" and "ruff" not in servers
    python = {"pythonPath": "{python}", "analysis": {"typeCheckingMode": "strict"}}
    assert servers["pyright"].settings == {"python": python} and servers["pyright"].suffixes == [
        ".py",
        ".pyi",
    ]


def test_a_problem_that_moved_or_names_another_line_is_old() -> None:
    def problem(line: int, message: str) -> Problem:
        return Problem(line, 0, message, "", "")

    old = [problem(0, "see line 1"), problem(1, "x")]
    found = [problem(2, "see line 3"), problem(3, "x"), problem(4, "x"), problem(5, "y")]
    assert find_new_problems(old, "a\nb", found, "1\n2\na\nb\nb\ny") == [problem(4, "x"), problem(5, "y")]


@pytest.mark.parametrize("sandboxed", ["", "sandboxed"])
def test_a_killed_run_leaves_no_server_and_a_sandbox_is_around_it(sandboxed: str, folder: Path) -> None:
    if sandboxed:
        needs_sandbox()
    run = warm.Warm(
        [str(folder), sandboxed], cwd=folder, env=dict(os.environ), stdout=subprocess.PIPE, program=HELD
    )
    assert run.stdout
    with run.stdout as told:
        assert told.readline() == "New problems in a.toy:\n"
        assert list_processes_of(folder)
        run.kill()
    run.wait(HANG_S)
    until(lambda: not list_processes_of(folder))
    pid = int((folder / "log").read_text().split()[1])
    assert (pid < 100) == bool(sandboxed)  # its number in a namespace of its own


def list_processes_of(folder: Path) -> list[Path]:
    """Return the processes whose arguments name the log of a server."""
    found: list[Path] = []
    for arguments in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            found += [arguments] if os.fsencode(folder / "log") in arguments.read_bytes() else []
    return found
