"""repository: finds the git repository around a folder, and runs git in it.

Git runs with the person's environment and settings, without hooks and file monitors. What a repository's own
settings name (filters, merge drivers) runs only where the caller trusts it (`require_harmless_config`).
"""

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.disk import read_file
from interlock.services.files.protected import is_harmless_git_config
from interlock.state.errors import UntrustedError, UserError
from interlock.state.file_names import format_file_name, quote_path
from interlock.state.text import join_up_to, replace_surrogates

_NO_GIT = "Worktrees need git, which isn't installed. Install it: apt install git, or brew install git"
_HOOKLESS = ("-c", f"core.hooksPath={os.devnull}")
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "advice.detachedHead=false")
_LOCATING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
    *("GIT_CONFIG_COUNT", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE"),
)
"""Variables that a hook of git sets, and that would lead git to another repository."""
_LARGEST_CONFIG = 1_000_000
SHOWN = 5
"""Names in a line."""


class GitRepository(NamedTuple):
    """A repository, as found from a folder."""

    top: Path | None
    """The work tree around the folder; None: the repository is bare."""
    main: Path
    """The main work tree, or the bare repository."""
    common: Path
    """The git directory that all its work trees share."""
    below: str
    """The folder inside of the work tree, with a slash at its end; empty: its top."""

    @property
    def git_folder(self) -> Path:
        """A folder in which git finds this repository."""
        return self.top or self.common


def find_repository(folder: Path, env: Mapping[str, str]) -> GitRepository | None:
    """Return the git repository around a folder; None: there is none. Raises `UserError` for one that git refuses."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--is-inside-work-tree")
    done = run_git(folder, *asked, env=env, check=False)
    if done.returncode:
        if b"not a git repository" in done.stderr:
            return None
        raise UserError(f"git can't use the repository around {quote_path(folder)}: {git_failure_text(done)}")
    common, own, inside = os.fsdecode(done.stdout).split("\n")[:3]
    if inside != "true":
        bare = Path(os.path.realpath(common))
        return GitRepository(None, bare, bare, "")
    top = Path(
        os.path.realpath(read_git_text(folder, "rev-parse", "--show-toplevel", env=env).removesuffix("\n"))
    )
    below = read_git_text(folder, "rev-parse", "--show-prefix", env=env).removesuffix("\n")
    shared = Path(os.path.realpath(common))
    main = top
    if Path(os.path.realpath(own)) != shared:
        first = read_git_text(folder, "worktree", "list", "--porcelain", env=env).partition("\n")[0]
        main = Path(os.path.realpath(first.removeprefix("worktree ")))
    return GitRepository(top, main, shared, below)


def require_harmless_config(repository: GitRepository, is_trusted: bool) -> None:
    """Raise `UntrustedError` if the repository's own settings make git run programs, and nobody trusts them."""
    if is_trusted:
        return
    for file in (repository.common / "config", repository.common / "config.worktree"):
        if file.is_file() and not is_harmless_git_config(
            read_file(file, _LARGEST_CONFIG).decode(errors="replace")
        ):
            raise UntrustedError(
                f"{quote_path(file)} may name programs that git would run, and this folder isn't trusted. Look at "
                "the file, then: interlock trust"
            )


def run_git(
    folder: Path, *arguments: str, env: Mapping[str, str], hooks: bool = False, check: bool = True
) -> "subprocess.CompletedProcess[bytes]":
    """Run git in a folder. Raises `UserError` with what git says if it fails and `check` is set."""
    command = ["git", *_SAFE, *(() if hooks else _HOOKLESS), "-C", str(folder), *arguments]
    variables = {name: value for name, value in env.items() if name not in _LOCATING}
    variables |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0"}
    variables.setdefault("PATH", os.defpath)
    try:
        done = subprocess.run(
            command, env=variables, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError as error:
        raise UserError(_NO_GIT) from error
    if check and done.returncode:
        command_name = next((word for word in arguments if not word.startswith("-") and "=" not in word), "")
        raise UserError(f"git {command_name} failed in {quote_path(folder)}: {git_failure_text(done)}")
    return done


def git_failure_text(done: "subprocess.CompletedProcess[bytes]") -> str:
    """Return what git said as it failed, in one line."""
    text = replace_surrogates((done.stderr or done.stdout).decode(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("fatal:", "error:", "CONFLICT"))] or lines
    return " ".join(marked)[:500] or f"exit status {done.returncode}"


def read_git_text(folder: Path, *arguments: str, env: Mapping[str, str]) -> str:
    """Return what git prints. Raises `UserError` if it fails."""
    return os.fsdecode(run_git(folder, *arguments, env=env).stdout)


def read_git_list(folder: Path, *arguments: str, env: Mapping[str, str]) -> list[str]:
    """Return the items that git prints with `-z`. Raises `UserError` if it fails."""
    return [item for item in read_git_text(folder, *arguments, env=env).split("\0") if item]


def find_commit(folder: Path, ref: str, env: Mapping[str, str]) -> str:
    """Return the commit of a ref; empty: there is none."""
    done = run_git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", env=env, check=False)
    return done.stdout.decode().strip()


def list_changed_files(top: Path, env: Mapping[str, str], *, submodules: bool = False) -> list[str]:
    """Return the changed and untracked files, as `git status` names them."""
    ignored = "--ignore-submodules=none" if submodules else "--ignore-submodules=all"
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", ignored)
    return [line[3:] for line in read_git_list(top, *status, env=env)]


def join_file_names(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are, for a line that people read."""
    return join_up_to([*map(format_file_name, names)], SHOWN)
