"""Who decided what, as `interlock show` reports it, and how refusals affect a run; through the real command line."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put
from scripted import shell, tools

HOOK = """
input=$(cat)
case "$input" in
  *"echo one"*) echo '{"hookSpecificOutput": {"tool_input": {"command": "echo two"}}}';;
  *forbidden*) echo "not in this house" >&2; exit 2;;
  *careful*) echo '{"decision": "ask", "reason": "a person should look"}';;
  *enough*) echo '{"continue": false, "stopReason": "that is enough"}';;
esac
"""


Calls = list[dict[str, Any]]


def write(file: str) -> dict[str, Any]:
    return {"name": "write_file", "args": {"file_path": file, "content": "x\n"}}


READ = {"name": "list_directory", "args": {"dir_path": "."}}


@pytest.fixture
def run(run: Run, tmp_path: Path) -> Run:
    """`main(…)` with a user's hooks and rules."""
    home = Path.home()
    (tmp_path / "hook.sh").write_text(HOOK)
    hook = {"type": "command", "name": "house rules", "command": f"bash {tmp_path / 'hook.sh'}"}
    settings = {
        "hooks": {"BeforeTool": [{"hooks": [hook]}]},
        "tools": {"exclude": ["run_shell_command(curl)"], "allowed": ["run_shell_command(echo)"]},
        "model": {"skipNextSpeakerCheck": True},
    }
    put(home / ".interlock" / "settings.json", settings)
    return run


def script(tmp_path: Path, *batches: Calls) -> tuple[str, str]:
    replies = [*(tools(*batch) for batch in batches), {"text": "I am done."}, {"text": "And again."}]
    put(tmp_path / "script.json", replies)
    return ("-m", f"script:{tmp_path / 'script.json'}")


def test_show_says_of_each_call_who_decided(run: Run, tmp_path: Path) -> None:
    batch = [READ, shell("echo one"), shell("curl x.org"), shell("touch forbidden"), write("b"), write("a")]
    parked = run(*script(tmp_path, batch), "-p", "go")
    assert parked.code == 75
    pending = {r["args"]["file_path"]: r["id"] for r in json.loads(run("approvals", "--json").out)}
    ended = run("resume", "latest", "--approve", pending["a"], "--reject", pending["b"], "--reason", "no b")
    assert (ended.code, ended.out) == (56, "I am done.\n"), "what succeeded didn't come after the refusal"
    lines = run("show", "latest").out.splitlines()

    def below(call: str) -> str:
        return lines[next(n for n, line in enumerate(lines) if call in line) + 1].strip()

    assert below("list_directory").startswith("allowed by built-in rule")
    assert below("echo two").startswith(
        "arguments changed by hook house rules · allowed by settings tools.allowed"
    )
    assert below("curl x.org").startswith("denied by settings tools.exclude 'run_shell_command(curl)'")
    assert below("touch forbidden") == "blocked by hook house rules: not in this house"
    assert below("write_file a").startswith("approved by ") and below("write_file a").endswith("(once)")
    assert below("write_file b").startswith("rejected by ") and below("write_file b").endswith("“no b”")


def test_the_record_of_a_call_holds_everything_that_was_decided_of_it(run: Run, tmp_path: Path) -> None:
    run(*script(tmp_path, [shell("echo one"), write("careful")]), "-p", "go", "--yolo")
    (request,) = json.loads(run("approvals", "--json").out)
    assert request["reason"] == "hook house rules asks: a person should look"
    edited = json.dumps({"file_path": "c", "content": "mine\n"})
    assert run("resume", "latest", "--edit", f"{request['id']}={edited}").code == 0
    told = json.loads(run("show", "latest", "--json").out)
    echo, written = told["calls"]
    policy, hook, again = echo["decided"]
    assert (policy["by"], policy["decision"], policy["mode"]) == ("policy", "allow", "yolo")
    assert [part["text"] for part in policy["parts"]] == ["echo one"]
    assert (hook["before"], hook["after"]) == ({"command": "echo one"}, {"command": "echo two"})
    (verdict,) = hook["hooks"]
    assert (verdict["name"], verdict["decision"]) == ("house rules", "none")
    assert verdict["source"].endswith("settings.json") and verdict["duration_ms"] >= 0
    assert [part["text"] for part in again["parts"]] == ["echo two"]
    assert policy["at"] <= hook["at"] <= again["at"] <= echo["started"] <= echo["ended"]
    _, asked, person, *_ = written["decided"]
    assert (asked["decision"], asked["reason"]) == ("ask", "a person should look")
    assert (person["by"], person["decision"], person["after"]) == ("person", "modify", json.loads(edited))
    assert person["who"] and asked["at"] <= person["said_at"] <= person["at"]
    full = run("show", "latest", "--calls").out
    for text in (
        "arguments changed by hook house rules",
        '+ {"command": "echo two"}',
        "(rewritten)",
        "started",
    ):
        assert text in full


