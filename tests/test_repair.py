"""`repair`: each way in which a repair ends, what the model is told, what a kill and a replay cost."""

import asyncio
import json
import os
import pwd
import shutil
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from agent_runs.stage import Move, Replies, Stage, approve, cancel, refuse, untaken
from commands import Ended, execute
from folders import put, tree
from local_server import Local

from interlock.engine import Outcome
from interlock.engine.diagrams import declared_edges
from interlock.engine.travel.replay import replay_run
from interlock.state.repair import ATTEMPTS
from interlock.state.text import dict_or_empty
from interlock.testing import Stage as KillStage
from interlock.testing import kill_everywhere

pytestmark = pytest.mark.usefixtures("nodes_declare_what_they_ask")

BAD = "def f():\n    return 'bad'\n\n\ndef g():\n    return 'bad'\n"
RUN = """fail() { echo "FAIL: test_$1 (test_a.T)"; echo "AssertionError: $1"; failed=1; }
failed=0
grep -q "return 'f'" a.py || fail f
grep -q "return 'g'" a.py || fail g
grep -q broken a.py && fail h
echo "Ran 3 tests in 0.001s"
exit $failed
"""
"""Prints as unittest does, in a hundredth of its time."""
FILES: Mapping[str, str] = {
    "a.py": BAD,
    "tests/test_a.py": "from a import f, g\n\n\ndef test_f():\n    f()\n\n\ndef test_g():\n    g()\n",
    "tests/run.sh": RUN,
}
CHECK = "sh tests/run.sh"


def says(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "repair", "text": text, **more}


def code(text: str, **more: Any) -> dict[str, Any]:
    """An answer with a code block."""
    return says(f"It is wrong.\n```python\n{text}```\n", **more)


F = BAD.replace("'bad'", "'f'", 1)
GOOD = F.replace("'bad'", "'g'")
BREAKS = GOOD.replace("'f'", "'f'  # broken")
WRONG = code(BAD.replace("bad", "worse"))


class Scene(NamedTuple):
    replies: Replies
    status: str
    error: str = ""
    """Type of the error."""
    moves: Sequence[Move] = ()
    after: str = BAD
    given: Mapping[str, Any] = MappingProxyType({})
    options: Mapping[str, Any] = MappingProxyType({})
    files: Mapping[str, str] = FILES
    says: str = ""
    """In the answer or the error."""


SCENES: Mapping[str, Scene] = {
    "repaired": Scene([code(GOOD)], "done", after=GOOD, says="Repaired: 'sh tests/run.sh' passes."),
    "only a function in the answer": Scene(
        [code("def f():\n    return 'f'\n\ndef g():\n    return 'g'\n")], "done", after=GOOD
    ),
    "asked for twice": Scene(
        [code(GOOD)], "done", moves=[approve, approve], after=GOOD, options={"approval_mode": "default"}
    ),
    "one after the other": Scene(
        [code(F), {"expect": "return 'f'", **code(GOOD)}], "done", after=GOOD, says="+    return 'g'"
    ),
    "no code, cut off, about something else, nothing new, and then right": Scene(
        [
            says("Change f."),
            says("So:\n```python\ndef f():\n    ret", finish_reason="length"),
            code("def other():\n    pass\n"),
            code(BAD),
            code("def f(:\n"),
            WRONG,
            {"expect": "These changes were tried in vain", **WRONG},
            code(GOOD),
        ],
        "done",
        after=GOOD,
    ),
    "a fix that breaks another test": Scene(
        [code(BREAKS), says("?"), {"expect": r"it breaks test_h \(test_a.T\)", **code(GOOD)}],
        "done",
        after=GOOD,
    ),
    "never right": Scene(
        [WRONG, code(F), says("?")],
        "not_repaired",
        "not_repaired",
        given={"attempts": 3},
        says="+    return 'f'",
    ),
    "passes at once": Scene([], "done", files={**FILES, "a.py": GOOD}, after=GOOD, says="Nothing to repair"),
    "no model": Scene([], "failed", "model"),
    "nobody allows the check": Scene(
        [], "not_repaired", "rejected", moves=[refuse], options={"approval_mode": "default"}
    ),
    "stopped at the check": Scene(
        [], "cancelled", "cancelled", moves=[cancel], options={"approval_mode": "default"}
    ),
    "a mode that changes nothing": Scene([], "not_repaired", "denied", options={"approval_mode": "plan"}),
    "nobody allows the edit": Scene(
        [code(GOOD)],
        "not_repaired",
        "refused",
        moves=[approve, refuse],
        options={"approval_mode": "default"},
        says="This correction passes the check, and wasn't applied",
    ),
    "no tests in the repository": Scene(
        [], "not_repaired", "no_tests", options={"check": ""}, files={"a.py": BAD}, says="--check"
    ),
    "the project's own command": Scene(
        [code(GOOD)],
        "done",
        options={"check": ""},
        files={
            "a.py": BAD,
            "tests/run.sh": RUN,
            "tests/a.js": "f(); g()\n",
            "Makefile": "test:\n\t@sh tests/run.sh\n",
        },
        after=GOOD,
        says="'make test' passes",
    ),
    "no test ran": Scene(
        [], "not_repaired", "no_tests", files={**FILES, "tests/run.sh": "echo Ran 0 tests in 0.000s\n"}
    ),
    "no code to suspect": Scene(
        [], "not_repaired", "not_located", files={"tests/run.sh": "exit 1\n", "a.py": BAD}
    ),
    "a check that never ends": Scene(
        [],
        "not_repaired",
        "check_timeout",
        given={"check_timeout_s": 0.2},
        files={**FILES, "tests/run.sh": "exec tail -f /dev/null\n"},
    ),
    "a correction that never ends": Scene(
        [code(GOOD.replace("'g'", "'g'  # loop")), says("?"), {"expect": "something loops", **code(GOOD)}],
        "done",
        given={"check_timeout_s": 1.0},
        files={**FILES, "tests/run.sh": f"grep -q loop a.py && exec tail -f /dev/null\n{RUN}"},
        after=GOOD,
    ),
}


