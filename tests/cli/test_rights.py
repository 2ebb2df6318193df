"""The model can't raise its own rights: not in this run, not in the next, not by waiting for a resume."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Run, one_call
from folders import put, tree
from scripted import says, tools

from interlock.engine.store import resolve_state_directory, select_rows
from interlock.services.files.protected import ProtectedPaths
from interlock.services.hooks.scripts import can_run_python_isolated, find_code_files_and_folders
from interlock.services.policy.policy import RulePolicy
from interlock.services.trust.decisions import record_trust_decision
from interlock.state.calls import CallView, Verdict

RULE = '[[rule]]\ntoolName = "{tool}"\ndecision = "{decision}"\npriority = 900\n'


def script(tmp_path: Path, *replies: Any) -> tuple[str, str]:
    file = put(tmp_path / "script.json", replies)
    return "-m", f"script:{file}"


def write(path: str, content: str = "x") -> dict[str, Any]:
    return says("write_file", file_path=path, content=content)


@pytest.mark.parametrize("mode", [["-y"], ["--approval-mode", "auto_edit"]])
def test_a_policy_that_the_model_writes_waits_for_a_person(
    run: Run, tmp_path: Path, home: Path, mode: list[str]
) -> None:
    record_trust_decision(tmp_path / "work", home, trusted=True)
    policy = ".interlock/policies/p.toml"
    asks = write(policy, RULE.format(tool="*", decision="allow"))
    done = run(*script(tmp_path, asks, {"text": "Well."}), *mode, "-p", "do it", "-o", "json")
    assert done.code == 75
    (waiting,) = done.json["pending_approvals"]
    assert "always needs approval" in waiting["reason"] and not Path(policy).exists()


def test_a_command_begins_in_the_real_folder_of_a_workspace_that_a_link_leads_to(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """bash takes `PWD` from the environment, and `..` from that."""
    put(tmp_path / "work" / "a.txt", "public")
    put(tmp_path / "user" / "work" / "a.txt", "secret")
    (tmp_path / "user" / "link").symlink_to(tmp_path / "work")
    monkeypatch.setenv("PWD", str(tmp_path / "user" / "link"))
    done = run(*one_call("run_shell_command", command="cd ../work && cat a.txt"))
    assert done.code == 0 and "public" in done.out and "secret" not in done.out


def asked(run: Run, path: str) -> str:
    """Why a write is asked about in auto_edit, or nothing."""
    args = json.dumps({"file_path": path, "content": "x"})
    done = run("policy", "check", "write_file", args, "--approval-mode", "auto_edit", "--json").json
    return done["reason"] if done["decision"] == "ask" else ""


def test_what_trusted_files_name_is_asked_about_as_they_are(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "work"
    record_trust_decision(root, home, trusted=True)
    servers = {
        "a": {"command": "python3", "args": ["server.py"], "cwd": "tools/mcp"},
        "b": {"command": "python3", "args": ["-m", "pkg.serve"]},
    }
    git = "[core]\n\thooksPath = my/hooks\n[include]\n\tpath = ../cfg/one\n"
    files = {
        "GEMINI.md": "See @docs/rules.md",
        "docs/rules.md": "See @more.md",
        "docs/more.md": "Be kind.",
        "docs/other.md": "Not imported.",
        "prompt.md": "You are a model.",
        "tools/mcp/server.py": "import os, lib as l\nfrom json import loads\n",
        "tools/mcp/lib.py": "import more.deep",
        "pkg/serve.py": "",
        ".interlock/settings.json": json.dumps({"mcpServers": servers}),
        ".git/config": git,
        "cfg/one": "[include]\n\tpath = two",
    }
    tree(root, files)
    monkeypatch.setenv("GEMINI_SYSTEM_MD", "prompt.md")
    (tmp_path / "gitconfig").write_text("[core]\n\thooksPath = users/hooks\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    believed = ["docs/rules.md", "docs/more.md", "prompt.md", "tools/mcp/server.py", "pkg/serve.py"]
    believed += [".interlock/workflows/note.py"]
    believed += ["tools/mcp/lib.py", "tools/mcp/more/__init__.py", "tools/mcp/json.py", "tools/mcp/os.py"]
    believed += [
        "tools/mcp/x.py",
        "json.py",
        "pkg/x.py",
        "my/hooks/pre-commit",
        "users/hooks/pre-push",
        "cfg/one",
        "cfg/two",
    ]
    assert [path for path in believed if not asked(run, path)] == []
    assert [
        path for path in ("docs/other.md", "tools/x.py", "other.py", "my/x", "cfg/x") if asked(run, path)
    ] == []


CHECKS = {
    "hooks/check.py": "import rules\nfrom lib import more\n",
    "hooks/rules.py": "",
    "hooks/lib/more.py": "",
    "hooks/run.sh": 'python "$(dirname "$0")/../inner/x.py"\n',
    "inner/x.py": "",
    "alone/one.py": "import json\n",
    "top.py": "import helper\n",
    "helper.py": "import deeper",
    "js/a.mjs": "import x from '../far/b.mjs'",
    "src/app.py": "",
    ".venv/pyvenv.cfg": "",
}
"""The code of hooks, in a project."""


@pytest.mark.parametrize(
    ("line", "kept", "free", "isolated"),
    [
        ("python hooks/check.py src/app.py", "hooks/lib/rules.py hooks/json.py hooks/__pycache__/r.pyc", "", 0),
        ("python3 -m hooks.check", "hooks/check.py hooks/lib/x.py json.py sitecustomize.py hooks.py", "", 0),
        ("cd hooks && python check.py", "hooks/check.py hooks/json.py hooks/lib/more.py", "json.py", 0),
        ("cd hooks; exec ./run.sh", "hooks/run.sh hooks/x inner/x.py inner/json.py", "", 0),
        ('"$CLAUDE_PROJECT_DIR"/hooks/run.sh', "hooks/run.sh inner/x.py", "", 0),
        ("bash -lc 'cd hooks && python check.py'", "hooks/rules.py hooks/json.py", "", 0),
        ("PYTHONPATH=hooks/lib python -c 'import more'", "hooks/lib/x.py more.py json.py", "hooks/x.py", 0),
        ("env X=1 timeout 5 uv run --with y hooks/check.py", "hooks/rules.py hooks/new.py", "", 0),
        ("python top.py", "top.py helper.py deeper.py json.py __pycache__/x.pyc", "new.py hooks/x.py", 0),
        ("python3 alone/one.py", "alone/one.py alone/json.py", "json.py", 1),
        ("python3 -B -c 'import json'", "json.py", "other.py", 1),
        (".venv/bin/python -m mypy src/app.py", ".venv/lib/x.pth .venv/bin/python src/app.py", "src/b.py", 0),
        ("node js/a.mjs", "js/a.mjs js/x.mjs far/b.mjs", "far/x.mjs", 0),
        ("npx -y prettier --write src/app.py", "src/app.py", "src/b.py", 0),
        ("ruff check src/app.py && mypy src", "src/app.py", "src/b.py ruff", 0),
    ],
)  # fmt: skip
def test_what_a_hook_runs_and_would_import_is_protected_like_the_hook(
    tmp_path: Path, line: str, kept: str, free: str, isolated: int
) -> None:
    tree(tmp_path, CHECKS)
    (tmp_path / ".venv/bin").mkdir()
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    protected = ProtectedPaths(places=dict.fromkeys(find_code_files_and_folders(line, tmp_path), "hooks"))
    of = {
        name: protected.find_path_protection(tmp_path / name, [tmp_path])
        for name in f"{kept} {free} src/new.py".split()
    }
    assert {name for name, found in of.items() if found} == {*kept.split()}
    assert can_run_python_isolated(line, tmp_path) == isolated
    (tmp_path / "alone/json.py").touch()
    assert can_run_python_isolated(line, tmp_path) == isolated, (
        "what would shadow a module of Python's is none of the hook's"
    )


@pytest.mark.parametrize("folder", ["home/.interlock", "home/.gemini", "work/.interlock", "work/.github/x"])
def test_a_workspace_that_is_itself_what_the_program_goes_by_is_asked_about(
    run: Run, tmp_path: Path, home: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "state"))
    place = {"home": home}.get(folder.partition("/")[0], tmp_path / folder.partition("/")[0])
    place = place / folder.partition("/")[2]
    place.mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(place)
    assert "always needs approval" in asked(run, "policies/p.toml")


def test_a_run_keeps_the_rules_it_started_with(run: Run, tmp_path: Path, home: Path) -> None:
    policies = home / ".interlock/policies"
    policies.mkdir(parents=True)
    one, two = write("one.txt"), write("two.txt")
    given = script(tmp_path, one, two, two, write("three.txt"), {"text": "Done."})
    assert run(*given, "-p", "do it").code == 75
    (policies / "wide.toml").write_text(RULE.format(tool="write_file", decision="allow"))
    told = run("resume", "latest", "--approve", "all", "-o", "json")
    assert told.code == 75 and Path("one.txt").exists() and not Path("two.txt").exists()
    (waiting,) = told.json["pending_approvals"]
    assert "When this run began, it was held for approval" in waiting["reason"]
    (warning,) = [text for text in told.json.get("warnings", []) if "rules have changed" in text]
    assert "wide.toml" in warning and "--new-rules" in warning
    assert run("resume", "latest", "--reject", "all", "-o", "json").code == 75, "the same call is asked again"
    confirmed = run("resume", "latest", "--reject", "all", "--new-rules", "-o", "json")
    assert not Path("two.txt").exists() and Path("three.txt").exists(), (
        "what the new rules allow runs unasked"
    )
    assert "rules have changed" not in confirmed.out


def test_settings_left_at_their_defaults_are_kept_as_earlier_versions_did(run: Run, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('[{"text": "Done."}]')
    assert run("-m", f"script:{tmp_path / 's.json'}", "-p", "go").code == 0
    ((options,),) = select_rows(resolve_state_directory(), "select options from runs")
    assert json.loads(options)["rights"]["settings"]["context.fileFiltering"] == {}


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("decision", ["allow", "ask_user"])
def test_rules_are_asked_once_about_each_call_also_of_one_that_waits(
    run: Run, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch, decision: str, calls: int
) -> None:
    """A lone call is decided inline, as far as possible; of two, each has its own task."""
    decide, asked = RulePolicy.decide_by_rules_and_checkers, list[str]()

    async def noted(self: RulePolicy, call: CallView, *more: Any) -> Verdict:
        asked.append(call.name)
        return await decide(self, call, *more)

    monkeypatch.setattr(RulePolicy, "decide_by_rules_and_checkers", noted)
    policies = home / ".interlock/policies"
    put(policies / "wide.toml", RULE.format(tool="list_directory", decision=decision))
    listing: dict[str, Any] = tools(*([{"name": "list_directory", "args": {"dir_path": "."}}] * calls))
    done = run(*script(tmp_path, listing, {"text": "Done."}), "-p", "do it", "-o", "json")
    if decision == "ask_user":
        assert len(done.json["pending_approvals"]) == calls
        done = run("resume", "latest", "--approve", "all", "-o", "json")
    assert done.json["response"] == "Done."
    assert asked == ["list_directory"] * calls


GUARD = {"matcher": "write", "hooks": [{"type": "command", "command": "true", "name": "guard"}]}
MODE = "customModes:\n  - {slug: ask, name: Ask, roleDefinition: You write., groups: [read, edit]}\n"
AGENT = "---\nname: helper\ndescription: Helps.\ntools: [TOOLS]\n---\nYou help.\n"
HELP = says("invoke_agent", agent_name="helper", prompt="Help.")


@pytest.mark.parametrize(
    ("file", "before", "after", "named", "call"),
    [
        ("settings.json", json.dumps({"hooks": {"BeforeTool": [GUARD]}}), "{}", "hook 'guard'", None),
        ("settings.json", "{}", '{"mcpServers": {"s": {"command": "x"}}}', "MCP server 's'", HELP),
        ("agents/helper.md", AGENT, AGENT.replace("TOOLS", "write_file"), "agent 'helper'", HELP),
    ],
)
def test_what_else_a_run_began_with_is_kept_too(
    run: Run, home: Path, tmp_path: Path, file: str, before: str, after: str, named: str, call: Any
) -> None:
    place = put(home / ".interlock" / file, before.replace("TOOLS", "read_file"))
    ask = says("ask_user", questions=[{"question": "Go?", "type": "text"}])
    given = script(tmp_path, ask, call or write("one.txt"), {"text": "Done."})
    asks = run(*given, "--approval-mode", "auto_edit", "-p", "do it", "-o", "json").json["pending_approvals"]
    place.write_text(after)
    told = run("resume", "latest", "--answer", f"{asks[0]['id']}=yes", "-o", "json")
    (warning,) = changed(told)
    assert named in warning
    if named.startswith("MCP"):
        return
    assert told.code == 75 and "When this run began" in told.json["pending_approvals"][0]["reason"]
    done = run("resume", "latest", "--new-rules", "--approve", "all", "-o", "json")
    assert changed(done) == []


def test_a_mode_and_its_tasks_settings_are_as_when_the_run_began(
    run: Run, home: Path, tmp_path: Path
) -> None:
    write_it = says("write_to_file", path="one.txt", content="x")
    ask = says("ask_followup_question", question="Go?", follow_up=["Yes."])
    end = says("attempt_completion", result="Done.")
    given = script(tmp_path, ask, write_it, ask, write_it, end)
    asks = run("run", "task", *given, "--mode", "ask", "go", "-o", "json").json["pending_approvals"]
    own = home / ".interlock"
    tree(own, {"custom_modes.yaml": MODE, "settings.json": '{"task": {"alwaysAllowWrite": true}}'})
    again = run("resume", "latest", "--answer", f"{asks[0]['id']}=yes", "-o", "json")
    assert "task.alwaysAllowWrite, mode 'ask'" in changed(again)[0] and not Path("one.txt").exists()
    request = again.json["pending_approvals"][0]
    assert request["tool_name"] == "ask_followup_question", "the mode refuses the write"
    assert run("resume", "latest", "--answer", f"{request['id']}=yes", "--new-rules").code == 0
    assert Path("one.txt").exists()


def command(line: str, tool: str = "run_shell_command") -> dict[str, Any]:
    return says(tool, command=line)


SAVE = ("resume", "latest", "--approve", "all", "--always-save", "-o", "json")
AGAIN = ("resume", "latest", "--approve", "all", "-o", "json")


def changed(told: Any) -> list[str]:
    return [text for text in told.json.get("warnings", []) if "rules have changed" in text]


def test_what_this_runs_person_saved_counts_as_confirmed(run: Run, tmp_path: Path, home: Path) -> None:
    replies = (command(line) for line in ("touch a", "mkdir b", "touch a", "rmdir b", "mkdir b"))
    assert run(*script(tmp_path, *replies, {"text": "Done."}), "-p", "do it").code == 75
    assert run(*SAVE).code == 75
    twice = run(*SAVE)
    assert changed(twice) == [] and Path("b").is_dir()
    (waiting,) = twice.json["pending_approvals"]
    assert waiting["args"] == {"command": "rmdir b"}, "`touch a` is covered"
    saved = home / ".interlock/policies/auto-saved.toml"
    assert saved.read_text().count("[[rule]]") == 2
    assert ", run " in saved.read_text() and saved.stat().st_mode & 0o777 == 0o600
    saved.write_text(saved.read_text() + RULE.format(tool="write_file", decision="allow"))
    done = run(*AGAIN)
    (warning,) = changed(done)
    assert "auto-saved.toml" in warning and done.code == 0, "the rule that it saved itself holds"


def test_a_rule_that_came_into_the_file_otherwise_is_not_confirmed_by_saving_another(
    run: Run, tmp_path: Path, home: Path
) -> None:
    given = script(tmp_path, command("touch a"), write("one.txt"), {"text": "Done."})
    assert run(*given, "-p", "do it").code == 75
    policies = home / ".interlock/policies"
    put(policies / "auto-saved.toml", RULE.format(tool="write_file", decision="allow"))
    told = run(*SAVE)
    assert told.code == 75 and "auto-saved.toml" in changed(told)[0]
    assert told.json["pending_approvals"][0]["tool_name"] == "write_file"
    assert "auto-saved.toml" in changed(run(*AGAIN))[0]


def test_what_is_saved_in_a_subtask_counts_for_its_task_and_for_the_next_subtask(
    run: Run, tmp_path: Path
) -> None:
    begin = says("new_task", mode="code", message="Do a part.")
    end = says("attempt_completion", result="Done.")
    touch, mkdir, rmdir = (command(line, "execute_command") for line in ("touch a", "mkdir b", "rmdir b"))
    first = [{**reply, "agent": "task:0.0"} for reply in (touch, end)]
    second = [{**reply, "agent": "task:1.0"} for reply in (touch, mkdir, end)]
    given = script(tmp_path, begin, *first, begin, *second, rmdir, end)
    assert run("run", "task", *given, "--allowed-tools", "new_task", "--mode", "code", "go").code == 75
    waits: list[str] = []
    told = run(*SAVE)
    while told.code == 75:
        assert changed(told) == [], told.json
        waits += [request["args"]["command"] for request in told.json["pending_approvals"]]
        told = run(*AGAIN)
    assert (told.code, changed(told), waits) == (0, [], ["mkdir b", "rmdir b"]), told.json.get("error")


@pytest.mark.parametrize("flags", [[], ["--new-rules"]])
def test_a_rule_that_came_between_question_and_answer_forbids_the_call(
    run: Run, tmp_path: Path, home: Path, flags: list[str]
) -> None:
    assert run(*script(tmp_path, write("one.txt"), {"text": "Well."}), "-p", "do it").code == 75
    policies = home / ".interlock/policies"
    put(policies / "narrow.toml", RULE.format(tool="write_file", decision="deny"))
    done = run("resume", "latest", "--approve", "all", *flags, "-o", "json")
    assert done.code != 75 and not Path("one.txt").exists()
    assert bool(flags) or "narrow.toml" in changed(done)[0]


def test_flags_of_a_resume_are_a_persons_word(run: Run, tmp_path: Path) -> None:
    given = script(tmp_path, write("one.txt"), write("two.txt"), {"text": "Done."})
    assert run(*given, "-p", "do it").code == 75
    done = run("resume", "latest", "--approve", "all", "--allowed-tools", "write_file", "-o", "json")
    assert done.code == 0 and Path("two.txt").exists() and "rules have changed" not in done.out


@pytest.mark.parametrize(
    "flags",
    [("--effort", "low"), ("--no-loop-check",), ("--approval-mode", "yolo"), ("--disallowed-tools", "glob")],
)
def test_a_tool_that_a_flag_denied_stays_denied_whatever_flags_a_resume_has(
    run: Run, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    given = script(tmp_path, command("mkdir made"), write("one.txt"), {"text": "Done."})
    assert run(*given, "-p", "do it", "--disallowed-tools", "write_file").code == 75
    done = run("resume", "latest", "--approve", "all", *flags)
    assert (done.code, Path("made").exists(), Path("one.txt").exists()) == (56, True, False), done


def test_a_rule_that_names_nothing_is_told_of_by_a_run_and_by_doctor(
    run: Run, tmp_path: Path, home: Path
) -> None:
    policies = home / ".interlock/policies"
    put(policies / "typo.toml", RULE.format(tool="wirte_file", decision="deny"))
    done = run(*script(tmp_path, {"text": "Done."}), "-p", "do it", "-o", "json")
    told = "typo.toml:1: unknown tool 'wirte_file'; did you mean 'write_file'?; it never counts here"
    assert any(told in text for text in done.json["warnings"])
    assert told in run("doctor").out
