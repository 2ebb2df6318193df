"""mirrors: a worker's copies of git repositories, one for each address, and what it asks their servers.

Git runs here in bare repositories that this program made, and where files are checked out without the host's settings:
no hook, filter or setting of a repository is ever executed. Servers are asked with the host's own credentials.
"""

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import lock_folder
from interlock.state.errors import RunError
from interlock.state.repository import Repository
from interlock.state.settings import FleetSettings

_PATIENCE_S = 900
_PATIENCE_AT_DOOR_S = 10
"""Seconds that a person waits who submits a run."""
_NONE_THERE = ("does not appear to be a git repository", "does not exist", "not found")
_COMMIT = re.compile(r"[0-9a-f]{4,64}", re.IGNORECASE)
_ALWAYS = (
    *(f"core.hooksPath={os.devnull}", f"core.attributesFile={os.devnull}", "core.fsmonitor=false"),
    *("protocol.ext.allow=never", "submodule.recurse=false", "gc.auto=0", "fetch.unpackLimit=1"),
    *("advice.detachedHead=false", "init.defaultBranch=main", "push.recurseSubmodules=no"),
)
_ALONE = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_ATTR_NOSYSTEM": "1"}
_OF_HOST = (
    *("HOME", "PATH", "USER", "LOGNAME"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"),
)
"""Besides what begins with GIT_, and names of proxies."""
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_TRACE")
_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "ssl_cert_file", "ssl_cert_dir")
_REASONS = {
    "could not read Username": "it asks for credentials, and this host has none: set up git's credential helper",
    "Authentication failed": "its server refused this host's credentials",
    "Permission denied": "its server refused this host's key",
    "Host key verification failed": "its host key isn't known here: add it to ~/.ssh/known_hosts",
    "non-fast-forward": "the branch there has commits that this run doesn't know",
    "fetch first": "the branch there has commits that this run doesn't know",
    "No space left": "no space left on the disk of the worker",
}
"""What git says → what it means; the rest is shown as git says it."""


def run_git(
    *arguments: str,
    folder: Path,
    ignore_host_settings: bool = True,
    env: dict[str, str] | None = None,
    stdin_text: str = "",
    stdin_file: Path | None = None,
    timeout_s: int = _PATIENCE_S,
) -> str:
    """Run git in a repository of ours, with `stdin_text` or a file as its input.

    Raises `RunError` with git's reason.
    """
    settings = (part for setting in _ALWAYS for part in ("-c", setting))
    own = {name: value for name, value in os.environ.items() if _is_variable_passed_to_git(name)}
    ssh = {"GIT_SSH_COMMAND": own.get("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")}
    fixed = {"GIT_TERMINAL_PROMPT": "0", "GIT_ALLOW_PROTOCOL": "https:http:ssh:git:file", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ("git", *settings, *arguments),
            cwd=folder,
            env={**own, **ssh, **fixed, **(_ALONE if ignore_host_settings else {}), **(env or {})},
            input=stdin_file.read_bytes() if stdin_file else stdin_text.encode(errors="surrogateescape"),
            capture_output=True,
            timeout=timeout_s,
            start_new_session=True,
            umask=0o022,
            check=False,
        )
    except FileNotFoundError as error:
        raise RunError("git isn't installed on this worker (apt install git).") from error
    except OSError as error:
        raise RunError(f"git can't be run in {str(folder)!r}: {error.strerror}.") from error
    except subprocess.TimeoutExpired as error:
        raise RunError(f"git {arguments[0]} took longer than {timeout_s} s.") from error
    if done.returncode:
        said = done.stderr.decode(errors="surrogateescape")
        raise RunError(_describe_git_failure(said) or f"git {arguments[0]} failed with {done.returncode}")
    return done.stdout.decode(errors="surrogateescape").strip()


def _is_variable_passed_to_git(name: str) -> bool:
    ours = name in _OF_HOST or name.startswith("GIT_") or name.lower() in _PROXIES
    return ours and name not in _ELSEWHERE


def _describe_git_failure(stderr: str) -> str:
    known = next((why for part, why in _REASONS.items() if part in stderr), "")
    lines = [line for line in stderr.splitlines() if line.startswith(("fatal:", "error:", " ! ", "remote:"))]
    return known or " ".join(" ".join(lines[:3] or stderr.splitlines()[:1]).split())[:300]


