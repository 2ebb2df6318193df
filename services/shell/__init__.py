"""shell: what a bash line would run, without running it."""

from interlock.services.shell.model import Redirect, ShellCommand, ShellLine, Word
from interlock.services.shell.parse import parse

__all__ = ["Redirect", "ShellCommand", "ShellLine", "Word", "parse"]
