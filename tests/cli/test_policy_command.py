"""`interlock policy check`: what a run here would decide, by which rule, part by part."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put

MINE = """
[[rule]]
toolName = "run_shell_command"
commandPrefix = ["git status", "git log"]
decision = "allow"
priority = 100

[[rule]]
toolName = "run_shell_command"
commandPrefix = "git push"
decision = "deny"
priority = 200
denyMessage = "Nothing leaves."
"""


@pytest.fixture
def run(run: Run, home: Path) -> Run:
    """`main(…)` with the user's rules."""
    put(home / ".interlock/policies/mine.toml", MINE)
    return run


@pytest.fixture
def check(run: Run) -> Callable[..., dict[str, Any]]:
    def ask(*arguments: str, stdin: str = "") -> dict[str, Any]:
        done = run("policy", "check", *arguments, "--json", stdin=stdin)
        assert done.code == 0, done.err
        return json.loads(done.out)

    return ask


def command(line: str) -> str:
    return json.dumps({"command": line})


def test_it_shows_the_decision_the_rule_with_its_line_and_each_part(run: Run, check) -> None:
    parts = check("run_shell_command", command("git status && git 'push' | rm -rf $x"))["parts"]
    assert [(p["argv"], p["decision"], p["danger"]) for p in parts] == [
        (["git", "status"], "allow", None),
        (["git", "push"], "deny", None),
        (["rm", "-rf", "$x"], "ask", "deletes recursively"),
    ]
    done = run("policy", "check", "run_shell_command", command("git status && git push > out; rm -rf x"))
    assert done.code == 0
    lines = [line.split(maxsplit=1) for line in done.out.splitlines()]
    assert lines[0] == ["deny", "run_shell_command  (mode default)"]
    assert ["rule", "user rule ~/.interlock/policies/mine.toml:8"] in lines
    assert ["model", "is told: Nothing leaves."] in lines
    assert "allow git status   user rule ~/.interlock/policies/mine.toml:2" in done.out
    assert "deny  git push   user rule ~/.interlock/policies/mine.toml:8" in done.out
    assert "danger: deletes recursively" in done.out
    assert ["redirects", "write out"] in lines
    assert ["no", "always   No decision in a run lifts a deny."] in lines


def test_it_says_what_a_person_could_answer_and_why_not_always(check, tmp_path: Path) -> None:
    asked = check("run_shell_command", command("npm test"))
    assert asked["choices"] == [
        *("proceed_once", "proceed_always", "proceed_always_and_save", "modify", "reject", "cancel")
    ]
    assert asked["always"]["commands"] == ["npm test"]
    assert asked["covers"] == "`npm test` (also output flags)"
    dangerous = check("run_shell_command", command("rm -rf x"))
    assert "proceed_always" not in dangerous["choices"]
    assert dangerous["reason"] == "`rm -rf x` deletes recursively, which always needs approval."
    assert dangerous["not_always"] == "It deletes recursively, which always needs approval."
    hidden = check("run_shell_command", command("eval $x"))
    assert hidden["unseen"] == "it runs something that is only known when it runs"
    assert hidden["not_always"].startswith("Interlock can't tell all that it runs")
    assert check("run_shell_command", "npm test") == asked  # a line is its own argument
    call = put(tmp_path / "call.json", command("npm test"))
    assert check("run_shell_command", f"@{call}") == asked
    assert check("run_shell_command", "-", stdin=command("npm test")) == asked
    assert check("glob", '{"pattern": "*"}')["choices"] == []
    private = check("web_fetch", '{"url": "http://169.254.169.254/"}', "--allowed-tools", "web_fetch")
    assert private["decision"] == "ask" and "proceed_always" not in private["choices"]
    assert private["not_always"].startswith("Private addresses ask every time")
    assert private["covers"] == ""


def test_it_lists_every_rule_that_was_considered(run: Run, check, home: Path) -> None:
    found = check("run_shell_command", command("git log"), "--all")["considered"]
    assert [(c["decision"], c["met"]) for c in found[:2]] == [("deny", "no"), ("allow", "yes")]
    assert [c["rank"] for c in found] == sorted((c["rank"] for c in found), reverse=True)
    rule = '[[rule]]\ntoolName = "write_file"\nargsPattern = "secret"\ndecision = "deny"\npriority = 9\n'
    put(home / ".interlock/policies/plain.toml", rule + MINE.replace("git log", "npm"))
    plain = check("write_file", '{"file_path": "a", "content": ""}', "--all")["considered"]
    assert [(c["decision"], c["met"]) for c in plain] == [("deny", "no"), ("ask", "yes")]
    found = check("run_shell_command", command("npm test"), "--all")["considered"]
    assert ("allow", "yes") in [(c["decision"], c["met"]) for c in found], "though it isn't one that reads"
    assert "considered" not in check("run_shell_command", command("git log"))
    assert "met: yes" in run("policy", "check", "run_shell_command", command("git log"), "--all").out


