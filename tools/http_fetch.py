"""http_fetch: GET with redirects, within the limits that untrusted servers require. Imported when needed."""

import asyncio
import zlib
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx

from interlock.state.calls import ToolError
from interlock.state.tooling import ToolContext
from interlock.tools.host_addresses import (
    describe_private_host,
    is_unapproved_private_host,
    resolve_host,
    url_problem,
)


@dataclass(frozen=True)
class FetchedPage:
    url: str
    status: int
    reason: str
    content_type: str
    """Lower case, without parameters; empty if the server sent none."""
    charset: str
    body: bytes
    hops: list[str] = field(default_factory=list[str])
    """`STATUS → ADDRESS` of each redirect."""


BODY_BYTES = 10 * 1024 * 1024
TIMEOUT_S = 30
"""Total timeout: all redirects and the whole body."""
_MOST_REDIRECTS = 5
_ADDRESS_CHARS = 4000
"""Maximum length of a redirect's address; servers accept at most 8,000 in a request."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "interlock (coding agent)",
    "Accept-Encoding": "gzip",
    "Accept": "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5",
}


async def fetch_page(url: str, context: ToolContext) -> FetchedPage:
    """Get a page, following redirects. Raise `ToolError`. `context` says what a person approved."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(
                headers=_HEADERS, timeout=TIMEOUT_S, transport=_CheckedTransport(url, context)
            ) as client,
        ):
            return await _get_with_redirects(
                client, url, allow_other_hosts=bool(context.shown) or context.reach == "any"
            )
    except TimeoutError:
        raise ToolError("timeout", f"{url!r} did not answer in full within {TIMEOUT_S} s.") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise ToolError("network_error", f"{url!r} could not be fetched: {why}.") from error


class _CheckedTransport(httpx.AsyncBaseTransport):
    """Resolves each host once, checks the addresses and connects to them, so that a second lookup can't differ.

    Host header, TLS name and cookies stay the host's. With a proxy in the environment, the proxy connects.
    """

    def __init__(self, url: str, context: ToolContext) -> None:
        self._first = url
        self._context = context
        self._first_host = ""
        self._private: str | None = None
        self._opened: dict[str | None, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        host = request.url.raw_host.decode("ascii")
        inner, proxied = self._choose_transport(request.url.scheme, host)
        try:
            addresses = await resolve_host(host)
        except ToolError:
            if not proxied:
                raise
            self._reject_private_host(str(request.url), host, [])
            return await inner.handle_async_request(request)
        self._reject_private_host(str(request.url), host, addresses)
        *others, last = addresses
        for address in others:
            try:
                return await inner.handle_async_request(_pin_to_address(request, host, address))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await inner.handle_async_request(_pin_to_address(request, host, last))

    def _choose_transport(self, scheme: str, host: str) -> tuple[httpx.AsyncHTTPTransport, bool]:
        """Return the transport for a host, and whether it goes through a proxy."""
        proxies = {} if proxy_bypass(host) else getproxies()
        proxy = proxies.get(scheme) or proxies.get("all")
        if proxy not in self._opened:
            self._opened[proxy] = _make_transport(proxy)
        return self._opened[proxy], proxy is not None

    def _reject_private_host(self, url: str, host: str, addresses: list[str]) -> None:
        """Raise `ToolError` for a private host that wasn't approved, or other than the one requested."""
        private = describe_private_host(host, addresses)
        if not self._first_host:
            self._first_host, self._private = host, private
            if is_unapproved_private_host(private, host, self._context):
                raise ToolError(
                    "private_address",
                    f"{url!r} leads to a private address ({private}), which nobody approved.",
                )
        elif private and not (self._private and host == self._first_host):
            raise ToolError(
                "redirect",
                f"{self._first!r} redirects to {url!r} ({private}). Fetch that address itself if it is meant.",
            )

    async def aclose(self) -> None:
        for inner in self._opened.values():
            await inner.aclose()


def _make_transport(proxy: str | None) -> httpx.AsyncHTTPTransport:
    """Return a transport. Raise `ToolError` if the proxy can't be used."""
    try:
        url = proxy if not proxy or "://" in proxy else f"http://{proxy}"  # as curl reads it
        return httpx.AsyncHTTPTransport(proxy=url)
    except (ValueError, ImportError, httpx.InvalidURL) as error:
        why = " ".join(str(error).replace(proxy or "", "").split())  # it may contain a password
        raise ToolError("proxy", f"The proxy that the environment names can't be used: {why}") from error


def _pin_to_address(request: httpx.Request, host: str, address: str) -> httpx.Request:
    """Return the same request to the same host, sent to this address."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


async def _get_with_redirects(client: httpx.AsyncClient, url: str, *, allow_other_hosts: bool) -> FetchedPage:
    """Get a page. Raise `ToolError` for a redirect to another host unless `allow_other_hosts`: approval of a host is
    for no other."""
    hops: list[str] = []
    while True:
        async with client.stream("GET", url) as response:
            target = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not target:
                return await _read_response(response, hops)
        if len(target) > _ADDRESS_CHARS:
            raise ToolError("redirect", f"{url!r} redirects to an address of {len(target):,} characters.")
        target = urljoin(url, target)
        if problem := url_problem(target):
            raise ToolError(
                "redirect", f"{url!r} redirects to {target!r}, which can't be fetched: {problem}."
            )
        if not allow_other_hosts and _host_without_www(target) != _host_without_www(url):
            raise ToolError(
                "redirect",
                f"{url!r} redirects to {target!r}, another host. Fetch that address itself if it is meant.",
            )
        if len(hops) == _MOST_REDIRECTS:
            raise ToolError(
                "redirect", f"{hops[0]!r} and more: over {_MOST_REDIRECTS} redirects, the last to {target!r}."
            )
        hops.append(f"{response.status_code} → {target}")
        url = target


def _host_without_www(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".").removeprefix("www.")


async def _read_response(response: httpx.Response, hops: list[str]) -> FetchedPage:
    """Return the response as a page. Raise `ToolError` if its body is too large."""
    packed = bytearray()
    async for chunk in response.aiter_raw():
        packed += chunk
        if len(packed) > BODY_BYTES:
            break
    body = _decompress_body(bytes(packed), response)
    if max(len(packed), len(body)) > BODY_BYTES:
        raise ToolError("too_large", f"{str(response.url)!r} has more than {BODY_BYTES:,} bytes.")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return FetchedPage(
        url=str(response.url),
        status=response.status_code,
        reason=response.reason_phrase,
        content_type=kind,
        charset=response.charset_encoding or "",
        body=body,
        hops=hops,
    )


_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


def _decompress_body(packed: bytes, response: httpx.Response) -> bytes:
    """Return the body unpacked, at most a byte over the limit: each layer can grow a thousandfold, and httpx unpacks
    all."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding in ("", "identity") or not packed:
        return packed
    if coding not in ("gzip", "x-gzip", "deflate"):
        raise ToolError(
            "encoding", f"{str(response.url)!r} is packed as {coding[:100]!r}; only gzip was asked for."
        )
    try:
        return zlib.decompressobj(_GZIP_OR_ZLIB).decompress(packed, BODY_BYTES + 1)
    except zlib.error as error:
        raise ToolError("encoding", f"{str(response.url)!r} can't be unpacked: {error}.") from error
