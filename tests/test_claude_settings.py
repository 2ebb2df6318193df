"""Claude Code's settings of a repository: hooks, variables and chosen servers count once it is trusted, as there."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from folders import put, tree
from scripted import call, shell, tools

from interlock.services.config.claude_settings import describe_unused_variable

HOOK = """
import json, os, sys
given = json.load(sys.stdin)
log = os.path.join(os.environ["CLAUDE_PROJECT_DIR"], "log")
open(log, "a").write(json.dumps([given, os.environ.get("COLOR"), os.environ.get("GIT_DIR")]) + "\\n")
sys.stdout.write(os.environ.get("REPLY", ""))
sys.exit(int(os.environ.get("CODE", "0")))
"""
COMMAND = f'{sys.executable} "$CLAUDE_PROJECT_DIR"/.claude/hooks/log.py'


def settings(event: str, matcher: str | None = None, more: str = "", **others: Any) -> dict[str, Any]:
    group: dict[str, Any] = {"hooks": [{"type": "command", "command": f"{more} {COMMAND}", "timeout": 60}]}
    return {"hooks": {event: [{**group, **({"matcher": matcher} if matcher is not None else {})}]}, **others}


def go(run: Run, folder: Path, claude: dict[str, Any], *replies: dict[str, Any]) -> tuple[Done, list[Any]]:
    """Run the replies in a workspace with these settings; returns what the hook was given, too."""
    tree(folder / "work", {".claude/settings.json": claude, ".claude/hooks/log.py": HOOK})
    put(folder / "script.json", [*replies, {"text": "done"}])
    done = run("-m", f"script:{folder / 'script.json'}", "-p", "go", "--skip-trust", "-y")
    log = folder / "work" / "log"
    return done, [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


WRITE = tools(call("write_file", file_path="a.txt", content="x"))
LIST = tools(shell("echo hi"))


@pytest.mark.parametrize(
    ("matcher", "seen"),
    [
        (None, ["Bash", "Write"]),
        ("*", ["Bash", "Write"]),
        ("Bash", ["Bash"]),
        ("Edit|Write", ["Write"]),
        ("W.*", ["Write"]),
        ("Ba", []),
        ("^(?!Bash)", []),
        ("mcp__.*", []),
    ],
)
def test_a_hook_matches_claude_codes_names_as_there(
    run: Run, tmp_path: Path, matcher: str | None, seen: list[str]
) -> None:
    done, log = go(run, tmp_path, settings("PreToolUse", matcher), LIST, WRITE)
    assert done.code == 0, done.err
    assert [given["tool_name"] for given, *_ in log] == seen


def test_a_hook_is_given_claude_codes_fields_and_variables(run: Run, tmp_path: Path) -> None:
    env = {"COLOR": "red", "GIT_DIR": "x"}
    _, log = go(run, tmp_path, settings("PreToolUse", "Write", env=env), WRITE)
    ((given, color, git),) = log
    path = str(tmp_path / "work" / "a.txt")
    assert (given["hook_event_name"], given["tool_input"]["file_path"]) == ("PreToolUse", path)
    assert (color, git) == ("red", None)


def test_a_hook_is_given_the_name_of_a_servers_tool_with_the_whole_server(run: Run, tmp_path: Path) -> None:
    servers = {name: {"command": "x"} for name in ("@acme/magic", "acme")}
    tree(tmp_path / "work", {".mcp.json": {"mcpServers": servers}, ".claude/hooks/log.py": HOOK})
    put(tmp_path / "work/.claude/settings.json", settings("PreToolUse", "mcp__acme_magic__go"))
    event = '{"tool_name": "mcp_acme_magic_go", "tool_input": {}}'
    run("hooks", "test", "BeforeTool", "--input", event, "--run", "--skip-trust")
    ((given, *_),) = [json.loads(line) for line in (tmp_path / "work/log").read_text().splitlines()]
    assert given["tool_name"] == "mcp__acme_magic__go"


def test_exit_code_2_blocks_a_call_and_of_a_result_only_tells_the_model(run: Run, tmp_path: Path) -> None:
    block = "echo no way >&2; CODE=2"
    done, log = go(
        run, tmp_path, settings("PreToolUse", "Write", block), WRITE, {"expect": "no way", "text": "x"}
    )
    assert (done.code, len(log)) == (56, 1), done.err  # the run ends as one that was refused something
    assert not (tmp_path / "work" / "a.txt").exists()
    after = settings("PostToolUse", "Write", block)
    done, _ = go(run, tmp_path, after, WRITE, {"expect": "no way", "text": "x"})
    assert done.code == 0, done.err
    assert (tmp_path / "work" / "a.txt").exists()


def test_a_hook_may_change_arguments_in_claude_codes_names(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "work" / "b.txt")
    reply = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}
    reply["hookSpecificOutput"]["updatedInput"] = {"file_path": path, "content": "x"}  # type: ignore[assignment]
    done, _ = go(run, tmp_path, settings("PreToolUse", "Write", f"REPLY='{json.dumps(reply)}'"), WRITE)
    assert done.code == 0, done.err
    assert (tmp_path / "work" / "b.txt").exists() and not (tmp_path / "work" / "a.txt").exists()


def test_a_result_has_the_fields_of_claude_codes_tool(run: Run, tmp_path: Path) -> None:
    _, log = go(run, tmp_path, settings("PostToolUse"), LIST, WRITE)
    (bash, *_), (write, *_) = log
    assert bash["tool_response"]["stdout"].strip() == "hi"
    assert write["tool_response"]["filePath"] == str(tmp_path / "work" / "a.txt")
    tested = run("hooks", "test", "PostToolUse", "--skip-trust", "--input", '{"tool_name": "glob"}').out
    assert '"tool_name": "Glob"' in tested


def test_a_stop_hook_sends_the_model_back_once(run: Run, tmp_path: Path) -> None:
    claude = settings(
        "Stop", None, "test -e once || { touch once; echo 'run the tests' >&2; CODE=2; export CODE; };"
    )
    done, log = go(run, tmp_path, claude, {"text": "first"}, {"expect": "run the tests", "text": "second"})
    assert (done.code, done.out) == (0, "second\n"), done.err
    assert [given["stop_hook_active"] for given, *_ in log] == [False, True]


def test_plain_text_of_a_prompts_hook_is_for_the_model(run: Run, tmp_path: Path) -> None:
    claude = settings("UserPromptSubmit", None, "REPLY='be brief'")
    done, log = go(run, tmp_path, claude, {"expect": "be brief", "text": "x"})
    assert done.code == 0, done.err
    assert log[0][0]["prompt"] == "go"


def test_what_interlock_cant_do_of_hooks_is_named_and_doesnt_count(run: Run, tmp_path: Path) -> None:
    hooks = {
        "SubagentStop": [{"hooks": []}],
        "PreToolUse": [
            {
                "hooks": [
                    {"type": "prompt", "prompt": "x"},
                    {"type": "command", "command": "touch x", "if": "Bash(a)"},
                ]
            },
            {"matcher": "^(?!x)", "hooks": [{"type": "command", "command": "touch x"}]},
        ],
    }
    tree(tmp_path / "work", {".claude/settings.json": {"hooks": hooks}})
    shown = run("trust").out
    for why in ("no such event", "of type 'prompt'", "doesn't know `if`", "no look-around"):
        assert why in shown
    assert "touch x" in shown
    listed = run("hooks", "--skip-trust")
    assert "touch x" not in listed.out


def test_hooks_are_off_where_claude_codes_settings_say_so(run: Run, tmp_path: Path) -> None:
    _, log = go(run, tmp_path, settings("PreToolUse", disableAllHooks=True), LIST)
    assert log == []


@pytest.mark.parametrize(
    ("claude", "enabled"),
    [
        ({}, {"a", "b"}),
        ({"enabledMcpjsonServers": ["a"]}, {"a"}),
        ({"enabledMcpjsonServers": ["a"], "enableAllProjectMcpServers": True}, {"a", "b"}),
        ({"disabledMcpjsonServers": ["a"]}, {"b"}),
    ],
)
def test_servers_that_nobody_chose_are_disabled(
    run: Run, tmp_path: Path, claude: dict[str, Any], enabled: set[str]
) -> None:
    servers = {"mcpServers": {name: {"command": "true"} for name in "ab"}}
    tree(tmp_path / "work", {".claude/settings.json": claude, ".mcp.json": servers})
    listed = run("mcp", "list", "--json", "--skip-trust").json["servers"]
    assert {server["name"] for server in listed if server["status"] != "disabled"} == enabled


OBEYED = """
PATH LD_PRELOAD DYLD_INSERT_LIBRARIES GIT_SSH_COMMAND GIT_DIR http_proxy HTTPS_PROXY ALL_PROXY ANTHROPIC_BASE_URL
OPENAI_BASE_URL OPENAI_API_KEY GOOGLE_GEMINI_BASE_URL MISTRAL_BASE_URL GROQ_API_BASE AZURE_OPENAI_ENDPOINT BASH_ENV ENV
NODE_OPTIONS PYTHONPATH PYTHONSTARTUP PERL5OPT RUBYOPT JAVA_TOOL_OPTIONS PYTEST_ADDOPTS LESSOPEN PAGER EDITOR HOME SHELL
IFS RIPGREP_CONFIG_PATH npm_config_registry PIP_INDEX_URL UV_INDEX_URL CARGO_HOME RUSTC_WRAPPER MAKEFLAGS GOFLAGS TMPDIR
INTERLOCK_HOME GEMINI_MODEL CLAUDE_CODE_MAX_OUTPUT_TOKENS BASH_MAX_TIMEOUT_MS OTEL_EXPORTER_OTLP_ENDPOINT LC_ALL LANG
SSL_CERT_FILE NODE_EXTRA_CA_CERTS DOCKER_HOST KUBECONFIG XDG_CONFIG_HOME ZDOTDIR SSH_ASKPASS A-B 1A
"""


@pytest.mark.parametrize("name", OBEYED.split())
def test_a_repository_sets_no_variable_that_programs_obey(name: str) -> None:
    assert describe_unused_variable(name, "x")


@pytest.mark.parametrize("name", ["COLOR", "DATABASE_NAME", "PORT", "FEATURE_X", "TZ", "DEBUG", "CI"])
def test_a_repository_sets_other_variables(name: str) -> None:
    assert describe_unused_variable(name, "x") == ""


def kinds_that_count(run: Run, folder: Path) -> set[str]:
    """What counts of the files of other agents in `work`, as runs and `mcp list` show it."""
    deny = ["Edit(denied)"]
    claude = settings("PreToolUse", permissions={"deny": deny}, env={"COLOR": "red"})
    work = tree(
        folder / "work",
        {".mcp.json": {"mcpServers": {"s": {"command": "x"}}}, ".cursorignore": "hidden"},
    )
    writes = [tools(call("write_file", file_path=name, content="x")) for name in ("denied", "hidden")]
    _, log = go(run, folder, claude, tools(shell("echo $COLOR > color")), *writes)
    listed = json.loads(run("mcp", "list", "--json", "--skip-trust").out)["servers"]
    found = {
        "servers": bool(listed),
        "hooks": bool(log),
        "permissions": not (work / "denied").exists(),
        "environment": (work / "color").read_text() == "red\n",
        "ignore": not (work / "hidden").exists(),
    }
    return {kind for kind, counts in found.items() if counts}


KINDS = {"servers", "hooks", "permissions", "environment", "ignore"}


@pytest.mark.parametrize("off", [*sorted(KINDS), "none"])
def test_only_the_user_turns_a_kind_of_other_agents_files_off(run: Run, tmp_path: Path, off: str) -> None:
    wish = {"context": {"read": {kind: kind == off for kind in KINDS}}}
    put(tmp_path / "work/.interlock/settings.json", wish)
    mine = {"context": {"read": {off: False} if off in KINDS else {}}}
    put(Path.home() / ".interlock/settings.json", mine)
    assert kinds_that_count(run, tmp_path) == KINDS - {off}
    said = run("trust").out + run("doctor").out
    assert (f"the setting context.read.{off} is false" in said) == (off in KINDS)


def test_doctor_has_a_row_for_each_file_of_another_agent_used_or_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    permissions = {"allow": ["Bash(npm test)", "Bash"], "deny": ["Read(x)"]}
    files = {
        ".claude/settings.json": {"permissions": permissions},
        ".cursor/mcp.json": {"mcpServers": {"a": {"command": "true"}}},
        ".cursor/hooks.json": {"hooks": {}},
        ".cursorignore": "secret",
    }
    work = tree(tmp_path / "work", files)
    rows = run("doctor").out
    assert f"{work}/.cursor/mcp.json: not used; the folder isn't trusted" in rows
    assert ".claude/settings.json (3 permissions)" in rows
    run("trust", "--yes")
    rows = run("doctor").out
    for line in (
        "/.cursor/mcp.json: 1 MCP server; these count: a",
        "/.claude/settings.json: 3 permissions; of them permission allow Bash (doesn't count: ",
        "/.cursor/hooks.json: not used; Interlock runs hooks of .claude",
        "/.cursorignore: hides files from tools",
    ):
        assert line in rows
