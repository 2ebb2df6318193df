"""test_first_start: from an empty home to the first prompt: a key or a server is requested, tried, and stored."""

import json
import signal
import stat
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commands import execute
from fake_gemini.fake import FakeGemini
from fake_gemini.handler import Handler
from folders import put, tree
from serving import Quiet, serving
from session.terminal import FROM_NOTHING, Terminal
from typing_extensions import override

KEY = "AIzaSyD-0123456789-0123456789-0123456"


class _Checking(Handler):
    """Refuses every key but one, in Google's words."""

    def _refuses(self) -> bool:
        if self.headers.get("x-goog-api-key") == KEY:
            return False
        self._error(400, "API key not valid. Please pass a valid API key.")
        return True

    @override
    def do_GET(self) -> None:
        if not self._refuses():
            super().do_GET()

    def _post(self) -> None:
        if not self._refuses():
            super()._post()


@pytest.fixture
def gemini(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGemini]:
    monkeypatch.setattr("fake_gemini.fake.Handler", _Checking)
    with FakeGemini({"default": {"text": "ready"}}) as fake:
        yield fake


class _OpenAI(Quiet):
    """What Ollama, llama.cpp and vLLM have in common; `broken` can't be loaded."""

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._say(200, {"data": [{"id": "broken"}, {"id": "qwen3:8b"}]})
        else:
            self._say(404, None)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body["model"] == "broken":
            self._say(500, {"error": {"message": "not enough memory"}})
        else:
            self._say(200, {"choices": [{"message": {"content": "ready"}}]})

    def _say(self, code: int, value: Any) -> None:
        self.answer(code, json.dumps(value).encode() if value else b"no such page")


@pytest.fixture
def server() -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _OpenAI)) as made:
        yield f"127.0.0.1:{made.server_port}"


def stored(folder: Path) -> list[str]:
    """Files in the home, except what Python or a library keeps there."""
    return sorted(
        str(file.relative_to(folder.parent))
        for place in (".gemini", ".interlock")
        for file in (folder.parent / place).rglob("*")
        if file.is_file()
    )


def no_package(folder: Path) -> Path:
    """A folder where `langchain_openai` is found when looked for; these tests don't use it."""
    package = folder.parent / "packages" / "langchain_openai"
    put(package / "__init__.py", "")
    return package.parent


def test_a_key_is_tried_stored_for_its_owner_alone_and_the_session_opens(
    folder: Path, gemini: FakeGemini
) -> None:
    put(folder.parent / ".gemini" / ".env", "# mine\nGEMINI_API_KEY=\nOTHER=kept")
    env = {"GOOGLE_GEMINI_BASE_URL": gemini.url}
    with Terminal(folder, env=env) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.press("enter", then="Key (hidden)")
        terminal.type("not the key\r", then="and no spaces.\nKey (hidden)")
        terminal.type("AIzaWrong\r")
        refused = "The key was refused: API key not valid. Please pass a valid API key."
        terminal.waits_for(f"{refused}\nKey (hidden)")
        terminal.type(f"{KEY}\r", then="It works. Models: auto, pro, flash")
        terminal.waits_for("Model [auto: chosen for each prompt]")
        terminal.type("gemni\r", then="No model 'gemni'")
        assert stored(folder) == [".gemini/.env"]
        terminal.type("gemini-2.5-flash\r", then="Stored: the key in ~/.gemini/.env")
        terminal.waits_for("›")
        gemini.play({"default": {"text": "Hello from the server."}})
        terminal.say("hello there", then="Hello from the server.")
        assert KEY not in "\n".join(terminal.scrollback)
    file = folder.parent / ".gemini" / ".env"
    stored_key = f"GEMINI_API_KEY='{KEY}'\nGOOGLE_GEMINI_BASE_URL='{gemini.url}'\n"
    assert file.read_text() == f"# mine\nOTHER=kept\n{stored_key}"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = json.loads((folder.parent / ".interlock" / "settings.json").read_text())
    assert settings == {"model": {"name": "gemini-2.5-flash"}}
    with Terminal(folder, env=env) as terminal:
        terminal.waits_for("›")
        assert "Welcome" not in "\n".join(terminal.scrollback)


