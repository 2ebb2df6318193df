"""completion: TAB in bash, zsh and fish: the script that a shell reads, and the answers it gets at each TAB.

The scripts call `interlock __complete SHELL …`, so nothing heavy is imported here. The answer is a line
`KIND<tab>PREFIX`, then one `value<tab>description` per line. KIND is `words`, or `files` or `dirs`, which the shell
lists itself, after PREFIX, the part of the word that isn't part of the path.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path

from interlock.cli.completions import complete_last_word
from interlock.cli.parsing import Args, choice_argument, declare_arguments
from interlock.cli.render.output import to_one_line
from interlock.state.errors import InterlockError

_SHELLS = ("bash", "zsh", "fish")


@declare_arguments(choice_argument("shell", *_SHELLS, help="your shell"))
def completion(args: Args) -> None:
    print(load_completion_script(args.shell), end="")


def load_completion_script(shell: str) -> str:
    return Path(__file__).with_suffix(f".{shell}").read_text(encoding="utf-8")


_LISTED = frozenset({"63", "33", "64"})
"""Values of bash's COMP_TYPE that only list candidates, so that descriptions may follow them."""


def print_completions(arguments: Sequence[str]) -> int:
    """Takes `bash COMP_TYPE WORD LINE` or `zsh|fish WORD…`; the last word is being typed."""
    if len(arguments) < 2:
        return 2
    shell, *words = arguments
    listed, tail = True, words[-1]
    if shell == "bash":
        listed, tail, words = words[0] in _LISTED, words[1], _split_words_at_cursor(words[2])
    try:
        found = complete_last_word(words)
    except InterlockError:
        return 0
    # bash completes only what follows the last of its COMP_WORDBREAKS, like the file in --policy=FILE.
    cut = len(words[-1]) - len(tail) if shell == "bash" and words[-1].endswith(tail) else 0
    print(f"{found.kind}\t{found.prefix[cut:]}")
    for word in found.words:
        value, about = word.value[cut:], to_one_line(word.description)
        if value != to_one_line(value):
            continue  # a name that isn't what it looks like
        if shell == "bash":
            print(f"{value}  ({about})" if listed and about and len(found.words) > 1 else value)
        else:
            print(f"{value}\t{about}")
    return 0


def _split_words_at_cursor(line: str) -> list[str]:
    """The words after the command's name, up to the cursor; an open quote is closed."""
    for close in ("", "'", '"'):
        try:
            words = shlex.split(line + close)
        except ValueError:
            continue
        return [*words[1:], ""] if not close and line[-1:].isspace() else words[1:] or [""]
    return [""]