def play(scene: Scene, folder: Path) -> tuple[Stage, Outcome]:
    stage = Stage(folder, [*scene.replies])
    (stage.work / "a.py").unlink()
    tree(stage.work, scene.files)
    options = {"check": CHECK, "approval_mode": "yolo", **scene.options}
    outcome = stage.run("repair", {**scene.given}, **options)
    for move in scene.moves:
        assert outcome.status == "waiting", outcome.error
        outcome = stage.resume(outcome, *move(outcome))
    return stage, outcome


def counting(folder: Path, body: str) -> Mapping[str, str]:
    """Files whose check counts its runs, those in views too, as `$n` from 1 on."""
    count = folder / "count"
    put(count, "0")
    return {**FILES, "tests/run.sh": f"n=$(($(cat {count}) + 1)); echo $n > {count}\n{body}"}


@pytest.mark.parametrize("name", SCENES)
def test_a_repair_ends_as_it_should(name: str, tmp_path: Path) -> None:
    scene = SCENES[name]
    stage, outcome = play(scene, tmp_path)
    assert (outcome.status, dict_or_empty(outcome.output.get("error")).get("type", "")) == (
        scene.status,
        scene.error,
    )
    codes = {"done": 0, "failed": 1, "cancelled": 130}
    assert outcome.exit_code == codes.get(scene.status, 56), outcome
    assert scene.says in outcome.output["response"] + str(outcome.error), outcome.output
    if "a.py" in scene.files:
        assert (stage.work / "a.py").read_text() == scene.after
    assert outcome.output["changed"] == (["a.py"] if scene.after != scene.files.get("a.py", BAD) else [])
    for path, text in scene.files.items():
        assert path == "a.py" or (stage.work / path).read_text() == text
    assert not [*(stage.folder / "home" / "views").glob("*")]


def test_what_breaks_another_test_is_no_progress(tmp_path: Path) -> None:
    """Though fewer tests fail with it."""
    _, outcome = play(Scene([code(BREAKS)], "", given={"attempts": 1}), tmp_path)
    assert (outcome.output["failing"], outcome.output["proposal"]) == (2, "")


FLAKY: Mapping[str, tuple[str, Replies]] = {
    "at once": ('[ $n = 2 ] && exit 0; echo "FAIL: test_f (t.T)"; exit 1\n', []),
    "in other tests": ('echo "FAIL: test_$n (t.T)"; exit 1\n', []),
    "with the correction": (f"[ $n = 4 ] && exit 1\n{RUN}", [code(GOOD)]),
}


@pytest.mark.parametrize("name", FLAKY)
def test_a_flaky_check_is_told_and_changes_nothing(name: str, tmp_path: Path) -> None:
    body, replies = FLAKY[name]
    stage, outcome = play(Scene(replies, "", files=counting(tmp_path, body)), tmp_path)
    assert outcome.status == "not_repaired" and outcome.output["error"]["type"] == "flaky", outcome
    assert (stage.work / "a.py").read_text() == BAD


