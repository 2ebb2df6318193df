"""Servers that require signing in: the SDK's OAuth against a test server; tokens stay secret."""

import asyncio
import json
import sys
import time
import urllib.request
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from commands import Run
from mcp.server.auth.provider import AccessToken
from mcp_servers.accounts import BROWSER, Accounts
from mcp_servers.place import Place, calls
from mcp_servers.sdk import NOTED, Behind

from interlock.services.mcp.sign_in import TokenFile

Auth = Callable[..., tuple[int, str]]
ADD = calls(("mcp_sdk_add", {"a": 2, "b": 3}))
SUM = {"expect": '"sum": 5', "text": "over"}


@pytest.fixture
def accounts() -> Accounts:
    return Accounts()


@pytest.fixture
def server(place: Place, accounts: Accounts) -> Generator[Behind]:
    with Behind("http", accounts=accounts) as behind:
        place.servers(sdk={"httpUrl": behind.url, "trust": True})
        yield behind


@pytest.fixture
def auth(place: Place, server: Behind, run: Run, monkeypatch: pytest.MonkeyPatch) -> Auth:
    """`interlock mcp auth …`, with a browser that follows redirects."""
    browser = place.user / "browser.py"
    browser.write_text(BROWSER)
    monkeypatch.setenv("HOME", str(place.user))
    monkeypatch.setenv("INTERLOCK_HOME", str(place.home))
    monkeypatch.setenv("DISPLAY", ":0")
    # The same for all tests: a process looks it up only once.
    does = 'import os; exec(open(os.environ["BROWSER_DOES"]).read())'
    monkeypatch.setenv("BROWSER", f"{sys.executable} -c '{does}' %s")
    monkeypatch.setenv("BROWSER_DOES", str(browser))

    def call(*arguments: str) -> tuple[int, str]:
        done = run("mcp", "auth", *arguments)
        return done.code, done.err

    return call


def tokens(place: Place) -> tuple[Path, Any]:
    (file,) = (place.home / "oauth").glob("*.json")
    return file, json.loads(file.read_text())


def test_one_signs_in_once_and_runs_go_on_by_themselves(place: Place, accounts: Accounts, auth: Auth) -> None:
    outcome = place.main(ADD, {"text": "over"})
    assert place.told[0].startswith(
        "MCP server 'sdk' is skipped: it wants you to sign in: interlock mcp auth sdk."
    )
    code, said = auth("sdk")
    assert (code, said.splitlines()[-1]) == (0, "Signed in to sdk: 5 tools.")
    file, kept = tokens(place)
    assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert kept["tokens"]["access_token"] in accounts.access
    outcome = place.main(ADD, SUM)
    assert outcome.status == "done", (outcome.error, place.told)
    assert accounts.asked == ["code"]


def test_one_signs_in_to_a_server_by_sse_as_well(place: Place, auth: Auth) -> None:
    with Behind("sse", accounts=Accounts()) as behind:
        place.servers(sdk={"url": behind.url, "type": "sse", "trust": True})
        assert auth("sdk")[1].endswith("Signed in to sdk: 5 tools.\n")
        assert place.main(ADD, SUM).status == "done"


def test_what_a_server_repeats_of_its_token_reaches_no_model_and_no_record(place: Place, auth: Auth) -> None:
    auth("sdk")
    asked = calls(("mcp_sdk_header", {"name": "Authorization"}))
    outcome = place.main(
        asked, {"expect": r"Authorization is Bearer \[redacted:sdk\.access_token\]", "text": "over"}
    )
    assert outcome.status == "done", outcome.error
    _, kept = tokens(place)
    for stored in (place.home / "interlock.db", place.home / "interlock.db-wal"):
        assert not stored.exists() or kept["tokens"]["access_token"].encode() not in stored.read_bytes()