def test_an_always_is_told_where_it_lifts_the_next_question(run: Run, tmp_path: Path) -> None:
    run(*script(tmp_path, [write("a")], [write("a")]), "-p", "go")
    assert run("resume", "latest", "--approve", "all", "--always").code == 0
    shown = run("show", "latest").out
    assert "approved (not asked again in this run) by " in shown
    assert "allowed by an earlier decision (write_file a, by " in shown


REFUSED = {
    "a rule": ([shell("curl x.org")], "A rule (settings tools.exclude"),
    "a hook": (
        [shell("touch forbidden")],
        "A hook (hook house rules) blocked 'run_shell_command': not in this house",
    ),
}


@pytest.mark.parametrize("who", REFUSED)
def test_a_run_that_ends_without_what_was_refused_exits_56_and_keeps_its_answer(
    run: Run, tmp_path: Path, who: str
) -> None:
    batch, says = REFUSED[who]
    done = run(*script(tmp_path, batch, [READ]), "-p", "go", "-o", "json")
    told = json.loads(done.out)
    assert (done.code, told["response"]) == (56, "I am done.")
    assert (told["error"]["type"], told["error"]["code"]) == ("refused", 56)
    assert says in told["error"]["message"]
    assert f"interlock resume {told['session_id']} -p" in told["error"]["message"]
    again = run("resume", "latest", "-p", "do without it")
    assert (again.code, again.out) == (0, "And again.\n"), "a new prompt begins anew"


AFTER_A_REFUSED_COMMAND: dict[str, tuple[list[Calls], int]] = {
    "a command that worked makes up for it": ([[shell("echo fine")]], 0),
    "one that failed doesn't": ([[shell("echo fine; exit 3")]], 56),
    "a file that was written is of another kind": ([[write("a")]], 56),
    "nor does what was only read": ([[READ]], 56),
}


@pytest.mark.parametrize("case", AFTER_A_REFUSED_COMMAND)
def test_a_refusal_is_made_up_for_by_a_later_success_of_its_kind(run: Run, tmp_path: Path, case: str) -> None:
    batches, code = AFTER_A_REFUSED_COMMAND[case]
    done = run(*script(tmp_path, [shell("curl x.org")], *batches), "-yp", "go", "-o", "json")
    assert (done.code, done.json["response"]) == (code, "I am done.")
    warned = [w for w in done.json.get("warnings", ()) if "denied 'run_shell_command'" in w]
    assert len(warned) == (0 if code else 1), "what fails the run is its error, the rest a warning"


def test_a_success_beside_what_a_rule_refused_makes_up_for_nothing(run: Run, tmp_path: Path) -> None:
    done = run(*script(tmp_path, [shell("curl x.org"), shell("echo fine")]), "-p", "go")
    assert done.code == 56, "the model didn't know yet"


def test_a_persons_no_to_one_of_two_calls_that_only_read_is_a_warning_too(run: Run, tmp_path: Path) -> None:
    asks = put(
        tmp_path / "asks.toml", '[[rule]]\ntoolName = "list_directory"\ndecision = "ask"\npriority = 900\n'
    )
    assert run(*script(tmp_path, [READ, READ]), "--policy", str(asks), "-p", "go").code == 75
    done = run("resume", "latest", "--approve", "1", "--reject", "2")
    assert done.code == 0 and "refused 'list_directory'" in done.err


def test_a_person_who_rejects_is_named(run: Run, tmp_path: Path) -> None:
    assert run(*script(tmp_path, [write("a")]), "-p", "go").code == 75
    done = run("resume", "latest", "--reject", "all", "--reason", "never")
    assert (done.code, done.out) == (56, "I am done.\n")
    assert re.search(r"A person \(\S+@\S+\) refused 'write_file': never\. ", done.err)
    assert done.err.count("interlock resume") == 1, "the way on is said once"
