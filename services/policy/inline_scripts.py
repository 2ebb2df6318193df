"""inline_scripts: finds text that a line gives to a program as instructions: here-documents, output of `echo`.

A shell or a task runner that reads it runs its commands, which rules are tried against.
"""

import posixpath
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain, islice

from interlock.services.shell.commands import LANGUAGES, SHELLS, canonical_program_name, is_executing_stdin
from interlock.services.shell.model import ShellCommand, ShellLine, to_name_set
from interlock.services.shell.parse import parse_shell_line

_PRINTS = to_name_set("echo printf")
_RUNNERS = to_name_set("make gmake just rake task ninja source . sqlite3 psql mysql awk gawk mawk sed")
_OWN_COMMANDS = to_name_set("at batch ed ex vi vim nvim gdb lldb mail mailx ftp")
"""They read commands of their own, one of which runs a program."""
_MOST_COMMANDS = 100
_RECIPE = re.compile(r"^(?:[ \t]+|[^\n;]*?;)[@+ \t-]*(.+)$", re.MULTILINE)
"""A line of a recipe, and one behind a rule: `x:; git push`."""


@lru_cache(maxsize=64)
def find_inline_stdin_texts(line: ShellLine) -> tuple[str, ...]:
    """Return the texts that stand in a line for others of its commands to read."""
    here = (r.text for r in line.redirects if r.kind == "text" and r.text)
    printed = (
        " ".join(c.argv[1:]).removeprefix("-e ").removeprefix("-n ").replace("\\n", "\n").replace("\\t", "\t")
        for c in line.commands
        if c.words and c.words[0].text in _PRINTS and len(c.words) > 1
    )
    return tuple(chain(here, printed))


def is_running_inline_script(command: ShellCommand, line: ShellLine) -> bool:
    """Return whether a command takes its instructions from another part of the line: its input, or a file that it
    writes."""
    if not command.words or not command.words[0].literal:
        return False
    program = canonical_program_name(command.words[0].text)
    text = any(r.kind == "text" for r in line.redirects)
    if is_executing_stdin(command.words) or (program in _OWN_COMMANDS and text):
        return True
    targets = (r.target.text for r in line.redirects if r.kind == "write" and r.target is not None)
    if not (made := {*map(posixpath.normpath, targets)}):
        return False
    runs = program in SHELLS | LANGUAGES | _RUNNERS
    own = "/" in command.words[0].text
    return any(posixpath.normpath(w.text) in made for w in (*command.words[:own], *command.words[1:] * runs))


@lru_cache(maxsize=64)
def find_inline_script_commands(line: ShellLine) -> tuple[ShellCommand, ...]:
    """Return the commands in the texts of a line that one of its commands runs."""
    if not any(is_running_inline_script(command, line) for command in line.commands):
        return ()
    return tuple(islice(_parse_script_commands(find_inline_stdin_texts(line)), _MOST_COMMANDS))


def _parse_script_commands(texts: Sequence[str]) -> Iterator[ShellCommand]:
    for text in texts:
        yield from parse_shell_line(text).commands
        for recipe in _RECIPE.findall(text):
            yield from parse_shell_line(recipe).commands
