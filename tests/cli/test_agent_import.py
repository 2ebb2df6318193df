"""What another agent keeps in a home is taken over: no secret, nothing of theirs changed, nothing of ours lost."""

import hashlib
import json
import os
import pty
import re
import string
import tempfile
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put, tree
from hypothesis import given
from hypothesis import strategies as st
from patience import HANG_S
from warm import Warm

from interlock.engine.client.imported_servers import CLAUDE, read_imported_servers
from interlock.services.policy.rule import USER
from interlock.services.policy.rule_files import load_rules

KEY = "ghp_0123456789abcdefghijABCDEFGHIJ012345"
SERVERS = {
    "github": {"type": "http", "url": "https://x.org/mcp", "headers": {"Authorization": f"Bearer {KEY}"}},
    "notes": {"command": "npx", "args": ["-y", "notes@1.0.6"], "env": {"DB": "hunter2", "LEVEL": "debug"}},
    "ours": {"command": "theirs"},
    "odd": {"url": 5},
}
RULES = {
    "allow": [
        "Bash(npm run test:*)",
        "Bash",
        "Edit(src/**)",
        "mcp__github__list",
        "Bash(git log*)",
        f"Bash(x {KEY})",
    ],
    "deny": ["Bash(rm -rf *)"],
    "defaultMode": "acceptEdits",
}


@pytest.fixture(autouse=True)
def _usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME", "GITHUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def contents(folder: Path) -> dict[str, str]:
    return {str(file): file.read_text() for file in folder.rglob("*") if file.is_file()}


def test_what_claude_code_keeps_is_shown_then_taken_over_once(run: Run, home: Path) -> None:
    theirs: dict[str, object] = {
        ".claude.json": {"mcpServers": SERVERS, "projects": {"/x": {"mcpServers": {"a": {}}}}},
        ".claude/CLAUDE.md": f"Use tabs.\n@more.md\nMy key is {KEY}.\n",
        ".claude/more.md": "More of it.",
        ".claude/settings.json": f'{{"permissions": {json.dumps(RULES)}, "env": {{"A": "secret-word"}},}}',
    }
    ours: dict[str, Any] = {"mcpServers": {"ours": {"command": "mine"}}, "ui": {"theme": "dark"}}
    tree(home, {**theirs, ".interlock/settings.json": ours, ".interlock/AGENTS.md": "Mine.\n"})
    before = contents(home)
    shown = run("import", "--agent", "claude")
    assert shown.code == 0 and "interlock import --agent claude --yes" in shown.err
    assert contents(home) == before
    for line in (
        "servers      github → ~/.interlock/settings.json (needs GITHUB_TOKEN)",
        "another server of this name is there, and stays",
        "permissions  4 rules → ~/.interlock/policies/claude.toml",
        "permissions  allow Bash: it allows every command.",
        "permissions  defaultMode acceptEdits: ",
        "servers      odd: url: Input should be a valid string",
        "settings     projects: servers of one folder",
        "DB (its value stands in the old file; it wasn't copied)",
    ):
        assert line in shown.out, line

    done = run("import", "--agent", "claude-code", "--yes")
    assert (done.code, done.err) == (0, "4 of 4 taken over.\n")
    after = contents(home)
    assert {name: after[name] for name in before if "/.claude" in name} == {
        name: text for name, text in before.items() if "/.claude" in name
    }
    written = shown.out + "".join(text for name, text in after.items() if "/.interlock/" in name)
    assert not any(secret in written for secret in (KEY, "hunter2", "secret-word"))
    memory = after[str(home / ".interlock/AGENTS.md")]
    assert memory.startswith("Mine.\n") and "More of it." in memory
    settings = json.loads(after[str(home / ".interlock/settings.json")])
    assert settings["ui"] == ours["ui"] and settings["mcpServers"]["ours"] == {"command": "mine"}
    assert settings["mcpServers"]["notes"]["env"] == {"DB": "${DB}", "LEVEL": "debug"}
    assert settings["mcpServers"]["github"]["headers"] == {"Authorization": "Bearer ${GITHUB_TOKEN}"}
    assert load_rules([(home / ".interlock/policies/claude.toml", USER)])[1] == []
    for command, decision in (
        ("npm run test x", "allow"),
        ("rm -rf build", "deny"),
        ("git log", "allow"),
        ("npm run dev", "ask"),
    ):
        checked = run("policy", "check", "run_shell_command", json.dumps({"command": command}))
        assert checked.out.startswith(decision), command
    assert "Use tabs." in run("memory").out

    again = run("import", "--agent", "claude", "--yes", "--json").json
    assert contents(home) == after and not again["taken_over"]
    states = {(item["kind"], item["name"]): item["state"] for item in again["items"]}
    assert states["servers", "github"] == states["memory", "~/.claude/CLAUDE.md"] == "same"
    assert states["servers", "ours"] == "differs" and "DB" in again["unset_variables"]

    own = home / ".interlock/policies/claude.toml"
    own.write_text(f"{own.read_text()}\n# mine\n")
    put(home / ".claude/CLAUDE.md", "Use blanks.")
    kept = contents(home)
    third = run("import", "--agent", "claude", "--yes", "--json").json
    found = {(item["kind"], item["state"]) for item in third["items"]}
    assert {("permissions", "differs"), ("memory", "differs")} <= found and contents(home) == kept


