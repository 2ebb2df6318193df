"""formats: file formats that people also write by hand (YAML, `.env`): parsed with limits so that
no file can hang the program, and edited without touching the rest of the file."""

import json
import os
import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any, cast

from interlock.services.files.disk import make_private_directory, read_file, read_text_file
from interlock.services.files.filesystem import is_file, lock_folder, replace_private_file_holding_lock
from interlock.state.errors import ConfigError
from interlock.state.names import ADDRESSES

_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*$\r?\n?(.*)\Z", re.DOTALL | re.MULTILINE)
_DEEPEST = 64
"""Maximum nesting depth; a JSON Schema needs about a dozen levels."""


def parse_yaml(text: str) -> object:
    """Parse YAML. Raises `ValueError` saying what is wrong: invalid YAML, an alias (which can expand without limit), or
    nesting so deep that parsing takes quadratic time."""
    import yaml

    try:
        _reject_aliases_and_deep_nesting(cast("Iterable[object]", yaml.parse(text)))  # pyright: ignore[reportUnknownMemberType]
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {' '.join(str(error).split())}") from error


def split_front_matter(
    text: str, parse: Callable[[str], object] = parse_yaml
) -> tuple[Mapping[str, Any], str]:
    """Split off the front matter between two `---` lines at the top. Raises `ValueError` saying what is wrong."""
    parts = _FRONT.match(text)
    if parts is None:
        raise ValueError("expected YAML front matter between two lines '---' at the top")
    try:
        front = parse(parts[1])
    except ValueError as error:
        raise ValueError(f"its front matter: {error}") from error
    if not isinstance(front, dict):
        raise ValueError("its front matter isn't a mapping of names to values")
    return cast(Mapping[str, Any], front), parts[2]


def _reject_aliases_and_deep_nesting(events: Iterable[object]) -> None:
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("holds a YAML alias (*name): write the value out")


@dataclass(frozen=True)
class DotEnv:
    """The environment, including variables from `.env` files."""

    values: dict[str, str]
    """Real variables take precedence over those from files."""
    files: list[Path] = field(default_factory=list[Path])
    ignored: list[Path] = field(default_factory=list[Path])
    """Found but not read, because the folder isn't trusted."""
    warnings: list[str] = field(default_factory=list[str])
    withheld: dict[str, str] = field(default_factory=dict[str, str])
    """Keys that aren't used, because they belong to another address → why."""


def load_dotenv(*, start: Path, home: Path, env: Mapping[str, str], trusted: bool) -> DotEnv:
    """Load the nearest `.gemini/.env` or `.env` from `start` upward, then `~/.gemini/.env` for what is still missing.

    Values are literal. In an untrusted folder only the user's own file is read: a project could otherwise send the
    user's key to a server of its choice.
    """
    own = home / ".gemini" / ".env"
    near = next(
        (f for d in (start, *start.parents) for f in (d / ".gemini" / ".env", d / ".env") if is_file(f)), None
    )
    theirs = [near] if near is not None and near != own else []
    found = DotEnv(dict(env), ignored=[] if trusted else theirs)
    for file in [*(theirs if trusted else []), own]:
        if is_file(file):
            _add_dotenv_file(file, found, file == own)
    return found


def _add_dotenv_file(file: Path, dotenv: DotEnv, is_own: bool) -> None:
    try:
        text = read_file(file).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        dotenv.warnings.append(f"{file}: not read: {error}.")
        return
    dotenv.files.append(file)
    from dotenv.parser import parse_stream  # late: most folders have no such file

    given: dict[str, str] = {}
    for binding in parse_stream(StringIO(text)):
        if binding.error:
            dotenv.warnings.append(f"{file}:{binding.original.line}: expected NAME=value.")
        elif binding.key and binding.value is not None:
            given.setdefault(binding.key, binding.value)
    for address, keys in ADDRESSES.items():
        _drop_mismatched_key_or_address(file, given, dotenv, address, keys, is_own)
    for name, value in given.items():
        dotenv.values.setdefault(name, value)


def _drop_mismatched_key_or_address(
    file: Path,
    values: dict[str, str],
    dotenv: DotEnv,
    address_variable: str,
    key_variables: Sequence[str],
    is_own: bool,
) -> None:
    """Drop the address of another key than the one in use, and the key of another address, from what a file gives."""
    here = [key for key in key_variables if values.get(key)]
    used, elsewhere = (
        dotenv.values.get(address_variable),
        any(dotenv.values.get(key) for key in key_variables),
    )
    if here and elsewhere and not used:
        values.pop(address_variable, None)
    if is_own and here and used and not elsewhere and used != values.get(address_variable):
        belongs = values.get(address_variable) or "the provider's own address"
        text = (
            f"{file}: {here[0]} isn't sent to {used} ({address_variable}): it was stored for {belongs}. "
            "Set the key of that server too: in the environment, or with interlock auth set PROVIDER --url URL."
        )
        dotenv.warnings.append(text)
        for key in here:
            dotenv.withheld[key] = text
            del values[key]


@contextmanager
def _lock_and_read_text(file: Path) -> Generator[tuple[Path, str]]:
    """Yield the file that a link leads to, and its text, locked against other writers. Raises `ConfigError`."""
    real = Path(os.path.realpath(file))
    try:
        make_private_directory(real.parent)
        with lock_folder(real.parent):
            yield real, read_text_file(real) if real.exists() else ""
    except OSError as error:
        raise ConfigError(f"{file}: can't be changed ({error.strerror}).") from None


@contextmanager
def edit_json_settings(file: Path, changed_key: str) -> Generator[Any]:
    """Yield the file's JSON and write it back unless the block raises; `changed_key` is named in errors.

    Raises `ConfigError`.
    """
    try:
        with _lock_and_read_text(file) as (real, text):
            data = _parse_plain_json(text or "{}")
            yield data
            replace_private_file_holding_lock(
                real, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()
            )
    except ValueError:
        raise ConfigError(
            f"{file}: isn't plain JSON; comments in it would be lost. Change it by hand, below {changed_key}."
        ) from None


def _parse_plain_json(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def write_dotenv_variables(file: Path, values: Mapping[str, str], removed: Set[str] = frozenset()) -> None:
    """Set variables in a `.env` file readable only by its owner, without those in `removed`. Raises `ConfigError`."""
    from dotenv.parser import parse_stream

    try:
        with _lock_and_read_text(file) as (real, text):
            bindings = parse_stream(StringIO(text))
            kept = "".join(
                b.original.string for b in bindings if b.key not in values and b.key not in removed
            )
            kept += "\n" if kept and not kept.endswith("\n") else ""
            new = "".join(f"{name}={_quote_dotenv_value(value)}\n" for name, value in values.items())
            replace_private_file_holding_lock(real, (kept + new).encode())
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: isn't UTF-8. Save it as UTF-8, or change it by hand.") from None


def _quote_dotenv_value(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
