"""mixed_files: puts back what concerns tests in files of which only a part does: keys, targets, sections.

A file is rewritten, not edited: nobody but the programs in a view reads it.
"""

import configparser
import datetime
import io
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, cast

import yaml

from interlock.services.checks.inline_tests import restore_inline_tests
from interlock.services.checks.makefile import restore_make_tests
from interlock.services.checks.targets import find_test_targets
from interlock.services.checks.test_table import CheckTable, Mixed


class InseparableError(Exception):
    """What concerns tests can't be told apart from the rest."""


def restore_tests(path: str, old: str, new: str, table: CheckTable) -> str:
    """Return the file of today with the parts that concern tests as they were; equal to `new` if none has changed.

    Raises `InseparableError`.
    """
    row = table.mixed(path)
    if row is None or row.format == "whole":
        raise InseparableError
    try:
        if row.format == "code":
            return restore_inline_tests(path, old, new)
        if row.format == "make":
            return restore_make_tests(old, new, table.words)
        read, write = _FORMATS[row.format]
        before, now = read(old), read(new)
        made = _merge_tests(before, now, row, table)
        if made == now:
            return new
        text = write(made)
        if read(text) != made:
            raise InseparableError
        return text
    except (
        *(ValueError, TypeError, AttributeError, SyntaxError, RecursionError),
        *(yaml.YAMLError, configparser.Error),
    ) as error:
        raise InseparableError from error


def has_tests(path: str, text: str, table: CheckTable) -> bool:
    """Return whether something in a file of which only a part concerns tests does."""
    try:
        return restore_tests(path, text, "", table) != ""
    except InseparableError:
        return True


def _merge_tests(
    before: dict[str, Any], now: dict[str, Any], row: Mixed, table: CheckTable
) -> dict[str, Any]:
    made = now
    for key in row.keys:
        made = _restore_key(before, made, key.split("."))
    if row.targets:
        old, new = _require_object(before.get(row.targets) or {}), _require_object(now.get(row.targets) or {})
        names = find_test_targets(_target_texts(old), _target_texts(new), table.words)
        kept = {name: body for name, body in new.items() if name not in names}
        restored = {name: body for name, body in old.items() if name in names}
        order = [*dict.fromkeys([*new, *old])]
        both = {**kept, **restored}
        made = {**made, row.targets: {name: both[name] for name in order if name in both}}
        if not both and row.targets not in now:
            del made[row.targets]
    return made


def _target_texts(targets: Mapping[str, Any]) -> dict[str, str]:
    return {
        name: body if isinstance(body, str) else json.dumps(body, default=str)
        for name, body in targets.items()
    }


def _restore_key(before: Any, now: Any, key: Sequence[str]) -> Any:
    """Return `now` with the value of a dotted key as it was before."""
    if not isinstance(now or {}, dict) or not isinstance(before or {}, dict):
        return now  # another kind of value stands there
    old, new = _require_object(before or {}), _require_object(now or {})
    made = dict(new)
    for name in [n for n in dict.fromkeys([*new, *old]) if fnmatchcase(n, key[0])]:
        if len(key) == 1:
            if name in old:
                made[name] = old[name]
            else:
                del made[name]
            continue
        inner = _restore_key(old.get(name), new.get(name), key[1:])
        if inner:
            made[name] = inner
        elif name in made and name not in new:
            del made[name]
        elif name in new:
            made[name] = inner if isinstance(new[name], dict) else new[name]
    return made


def _read_json(text: str) -> dict[str, Any]:
    return _require_object(json.loads(text)) if text.strip() else {}


def _read_yaml(text: str) -> dict[str, Any]:
    return _require_object(yaml.safe_load(text) or {})


def _require_object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("expected an object")
    return cast(dict[str, Any], found)


class _Parser(configparser.RawConfigParser):
    """Keeps the case of names."""

    def __init__(self) -> None:
        super().__init__(strict=False, allow_no_value=True)

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _read_ini(text: str) -> dict[str, Any]:
    parser = _Parser()
    parser.read_string(text)
    sections = {name: dict(parser.items(name)) for name in parser.sections()}
    return {**({"DEFAULT": dict(parser.defaults())} if parser.defaults() else {}), **sections}


def _write_ini(made: Mapping[str, Any]) -> str:
    parser, text = _Parser(), io.StringIO()
    parser.read_dict(made)
    parser.write(text)
    return text.getvalue()


def _write_toml(made: Mapping[str, Any]) -> str:
    return "".join(f"{json.dumps(key)} = {_to_toml(value)}\n" for key, value in made.items())


def _to_toml(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return json.dumps(value).replace("\x7f", "\\u007f")
        case datetime.datetime() | datetime.date() | datetime.time():
            return value.isoformat()
        case list():
            return f"[{', '.join(map(_to_toml, cast(list[Any], value)))}]"
        case dict():
            pairs = cast(dict[str, Any], value).items()
            return f"{{{', '.join(f'{json.dumps(k)} = {_to_toml(v)}' for k, v in pairs)}}}"
        case _:
            return repr(value)


_FORMATS: Mapping[str, tuple[Callable[[str], dict[str, Any]], Callable[[dict[str, Any]], str]]] = {
    "json": (_read_json, lambda made: json.dumps(made, indent=2, ensure_ascii=False)),
    "toml": (tomllib.loads, _write_toml),
    "ini": (_read_ini, _write_ini),
    "yaml": (_read_yaml, lambda made: yaml.safe_dump(made, sort_keys=False)),
}