def test_codex_opencode_and_roo_code(run: Run, home: Path) -> None:
    rules = (
        'prefix_rule(pattern=["git", ["log", "show"]])\nprefix_rule(pattern=["rm"], decision="forbidden")\n'
    )
    opencode = {
        "permission": {"bash": {"*": "ask", "git status": "allow"}, "edit": "allow"},
        "mcp": {"search": {"type": "local", "command": ["find", "--key", "{env:SEARCH_KEY}"]}},
    }
    roo = home / ".config/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings"
    tree(
        home,
        {
            ".codex/AGENTS.override.md": " ",
            ".codex/AGENTS.md": "Of Codex.",
            ".codex/rules/default.rules": rules,
            ".codex/config.toml": '[mcp_servers.docs]\nurl = "https://x.org"\nbearer_token_env_var = "DOCS_TOKEN"\n',
            ".codex/auth.json": '{"OPENAI_API_KEY": "sk-x"}',
            ".config/opencode/AGENTS.md": "Of opencode.",
            ".config/opencode/opencode.jsonc": f"// mine\n{json.dumps(opencode)}",
            ".config/Code/User/settings.json": '{"roo-cline.allowedCommands": ["npm test", "*"], // mine\n}',
        },
    )
    put(roo / "custom_modes.yaml", "customModes: []\n")
    put(roo / "mcp_settings.json", {"mcpServers": {"web": {"url": "https://y.org", "alwaysAllow": ["get"]}}})
    taken = {
        name: run("import", "--agent", name, "--yes", "--json").json for name in ("codex", "opencode", "roo")
    }
    new = {n: {i["kind"] for i in one["items"] if i["state"] == "new"} for n, one in taken.items()}
    assert new == {
        "codex": {"memory", "servers", "permissions"},
        "opencode": {"memory", "servers", "permissions"},
        "roo": {"servers", "permissions", "modes"},
    }
    servers = json.loads((home / ".interlock/settings.json").read_text())["mcpServers"]
    assert servers["docs"]["headers"] == {"Authorization": "Bearer ${DOCS_TOKEN}"}
    assert servers["search"]["args"] == ["--key", "${SEARCH_KEY}"] and servers["web"]["alwaysAllow"] == [
        "get"
    ]
    memory = (home / ".interlock/AGENTS.md").read_text()
    assert "Of Codex." in memory and "Of opencode." in memory
    decided = {
        line: run("policy", "check", "run_shell_command", json.dumps({"command": line})).out.split()[0]
        for line in ("git show HEAD", "rm x", "git status", "npm test", "make")
    }
    assert decided == {
        **dict.fromkeys(("git show HEAD", "git status", "npm test"), "allow"),
        "rm x": "deny",
        "make": "ask",
    }
    assert (home / ".interlock/custom_modes.yaml").read_text() == "customModes: []\n"
    assert "left nothing in this home: no ~/.gemini there" in run("import", "--agent", "gemini").err


