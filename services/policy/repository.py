"""repository: whether git runs nothing of a repository's own when it only reads: its settings may name programs."""

import re
from functools import lru_cache
from pathlib import Path

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