def test_a_token_that_has_ended_is_renewed_without_anybody_and_once_that_fails_one_is_told(
    place: Place, accounts: Accounts, auth: Auth
) -> None:
    auth("sdk")
    file, kept = tokens(place)
    accounts.access.clear()
    file.write_text(json.dumps({**kept, "expires_at": time.time() - 1}))
    asked = calls(("mcp_sdk_header", {"name": "Authorization"}))
    outcome = place.main(
        asked, {"expect": r"is Bearer \[redacted:sdk\.access_token\]", **ADD}, SUM
    )  # the new token is as secret as the old one
    assert outcome.status == "done", (outcome.error, place.told)
    assert accounts.asked == ["code", "refresh"]
    _, renewed = tokens(place)
    assert renewed["tokens"]["access_token"] != kept["tokens"]["access_token"]
    accounts.access.clear()
    accounts.refresh.clear()
    place.main({"text": "over"})
    assert "it wants you to sign in: interlock mcp auth sdk" in place.told[-1]


def test_two_runs_that_renew_a_token_at_once_renew_it_once(
    place: Place, accounts: Accounts, auth: Auth, monkeypatch: pytest.MonkeyPatch
) -> None:
    auth("sdk")
    file, kept = tokens(place)
    accounts.access.clear()
    file.write_text(json.dumps({**kept, "expires_at": time.time() - 1}))
    find, renewing, turns = accounts.load_refresh_token, TokenFile.lock_renewal, list[str]()

    async def waits(client: Any, refresh_token: str) -> Any:
        accounts.asked.append("renewal")  # a second one with the same token may cost all of them
        for _ in range(100):  # until the other one has looked, and found that it isn't its turn
            if len(turns) > 1:
                break
            await asyncio.sleep(0.05)
        return await find(client, refresh_token)

    def turn(own: TokenFile) -> Any:
        turns.append(str(own))
        return renewing(own)

    monkeypatch.setattr(accounts, "load_refresh_token", waits)
    monkeypatch.setattr(TokenFile, "lock_renewal", turn)
    with ThreadPoolExecutor(2) as both:
        ends = [both.submit(place.main, ADD, SUM) for _ in range(2)]
    assert [end.result().status for end in ends] == ["done", "done"], place.told
    assert accounts.asked == ["code", "renewal", "refresh"]


@pytest.mark.parametrize("renewed_by", ["refresh", "another"])
def test_a_token_that_is_refused_in_the_middle_of_a_run_is_renewed_or_taken_from_who_renewed_it(
    place: Place, accounts: Accounts, auth: Auth, monkeypatch: pytest.MonkeyPatch, renewed_by: str
) -> None:
    auth("sdk")
    file, kept = tokens(place)
    known, load, find = len(NOTED), accounts.load_access_token, accounts.load_refresh_token

    async def looks(client: Any, refresh_token: str) -> Any:
        accounts.asked.append("renewal")  # a second one with the same token may cost all of them
        return await find(client, refresh_token)

    async def refuses(token: str) -> Any:
        if len(NOTED) > known and accounts.access.pop(kept["tokens"]["access_token"], None):
            accounts.asked.append("refused")
            if renewed_by == "another":
                accounts.refresh.clear()
                accounts.access["new"] = AccessToken(
                    token="new", client_id="x", scopes=[], resource=kept["address"], expires_at=2**40
                )
                file.write_text(json.dumps({**kept, "tokens": {**kept["tokens"], "access_token": "new"}}))
        return await load(token)

    monkeypatch.setattr(accounts, "load_access_token", refuses)
    monkeypatch.setattr(accounts, "load_refresh_token", looks)
    outcome = place.main(calls(("mcp_sdk_note", {"text": "x"})), {"expect": "noted", **ADD}, SUM)
    assert outcome.status == "done", (outcome.error, place.told)
    assert accounts.asked == ["code", "refused", *(["renewal", "refresh"] if renewed_by == "refresh" else [])]


def test_tokens_are_for_one_address_whatever_the_server_there_is_called(
    place: Place, server: Behind, accounts: Accounts, auth: Auth
) -> None:
    auth("sdk")
    place.servers(sdk={"httpUrl": f"http://localhost:{server.port}/mcp", "trust": True})
    place.main({"text": "over"})
    assert "it wants you to sign in" in place.told[-1]


