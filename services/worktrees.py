"""worktrees: git worktrees in which runs work: made, listed, merged and removed by git.

Git runs here with the person's environment and settings, without hooks and file monitors. What a repository's own
settings name (filters, merge drivers) runs only where the caller trusts it (`require_harmless_config`).
"""

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from interlock.services.files.disk import read_file
from interlock.services.files.linked_worktree import read_linked_worktree
from interlock.services.files.protected import is_harmless_git_config
from interlock.state.errors import UntrustedError, UserError
from interlock.state.text import join_up_to, make_visible, replace_surrogates

BRANCH_PREFIX = "worktree-"
"""Branches of worktrees begin so in Claude Code and gemini-cli, too."""
INCLUDE_FILE = ".worktreeinclude"
"""Patterns of untracked files that a new worktree gets, as in Claude Code, Codex and others."""
NO_GIT = "git isn't installed, and worktrees are made by it: install it (apt install git, brew install git)."
_HOOKLESS = ("-c", f"core.hooksPath={os.devnull}")
_SAFE = ("-c", "core.fsmonitor=false", "-c", "core.quotePath=false", "-c", "advice.detachedHead=false")
_LOCATING = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX"),
    *("GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS"),
    *("GIT_CONFIG_COUNT", "GIT_SHALLOW_FILE", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE"),
)
"""Variables that a hook of git sets, and that would lead git to another repository."""
_UNFINISHED = (
    *("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply"),
)
"""Files and folders of a git directory while a merge, rebase or bisection is under way."""
_IGNORE_ALL = "*\n"
_SHOWN = 5
_LONGEST_NAME = 100
_LFS_POINTER, _LARGEST_POINTER = b"version https://git-lfs", 1024
_LARGEST_CONFIG = 1_000_000


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
    def here(self) -> Path:
        return self.top or self.common


class WorktreeEntry(NamedTuple):
    """A linked worktree, as git lists it."""

    path: Path
    branch: str
    """Empty: a detached HEAD."""
    commit: str
    missing: bool = False
    locked: str | None = None
    """Why it is locked; None: it isn't."""

    @property
    def name(self) -> str:
        return self.branch.removeprefix(BRANCH_PREFIX) if self.is_own_branch else self.path.name

    @property
    def is_own_branch(self) -> bool:
        """Whether its branch has a name as Interlock gives it."""
        return self.branch.startswith(BRANCH_PREFIX)

    @property
    def is_incomplete(self) -> bool:
        """Whether git was killed while it made the worktree."""
        return self.locked == "initializing"


@dataclass
class MadeWorktree:
    """A worktree in which a run is to work."""

    path: Path
    branch: str
    base: str
    """The commit at which it is now."""
    is_new: bool
    notes: list[str] = field(default_factory=list[str])
    """What a person should know of it: a line each."""


def _run_git(
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
        raise UserError(NO_GIT) from error
    if check and done.returncode:
        words = next((word for word in arguments if not word.startswith("-") and "=" not in word), "")
        raise UserError(f"git {words} failed in {str(folder)!r}: {_failure_text(done)}")
    return done


def _failure_text(done: "subprocess.CompletedProcess[bytes]") -> str:
    text = replace_surrogates((done.stderr or done.stdout).decode(errors="replace"))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("fatal:", "error:", "CONFLICT"))] or lines
    return " ".join(told)[:500] or f"exit status {done.returncode}"


def _read_git(folder: Path, *arguments: str, env: Mapping[str, str]) -> str:
    return os.fsdecode(_run_git(folder, *arguments, env=env).stdout)


def _read_git_list(folder: Path, *arguments: str, env: Mapping[str, str]) -> list[str]:
    """Return what git prints with `-z`."""
    return [item for item in _read_git(folder, *arguments, env=env).split("\0") if item]


