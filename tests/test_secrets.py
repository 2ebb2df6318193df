"""test_secrets: a planted secret is left nowhere: not in the store, its files, the requests or the output."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from databases import rows_of
from fake_gemini.fake import FakeGemini
from folders import put
from scripted import says, tools

from interlock.engine.store.audit import AuditRecord
from interlock.engine.store.checkpoints import decompress_row
from interlock.services.files.blobs import inflate_if_deflated

GITHUB = "ghp_" + "aB3d" * 9
VALUE = "planted-välue-0123"
MODEL_KEY = "AIzaSyPlanted0123456789_abcdefghijklmno"
PLANTED = {"A_TOKEN": VALUE, "HARMLESS": f"https://me:{GITHUB}@host/x", "GEMINI_API_KEY": MODEL_KEY}
FORMATS = ("text", "json", "stream-json")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir(exist_ok=True)
    return folder


Interlock = Callable[..., Done]


@pytest.fixture
def interlock(run: Run, monkeypatch: pytest.MonkeyPatch) -> Interlock:
    """Run the command line without a terminal; it starts real processes."""

    def call(*arguments: str, **env: str) -> Done:
        for name, value in {**PLANTED, **env}.items():
            monkeypatch.setenv(name, value)
        return run(*arguments)

    return call


def script(work: Path, *replies: dict[str, Any]) -> tuple[str, str]:
    file = put(work.parent / "script.json", replies)
    return "-m", f"script:{file}"


def shell(command: str, **args: Any) -> dict[str, Any]:
    return tools({"name": "run_shell_command", "args": {"command": command, **args}})


def legible(row: Sequence[object]) -> list[str]:
    """A row's values, inflated."""
    values = [*row]
    for n, value in enumerate(row):
        if isinstance(value, bytes):
            values[n] = decompress_row(str(row[n - 1]), inflate_if_deflated(value))[1].decode(
                "utf-8", "replace"
            )
    return [*map(str, values), str(AuditRecord.from_row(row[1:])) if row[0] == "audit" else ""]


def found(home: Path, *secrets: str) -> list[str]:
    """Files of the state directory that contain a secret: raw bytes, and every text in the store."""
    texts = {str(f): f.read_bytes().decode("utf-8", "replace") for f in home.rglob("*") if f.is_file()}
    texts["the store"] = "\n".join(text for row in rows_of(home) for text in legible(row))
    return [
        name for name, text in texts.items() if any(s in text or s in text.encode().decode() for s in secrets)
    ]


@pytest.mark.parametrize("output", FORMATS)
def test_what_commands_and_reads_bring_up_is_stored_and_shown_nowhere(
    work: Path, home: Path, interlock: Interlock, output: str
) -> None:
    (work / "config.txt").write_text(f"token = {GITHUB}\nvalue = {VALUE}\n")
    # In two pieces, to straddle two reads; and in an output too long to be shown.
    half = f"import sys,time; w=sys.out; w.write({VALUE[:9]!r}); w.flush(); time.sleep(.2); w.write({VALUE[9:]!r})"
    (work / "half.py").write_text(half)
    (work / "long.py").write_text("t=open('config.txt').read()\nfor i in range(9000): print(i, t)")
    done = interlock(
        *script(
            work,
            shell("env; cat config.txt"),
            shell(f"{sys.executable} half.py; {sys.executable} long.py"),
            says("read_file", file_path="config.txt"),
            says("grep_search", pattern="token"),
            {"text": "done"},
        ),
        "-y",
        "-o",
        output,
        "-p",
        "look",
    )
    assert done.code == 0, done.err
    assert found(home / "interlock", VALUE, GITHUB, MODEL_KEY) == []
    for secret in (VALUE, GITHUB, MODEL_KEY):
        assert secret not in done.out + done.err
    kept = [f.read_text() for f in (home / "interlock/outputs").glob("*.txt")]
    assert any("[redacted:A_TOKEN]" in text and "[redacted:HARMLESS]" in text for text in kept)


