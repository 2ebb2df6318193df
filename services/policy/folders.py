"""folders: which folder, and which repository, a line of the shell works in."""

import posixpath
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from interlock.services.shell.model import ShellCommand, ShellLine, Word, program_of
from interlock.state.calls import CallView
from interlock.state.tooling import PathRefused, Workspace

_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_MOVES = frozenset({"cd", "pushd", "popd"})
_FOLDER_ARGS = ("dir_path", "directory", "cwd")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the commands of a line may run. A rule counts for the workspace's own folder."""

    bases: tuple[str, ...]
    """Each folder that may be current, as the workspace reads paths; empty: not known, or outside of it."""
    elsewhere: str | None = None
    """What takes the line to another folder, as a clause; null: nothing does."""


def folders_of(call: CallView, line: ShellLine, workspace: Workspace) -> Folders:
    """Of the folder that the call names, and of one plain `cd`."""
    start = next((v for k in _FOLDER_ARGS if isinstance(v := call.args.get(k), str)), ".")
    own = start == "." or _inside(start, workspace) == workspace.root
    bases, clauses = [start], [] if own else [f"runs in {start!r}"]
    moves = [c for c in line.commands if c.words and program_of(c.words[0].text) in _MOVES]
    for command in moves:
        target = _target(command)
        clauses += [f"changes its folder ({command.text})"]
        if target is None or len(moves) > 1:
            return Folders((), clauses[0])
        bases.append(posixpath.join(start, target))
        if bases[-1] == "." or _inside(bases[-1], workspace) == workspace.root:
            clauses.pop()
    inside = all(_inside(base, workspace) is not None for base in bases)
    return Folders(tuple(bases) if inside else (), next(iter(clauses), None))


def _target(command: ShellCommand) -> str | None:
    """Of `cd FOLDER`; null: where it leads isn't plain."""
    words = command.words
    if len(words) != 2 or words[0].text != "cd" or not words[1].literal:
        return None
    return None if words[1].text == "" or words[1].text.startswith("-") else words[1].text


def _inside(folder: str, workspace: Workspace) -> Path | None:
    """Its real path; None: it is outside of the workspace, or kept from tools."""
    try:
        return workspace.readable(folder)
    except PathRefused:
        return None


def protected_target(line: ShellLine, folders: Folders, workspace: Workspace) -> str | None:
    """Which redirection changes what the program goes by, as a clause; null: none does."""
    for target in (r.target for r in line.redirects if r.kind == "write" and r.target is not None):
        for base in folders.bases or (".",):
            found = workspace.protected(posixpath.join(base, target.text))
            if found is not None:
                return f"writes to {target.text!r} ({found.what})"
    return None


def escape(line: ShellLine, folders: Folders, workspace: Workspace) -> str | None:
    """Which redirection writes where tools may not, or opens a connection, as a clause; null: none does."""
    targets = [(r.kind, r.target) for r in line.redirects if r.target is not None]
    net = next((t.text for _, t in targets if t.lead.startswith(_NETWORK)), None)
    if net is not None:
        return f"opens a network connection ({net})"
    problems = (_problem(t, folders, workspace) for kind, t in targets if kind == "write")
    return next((p for p in problems if p), None)


def _problem(target: Word, folders: Folders, workspace: Workspace) -> str | None:
    if not target.literal:
        return f"writes to a file that is only known when it runs ({target.text})"
    if target.text in _NOWHERE:
        return None
    if len(folders.bases) != 1 and not posixpath.isabs(target.text):
        return f"changes its folder before it writes to {target.text!r}"
    try:
        workspace.writable(posixpath.join(*folders.bases, target.text))
    except PathRefused as refused:
        return f"writes to {target.text!r}: {str(refused).rstrip('.')}"
    return None


_SAFE_KEYS = re.compile(
    r"core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol"
    r"|quotepath|longpaths)"
    r"|(remote|branch)\.(url|pushurl|fetch|remote|merge|rebase|tagopt|prune|description|vscode-merge-base)"
    r"|user\.(name|email)|init\.defaultbranch|pull\.(rebase|ff)|push\.(default|autosetupremote)|color\.\w+"
    r"|commit\.gpgsign|tag\.gpgsign|merge\.(ff|conflictstyle)|rerere\.\w+|advice\.\w+"
)
"""Keys that hold no command, no path and no other file of keys. Everything else may."""
_SECTION = re.compile(r"\[\s*([A-Za-z0-9.-]+)(?:\s+\"(?:[^\"\\\n]|\\.)*\")?\s*\]")
_KEY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=[^\\]*)?")
_LARGEST = 20_000
_LARGEST_INDEX = 50_000_000
_SUBMODULE = b"\x00\x00\xe0\x00"
"""The mode of an entry of the index that is a repository of its own, which `git status` goes into."""


def runs_nothing(folder: Path) -> bool:
    """Whether the repository that git would find from `folder` has no settings, hooks or submodules that run programs.

    Bare repositories are never found: tools run with `safe.bareRepository=explicit`. What the user's own
    configuration runs is the user's.
    """
    for place in (folder, *folder.parents):
        own = place / ".git"
        if own.is_dir():
            return _is_plain(own)
        if own.exists() or own.is_symlink():
            return False
    return True


def _is_plain(git: Path) -> bool:
    if any((git / name).exists() for name in ("config.worktree", "commondir", "hooks/post-index-change")):
        return False
    if any(git.glob("sharedindex.*")):  # where other entries stand
        return False
    try:
        return _are_plain(str(git), _state(git / "config"), _state(git / "index"))
    except (OSError, ValueError):
        return False


def _state(file: Path) -> tuple[int, int, int]:
    """Another one when the file has changed."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_ctime_ns, status.st_size)


@lru_cache(maxsize=8)
def _are_plain(git: str, config: tuple[int, int, int], index: tuple[int, int, int]) -> bool:
    if config[2] > _LARGEST or index[2] > _LARGEST_INDEX:
        return False
    entries = Path(git, "index").read_bytes() if index[2] else b""
    text = Path(git, "config").read_text(encoding="utf-8") if config[2] else ""
    return _SUBMODULE not in entries and _is_plain_config(text)


def _is_plain_config(text: str) -> bool:
    section = ""
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        header = _SECTION.match(line)
        if header:
            section = header[1].lower()
            line = line[header.end() :].strip()
            if not line:
                continue
        key = _KEY.fullmatch(line)
        if key is None or not _SAFE_KEYS.fullmatch(f"{section}.{key[1].lower()}"):
            return False
    return True
