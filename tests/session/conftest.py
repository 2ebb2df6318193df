"""conftest: a folder to work in, and a session in it with scripted replies."""

import json
from pathlib import Path
from typing import Any

import pytest
from session.terminal import Opens, Replies, Terminal


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


@pytest.fixture
def opens(folder: Path) -> Opens:
    """`opens(replies, *arguments)`: a session with these replies, or else the previous ones."""

    def made(replies: Replies | None, *arguments: str, **given: Any) -> Terminal:
        script = folder.parent / "replies.json"
        if replies is not None:
            script.write_text(json.dumps(replies))
        return Terminal(folder, "-m", f"script:{script}", *arguments, **given)

    return made
