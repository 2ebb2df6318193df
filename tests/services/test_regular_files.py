"""A pipe, device or directory in the place of a file that configures something is told of, never waited for."""

import os
import threading
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pytest

from interlock.services.config.formats import edit_json_settings, write_dotenv_variables
from interlock.services.config.settings import read_json_object
from interlock.services.context.workspace_context import (
    read_ide_state,
    read_mode_prompt_replacement,
    read_system_prompt_replacement,
)
from interlock.services.files.disk import read_file
from interlock.services.files.protected import iterate_git_hook_and_include_paths
from interlock.services.policy.modes import load_modes
from interlock.state.errors import ConfigError


def _changed(path: Path) -> None:
    with edit_json_settings(path, "mcpServers"):
        pass


def _modes(path: Path) -> None:
    _, problems = load_modes(path.parent, path.parent / "home", trusted=True)
    raise ConfigError(problems[0])


READERS: list[tuple[str, Callable[[Path], object]]] = [
    ("settings.json", read_json_object),
    ("settings.json", _changed),
    (".env", lambda path: write_dotenv_variables(path, {"A": "b"})),
    (".roomodes", _modes),
    (
        "system.md",
        lambda path: read_system_prompt_replacement(
            {"GEMINI_SYSTEM_MD": str(path)}, path.parent, path.parent
        ),
    ),
    (".roo/system-prompt-code", lambda path: read_mode_prompt_replacement("code", path.parents[1], {})),
    ("ide.json", read_ide_state),
]


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a pipe; whoever waits for its writer is let go after a while, so that a failure is no hang."""
    timers: list[threading.Timer] = []

    def make(name: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        os.mkfifo(path)
        timers.append(threading.Timer(2, lambda: os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))))
        timers[-1].start()
        return path

    yield make
    for timer in timers:
        timer.cancel()


@pytest.mark.parametrize(("name", "read"), READERS)
def test_a_pipe_in_the_place_of_a_file_is_told_of(
    pipe: Callable[[str], Path], name: str, read: Callable[[Path], object]
) -> None:
    with pytest.raises(
        ConfigError, match=r"not a regular file|can't be changed \(not a regular file\)"
    ) as caught:
        read(pipe(name))
    assert "\n" not in str(caught.value)


def test_a_device_is_no_file_and_a_huge_one_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    (tmp_path / "huge").write_bytes(b"x" * 101)
    for name, why in [
        ("zero", "not a regular file"),
        ("huge", "larger than 100 bytes"),
        (".", "Is a directory"),
    ]:
        with pytest.raises(OSError, match=why):
            read_file(tmp_path / name, 100)


def test_settings_nested_too_deeply_are_not_changed_and_told_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(ConfigError, match="isn't plain JSON"):
        _changed(tmp_path / "settings.json")


def test_includes_of_git_that_multiply_are_each_read_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("[include]\n" + "path = b\n" * 30)
    (tmp_path / "b").write_text("[include]\n" + "path = a\n" * 30)
    assert len(list(islice(iterate_git_hook_and_include_paths(tmp_path / "a", tmp_path), 10_000))) == 60
