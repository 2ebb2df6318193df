"""simple: one simple command: what it runs in turn, whether it is dangerous, whether it can be seen through."""

from collections.abc import Sequence

from interlock.services.shell.danger import danger_of
from interlock.services.shell.evaluates import evaluates, makes_array, sets_unknown
from interlock.services.shell.found import Found, TooMuch
from interlock.services.shell.model import ShellCommand, Word
from interlock.services.shell.names import names
from interlock.services.shell.shells import LANGUAGES
from interlock.services.shell.variables import sensitive
from interlock.services.shell.wrappers import Unwrapped, unwrap

_RESERVED = names(
    "if then else elif fi do done case esac while until for select function { } ! [[ ]] ((, coproc"
)
"""Bash reads these as its own words: where the grammar takes one for a program, it went wrong."""
_INERT = names(": true false break continue return exit shift wait test [ read local")
"""They run nothing and change nothing but the shell's own variables: no rule is needed for them."""
_BLIND = {
    **dict.fromkeys((".", "source"), "runs a file"),
    **dict.fromkeys(("alias", "unalias", "enable", "hash", "shopt"), "changes what names mean"),
    **dict.fromkeys(("bind", "complete", "compgen", "compopt", "fc", "let"), "evaluates its arguments"),
    **dict.fromkeys(
        names(
            "parallel script flock strace ltrace chroot unshare nsenter systemd-run at batch pkexec"
            " unbuffer setarch chrt taskset numactl firejail proot fakeroot expect screen tmux run-parts entr rlwrap"
            " start-stop-daemon dbus-run-session busybox toybox catchsegv setpriv gosu ssh-agent socat"
        ),
        "runs another command",
    ),
}
_DEEPEST = 20
"""`env env env …`"""
_SHOWN = 60


def program_of(word: Word) -> str:
    """The program's name without its folder; in lower case, since file names may ignore it (`SUDO` on macOS)."""
    return word.text.rsplit("/", 1)[-1].lower()


def add_command(
    found: Found, words: Sequence[Word], text: str, assigns: Sequence[str], level: int = 0
) -> None:
    """Add a simple command, and what it runs. `level`: wrappers around it."""
    if level > _DEEPEST:
        raise TooMuch("wrappers in wrappers, too deep")
    if not words:
        return
    name = words[0]
    if not name.literal or name.text == "":
        found.add(_command(words, text, assigns, "what it runs is only known when it runs"))
        return
    program = program_of(name)
    if name.text in _RESERVED:
        found.add(_command(words, text, assigns, f"{name.text!r} where a command should be"))
        return
    if program in _BLIND:
        found.add(_command(words, text, assigns, f"{program!r} {_BLIND[program]}"))
        return
    inner = unwrap(program, words)
    found.arrays = found.arrays or makes_array(words)
    found.declares = found.declares or sets_unknown(words)
    found.add(_resolved(program, words, text, assigns, inner))
    if inner.script is not None:
        found.deeper(inner.script)
    for run in inner.runs:
        add_command(found, run, " ".join(w.text for w in run), [*assigns, *inner.assigns], level + 1)


def _command(words: Sequence[Word], text: str, assigns: Sequence[str], opaque: str) -> ShellCommand:
    return ShellCommand(text, tuple(words), tuple(assigns), opaque=opaque)


def _resolved(
    program: str, words: Sequence[Word], text: str, assigns: Sequence[str], inner: Unwrapped
) -> ShellCommand:
    danger = inner.danger or danger_of(program, words) or _sets([*assigns, *inner.assigns])
    opaque = inner.opaque or evaluates(program, words)
    harmless = words[0].text in _INERT or (inner.transparent and _is_systems(words[0].text))
    return ShellCommand(
        text,
        tuple(words),
        tuple(assigns),
        danger=danger,
        opaque=opaque,
        code=danger is not None or program in LANGUAGES,
        transparent=harmless and not danger and not opaque,
    )


def _is_systems(program: str) -> bool:
    """`./env` is whatever lies there."""
    return program.rpartition("/")[0] in ("", "/bin", "/usr/bin")


def _sets(assigns: Sequence[str]) -> str | None:
    name = next((a for a in assigns if sensitive(a)), None)
    return f"sets {name[:_SHOWN]}, which changes what it does" if name else None