def test_signing_out_removes_the_tokens(place: Place, auth: Auth) -> None:
    auth("sdk")
    assert auth("sdk", "--forget") == (0, "Signed out of sdk.\n")
    assert auth("sdk", "--forget") == (0, "Not signed in to sdk.\n")
    assert [*(place.home / "oauth").glob("*.json")] == []


def test_a_person_who_says_no_is_told_so_and_nothing_is_kept(
    place: Place, accounts: Accounts, auth: Auth
) -> None:
    accounts.says_no = True
    code, said = auth("sdk")
    assert (code, said.splitlines()[-1]) == (
        1,
        "interlock: MCP server 'sdk': The sign-in was refused: access_denied.",
    )
    assert not (place.home / "oauth").exists()


def test_a_page_that_knows_nothing_of_the_sign_in_cant_end_it(place: Place, auth: Auth) -> None:
    stranger = place.user / "browser.py"
    answers = place.user / "answers"
    stranger.write_text(
        "import sys, urllib.error, urllib.parse, urllib.request\n"
        "query = urllib.parse.parse_qs(urllib.parse.urlsplit(sys.argv[1]).query)\n"
        "back = query['redirect_uri'][0]\n"
        "for end in ('?code=stolen&state=guessed', '?code=stolen', '/elsewhere'):\n"
        "    try: urllib.request.urlopen(back + end)\n"
        f"    except urllib.error.HTTPError as error: open({str(answers)!r}, 'a').write(f'{{error.code}} ')\n"
        + BROWSER
    )
    code, _ = auth("sdk")
    assert (code, answers.read_text()) == (0, "404 404 404 ")


def test_a_client_that_was_registered_by_hand_is_used_as_settings_say(
    place: Place, server: Behind, accounts: Accounts, auth: Auth
) -> None:
    with urllib.request.urlopen(_registration(server)) as made:
        client = json.loads(made.read())
    port = urlsplit(client["redirect_uris"][0]).port
    oauth = {"clientId": client["client_id"], "clientSecret": client["client_secret"]}
    redirect = {"redirectUri": f"http://127.0.0.1:{port}/back"}
    place.servers(sdk={"httpUrl": server.url, "oauth": {**oauth, **redirect}})
    code, said = auth("sdk")
    assert code == 0, said
    assert [*accounts.clients] == [client["client_id"]]
    asked = parse_qs(urlsplit(said.splitlines()[1].strip()).query)
    assert (asked["client_id"], asked["redirect_uri"]) == ([client["client_id"]], [redirect["redirectUri"]])


def _registration(server: Behind) -> urllib.request.Request:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    about = {
        "redirect_uris": [f"http://127.0.0.1:{port}/back"],
        "token_endpoint_auth_method": "client_secret_post",
    }
    address = f"http://127.0.0.1:{server.port}/register"
    return urllib.request.Request(address, json.dumps(about).encode(), {"Content-Type": "application/json"})


@pytest.mark.parametrize(
    ("server_here", "said"),
    [
        ({"command": "x"}, "MCP server 'one': it is a program on this machine; one signs in to"),
        ({"url": "here"}, "MCP server 'one': 'here' isn't an address"),
        ({"url": "http://127.0.0.1:9/mcp"}, "MCP server 'one': ConnectError"),
    ],
)
def test_where_nobody_can_sign_in_it_is_said(
    place: Place, auth: Auth, server_here: dict[str, Any], said: str
) -> None:
    place.servers(one=server_here)
    code, shown = auth("one")
    assert code != 0 and said in shown, shown


def test_a_refused_header_of_settings_is_no_reason_to_sign_in(place: Place, server: Behind) -> None:
    place.servers(sdk={"httpUrl": server.url, "headers": {"Authorization": "Bearer old-and-gone"}})
    place.main({"text": "over"})
    assert "it refused the Authorization header of settings (401)" in place.told[-1]
