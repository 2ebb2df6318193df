"""dotenv: variables from `.env` files, beside the real environment and never into it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from dotenv.parser import parse_stream

from interlock.services.files.filesystem import is_file


@dataclass(frozen=True)
class DotEnv:
    """The environment as the program sees it."""

    values: dict[str, str]
    """Real variables first, then those of the files."""
    files: list[Path] = field(default_factory=list[Path])
    ignored: list[Path] = field(default_factory=list[Path])
    """Found, but not read, because the folder isn't trusted."""
    warnings: list[str] = field(default_factory=list[str])


def load_dotenv(*, start: Path, home: Path, env: Mapping[str, str], trusted: bool) -> DotEnv:
    """The nearest `.gemini/.env` or `.env` from `start` upward, then `~/.gemini/.env` for what is still missing.

    Values are taken literally. In a folder that isn't trusted only the user's own file counts: a project could
    otherwise send the user's key to a server of its choice.
    """
    own = home / ".gemini" / ".env"
    near = next(
        (f for d in (start, *start.parents) for f in (d / ".gemini" / ".env", d / ".env") if is_file(f)),
        None,
    )
    theirs = [near] if near is not None and near != own else []
    found = DotEnv(dict(env), ignored=[] if trusted else theirs)
    for file in [*(theirs if trusted else []), own]:
        if is_file(file):
            _add(file, found)
    return found


def _add(file: Path, found: DotEnv) -> None:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        found.warnings.append(f"{file}: not read: {error}.")
        return
    found.files.append(file)
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            found.warnings.append(f"{file}:{binding.original.line}: expected NAME=value.")
        elif binding.key and binding.value is not None:
            found.values.setdefault(binding.key, binding.value)
