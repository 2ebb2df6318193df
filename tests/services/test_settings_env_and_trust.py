"""test_settings_env_and_trust: `.env` files beside the environment, and which folders are trusted."""

import os
from pathlib import Path
from typing import Any

import pytest
from folders import put, tree

from interlock.services.config.formats import load_dotenv
from interlock.services.trust import is_trusted
from interlock.state.errors import ConfigError


def test_real_variables_win_over_files_and_near_files_over_the_users(tmp_path: Path) -> None:
    home, start = tmp_path / "home", tmp_path / "work/sub"
    start.mkdir(parents=True)
    near = put(tmp_path / "work/.env", "A=near\nB=near\nC=near\n")
    own = put(home / ".gemini/.env", "A=own\nB=own\nC=own\nD=own\n")
    found = load_dotenv(start=start, home=home, env={"A": "real", "B": ""}, trusted=True)
    assert found.values == {"A": "real", "B": "", "C": "near", "D": "own"}
    assert found.files == [near, own]


def test_the_nearest_file_is_taken_and_the_one_in_gemini_before_its_neighbour(tmp_path: Path) -> None:
    tree(tmp_path, {".env": "A=far\nB=far", "work/.env": "A=plain", "work/.gemini/.env": "A=gemini"})
    found = load_dotenv(start=tmp_path / "work", home=tmp_path / "home", env={}, trusted=True)
    assert found.values == {"A": "gemini"}


def test_an_untrusted_folder_can_not_redirect_the_users_key(tmp_path: Path) -> None:
    theirs = put(tmp_path / "work/.env", "GOOGLE_GEMINI_BASE_URL=http://elsewhere.invalid")
    put(tmp_path / "home/.gemini/.env", "GEMINI_API_KEY=k")
    found = load_dotenv(start=tmp_path / "work", home=tmp_path / "home", env={}, trusted=False)
    assert found.values == {"GEMINI_API_KEY": "k"}
    assert found.ignored == [theirs]


def test_the_users_own_file_needs_no_trust_when_it_is_also_the_nearest(tmp_path: Path) -> None:
    own = put(tmp_path / ".gemini/.env", "A=1")
    found = load_dotenv(start=tmp_path, home=tmp_path, env={}, trusted=False)
    assert (found.values, found.files, found.ignored) == ({"A": "1"}, [own], [])


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


def test_the_process_environment_stays_as_it_is(tmp_path: Path) -> None:
    put(tmp_path / ".env", "INTERLOCK_TEST_VALUE=1")
    load_dotenv(start=tmp_path, home=tmp_path / "home", env={}, trusted=True)
    assert "INTERLOCK_TEST_VALUE" not in os.environ


def trust(home: Path, content: Any) -> None:
    put(home / ".interlock/trusted.json", content)


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("a", True),
        ("a/deep/er", True),
        ("a/bad", False),
        ("a/bad/deep", False),
        ("a/bad/good/x", True),
        ("ab", False),
        ("", False),
    ],
)
def test_the_longest_directory_decides(tmp_path: Path, folder: str, expected: bool) -> None:
    entries = {"a": "trusted", "a/bad": "untrusted", "a/bad/good": "trusted"}
    trust(tmp_path / "home", {str(tmp_path / k): v for k, v in entries.items()})
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    assert is_trusted(tmp_path / folder, tmp_path / "home") is expected


def test_nothing_is_trusted_without_a_word(tmp_path: Path) -> None:
    assert not is_trusted(tmp_path, tmp_path / "home")


def test_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "good").mkdir()
    (tmp_path / "evil").mkdir()
    (tmp_path / "good/link").symlink_to(tmp_path / "evil")
    (tmp_path / "alias").symlink_to(tmp_path / "good")
    trust(tmp_path / "home", {str(tmp_path / "alias"): "trusted"})
    assert is_trusted(tmp_path / "good", tmp_path / "home")
    assert not is_trusted(tmp_path / "good/link", tmp_path / "home")


def test_a_tilde_is_the_given_home(tmp_path: Path) -> None:
    trust(tmp_path, {"~/code": "trusted", "~": "untrusted"})
    assert is_trusted(tmp_path / "code/x", tmp_path)
    assert not is_trusted(tmp_path / "other", tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"/x": "yes"}, "'/x' is 'yes', expected 'trusted' or 'untrusted'"),
        ({"/x": True}, "expected 'trusted' or 'untrusted'"),
        ({"x": "trusted"}, "'x' is not an absolute path"),
        ("{", r"trusted.json:1:2: not JSON"),
        ("[]", "expected a JSON object"),
    ],
)
def test_a_trust_file_that_can_not_be_meant_is_an_error(tmp_path: Path, content: Any, message: str) -> None:
    trust(tmp_path, content)
    with pytest.raises(ConfigError, match=message):
        is_trusted(tmp_path, tmp_path)
