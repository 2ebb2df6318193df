"""changes: keys written into settings files, and variables into `.env` files, with all else left as it is."""

import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from dotenv.parser import parse_stream

from interlock.services.files.filesystem import locked, make_directories, replace_file
from interlock.state.errors import ConfigError


@contextmanager
def changed_settings(file: Path, below: str) -> Generator[Any]:
    """The file's JSON, written back unless something was raised meanwhile; `below`: the key that is changed.

    Raises `ConfigError`.
    """
    real = Path(os.path.realpath(file))
    try:
        make_directories(real.parent, 0o700)
        with locked(real.parent):
            text = real.read_text(encoding="utf-8-sig") if real.exists() else ""
            data = json.loads(text or "{}")
            yield data
            replace_file(real, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())
    except OSError as error:
        raise ConfigError(f"{file}: can't be changed ({error.strerror}).") from None
    except ValueError:
        raise ConfigError(
            f"{file}: isn't plain JSON; comments in it would be lost. Change it by hand, below {below}."
        ) from None


def set_variables(file: Path, values: Mapping[str, str]) -> None:
    """Write variables into a `.env` file that its owner alone may read. Raises `ConfigError`."""
    real = Path(os.path.realpath(file))
    try:
        make_directories(real.parent, 0o700)
        with locked(real.parent):
            text = real.read_text(encoding="utf-8-sig") if real.exists() else ""
            kept = "".join(b.original.string for b in parse_stream(StringIO(text)) if b.key not in values)
            kept += "\n" if kept and not kept.endswith("\n") else ""
            new = "".join(f"{name}={_quoted(value)}\n" for name, value in values.items())
            replace_file(real, (kept + new).encode())
    except OSError as error:
        raise ConfigError(f"{file}: can't be changed ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: isn't UTF-8. Save it as UTF-8, or change it by hand.") from None


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
