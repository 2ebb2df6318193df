"""MCP servers in other agents' files: each program's spelling comes to the same server."""

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Run
from folders import put, table, tree

from interlock.services.config.settings import LoadedSettings, load_settings
from interlock.services.mcp import ServerSpec, build_server_specs
from interlock.services.trust.decisions import record_trust_decision
from interlock.services.trust.project_files import list_files_needing_trust

CASES = table(__file__, "server_files.yaml")
ENV = {"TOKEN": "t", "API_KEY": "k"}


def loaded(folder: Path, **more: Any) -> LoadedSettings:
    given = {
        "workspace": folder,
        "home": folder.parent / "home",
        "env": ENV,
        "overrides": {},
        "trusted": True,
    }
    return load_settings(**{**given, **more})


def servers(found: LoadedSettings, folder: Path) -> dict[str, ServerSpec]:
    return build_server_specs(found.settings, folder)


def shown(spec: ServerSpec, folder: Path) -> dict[str, Any]:
    """What is set of a server."""
    fields = {
        "transport": spec.transport if not spec.or_sse else "http or sse",
        "command": " ".join(spec.command).strip(),
        "cwd": str(spec.cwd).replace(str(folder), ".") if spec.cwd != folder else "",
        **{name: getattr(spec, name) for name in ("url", "env", "headers", "include", "exclude")},
        "disabled": spec.disabled,
        "problem": spec.problem,
        "timeout": spec.timeout_s if spec.timeout_s != 600 else 0,
        "trust": spec.trust,
    }
    made = {key: list(value) if isinstance(value, tuple) else value for key, value in fields.items() if value}
    return json.loads(json.dumps(made).replace(str(folder), "."))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['file']} {case['what']}")
def test_each_programs_spelling_comes_to_the_same_server(tmp_path: Path, case: dict[str, Any]) -> None:
    folder = tmp_path / "w"
    text = case["text"]
    put(
        folder / case["file"], text.replace("@DEEP", "[" * 900 + "]" * 900) if isinstance(text, str) else text
    )
    found = loaded(folder)
    spec = servers(found, folder).get("s")
    assert (shown(spec, folder) if spec else None) == case.get("server")
    said = [*found.warnings, *found.notes, *(f"unknown {key}" for _, key in found.unknown)]
    assert len(said) == len(case.get("said", []))
    for line, part in zip(said, case.get("said", []), strict=True):
        assert part in line


def test_a_server_of_two_files_counts_once(tmp_path: Path) -> None:
    one, other = {"command": "a", "args": ["b"]}, {"command": "c"}
    folder = tree(
        tmp_path / "w",
        {
            ".cursor/mcp.json": {"mcpServers": {"same": one, "Twin": one}},
            ".vscode/mcp.json": {"servers": {"mine": one}},
            ".mcp.json": {"mcpServers": {"same": other}},
            ".interlock/settings.json": {"mcpServers": {"twin": one}},
        },
    )
    found = loaded(folder)
    assert {name: spec.command for name, spec in servers(found, folder).items()} == {
        "same": ("c",),
        "twin": ("a", "b"),
    }
    said = sorted(note.replace(str(folder), ".") for note in found.notes)
    assert said == [
        "./.cursor/mcp.json: 'Twin' doesn't count: it is 'twin' of ./.interlock/settings.json.",
        "./.cursor/mcp.json: 'same' doesn't count: ./.mcp.json comes first.",
        "./.vscode/mcp.json: 'mine' doesn't count: it is 'twin' of ./.interlock/settings.json.",
    ]


