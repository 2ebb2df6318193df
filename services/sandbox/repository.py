"""repository: the parts of a git directory by which git can be made to execute something, or to believe another one."""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

_EXECUTES = ("config", "config.worktree", "modules", "worktrees")
"""Configuration names programs (hooks, filters, pagers); `modules` and `worktrees` hold further git directories."""
_HERE = b".\n"
"""As `commondir`: this directory is its own. Without such a file a new one could lead git to another configuration."""
_ELSEWHERE = re.compile(r"^\s*(?:bare\s*=\s*true|worktree\s*=)", re.MULTILINE | re.IGNORECASE)
"""Settings that git passes over once there is a `commondir`."""
_HOOKS = re.compile(r"^\s*hookspath\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_INCLUDE = re.compile(r"^\s*path\s*=\s*(.+?)\s*$", re.MULTILINE | re.IGNORECASE)
_NOTHING = b"# nothing is included\n"


@dataclass
class Repository:
    """What must be done for commands to work with it, and to get no rights from it."""

    common: Path
    """The git directory that worktrees share."""
    own: list[Path] = field(default_factory=list[Path])
    """What a linked worktree has there for itself, writable."""
    kept: list[Path] = field(default_factory=list[Path])
    never_new: dict[Path, bytes | None] = field(default_factory=dict[Path, bytes | None])


def read_repository(git: Path, tree: Path | None = None) -> Repository:
    """Of a `.git` folder; `tree` is a work tree that isn't the folder around it. What git wouldn't take for a whole
    repository is read only as a whole."""
    found = Repository(git)
    config = git / "config"
    text = config.read_text(errors="replace") if config.is_file() else None
    if text is None or not (git / "HEAD").exists() or _ELSEWHERE.search(text):
        found.kept.append(git)
        return found
    found.kept += [git / name for name in _EXECUTES if os.path.lexists(git / name)]
    found.never_new[git / "hooks"] = None
    found.never_new[git / "commondir"] = _HERE
    found.never_new |= dict.fromkeys(_named(_HOOKS, text, tree or git.parent))
    found.never_new |= dict.fromkeys(_named(_INCLUDE, text, git), _NOTHING)
    return found


def _named(setting: re.Pattern[str], config: str, base: Path) -> Iterable[Path]:
    """What the configuration names, from `base`; that folder itself can't be kept."""
    paths = (Path(os.path.normpath(base / Path(v.strip('"')).expanduser())) for v in setting.findall(config))
    return [path for path in paths if path != base]


def linked_worktree(git_file: Path) -> Repository | None:
    """Of a `.git` file, if the repository that it names has this worktree: a file alone must not open a folder."""
    try:
        own = _leads_to(git_file.parent, git_file.read_text().strip().removeprefix("gitdir:").strip())
        common = _leads_to(own, (own / "commondir").read_text().strip())
        back = _leads_to(own, (own / "gitdir").read_text().strip())
    except (OSError, UnicodeDecodeError):
        return None
    if back != git_file or own.parent != common / "worktrees" or not (common / "objects").is_dir():
        return None
    found = read_repository(common, git_file.parent)
    found.own.append(own)
    found.kept += [p for name in ("commondir", "gitdir", "config.worktree") if (p := own / name).exists()]
    return found


def _leads_to(base: Path, name: str) -> Path:
    return Path(os.path.realpath(base / name))
