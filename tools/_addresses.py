"""_addresses: what can be fetched, where it leads to, and what a fetch comes to. Light: no HTTP client in it."""

import asyncio
import ipaddress
import socket
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_LOOKUP_S = 3
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


class FetchError(Exception):
    """Text for the model; `kind` is the result's error type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Page:
    url: str
    status: int
    reason: str
    content_type: str
    """Without parameters, lower case; empty when the server names none."""
    charset: str
    body: bytes
    hops: list[str] = field(default_factory=list[str])
    """`STATUS → ADDRESS` of each redirect."""


def url_problem(url: str) -> str | None:
    """Why an address can't be fetched."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme.lower() not in ("http", "https"):
        return f"expected http:// or https://, got {parts.scheme + '://' if parts.scheme else 'no scheme'}"
    return None if parts.hostname else "there is no host name in it"


async def private_address(url: str) -> str | None:
    """What kind of private place an address leads to, by its name or by what the name resolves to; None: public."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()
    if host == "localhost" or host.endswith(_LOCAL_NAMES):
        return f"{host} is this machine or its network"
    try:
        return _private(ipaddress.ip_address(host), host)
    except ValueError:
        pass
    try:
        async with asyncio.timeout(_LOOKUP_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (
        OSError,
        UnicodeError,
    ):  # nothing to connect to, as the fetch itself will say (TimeoutError is one too)
        return None
    notes = (_private(ipaddress.ip_address(str(row[4][0]).partition("%")[0]), host) for row in found)
    return next((note for note in notes if note), None)


def _private(address: ipaddress.IPv4Address | ipaddress.IPv6Address, host: str) -> str | None:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    named = f"{host} is" if str(address) == host else f"{host} is {address},"
    if address.is_loopback or address.is_unspecified:
        return f"{named} this machine"
    if address.is_link_local:
        return f"{named} link-local, where clouds keep credentials"
    return None if address.is_global else f"{named} a private network"
