"""Programs from npm: the reference servers, and gemini-cli as a client of `mcp serve`. Skipped without npm."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_gemini.fake import FakeGemini
from mcp_servers.npm import programs
from mcp_servers.place import Place, calls
from patience import HANG_S

from interlock.engine import Decision, run_sync

pytestmark = pytest.mark.sweep
OVER = {"text": "over"}


def servers(place: Place, trust: bool = True) -> None:
    there = programs()
    everything = {"command": str(there / "mcp-server-everything"), "trust": trust}
    files = {"command": str(there / "mcp-server-filesystem"), "args": [str(place.work)], "trust": trust}
    place.servers(everything=everything, files=files)


def test_the_reference_servers_work_side_by_side(place: Place, fake_gemini: FakeGemini) -> None:
    servers(place)
    (place.work / "a.txt").write_text("the word is xyzzy")
    asked = [
        ("mcp_everything_get-sum", {"a": 2, "b": 3}),
        ("mcp_everything_get-tiny-image", {}),
        ("mcp_everything_get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
        ("mcp_everything_read_resource", {"uri": "demo://resource/dynamic/text/7"}),
        ("mcp_everything_get-structured-content", {"location": "New York"}),
        ("mcp_everything_get-roots-list", {}),
        ("mcp_everything_trigger-long-running-operation", {"duration": 0.2, "steps": 2}),
        ("mcp_files_read_text_file", {"path": "a.txt"}),
        ("mcp_files_write_file", {"path": str(place.work / "b.txt"), "content": "hi"}),
    ]
    batch = {"calls": [{"name": name, "args": args} for name, args in asked]}
    fake_gemini.play({"replies": [batch, {"text": "over"}], "default": {"text": "USER"}})
    options = place.options(model="gemini-2.5-pro", env={**os.environ, **fake_gemini.env})
    outcome = run_sync("main", {"prompt": "go"}, options=options, renderers=[place.events.append])
    assert outcome.output["response"] == "over", (outcome.error, outcome.pending, place.told)
    answers = [r for r in fake_gemini.requests if "tools" in r.body][1].contents[-1]["parts"]
    told = [p["functionResponse"]["response"]["output"] for p in answers if "functionResponse" in p]
    wanted = ["is 5", "shown beside this text", "[resource demo://", "Resource 7", "temperature"]
    wanted += [place.work.as_uri(), "completed", "the word is xyzzy", "Successfully wrote"]
    assert [want for want, said in zip(wanted, told, strict=True) if want not in said] == [], told
    assert [p["inlineData"]["mimeType"] for p in answers if "inlineData" in p] == ["image/png"]
    assert (place.work / "b.txt").read_text() == "hi"
    assert "2/2" in "".join(e.text for e in place.events if e.type == "tool_output")


def test_the_reference_server_asks_a_person_and_gets_the_answer(place: Place) -> None:
    servers(place)
    call = calls(("mcp_everything_trigger-elicitation-request", {}))
    parked = place.main(call, {"expect": '"name": "Ann"', "text": "over"})
    (request,) = parked.pending
    assert request["kind"] == "question" and len(request["questions"]) > 5, request
    text = '{"name": "Ann", "check": true}'
    done = place.resume(parked.run, decisions=[Decision(request["id"], "proceed_once", text=text)])
    assert done.status == "done", (done.error, done.pending)


def test_its_prompts_are_called_by_name(place: Place) -> None:
    servers(place)
    model = place.script({"expect": "(?s)prompt args-prompt.*weather in Paris", "text": "over"})
    given = {"prompt": "/everything:args-prompt Paris"}
    assert run_sync("main", given, options=place.options(model=model)).output["response"] == "over"


def test_gemini_cli_runs_workflows_by_mcp_serve(place: Place, tmp_path: Path) -> None:
    there = programs()
    write = {"tool_calls": [{"name": "write_file", "args": {"file_path": "a.txt", "content": "hi"}}]}
    script = place.script(write, {"text": "Ours is done."})
    program = "import sys; from interlock.cli.main import main; sys.exit(main())"
    flags = ["mcp", "serve", "main", "-C", str(place.work), "-m", script, "--approval-mode", "auto_edit"]
    ours = {
        "command": sys.executable,
        "args": ["-P", "-c", program, *flags],
        "env": {"HOME": str(place.user), "INTERLOCK_HOME": str(place.home)},
        "trust": True,
    }
    theirs, elsewhere = tmp_path / "theirs", tmp_path / "elsewhere"
    (theirs / ".gemini").mkdir(parents=True)
    elsewhere.mkdir()
    settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "mcpServers": {"interlock": ours}}
    settings["privacy"] = {"usageStatisticsEnabled": False}
    (theirs / ".gemini" / "settings.json").write_text(json.dumps(settings))
    asks = {"calls": [{"name": "mcp_interlock_main", "args": {"prompt": "write it"}}]}
    rule = {"match": {"tools": "mcp_interlock_main"}, "replies": [asks, {"text": "All is done."}]}
    with FakeGemini({"rules": [{**rule, "by": "model_turns"}], "default": {"text": "{}"}}) as fake:
        env = {"PATH": os.environ["PATH"], "HOME": str(theirs), "GEMINI_CLI_NO_RELAUNCH": "true", **fake.env}
        command = [str(there / "gemini"), "-m", "gemini-2.5-pro", "-p", "go", "-y", "--skip-trust"]
        done = subprocess.run(
            command, cwd=elsewhere, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=HANG_S, check=False,
        )  # fmt: skip
        answers = [json.dumps(r.contents[-1]) for r in fake.requests if "contents" in r.body]
    assert (done.returncode, done.stdout.strip()) == (0, "All is done."), (done.stdout, done.stderr)
    assert any("Ours is done." in answer for answer in answers)
    assert (place.work / "a.txt").read_text() == "hi"
