"""_http: one GET, redirect by redirect, with every limit that a stranger's server calls for."""

import asyncio
from urllib.parse import urljoin

import httpx

from interlock.tools._addresses import FetchError, Page, private_address, url_problem

BODY_BYTES = 10 * 1024 * 1024
TIMEOUT_S = 30
"""For everything: all redirects and the whole body."""
_MOST_REDIRECTS = 5
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_HEADERS = {
    "User-Agent": "interlock (coding agent)",
    "Accept": "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5",
}


async def fetch(url: str) -> Page:
    """GET with redirects. Raises `FetchError`."""
    try:
        async with (
            asyncio.timeout(TIMEOUT_S),
            httpx.AsyncClient(headers=_HEADERS, timeout=TIMEOUT_S) as client,
        ):
            return await _follow(client, url)
    except TimeoutError:
        raise FetchError("timeout", f"{url!r} did not answer in full within {TIMEOUT_S} s.") from None
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise FetchError("network_error", f"{url!r} could not be fetched: {why}.") from error


async def _follow(client: httpx.AsyncClient, url: str) -> Page:
    hops: list[str] = []
    private = await private_address(url)
    while True:
        async with client.stream("GET", url) as response:
            target = response.headers.get("location")
            if response.status_code not in _REDIRECTS or not target:
                return await _page(response, hops)
        target = urljoin(url, target)
        if problem := url_problem(target):
            raise FetchError(
                "redirect", f"{url!r} redirects to {target!r}, which can't be fetched: {problem}."
            )
        if len(hops) == _MOST_REDIRECTS:
            raise FetchError(
                "redirect", f"{hops[0]!r} and more: over {_MOST_REDIRECTS} redirects, the last to {target!r}."
            )
        if not private and (where := await private_address(target)):
            message = f"{url!r} redirects to {target!r} ({where}). Fetch that address itself if it is meant."
            raise FetchError("redirect", message)
        hops.append(f"{response.status_code} → {target}")
        url = target


async def _page(response: httpx.Response, hops: list[str]) -> Page:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > BODY_BYTES:
            raise FetchError("too_large", f"{str(response.url)!r} has more than {BODY_BYTES:,} bytes.")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return Page(
        url=str(response.url),
        status=response.status_code,
        reason=response.reason_phrase,
        content_type=kind,
        charset=response.charset_encoding or "",
        body=bytes(body),
        hops=hops,
    )
