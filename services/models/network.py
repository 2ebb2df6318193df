"""network: proxies and certificates that the environment names, for clients that heed only some of the variables.

`SSL_CERT_FILE`, else `REQUESTS_CA_BUNDLE`, replaces the public authorities; `NODE_EXTRA_CA_CERTS` adds to them.
"""

import atexit
import os
import re
import ssl
import sys
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from urllib.request import getproxies

from interlock.state.errors import UserError

_REPLACES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_ADDS = "NODE_EXTRA_CA_CERTS"
_PROXIES = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "https_proxy", "http_proxy")
_SCHEMES = ("http", "https", "socks5", "socks5h")
_DESKTOPS = re.compile(r"socks://", re.I)
"""How desktops write the address of a SOCKS 5 proxy; clients refuse it."""


def find_or_merge_certificate_file(env: Mapping[str, str]) -> str:
    """Return the file of trusted certificates that the environment asks for; empty: that of the client.

    Raises `UserError` if a variable names a file that can't be read.
    """
    name = next((name for name in _REPLACES if env.get(name)), "")
    own, more = env.get(name, "") if name else "", env.get(_ADDS, "")
    for variable, file in ((name, own), (_ADDS, more)):
        if file and not os.access(file, os.R_OK):
            raise UserError(
                f"{variable} names {file!r}, which can't be read. Expected a file of certificates."
            )
    if own and Path(own).is_dir():
        raise UserError(f"{name} names {own!r}, a folder. Expected a file of certificates (PEM).")
    return _merge_certificate_files(own, more) if more else own


@cache
def _merge_certificate_files(base_file: str, extra_file: str) -> str:
    """Return a file with both, as some clients read it only when they connect. On Linux it goes with its process,
    also when that is killed."""
    import certifi

    is_in_memory = sys.platform == "linux"
    if is_in_memory:
        handle = os.memfd_create("interlock-ca")
        path = f"/proc/self/fd/{handle}"
    else:
        handle, path = tempfile.mkstemp(prefix="interlock-ca-", suffix=".pem")
        atexit.register(Path(path).unlink, missing_ok=True)
    with os.fdopen(handle, "wb", closefd=not is_in_memory) as file:
        file.write(Path(base_file or certifi.where()).read_bytes() + b"\n" + Path(extra_file).read_bytes())
    return path


def check_proxies(env: Mapping[str, str]) -> None:
    """Raise `UserError` for a proxy that no client can use."""
    for name in _PROXIES:
        value = env.get(name, "")
        scheme = _DESKTOPS.sub("socks5://", value).partition("://")[0].lower() if "://" in value else "http"
        shown = re.sub(r"//[^/@]*@", "//", value)
        if scheme not in _SCHEMES:
            raise UserError(
                f"{name}={shown}: proxies of kind {scheme!r} aren't supported. Expected {', '.join(_SCHEMES)}."
            )
        if scheme.startswith("socks") and find_spec("socksio") is None:
            raise UserError(f"{name}={shown} needs a package that isn't installed. Run: pip install socksio")


def describe_network_settings(env: Mapping[str, str]) -> list[str]:
    """Return a line for what the environment says of proxies, and one for certificates. Raises `UserError`."""
    check_proxies(env)
    shown = [f"{name}={re.sub(r'//[^/@]*@', '//', env[name])}" for name in _PROXIES if env.get(name)]
    around = env.get("NO_PROXY") or env.get("no_proxy")
    lines = [f"proxy: {', '.join(shown)}" + (f"; not for {around}" if around else "")] if shown else []
    find_or_merge_certificate_file(env)
    named = [f"{name}={env[name]}" for name in (*_REPLACES, _ADDS) if env.get(name)]
    return [*lines, *([f"certificates: {', '.join(named)}"] if named else [])]


@contextmanager
def temporary_client_environment() -> Generator[None]:
    """Show clients that are made meanwhile certificates and proxies under names and in forms that they all know.

    Raises `UserError` as `trusted_file` and `check_proxies` do.
    """
    check_proxies(os.environ)
    changes = {name: _DESKTOPS.sub("socks5://", v) for name in _PROXIES if (v := os.environ.get(name))}
    changes["AWS_MAX_ATTEMPTS"] = "1"  # each attempt is ours: Bedrock's client takes this from nowhere else
    if file := find_or_merge_certificate_file(os.environ):
        changes |= dict.fromkeys(("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"), file)
    changes = {name: value for name, value in changes.items() if os.environ.get(name) != value}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def make_tls_context(url: str) -> ssl.SSLContext:
    """Build the same context as the client would. Loading certificates takes 35 ms, concurrently with the import."""
    if url.startswith("http://") and not getproxies():
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no one, in case a redirect leads elsewhere
    import certifi

    file, folder = (
        find_or_merge_certificate_file(os.environ) or certifi.where(),
        os.environ.get("SSL_CERT_DIR"),
    )
    return ssl.create_default_context(cafile=file, capath=folder)
