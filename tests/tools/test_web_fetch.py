"""web_fetch against a real server on loopback."""

import asyncio
import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from folders import table
from patience import HANG_S
from serving import Quiet, serving
from tool_calls import Calls

from interlock.state.calls import ToolError, ToolResult
from interlock.state.tooling import Reach
from interlock.tools import http_fetch
from interlock.tools.web import WebFetchArgs, preview_web_fetch, run_web_fetch

TABLE: dict[str, list[Any]] = table(__file__, "web.yaml")
HTML = """<!doctype html><html><head><title> A  &amp; B </title><style>p{}</style><script>alert(1)</script></head>
<body><nav><a href="/home">Home</a> <a href="#top">Top</a></nav>
<h1>Heading</h1><p>Some <b>bold</b> text,
wrapped.<br>Second line &lt;tag&gt;</p><ul><li>one</li><li>two <a href="sub/x.html">link</a>.</li></ul>
<pre>  keep
    this</pre><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>
<img alt="a cat"></body></html>"""

Reply = tuple[int, dict[str, str], bytes]
PLAIN = {"Content-Type": "text/plain; charset=utf-8"}
PAGES: dict[str, Reply] = {
    "/page": (200, {"Content-Type": "text/html; charset=utf-8"}, HTML.encode()),
    "/latin": (200, {"Content-Type": "text/html"}, b"<meta charset='iso-8859-1'><p>caf\xe9</p>"),
    "/plain": (200, PLAIN, "plain é\n  text".encode()),
    "/json": (200, {"Content-Type": "application/json"}, b'{"a": [1, 2]}'),
    "/untyped": (200, {}, b"just text"),
    "/zipped": (200, {**PLAIN, "Content-Encoding": "gzip"}, gzip.compress(b"unzipped")),
    "/bomb": (200, {**PLAIN, "Content-Encoding": "gzip"}, gzip.compress(b"0" * 11_000_000)),
    "/bomb-in-a-bomb": (200, {**PLAIN, "Content-Encoding": "gzip, gzip"}, gzip.compress(b"0" * 9)),
    "/unzippable": (200, {**PLAIN, "Content-Encoding": "gzip"}, b"plain"),
    "/far": (302, {"Location": "/" + "x" * 50_000}, b""),
    "/titled": (200, {"Content-Type": "text/html"}, b"<title>" + b"t" * 50_000 + b"</title><p>text"),
    "/idna": (200, {"Content-Type": "text/plain; charset=idna"}, b"no charset \xff"),
    "/punycode": (200, {"Content-Type": "text/html; charset=punycode"}, b"<p>no charset-\xff"),
    "/image": (200, {"Content-Type": "image/png"}, b"\x89PNG\r\n\x1a\n\0\0"),
    "/liar": (200, PLAIN, b"GIF\0\0\0"),
    "/missing": (404, {"Content-Type": "text/html"}, b"<p>No such page</p>"),
    "/long": (200, PLAIN, b"0123456789" * 1000),
    "/large": (200, PLAIN, b"x" * (http_fetch.BODY_BYTES + 1)),
    "/hop/0": (302, {"Location": "/plain"}, b""),
    "/file": (302, {"Location": "file:///etc/passwd"}, b""),
    "/loop": (307, {"Location": "/loop"}, b""),
    "/hostile": (200, {"Content-Type": "text/html"}, b"<p>text</p>" + b"<!a" * 700_000),
    "/empty": (200, {"Content-Type": "text/html"}, b"<html></html>"),
    "/odd-charset": (200, {"Content-Type": "text/plain; charset=klingon"}, b"ok"),
}
PAGES |= {f"/hop/{n}": (301, {"Location": f"/hop/{n - 1}"}, b"") for n in range(1, 7)}


class Handler(Quiet):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/slow":
            self.server.reached.set()  # type: ignore[attr-defined]
            time.sleep(2)
        PAGES["/host"] = (200, PLAIN, self.headers["Host"].encode())
        status, headers, body = PAGES.get(self.path, (200, PLAIN, b"late"))
        with suppress(ConnectionError):
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        self.close_connection = True


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.reached = threading.Event()  # type: ignore[attr-defined]
    with serving(server):
        yield server


