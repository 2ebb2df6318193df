"""danger: forms that ask even where a rule allows the command."""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from interlock.services.shell.build_danger import CHECKS as BUILDS
from interlock.services.shell.git_danger import git
from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import seen
from interlock.services.shell.text_danger import awk, editor, sed
from interlock.services.shell.variables import sensitive

_Words = Sequence[Word]
_UNKNOWN = "has arguments that are only known when it runs"
_ALWAYS = {
    **dict.fromkeys(
        names("dd shred wipefs fdisk sfdisk parted mkswap blkdiscard fallocate"), "writes over data"
    ),
    **dict.fromkeys(
        names(
            "shutdown reboot halt poweroff systemctl service mount umount iptables nft useradd userdel usermod passwd"
            " chsh visudo crontab insmod rmmod modprobe sysctl swapoff killall pkill setcap"
        ),
        "changes the system",
    ),
}
_PUBLISH = {
    **dict.fromkeys(("npm", "pnpm", "yarn", "cargo", "poetry", "uv"), names("publish unpublish yank")),
    "twine": names("upload"),
    "docker": names("push login"),
    "gem": names("push yank"),
    "kubectl": names("delete apply replace drain"),
    "terraform": names("apply destroy"),
}
_FIND_ACTS = names("-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls")
_TAR_RUNS = names("to-command checkpoint-action use-compress-program rsh-command info-script")
_OUTPUT = re.compile(r"--output|-[A-Za-z]*o")
_DEVICE = re.compile(r"/dev/(?!null$|stdout$|stderr$|stdin$|tty$|zero$|urandom$|random$|fd/)")


def danger_of(program: str, words: _Words) -> str | None:
    """A clause that says what is dangerous; None: nothing that is known here."""
    if program in _ALWAYS or program.startswith("mkfs"):
        return _ALWAYS.get(program, "writes over data")
    check = _CHECKS.get(program)
    reason = check(words) if check else None
    return reason or _publishes(program, words) or _device(program, words)


def _publishes(program: str, words: _Words) -> str | None:
    acts = _PUBLISH.get(program)
    if acts is None:
        return None
    found = next((w.text for w in words[1:] if w.text in acts), None)
    return f"acts outside of this machine or project ({found})" if found else None


def _device(program: str, words: _Words) -> str | None:
    if program not in ("tee", "cp", "mv", "cat", "install", "ln"):
        return None
    return "touches a device" if any(_DEVICE.match(w.lead) for w in words[1:]) else None


def _rm(words: _Words) -> str | None:
    options = seen(words[1:])
    if options.has("rR", "recursive", "no-preserve-root"):
        return "deletes recursively"
    if options.has("f", "force"):
        return "deletes without asking"
    return "deletes what is only known when it runs" if options.unknown else None


def _recursive(words: _Words) -> str | None:
    options = seen(words[1:])
    if options.has("R", "recursive"):
        return "changes rights recursively"
    return _UNKNOWN if options.unknown else None


def _find(words: _Words) -> str | None:
    act = next((w.text for w in words[1:] if w.literal and w.text in _FIND_ACTS), None)
    if act is not None:
        return f"acts on every file that it finds ({act})"
    return _UNKNOWN if seen(words[1:]).unknown else None


def _with_options(letters: str, longs: tuple[str, ...], why: str) -> Callable[[_Words], str | None]:
    def check(words: _Words) -> str | None:
        options = seen(words[1:])
        if options.has(letters, *longs):
            return why
        return _UNKNOWN if options.unknown else None

    return check


def _tar(words: _Words) -> str | None:
    """The first word may be letters without a dash."""
    first = [Word("-" + w.text, w.literal, "-" + w.lead) for w in words[1:2] if not w.lead.startswith("-")]
    options = seen([*first, *words[2:]]) if first else seen(words[1:])
    if options.has("IF", *_TAR_RUNS):
        return "runs a program"
    return _UNKNOWN if options.unknown else None


def _curl(words: _Words) -> str | None:
    options = seen(words[1:])
    if options.has("KT", "config", "upload-file"):
        return "sends a file, or reads its options from one"
    if (
        options.has("OJ", "remote-name", "output-dir", "dump-header", "cookie-jar", "trace")
        or options.unknown
    ):
        return "writes a file"
    outputs = [after for word, after in pairwise(words) if _OUTPUT.fullmatch(word.text)]
    writes = options.has("o", "output") and not (
        outputs and all(w.text in ("/dev/null", "-") for w in outputs)
    )
    return "writes a file" if writes else None


def _operands(most: int, why: str) -> Callable[[_Words], str | None]:
    def check(words: _Words) -> str | None:
        given = [w for w in words[1:] if not w.lead.startswith("-") or w.text == "-"]
        return why if len(given) > most or any(w.splits for w in given) else None

    return check


def _variables(words: _Words) -> str | None:
    for word in words[1:]:
        name = word.lead.partition("=")[0]
        if sensitive(name):
            return f"sets {name}, which changes what other commands do"
    return None


def _printf(words: _Words) -> str | None:
    return _variables(words[1:3]) if len(words) > 2 and words[1].text == "-v" else None


def _kill(words: _Words) -> str | None:
    return "ends every process" if any(w.literal and w.text in ("-1", "0") for w in words[2:]) else None


_CHECKS: dict[str, Callable[[_Words], str | None]] = {
    "rm": _rm,
    "git": git,
    "find": _find,
    "sed": sed,
    "kill": _kill,
    "printf": _printf,
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), awk),
    **dict.fromkeys(("chmod", "chown", "chgrp"), _recursive),
    **dict.fromkeys(
        names("export declare typeset local readonly unset read mapfile readarray getopts"), _variables
    ),
    "rg": _with_options("z", ("pre", "hostname-bin", "search-zip"), "runs a program on every file"),
    "tar": _tar,
    "rsync": _with_options("e", ("rsh", "rsync-path", "delete"), "runs a program, or deletes"),
    "sort": _with_options("o", ("output", "compress-program"), "writes a file, or runs a program"),
    "base64": _with_options("o", ("output",), "writes a file"),
    "curl": _curl,
    "wget": _with_options("Oei", ("output-document", "execute", "use-askpass", "post-file"), "writes a file"),
    "split": _with_options("", ("filter",), "runs a program"),
    "zip": _with_options("TU", ("unzip-command",), "runs a program"),
    "tree": _with_options("oR", ("output",), "writes a file"),
    "scp": _with_options("SoF", (), "may run a program here"),
    "uniq": _operands(1, "writes a file"),
    "xxd": _operands(1, "writes a file"),
    "ssh": _with_options("oFEJ", (), "may run a program here"),
    **dict.fromkeys(names("vi vim nvim view ex ed emacs less more man"), editor),
    **BUILDS,
    **dict.fromkeys(("nc", "ncat", "netcat"), _with_options("ec", ("exec", "sh-exec"), "runs a program")),
    "truncate": _with_options("s", ("size", "reference"), "cuts files"),
}
