"""decisions: whether a person has trusted a folder.

Recorded in `~/.interlock/trusted.json` (`interlock trust`), or in gemini-cli's `~/.gemini/trustedFolders.json`; ours
wins for the same folder. As there, `security.folderTrust.enabled: false` in the user's own settings trusts all."""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from interlock.services.config.settings import FOLDERS, read_json_object
from interlock.services.files.disk import make_private_directory
from interlock.services.files.filesystem import lock_folder, replace_private_file_holding_lock
from interlock.services.files.linked_worktree import find_linked_worktree
from interlock.services.files.stamps import real_path
from interlock.state.errors import ConfigError

TRUST_FILE = Path(".interlock") / "trusted.json"
"""Below the home directory: a JSON object, directory → "trusted" | "untrusted"."""
GEMINI_FILE = Path(".gemini") / "trustedFolders.json"
_GEMINI_ANSWERS = {"TRUST_FOLDER": True, "TRUST_PARENT": True, "DO_NOT_TRUST": False}


class TrustDecision(NamedTuple):
    """The decision on a directory and everything below it."""

    directory: Path | None
    """None: every directory."""
    trusted: bool
    source: Path
    """The file that contains it."""


def is_trusted(path: Path, home: Path) -> bool:
    """Whether the nearest decision for `path` trusts it; False without one. Raises `ConfigError` for a bad file."""
    answer = find_trust_decision(path, home)
    return answer is not None and answer.trusted


def find_trust_decision(path: Path, home: Path) -> TrustDecision | None:
    """Return the decision that applies to `path`, or None: of a linked git worktree, that on its repository, unless one
    names the worktree or a folder in it. Raises `ConfigError` for a bad file."""
    if (off := _find_settings_trusting_every_folder(home)) is not None:
        return TrustDecision(None, True, off)
    by_folder = {answer.directory: answer for answer in read_trust_decisions(home)}
    places = _places_that_decide(real_path(path)) if by_folder else ()
    return next((by_folder[place] for place in places if place in by_folder), None)


def _places_that_decide(target: Path) -> Iterator[Path]:
    """Yield the folders whose decision counts for `target`, the nearest first. What was decided on the repository of a
    linked worktree comes before what was decided on folders around the worktree."""
    around = (target, *target.parents)
    if linked := find_linked_worktree(target):
        yield from (place for place in around if place.is_relative_to(linked.top))
        yield from (
            linked.common.parents if linked.common.name == ".git" else (linked.common, *linked.common.parents)
        )
    yield from around


def read_trust_decisions(home: Path) -> list[TrustDecision]:
    """Return all decisions, gemini-cli's file first. Raises `ConfigError` for a bad file."""
    ours = home / TRUST_FILE
    own = [
        TrustDecision(_parse_decision_directory(key, home, ours), _parse_decision(key, value, ours), ours)
        for key, value in (read_json_object(ours) or {}).items()
    ]
    return [*_read_gemini_decisions(home), *own]


def record_trust_decision(directory: Path, home: Path, *, trusted: bool) -> None:
    """Record the decision for a directory's real path, preserving other entries, even under concurrent writes. Raises
    `ConfigError` for a file that can't be read or written."""
    file = home / TRUST_FILE
    key, word = os.path.realpath(directory), "trusted" if trusted else "untrusted"
    try:
        make_private_directory(file.parent)
        with lock_folder(file.parent):
            entries = {
                k: v
                for k, v in (read_json_object(file) or {}).items()
                if str(_parse_decision_directory(k, home, file)) != key
            }
            for entry in entries.items():
                _parse_decision(*entry, file)
            _write_json_through_link(file, {**entries, key: word})
    except OSError as error:
        raise ConfigError(f"{file}: can't be written ({error.strerror}); nothing was changed.") from None


def _write_json_through_link(file: Path, entries: Mapping[str, object]) -> None:
    """Write through a link, so that the link is preserved."""
    text = json.dumps(entries, indent=2, ensure_ascii=False) + "\n"
    replace_private_file_holding_lock(Path(os.path.realpath(file)), text.encode())


def _find_settings_trusting_every_folder(home: Path) -> Path | None:
    """Return the user's settings file that trusts every folder, if any."""
    off: Path | None = None
    for folder in FOLDERS:
        file = home / folder / "settings.json"
        value: Any = read_json_object(file)
        for key in ("security", "folderTrust", "enabled"):
            value = cast(dict[str, Any], value).get(key) if isinstance(value, dict) else None
        if isinstance(value, bool):
            off = None if value else file
    return off


def _read_gemini_decisions(home: Path) -> list[TrustDecision]:
    """Return gemini-cli's decisions, as far as we know its words; `TRUST_PARENT` applies to the parent directory."""
    file = home / GEMINI_FILE
    found: list[TrustDecision] = []
    for key, value in (read_json_object(file) or {}).items():
        if value in _GEMINI_ANSWERS and Path(key).is_absolute():
            directory = Path(key).parent if value == "TRUST_PARENT" else Path(key)
            found.append(TrustDecision(real_path(directory), _GEMINI_ANSWERS[str(value)], file))
    return found


def _parse_decision_directory(key: str, home: Path, file: Path) -> Path:
    directory = home / key[2:] if key.startswith("~/") else home if key == "~" else Path(key)
    if not directory.is_absolute():
        raise ConfigError(f"{file}: {key!r} is not an absolute path; write one, or one that begins with ~/.")
    return real_path(directory)


def _parse_decision(key: str, value: object, file: Path) -> bool:
    if value not in ("trusted", "untrusted"):
        raise ConfigError(f"{file}: {key!r} is {value!r}, expected 'trusted' or 'untrusted'.")
    return value == "trusted"
