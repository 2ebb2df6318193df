"""Who is signed in at the page: tabs with a token of their own; cookies and other programs on this host get nothing."""

import json
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from patience import until
from serving import Quiet, serving
from web.lab import Lab, Person

EMPTY = "main:has-text('interlock serve --open')"


class Spy(Quiet):
    """Another program's server: takes every request, and keeps its headers."""

    heard: list[tuple[str, dict[str, str]]]

    def do_GET(self) -> None:
        self.heard.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        self.answer(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self.do_GET()


def spying(port: int = 0) -> tuple[ThreadingHTTPServer, list[tuple[str, dict[str, str]]]]:
    heard: list[tuple[str, dict[str, str]]] = []
    return ThreadingHTTPServer(("127.0.0.1", port), type("_Spy", (Spy,), {"heard": heard})), heard


def test_a_tab_stays_signed_in_when_it_reloads_and_when_the_server_starts_again(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = lab.park("stays", "fix it", script="edit")
    somebody = person()
    assert lab.token not in json.dumps(
        somebody.page.evaluate("[location.href, {...sessionStorage}, history.length]")
    )
    assert not somebody.context.cookies(), "a browser sends cookies to every server on the host"
    port = lab.port
    for _ in range(2):
        somebody.page.reload()
        somebody.do_see(f".request[data-run='{run}']")
        lab.kill()
        lab.serve(port)
    somebody.page.reload()
    somebody.do_see(f".request[data-run='{run}']")
    lab.interlock("resume", run, "--reject", "all")
    somebody.page.wait_for_selector(f".request[data-run='{run}']", state="detached")
    somebody.complaints.clear()  # the browser notes each lost connection


@pytest.mark.sweep
def test_a_tab_beside_a_signed_in_one_is_signed_in_and_others_are_an_empty_shell(
    lab: Lab, person: Callable[..., Person], browser: Any
) -> None:
    run = lab.park("beside", "fix it", script="edit")
    stranger = browser.new_context()
    alone, asked = stranger.new_page(), list[str]()
    alone.on("request", lambda one: asked.append(str(one.url).removeprefix(lab.address)))  # pyright: ignore
    for path in ("/", f"/run/{run}", "/stats"):
        alone.goto(f"{lab.address}{path}")
        alone.wait_for_selector(EMPTY)
    assert not [path for path in asked if path.startswith(("/api", "/login", "/proof"))], (
        "nothing is asked for"
    )
    another = stranger.new_page()
    another.goto(f"{lab.address}/#token={lab.token}")
    another.wait_for_selector(".request")
    alone.wait_for_selector("h1.stats")
    stranger.close()
    somebody = person()
    beside = somebody.tab()
    beside.goto(f"{lab.address}/all")
    beside.wait_for_selector(f".runs a[href='/run/{run}']")
    for page in (somebody.page, beside):  # as after 30 days, or with another token of the page
        page.evaluate("sessionStorage.setItem('interlock-token', 'tab.1.x.00')")
    beside.reload()
    beside.wait_for_selector(EMPTY)
    somebody.page.goto(f"{lab.address}/all#token={lab.token}")
    for page in (somebody.page, beside):
        page.wait_for_selector(f".runs a[href='/run/{run}']")
    somebody.page.wait_for_url(f"{lab.address}/all")  # no token stays in the address
    lab.interlock("resume", run, "--reject", "all")
    somebody.complaints.clear()  # the browser notes what was refused


def test_another_server_of_this_host_gets_nothing_that_opens_the_page(
    lab: Lab, person: Callable[..., Person]
) -> None:
    somebody = person()
    server, heard = spying()
    with serving(server):
        away = somebody.context.new_page()
        away.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        away.close()
    ((_, headers), *_) = heard
    assert not headers.keys() & {"cookie", "authorization", "referer", "x-api-key"}
    forged = {"cookie": headers.get("cookie", f"interlock-{lab.port}={lab.token}")}
    with httpx.Client(base_url=lab.address, headers=forged) as thief:
        assert thief.get("/api/runs").status_code == 401
        assert thief.post("/api/runs", json={"workflow": "main"}).status_code == 401


@pytest.mark.sweep
def test_a_program_that_takes_the_port_while_the_server_is_away_gets_no_token(
    lab: Lab, person: Callable[..., Person]
) -> None:
    run = lab.park("squatted", "fix it", script="edit")
    somebody = person()
    beside = somebody.tab()
    beside.goto(f"{lab.address}/run/{run}")
    beside.wait_for_selector(".map svg")
    beside.wait_for_timeout(500)  # what is under way at that moment isn't protected
    port = lab.port
    lab.kill()
    server, heard = spying(port)
    with serving(server):
        until(lambda: sum(path == "/proof" for path, _ in heard) >= 4, "both tabs to look for the server")
        beside.locator("button:text-is('Fork')").evaluate("one => one.click()")
        stranger = somebody.context.new_page()
        stranger.goto(f"http://127.0.0.1:{port}/")  # its own page asks the other tabs
        stranger.evaluate(_ASK)
        stranger.wait_for_timeout(500)
        assert stranger.evaluate("window.told") == []
        stranger.close()
    assert not [path for path, headers in heard if "authorization" in headers]
    lab.serve(port)
    somebody.page.wait_for_selector("#away:empty", state="attached")
    lab.interlock("resume", run, "--reject", "all")
    somebody.page.wait_for_selector(f".request[data-run='{run}']", state="detached")
    somebody.complaints.clear()  # the browser notes each lost connection


_ASK = """() => {
  window.told = [];
  const tabs = new BroadcastChannel("interlock-sign-in");
  tabs.onmessage = ({data}) => data.token && window.told.push(data);
  tabs.postMessage("wanted");
}"""


SQUATTER = {
    "/": b"<!doctype html><script>navigator.serviceWorker.register('/worker.js')</script>",
    "/worker.js": b"self.addEventListener('fetch', (e) => e.respondWith(new Response('squatted')));",
}


@pytest.mark.sweep
def test_a_service_worker_that_another_program_left_at_the_port_goes(lab: Lab, browser: Any) -> None:
    class Squatter(Quiet):
        def do_GET(self) -> None:
            self.answer(
                200, SQUATTER.get(self.path, b""), "text/javascript" if "js" in self.path else "text/html"
            )

    port = lab.port
    lab.kill()
    context = browser.new_context()
    page = context.new_page()
    with serving(ThreadingHTTPServer(("127.0.0.1", port), Squatter)):
        page.goto(f"http://127.0.0.1:{port}/")
        page.evaluate("navigator.serviceWorker.ready.then(() => 1)")
        page.goto(f"http://127.0.0.1:{port}/")
        assert page.inner_text("body") == "squatted"
    lab.serve(port)

    def is_ours() -> bool:
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_timeout(2500)  # a browser looks for another worker only once a page is quiet
        return "interlock serve --open" in page.inner_text("body")

    until(is_ours, "the page itself")
    context.close()


def test_under_another_name_of_this_host_the_page_leads_to_its_own_address(lab: Lab) -> None:
    """`localhost` may be [::1], where another program may listen at the same port."""
    host = {"host": f"localhost:{lab.port}"}
    led = httpx.get(f"{lab.address}/run/x?y=1", headers=host)
    assert (led.status_code, led.headers["location"]) == (307, f"{lab.address}/run/x?y=1")
    headers = {**host, "authorization": f"Bearer {lab.token}"}
    assert httpx.get(f"{lab.address}/api/runs", headers=headers).status_code == 200, "programs may use it"


def test_an_export_and_a_long_output_are_saved_as_files(lab: Lab, person: Callable[..., Person]) -> None:
    from scripted import shell, tools

    replies = [tools(shell("head -c 300000 /dev/zero | tr '\\0' x"), text="Large."), {"text": "The end."}]
    run = lab.park("saved", "go", "-y", replies=replies)
    somebody = person()
    somebody.do_go(f"/run/{run}")
    somebody.page.locator("details.menu summary").click()
    with somebody.page.expect_download() as saved:
        somebody.page.get_by_role("button", name="Export md").click()
    assert saved.value.suggested_filename == f"run-{run}.md"
    assert "Large." in saved.value.path().read_text()
    somebody.page.locator("details.tool summary").click()
    with somebody.page.expect_download() as saved:
        somebody.page.get_by_role("button", name="characters, as a file").click()
    assert saved.value.path().stat().st_size > 40_000, "more than the page shows"
