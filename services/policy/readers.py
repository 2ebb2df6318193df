"""readers: what is known of commands, as data (`commands.toml`): of it, the options with which programs only read."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from interlock.services.shell.commands import Options
from interlock.services.shell.model import names


@cache
def document() -> Mapping[str, Any]:
    """Return what `commands.toml` holds."""
    return tomllib.loads(Path(__file__).with_name("commands.toml").read_text())


@dataclass(frozen=True, slots=True)
class Reader(Options):
    """The options that a program may have, and the kind of its operands."""

    operands: Literal["paths", "pattern", "lines", "text", "format", "none"] = "paths"
    """`pattern`: a pattern followed by paths; `lines`: which lines, as sed is told (`1,20p`), followed by paths;
    `format`: date's, `+%F`."""
    most: int = 1_000


@cache
def readers(table: Literal["reader", "git_reader"]) -> Mapping[str, Reader]:
    """Program, or subcommand of git → its options."""
    return {name: Reader(**row) for several, row in document()[table].items() for name in several.split()}


FIND_FLAGS = names(
    "-print -print0 -ls -empty -not -o -or -a -and -prune -depth -mount -xdev ( ) ! -true -false"
)
FIND_VALUES = names(
    "-name -iname -printf -path -ipath -wholename -type -maxdepth -mindepth -size -mtime -mmin -atime -ctime -regex"
    " -iregex -perm -user -group"
)
