"""_addresses: what can be fetched, where it leads to, and what a fetch comes to. Light: no HTTP client in it."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
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


async def looked_up(host: str) -> list[str]:
    """The numeric addresses of a host name. Raises `FetchError`: what can't be looked up in time can't be checked."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    try:
        async with asyncio.timeout(_LOOKUP_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise FetchError(
            "lookup", f"The address of {host!r} could not be looked up within {_LOOKUP_S} s."
        ) from None
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise FetchError("lookup", f"The address of {host!r} could not be looked up: {why}.") from None
    return list(dict.fromkeys(str(row[4][0]) for row in found))


def private_host(host: str, addresses: Sequence[str]) -> str | None:
    """What kind of private place a host is, by its name or by any of its addresses; None: public."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(_LOCAL_NAMES):
        return f"{host} is this machine or its network"
    notes = (_private(ipaddress.ip_address(a.partition("%")[0]), host) for a in addresses)
    return next((note for note in notes if note), None)


async def note_for_people(url: str) -> str:
    """What a person should know of where an address leads to; empty: nothing."""
    host = urlsplit(url).hostname or ""
    try:
        private = private_host(host, ()) or private_host(host, await looked_up(host))
    except FetchError as error:
        return str(error)
    return f"PRIVATE ADDRESS: {private}." if private else ""


def _private(address: ipaddress.IPv4Address | ipaddress.IPv6Address, host: str) -> str | None:
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    named = f"{host} is" if str(address) == host else f"{host} is {address},"
    if address.is_loopback or address.is_unspecified:
        return f"{named} this machine"
    if address.is_link_local:
        return f"{named} link-local, where clouds keep credentials"
    return None if address.is_global else f"{named} a private network"
