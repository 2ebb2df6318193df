"""test_settings: which source wins, what is kept, and what errors say."""

from collections.abc import Callable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from folders import put, table

from interlock.services.config.settings import LoadedSettings, load_settings
from interlock.state.errors import ConfigError

Load = Callable[..., LoadedSettings]
TABLE: dict[str, Any] = table(__file__, "settings.yaml")
SOURCES = ["home/.gemini", "home/.interlock", "work/.gemini", "work/.interlock"]


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Write settings files by folder, then load them. Only the given environment counts."""
    monkeypatch.setenv("GEMINI_MODEL", "from-outside")
    for folder in SOURCES:
        (tmp_path / folder).mkdir(parents=True)

    def do(files: Mapping[str, Any] = {}, **more: Any) -> LoadedSettings:
        for folder, content in files.items():
            put(tmp_path / folder / "settings.json", content)
        given = {"workspace": tmp_path / "work", "home": tmp_path / "home", "env": {}, "overrides": {}}
        return load_settings(**{**given, "trusted": True, **more})

    return do


@pytest.mark.parametrize("top", range(7))
def test_the_later_source_wins(load: Load, top: int) -> None:
    names = ["auto", *SOURCES, "environment", "flags"]
    files = {folder: {"model": {"name": folder}} for folder in SOURCES[:top]}
    env = {"GEMINI_MODEL": "environment" if top >= 5 else ""}
    loaded = load(files, env=env, overrides={"model": {"name": "flags"}} if top >= 6 else {})
    assert loaded.settings.model.name == names[top]
    assert [f.parent.name for f in loaded.files] == [Path(s).name for s in SOURCES[:top]]
    assert (loaded.ignored, loaded.unknown, loaded.warnings) == ([], [], [])


USER, PROJECT = "home/.gemini", "work/.gemini"


@pytest.mark.parametrize(
    "case", [pytest.param(c, id=title) for title, cases in TABLE["come to"].items() for c in cases]
)
def test_settings_come_to_what_the_table_says(load: Load, case: dict[str, Any]) -> None:
    files = {folder: case[folder] for folder in SOURCES if folder in case}
    loaded = load(files, env=case.get("env", {}))

    def inner(value: Any, name: str) -> Any:
        return value[name] if isinstance(value, dict) else getattr(value, name)

    assert {path: reduce(inner, path.split("."), loaded.settings) for path in case["found"]} == case["found"]
    said = zip(loaded.warnings, case.get("warned", ()), strict=True)
    assert all(part in warning for warning, part in said), loaded.warnings


@pytest.mark.parametrize("data", [b"", b" \r\n", b'\xef\xbb\xbf{"model":\r\n{"name": "auto"}}\r\n'])
def test_empty_files_byte_order_marks_and_crlf_are_fine(load: Load, data: bytes) -> None:
    assert load({USER: data}).settings.model.name == "auto"
    assert load({PROJECT: b"{"}, trusted=False).settings.model.name == "auto", "nobody reads it"


def test_project_files_count_only_in_a_trusted_folder(load: Load, tmp_path: Path) -> None:
    """In the home directory the user's files count once, and without trust."""
    files = {USER: {"model": {"name": "mine"}}, PROJECT: {"model": {"name": "theirs"}}}
    loaded = load(files, trusted=False)
    assert loaded.settings.model.name == "mine"
    assert loaded.ignored == [tmp_path / PROJECT / "settings.json"]
    loaded = load(files, workspace=tmp_path / "home", trusted=False)
    assert (loaded.settings.model.name, len(loaded.files), loaded.ignored) == ("mine", 1, [])


def test_unknown_keys_are_kept_and_reported(load: Load, tmp_path: Path) -> None:
    content = {"privacy": {"target": "x"}, "model": {"nmae": 1}, "tools": {"shell": {"pager": "cat"}}}
    loaded = load({USER: content})
    file = str(tmp_path / USER / "settings.json")
    assert loaded.unknown == [(file, "privacy"), (file, "tools.shell.pager")]
    assert loaded.warnings == [f"{file}: unknown setting 'model.nmae'. Did you mean 'model.name'?"]
    assert loaded.settings.model_extra == {"privacy": {"target": "x"}}
    assert loaded.settings.tools.shell.model_extra == {"pager": "cat"}


@pytest.mark.parametrize(("key", "near"), [*TABLE["meant"].items(), *((key, "") for key in TABLE["others"])])
def test_a_mistyped_key_is_warned_of_with_the_one_that_was_meant(
    key: str, near: str, load: Load, tmp_path: Path
) -> None:
    content: dict[str, Any] = {}
    for name in reversed(key.split(".")):
        content = {name: content}
    loaded = load({"home/.interlock": content})
    file = str(tmp_path / "home/.interlock/settings.json")
    warning = f"{file}: unknown setting {key!r}. Did you mean {near!r}?"
    assert loaded.warnings == ([warning] if near else [])
    assert loaded.unknown == ([] if near else [(file, key)])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("$NAME", "pro"),
        ("${NAME}", "pro"),
        ("a-${NAME}-b$NAME", "a-pro-bpro"),
        ("${GONE:-flash}", "flash"),
        ("${NAME:-flash}", "pro"),
        ("$GONE", "$GONE"),
        ("${GONE}", "${GONE}"),
        ("costs $5, $ and ${", "costs $5, $ and ${"),
        ("$LOOP", "$NAME"),
    ],
)
def test_variables_are_expanded_once(load: Load, written: str, expected: str) -> None:
    loaded = load({"home/.gemini": {"model": {"name": written}}}, env={"NAME": "pro", "LOOP": "$NAME"})
    assert loaded.settings.model.name == expected


def test_hook_commands_are_left_to_the_shell(load: Load) -> None:
    hooks = {"BeforeTool": [{"command": "log $NAME"}]}
    loaded = load({"home/.gemini": {"hooks": hooks}}, env={"NAME": "; rm -r x"})
    assert loaded.settings.hooks == loaded.hooks[0].hooks == hooks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *TABLE["wrong"],
        (b"[1]", "holds [1], expected a JSON object."),
        (b'{"a": NaN}', "not JSON: NaN is not JSON."),
        (b"[" * 100_000, "not JSON: it is nested too deeply."),
        (b'{ // comment\n  "a": 1\n  "b": 2\n}', "3:3: not JSON: Expecting ',' delimiter. Correct it there."),
        (b'{"a": "\xff"}', "byte 7 is not UTF-8; save the file as UTF-8."),
    ],
)
def test_a_wrong_type_names_file_key_and_expected_type(
    load: Load, tmp_path: Path, content: Any, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"home/.interlock": content})
    told = str(caught.value).replace("json:3:3", "json: 3:3")
    assert told == f"{tmp_path}/home/.interlock/settings.json: {message}"
    assert caught.value.exit_code == 52


def test_what_can_not_be_read_is_an_error_and_flags_are_held_to_the_types_too(
    load: Load, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"^flags: model.name is 3, expected a string"):
        load(overrides={"model": {"name": 3}})
    (tmp_path / USER / "settings.json").mkdir()
    with pytest.raises(ConfigError, match=r"settings.json: can't be read"):
        load()
