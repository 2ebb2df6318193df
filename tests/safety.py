"""safety: keeps each test from this machine's home, keys and network, from the next test, and from hanging."""

import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Generator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

# Variables that would make a test depend on the machine, or reach a paid model.
_REMOVED = (
    *("GEMINI_API_KEY", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL", "GEMINI_MODEL", "GEMINI_SYSTEM_MD"),
    *("GOOGLE_CLOUD_PROJECT", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_GENAI_USE_VERTEXAI"),
    *("OPENAI_API_KEY", "OPENAI_BASE_URL", "ANTHROPIC_API_KEY"),
    *(
        "LANGSMITH_API_KEY",
        "LANGSMITH_TRACING",
        "LANGSMITH_GATEWAY",
        "LANGCHAIN_API_KEY",
        "LANGCHAIN_TRACING_V2",
    ),
    *("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"),
    *(f"{kind}_PROXY" for kind in ("HTTP", "HTTPS", "ALL")),
    *(f"{kind}_proxy" for kind in ("http", "https", "all")),
)
_GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TEST_FSYNC": "false",
    "GIT_AUTHOR_NAME": "Test",
    "GIT_AUTHOR_EMAIL": "test@example.invalid",
    "GIT_COMMITTER_NAME": "Test",
    "GIT_COMMITTER_EMAIL": "test@example.invalid",
}

signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup, processes that tests hang up would go on


_HOMES = count()


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that this machine's user settings, keys and runs don't reach a test."""
    folder = tmp_path_factory.getbasetemp() / f"home-{next(_HOMES)}"
    folder.mkdir()
    for name in _REMOVED:
        monkeypatch.delenv(name, raising=False)
    for name in [n for n in os.environ if n.startswith("INTERLOCK_") or n == "XDG_RUNTIME_DIR"]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
    monkeypatch.setenv("INTERLOCK_HOME", str(folder / "interlock"))
    for name, value in _GIT.items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture(autouse=True)
def language_servers_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start none of this machine's language servers, only those that a test's settings name. Nor do warm forks."""
    monkeypatch.setattr("interlock.services.language_servers.table.merge_server_settings", dict)


def _is_here(host: object) -> bool:
    if host is None or host in ("", "localhost", b"localhost"):
        return True
    try:
        address = ipaddress.ip_address(
            host.decode() if isinstance(host, bytes) else str(host).partition("%")[0]
        )
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


@pytest.fixture(autouse=True)
def network_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make connections and name look-ups beyond loopback fail in this process."""
    connect, connect_ex, lookup = socket.socket.connect, socket.socket.connect_ex, socket.getaddrinfo

    def check(host: object) -> None:
        if not _is_here(host):
            pytest.fail(
                f"this test reached for the network: {host!r}; use a loopback server or a script model"
            )

    def guarded(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: socket.socket, address: Any) -> Any:
            if self.family in (socket.AF_INET, socket.AF_INET6):
                check(address[0])
            return original(self, address)

        return call

    def guarded_lookup(host: Any, *args: Any, **kwargs: Any) -> Any:
        check(host)
        return lookup(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", guarded(connect))
    monkeypatch.setattr(socket.socket, "connect_ex", guarded(connect_ex))
    monkeypatch.setattr(socket, "getaddrinfo", guarded_lookup)


@pytest.fixture(autouse=True)
def ends(request: pytest.FixtureRequest) -> Generator[None]:
    """Fail a test that hangs, so that the suite continues. No other test comes near this limit on a busy machine."""
    limit_s = 3600 if request.node.get_closest_marker("sweep") else 300

    def hung(*_: object) -> None:
        pytest.fail(f"this test hung: it took more than {limit_s} s")

    before = signal.signal(signal.SIGALRM, hung)
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def nothing_stays() -> Generator[None]:
    """A command that runs in this process leaves the next test no variable, folder or handler of a signal."""
    variables, folder = {**os.environ}, Path.cwd()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    # Pytest's own, which names the phase, too: it alone is no reason to write all of them again.
    variables["PYTEST_CURRENT_TEST"] = os.environ.get("PYTEST_CURRENT_TEST", "")
    if os.environ != variables:
        os.environ.clear()
        os.environ.update(variables)
    os.chdir(folder)
    for number, handler in handlers.items():
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)
