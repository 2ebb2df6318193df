"""`interlock serve`: a real server on loopback, asked over HTTP."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import warm
from databases import IN_POSTGRESQL
from folders import put
from patience import HANG_S, until
from scripted import tools

from interlock.engine.store import Store, resolve_state_directory

EDIT = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
REPLIES = [
    tools({"name": "replace", "args": EDIT}, text="I fix it."),
    {"text": "Fixed. <script>alert(1)</script>"},
]


ENTRY = Path(sys.executable).with_name("interlock")


class Server:
    """A server in a process of its own, and a client that has its token."""

    def __init__(self, work: Path, *flags: str, port: int = 0) -> None:
        self.work = work
        given: Any = {"cwd": work, "env": os.environ, "stdout": subprocess.PIPE}
        words = ["serve", "--port", str(port), *flags]
        # One on a port of its own choice is a user's: it imports, and so does what its drives are forked from.
        self.process = (
            subprocess.Popen([ENTRY, *words], text=True, **given) if port else warm.Warm(words, **given)
        )
        assert self.process.stdout
        line = self.process.stdout.readline()
        self.address, _, self.token = line.split()[-1].partition("/#token=")
        self.http = httpx.Client(
            base_url=self.address, headers={"Authorization": f"Bearer {self.token}"}, timeout=HANG_S
        )

    def start(self, prompt: str = "fix it") -> str:
        return self.post("/api/runs", workflow="main", input={"prompt": prompt}).json()["run"]

    def post(self, path: str, **body: Any) -> httpx.Response:
        return self.http.post(path, json=body)

    def status(self, run: str) -> str:
        return self.http.get(f"/api/runs/{run}").json()["status"]

    def until(self, run: str, *wanted: str) -> str:
        found = list[str]()
        until(lambda: found.append(self.status(run)) or found[-1] in wanted, f"{run} as {wanted}")
        return found[-1]

    def request(self, run: str) -> dict[str, Any]:
        self.until(run, "waiting")
        return self.http.get("/api/requests", params={"run": run}).json()[0]

    def decide(self, run: str, choice: str, **more: Any) -> httpx.Response:
        name = self.request(run)["id"]
        return self.post(f"/api/runs/{run}/decide", decisions=[{"id": name, "choice": choice, **more}])

    def events(self, run: str, enough: Callable[[list[Any]], bool], cursor: str = "") -> list[Any]:
        """Events of the record, with their places, until there are enough."""
        found: list[Any] = []
        place = ""
        with self.http.stream("GET", f"/api/runs/{run}/events", params={"cursor": cursor}) as answer:
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    place = line[4:]
                elif line.startswith("data: "):
                    found.append((place, json.loads(line[6:])))
                    place = ""
                    if enough(found):
                        return found
        raise AssertionError("the stream ended")

    def kill(self, number: int = signal.SIGKILL) -> None:
        self.process.send_signal(number)
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()
        self.http.close()


@pytest.fixture
def serve(tmp_path: Path) -> Generator[Callable[..., Server]]:
    work, opened = tmp_path / "work", list[Server]()
    put(work / "calc.py", "def add(a, b):\n    return a - b\n")
    script = put(tmp_path / "script.json", REPLIES)

    def start(*flags: str, port: int = 0) -> Server:
        opened.append(Server(work, "-m", f"script:{script}", "--skip-trust", *flags, port=port))
        return opened[-1]

    with warm.worker(work, os.environ) if IN_POSTGRESQL else nullcontext():
        yield start
    for one in opened:
        if one.process.poll() is None:
            one.kill(signal.SIGTERM)


def said(events: list[Any]) -> list[str]:
    return [e["content"] for place, e in events if e["type"] == "message" and place]


def test_a_run_is_started_followed_and_decided_and_outlives_the_server(serve: Callable[..., Server]) -> None:
    first = serve()
    run = first.start()
    request = first.request(run)
    assert (
        request["asked"]["headline"] == "Edit calc.py (+1 −1)"
        and "+    return a + b" in request["asked"]["preview"]
    )
    assert [way["key"] for way in request["asked"]["ways"]] == ["y", "a", "f", "s", "e", "n", "c"]
    shown = first.events(run, lambda found: any(e["type"] == "standing" for _, e in found))
    first.kill()
    second = serve(port=int(first.address.rpartition(":")[2]))
    assert second.token == first.token, "a page stays signed in"
    assert second.decide(run, "proceed_once").json() == {"decided": 1}
    assert second.until(run, "done", "failed") == "done"
    assert "a + b" in (second.work / "calc.py").read_text()
    late = second.post(f"/api/runs/{run}/decide", decisions=[{"id": request["id"], "choice": "reject"}])
    assert late.status_code == 409 and "no longer waits" in late.json()["detail"]
    cursor = [place for place, _ in shown if place][-1]
    ended = lambda found: any(e["type"] == "standing" and e["status"] == "done" for _, e in found)  # noqa: E731
    rest = second.events(run, ended, cursor)
    assert said(shown) == ["fix it", "I fix it."] and said(rest) == ["Fixed. <script>alert(1)</script>"]
    assert second.http.get(f"/api/runs/{run}/diagram").text.startswith("<?xml")
    (call,) = second.http.get(f"/api/runs/{run}/calls").json()
    assert "approved by" in call["who"]


def test_what_isnt_the_page_of_this_user_is_refused(serve: Callable[..., Server]) -> None:
    here = serve("--read-only")
    host = here.address.removeprefix("http://")
    plain = httpx.Client(base_url=here.address)
    asked: list[tuple[str, str, dict[str, str], int]] = [
        ("GET", "/api/runs", {}, 401),
        ("GET", "/api/runs", {"Authorization": f"Bearer {here.token}", "Host": "evil.example"}, 421),
        ("GET", "/", {"Host": f"evil.example:{host.rpartition(':')[2]}"}, 421),
        ("GET", "/api/runs", {"Authorization": f"Bearer {here.token}", "Origin": "http://evil.example"}, 403),
        ("GET", "/api/runs", {"Authorization": f"Bearer {here.token}", "Origin": "null"}, 403),
        ("POST", "/api/runs", {"Authorization": f"Bearer {here.token}", "Sec-Fetch-Site": "cross-site"}, 403),
        ("POST", "/api/runs", {"Authorization": f"Bearer {here.token}"}, 403),
        ("GET", "/", {}, 200),
        ("GET", "/static/../app.py", {}, 401),
    ]
    with plain:
        for method, path, headers, status in asked:
            answer = plain.request(method, path, headers=headers)
            assert answer.status_code == status, (method, path, headers, answer.text)
            assert "access-control-allow-origin" not in answer.headers
            assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert plain.post("/login", content=b"x" * 9_000_000).status_code == 413
        signed = plain.post("/login", content=here.token)
        assert "set-cookie" not in signed.headers, "browsers send cookies to every server of this host"
        assert plain.get("/api/runs").status_code == 401, "nothing but a header opens the page"
        of_tab = {"Authorization": f"Bearer {signed.json()['token']}"}
        assert plain.post("/login", content=signed.json()["token"]).status_code == 401, "it makes no others"
        plain.headers.update(of_tab)
        assert plain.get("/api/runs").json()["total"] == 0
        missing = plain.get("/api/runs/nothere")
        assert missing.status_code == 404 and "'nothere'" in missing.json()["detail"]
        wrong = [plain.post("/login", content=f"guess {n}").status_code for n in range(6)]
        assert wrong == [401, 401, 401, 401, 429, 429]
        assert plain.post("/login", content=here.token).status_code == 200, "whoever has the token gets in"
        assert plain.get("/api/runs").status_code == 200, "who is signed in stays so"


@pytest.mark.sweep
def test_a_programs_token_has_a_role_and_its_name_is_recorded(serve: Callable[..., Server], cli: Any) -> None:
    here = serve()
    run = here.start()
    here.request(run)
    tokens = {
        role: cli("serve", "token", "new", f"bot-{role}", "--role", role).stdout.strip()
        for role in ("view", "decide")
    }
    files = [path for path in Path(os.environ["INTERLOCK_HOME"]).glob("*") if path.is_file()]
    assert not any(tokens["view"].encode() in path.read_bytes() for path in files), "only its hash is kept"
    here.http.headers["Authorization"] = f"Bearer {tokens['view']}"
    assert here.decide(run, "proceed_once").status_code == 403
    here.http.headers["Authorization"] = f"Bearer {tokens['decide']}"
    assert here.post("/api/runs", workflow="main", input={"prompt": "x"}).status_code == 403
    assert here.decide(run, "proceed_once").status_code == 200
    here.until(run, "done")
    (call,) = here.http.get(f"/api/runs/{run}/calls").json()
    assert "approved by bot-decide" in call["who"]
    with here.http.stream("GET", f"/api/runs/{run}/events") as answer, suppress(httpx.RemoteProtocolError):
        lines = answer.iter_lines()
        next(lines)
        assert cli("serve", "token", "rm", "bot-decide").returncode == 0
        # At the next beat at the latest; without a change the stream lasts.
        assert not any("beat" in line for line in lines), "it goes on"
    assert here.http.get("/api/runs").status_code == 401


def test_bad_input_gets_one_line_that_says_what_was_expected(serve: Callable[..., Server]) -> None:
    here = serve()
    run = here.start()
    name = here.request(run)["id"]
    at, deep, long = f"/api/runs/{run}", "[" * 100_000, "9" * 5000
    too_long = [b"x" * 1_000_000] * 8 + [b"more"]
    asked: list[tuple[str, str, Any, int, str]] = [
        ("GET", "/api/runs/nothere", None, 404, "'nothere'"),
        ("GET", f"{at}/state?step=x", None, 422, "interlock history"),
        ("GET", f"{at}/state?step={long}", None, 422, "interlock history"),
        ("GET", f"{at}/state?step=999", None, 422, "no step 999"),
        ("GET", f"{at}/events?cursor=x", None, 422, "isn't a position"),
        ("GET", f"{at}/diagram?depth={long}", None, 200, "<svg"),
        ("GET", f"/api/runs?start={long}", None, 200, run),
        ("POST", f"{at}/decide", "{", 422, "Invalid JSON"),
        ("POST", f"{at}/decide", deep, 422, "Invalid JSON"),
        ("POST", f"{at}/decide", "[]", 422, "`body` must be"),
        ("POST", f"{at}/decide", "{}", 422, "`decisions` must be"),
        ("POST", f"{at}/decide", {"decisions": ["y"]}, 422, "`decisions` must be"),
        ("POST", f"{at}/decide", {"decisions": [{"id": name, "choice": "maybe"}]}, 422, "maybe"),
        ("POST", f"{at}/decide", {"decisions": [{"id": name, "choice": "modify", "args": 1}]}, 422, "`args`"),
        ("POST", f"{at}/fork", {"step": "x"}, 422, "`step` must be"),
        ("POST", f"{at}/undo", {"call": 7}, 422, "7"),
        ("POST", "/api/runs", {"workflow": "main", "input": 1}, 422, "`input` must be"),
        ("POST", "/api/runs", {"workflow": "main", "workspace": "/not/here"}, 422, "'/not/here'"),
        ("POST", "/api/runs", {"workflow": "main", "worktree": 7}, 422, "`worktree` must be"),
        (
            "POST",
            "/api/runs",
            {"workflow": "main", "input": {"prompt": "x"}, "worktree": True},
            422,
            "git repository",
        ),
        ("POST", f"{at}/decide", iter(too_long), 413, "8,000,000"),
        ("POST", "/login", iter(too_long), 413, "8,000,000"),
    ]
    for method, path, body, status, words in asked:
        content = json.dumps(body) if isinstance(body, dict) else body
        answer = here.http.request(method, path, content=content)
        about = f"{method} {path:.60} {body!s:.60}: {answer.text:.300}"
        assert answer.status_code == status and words in answer.text, about
        assert status == 200 or ("\n" not in answer.json()["detail"] and "bug" not in answer.text), about
    assert here.status(run) == "waiting", "nothing was decided"


def test_a_run_that_parks_says_where_in_the_browser_it_can_be_decided(
    serve: Callable[..., Server], cli: Any, tmp_path: Path
) -> None:
    here = serve()
    flags = ("-m", f"script:{tmp_path / 'script.json'}", "--skip-trust")
    parked = cli("-p", "fix it", *flags, cwd=here.work)
    assert parked.returncode == 75
    line = next(line for line in parked.stderr.splitlines() if line.startswith("In a browser: "))
    name = line.removeprefix(f"In a browser: {here.address}/request/")
    assert here.http.get(f"/api/requests/{name}").json()["prompt"] == "fix it"
    assert here.http.get(f"/api/requests/{name}/file").text == (here.work / "calc.py").read_text()
    run = name.rpartition("-")[0]
    assert f"{here.address}/request/{name}" in cli("approvals", run).stdout
    here.kill()
    assert "browser" not in cli("approvals", run).stdout, "a server that was killed isn't named"


def test_the_file_of_a_request_is_shown_only_as_the_runs_own_tools_may_read_it(
    serve: Callable[..., Server],
) -> None:
    here = serve()
    name = here.request(here.start())["id"]
    file, env, outside = here.work / "calc.py", here.work / ".env", here.work.parent / "outside.txt"
    put(env, "PASSWORD=hunter22\n")
    put(outside, "elsewhere\n")
    put(file, "KEY = 'ghp_" + "a1B2" * 9 + "'\nhere = 1\n")
    at = f"/api/requests/{name}/file"
    shown = here.http.get(at).text
    assert "here = 1" in shown and "a1B2a1B2" not in shown, "secrets are redacted"
    for make in (
        lambda: file.symlink_to(env),
        lambda: file.hardlink_to(env),
        lambda: file.symlink_to(outside),
        lambda: file.symlink_to("/etc/hostname"),
        lambda: (put(here.work / ".geminiignore", "calc.py\n"), put(file, "hidden\n")),
    ):
        file.unlink()
        make()
        refused = here.http.get(at)
        assert (refused.status_code, "isn't shown" in refused.text) == (422, True), refused.text


def test_behind_a_proxy_decisions_bear_the_name_that_it_says(serve: Callable[..., Server], cli: Any) -> None:
    here = serve("--trusted-proxy", "runs.example", "--user-header", "X-Person")
    run = here.start()
    request = here.request(run)
    named = {"Host": "runs.example", "X-Person": "Ann"}
    asked: list[tuple[dict[str, str], int]] = [
        ({"Host": "evil.example", "X-Person": "Ann"}, 421),
        ({"Host": "runs.example"}, 401),
        ({**named, "Authorization": "Bearer wrong"}, 401),
        ({**named, "Origin": "http://runs.example"}, 403),
        ({**named, "Origin": here.address}, 403),
        ({**named, "Origin": "https://runs.example"}, 200),
    ]
    for headers, status in asked:
        assert here.http.get("/api/runs", headers=headers).status_code == status, headers
    choice = {"decisions": [{"id": request["id"], "choice": "proceed_once"}]}
    assert here.http.post(f"/api/runs/{run}/decide", json=choice, headers=named).status_code == 200
    here.until(run, "done")
    (call,) = here.http.get(f"/api/runs/{run}/calls", headers={"X-Person": "not heard"}).json()
    assert "approved by Ann" in call["who"]
    bot = cli("serve", "token", "new", "bot", "--role", "decide").stdout.strip()
    as_ann = {**named, "Authorization": f"Bearer {bot}"}
    assert here.http.get("/api/me", headers=as_ann).json()["name"] == "bot", "a program takes nobody's name"


def test_the_browser_is_opened_with_a_code_that_counts_once(
    serve: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser, asked = tmp_path / "browser", tmp_path / "asked"
    put(browser, f'#!/bin/sh\nprintf %s "$1" >{asked}\n')
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    here = serve("--open")
    assert here.http.get("/ok").status_code == 200
    address, _, code = asked.read_text().partition("/#token=")
    assert address == here.address and code != here.token, "the token is on no command line"
    with httpx.Client(base_url=address) as other:
        token = other.post("/login", content=code).json()["token"]
        assert other.get("/api/runs", headers={"x-api-key": token}).status_code == 200
        assert other.post("/login", content=code).status_code == 401


@pytest.mark.sweep
def test_a_run_that_a_terminal_drives_takes_no_prompt_and_is_stopped_and_ten_thousand_runs_are_pages(
    serve: Callable[..., Server], tmp_path: Path
) -> None:
    here, slow = serve(), tmp_path / "slow.json"
    put(slow, [{"text": "Slowly.", "delay_s": 300}])
    words = ("-p", "wait", "-m", f"script:{slow}", "--skip-trust")
    terminal = warm.Warm(words, cwd=here.work, env=os.environ)
    until(lambda: here.http.get("/api/runs", params={"status": "running"}).json()["total"])
    (row,) = here.http.get("/api/runs").json()["runs"]
    told, stopped = (
        here.post(f"/api/runs/{row['run']}/{name}", prompt="more") for name in ("prompt", "stop")
    )
    assert stopped.json()["became"] == "asked" and terminal.wait() == 130
    assert told.status_code == 409 and f"process {terminal.pid}" in told.json()["detail"], told.text
    with closing(Store(resolve_state_directory()).connect()) as conn:
        copied = ", ".join(column.name for column in conn.list_columns("runs") if column.name != "run")
        # In pieces: PostgreSQL's notes for the audit grow with the square of a transaction's rows.
        for n in range(100_000, 110_000, 200):
            sql = (
                f"with recursive n (i) as (select {n} union all select i + 1 from n where i < {n + 199}) insert into "
                f"runs (run, {copied}) select 'n' || substr(cast(i as text), 2), {copied} from n, runs where run = $1"
            )
            with conn.transaction():
                conn.execute(sql, (row["run"],))
    first = here.http.get("/api/runs")
    assert (len(first.json()["runs"]), first.json()["total"]) == (100, 10_001)
    assert len(first.content) < 100_000
    last = here.http.get("/api/runs", params={"start": 10_000}).json()["runs"]
    assert len(last) == 1
    found = here.http.get("/api/runs", params={"q": "n09999"}).json()
    assert [row["run"] for row in found["runs"]] == ["n09999"]