def test_it_counts_what_a_run_here_counts(check, run: Run, tmp_path: Path) -> None:
    rule = '[[rule]]\ntoolName = "write_file"\ndecision = "deny"\npriority = 1\n'
    put(Path(".gemini/policies/team.toml"), rule)
    put(Path(".interlock/settings.json"), '{"general": {"defaultApprovalMode": "yolo"}}')
    write = ("write_file", '{"file_path": "a", "content": ""}')
    untrusted = check(*write)
    assert (untrusted["decision"], untrusted["mode"]) == ("ask", "default")
    assert any("policies" in w and "trust" in w for w in untrusted["warnings"])
    trusted = check(*write, "--skip-trust")
    assert (trusted["decision"], trusted["mode"]) == ("deny", "yolo")
    assert trusted["rule"].endswith(".gemini/policies/team.toml:1")
    extra = put(tmp_path / "extra.toml", rule.replace("deny", "allow"))
    assert check(*write, "--policy", str(extra))["decision"] == "allow"
    assert check(*write, "--allowed-tools", "Write")["rule"] == "settings tools.allowed 'write_file'"
    assert check(*write, "--mode", "plan")["decision"] == "deny"
    assert check(*write, "--mode", "autoEdit")["decision"] == "allow"
    assert check(*write, "-y")["decision"] == "allow"


def test_a_rule_that_is_wrong_is_named_and_does_not_stop_the_answer(run: Run, home: Path) -> None:
    bad = put(home / ".gemini/policies/bad.toml", '[[rule]]\ntoolName = "glob"\ndecision = "deny"\n')
    done = run("policy", "check", "glob", '{"pattern": "*"}')
    assert done.code == 0 and done.out.startswith("ask")
    assert f"{bad}:1: priority: Field required" in done.err
    found = [(f["level"], f["text"]) for f in run("doctor", "--json").json if f["what"] == "policies"]
    assert ("ok", "~/.gemini/policies/bad.toml, ~/.interlock/policies/mine.toml") in found
    assert any(f"{bad}:1: priority: Field required" in text for level, text in found if level == "note")


def test_scopes_of_agents_servers_and_annotations(check, run: Run, home: Path) -> None:
    put(
        home / ".gemini/policies/scopes.toml",
        '[[rule]]\ntoolName = "*"\nmcpName = "docs"\ntoolAnnotations = { readOnlyHint = true }\n'
        'decision = "allow"\npriority = 5\n'
        '[[rule]]\ntoolName = "mcp_*"\nsubagent = "codebase_investigator"\ndecision = "deny"\npriority = 9\n'
        '[[rule]]\ntoolName = "mcp_docs_*"\ntoolAnnotations = { destructiveHint = true }\n'
        'decision = "deny"\npriority = 8\n',
    )
    reads = ("--annotations", '{"readOnlyHint": true}')
    assert check("search", "{}", "--server", "docs", *reads)["decision"] == "allow"
    assert check("mcp_docs_search", "{}", "--server", "docs", *reads)["tool"] == "mcp_docs_search"
    assert check("search", "{}", "--server", "docs")["decision"] == "ask"
    assert check("search", "{}", "--server", "other", *reads)["decision"] == "ask"
    assert check("mcp_docs_search", "{}", *reads)["decision"] == "ask", "not known to be of that server"
    destroys = ("--annotations", '{"readOnlyHint": true, "destructiveHint": true}')
    assert check("search", "{}", "--server", "docs", *destroys)["decision"] == "deny"
    agent = ("--agent", "codebase_investigator")
    assert check("search", "{}", "--server", "docs", *reads, *agent)["decision"] == "deny"
    assert check("search", "{}", "--server", "docs", "--mode", "plan", *reads)["decision"] == "deny"
    write = check("write_file", '{"file_path": "a", "content": ""}', "--mode", "yolo", *agent)
    assert (write["decision"], write["reason"]) == (
        "deny",
        "`write_file` isn't a tool of sub-agent 'codebase_investigator'.",
    )


def test_settings_say_what_mcp_servers_may(check, home: Path) -> None:
    settings = {
        "mcp": {"excluded": ["bad"], "allowed": ["docs", "bad"]},
        "mcpServers": {"mine": {"command": "run", "trust": True}, "theirs": {"command": "run"}},
    }
    put(home / ".gemini/settings.json", settings)
    said = {name: check("search", "{}", "--server", name) for name in ("bad", "docs", "mine", "theirs")}
    assert {name: found["decision"] for name, found in said.items()} == {
        "bad": "deny",
        "docs": "allow",
        "mine": "allow",
        "theirs": "ask",
    }
    assert said["mine"]["rule"] == "settings mcpServers 'mine'"
    assert check("search", "{}", "--server", "mine", "--mode", "plan")["decision"] == "deny"
    by_names = {
        name: check("use_mcp_tool", json.dumps({"server_name": name, "tool_name": "search"})) for name in said
    }
    assert {name: (found["tool"], found["decision"]) for name, found in by_names.items()} == {
        name: (f"mcp_{name}_search", found["decision"]) for name, found in said.items()
    }