def find_repository(folder: Path, env: Mapping[str, str]) -> GitRepository | None:
    """Return the git repository around a folder; None: there is none. Raises `UserError` for one that git refuses."""
    asked = ("rev-parse", "--path-format=absolute", "--git-common-dir", "--git-dir", "--is-inside-work-tree")
    done = _run_git(folder, *asked, env=env, check=False)
    if done.returncode:
        if b"not a git repository" in done.stderr:
            return None
        raise UserError(f"git can't use the repository around {str(folder)!r}: {_failure_text(done)}")
    common, own, inside = os.fsdecode(done.stdout).split("\n")[:3]
    if inside != "true":
        bare = Path(os.path.realpath(common))
        return GitRepository(None, bare, bare, "")
    top = Path(
        os.path.realpath(_read_git(folder, "rev-parse", "--show-toplevel", env=env).removesuffix("\n"))
    )
    below = _read_git(folder, "rev-parse", "--show-prefix", env=env).removesuffix("\n")
    shared = Path(os.path.realpath(common))
    main = top
    if Path(os.path.realpath(own)) != shared:
        first = _read_git(folder, "worktree", "list", "--porcelain", env=env).partition("\n")[0]
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
                f"{str(file)!r} may name programs that git would run, and this folder isn't trusted. Look at the file, "
                "then: interlock trust"
            )


def list_linked_worktrees(repository: GitRepository, env: Mapping[str, str]) -> list[WorktreeEntry]:
    """Return the linked worktrees of a repository, whoever made them; not the main one."""
    text = _read_git(repository.here, "worktree", "list", "--porcelain", env=env)
    found: list[WorktreeEntry] = []
    for block in text.split("\n\n")[1:]:
        lines = [line.partition(" ") for line in block.split("\n") if line]
        about = {key: value for key, _, value in lines}
        if "worktree" not in about:
            continue
        found.append(
            WorktreeEntry(
                Path(about["worktree"]),
                about.get("branch", "").removeprefix("refs/heads/"),
                about.get("HEAD", ""),
                missing="prunable" in about or not os.path.lexists(Path(about["worktree"], ".git")),
                locked=about.get("locked"),
            )
        )
    return found


def list_branches_without_worktree(repository: GitRepository, env: Mapping[str, str]) -> dict[str, int]:
    """Return the branches named as Interlock names them that no worktree has, each with its commits that aren't merged:
    a worktree was removed by hand, or a kill came before there was one."""
    taken = {entry.branch for entry in list_linked_worktrees(repository, env)}
    current = _run_git(repository.main, "symbolic-ref", "--quiet", "--short", "HEAD", env=env, check=False)
    taken.add(os.fsdecode(current.stdout).strip())
    patterns = (f"refs/heads/{BRANCH_PREFIX}*", f"refs/heads/{BRANCH_PREFIX}*/**")
    listed = ("for-each-ref", "--format=%(refname:short) %(objectname)", *patterns)
    heads = dict(line.split(" ") for line in _read_git(repository.here, *listed, env=env).splitlines())
    return {
        branch: _count_unmerged_commits(repository, WorktreeEntry(repository.main, branch, commit), env)
        for branch, commit in heads.items()
        if branch not in taken
    }


def find_worktree(repository: GitRepository, name: str, env: Mapping[str, str]) -> WorktreeEntry:
    """Return the linked worktree of a name, branch or path. Raises `UserError` that names those there are."""
    entries = list_linked_worktrees(repository, env)
    path = Path(os.path.realpath(Path(name).expanduser()))
    for matches in (
        [e for e in entries if name in (e.name, e.branch)],
        [e for e in entries if e.path.name == name or Path(os.path.realpath(e.path)) == path],
    ):
        if len(matches) == 1:
            return matches[0]
        if matches:
            places = ", ".join(str(e.path) for e in matches)
            raise UserError(f"{name!r} names {len(matches)} worktrees: {places}. Give the path of one.")
    names = join_up_to([e.name for e in entries], _SHOWN) or "none"
    raise UserError(f"No worktree {name!r} of {str(repository.main)!r}. There are: {names}.")


def default_worktrees_folder(repository: GitRepository) -> Path:
    """Return where worktrees lie unless settings say otherwise: beside the repository, as VS Code places them."""
    return repository.main.with_name(f"{repository.main.name}.worktrees")