def require_repository(repository: Repository) -> None:
    """Raise `RunError` if the repository's server says that there is none, that it is empty, or lacks the reference.

    A server that this host can't reach, or that refuses it, may answer a worker.
    """
    try:
        said = run_git(
            *("ls-remote", "--", repository.url),
            folder=Path(os.sep),
            ignore_host_settings=False,
            timeout_s=_PATIENCE_AT_DOOR_S,
        )
    except RunError as error:
        if any(part in str(error) for part in _NONE_THERE):
            raise RunError(f"Repository {repository.url!r} can't be cloned: {error}") from error
        return
    if not said:
        raise RunError(f"Repository {repository.url!r} can't be cloned: it is empty.")
    names = {line.partition("\t")[2] for line in said.splitlines()}
    wanted = {f"refs/heads/{repository.ref}", f"refs/tags/{repository.ref}"}
    if repository.ref and not names & wanted and not _COMMIT.fullmatch(repository.ref):
        raise RunError(f"Repository {repository.url!r} has no branch or tag {repository.ref!r}.")


@dataclass(frozen=True)
class Mirror:
    """One repository's, in a worker's folder."""

    repository: Repository
    folder: Path

    @classmethod
    def for_repository(cls, repository: Repository, workspaces: Path, settings: FleetSettings) -> "Mirror":
        """Raises `RunError` for an address of this host's files that its settings don't allow."""
        if settings.is_refused_local_repository(repository.url):
            raise RunError(
                f"Repository {repository.url!r} is a folder of the worker. Allow it there, in "
                "~/.interlock/settings.json: fleet.localRepositories"
            )
        name = hashlib.sha256(repository.url.encode()).hexdigest()[:16]
        return cls(repository, workspaces / ".mirrors" / f"{name}.git")

    @property
    def objects_folder(self) -> Path:
        return self.folder / "objects"

    def fetch_commit(self, known_commit: str = "") -> str:
        """Bring the mirror up to date; returns the commit that the reference names, or `known_commit` if it is there.

        Raises `RunError`.
        """
        make_private_directory(self.folder)
        with lock_folder(self.folder):
            if not (self.folder / "HEAD").exists():
                run_git("init", "--quiet", "--bare", "--template=", ".", folder=self.folder)
            if known_commit and self._find_commit_id_or_empty(known_commit):
                return known_commit
            try:
                flags = ("--quiet", "--no-recurse-submodules", "--no-write-fetch-head", "--prune")
                wanted = ("+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
                run_git(
                    "fetch",
                    *flags,
                    "--",
                    self.repository.url,
                    *wanted,
                    folder=self.folder,
                    ignore_host_settings=False,
                )
                return self._resolve_commit_id(known_commit)
            except RunError as error:
                raise RunError(f"Repository {self.repository.url!r} can't be cloned: {error}") from error

    def _resolve_commit_id(self, known_commit: str) -> str:
        if wanted := known_commit or self.repository.ref:
            for name in (f"refs/heads/{wanted}", f"refs/tags/{wanted}", wanted):
                if found := self._find_commit_id_or_empty(name):
                    return found
            raise RunError(f"it has no branch, tag or commit {wanted!r}.")
        said = run_git(
            "ls-remote", "--", self.repository.url, "HEAD", folder=self.folder, ignore_host_settings=False
        )
        if not said:
            raise RunError("it is empty.")
        return said.split()[0]

    def _find_commit_id_or_empty(self, name: str) -> str:
        try:
            return run_git(
                "rev-parse",
                "--verify",
                "--quiet",
                "--end-of-options",
                f"{name}^{{commit}}",
                folder=self.folder,
            )
        except RunError:
            return ""

    def resolve_tree_id(self, commit: str) -> str:
        return run_git("rev-parse", f"{commit}^{{tree}}", folder=self.folder)

    def clone_commit_into(self, commit: str, folder: Path) -> None:
        """Make a repository of its own in this folder, with the commit's files. Raises `RunError`."""
        run_git("init", "--quiet", "--template=", ".", folder=folder)
        run_git("fetch", "--quiet", "--no-tags", str(self.folder), commit, folder=folder)
        run_git("remote", "add", "origin", self.repository.url, folder=folder)
        ref = self.repository.ref
        branch = ("-B", ref) if ref and self._find_commit_id_or_empty(f"refs/heads/{ref}") else ("--detach",)
        run_git("checkout", "--quiet", "--force", *branch, commit, folder=folder)

    def push_branch(self, commit: str, branch: str, object_folders: Sequence[Path]) -> None:
        """Push a commit of which some objects are in other folders (`object_folders`). Raises `RunError`."""
        env = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(map(str, object_folders))}
        what = ("--", self.repository.url, f"{commit}:refs/heads/{branch}")
        run_git(
            "push", "--quiet", "--no-verify", *what, folder=self.folder, ignore_host_settings=False, env=env
        )