def test_a_workspace_that_fails_after_the_edit_is_no_repair(tmp_path: Path) -> None:
    """It passes in three views, and fails where the edit is."""
    body = f"[ $n = 6 ] && exit 1\n{RUN}"
    _, outcome = play(Scene([code(GOOD)], "", files=counting(tmp_path, body)), tmp_path)
    assert outcome.exit_code == 56 and "interlock undo" in outcome.output["error"]["message"]


def test_a_check_that_needs_the_workspace_itself_is_told(tmp_path: Path) -> None:
    body = '[ $n != 1 ] && { echo "FAIL: test_view (t.T)"; exit 1; }; echo "FAIL: test_f (t.T)"; exit 1\n'
    _, outcome = play(Scene([], "", files=counting(tmp_path, body)), tmp_path)
    assert outcome.output["error"]["type"] == "check_view"


def test_scenes_take_every_edge(tmp_path: Path) -> None:
    runs = [play(scene, tmp_path / name.replace(" ", "_")) for name, scene in SCENES.items()]
    runs.append(
        play(
            Scene([code(GOOD)], "", files=counting(tmp_path, FLAKY["with the correction"][0])), tmp_path / "x"
        )
    )
    assert untaken("repair", runs) == set()


def test_a_replay_asks_no_model_and_runs_no_check(tmp_path: Path) -> None:
    scene = SCENES["one after the other"]
    stage, outcome = play(scene._replace(files=counting(tmp_path, RUN)), tmp_path)
    before = (tmp_path / "count").read_text()
    stage.write([])
    found = asyncio.run(replay_run(stage.folder / "home", outcome.run))
    assert found.divergence is None, found
    assert (tmp_path / "count").read_text() == before
    assert (stage.work / "a.py").read_text() == GOOD


class Project(NamedTuple):
    """A repository in another language, with its own runner."""

    program: str
    check: str
    files: Mapping[str, str]
    path: str
    answer: str
    """Code in the answer: the function alone."""
    wrong: str
    right: str


RUST = """/// The price after a discount of so many percent.
pub fn discount(price: u32, percent: u32) -> u32 {
    price - price * percent / 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_off() {
        assert_eq!(discount(80, 5), 76);
    }
}
"""
PROJECTS = [
    Project(
        "node",
        "node --test",
        {
            "cart.js": "const { rate } = require('./tax.js');\n\nfunction total(cents) {\n"
            "  return cents * (100 + rate(cents)) / 100;\n}\n\nmodule.exports = { total };\n",
            "tax.js": "function rate(cents) {\n  return cents > 1000 ? 19 : 0;\n}\n\nmodule.exports = { rate };\n",
            "test/cart.test.js": "const test = require('node:test');\nconst assert = require('node:assert');\n"
            "const { total } = require('../cart.js');\n\ntest('sums with tax', () => {\n"
            "  assert.strictEqual(total(1000), 1190);\n});\n",
        },
        "tax.js",
        "function rate(cents) {\n  return cents >= 1000 ? 19 : 0;\n}\n",
        "> 1000",
        ">= 1000",
    ),
    Project(
        "go",
        "go test ./...",
        {
            "go.mod": "module shop\n\ngo 1.19\n",
            "tax.go": "package shop\n\n// Rate says how many percent are due.\nfunc Rate(cents int) int {\n"
            "\tif cents > 1000 {\n\t\treturn 19\n\t}\n\treturn 0\n}\n",
            "tax_test.go": 'package shop\n\nimport "testing"\n\nfunc TestRate(t *testing.T) {\n'
            '\tif got := Rate(1000); got != 19 {\n\t\tt.Errorf("got %d, expected 19", got)\n\t}\n}\n',
        },
        "tax.go",
        "func Rate(cents int) int {\n\tif cents >= 1000 {\n\t\treturn 19\n\t}\n\treturn 0\n}\n",
        "> 1000",
        ">= 1000",
    ),
    Project(
        "cargo",
        "cargo test --offline",
        {
            "Cargo.toml": '[package]\nname = "shop"\nversion = "0.1.0"\nedition = "2021"\n',
            "src/lib.rs": RUST,
        },
        "src/lib.rs",
        "pub fn discount(price: u32, percent: u32) -> u32 {\n    price - price * percent / 100\n}\n",
        "/ 10\n",
        "/ 100\n",
    ),
]


