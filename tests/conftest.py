"""conftest: every test gets an empty home, no keys and no network; goldens are rewritten only when asked."""

import gc
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

# `make test` tries the same few examples each time, `make properties` many; outside CI they vary.
# The machine may be busy: how long an example takes says nothing about the code.
settings.register_profile(
    "test",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    derandomize=True,
    database=None,
    max_examples=60,
)
settings.register_profile(
    "sweep", settings.get_profile("test"), derandomize="CI" in os.environ, max_examples=600
)
settings.load_profile("test")

GOLDEN = Path(__file__).parent / "golden"

gc.disable()  # until all is collected: imports leave no garbage, and looking for it takes a fifth of their time

# `tests` is no package (importlib mode): its shared programs are imported by their own name, like `fake_gemini`.
sys.path.insert(0, str(Path(__file__).parent))
from databases import IN_POSTGRESQL, drop_below, everywhere, server  # noqa: E402 - by their names
from shared import offer  # noqa: E402
from unsynced import sync_nothing  # noqa: E402
from warm import forker  # noqa: E402

pytest_plugins = ["fake_gemini.plugin", "outside", "commands", "local_server", "given_answers"]

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

Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files instead of comparing")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("hypothesis_profile") != "sweep":
        # Else it reads all modules of ours for constants to try: 2 s of each worker where none has done so before.
        providers._get_local_constants = lambda: providers._local_constants
    if IN_POSTGRESQL:
        everywhere()
    if config.getoption("dist", "no") != "no":  # not a worker, which has none of its own
        offer({"forker": lambda: ("door", [forker().door().fileno()]), "server": lambda: (server(), [])})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker that refuses its arguments, as `-m` with an unknown mark, ends all: xdist fails without a reason."""
    if getattr(node, "workeroutput", {}).get("exitstatus") == pytest.ExitCode.USAGE_ERROR:
        raise pytest.UsageError("a worker refused the arguments of pytest; `-n 0` with the same says why")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Each worker begins with another part of the files: what one has compiled, the others needn't."""
    report = yield
    if (worker := os.environ.get("PYTEST_XDIST_WORKER")) and collector.path == Path(__file__).parent:
        at = len(report.result or ()) * int(worker[2:]) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        report.result = [*(report.result or ())[at:], *(report.result or ())[:at]]
    return report


QUICK = ("nodes", "prompts", "services", "tools")
"""Folders of tests that mostly compute, and not for long."""


def _dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Deal the files to the workers: each begins with an equal part of this list. Files whose tests start processes and
    wait come first, so that no worker is left with a long one at the end. All workers must get the same list.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    tests = Path(__file__).parent
    order = sorted(files, key=lambda path: (path.relative_to(tests).parts[0] in QUICK, path))
    return [item for n in range(workers) for path in order[n::workers] for item in files[path]]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A part of the sweeps: those that don't divide their own moments are in one of the parts, by their name.

    Of the tests with every store in PostgreSQL each is in one of the parts.
    """
    from patience import sweep_part

    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = _dealt(items, workers)
    part, of = sweep_part()

    def is_elsewhere(item: pytest.Item) -> bool:
        mark = item.get_closest_marker("sweep")
        if IN_POSTGRESQL and item.get_closest_marker("sqlite"):
            return True
        divided = IN_POSTGRESQL or bool(mark and not mark.kwargs.get("divides"))
        return divided and crc32(item.nodeid.encode()) % of != part

    parts: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        parts[is_elsewhere(item)].append(item)
    config.hook.pytest_deselected(items=parts[True])
    items[:] = parts[False]
    if find_spec("langgraph_api") is None:
        missing = pytest.mark.skip(reason="LangGraph's server isn't installed: pip install -e '.[studio]'")
        for item in items:
            if item.get_closest_marker("langgraph_server"):
                item.add_marker(missing)


def pytest_collection_finish() -> None:
    """Exclude what there is so far from garbage collection, unseen: to find its garbage takes half a second.

    From now on, wait for no disk.
    """
    sync_nothing()
    gc.freeze()
    gc.enable()


_LOOKED_THROUGH = [0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """What a full collection has left is looked through no more: modules, graphs and reports stay to the end."""
    if (times := gc.get_stats()[2]["collections"]) > _LOOKED_THROUGH[-1]:
        _LOOKED_THROUGH[-1] = times
        gc.collect(1)
        gc.freeze()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare a text with a golden file; `pytest --update-golden` rewrites it."""

    def check(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path.name} is missing; run `pytest --update-golden` and review the diff"
        assert path.read_text(encoding="utf-8") == text, (
            f"{path.name} is stale; run `pytest --update-golden` and review the diff"
        )

    return check


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


_FOLDERS = count()


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty folder. Pytest's own reads the names of all folders before it makes another: 2 ms after 4,000."""
    folder = tmp_path_factory.getbasetemp() / str(next(_FOLDERS))
    folder.mkdir()
    return folder


@pytest.fixture(autouse=True, scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep Graphviz compiled for all tests and what they start: nothing else of ours is cached there."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ["XDG_CACHE_HOME"] = str(shared / "cache")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, so that this machine's user settings, keys and runs don't reach a test."""
    folder = tmp_path_factory.getbasetemp() / f"home-{next(_FOLDERS)}"
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


if IN_POSTGRESQL:

    @pytest.fixture(autouse=True)
    def databases(request: pytest.FixtureRequest) -> Generator[None]:
        """Drop those of a test's stores with it."""
        names = {"home", "tmp_path"}.intersection(request.fixturenames)
        folders = [request.getfixturevalue(name) for name in names]
        yield
        drop_below(*(folder for folder in folders if isinstance(folder, Path)))


@pytest.fixture
def place(tmp_path: Path) -> Any:
    """A workspace with a store and a home."""
    from places import Place  # not above: what starts the workers would import all of LangGraph

    return Place(tmp_path / "place")


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """`played(play, scene)`: the result of `play(scene, folder)`, computed once for all tests of a file."""
    kept: dict[int, tuple[Any, Any]] = {}

    def once(play: Callable[[Any, Path], Any], scene: Any) -> Any:
        if id(scene) not in kept:
            kept[id(scene)] = scene, play(scene, tmp_path_factory.mktemp("scene") / "stage")
        return kept[id(scene)][1]

    return once


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