def make_or_reuse_worktree(
    repository: GitRepository,
    name: str,
    folder: Path,
    include: Sequence[str],
    env: Mapping[str, str],
    *,
    reads_include_file: bool,
) -> MadeWorktree:
    """Return the worktree `name` in `folder`, made now at the current commit unless it is there. Raises `UserError`.

    `include`: patterns of untracked files that it gets. `reads_include_file`: also those of `.worktreeinclude`.
    """
    branch = _require_branch_name(name, env)
    path = Path(os.path.realpath(folder)) / name.replace("/", "-")
    entries = list_linked_worktrees(repository, env)
    there = next((e for e in entries if Path(os.path.realpath(e.path)) == path), None)
    elsewhere = next((e for e in entries if e.branch == branch and e is not there and not e.missing), None)
    if there and there.is_incomplete:
        raise UserError(
            f"Worktree {name!r} is incomplete: git was stopped while it made {str(path)!r}. Remove it first: "
            f"interlock worktrees remove {name}"
        )
    if elsewhere:
        there, path = elsewhere, elsewhere.path
    if there and there.missing:
        _run_git(repository.here, "worktree", "remove", "--force", str(path), env=env)
        there = None
    if there:
        made = MadeWorktree(path, there.branch, there.commit, is_new=False)
        made.notes.append(f"Uses the worktree {str(path)!r}, {_describe_head(there.branch, there.commit)}.")
    else:
        made = _add_worktree(repository, path, branch, env)
    source = repository.top
    if source and source != path:
        if reads_include_file or include:
            made.notes += _copy_untracked_files(
                source, path, include, env, reads_include_file=reads_include_file
            )
        if not reads_include_file and (source / INCLUDE_FILE).is_file():
            made.notes.append(
                f"{INCLUDE_FILE} was ignored, because this folder isn't trusted. To let it count: interlock trust"
            )
        made.notes += _populate_submodules(source, path, env)
    made.notes += _list_lfs_pointers(path, env)
    return made


def _require_branch_name(name: str, env: Mapping[str, str]) -> str:
    branch = f"{BRANCH_PREFIX}{name}"
    checked = _run_git(Path("/"), "check-ref-format", "--branch", branch, env=env, check=False)
    too_long = len(name.encode(errors="replace")) > _LONGEST_NAME
    if not name or name.startswith((".", "-", "/")) or too_long or checked.returncode:
        shown = replace_surrogates(name)[:_LONGEST_NAME]
        raise UserError(
            f"--worktree: {shown!r} can't be the name of a branch. Expected letters, digits, '-', '_', '.' or '/', "
            f"at most {_LONGEST_NAME} bytes, as in: --worktree fix-login"
        )
    return branch


def _describe_head(branch: str, commit: str) -> str:
    return f"on branch {branch!r}" if branch else f"at commit {commit[:10]}"


def _add_worktree(repository: GitRepository, path: Path, branch: str, env: Mapping[str, str]) -> MadeWorktree:
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        raise UserError(
            f"{str(path)!r} exists and is no worktree of {str(repository.main)!r}. Give the worktree another name, or "
            "move that folder away."
        )
    _make_worktrees_folder(path.parent)
    ref = f"refs/heads/{branch}"
    kept = _read_commit(repository.here, ref, env)
    if kept:
        _run_git(repository.here, "worktree", "add", str(path), branch, env=env)
        note = f"Made the worktree {str(path)!r} on branch {branch!r}, which was there already."
        return MadeWorktree(path, branch, kept, is_new=True, notes=[note])
    base = _read_commit(repository.here, "HEAD", env)
    if not base:
        raise UserError(
            f"Repository {str(repository.main)!r} has no commit yet, and a worktree begins at one. Commit something "
            "first: git commit"
        )
    _run_git(
        repository.here, "worktree", "add", "--no-track", "-b", branch, str(path), base, env=env
    )  # git undoes it itself if it is interrupted
    made = MadeWorktree(path, branch, base, is_new=True)
    made.notes.append(f"Made the worktree {str(path)!r} on branch {branch!r}, at commit {base[:10]}.")
    if repository.top and (changed := _count_changes(repository.top, env)):
        made.notes.append(
            f"{_count(changed, 'file')} with uncommitted changes in {str(repository.top)!r} "
            f"{'is' if changed == 1 else 'are'} not in it."
        )
    return made