def test_a_local_server_is_asked_for_its_models_and_one_that_fails_is_asked_again(
    folder: Path, server: str
) -> None:
    with Terminal(folder, env={"PYTHONPATH": str(no_package(folder))}, command=FROM_NOTHING) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.type("7\r", then="'7' is none of 1, 2, 3, 4, 5, 6.\nWhich one? [1]")
        terminal.type("5\r", then="Its address [http://localhost:11434/v1]")
        terminal.type("127.0.0.1:9\r", then="Key (hidden; leave empty if none is needed)")
        terminal.press("enter")
        terminal.waits_for("127.0.0.1:9 can't be reached: [Errno 111] Connection refused\nIts address [")
        terminal.type(f"{server}\r", then=f"{server}\nKey (hidden")
        terminal.press("enter", then="2  qwen3:8b")
        terminal.waits_for("Model [broken]")
        terminal.press("enter")
        terminal.waits_for("HTTP 500: not enough memory\n   1  broken\n   2  qwen3:8b\nModel [broken]")
        terminal.type("2\r", then="Stored: the address in ~/.gemini/.env")
        terminal.waits_for("›")
    text = (folder.parent / ".gemini" / ".env").read_text()
    assert text == f"OPENAI_BASE_URL='http://{server}/v1'\n"
    settings = json.loads((folder.parent / ".interlock" / "settings.json").read_text())
    assert settings == {"model": {"name": "openai:qwen3:8b"}}


_PIP = """
import pathlib, sys
(here := pathlib.Path(__file__).parent.parent / "langchain_groq").mkdir()
(here / "__init__.py").touch()
(info := here.parent / "langchain_groq-9.9.dist-info").mkdir()
(info / "METADATA").write_text("Metadata-Version: 2.1\\nName: langchain-groq\\nVersion: 9.9\\n")
print("pip was called with", *sys.argv[1:])
"""


def test_a_missing_package_is_installed_after_a_yes(folder: Path) -> None:
    if find_spec("langchain_groq"):
        pytest.skip("langchain-groq is installed here")
    packages = folder.parent / "packages"
    tree(packages, {"pip/__init__.py": "", "pip/__main__.py": _PIP})
    with Terminal(folder, env={"PYTHONPATH": str(packages)}, command=FROM_NOTHING) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.type("6\r", then="Provider (deepseek")
        terminal.type("groq\r", then="-m pip install langchain-groq\nInstall it? [Y/n]")
        terminal.type("n\r", then="Not installed. Install it yourself with: ")
        terminal.waits_for("Which one? [1]")
        assert not (packages / "langchain_groq").exists()
        terminal.type("6\r", then="Provider (deepseek")
        terminal.type("groq\r", then="Install it? [Y/n]")
        terminal.type("\r", then="pip was called with install langchain-groq\nKey (hidden)")


def test_a_server_that_is_set_is_used_and_only_its_model_asked_for(folder: Path, server: str) -> None:
    url = f"http://{server}/v1"
    with Terminal(
        folder, env={"OPENAI_BASE_URL": url, "PYTHONPATH": str(no_package(folder))}, command=FROM_NOTHING
    ) as terminal:
        terminal.waits_for("OPENAI_BASE_URL names a server at")
        terminal.waits_for("Model [broken]")
        assert "Which one?" not in "\n".join(terminal.screen)
        terminal.type("2\r", then="Stored: the address in ~/.gemini/.env")
        terminal.waits_for("›")
    settings = json.loads((folder.parent / ".interlock" / "settings.json").read_text())
    assert settings == {"model": {"name": "openai:qwen3:8b"}}


