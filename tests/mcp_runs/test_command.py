"""`interlock mcp`: servers are added, tried, listed and removed; other settings stay as they are."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from commands import Done, Run
from mcp_servers.place import SERVER, Place

Cli = Callable[..., Done]


@pytest.fixture
def cli(place: Place, run: Run, monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("HOME", str(place.user))
    monkeypatch.setenv("ODD_LOG", str(place.log))
    return partial(run, "mcp")


def written(folder: Path) -> Any:
    return json.loads((folder / ".interlock" / "settings.json").read_text())


def test_a_server_is_added_tried_listed_and_removed(place: Place, cli: Cli) -> None:
    place.settings(model={"name": "flash"})
    flags = ("-s", "user", "-e", "ODD_SAYS=1", "--trust", "--exclude-tools", "die,hang")
    words = ("odd", sys.executable, "-I", "-S", str(SERVER), "--trust")
    code, _, said = cli("add", *flags, *words)
    assert code == 2 and "'--trust' stands behind the command" in said, "whose is it?"
    code, _, said = cli("add", *flags, words[0], "--", *words[1:])
    assert (code, said) == (0, "odd added in ~/.interlock/settings.json. Try it: interlock mcp test odd\n")
    entry = {
        "command": sys.executable,
        "args": ["-I", "-S", str(SERVER), "--trust"],
        "env": {"ODD_SAYS": "1"},
        "trust": True,
        "excludeTools": ["die", "hang"],
    }
    assert written(place.user) == {"model": {"name": "flash"}, "mcpServers": {"odd": entry}}
    code, shown, _ = cli("test", "odd")
    assert (code, shown.splitlines()[0].startswith("odd (odd 1): connected after ")) == (0, True)
    assert "  instructions: Be\\u202e kind." in shown.splitlines()
    assert "mcp_odd_note: Write the text down." in shown and "mcp_odd_die" not in shown
    assert "  prompt    greet who*: A greeting" in shown.splitlines()
    cli("add", "-s", "user", "bad", "/nowhere/server")
    code, shown, _ = cli()
    assert code == 1
    assert [line.split()[:3] for line in shown.splitlines()[1:]] == [
        ["odd", "connected", "stdio"],
        ["bad", "failed", "stdio"],
    ]
    assert cli("remove", "-s", "user", "bad")[0] == 0
    assert [*written(place.user)["mcpServers"]] == ["odd"]


def test_what_a_project_adds_counts_once_the_folder_is_trusted(place: Place, cli: Cli) -> None:
    code, _, said = cli("add", "-t", "sse", "-H", "X-Key: $KEY", "far", "http://127.0.0.1:9/sse")
    assert code == 0 and "so the server doesn't count yet. Trust it with: interlock trust" in said
    entry = {"url": "http://127.0.0.1:9/sse", "type": "sse", "headers": {"X-Key": "$KEY"}}
    assert written(place.work) == {"mcpServers": {"far": entry}}
    code, _, said = cli("test", "far")
    assert code == 2 and "No MCP server 'far'" in said
    assert said.startswith("warning: This folder isn't trusted, so these were ignored: ")
    code, shown, _ = cli("test", "far", "--skip-trust", "--json")
    assert (code, json.loads(shown)["status"]) == (1, "failed")


def test_a_server_with_a_name_that_hides_something_is_tried_and_removed_under_it(
    place: Place, cli: Cli
) -> None:
    assert cli("add", "odd", "x")[0] == 0
    file = place.work / ".interlock" / "settings.json"
    file.write_text(file.read_text().replace('"odd"', '"o\u202ed\u200bd"'), encoding="utf-8")
    code, shown, _ = cli("test", "o\u202ed\u200bd", "--skip-trust")
    assert code == 1 and shown.startswith("o\\u202ed\\u200bd: failed")
    code, _, said = cli("remove", "o\u202ed\u200bd")
    assert code == 0 and said.startswith("o\\u202ed\\u200bd removed")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("add", "odd"), "Give a name and a command or address"),
        (("add", "odd", "http://x", "y"), "Unexpected argument 'y'"),
        (("add", "-e", "A", "odd", "x"), "--env 'A': expected NAME=VALUE"),
        (("remove", "odd"), "No MCP server 'odd' in"),
        (("lst",), "No action 'lst'. Did you mean 'list'?"),
    ],
)
def test_what_cant_be_is_said_in_one_line(
    place: Place, cli: Cli, arguments: tuple[str, ...], said: str
) -> None:
    code, _, error = cli(*arguments)
    assert (code, error.count("\n")) == (2, 1)
    assert said in error


def test_a_file_with_comments_is_left_alone(place: Place, cli: Cli) -> None:
    file = place.user / ".interlock" / "settings.json"
    file.write_text("{ // mine\n}")
    code, _, error = cli("add", "-s", "user", "odd", "x")
    assert code == 52 and "isn't plain JSON" in error
    assert file.read_text() == "{ // mine\n}"