@pytest.mark.sweep
@pytest.mark.parametrize("project", PROJECTS, ids=lambda project: project.program)
def test_other_languages_are_repaired_with_their_own_runners(project: Project, tmp_path: Path) -> None:
    """Where the fault isn't in the first place suspected, the answer about that place changes nothing."""
    if shutil.which(project.program) is None:
        pytest.skip(f"{project.program} isn't installed")
    answer = code(project.answer)
    env = {"PATH": os.environ["PATH"], "HOME": pwd.getpwuid(os.getuid()).pw_dir}  # where toolchains lie
    scene = Scene([answer] * 4, "", files=project.files, options={"check": project.check, "env": env})
    stage, outcome = play(scene, tmp_path)
    assert (outcome.status, outcome.output["changed"]) == ("done", [project.path]), outcome
    for path, text in project.files.items():
        after = text.replace(project.wrong, project.right) if path == project.path else text
        assert (stage.work / path).read_text() == after


@pytest.fixture
def small(tmp_path: Path, local: Local) -> Callable[..., Ended]:
    """Run a command with a small model on this machine."""
    work = tmp_path / "work"
    tree(work, FILES)
    local.is_llama()
    return partial(execute, work, "-m", "openai:qwen", "-y", "--check", CHECK, env=local.env)


def text_of(answer: dict[str, Any]) -> str:
    return answer["text"]


TURN = json.dumps({"text": "I can't."})


@pytest.mark.parametrize("words", ["the tests fail, fix it", "write tests for f"])
def test_a_small_model_with_a_check_repairs_before_it_is_left_to_itself(
    words: str, small: Callable[..., Ended], local: Local, tmp_path: Path
) -> None:
    repairs = "fix" in words
    local.turns += [text_of(WRONG), text_of(code(GOOD))] if repairs else [TURN] * 2
    done = small("--protocol", "json", "--max-turns", "2", "-p", words)
    assert (done.returncode == 0) == repairs, done.stderr
    assert ((tmp_path / "work/a.py").read_text() == GOOD) == repairs
    assert ("Repaired:" in done.stdout) == repairs
    assert all(("response_format" in request) != repairs for request in local.asked)


def test_a_small_models_failed_repair_ends_its_run(
    small: Callable[..., Ended], local: Local, tmp_path: Path
) -> None:
    local.turns += [text_of(WRONG)] * ATTEMPTS
    done = small("-p", "the tests fail, fix it")
    assert (done.returncode, done.stdout) == (56, ""), done.stderr
    assert "16 corrections tried, and none makes 'sh tests/run.sh' succeed." in done.stderr
    assert (tmp_path / "work/a.py").read_text() == BAD


def test_what_is_no_repair_goes_on_to_the_first_turn(
    small: Callable[..., Ended], local: Local, tmp_path: Path
) -> None:
    put(tmp_path / "work/a.py", GOOD)
    local.turns += [json.dumps({"text": "It is there."})]
    done = small("--protocol", "json", "-p", "add a function h")
    assert (done.returncode, done.stdout) == (0, "It is there.\n"), done.stderr


def test_main_takes_every_edge_to_and_from_a_repair(tmp_path: Path) -> None:
    taken = set[tuple[str, str, str]]()
    for name, text, replies in (
        ("repaired", BAD, [code(GOOD)]),
        ("passes at once", GOOD, [{"text": "It is there."}]),
        ("never right", BAD, [WRONG] * ATTEMPTS),
    ):
        stage = Stage(tmp_path / name, replies)
        tree(stage.work, {**FILES, "a.py": text})
        given = {"check": CHECK, "prompt_profile": "small", "approval_mode": "yolo"}
        taken |= stage.edges(stage.run("main", {"prompt": "The tests fail, fix it."}, **given))
    mine = {e for e in declared_edges("main") if e[0] == "main" and {"repair", "take_repair"} & {*e}}
    assert len(mine) == 5 and mine - taken == set()


def staged(folder: Path) -> KillStage:
    given = {"approval_mode": "yolo", "check": CHECK}
    return KillStage(folder, replies=[WRONG, code(F), code(GOOD)], files={**FILES}, given=given)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.sweep)])
def test_killed_at_commits_a_repair_is_made_once(every: int, tmp_path: Path) -> None:
    assert kill_everywhere(staged, "repair", {}, tmp_path, every=every) >= 3
