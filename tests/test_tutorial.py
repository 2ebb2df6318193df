"""The tutorial and the scaffold work as shown, word for word."""

import re
from pathlib import Path

import pytest
from pages import followed

from interlock.cli.main import main

pytestmark = pytest.mark.sweep  # half a minute: creates environments, runs tests of tests

PAGE = Path(__file__).parent.parent / "docs" / "tutorial.md"


def test_the_tutorial_works_as_it_is_written(tmp_path: Path) -> None:
    done = followed(PAGE, tmp_path / "work", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "work" / "NEWS.md").read_text() == "Starts faster."
    assert "Starts at once." in done.stdout
    assert "done {'line': 'Starts faster.'}" in done.stdout


def test_its_workflow_has_three_nodes_and_an_approval_in_forty_lines() -> None:
    block = re.search(r"^# file: \.interlock.*?\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert block
    code = [line for line in block[1].splitlines() if line.strip()]
    assert len(code) <= 40
    assert sum(line.startswith("@node") for line in code) == 3
    assert "approve(" in block[1]


def test_a_new_workflow_runs_at_once_and_its_test_passes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\n"
        'mkdir "$WORK" && cd "$WORK"\n'
        "interlock new workflow say-hello\n"
        "interlock trust --yes\n"
        "interlock run say-hello World  # exit 75\n"
        "interlock resume latest --approve 1\n"
        "interlock new workflow say-hello  # exit 2\n"
        "python -m pytest -q -p no:cacheprovider tests/test_say_hello.py\n"
        "```\n"
    )
    done = followed(page, tmp_path / "work", tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert '"greeting": "Hello, World!"' in done.stdout
    assert ".interlock/workflows/say_hello.py is there already" in done.stderr


def test_a_name_that_cant_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, why in (
        ("main", "one of Interlock's own"),
        ("A b", "joined by hyphens"),
        ("../x", "joined by"),
    ):
        assert main(["new", "workflow", name]) == 2
        assert why in capsys.readouterr().err
    assert main(["new", "skill", "x"]) == 2
    assert list(tmp_path.iterdir()) == []