def test_what_can_not_be_read_or_written_is_named_and_the_rest_taken_over(run: Run, home: Path) -> None:
    tree(
        home,
        {
            ".claude/CLAUDE.md": b"\xff\x00\xfe",
            ".claude/settings.json": "{broken",
            ".claude.json": {"mcpServers": {"a": {"command": "a"}}},
            ".interlock/settings.json": '{"ui": {}} // mine',
        },
    )
    done = run("import", "--agent", "claude", "--yes")
    assert done.code == 1 and "comments in it would be lost" in done.err
    assert "settings.json: it can't be read: " in done.out
    assert (home / ".interlock/settings.json").read_text() == '{"ui": {}} // mine'


def test_conversations_of_a_folder_are_taken_over_only_if_asked_and_gone_on_with(
    run: Run, home: Path, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    claude = [
        {"type": "summary", "summary": "x"},
        {"cwd": str(work), "message": {"role": "user", "content": "<command-name>/clear</command-name>"}},
        {"cwd": str(work), "message": {"role": "user", "content": f"I am Ada, my key is {KEY}."}},
        {
            "message": {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "?"}, {"type": "text", "text": "Hello,"}],
            }
        },
        {"message": {"role": "user", "content": [{"type": "tool_result", "content": "secret"}]}},
        {
            "message": {
                "role": "assistant",
                "content": [{"type": "tool_use", "name": "Bash"}, {"type": "text", "text": "Ada."}],
            }
        },
        {"isSidechain": True, "message": {"role": "user", "content": "aside"}},
    ]
    codex = [
        {"type": "session_meta", "payload": {"cwd": str(work / "sub")}},
        {
            "type": "response_item",
            "payload": {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "Hi."}],
            },
        },
        {"type": "response_item", "payload": {"type": "function_call", "name": "shell"}},
    ]
    gemini = {
        "messages": [
            {"type": "user", "content": "Salut."},
            {"type": "gemini", "content": [{"text": "Bonjour."}]},
        ]
    }
    slug = re.sub(r"[^A-Za-z0-9]", "-", str(work))
    lines = "\n".join(map(json.dumps, claude)) + '\n{"cut'
    put(home / f".claude/projects/{slug}/one.jsonl", lines)
    put(home / f".claude/projects/{slug}-other/two.jsonl", lines.replace(str(work), f"{work}-other"))
    put(home / ".codex/sessions/2026/01/02/rollout-a.jsonl", "\n".join(map(json.dumps, codex)))
    put(home / f".gemini/tmp/{hashlib.sha256(str(work).encode()).hexdigest()}/chats/session-1.json", gemini)
    assert not run("import", "--agent", "claude", "--yes", "--json").json["taken_over"]
    done = run("import", "--agent", "claude", "--conversations", "--yes")
    assert "interlock run main 'PROMPT' --input @" in done.err and "1 of 1 taken over." in done.err
    file = home / ".interlock/conversations/claude/one.json"
    said = json.loads(file.read_text())["history"]
    assert [one["role"] for one in said] == ["user", "assistant"] and said[1]["content"] == "Hello,\n\nAda."
    assert KEY not in file.read_text() and "secret" not in file.read_text()
    reply = put(tmp_path / "reply.yaml", "[{text: Ada}]")
    assert run("run", "main", "Who am I?", "--input", f"@{file}", "-m", f"script:{reply}").code == 0
    assert "I am Ada" in run("export", "latest", "--format", "md").out
    roo = home / ".config/VSCodium/User/globalStorage/rooveterinaryinc.roo-cline/tasks"
    tool = {"type": "tool_result", "content": "<task>no words of a person</task>, of a file"}
    answer = {"type": "tool_result", "content": "<user_message>\nAda.\n</user_message>"}
    ends = {"type": "tool_use", "name": "attempt_completion", "input": {"result": "Hello, Ada."}}
    around = {"type": "text", "text": "<environment_details>secret</environment_details>"}
    put(roo / "t1/history_item.json", {"id": "t1", "workspace": str(work), "task": "x"})
    said_in_roo = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "<user_message>\nHoi.\n</user_message>"}, around],
        },
        {"role": "assistant", "content": [{"type": "text", "text": "Who?"}]},
        {"role": "user", "content": [tool, answer, around]},
        {"role": "assistant", "content": [ends]},
    ]
    put(roo / "t1/api_conversation_history.json", said_in_roo)
    put(roo / "t2/history_item.json", {"id": "t2", "workspace": f"{work}-other"})
    put(roo / "t2/api_conversation_history.json", said_in_roo)
    opencode = home / ".local/share/opencode/storage"
    put(opencode / "session/p/s1.json", {"id": "s1", "directory": str(work)})
    put(opencode / "message/s1/m1.json", {"role": "user"})
    put(opencode / "message/s1/m2.json", {"role": "assistant"})
    put(opencode / "part/m1/a.json", {"type": "text", "text": "Ciao."})
    put(opencode / "part/m1/b.json", {"type": "text", "text": "a file", "synthetic": True})
    put(opencode / "part/m2/a.json", {"type": "tool"})
    put(opencode / "part/m2/b.json", {"type": "text", "text": "Salve."})
    for name, file_name, words in (
        ("roo", "t1", ["Hoi.", "Who?", "Ada.", "Hello, Ada."]),
        ("opencode", "s1", ["Ciao.", "Salve."]),
    ):
        run("import", "--agent", name, "--conversations", "--yes")
        [file] = (home / f".interlock/conversations/{name}").iterdir()
        kept = json.loads(file.read_text())["history"]
        assert (file.stem, [one["content"] for one in kept]) == (file_name, words)
    put(opencode.parent / "opencode.db", b"x")
    items = run("import", "--agent", "opencode", "--conversations", "--json").json["items"]
    assert [one["state"] for one in items if one["kind"] == "conversations"] == ["left out", "same"]
    for name, expected in (("codex", "Hi."), ("gemini", "Salut.")):
        items = run("import", "--agent", name, "--conversations", "--json").json["items"]
        assert [one["name"] for one in items if one["kind"] == "conversations"] == [expected]
    assert not run("import", "--agent", "claude", "--conversations", "--yes", "--json").json["taken_over"]


