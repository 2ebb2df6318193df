"""danger: forms that ask even where a rule allows the command: they write, delete, publish or run other programs.

A rule allows what it names: options that make a command do something else than its kind are listed here.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock.services.shell.model import Word, names

_Words = Sequence[Word]
_UNKNOWN = "has arguments that are only known when it runs"
INDIFFERENT = names(
    "echo printf ls cat head tail wc grep egrep fgrep cut tr nl tac rev stat file basename dirname realpath readlink"
    " du df pwd cd which type mkdir touch cp mv seq sleep diff cmp comm paste expand fold"
)
"""None of their options writes elsewhere or runs anything: an argument that isn't known changes nothing of that."""
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
    **dict.fromkeys(("sudo", "doas", "su", "runuser"), "runs with another user's rights"),
    "ssh": "runs on another machine",
}
_RUNS = "may run another program"
_LOSES = "throws work away"
_WRITES = "writes a file"
_ELSEWHERE = "may run something else than the project's own"


@dataclass(frozen=True, slots=True)
class _Seen:
    """What options a command may have: letters of short clusters and long names, before `--`."""

    letters: frozenset[str]
    longs: tuple[str, ...]

    def long(self, *names: str) -> bool:
        """One of these is given; GNU programs accept any unambiguous beginning."""
        return any(given and name.startswith(given) for given in self.longs for name in names)


def _seen(words: _Words) -> _Seen:
    letters: set[str] = set()
    longs: list[str] = []
    for word in words:
        if word.literal and word.text == "--":
            break
        if word.lead.startswith("--"):
            longs.append(word.lead[2:].partition("=")[0])
        elif word.lead.startswith("-"):
            letters.update(word.lead[1:])
    return _Seen(frozenset(letters), tuple(longs))


@dataclass(frozen=True, slots=True)
class _Form:
    """Options by letter and long name, and plain words, that make a command dangerous."""

    why: str
    letters: str = ""
    longs: str = ""
    words: str = ""
    whole: bool = False
    """Long names are met as a whole only, by one dash or two; else by any beginning, as GNU programs do."""

    def met(self, words: _Words) -> bool:
        options = _seen(words)
        longs = self.longs.split()
        given = {w.lead.lstrip("-").partition("=")[0] for w in words if w.lead.startswith("-")}
        named = not given.isdisjoint(longs) if self.whole else options.long(*longs)
        listed = self.words.split()
        return named or not options.letters.isdisjoint(self.letters) or any(w.text in listed for w in words)


_PUBLISHES = _Form(
    "acts outside of this machine or project", words="publish unpublish yank push upload login"
)
_FORMS: dict[str, tuple[_Form, ...]] = {
    "rm": (
        _Form("deletes recursively", "rR", "recursive no-preserve-root"),
        _Form("deletes without asking", "f", "force"),
    ),
    **dict.fromkeys(("chmod", "chown", "chgrp"), (_Form("changes rights recursively", "R", "recursive"),)),
    "find": (
        _Form(
            "acts on every file that it finds",
            words="-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
        ),
    ),
    "rg": (_Form(_RUNS, "z", "pre hostname-bin search-zip"),),
    "tar": (_Form(_RUNS, "IF", "to-command checkpoint-action use-compress-program rsh-command info-script"),),
    "rsync": (_Form("runs a program, or deletes", "e", "rsh rsync-path delete"),),
    "sort": (_Form("writes a file, or runs a program", "oT", "output compress-program temporary-directory"),),
    "base64": (_Form(_WRITES, "o", "output"),),
    "curl": (
        _Form("sends a file, or reads its options from one", "KT", "config upload-file"),
        _Form(_WRITES, "oOJ", "output remote-name output-dir dump-header cookie-jar trace"),
    ),
    "wget": (_Form(_WRITES, "Oei", "output-document execute use-askpass post-file"),),
    "split": (_Form(_RUNS, longs="filter"),),
    "zip": (_Form(_RUNS, "TU", "unzip-command"),),
    "tree": (_Form(_WRITES, "oR", "output"),),
    "scp": (_Form("may run a program here", "SoF"),),
    **dict.fromkeys(("nc", "ncat", "netcat"), (_Form(_RUNS, "ec", "exec sh-exec"),)),
    "truncate": (_Form("cuts files", "s", "size reference"),),
    **dict.fromkeys(
        names("vi vim nvim view ex ed emacs less more man"),
        (_Form("runs commands of its own", "cSsoOuPHk", "cmd eval pager"),),
    ),
    **dict.fromkeys(
        ("npm", "pnpm", "yarn", "npx"),
        (
            _Form(
                _ELSEWHERE,
                "Cg",
                "script-shell node-options userconfig globalconfig prefix git cwd shell global dir location",
                whole=True,
            ),
            _PUBLISHES,
        ),
    ),
    **dict.fromkeys(
        ("pytest", "py.test"),
        (
            _Form(_ELSEWHERE, "cop", "rootdir config-file override-ini pdbcls confcutdir", whole=True),
            _Form("deletes the folder of --basetemp", longs="basetemp", whole=True),
            _Form("acts outside of this machine or project", longs="pastebin", whole=True),
        ),
    ),
    "cargo": (_Form(_ELSEWHERE, "CZ", "config manifest-path", whole=True), _PUBLISHES),
    "go": (
        _Form(
            _ELSEWHERE,
            longs="exec toolexec vettool modfile overlay ldflags gcflags asmflags gccgoflags C o",
            whole=True,
        ),
    ),
    **dict.fromkeys(
        ("make", "gmake"),
        (_Form(_ELSEWHERE, "fICE", "file makefile eval directory include-dir environment-overrides"),),
    ),
    **dict.fromkeys(names("poetry uv twine docker gem"), (_PUBLISHES,)),
    "kubectl": (_Form("acts outside of this machine or project", words="delete apply replace drain"),),
    "terraform": (_Form("acts outside of this machine or project", words="apply destroy"),),
    "kill": (_Form("ends every process", words="-1 0"),),
}
_DEVICE = re.compile(r"/dev/(?!null$|stdout$|stderr$|stdin$|tty$|zero$|urandom$|random$|fd/)")


