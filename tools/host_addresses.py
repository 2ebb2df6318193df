"""host_addresses: which host an address leads to, and whether it is a private one that nobody approved."""

import asyncio
import ipaddress
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interlock.state.calls import ToolError

if TYPE_CHECKING:
    from interlock.state.tooling import ToolContext

_LOOKUP_S = 3
_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


def url_problem(url: str) -> str | None:
    """Return why a URL can't be fetched."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return str(error)
    if parts.scheme.lower() not in ("http", "https"):
        return f"expected http:// or https://, got {parts.scheme + '://' if parts.scheme else 'no scheme'}"
    return None if parts.hostname else "the host name is missing"


async def resolve_host(host: str) -> list[str]:
    """Return a host's numeric addresses. Raise `ToolError` if it isn't resolved in time: it can't be checked."""
    with suppress(ValueError):
        return [str(ipaddress.ip_address(host))]
    try:
        async with asyncio.timeout(_LOOKUP_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise ToolError(
            "lookup", f"The address of {host!r} could not be looked up within {_LOOKUP_S} s."
        ) from None
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ToolError("lookup", f"The address of {host!r} could not be looked up: {why}.") from None
    return list(dict.fromkeys(str(row[4][0]) for row in found))


def describe_private_host(host: str, addresses: Sequence[str]) -> str | None:
    """Return what kind of private host this is, by its name or any of its addresses; None: public."""
    host = host.rstrip(".").lower()
    if host == "localhost" or host.endswith(_LOCAL_NAMES):
        return f"{host} is this machine or its network"
    notes = (_describe_private_address(ipaddress.ip_address(a.partition("%")[0]), host) for a in addresses)
    return next((note for note in notes if note), None)


async def describe_private_destination(url: str) -> str | None:
    """Return what kind of private host a URL leads to; None: public. Raise `ToolError` if it isn't found."""
    host = urlsplit(url).hostname or ""
    return describe_private_host(host, ()) or describe_private_host(host, await resolve_host(host))


async def private_address_warning(url: str) -> str:
    """Return what a person should know about a URL's destination; empty: nothing."""
    try:
        private = await describe_private_destination(url)
    except ToolError as error:
        return str(error)
    return f"PRIVATE ADDRESS: {private}." if private else ""


def is_unapproved_private_host(private_description: str | None, host: str, context: "ToolContext") -> bool:
    """Return whether a host is private (`private_description` says how) and nobody approved a connection to it."""
    if private_description is None or context.reach == "any" or private_description in context.shown:
        return False
    if context.reach == "approved":
        return True
    with suppress(ValueError):
        ipaddress.ip_address(host)
        return False
    return describe_private_host(host, ()) is None


_IPV4_AT_THE_END = tuple(map(ipaddress.IPv6Network, ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96")))
"""Deprecated and translated forms of IPv4 addresses: compatible (RFC 4291), SIIT (RFC 2765), NAT64 (RFC 6052)."""
_PRIVATE = tuple(
    map(
        ipaddress.ip_network,
        ("192.0.0.0/24", "64:ff9b:1::/48", "fec0::/10", "3fff::/20", "5f00::/16"),
    )
)
"""What not every Python's `is_global` leaves out: IETF (a cloud's metadata), local NAT64, site-local and others."""


def _embedded_ipv4(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Return the IPv4 address to which packets for this one go, through whatever translates them."""
    if int(address) > 1 and any(address in network for network in _IPV4_AT_THE_END):
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour


def _describe_private_address(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, host: str
) -> str | None:
    """Return what kind of private address this is; None: public."""
    if isinstance(address, ipaddress.IPv6Address):
        address = _embedded_ipv4(address) or address
    named = f"{host} is" if str(address) == host else f"{host} is {address},"
    if address.is_loopback or address.is_unspecified:
        return f"{named} this machine"
    if address.is_link_local:
        return f"{named} link-local, where clouds keep credentials"
    if address.is_multicast:
        return f"{named} a group of machines (multicast)"
    private = not address.is_global or any(address in network for network in _PRIVATE)
    return f"{named} a private network" if private else None