def test_a_path_that_no_tool_may_touch_is_refused_before_any_rule(check) -> None:
    found = check("read_file", '{"file_path": "/etc/passwd"}', "-y")
    assert (found["decision"], found["rule"]) == ("deny", "refused before any rule")
    assert "outside the workspace" in found["reason"]


def test_a_batch_answers_each_line_in_order_and_a_bad_one_does_not_stop_the_rest(run: Run) -> None:
    lines = [
        '{"tool": "run_shell_command", "args": {"command": "git push"}}',
        "{oops",
        '{"tool": "nothing"}',
        '{"tool": "glob", "args": {"pattern": "*"}, "modes": "plan"}',
        '{"tool": "write_file", "args": {"file_path": "a", "content": ""}, "mode": "plan"}',
        '{"tool": "write_file", "args": {"file_path": "a", "content": ""}}',
    ]
    done = run("policy", "check", "--batch", "-", "--mode", "auto_edit", stdin="\n".join(lines))
    found = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 42
    assert [f.get("decision") for f in found] == ["deny", None, None, None, "deny", "allow"]
    assert found[1]["error"]["message"].startswith("Line 2 is not JSON")
    assert (found[2]["error"]["field"], found[3]["error"]["field"]) == ("tool", "modes")
    good = run("policy", "check", "--batch", "-", stdin=lines[0])
    assert good.code == 0


def test_what_a_checker_says_is_shown(check, run: Run, home: Path) -> None:
    put(
        home / ".gemini/policies/guard.toml",
        '[[safety_checker]]\ntoolName = "run_shell_command"\npriority = 1\n[safety_checker.checker]\n'
        'type = "external"\nname = "guard"\n'
        'command = "cat > /dev/null; echo \'{\\"decision\\": \\"ask_user\\", \\"reason\\": \\"look\\"}\'"\n',
    )
    found = check("run_shell_command", command("git log"))
    assert (found["decision"], found["reason"]) == ("ask", "The safety checker guard asks: look")
    assert found["checkers"][0]["decision"] == "ask"
    assert (
        "No session rule lifts what a safety checker says."
        in run("policy", "check", "run_shell_command", command("git log")).out
    )


GUARD = """
[[safety_checker]]
toolName = "write_file"
argsPattern = "secret"
priority = 1
[safety_checker.checker]
type = "external"
name = "guard"
command = "grep -q secret && echo '{\\\"decision\\\": \\\"deny\\\", \\\"reason\\\": \\\"no secrets\\\"}'"
"""
WRITES = """
- text: Writing.
  tool_calls:
    - {name: write_file, args: {file_path: a.txt, content: "secret"}}
    - {name: write_file, args: {file_path: b.txt, content: "open"}}
- text: Done.
"""


def test_a_run_asks_its_checkers_also_where_everything_is_allowed(
    run: Run, home: Path, tmp_path: Path
) -> None:
    put(home / ".gemini/policies/guard.toml", GUARD)
    done = run("-m", f"script:{put(tmp_path / 'script.yaml', WRITES)}", "-y", "-p", "go")
    assert (Path("a.txt").exists(), Path("b.txt").exists()) == (False, True), done.err
    assert "no secrets" in run("show", "latest", "--json").out


def test_policy_check_and_doctor_say_what_a_prefix_lets_through(run: Run, check, home: Path) -> None:
    rule = MINE.replace('["git status", "git log"]', '["mypy", "pwd", "own tool"]')
    put(home / ".interlock/policies/wide.toml", rule)
    put(
        home / ".interlock/policies/auto-saved.toml", MINE.replace("100", "950").replace("git status", "curl")
    )
    parts = check("run_shell_command", command("mypy src && pwd && own tool x && git status"))["parts"]
    mypy, own = (
        "interpreters (--python-executable), -c, config files (--config-file), output files",
        "-c, config files",
    )
    assert [p["lets"] and p["lets"].split("…: ")[1][: len(mypy)] for p in parts[:2]] == [mypy, None]
    assert own in parts[2]["lets"] and parts[3]["lets"] == "git status …: private files (what was committed)"
    assert (
        f"the rule lets through: mypy …: {mypy}"
        in run("policy", "check", "run_shell_command", command("mypy")).out
    )
    notes = [line for line in run("doctor").out.splitlines() if "lets through" in line]
    assert len(notes) == 2 and all(line.startswith("note") for line in notes), "what was saved is exact"
    (wide,) = [line for line in notes if "~/.interlock/policies/wide.toml:2 lets through `mypy`" in line]
    assert mypy in wide and "`own tool`" in wide and "`pwd`" not in wide
