"""The examples: their READMEs work from an empty folder to the end; killed anywhere, they end the same."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pages import followed

from interlock.engine.options import Pending
from interlock.testing import Stage, agrees, kill_everywhere, said

pytestmark = pytest.mark.sweep  # killed at many moments, and their pages followed word for word

EXAMPLES = Path(__file__).parent.parent / "examples"
NAMES = sorted(p.parent.name for p in EXAMPLES.glob("*/README.md"))


ENDS = {
    "fix": "Mend the discount\n",
    "triage": '"kind": "question"',
    "release": "v1.0\n",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_its_readme_lead_to_its_end(name: str, tmp_path: Path) -> None:
    done = followed(EXAMPLES / name / "README.md", tmp_path / "work", EXAMPLES.parent)
    assert done.returncode == 0, done.stderr[-2000:]
    assert ENDS[name] in done.stdout


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=Demo", "-c", "user.email=demo@example.invalid")
    return subprocess.run(
        ["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout


def staged(name: str, scripts: str, allowed: tuple[str, ...]) -> Callable[[Path], Stage]:
    def make(folder: Path) -> Stage:
        shutil.copytree(EXAMPLES / name, folder / "work")
        git(folder / "work", "init", "-q")
        git(folder / "work", "config", "user.name", "Demo")
        git(folder / "work", "config", "user.email", "demo@example.invalid")
        git(folder / "work", "add", "-A")
        git(folder / "work", "commit", "-qm", "start")
        rules = tuple(f"run_shell_command({command})" for command in allowed)
        return Stage(
            folder,
            script=EXAMPLES / name / scripts,
            given={"approval_mode": "auto_edit", "allowed_tools": rules},
        )

    return make


def happened(stage: Stage, request: Pending) -> bool:
    """Check the repository, as a person would."""
    command = request["args"]["command"]
    if "git commit" in command:
        return len(git(stage.work, "log", "--oneline").splitlines()) > 1
    return command.startswith("git tag v") and bool(git(stage.work, "tag"))  # what only looks is repeated


def repository(stage: Stage) -> str:
    return git(stage.work, "log", "--format=%s %T") + git(stage.work, "tag")


def one_of(request: Pending) -> Any:
    """`slow.txt` is a question; everything else is answered by agreeing."""
    return said(request, "answer: question") if "issue" in request["reason"] else agrees(request)


KILLED: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "fix": ({"wish": "Mend it"}, "replies.yaml", ("python3 -m unittest", "git commit")),
    "triage": ({"file": "issues/slow.txt"}, "replies/slow.yaml", ()),
    "release": ({"version": "v1.0"}, "replies.yaml", ("git tag",)),
}


def kill(name: str, folder: Path, every: int) -> int:
    input, scripts, allowed = KILLED[name]
    file = EXAMPLES / name / ".interlock" / "workflows" / f"{name}.py"
    make = staged(name, scripts, allowed)
    return kill_everywhere(
        make, file, input, folder, person=one_of, happened=happened, more=repository, every=every
    )


@pytest.mark.parametrize("name", NAMES)
def test_killed_at_commits_it_ends_as_the_undisturbed_one(name: str, tmp_path: Path) -> None:
    """At one in 21, before and after a commit by turns; KILL_EVERY=1 takes all."""
    assert kill(name, tmp_path, 1 if "KILL_EVERY" in os.environ else 21) >= 2