def test_a_key_that_is_set_but_refused_leads_to_the_menu(folder: Path) -> None:
    pytest.importorskip("langchain_openai")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Vendor)) as made:
        env = {"OPENROUTER_BASE_URL": f"http://127.0.0.1:{made.server_port}", "OPENROUTER_API_KEY": "wrong"}
        with Terminal(folder, env=env) as terminal:
            terminal.waits_for("OPENROUTER_API_KEY is set.\nThe key was refused: invalid x-api-key")
            terminal.waits_for("Which one? [1]")


class _Vendor(Quiet):
    """Anthropic's and OpenRouter's lists of models, and Claude's answer, for one key."""

    def do_GET(self) -> None:
        names = (
            ["anthropic/claude-sonnet-4.5"] if "Bearer" in self.headers.get("Authorization", "") else ["c"]
        )
        self._say({"data": [{"id": name} for name in names]})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._say({"content": [{"type": "text", "text": "Hello from Claude."}], **_CLAUDES})

    def _say(self, value: Any) -> None:
        given = f"{self.headers.get('x-api-key', '')}{self.headers.get('Authorization', '')}"
        refused = {"error": {"message": "invalid x-api-key"}}
        is_known = given.removeprefix("Bearer ") == KEY
        self.answer(200 if is_known else 401, json.dumps(value if is_known else refused).encode())


_CLAUDES = {"id": "m", "type": "message", "role": "assistant", "model": "c", "stop_reason": "end_turn"} | {
    "usage": {"input_tokens": 5, "output_tokens": 1}
}


@pytest.mark.sweep  # it loads Anthropic's package
def test_a_key_of_claude_is_tried_and_stored_and_claude_answers(folder: Path) -> None:
    pytest.importorskip("langchain_anthropic")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Vendor)) as made:
        url = f"http://127.0.0.1:{made.server_port}"
        with Terminal(folder, env={"ANTHROPIC_BASE_URL": url}, command=FROM_NOTHING) as terminal:
            terminal.waits_for("2  Claude, with a key from https://")
            terminal.type("2\r", then="Key (hidden)")
            terminal.type("sk-wrong\r", then="The key was refused: invalid x-api-key\nKey (hidden)")
            terminal.type(f"{KEY}\r", then="It works. Models: auto, pro, flash")
            terminal.type("\r", then="Stored: the key in ~/.gemini/.env")
            terminal.say("hello there", then="Hello from Claude.")
    text = (folder.parent / ".gemini" / ".env").read_text()
    assert text == f"ANTHROPIC_API_KEY='{KEY}'\nANTHROPIC_BASE_URL='{url}'\n"


def test_a_model_of_openrouter_is_named(folder: Path) -> None:
    pytest.importorskip("langchain_openai")
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), _Vendor)) as made:
        url = f"http://127.0.0.1:{made.server_port}"
        with Terminal(folder, env={"OPENROUTER_BASE_URL": url}) as terminal:
            terminal.waits_for("Which one? [1]")
            terminal.type("4\r", then="Key (hidden)")
            terminal.type(f"{KEY}\r", then="It works. 1 model is there.\nModel, such as")
            terminal.type("claude-sonnet-4.5\r", then="Did you mean 'anthropic/claude-sonnet-4.5'?")
            terminal.type("anthropic/claude-sonnet-4.5\r", then="Stored: the key")
            terminal.waits_for("›")
    settings = json.loads((folder.parent / ".interlock" / "settings.json").read_text())
    assert settings == {"model": {"name": "openrouter:anthropic/claude-sonnet-4.5"}}


