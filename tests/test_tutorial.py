"""The tutorial, the scaffold and every command block of the pages work as shown, word for word."""

import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from folders import put
from pages import followed
from session.terminal import ENTRY, Terminal

from interlock.cli.main import main

pytestmark = pytest.mark.sweep  # half a minute: creates environments, runs tests of tests

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "tutorial.md"
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{p.name}" for p in sorted(ROOT.glob("docs/*.md")) if p != PAGE),
]
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("name", PAGES)
def test_each_command_block_works_in_a_fresh_shell_or_says_what_it_needs(
    name: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the demo's repository, where the latest run waits, or, for travel, is done."""
    sys.path.insert(0, str(ROOT / "docs"))
    import demo

    work, kept, page = tmp_path / "shop", tmp_path / "kept", tmp_path / "page.md"
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    demo.make_repository(work)
    replies = (ROOT / "docs" / "demo.yaml").read_text()
    (tmp_path / "replies.yaml").write_text(re.sub(r"^- expect: .*\n  ", "- ", replies, flags=re.MULTILINE))
    ask = f"interlock -p fix -m script:{tmp_path}/replies.yaml"
    ask += " --allowed-tools 'run_shell_command(python3 -m unittest)'  # exit 75\n"
    page.write_text(f"```sh\n{ask}{'interlock resume latest --approve all' * ('travel' in name)}\n```\n")
    assert followed(page, work, work).returncode == 0
    put(tmp_path / "any.json", [{"text": "Done."}] * 9)
    _stand_in_for_crontab(tmp_path / "bin", monkeypatch)
    shutil.copytree(work, kept / "work")
    shutil.copytree(home, kept / "home", symlinks=True)
    for found in BLOCK.findall((ROOT / name).read_text()):
        block = textwrap.dedent(found)
        modelled = block.startswith("# needs a model\n")
        if block.startswith("# needs ") and not modelled:
            subprocess.run(["bash", "-n", "-c", block], check=True)
            continue
        for folder, source in ((work, "work"), (home, "home")):
            shutil.rmtree(folder)
            shutil.copytree(kept / source, folder, symlinks=True)
        if modelled:
            _configure(home, tmp_path / "any.json")
        page.write_text(f"```sh\n{block}```\n")
        done = followed(page, work, work)
        assert done.returncode == 0, block + done.stdout[-2000:] + done.stderr[-2000:]


def _stand_in_for_crontab(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `crontab` be a file: `-l` prints it, `-` writes it."""
    kept = folder / "crontab.txt"
    put(folder / "crontab", f"#!/bin/sh\ncase $1 in -l) cat {kept} ;; -) cat > {kept} ;; esac\n").chmod(0o700)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize(
    ("heading", "result"),
    [("### Let your LangGraph", "review: answered by"), ("### Run your own workflow", "0 7 * * * cd '")],
)
def test_a_journey_works_pasted_into_a_terminal(
    heading: str, result: str, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All lines at once, as a newcomer pastes them; `test_each_command_block…` runs them as a script."""
    section = (ROOT / "README.md").read_text().partition(heading)[2].partition("\n##")[0]
    (block,) = BLOCK.findall(section)
    assert len(block.splitlines()) <= 8
    (work := home / "work").mkdir()
    for file, code in re.findall(r"^```python\n# file: (\S+)\n(.*?)^```$", section, re.DOTALL | re.MULTILINE):
        (work / file).write_text(code)
    _stand_in_for_crontab(tmp_path / "bin", monkeypatch)
    env = {"PATH": f"{ENTRY.parent}:{os.environ['PATH']}", "PS1": "ready> "}
    with Terminal(work, command=("bash", "--norc", "-i"), columns=120, rows=50, env=env) as terminal:
        terminal.waits_for("ready>")
        shown = "cat $(dirname $(command -v crontab))/crontab.txt; interlock show latest | cat"
        terminal.type(f"{block}{shown}; echo all-$((1 + 1))\r", then="all-2")
        assert result in "\n".join(terminal.scrollback)


def _configure(home: Path, script: Path) -> None:
    """Let a scripted model stand for the one that a block needs."""
    (file := home / ".interlock/settings.json").parent.mkdir(exist_ok=True)
    settings = {"name": f"script:{script}", "skipNextSpeakerCheck": True}
    put(file, {"model": settings})


def test_no_command_block_is_written_so_that_the_test_above_misses_it() -> None:
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")):
        assert not re.findall(r"^ *```(?:bash|shell|console|zsh)", page.read_text(), re.MULTILINE), page


def test_the_tutorial_works_as_it_is_written(tmp_path: Path, home: Path) -> None:
    done = followed(PAGE, tmp_path / "work", tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (home / "interlock-tutorial" / "CHANGES.md").read_text() == "Starts faster."
    assert "Starts at once." in done.stdout
    assert "done {'line': 'Starts faster.'}" in done.stdout


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
    assert ".interlock/workflows/say_hello.py already exists" in done.stderr


def test_a_name_that_cant_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, why in (("main", "is built in"), ("A b", "joined by hyphens"), ("../x", "joined by")):
        assert main(["new", "workflow", name]) == 2
        assert why in capsys.readouterr().err
    assert main(["new", "skill", "x"]) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_page_for_langgraph_works_as_it_is_written(tmp_path: Path) -> None:
    page = ROOT / "docs" / "langgraph.md"
    first, _, _ = page.read_text().partition("\n## ")
    assert len(first.splitlines()) <= 60
    done = followed(page, tmp_path, tmp_path)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    for text in (
        '"text": "Green tea."',
        '"text": "Black tea."',
        "node 'crash' calls Path('crashed').touch(…)",
    ):
        assert text in done.stdout
    assert "node 'draft'" not in done.stdout