def test_a_secret_in_a_prompt_reaches_neither_model_nor_store_and_the_user_is_told(
    work: Path, home: Path, interlock: Interlock, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play([{"text": "ok"}])
    env = {**fake_gemini.env, "GEMINI_API_KEY": MODEL_KEY}
    done = interlock("-m", "gemini-2.5-pro", "-p", f"use {GITHUB} and {VALUE}", **env)
    assert (done.code, done.out) == (0, "ok\n"), done.err
    assert "The prompt holds a secret" in done.err
    assert found(home / "interlock", VALUE, GITHUB, MODEL_KEY) == []
    sent = json.dumps([r.body for r in fake_gemini.requests], default=str, ensure_ascii=False)
    assert "use [redacted:HARMLESS] and [redacted:A_TOKEN]" in sent
    assert GITHUB not in sent + done.err and VALUE not in sent + done.err
    assert GITHUB not in interlock("show", "latest").out


def test_an_error_of_the_provider_loses_the_key_that_it_quotes(
    work: Path, home: Path, interlock: Interlock, fake_gemini: FakeGemini
) -> None:
    message = f"bad request to https://host/v1?key={MODEL_KEY}"
    fake_gemini.play([{"error": {"code": 400, "message": message}}] * 3)
    env = {**fake_gemini.env, "GEMINI_API_KEY": MODEL_KEY}
    for output in FORMATS:
        done = interlock("-m", "gemini-2.5-pro", "-o", output, "-d", "-p", "hi", **env)
        assert done.code == 1
        assert MODEL_KEY not in done.out + done.err
        assert "key=[redacted:" in done.out + done.err
    assert found(home / "interlock", MODEL_KEY) == []


def test_a_models_own_words_are_redacted_across_deltas_and_in_recorded_replies(
    work: Path, home: Path, interlock: Interlock, fake_gemini: FakeGemini
) -> None:
    fake_gemini.play([{"text": f"the token is {GITHUB} here", "chunks": 11}])
    env = {**fake_gemini.env, "GEMINI_API_KEY": MODEL_KEY}
    flags = ("-m", "gemini-2.5-pro", "-o", "stream-json", "--record-responses", "rec.yaml")
    done = interlock(*flags, "-p", "hi", **env)
    events = [json.loads(line) for line in done.out.splitlines()]
    said = "".join(e["content"] for e in events if e["type"] == "message" and e.get("delta"))
    assert said == "the token is [redacted:HARMLESS] here"
    assert GITHUB not in done.out + (work / "rec.yaml").read_text()
    assert found(home / "interlock", GITHUB) == []


def test_a_background_commands_file_is_redacted_when_the_run_lets_go_of_it(
    work: Path, home: Path, interlock: Interlock
) -> None:
    (work / "config.txt").write_text(GITHUB)
    replies = shell("cat config.txt; sleep 60", is_background=True), shell("sleep 0.5"), {"text": "done"}
    done = interlock(*script(work, *replies), "-y", "-p", "start")
    assert done.code == 0, done.err
    (spool,) = (home / "interlock/outputs").glob("spool-*")
    assert spool.read_text() == "[redacted:HARMLESS]"


def test_a_mark_never_replaces_a_secret_in_a_file_and_the_rest_of_it_can_be_changed(
    work: Path, home: Path, interlock: Interlock
) -> None:
    before = f"a = 1\nkey = {GITHUB}\n"
    (work / "config.txt").write_text(before)
    marked = "a = 2\nkey = [redacted:HARMLESS]\n"
    done = interlock(
        *script(
            work,
            says("write_file", file_path="config.txt", content=marked),
            says("replace", file_path="config.txt", old_string="a = 1", new_string="a = 2"),
            {"text": "done"},
        ),
        "-y",
        "-o",
        "stream-json",
        "-p",
        "change a @config.txt",
    )
    results = [json.loads(x) for x in done.out.splitlines() if '"tool_result"' in x]
    assert [r["status"] for r in results] == ["error", "success"], done.err
    assert "only stands for a secret" in results[0]["error"]["message"]
    assert (work / "config.txt").read_text() == before.replace("1", "2")
    assert found(home / "interlock", GITHUB) == []  # the change's diff has it in its context
    assert GITHUB not in done.out


def test_an_approval_shows_no_secret_and_what_is_approved_runs_word_for_word(
    work: Path, home: Path, interlock: Interlock
) -> None:
    (work / "config.txt").write_text(f"a = 1\nkey = {GITHUB}\n")
    change = {"file_path": "config.txt", "old_string": "a = 1", "new_string": "a = 2"}
    flags = script(work, tools({"name": "replace", "args": change}), {"text": "done"})
    parked = interlock(*flags, "-p", f"change a of {GITHUB}")
    assert "change a of [redacted:HARMLESS]" in parked.err and GITHUB not in parked.out + parked.err
    parked = interlock("resume", "latest", "-o", "json")
    assert parked.code == 75, parked.err
    assert GITHUB not in parked.out + interlock("approvals", "latest").out
    done = interlock("resume", "latest", "--approve", "all")
    assert done.code == 0, done.err
    assert (work / "config.txt").read_text() == f"a = 2\nkey = {GITHUB}\n"
    assert found(home / "interlock", GITHUB) == []


def test_settings_name_what_tools_get_and_turn_redaction_off(
    work: Path, home: Path, interlock: Interlock
) -> None:
    settings = home / ".interlock/settings.json"
    settings.parent.mkdir()
    rules = {"allowed": ["A_TOKEN"], "blocked": ["LANG"]}
    put(settings, {"security": {"redactSecrets": False, "environmentVariableRedaction": rules}})
    flags = script(work, shell("env"), {"text": "done"})
    done = interlock(*flags, "-y", "-o", "stream-json", "-p", "look", LANG="C.UTF-8")
    (result,) = [json.loads(x) for x in done.out.splitlines() if '"tool_result"' in x]
    assert f"A_TOKEN={VALUE}" in result["output"]
    assert "HARMLESS" not in result["output"] and "\nLANG=" not in result["output"]
    assert found(home / "interlock", VALUE) != []


def test_keys_of_a_trusted_env_file_are_used_and_reach_no_tool(
    work: Path, home: Path, interlock: Interlock
) -> None:
    (work / ".env").write_text(f"OPENAI_API_KEY={VALUE}\nPLAIN=visible\n")
    flags = script(work, shell("env; echo"), {"text": "done"})
    done = interlock(*flags, "-y", "--skip-trust", "-o", "stream-json", "-p", "look")
    (result,) = [json.loads(x) for x in done.out.splitlines() if '"tool_result"' in x]
    assert "PLAIN=visible" in result["output"]
    assert "OPENAI_API_KEY" not in result["output"] and VALUE not in done.out


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_process_of_a_run_has_a_key_in_the_environment_that_proc_shows(work: Path) -> None:
    hook = {"type": "command", "command": "cat /proc/[0-9]*/environ 2>/dev/null >>seen; echo '{}'"}
    put(Path.home() / ".interlock/settings.json", {"hooks": {"BeforeTool": [{"hooks": [hook]}]}})
    flags = script(work, shell("cat /proc/[0-9]*/environ 2>/dev/null >>seen; true"), {"text": "done"})
    done = subprocess.run(
        [Path(sys.executable).with_name("interlock"), *flags, "-y", "-p", "look"],
        cwd=work,
        env={**os.environ, **PLANTED, "PLAIN": "a plain value"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    seen = (work / "seen").read_bytes()
    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr
    assert seen.count(b"PLAIN=a plain value") >= 2  # the hook's and the command's own
    assert [secret for secret in (VALUE, GITHUB, MODEL_KEY) if secret.encode() in seen] == []


def test_an_error_before_any_run_shows_no_secret(work: Path, home: Path, interlock: Interlock) -> None:
    put(home / ".interlock/settings.json", {"tools": {"shell": {"timeout": GITHUB}}})
    done = interlock("-d", "-p", "hi")
    assert done.code == 52
    assert "Traceback" in done.err and GITHUB not in done.err


GRAPH = """
import os
from langgraph.graph import MessagesState, START, StateGraph
from langgraph.types import interrupt

class State(MessagesState):
    token: str
    nested: dict
    used: bool

def fetch(state):
    token = os.environ["A_TOKEN"]
    return {"token": token, "nested": {token: [token, 1]}, "messages": [("ai", f"I hold {token}")]}

def ask(state):
    interrupt({"question": f"use {state['token']}?", "token": state["token"]})
    return {"used": state["token"] == os.environ["A_TOKEN"]}

build = StateGraph(State).add_node(fetch).add_node(ask)
build.add_edge(START, "fetch").add_edge("fetch", "ask")
graph = build.compile()
"""


def test_a_graph_keeps_the_secret_that_it_stores_and_nothing_that_is_shown_of_it_has_it(
    work: Path, interlock: Interlock
) -> None:
    graph = f"{put(work / 'holder.py', GRAPH)}:graph"
    parked = interlock("run", graph, "--input", "{}", "--skip-trust")
    assert parked.code == 75
    assert "State key 'token', which node 'fetch' wrote, holds a secret (A_TOKEN)" in parked.err
    assert parked.err.count("holds a secret") == 1
    waiting = [interlock(*line.split()) for line in ("approvals", "approvals --json", "show latest --json")]
    assert all("[redacted:A_TOKEN]?" in done.out for done in waiting)
    ended = interlock("resume", "latest", "--answer", "1=yes", "-o", "json", "--skip-trust")
    assert json.loads(ended.out)["used"] is True
    assert json.loads(ended.out)["nested"] == {"[redacted:A_TOKEN]": ["[redacted:A_TOKEN]", 1]}
    lines = (
        *("show latest", "show latest --json", "show latest --at 2", "show latest --at 2 --json"),
        *("diff latest 0 2", "diff latest 0 2 --json", "history latest --json", "logs latest", "wait latest"),
        *("export latest --format json", "export latest --format md", "export latest", "resume latest"),
        "replay latest",
    )
    shown = {line: interlock(*line.split()) for line in lines}
    assert {line: done.err for line, done in shown.items() if done.code} == {}
    said = [parked, ended, *waiting, *shown.values()]
    assert [done.out for done in said if VALUE in done.out + done.err] == []
    whole = interlock("show", "latest", "--at", "2", "--json").out
    assert json.loads(whole)["state"]["token"] == "[redacted:A_TOKEN]"
    plain = interlock("show", "latest", "--at", "2", "--json", A_TOKEN="another-value-456")
    assert VALUE in plain.out, "the store has it, and the environment that named it a secret is gone"