def test_what_is_typed_ahead_is_never_shown_before_its_question_stands(
    folder: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()
    do_get = _OpenAI.do_GET

    def slowly(self: _OpenAI) -> None:
        asked.set()
        answers.wait()
        do_get(self)

    monkeypatch.setattr(_OpenAI, "do_GET", slowly)
    with Terminal(folder, env={"PYTHONPATH": str(no_package(folder))}, command=FROM_NOTHING) as terminal:
        terminal.types_ahead(f"5\r{server}\rsecret\r")
        asked.wait()
        terminal.type("2\r")
        assert not terminal.echoes
        answers.set()
        terminal.waits_for("Model [broken] 2\nTrying qwen3:8b")
        terminal.waits_for("›")
        assert f"Its address [http://localhost:11434/v1] {server}\nKey (hidden" in "\n".join(terminal.screen)
    assert b"secret" not in terminal.written


def test_answers_and_the_first_prompt_can_be_typed_before_anything_stands_there(
    folder: Path, gemini: FakeGemini
) -> None:
    with Terminal(folder, env={"GOOGLE_GEMINI_BASE_URL": gemini.url}, command=FROM_NOTHING) as terminal:
        terminal.types_ahead(f"1\r{KEY}\rgemini-2.5-flash\rhello there\r")
        terminal.waits_for("❯ hello there")
        terminal.waits_for("❯ hello there\n\nready")
    assert KEY.encode() not in terminal.written


def test_who_is_ended_by_a_signal_gets_the_terminal_back(folder: Path) -> None:
    with Terminal(folder) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ends() == 143
        assert terminal.restored


def test_where_lines_are_typed_a_key_is_never_echoed_and_the_terminal_echoes_again(
    folder: Path, gemini: FakeGemini
) -> None:
    """A key typed ahead while the first one is tried isn't shown either."""
    env = {"GOOGLE_GEMINI_BASE_URL": gemini.url, "TERM": "dumb"}
    with Terminal(folder, env=env) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.type("1\r", then="Key (hidden)")
        terminal.type(f"AIzaWrong\r{KEY}\r", then="The key was refused")
        terminal.waits_for("Model [auto: chosen for each prompt]")
        terminal.type("auto\r", then="] auto\n")
        terminal.waits_for("Stored: the key in ~/.gemini/.env")
        assert KEY not in terminal.written.decode() and "AIzaWrong" not in terminal.written.decode()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_is_ended_at_the_key_gets_a_terminal_that_echoes(
    number: signal.Signals, folder: Path, gemini: FakeGemini
) -> None:
    with Terminal(folder, env={"GOOGLE_GEMINI_BASE_URL": gemini.url, "TERM": "dumb"}) as terminal:
        terminal.waits_for("Which one? [1]")
        terminal.type("\r", then="Key (hidden)")
        assert not terminal.echoes
        terminal.process.send_signal(number)
        assert terminal.ends() == (143 if number == signal.SIGTERM else 130)
        assert terminal.echoes


@pytest.mark.parametrize("at", ["Which one?", "Key (hidden)", "Model [auto"])
@pytest.mark.parametrize("key", ["c-c", "c-d"])
def test_who_leaves_has_stored_nothing(at: str, key: str, folder: Path, gemini: FakeGemini) -> None:
    answers = {"Which one?": "\r", "Key (hidden)": f"{KEY}\r"}
    with Terminal(folder, env={"GOOGLE_GEMINI_BASE_URL": gemini.url}) as terminal:
        for question, answer in answers.items():
            terminal.waits_for(question)
            if question == at:
                break
            terminal.type(answer)
        terminal.waits_for(at)
        terminal.press(key)
        assert terminal.ends() == 130
        assert "Nothing was stored." in "\n".join(terminal.screen)
    assert stored(folder) == []


def test_nobody_is_asked_without_a_terminal_or_where_a_model_is_named(folder: Path) -> None:
    done = execute(folder, "what is this")
    assert done.returncode == 41
    assert "Welcome" not in done.stdout + done.stderr
    tree(folder.parent, {"replies.json": "[]", ".interlock/": ""})
    settings = {"model": {"name": f"script:{folder.parent}/replies.json"}}
    put(folder.parent / ".interlock" / "settings.json", settings)
    with Terminal(folder) as terminal:
        terminal.waits_for("›")
        assert "Welcome" not in "\n".join(terminal.screen)
