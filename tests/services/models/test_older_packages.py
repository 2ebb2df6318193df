"""Beside an application that needs older packages, what they can't do is off, in one line, and the rest works."""

from pathlib import Path

import pytest
from folders import put

from interlock.engine import Options, run_sync


def test_gemini_with_an_older_sdk_is_named_with_both_versions_and_other_models_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.services.packages.version", lambda _: "2.34.0")
    (tmp_path / "ws").mkdir()
    env = {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9"}
    options = Options(home=tmp_path / "state", workspace=tmp_path / "ws", user_home=tmp_path, env=env)
    failed = run_sync("main", {"prompt": "hi", "model": "gemini-2.5-flash"}, options=options)
    message = (failed.error or {})["message"]
    assert "google-genai is 2.34.0 here; expected 3.6 or newer" in message and "\n" not in message
    script = put(tmp_path / "script.json", [{"text": "Hello."}])
    done = run_sync("main", {"prompt": "hi", "model": f"script:{script}"}, options=options)
    assert done.status == "done", done.error
