"""repository: the address of a git repository whose files a run works on, as people write it."""

import os
import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import Field

from interlock.state.accounting import Section

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
        _refuse_password(text, scheme)
        start = f"{scheme}://{host}{slash}"
    else:
        host, _, path = text.partition(":")
        start = f"{host}:"
    found = re.fullmatch(r"(.*[^/@])@([^@]+)", path)
    name, ref = (found[1], found[2]) if found else (path, "")
    if ref and not _REF.fullmatch(ref):
        raise RepositoryError(f"{ref!r} isn't a branch, tag or commit.")
    return Repository(start + name, ref)


def _refuse_password(url: str, scheme: str) -> None:
    parts = urlsplit(url)
    if parts.password is not None or (scheme in ("http", "https") and parts.username):
        raise RepositoryError(
            f"{hide_credentials(url)!r} holds a password or a token, which would be stored with the run. Leave it out: "
            "workers use their own git credentials."
        )


def hide_credentials(text: str) -> str:
    """An address as it may be shown."""
    return _PASSWORD.sub(r"\1", text)


class FleetSettings(Section):
    """What a worker does for runs on git repositories. Only a user's own file sets it."""

    trusted_repositories: list[str] = Field(default_factory=list[str], alias="trustedRepositories")
    """Repositories whose own settings count, by address; `*` stands for anything: https://example.com/team/*."""
    local_repositories: list[str] = Field(default_factory=list[str], alias="localRepositories")
    """Folders of this host below which runs may name repositories with file:///PATH."""
    sandbox: Literal["always", "untrusted"] = "always"
    """Which runs on repositories run their commands in the sandbox; `untrusted`: not those of trusted repositories."""

    def trusts(self, url: str) -> bool:
        return any(fnmatchcase(url, pattern) for pattern in self.trusted_repositories)

    def isolates(self, url: str) -> bool:
        """Whether commands of a run on this repository must run in the sandbox."""
        return self.sandbox == "always" or not self.trusts(url)

    def refuses(self, url: str) -> bool:
        """Whether the address names a folder of this host that runs may not name."""
        if not url.startswith("file://"):
            return False
        path = Path(os.path.realpath(urlsplit(url).path))
        return not any(path.is_relative_to(os.path.realpath(d)) for d in self.local_repositories)
