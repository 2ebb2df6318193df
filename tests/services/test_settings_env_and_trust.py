"""test_settings_env_and_trust: `.env` files beside the environment, and which folders are trusted."""

import os
from pathlib import Path
from typing import Any

import pytest
from folders import put, table, tree

from interlock.services.config.formats import load_dotenv
from interlock.services.trust.decisions import is_trusted
from interlock.state.errors import ConfigError

TABLE: dict[str, list[Any]] = table(__file__, "settings.yaml")


@pytest.mark.parametrize(("files", "env", "trusted", "values", "read", "ignored"), TABLE["dotenv"])
def test_variables_come_from_files(
    tmp_path: Path,
    files: dict[str, str],
    env: dict[str, str],
    trusted: bool,
    values: dict[str, str],
    read: list[str],
    ignored: list[str],
) -> None:
    tree(tmp_path, {**files, "work/sub/": ""})
    found = load_dotenv(start=tmp_path / "work/sub", home=tmp_path / "home", env=env, trusted=trusted)
    assert found.values == values
    assert found.files == [tmp_path / name for name in read]
    assert found.ignored == [tmp_path / name for name in ignored]


def test_the_users_own_file_needs_no_trust_when_it_is_also_the_nearest(tmp_path: Path) -> None:
    own = put(tmp_path / ".gemini/.env", "INTERLOCK_TEST_VALUE=1")
    found = load_dotenv(start=tmp_path, home=tmp_path, env={}, trusted=False)
    assert (found.values, found.files, found.ignored) == ({"INTERLOCK_TEST_VALUE": "1"}, [own], [])
    assert "INTERLOCK_TEST_VALUE" not in os.environ


def test_values_are_read_as_people_write_them_and_never_expanded(tmp_path: Path) -> None:
    text = "\ufeff# c\nexport A='x y' # c\nB=\"q\\nr\"\nC=$A\nD=\nE\nnot a line\n F = 1 \nG=a=b#c\n"
    file = put(tmp_path / ".env", text)
    found = load_dotenv(start=tmp_path, home=tmp_path / "home", env={}, trusted=True)
    assert found.values == {"A": "x y", "B": "q\nr", "C": "$A", "D": "", "F": "1", "G": "a=b#c"}
    assert found.warnings == [f"{file}:7: expected NAME=value."]


def test_a_folder_named_env_is_no_file_and_bad_bytes_are_a_warning(tmp_path: Path) -> None:
    tree(tmp_path, {"work/.env/": "", ".env": b"A=\xff"})
    found = load_dotenv(start=tmp_path / "work", home=tmp_path / "home", env={}, trusted=True)
    assert found.values == {}
    assert "not read" in found.warnings[0]


def trust(home: Path, content: Any) -> None:
    put(home / ".interlock/trusted.json", content)


@pytest.mark.parametrize(("folder", "expected"), TABLE["trust"])
def test_the_longest_directory_decides(tmp_path: Path, folder: str, expected: bool) -> None:
    entries = {"a": "trusted", "a/bad": "untrusted", "a/bad/good": "trusted"}
    trust(tmp_path / "home", {str(tmp_path / k): v for k, v in entries.items()})
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert is_trusted(tmp_path / folder, tmp_path / "home") is expected


def test_a_link_is_what_it_leads_to_and_a_tilde_the_given_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert not is_trusted(tmp_path, home), "without a word"
    tree(tmp_path, {"good/": "", "evil/": ""})
    (tmp_path / "good/link").symlink_to(tmp_path / "evil")
    (tmp_path / "alias").symlink_to(tmp_path / "good")
    trust(home, {str(tmp_path / "alias"): "trusted", "~/code": "trusted", "~": "untrusted"})
    assert [is_trusted(tmp_path / name, home) for name in ("good", "good/link")] == [True, False]
    assert [is_trusted(home / name, home) for name in ("code/x", "other")] == [True, False]


@pytest.mark.parametrize(("content", "message"), TABLE["mistrust"])
def test_a_trust_file_that_can_not_be_meant_is_an_error(tmp_path: Path, content: Any, message: str) -> None:
    trust(tmp_path, content)
    with pytest.raises(ConfigError, match=message):
        is_trusted(tmp_path, tmp_path)