def _read_commit(folder: Path, ref: str, env: Mapping[str, str]) -> str:
    """Return the commit of a ref; empty: there is none."""
    done = _run_git(folder, "rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", env=env, check=False)
    return done.stdout.decode().strip()


def _make_worktrees_folder(folder: Path) -> None:
    try:
        is_new = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        # In a work tree, as that of a submodule's project, git would list the worktrees as untracked.
        if is_new and any(os.path.lexists(place / ".git") for place in folder.parents):
            (folder / ".gitignore").write_text(_IGNORE_ALL)
    except OSError as error:
        raise UserError(
            f"Can't make {str(folder)!r} for worktrees: {error.strerror}. Name another folder in settings: "
            "worktree.folder"
        ) from error


def _list_changes(top: Path, env: Mapping[str, str], *, submodules: bool = False) -> list[str]:
    """Return the changed and untracked files, as `git status` names them."""
    ignored = "--ignore-submodules=none" if submodules else "--ignore-submodules=all"
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=all", ignored)
    return [line[3:] for line in _read_git_list(top, *status, env=env)]


def _count_changes(top: Path, env: Mapping[str, str]) -> int:
    return len(_list_changes(top, env))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# ---- what git doesn't bring along


def _list_included_files(
    top: Path, patterns: Sequence[str], include_file: Path | None, env: Mapping[str, str]
) -> list[str]:
    """Return the untracked files, ignored or not, that the patterns match, relative to `top`."""
    chosen = [f"--exclude={pattern}" for pattern in patterns]
    if include_file and include_file.is_file():
        chosen.append(f"--exclude-from={include_file}")
    if not chosen:
        return []
    return _read_git_list(top, "ls-files", "--others", "--ignored", "-z", *chosen, env=env)


def _copy_untracked_files(
    source: Path, target: Path, patterns: Sequence[str], env: Mapping[str, str], *, reads_include_file: bool
) -> list[str]:
    """Copy what a person listed and what isn't there yet; return a line for what was copied, and for what wasn't."""
    names = _list_included_files(source, patterns, source / INCLUDE_FILE if reads_include_file else None, env)
    linked = read_linked_worktree(target)
    staged = (linked.own if linked else target.parent) / f"interlock-{os.getpid()}.part"
    copied: list[str] = []
    skipped: list[str] = []
    for name in names:
        if Path(source, name) == target or target.is_relative_to(source / name):
            continue
        try:
            if _copy_file_if_absent(source / name, target / name, target, staged):
                copied.append(name)
        except OSError as error:
            skipped.append(f"{name} ({error.strerror})")
    lines = [f"Copied {_count(len(copied), 'untracked file')}: {_shorten(copied)}."] if copied else []
    return [*lines, *([f"Not copied: {_shorten(skipped)}."] if skipped else [])]


def _shorten(names: Iterable[str]) -> str:
    return join_up_to([make_visible(replace_surrogates(name)) for name in names], _SHOWN)


def _copy_file_if_absent(source: Path, target: Path, top: Path, staged: Path) -> bool:
    """Copy a file or link, not through links that lead out of `top`. Raises `OSError`.

    `staged`: where it is written first, outside of the work tree, so that a kill leaves no half file.
    """
    kind = source.lstat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISLNK(kind)):
        raise OSError(0, "a repository of its own" if stat.S_ISDIR(kind) else "no regular file")
    if os.path.lexists(target):
        return False
    if not Path(os.path.realpath(target.parent)).is_relative_to(top):
        raise OSError(0, "a link there leads elsewhere")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.unlink(missing_ok=True)
    shutil.copy2(source, staged, follow_symlinks=False)
    try:
        staged.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:  # the git directory lies on another file system
            raise
        shutil.copy2(staged, target, follow_symlinks=False)
    finally:
        staged.unlink(missing_ok=True)
    return True


