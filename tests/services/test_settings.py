"""test_settings: which source wins, what is kept, and what errors say."""

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from interlock.services.config.settings import LoadedSettings, load_settings
from interlock.state.errors import ConfigError

Load = Callable[..., LoadedSettings]
MISTAKES: dict[str, Any] = yaml.load(
    Path(__file__).with_name("settings_mistakes.yaml").read_text(), yaml.CSafeLoader
)
SOURCES = ["home/.gemini", "home/.interlock", "work/.gemini", "work/.interlock"]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write settings files by folder, then load them."""

    def do(
        files: Mapping[str, Any] = {},
        env: Mapping[str, str] = {},
        overrides: Mapping[str, Any] = {},
        trusted: bool = True,
    ) -> LoadedSettings:
        for folder in SOURCES:
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for folder, content in files.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            (tmp_path / folder / "settings.json").write_bytes(data)
        work, home = tmp_path / "work", tmp_path / "home"
        return load_settings(workspace=work, home=home, env=env, overrides=overrides, trusted=trusted)

    return do


def test_without_files_there_are_the_defaults(load: Load) -> None:
    loaded = load()
    assert loaded.settings.model.name == "auto"
    assert (loaded.files, loaded.ignored, loaded.unknown, loaded.warnings) == ([], [], [], [])


@pytest.mark.parametrize("top", range(7))
def test_the_later_source_wins(load: Load, top: int) -> None:
    names = ["auto", *SOURCES, "environment", "flags"]
    files = {folder: {"model": {"name": folder}} for folder in SOURCES[:top]}
    env = {"GEMINI_MODEL": "environment"} if top >= 5 else {}
    overrides = {"model": {"name": "flags"}} if top >= 6 else {}
    loaded = load(files, env, overrides)
    assert loaded.settings.model.name == names[top]
    assert [f.parent.name for f in loaded.files] == [Path(s).name for s in SOURCES[:top]]


def test_objects_are_merged_and_lists_replaced(load: Load) -> None:
    low = {"model": {"aliases": {"pro": "p", "x": "1"}}, "tools": {"allowed": ["a"], "shell": {"timeout": 5}}}
    high = {"model": {"aliases": {"x": "2"}}, "tools": {"allowed": ["b"]}}
    settings = load({"home/.gemini": low, "work/.interlock": high}).settings
    assert settings.model.aliases["pro"] == "p"
    assert settings.model.aliases["x"] == "2"
    assert settings.model.aliases["flash"], "the default aliases stay"
    assert settings.tools.allowed == ["b"]
    assert settings.tools.shell.timeout_s == 5


def test_a_project_can_not_take_back_an_exclusion(load: Load) -> None:
    files = {
        "home/.gemini": {"tools": {"exclude": ["web_fetch"]}},
        "work/.gemini": {"tools": {"exclude": ["glob"]}},
    }
    assert load(files).settings.tools.exclude == ["web_fetch", "glob"]


def test_project_files_count_only_in_a_trusted_folder(load: Load, tmp_path: Path) -> None:
    files = {"home/.gemini": {"model": {"name": "mine"}}, "work/.gemini": {"model": {"name": "theirs"}}}
    loaded = load(files, trusted=False)
    assert loaded.settings.model.name == "mine"
    assert loaded.ignored == [tmp_path / "work/.gemini/settings.json"]


def test_a_broken_project_file_of_an_untrusted_folder_stops_nothing(load: Load) -> None:
    assert load({"work/.gemini": b"{"}, trusted=False).settings.model.name == "auto"


def test_in_the_home_directory_the_user_files_count_once_and_without_trust(tmp_path: Path) -> None:
    (tmp_path / ".gemini").mkdir()
    (tmp_path / ".gemini/settings.json").write_text('{"model": {"name": "mine"}}')
    loaded = load_settings(workspace=tmp_path, home=tmp_path, env={}, overrides={}, trusted=False)
    assert loaded.settings.model.name == "mine"
    assert (len(loaded.files), loaded.ignored) == (1, [])


def test_unknown_keys_are_kept_and_reported(load: Load, tmp_path: Path) -> None:
    content = {
        "privacy": {"target": "x"},
        "model": {"name": "m", "nmae": 1},
        "tools": {"shell": {"pager": "cat"}},
    }
    loaded = load({"home/.gemini": content})
    file = str(tmp_path / "home/.gemini/settings.json")
    assert loaded.unknown == [(file, "privacy"), (file, "tools.shell.pager")]
    assert loaded.warnings == [f"{file}: unknown setting 'model.nmae'. Did you mean 'model.name'?"]
    assert loaded.settings.model_extra == {"privacy": {"target": "x"}}
    assert loaded.settings.tools.shell.model_extra == {"pager": "cat"}


@pytest.mark.parametrize(
    ("key", "near"), [*MISTAKES["meant"].items(), *((key, "") for key in MISTAKES["others"])]
)
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
    ("low", "high"), [("max_session_turns", "maxSessionTurns"), ("maxSessionTurns", "max_session_turns")]
)
def test_both_spellings_of_a_key_are_one_key(load: Load, low: str, high: str) -> None:
    files = {"home/.gemini": {"model": {low: 3}}, "work/.gemini": {"model": {high: 4}}}
    assert load(files).settings.model.max_session_turns == 4


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


def test_a_variable_that_is_not_set_is_a_warning(load: Load, tmp_path: Path) -> None:
    loaded = load({"home/.gemini": {"mcpServers": {"s": {"args": ["${TOKEN}"]}}}})
    assert loaded.warnings == [f"{tmp_path}/home/.gemini/settings.json: $TOKEN is not set."]


def test_hook_commands_are_left_to_the_shell(load: Load) -> None:
    hooks = {"BeforeTool": [{"command": "log $NAME"}]}
    loaded = load({"home/.gemini": {"hooks": hooks}}, env={"NAME": "; rm -r x"})
    assert loaded.settings.hooks == loaded.hooks[0].hooks == hooks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *MISTAKES["wrong"],
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


def test_what_can_not_be_read_is_an_error(load: Load, tmp_path: Path) -> None:
    file = tmp_path / "home/.gemini/settings.json"
    file.mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"settings.json: can't be read"):
        load()


@pytest.mark.parametrize("data", [b"", b" \r\n", b'\xef\xbb\xbf{"model":\r\n{"name": "auto"}}\r\n'])
def test_empty_files_byte_order_marks_and_crlf_are_fine(load: Load, data: bytes) -> None:
    assert load({"home/.gemini": data}).settings.model.name == "auto"


def test_flags_and_environment_are_held_to_the_types_too(load: Load) -> None:
    with pytest.raises(ConfigError, match=r"^flags: model.name is 3, expected a string"):
        load(overrides={"model": {"name": 3}})


def test_an_empty_variable_is_not_a_model(load: Load) -> None:
    assert load(env={"GEMINI_MODEL": ""}).settings.model.name == "auto"


def test_gemini_spelling_of_the_edit_mode_is_accepted(load: Load) -> None:
    files = {"home/.gemini": {"general": {"defaultApprovalMode": "autoEdit"}}}
    assert load(files).settings.general.default_approval_mode == "auto_edit"


def test_only_the_given_environment_is_read(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "GEMINI_MODEL", "from-outside")
    assert load().settings.model.name == "auto"


def test_only_the_user_decides_who_is_told_and_how_long_records_are_kept(load: Load) -> None:
    sent = {"telemetry": {"enabled": True, "otlpEndpoint": "http://elsewhere"}, "store": {"keepDays": 1}}
    loaded = load({"work/.gemini": sent})
    assert (loaded.settings.telemetry.enabled, loaded.settings.store.keep_days) == (False, None)
    assert [line.split(": ")[1].split()[0] for line in loaded.warnings] == ["telemetry", "store"]
    env = {
        "GEMINI_TELEMETRY_ENABLED": "1",
        "GEMINI_TELEMETRY_LOG_PROMPTS": "no",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://general",
        "GEMINI_TELEMETRY_OTLP_ENDPOINT": "http://own",
    }
    found = load({"home/.gemini": {"telemetry": {"otlpProtocol": "http", "logPrompts": True}}}, env).settings
    own = found.telemetry
    assert (own.enabled, own.otlp_endpoint, own.otlp_protocol, own.log_prompts) == (
        *(True, "http://own"),
        *("http", False),
    )


def test_a_project_does_not_choose_what_stays_running(load: Load) -> None:
    loaded = load({"work/.interlock": {"start": {"keepWarm": "2h"}}})
    assert loaded.settings.start.keep_warm == ""
    assert "start counts only in ~/.interlock/settings.json" in loaded.warnings[0]