class Web(Calls):
    """`web("/page")` fetches a page of the server."""

    def __init__(self, server: ThreadingHTTPServer, folder: Path) -> None:
        super().__init__(folder / "work")
        self.base = f"http://127.0.0.1:{server.server_address[1]}"
        self.port = server.server_address[1]
        self.reached: threading.Event = server.reached  # type: ignore[attr-defined]
        self.context = replace(self.context, reach="any")

    def __call__(self, path: str, **args: Any) -> ToolResult:  # type: ignore[override]
        return super().__call__("web_fetch", url=path if "://" in path else self.base + path, **args)

    def failed(self, kind: str, path: str) -> str:  # type: ignore[override]
        result = self(path)
        assert result.error is not None and (result.status, result.error["type"]) == ("error", kind), result
        assert "\n" not in result.error["message"]
        return result.content

    def shown(self, url: str) -> str:
        return self.play(preview_web_fetch(WebFetchArgs(url=url), self.context)).text


@pytest.fixture
def web(server: ThreadingHTTPServer, tmp_path: Path) -> Iterator[Web]:
    made = Web(server, tmp_path)
    yield made
    made.close()


def test_html_becomes_readable_text_with_links(web: Web) -> None:
    result = web("/page")
    assert result.content == (
        f"URL: {web.base}/page\nStatus: 200 OK\nTitle: A & B\n\n"
        f"[Home]({web.base}/home) Top\n\n# Heading\n\nSome bold text, wrapped.\nSecond line <tag>\n\n"
        f"- one\n- two [link]({web.base}/sub/x.html).\n\n  keep\n    this\n\nk | v\n1 | 2\n\n[image: a cat]"
    )


@pytest.mark.parametrize(("path", "text"), TABLE["texts"])
def test_text_comes_as_it_is(web: Web, path: str, text: str) -> None:
    result = web(path)
    assert (result.status, result.content.split("\n\n", 1)[1]) == ("success", text)


@pytest.mark.parametrize(("path", "kind", "said"), TABLE["errors"])
def test_what_can_not_be_fetched_is_an_error_of_one_line(web: Web, path: str, kind: str, said: str) -> None:
    assert said in web.failed(kind, path)


def test_an_error_page_and_each_redirect_are_shown(web: Web) -> None:
    assert web("/missing").content == f"URL: {web.base}/missing\nStatus: 404 Not Found\n\nNo such page"
    content = web("/hop/1").content
    assert content.startswith(
        f"URL: {web.base}/plain\nStatus: 200 OK\nRedirect: 301 → {web.base}/hop/0\nRedirect: 302 → {web.base}/plain\n"
    )
    assert "plain é" in web("/hop/4").content


Found = list[str]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Found]]:
    """Host → results of successive look-ups, the last repeating; an empty list is an unknown name."""
    table: dict[str, list[Found]] = {}

    async def getaddrinfo(_: object, host: str, *rest: Any, **options: Any) -> list[tuple[Any, ...]]:
        answers = table.get(host, [[host]])
        found = answers.pop(0) if len(answers) > 1 else answers[0]
        if found == ["slow"]:
            await asyncio.sleep(60)
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in found]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("interlock.tools.host_addresses._LOOKUP_S", 0.05)
    return table


def test_a_fetch_connects_to_the_address_that_was_checked(web: Web, names: dict[str, list[Found]]) -> None:
    names["docs.test"] = [["127.0.0.1"], ["192.0.2.1"]]
    result = web(f"http://docs.test:{web.port}/host")
    assert result.content.endswith(f"docs.test:{web.port}")
    assert names["docs.test"] == [["192.0.2.1"]], "looked up once"
    names["docs.test"] = [["127.0.0.2", "127.0.0.1"]]
    assert web(f"http://docs.test:{web.port}/host").status == "success", "the second address, too"


@pytest.mark.parametrize(
    ("reach", "shown", "why"),
    [
        ("any", "", "inner.test is 10.0.0.1, a private network"),
        ("named", "GET …", "a private network"),
        # A host that is always allowed may redirect anywhere, with what stands in the address.
        ("named", "", "another host"),
    ],
)
def test_a_redirect_leads_to_no_other_private_address_nor_unseen_to_another_host(
    web: Web, names: dict[str, list[Found]], reach: Reach, shown: str, why: str
) -> None:
    PAGES["/away"] = (302, {"Location": f"http://inner.test:{web.port}/plain"}, b"")
    names["inner.test"] = [["10.0.0.1"]]
    web.context = replace(web.context, reach=reach, shown=shown)
    said = web.failed("redirect", "/away")
    assert why in said and "plain é" not in said
    assert web("/hop/1").status == "success"