def _list_gitlinks(top: Path, env: Mapping[str, str]) -> list[str]:
    """Return the paths of submodules in a work tree."""
    if not (top / ".gitmodules").is_file():
        return []
    entries = _read_git_list(top, "ls-files", "--stage", "-z", env=env)
    return [entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")]


def _populate_submodules(source: Path, target: Path, env: Mapping[str, str]) -> list[str]:
    """Check submodules out from what `source` has of them, without the network; return a line for those left empty."""
    left = [*_clone_submodules_and_list_failures(source, target, env)]
    return (
        [
            f"Empty submodules: {_shorten(left)}. To fetch them: git -C {str(target)!r} submodule update --init "
            "--recursive"
        ]
        if left
        else []
    )


def _clone_submodules_and_list_failures(source: Path, target: Path, env: Mapping[str, str]) -> Iterator[str]:
    for path in _list_gitlinks(target, env):
        is_there = (target / path / ".git").exists()
        if problem := "" if is_there else _clone_submodule(source, target, path, env):
            yield f"{path} ({problem})"
            continue
        yield from (
            f"{path}/{below}"
            for below in _clone_submodules_and_list_failures(source / path, target / path, env)
        )


def _clone_submodule(source: Path, target: Path, path: str, env: Mapping[str, str]) -> str:
    """Clone one submodule from the one in `source`; return why that can't be done, or an empty string."""
    if not (source / path / ".git").exists():
        return "not checked out in the repository"
    own = _read_git(source / path, "rev-parse", "--absolute-git-dir", env=env).removesuffix("\n")
    listed = _read_git_list(
        target, "config", "-z", "-f", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$", env=env
    )
    names = {value: key for key, _, value in (line.partition("\n") for line in listed)}
    if path not in names:
        return "not in .gitmodules"
    name = names[path].removeprefix("submodule.").removesuffix(".path")
    allowed = ("-c", "protocol.file.allow=always", "-c", f"submodule.{name}.url={own}")
    update = ("submodule", "--quiet", "update", "--init", "--checkout", "--", path)
    done = _run_git(target, *allowed, *update, env=env, check=False)
    if done.returncode:
        return _failure_text(done)
    address = _run_git(source / path, "config", "remote.origin.url", env=env, check=False)
    if address.returncode == 0:
        url = os.fsdecode(address.stdout).removesuffix("\n")
        _run_git(target / path, "config", "remote.origin.url", url, env=env)
    return ""


def _list_lfs_pointers(top: Path, env: Mapping[str, str]) -> list[str]:
    """Return a line for the files of Git LFS whose content isn't there."""
    attributes = _read_git_list(top, "ls-files", "-z", "--", ":(glob)**/.gitattributes", env=env)
    if not any(_mentions_lfs(top / name) for name in attributes):
        return []
    files = _read_git_list(top, "ls-files", "-z", "--", ":(attr:filter=lfs)", env=env)
    pointers = [name for name in files if _is_lfs_pointer(top / name)]
    return (
        [
            f"Files of Git LFS without their content: {_shorten(pointers)}. To get it: git -C {str(top)!r} lfs pull"
        ]
        if pointers
        else []
    )


def _mentions_lfs(file: Path) -> bool:
    try:
        return not file.is_symlink() and b"filter=lfs" in file.read_bytes()
    except OSError:
        return False


def _is_lfs_pointer(file: Path) -> bool:
    try:
        if file.is_symlink() or file.stat().st_size > _LARGEST_POINTER:
            return False
        return file.read_bytes().startswith(_LFS_POINTER)
    except OSError:
        return False


# ---- merged and removed


class WorktreeWork(NamedTuple):
    """What a worktree holds that would be lost with it."""

    changed: list[str]
    """Changed and untracked files, and changed copies of what was listed."""
    commits: int
    """Commits that no other branch, tag or remote has, and that would go with the worktree or its branch."""
    unfinished: list[str]
    """What git has begun there, in words, as a merge."""
    submodules: list[str]
    """Submodules with commits that are only there."""

    @property
    def lines(self) -> list[str]:
        """All of it, in a few words each."""
        lines: list[str] = []
        if self.changed:
            lines.append(f"{_count(len(self.changed), 'uncommitted file')}: {_shorten(self.changed)}")
        if self.commits:
            lines.append(f"{_count(self.commits, 'commit')} not merged")
        if self.submodules:
            lines.append(f"commits of {_shorten(self.submodules)} that no remote has")
        return [*lines, *self.unfinished]


def find_unsaved_work(
    repository: GitRepository,
    entry: WorktreeEntry,
    include: Sequence[str],
    env: Mapping[str, str],
    *,
    reads_include_file: bool = True,
) -> WorktreeWork:
    """Return what would be lost if a worktree was removed, and its branch if Interlock named that."""
    commits = _count_unmerged_commits(repository, entry, env)
    if (
        entry.missing
        or entry.is_incomplete
        or not (linked := read_linked_worktree(Path(os.path.realpath(entry.path))))
    ):
        return WorktreeWork([], commits, [], [])
    changed = _list_changes(entry.path, env, submodules=True)
    source = repository.main if (repository.main / ".git").exists() else None
    if source:
        listed = source / INCLUDE_FILE if reads_include_file else None
        copies = _list_included_files(entry.path, include, listed, env)
        changed += [
            name
            for name in copies
            if name not in changed and not _is_same_file(source / name, entry.path / name)
        ]
    unfinished = [
        f"an unfinished {name.lower().removesuffix('_head').removesuffix('_log').replace('_', ' ')}"
        for name in _UNFINISHED
        if os.path.lexists(linked.own / name)
    ]
    return WorktreeWork(changed, commits, unfinished, [*_list_submodules_with_work(source, entry.path, env)])


def _count_unmerged_commits(repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str]) -> int:
    if not entry.commit.strip("0") or (entry.branch and not entry.is_own_branch):
        return 0
    without = [f"--exclude={entry.branch}"] if entry.branch else []
    asked = ("rev-list", "--count", entry.commit, "--not", *without, "--branches", "--tags", "--remotes")
    done = _run_git(repository.here, *asked, env=env, check=False)
    return int(done.stdout) if done.returncode == 0 else 0