def test_a_folder_elsewhere_is_found_and_the_chosen_memory_file_is_written(
    run: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CODEX_HOME", str(home / "moved"))
    put(home / "moved/AGENTS.md", "Of Codex.")
    put(home / ".interlock/settings.json", {"context": {"fileName": "RULES.md"}})
    done = run("import", "--agent", "codex", "--yes")
    assert "are read from ~/.codex; link it to this folder" in done.out
    assert "Of Codex." in (home / ".interlock/RULES.md").read_text() and "Of Codex." in run("memory").out


def test_a_person_is_asked(home: Path, tmp_path: Path) -> None:
    put(home / ".codex/AGENTS.md", "Of Codex.")
    for word in (b"n\n", b"y\n"):
        ours, theirs = pty.openpty()
        os.write(ours, word)
        with (tmp_path / "told").open("w+b") as told:
            asked = Warm(
                ["import", "--agent", "codex"],
                cwd=tmp_path,
                env=os.environ,
                stdin=theirs,
                stderr=told.fileno(),
            )
            assert asked.wait(HANG_S) == 0
        os.close(ours)
        os.close(theirs)
        assert (home / ".interlock/AGENTS.md").exists() == (word == b"y\n")


SECRETS = st.text(string.ascii_letters + string.digits + "-_", min_size=9, max_size=40)


@given(SECRETS)
def test_no_value_that_could_be_a_secret_is_copied(secret: str) -> None:
    """Whatever it looks like, in each place that holds secrets."""
    secret = f"q{secret}"  # none of the words that everybody may read
    server = {
        "command": "x",
        "args": [
            "--api-key",
            secret,
            f"--token={secret}",
            "-e",
            f"ANY={secret}",
            "--header",
            f"X-Key: {secret}",
        ],
        "env": {"ANY": secret, "MIXED": f"${{ANY}}{secret}", "DEFAULT": f"${{ANY:-{secret}}}"},
    }
    web = {
        "url": f"https://me:{secret}@x.org/mcp?key={secret}",
        "headers": {"Authorization": f"Bearer {secret}", "X-Any": secret},
        "oauth": {"clientSecret": secret},
    }
    with tempfile.TemporaryDirectory() as name:
        file = put(Path(name) / "servers.json", {"mcpServers": {"a": server, "b": web}})
        found = [*read_imported_servers(file, CLAUDE, Path(name))]
    assert [one.problem for one in found] == ["", ""]
    assert not any(secret in json.dumps(one.settings) for one in found)
