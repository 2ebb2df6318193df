"""Picking from a list, and the status line, at common terminal widths."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from patience import HANG_S
from prompt_toolkit.application import Application
from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.layout import Layout
from prompt_toolkit.output import DummyOutput
from rich.cells import cell_len

from interlock.cli.session.picker import Picker, Row
from interlock.cli.session.status import StatusValues, status_line
from interlock.engine.client.git_branch import read_git_branch_or_commit

ROWS = [Row(f"run {n}", f"number {n}", n) for n in range(200)] + [Row("日本語の実行", "x" * 80, "wide")]


def picked(keys: str, rows: Sequence[Row] = ROWS) -> object:
    async def pick() -> object:
        with create_pipe_input() as typed:
            picker = Picker("Which?", rows, lambda: 40)
            app = Application[None](Layout(picker.container, picker.input), input=typed, output=DummyOutput())
            app.ttimeoutlen = app.timeoutlen = 0.01
            typed.send_text(keys)
            showing = asyncio.ensure_future(app.run_async())
            row = await asyncio.wait_for(picker.chosen, HANG_S)
            app.exit()
            await showing
            return row and row.value

    return asyncio.run(pick())


DOWN, UP, PAGE = "\x1b[B", "\x1b[A", "\x1b[6~"


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        ("\r", 0),
        (f"{DOWN}{DOWN}{UP}\r", 1),
        (f"{UP}\r", 0),
        (f"{PAGE}\r", 9),
        (f"{PAGE * 40}\r", "wide"),
        ("number 42\r", 42),
        ("日実\r", "wide"),
        (f"nothing of that\r\x15run 7{DOWN}\r", 70),
        ("\x1b", None),
        ("\x03", None),
    ],
)
def test_typing_filters_arrows_move_enter_takes_escape_leaves(keys: str, value: object) -> None:
    assert picked(keys) == value


def test_a_list_is_drawn_within_its_columns() -> None:
    async def draw() -> list[str]:
        picker = Picker("Which of all the runs that there are in this folder?", ROWS, lambda: 40, at=200)
        return [fragment_list_to_text(part) for part in (picker.heading_text(), picker.visible_rows())]

    heading, lines = asyncio.run(draw())
    shown = lines.split("\n")
    assert len(shown) == 10
    assert shown[-1].startswith("❯ 日本語の実行")
    assert all(cell_len(line) <= 40 for line in [heading, *shown])


def test_a_row_whose_text_is_read_after_the_filter_was_typed_is_found() -> None:
    async def draw() -> str:
        row, read = Row("first prompt"), asyncio.Event()
        picker = Picker("Which?", [row, Row("other")], lambda: 60)
        picker.input.buffer.text = "needle"
        assert "nothing fits" in fragment_list_to_text(picker.visible_rows())
        picker.read_texts_in_thread((row.text.append(text) for text in ("hay", "a needle")), read.set)
        async with asyncio.timeout(HANG_S):
            while "a needle" not in (shown := fragment_list_to_text(picker.visible_rows())):
                read.clear()
                await read.wait()
        return shown

    assert asyncio.run(draw()).startswith("❯ first prompt")


FIGURES = StatusValues("gemini-2.5-pro", "auto_edit", "architect", 87, 12_300, 0.0312, "feature/login", 2)


def line(figures: StatusValues, width: int) -> str:
    return fragment_list_to_text(status_line(figures, width))


def test_the_status_line_leaves_out_what_can_be_missed_first() -> None:
    most = "accepts edits · gemini-2.5-pro · 87% left · $0.03 · 2 wait elsewhere"
    all_of_it = (
        "accepts edits · gemini-2.5-pro · architect mode · 87% left · 12.3k tokens · $0.03 · ⎇ feature/login"
        " · 2 wait elsewhere"
    )
    assert line(FIGURES, 200) == all_of_it
    assert line(FIGURES, 80) == most
    assert line(FIGURES, 40) == "accepts edits · 2 wait elsewhere"
    assert line(StatusValues("script:/a/b/replies.yaml"), 40) == "asks first · replies.yaml"
    assert (
        line(replace(FIGURES, running="$ make test 12 s", elsewhere=0), 40)
        == "$ make test 12 s · accepts edits"
    )


@pytest.mark.parametrize("width", [0, 1, 5, 10, 39, 40, 41, 80, 300])
def test_it_never_is_wider_than_the_terminal(width: int) -> None:
    wide = StatusValues("語" * 60, "yolo", "語" * 60, 3, 10**9, 1e6, "語" * 90, 1_000)
    assert all(cell_len(line(figures, width)) <= width for figures in (FIGURES, wide))


def test_the_branch_is_read_from_a_repository_a_worktree_and_nowhere(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    import subprocess

    root = tmp_path_factory.mktemp("repository")
    assert read_git_branch_or_commit(root) == ""
    for command in (
        "init -qb feature/x",
        "commit -qm first --allow-empty",
        "worktree add -qb second ../second",
    ):
        subprocess.run(
            ["git", "-c", "user.name=T", "-c", "user.email=t@example.invalid", *command.split()],
            cwd=root,
            check=True,
        )
    (root / "below").mkdir()
    assert read_git_branch_or_commit(root / "below") == "feature/x"
    assert read_git_branch_or_commit(root.parent / "second") == "second"
    subprocess.run(["git", "checkout", "-q", "--detach"], cwd=root, check=True)
    assert len(read_git_branch_or_commit(root)) == 8