def _is_same_file(one: Path, other: Path) -> bool:
    try:
        if one.is_symlink() or other.is_symlink():
            return one.readlink() == other.readlink()
        return one.stat().st_size == other.stat().st_size and one.read_bytes() == other.read_bytes()
    except OSError:
        return False


def _list_submodules_with_work(source: Path | None, top: Path, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the submodules with commits that only this worktree has: they go with it."""
    for path in _list_gitlinks(top, env):
        own = top / path
        if not (own / ".git").exists():
            continue
        tips = {
            *_read_git(own, "for-each-ref", "--format=%(objectname)", "refs/heads", env=env).split(),
            *filter(None, [_read_commit(own, "HEAD", env)]),
        }
        beside = source / path if source and (source / path / ".git").exists() else None
        if any(not _is_commit_kept(own, beside, tip, env) for tip in tips):
            yield path
        yield from (f"{path}/{below}" for below in _list_submodules_with_work(beside, own, env))


def _is_commit_kept(own: Path, beside: Path | None, commit: str, env: Mapping[str, str]) -> bool:
    if (
        beside
        and not _run_git(beside, "cat-file", "-e", f"{commit}^{{commit}}", env=env, check=False).returncode
    ):
        return True
    asked = ("rev-list", "--count", commit, "--not", "--remotes", "--tags")
    return _read_git(own, *asked, env=env).strip() == "0"


def remove_worktree(
    repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str], *, force: bool
) -> list[str]:
    """Remove a worktree, and its branch if Interlock named that; return a line for each thing done. Raises `UserError`.

    `force`: a person said that what it holds may go. Without it git looks once more for changes.
    """
    if entry.locked is not None and not entry.is_incomplete:
        reason = f" ({replace_surrogates(entry.locked)})" if entry.locked else ""
        raise UserError(
            f"Worktree {str(entry.path)!r} is locked{reason}. Unlock it first: git worktree unlock {str(entry.path)!r}"
        )
    has_submodules = not entry.missing and (entry.path / ".gitmodules").is_file()
    flags = ["--force"] * (2 if entry.is_incomplete else 1 if force or has_submodules or entry.missing else 0)
    _run_git(repository.main, "worktree", "remove", *flags, str(entry.path), env=env)
    lines = [f"Removed the worktree {str(entry.path)!r}."]
    with suppress(OSError):  # others are in it, or a person's files
        folder = entry.path.parent
        if folder == default_worktrees_folder(repository):
            ignore = folder / ".gitignore"
            if [*folder.iterdir()] == [ignore] and ignore.read_text() == _IGNORE_ALL:
                ignore.unlink()
            folder.rmdir()
    if entry.is_own_branch and (now := _read_commit(repository.main, f"refs/heads/{entry.branch}", env)):
        if now != entry.commit:
            lines.append(f"Branch {entry.branch!r} stays: it has moved to {now[:10]}.")
        else:
            _run_git(repository.main, "update-ref", "-d", f"refs/heads/{entry.branch}", now, env=env)
            lines.append(
                f"Deleted branch {entry.branch!r}. To bring it back: git branch {entry.branch} {now[:10]}"
            )
    return lines


def remove_untouched_worktree(repository: GitRepository, made: MadeWorktree, env: Mapping[str, str]) -> bool:
    """Remove a worktree that was made now and in which nothing was done; return whether that was so."""
    entry = next((e for e in list_linked_worktrees(repository, env) if e.path == made.path), None)
    if not made.is_new or entry is None or (entry.branch, entry.commit) != (made.branch, made.base):
        return False
    if _list_changes(entry.path, env, submodules=True):
        return False
    # The branch may have been there before: then only the worktree goes.
    unmerged = _count_unmerged_commits(repository, entry, env)
    remove_worktree(repository, entry._replace(branch="") if unmerged else entry, env, force=False)
    return True


def commit_all(entry: WorktreeEntry, message: str, env: Mapping[str, str], *, hooks: bool) -> None:
    """Commit every change in a worktree. Raises `UserError`."""
    _run_git(entry.path, "add", "--all", env=env)
    _run_git(entry.path, "commit", "--quiet", "-m", message, env=env, hooks=hooks)


def merge_worktree(
    repository: GitRepository, entry: WorktreeEntry, env: Mapping[str, str], *, hooks: bool
) -> str:
    """Merge a worktree's commits into what is checked out in `repository.top`; return what became of it.

    Raises `UserError`; then nothing has changed.
    """
    top = repository.top
    if top is None:
        raise UserError(
            f"{str(repository.main)!r} is a bare repository: merge in a work tree of it (-C DIR)."
        )
    if top == Path(os.path.realpath(entry.path)):
        raise UserError(
            f"{str(top)!r} is that worktree itself. Merge it into another one: -C {repository.main}"
        )
    before = _read_commit(top, "HEAD", env)
    if not before:
        raise UserError(f"{str(top)!r} has no commit to merge into.")
    if _read_commit(top, "MERGE_HEAD", env):
        raise UserError(
            f"A merge is under way in {str(top)!r}. Finish it first: git commit, or git merge --abort"
        )
    what = entry.branch or entry.commit
    done = _run_git(top, "merge", "--no-edit", what, env=env, hooks=hooks, check=False)
    if done.returncode:
        conflicts = _read_git_list(top, "diff", "--name-only", "--diff-filter=U", "-z", env=env)
        if conflicts:
            _run_git(top, "merge", "--abort", env=env)
            raise UserError(
                f"{what!r} doesn't merge by itself: conflicts in {_shorten(conflicts)}. Nothing was changed. Merge by "
                f"hand: git -C {str(top)!r} merge {what}"
            )
        raise UserError(f"{what!r} wasn't merged: {_failure_text(done)}")
    into = _read_git(top, "rev-parse", "--abbrev-ref", "HEAD", env=env).strip()
    if _read_commit(top, "HEAD", env) == before:
        return f"{into!r} has all of {what!r} already."
    return f"Merged {what!r} into {into!r} in {str(top)!r}."
