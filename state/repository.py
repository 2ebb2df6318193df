"""repository: the address of a git repository whose files a run works on, as people write it."""

import re
from typing import NamedTuple
from urllib.parse import urlsplit

_TRANSPORTS = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"(?:[\w.+-]+@)?[\w.-]+:(?!:)(?!//).+")
"""`git@host:path`."""
_EXPECTED = "Expected https://HOST/PATH, ssh://HOST/PATH, git@HOST:PATH or file:///PATH, and @REF for a branch or tag."
_REF = re.compile(r"(?!-)(?!.*(?:\.\.|@\{|//))[^\x00-\x20\x7f~^:?*\[\\]+")
_PASSWORD = re.compile(r"(://)[^/@]*@")


class RepositoryError(ValueError):
    """An address that can't be used; the text says why, without a password."""


class Repository(NamedTuple):
    """A git repository, and what of it is checked out."""

    url: str
    ref: str
    """A branch, a tag or a commit; empty: its default branch."""

    def __str__(self) -> str:
        return f"{self.url}@{self.ref}" if self.ref else self.url


def parse_repository(text: str) -> Repository:
    """Parse `URL[@REF]`. Raises `RepositoryError`."""
    shown = hide_credentials(text)
    if not text.isprintable() or " " in text or text.startswith("-"):
        raise RepositoryError(f"{shown!r} isn't a repository address. {_EXPECTED}")
    scheme, has_scheme, rest = text.partition("://")
    if "::" in text.partition("/")[0] or (has_scheme and scheme not in _TRANSPORTS):
        raise RepositoryError(f"{shown!r} uses a transport that isn't allowed. {_EXPECTED}")
    if not has_scheme and not _SCP.fullmatch(text):
        raise RepositoryError(f"{shown!r} isn't a repository address. {_EXPECTED}")
    if has_scheme:
        host, slash, path = rest.partition("/")
        if not path or (not host and scheme != "file"):
            raise RepositoryError(f"{shown!r} names no repository. {_EXPECTED}")
        _reject_embedded_password(text, scheme)
        start = f"{scheme}://{host}{slash}"
    else:
        host, _, path = text.partition(":")
        start = f"{host}:"
    found = re.fullmatch(r"(.*[^/@])@([^@]+)", path)
    name, ref = (found[1], found[2]) if found else (path, "")
    if ref and not _REF.fullmatch(ref):
        raise RepositoryError(f"{ref!r} isn't a branch, tag or commit.")
    return Repository(start + name, ref)


def _reject_embedded_password(url: str, scheme: str) -> None:
    parts = urlsplit(url)
    if parts.password is not None or (scheme in ("http", "https") and parts.username):
        raise RepositoryError(
            f"{hide_credentials(url)!r} holds a password or a token, which would be stored with the run. Leave it out: "
            "workers use their own git credentials."
        )


def hide_credentials(text: str) -> str:
    """An address as it may be shown."""
    return _PASSWORD.sub(r"\1", text)
