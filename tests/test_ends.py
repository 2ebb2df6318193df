"""What a whole run does at an answer's end: a block is final, a pause goes on, an unknown end counts."""

from pathlib import Path

import pytest
from commands import Ended, execute
from local_server import Local, delta


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    return work


def _asked(folder: Path, local: Local, *turns: object) -> Ended:
    local.turns += turns
    return execute(folder, "-m", "openai:qwen", "-p", "go", "-o", "text", env=local.env)


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", ["", "I will not"])
@pytest.mark.parametrize("end", ["refusal", "content_filter", "guardrail_intervened"])
def test_a_block_ends_the_prompt_and_isnt_asked_for_again(
    folder: Path, local: Local, end: str, text: str
) -> None:
    done = _asked(folder, local, [delta(content=text), delta(end)])
    assert done.returncode == 1 and f"blocked the answer ({end}" in done.stderr, done.stderr
    assert len(local.asked) == 1


def test_a_paused_answer_goes_on(folder: Path, local: Local) -> None:
    done = _asked(folder, local, [delta(content="First,"), delta("pause_turn")], "then the end.")
    assert done.returncode == 0 and done.stdout.endswith("then the end.\n"), done.stderr
    assert len(local.asked) == 2


def test_an_unknown_end_is_an_answer_with_a_warning(folder: Path, local: Local) -> None:
    done = _asked(folder, local, [delta(content="Yes."), delta("eos_maybe")])
    assert (done.returncode, done.stdout, len(local.asked)) == (0, "Yes.\n", 1)
    assert "'eos_maybe', which isn't known" in done.stderr