def test_below_the_root_of_a_trusted_repository_its_servers_count_from_there(
    tmp_path: Path, run: Run
) -> None:
    repository = tree(
        tmp_path / "repo",
        {
            ".git/HEAD": "x",
            "sub/": "",
            ".mcp.json": {"mcpServers": {"s": {"command": "./x"}}},
            ".gemini/settings.json": {
                "mcpServers": {"g": {"command": "./y"}, "h": {"command": "z", "cwd": "~/h"}},
                "general": {"vimMode": True},
            },
            ".interlock/settings.json": {"mcpServers": {"n": {"command": "z", "cwd": "~no-such-user/h"}}},
        },
    )
    sub = repository / "sub"
    record_trust_decision(sub, Path.home(), trusted=True)
    assert "No MCP servers" in run("mcp", "list", "-C", str(sub)).err
    shown = run("trust", str(sub)).out
    assert "MCP server s: ./x" in shown and f"counts if {repository} is trusted, too" in shown
    found = loaded(sub, repository=repository)
    assert {name: spec.cwd for name, spec in servers(found, sub).items()} == {
        "s": repository,
        "g": repository,
        "h": Path.home() / "h",
        "n": sub / "~no-such-user" / "h",
    }
    record_trust_decision(repository, Path.home(), trusted=True)
    assert {s["name"] for s in json.loads(run("mcp", "list", "-C", str(sub), "--json").out)["servers"]} == {
        "s",
        "g",
        "h",
        "n",
    }


def test_trust_shows_each_file_with_its_servers_and_what_doesnt_count(tmp_path: Path, run: Run) -> None:
    tree(
        tmp_path / "w",
        {
            ".codex/config.toml": 'model = "x"\n[mcp_servers.a]\ncommand = "a"\nenv = {A_TOKEN = "sk-123"}\n',
            "opencode.json": {"mcp": {"b": {"type": "local", "command": ["b", "-c"]}}, "plugin": ["p"]},
            ".claude/settings.json": {"theme": "dark"},
            ".cursor/mcp.json": {"mcpServers": {"c": {"url": "https://c", "trust": True, "odd": 1}}},
        },
    )
    shown = run("trust", str(tmp_path / "w")).out
    rows = {block.split("\n")[0]: block for block in shown.split("\n  ") if not block.startswith(" ")}
    for line in (
        "MCP server a: a (env.A_TOKEN=a secret)",
        "not read: model",
        "MCP server b: b -c",
        "not read: plugin",
    ):
        assert line in shown
    assert "not read: theme" in shown
    assert ".claude" not in "".join(
        str(file.path) for file in list_files_needing_trust(tmp_path / "w", tmp_path)
    )
    assert "mcpServers.c.trust doesn't count: only your own settings" in shown
    assert "not used: unknown setting mcpServers.c.odd" in shown
    assert (
        "sk-123" not in shown and {".codex/config.toml", "opencode.json", ".cursor/mcp.json"} <= rows.keys()
    )


def test_a_file_of_the_repository_fills_in_and_one_outside_ends_in_a_line(tmp_path: Path) -> None:
    folder = tmp_path / "w"
    put(tmp_path / "outside", "key")
    tree(
        folder,
        {
            "key.txt": "k1\n",
            "dev.env": "A=1\nB=$HOME\n",
            "opencode.json": {
                "mcp": {
                    "inside": {"type": "remote", "url": "http://x", "headers": {"X-Key": "{file:./key.txt}"}},
                    "above": {"type": "remote", "url": "http://x", "headers": {"X-Key": "{file:../outside}"}},
                    "linked": {"type": "remote", "url": "http://x", "headers": {"X-Key": "{file:link}"}},
                }
            },
            ".vscode/mcp.json": {
                "servers": {
                    "variables": {
                        "command": "x",
                        "envFile": "${workspaceFolder}/dev.env",
                        "env": {"A": "2"},
                    },
                    "gone": {"command": "x", "envFile": "none.env"},
                }
            },
        },
    )
    (folder / "link").symlink_to(tmp_path / "outside")
    found = loaded(folder)
    specs = servers(found, folder)
    assert set(specs) == {"inside", "variables", "gone"}
    assert specs["inside"].headers == {"X-Key": "k1"} and specs["variables"].env == {"A": "2", "B": "$HOME"}
    for name in ("above", "linked"):
        assert any(
            f"{name!r}" in line and "isn't a file of this repository" in line for line in found.warnings
        )