def danger_of(program: str, words: _Words) -> str | None:
    """A clause that says what is dangerous; None: nothing that is known here."""
    if program in _ALWAYS or program.startswith("mkfs"):
        return _ALWAYS.get(program, "writes over data")
    arguments = words[1:]
    if program in ("python", "python3") and [w.text for w in words[1:3]] == ["-m", "pytest"]:
        program, arguments = "pytest", words[3:]
    form = next((f for f in _FORMS.get(program, ()) if f.met(arguments)), None)
    if form is not None:
        return form.why
    check = _CHECKS.get(program)
    reason = check(words) if check else None
    if reason is None and program in ("tee", "cp", "mv", "cat", "install", "ln"):
        reason = "touches a device" if any(_DEVICE.match(w.lead) for w in words[1:]) else None
    return reason or (None if program in INDIFFERENT else _unknown(arguments))


def _unknown(arguments: _Words) -> str | None:
    """An argument that isn't known may be an option, or a word that makes it do something else.

    A path below a folder that is named can be neither.
    """
    unknown = (w for w in arguments if not w.literal)
    return _UNKNOWN if any(w.may_be_option or "/" not in w.lead for w in unknown) else None


_SED_SAFE = re.compile(
    r"(?:(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/[gpiI0-9]*"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s\|(?:[^|\\\n]|\\.)*\|(?:[^|\\\n]|\\.)*\|[gpiI0-9]*"
    r"|/(?:[^/\\\n]|\\.)*/(?:,/(?:[^/\\\n]|\\.)*/)?[pd])"
)
_SED_SCRIPT = re.compile(rf"{_SED_SAFE.pattern}(?:\s*;\s*{_SED_SAFE.pattern})*")
_SED_OPTION = re.compile(r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|posix|null-data|sandbox)")
_SED_UNSEEN = "runs a script that may write files or run commands"


def _sed(words: _Words) -> str | None:
    scripts: list[Word] = []
    operands: list[Word] = []
    given = iter(words[1:])
    for word in given:
        if not word.lead.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.text == "-e":
            scripts.extend([w for w in (next(given, None),) if w])
        elif _seen([word]).letters & {"i"} or _seen([word]).long("in-place"):
            return "edits files in place"
        elif not (word.literal and _SED_OPTION.fullmatch(word.text)):
            return _SED_UNSEEN
    safe = all(w.literal and _SED_SCRIPT.fullmatch(w.text) for w in scripts or operands[:1])
    return None if safe else _SED_UNSEEN


_AWK_ACTS = re.compile(r"system|getline|[|>@]|fflush|close")


def _awk(words: _Words) -> str | None:
    """Only `-F` and a program that is seen."""
    options = [w for w in words[1:] if w.lead.startswith("-")]
    acts = any(not w.literal or _AWK_ACTS.search(w.text) for w in words[1:])
    plain = all(w.text.startswith("-F") for w in options)
    return None if plain and not acts else "runs a program that may write files or run commands"