@pytest.mark.parametrize("found", [[], ["slow"]])
def test_a_host_that_can_not_be_looked_up_is_refused(
    web: Web, names: dict[str, list[Found]], found: Found
) -> None:
    names["gone.test"] = [found]
    assert "could not be looked up" in web.failed("lookup", "http://gone.test/")
    assert "could not be looked up" in web.shown("http://gone.test/")


@pytest.mark.parametrize("reach", ["approved", "named"])
def test_a_host_that_turns_private_after_it_was_decided_on_is_refused(
    web: Web, names: dict[str, list[Found]], reach: Reach
) -> None:
    """By a person who was shown it, or by a rule that nobody was asked about."""
    names["docs.test"] = [["93.184.216.34"], ["127.0.0.1"]]
    url = f"http://docs.test:{web.port}/plain"
    shown = web.shown(url)
    context = replace(web.context, reach=reach)
    assert shown == f"GET {url}"
    for seen in (shown, ""):
        with pytest.raises(
            ToolError, match=r"docs\.test is 127\.0\.0\.1, this machine\), which nobody approved"
        ):
            web.play(run_web_fetch(WebFetchArgs(url=url), replace(context, shown=seen)))
    web.context = replace(context, shown=web.shown(url))
    assert web(url).status == "success"
    web.context = context
    if reach == "named":
        assert web("/plain").status == "success"
    else:
        with pytest.raises(ToolError, match="nobody approved"):
            web.play(run_web_fetch(WebFetchArgs(url=f"{web.base}/plain"), context))


def test_long_text_is_cut_and_kept_in_a_file(web: Web) -> None:
    result = web("/long", max_chars=100)
    kept = next(iter(web.outputs.directory.iterdir()))
    assert kept.read_bytes() == b"0123456789" * 1000
    assert "0123456789" * 10 + f"\n… the first 100 of 10,000 characters. All of it: {kept}" in result.content
    assert result == web("/long", max_chars=100)
    assert len(web("/titled").content) < 3000


def test_a_proxy_may_be_named_without_a_scheme_and_one_that_can_not_be_used_is_told(
    web: Web, names: dict[str, list[Found]], monkeypatch: pytest.MonkeyPatch
) -> None:
    names["far.test"] = [[]]
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", web.base.removeprefix("http://"))
    assert web("http://far.test/x").content.endswith("late"), "the proxy answered"
    monkeypatch.setenv("http_proxy", "junk://user:secret@proxy")
    assert "secret" not in web.failed("proxy", "http://far.test/x")


def test_a_hostile_page_is_given_up_on_and_a_slow_server_is_a_time_out(
    web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.tools.web._HTML_S", 1)
    result = web("/hostile", max_chars=1000)
    assert result.status == "success" and "text" in result.content
    monkeypatch.setattr(http_fetch, "TIMEOUT_S", 0.3)
    web.failed("timeout", "/slow")


def test_a_fetch_can_be_torn_down(web: Web) -> None:
    async def scene() -> None:
        web.reached.clear()
        task = asyncio.create_task(run_web_fetch(WebFetchArgs(url=f"{web.base}/slow"), web.context))
        await asyncio.to_thread(web.reached.wait, HANG_S)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    web.play(scene())


@pytest.mark.parametrize(("url", "said"), TABLE["private"])
def test_the_preview_marks_private_addresses(web: Web, url: str, said: str) -> None:
    first, second = web.shown(url).split("\n")
    assert first == f"GET {url}"
    assert second.startswith("PRIVATE ADDRESS: ") and said in second


def test_the_preview_of_a_public_address_is_plain_and_of_what_can_not_be_fetched_says_so(web: Web) -> None:
    for host in ("93.184.216.34", "[64:ff9b::5db8:d822]", "[2606:4700::1111]"):
        assert web.shown(f"https://{host}/x") == f"GET https://{host}/x"
    refused = web.play(preview_web_fetch(WebFetchArgs(url="ftp://x/y"), web.context))
    assert refused.problem is not None and "expected http://" in refused.problem
