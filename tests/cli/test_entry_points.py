"""What rooms of ours register by the table of entry points, and what another package adds by the same one."""

import re
from pathlib import Path

import pytest
from commands import Run
from folders import put
from test_layout import MAY_IMPORT, ROOT

from interlock.cli.catalog import COMMANDS, split_command_and_arguments
from interlock.state.entry_points import find_entry_point, find_entry_points

GROUPS = ("interlock.commands", "interlock.checks", "interlock.stores")
THEIRS = """
from interlock.cli.parsing import Args, flag_argument, declare_arguments
from interlock.engine.client.health import Finding

@declare_arguments(flag_argument("--loud", "shout"))
def greet(args: Args) -> int:
    print("HELLO" if args.loud else "hello")
    return 3

def check(home):
    yield Finding("note", "greetings", f"none in {home.name}")
"""


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    about = tmp_path / "site" / "their_greetings-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: their-greetings\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[interlock.commands]\ngreet = their_greetings:greet\nruns = their_greetings:greet\n"
        "odd = their_greetings:missing\n[interlock.checks]\ngreetings = their_greetings:check\n"
    )
    (about.parent / "their_greetings.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(about.parent)


def test_every_entry_of_a_room_loads_and_every_file_is_one_of_a_room() -> None:
    found = {file.parent.relative_to(ROOT) for file in ROOT.glob("*/entry_points.txt")}
    files = {str(folder) for folder in found if folder.suffix != ".egg-info"}  # of an editable installation
    assert {"web", "acp", "fleet", "telemetry"} <= files <= {*MAY_IMPORT}
    ours = [one for group in GROUPS for one in find_entry_points(group) if one.value.startswith("interlock.")]
    rooms = {one.module.split(".")[1] for one in ours}
    assert rooms <= {*files, "cli"}  # commands of a part lie with the others
    assert all(callable(one.load()) for one in ours)


def test_a_module_that_is_registered_has_what_the_page_about_plugins_promises_of_it() -> None:
    page = (ROOT / "docs/plugins.md").read_text(encoding="utf-8")
    rows = re.findall(r"\| `(interlock\.\w+)` \| `(\w+)` \| a module with (.+?):", page)
    assert {group for group, *_ in rows} == {"interlock.repositories", "interlock.exporters"}
    for group, name, promised in rows:
        entry = find_entry_point(group, name)
        assert entry is not None
        module = entry.load()
        assert [
            one for one in re.findall(r"`(\w+)`", promised) if not callable(getattr(module, one, None))
        ] == []


def test_a_command_of_a_room_is_registered_by_that_room() -> None:
    for name, command in COMMANDS.items():
        if command.module.endswith("/"):
            entry = find_entry_point("interlock.commands", name)
            room = command.module[:-1] if "/" not in command.module[:-1] else "cli.commands"
            assert entry is not None and entry.module.startswith(f"interlock.{room}.")


def test_a_part_that_an_installation_can_lack_registers_in_its_folder() -> None:
    for file in ROOT.glob("*/*/entry_points.txt"):
        folder = ".".join(file.parent.relative_to(ROOT).parts)
        (part,) = [one for one in find_entry_points("interlock.parts") if folder in one.value]
        assert part.module.startswith(f"interlock.{folder}") and part.load()


def test_another_package_adds_a_command_and_a_line_of_doctor(
    theirs: None, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    for line, told in ((["greet"], "hello\n"), (["greet", "--loud"], "HELLO\n")):
        done = run(*line)
        assert (done.code, done.out) == (3, told)
    shown = run("--help").out
    assert "added:\n  greet" in shown and "Entry point their_greetings:greet" in shown
    with pytest.raises(SystemExit):
        run("greet", "--help")
    assert "usage: interlock greet [FLAGS]\n" in (told := capsys.readouterr().out) and "--loud" in told
    assert "greetings   none in " in run("doctor").out


def test_the_example_of_the_page_for_packages_works(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "plugins.md").read_text(), re.S)
    about = tmp_path / "site" / "our_interlock-1.0.dist-info"
    put(about / "METADATA", "Metadata-Version: 2.1\nName: our-interlock\nVersion: 1.0\n")
    entries = "[interlock.commands]\nreport = our_interlock:report\n"
    put(about / "entry_points.txt", f"{entries}[interlock.checks]\ngateway = our_interlock:check_gateway\n")
    put(about.parent / "our_interlock.py", example)
    monkeypatch.syspath_prepend(about.parent)
    assert (done := run("report", "--since", "7d")).code == 0, done.err
    assert "gateway     answers" in run("doctor").out


def test_another_package_replaces_no_command_and_a_broken_one_is_one_line(theirs: None, run: Run) -> None:
    assert "hello" not in run("runs").out
    broken = run("odd")
    assert (broken.code, broken.out) == (1, "")
    assert broken.err.startswith(
        "interlock: Entry point their_greetings:missing of interlock.commands, 'odd': AttributeError: "
    )
    assert broken.err.count("\n") == 1
    assert split_command_and_arguments(["greets", "people", "well"]) == (
        "prompt",
        ["greets", "people", "well"],
    )