def _operands(most: int) -> Callable[[_Words], str | None]:
    def check(words: _Words) -> str | None:
        given = [w for w in words[1:] if not w.lead.startswith("-") or w.text == "-"]
        return _WRITES if len(given) > most or any(w.splits for w in given) else None

    return check


_SETS = re.compile(r"([A-Za-z_.][\w.-]*)[:+?!]*=(.*)", re.DOTALL)
_MAKE_VALUE = re.compile(r"(?:-[\w./:@%,+= -]*|[\w./:@%,+=-]*)", re.ASCII)
"""One plain word, or options."""
_MAKE_RUNS = names("SHELL .SHELLFLAGS MAKEFLAGS MAKEFILES MAKE CC CXX CPP LD AR")


def _make(words: _Words) -> str | None:
    for word in words[1:]:
        given = _SETS.fullmatch(word.text)
        if given and (given[1] in _MAKE_RUNS or not _MAKE_VALUE.fullmatch(given[2])):
            return f"{_ELSEWHERE} (sets {given[1][:40]})"
    return None


def _tar(words: _Words) -> str | None:
    """The first word may be letters without a dash."""
    return _RUNS if len(words) > 1 and set(words[1].lead) & {"I", "F"} and words[1].lead.isalpha() else None


def _editor(words: _Words) -> str | None:
    return "runs commands of its own" if any(w.lead.startswith("+") for w in words[1:]) else None


_GIT_ALWAYS = {
    **dict.fromkeys(
        names(
            "filter-branch filter-repo bisect difftool mergetool config submodule hook instaweb gui credential daemon"
            " upload-pack receive-pack http-backend send-email remote-ext remote-fd"
        ),
        _RUNS,
    ),
    **dict.fromkeys(names("clean restore gc prune update-ref replace"), _LOSES),
}
_GIT_LOSES = {
    "push": _Form(_LOSES, "fd", "force delete mirror prune force-with-lease force-if-includes"),
    "reset": _Form(_LOSES, longs="hard merge keep"),
    "checkout": _Form(_LOSES, "fB", "force", words="-- ."),
    "switch": _Form(_LOSES, "fC", "force discard-changes force-create"),
    "branch": _Form(_LOSES, "DdMmfcC", "delete move force copy edit-description"),
    "tag": _Form(_LOSES, "df", "delete force"),
    "rm": _Form(_LOSES, "rf", "force"),
    "mv": _Form(_LOSES, "f", "force"),
    "worktree": _Form(_LOSES, "f", "force", words="remove prune"),
    "stash": _Form(_LOSES, words="drop clear"),
    "reflog": _Form(_LOSES, words="delete expire"),
    "remote": _Form(_LOSES, words="remove rm prune set-url"),
    "rebase": _Form(_RUNS, "xi"),
    "grep": _Form(_RUNS, "O"),
    "fetch": _Form(_RUNS, "u"),
    "clone": _Form(_RUNS, "uc"),
}
_GIT_RUNS = _Form(
    _RUNS,
    longs="output ext-diff textconv exec open-files-in-pager upload-pack receive-pack template strategy no-index",
)
_GIT_GLOBAL = {
    **dict.fromkeys(("-c", "--config-env", "--exec-path", "-p", "--paginate"), _RUNS),
    **dict.fromkeys(("-C", "--git-dir", "--work-tree", "--namespace", "--bare"), "works in another folder"),
}


def _git(words: _Words) -> str | None:
    at = 1
    while at < len(words) and words[at].lead.startswith("-"):
        text = words[at].text
        name = text[:2] if text.startswith(("-c", "-C")) else text.partition("=")[0]
        if name in _GIT_GLOBAL:
            return f"{_GIT_GLOBAL[name]} ({name})"
        at += 1
    if at >= len(words):
        return None
    command, rest = words[at], words[at + 1 :]
    if not command.literal:
        return "does what is only known when it runs"
    if command.text in _GIT_ALWAYS:
        return _GIT_ALWAYS[command.text]
    urls = (w.lead for w in rest if command.text != "commit")
    if _GIT_RUNS.met(rest) or any("::" in lead.partition("/")[0] for lead in urls):
        return _RUNS
    if command.text == "push" and any(w.text.startswith(("+", ":")) for w in rest):
        return _LOSES
    form = _GIT_LOSES.get(command.text)
    return form.why if form is not None and form.met(rest) else None


_CHECKS: dict[str, Callable[[_Words], str | None]] = {
    "git": _git,
    "sed": _sed,
    "tar": _tar,
    "uniq": _operands(1),
    "xxd": _operands(1),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _awk),
    **dict.fromkeys(("make", "gmake"), _make),
    **dict.fromkeys(names("vi vim nvim view ex ed emacs less more man"), _editor),
}
