"""danger: forms that ask even where a rule allows the command: they write, delete, publish or run other programs.

A rule allows the command it names; listed here are options that make it do something of another kind.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from interlock.services.shell.model import Word, to_name_set

_Words = Sequence[Word]
INDIFFERENT = to_name_set(
    "echo printf ls cat head tail wc grep egrep fgrep cut tr nl tac rev stat file basename dirname realpath readlink"
    " du df pwd cd which type mkdir touch cp mv seq sleep diff cmp comm paste expand fold"
)
"""None of their options writes elsewhere or runs anything, so unknown arguments are harmless."""
UNKNOWN = "has arguments that are only known when it runs"
_SYSTEM = "changes the system"
_OUTSIDE = "acts outside of this machine or project"
_RUNS = "may run another program"
_OWN = "runs commands of its own"
_LOSES = "throws work away"
_WRITES = "writes a file"
_ELSEWHERE = "may run something else than the project's own"

_ALWAYS = (
    ("dd shred wipefs fdisk sfdisk parted mkswap blkdiscard fallocate", "writes over data"),
    ("shutdown reboot halt poweroff systemctl service mount umount iptables nft useradd userdel", _SYSTEM),
    ("usermod passwd chsh visudo crontab insmod rmmod modprobe sysctl swapoff killall pkill setcap", _SYSTEM),
    ("sudo doas su runuser", "runs with another user's rights"),
    ("ssh", "runs on another machine"),
)
_GIT_ALWAYS = (
    ("filter-branch filter-repo bisect difftool mergetool config submodule hook instaweb gui", _RUNS),
    ("credential daemon upload-pack receive-pack http-backend send-email remote-ext remote-fd", _RUNS),
    ("clean restore gc prune update-ref replace", _LOSES),
)
_FORMS = (
    ("rm", "deletes recursively", "-r -R --recursive --no-preserve-root"),
    ("rm", "deletes without asking", "-f --force"),
    ("chmod chown chgrp", "changes rights recursively", "-R --recursive"),
    (
        "find",
        "acts on every file that it finds",
        "-exec -execdir -ok -okdir -delete -fprint -fprint0 -fprintf -fls -files0-from",
    ),
    ("rg", _RUNS, "-z --pre --hostname-bin --search-zip"),
    (
        "tar",
        _RUNS,
        "-I -F -T --to-command --checkpoint-action --use-compress-program --rsh-command --rmt-command --info-script"
        " --new-volume-script --files-from",
    ),
    (
        "rsync",
        "runs a program, or deletes",
        "-e --rsh --rsync-path --delete --remove-source-files --daemon --config",
    ),
    ("sort", "writes a file, or runs a program", "-o -T --output --compress-program --temporary-directory"),
    ("base64", _WRITES, "-o --output"),
    ("curl", "sends a file, or reads its options from one", "-K -T --config --upload-file"),
    (
        "curl",
        _WRITES,
        "-o -O -J -D -c --output --remote-name --output-dir --dump-header --cookie-jar --trace --trace-ascii --libcurl"
        " --stderr --etag-save --hsts --alt-svc",
    ),
    (
        "wget",
        _WRITES,
        "-O -e -i --output-document --execute --use-askpass --post-file --body-file --input-file --config",
    ),
    ("split", _RUNS, "--filter"),
    ("zip", _RUNS, "-T -U --unzip-command"),
    ("tree", _WRITES, "-o -R --output"),
    ("scp", "may run a program here", "-S -o -F"),
    ("nc ncat netcat", _RUNS, "-e -c --exec --sh-exec"),
    ("truncate", "cuts files", "-s --size --reference"),
    (
        "vi vim nvim view ex ed emacs less more man",
        _OWN,
        "-c -S -s -o -u -O -P -H -k --cmd --eval --pager --log-file --LOG-FILE --lesskey-file --lesskey-src +…",
    ),
    (
        "npm pnpm yarn npx",
        _ELSEWHERE,
        "-C -L -g --script-shell --node-options --userconfig --globalconfig --prefix --git --cwd --shell --global --dir"
        " --location",
    ),
    (
        "npm pnpm yarn npx cargo poetry uv twine docker gem",
        _OUTSIDE,
        "publish unpublish yank push upload login",
    ),
    # npm takes the beginning of a command's name for the whole.
    ("npm", _OUTSIDE, "pu pub publ publi publis unp unpu unpub unpubl unpubli unpublis"),
    (
        "pytest py.test",
        _ELSEWHERE,
        "-c -o -p --rootdir --config-file --override-ini --pdbcls --confcutdir @…",
    ),
    (
        "ruff mypy dmypy pylint black tsc dotnet msbuild csc vbc fsc javac javadoc java jar jlink jpackage kotlinc"
        " scalac scala groovyc gcc g++ cc c++ cpp gfortran clang clang++ clang-cl clang-format cl link lld ld ar as nm"
        " rustc rustdoc swiftc swift ghc emcc em++ nvcc icx icpx cppcheck doxygen ninja meson cmake protoc",
        "reads further arguments from a file",
        "@…",
    ),
    ("gcc g++ cc c++ clang clang++ gfortran ld", "reads further arguments from a file", "-Wl,@…"),
    ("clang clang++ clang-cl", _ELSEWHERE, "--config"),
    ("zip 7z 7za 7zz rar", "reads further arguments from a file", "-@ @…"),
    ("pytest py.test", "deletes the folder of --basetemp", "--basetemp"),
    ("pytest py.test", _OUTSIDE, "--pastebin"),
    ("cargo", _ELSEWHERE, "-C -Z --config --manifest-path"),
    (
        "go",
        _ELSEWHERE,
        "--exec --toolexec --vettool --modfile --overlay --ldflags --gcflags --asmflags --gccgoflags --C --o",
    ),
    (
        "make gmake",
        _ELSEWHERE,
        "-f -I -C -E --file --makefile --eval --directory --include-dir --environment-overrides",
    ),
    ("just", _ELSEWHERE, "-f -d -c --justfile --working-directory --shell --chooser --command"),
    (
        "rake",
        _ELSEWHERE,
        "-f -R -r -e -E -p --rakefile --require --execute --execute-print --execute-continue",
    ),
    ("invoke inv", _ELSEWHERE, "-c -r -f -F --collection --search-root --config"),
    ("task go-task", _ELSEWHERE, "-t -d --taskfile --dir"),
    ("kubectl", _OUTSIDE, "delete apply replace drain create edit patch scale exec cp taint cordon"),
    ("terraform tofu", _OUTSIDE, "apply destroy import taint force-unlock"),
    ("gh", _OUTSIDE, "delete merge DELETE"),
    ("docker podman", _LOSES, "prune"),
    ("kill", "ends every process", "-1 0"),
)
_GIT_FORMS = (
    (
        "*",
        _RUNS,
        "--output --ext-diff --textconv --exec --open-files-in-pager --upload-pack --receive-pack --template"
        " --strategy --no-index",
    ),
    ("push", _LOSES, "-f -d --force --delete --mirror --prune --force-with-lease --force-if-includes +… :…"),
    ("reset", _LOSES, "--hard --merge --keep"),
    ("checkout", _LOSES, "-f -B --force -- ."),
    ("switch", _LOSES, "-f -C --force --discard-changes --force-create"),
    ("branch", _LOSES, "-D -d -M -m -f -c -C --delete --move --force --copy --edit-description"),
    ("tag", _LOSES, "-d -f --delete --force"),
    ("rm", _LOSES, "-r -f --force"),
    ("mv", _LOSES, "-f --force"),
    ("worktree", _LOSES, "-f --force remove prune"),
    ("stash", _LOSES, "drop clear"),
    ("reflog", _LOSES, "delete expire"),
    ("remote", _LOSES, "remove rm prune set-url"),
    ("rebase", _RUNS, "-x -i"),
    ("grep", _RUNS, "-O"),
    ("fetch", _RUNS, "-u"),
    *((name, _RUNS, "--show-signature") for name in ("log", "show", "reflog", "shortlog")),
    ("clone", _RUNS, "-u -c"),
)
_GIT_GLOBAL = (
    ("-c --config-env --exec-path -p --paginate", _RUNS),
    ("-C --git-dir --work-tree --namespace --bare", "works in another folder"),
)
_WHOLE = to_name_set("pytest py.test cargo go")
"""Their long options are matched only as a whole."""
_NODE = to_name_set("npm pnpm yarn npx")
"""To these, one dash is as good as two, and any prefix as the whole name: `-script-sh=evil`."""


@dataclass(frozen=True, slots=True)
class DangerousForm:
    """Options and words, any of which makes a command do something of another kind."""

    why: str
    letters: frozenset[str]
    longs: tuple[str, ...]
    words: frozenset[str]
    leads: tuple[str, ...]

    def is_matched_by(
        self, words: Sequence[Word], *, exact_long_options: bool = False, single_dash: bool = False
    ) -> bool:
        """Return whether the words have one of its options or words. `exact_long_options`: long names match only
        exactly, with one or two dashes; else by any prefix, as in GNU programs. `single_dash`: long names may stand
        behind one dash.

        `single_dash`: long names may stand behind one dash.
        """
        letters: set[str] = set()
        longs: list[str] = []
        for word in words:
            if word.literal and word.text == "--":
                break
            name = word.known_start.lstrip("-").partition("=")[0]
            if word.known_start.startswith("--") or (
                single_dash and len(name) > 1 and word.known_start.startswith("-")
            ):
                longs.append(name)
            if word.known_start.startswith("-") and not word.known_start.startswith("--"):
                letters.update(word.known_start[1:])
        if exact_long_options:
            names = {
                w.known_start.lstrip("-").partition("=")[0] for w in words if w.known_start.startswith("-")
            }
            named = not names.isdisjoint(self.longs)
        else:
            named = any(option and name.startswith(option) for option in longs for name in self.longs)
        has_word = any(w.text in self.words or (self.leads and w.text.startswith(self.leads)) for w in words)
        return named or has_word or not letters.isdisjoint(self.letters)


def parse_dangerous_form(why: str, text: str) -> DangerousForm:
    """Return a form: `-x` is a letter, `--name` a long name, `+…` a prefix of a word, the rest whole words."""
    tokens = text.split()
    short = [t for t in tokens if len(t) == 2 and t[0] == "-" and t[1].isalpha()]
    longs = [t for t in tokens if t.startswith("--") and len(t) > 2]
    leads = [t for t in tokens if t.endswith("…")]
    words = {*tokens} - {*short, *longs, *leads}
    letters, options = frozenset(t[1] for t in short), tuple(t[2:] for t in longs)
    return DangerousForm(why, letters, options, frozenset(words), tuple(t[:-1] for t in leads))


def _reasons_by_program(rows: Sequence[tuple[str, str]]) -> dict[str, str]:
    return {name: why for programs, why in rows for name in programs.split()}


def _forms_by_program(rows: Sequence[tuple[str, str, str]]) -> dict[str, list[DangerousForm]]:
    table: dict[str, list[DangerousForm]] = {}
    for programs, why, options in rows:
        made = parse_dangerous_form(why, options)
        for name in programs.split():
            table.setdefault(name, []).append(made)
    return table


_IS_ALWAYS, _HAS_FORMS = _reasons_by_program(_ALWAYS), _forms_by_program(_FORMS)
_GIT_IS_ALWAYS, _GIT_HAS_FORMS = _reasons_by_program(_GIT_ALWAYS), _forms_by_program(_GIT_FORMS)
_GIT_IS_GLOBAL = _reasons_by_program(_GIT_GLOBAL)
_DEVICE = re.compile(r"/dev/(?!null$|stdout$|stderr$|stdin$|tty$|zero$|urandom$|random$|fd/)")


def find_danger(program: str, words: _Words) -> str | None:
    """Return a clause saying what is dangerous, or None if nothing is known to be."""
    if program.startswith("mkfs"):
        return "writes over data"
    if program in _IS_ALWAYS:
        return _IS_ALWAYS[program]
    if program in ("python", "python3") and len(words) > 2 and words[1].text == "-m" and words[2].literal:
        return find_danger(words[2].text, words[2:])
    arguments = words[1:]
    for one in _HAS_FORMS.get(program, ()):
        if one.is_matched_by(arguments, exact_long_options=program in _WHOLE, single_dash=program in _NODE):
            return one.why
    if program in _CHECKS and (why := _CHECKS[program](words)):
        return why
    if program in ("tee", "cp", "mv", "cat", "install", "ln") and any(
        _DEVICE.match(w.known_start) for w in arguments
    ):
        return "touches a device"
    return None if program in INDIFFERENT else _unknown_argument_danger(arguments)


def _unknown_argument_danger(arguments: _Words) -> str | None:
    """Return a clause if an unknown argument may be an option or a word that changes what the command does, else
    None. A path below a named folder can be neither.

    A path below a named folder can be neither.
    """
    unknown = (w for w in arguments if not w.literal)
    return UNKNOWN if any(w.may_be_option or "/" not in w.known_start for w in unknown) else None


_SED_SAFE = (
    r"(?:(?:\d+|\$)?(?:,(?:\d+|\$))?[pdq=]"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s/(?:[^/\\\n]|\\.)*/(?:[^/\\\n]|\\.)*/[gpiI0-9]*"
    r"|(?:\d+|\$)?(?:,(?:\d+|\$))?s\|(?:[^|\\\n]|\\.)*\|(?:[^|\\\n]|\\.)*\|[gpiI0-9]*"
    r"|/(?:[^/\\\n]|\\.)*/(?:,/(?:[^/\\\n]|\\.)*/)?[pd])"
)
_SED_SCRIPT = re.compile(rf"{_SED_SAFE}(?:\s*;\s*{_SED_SAFE})*")
_SED_OPTION = re.compile(r"-[nErsuz]+|--(?:quiet|silent|regexp-extended|separate|posix|null-data|sandbox)")
_SED_IN_PLACE = parse_dangerous_form("edits files in place", "-i --in-place")
_UNSEEN = "runs a program that may write files or run commands"


def _find_sed_danger(words: _Words) -> str | None:
    scripts: list[Word] = []
    operands: list[Word] = []
    remaining = iter(words[1:])
    for word in remaining:
        if not word.known_start.startswith("-") or word.text == "-":
            operands.append(word)
        elif word.text == "-e":
            scripts += filter(None, [next(remaining, None)])
        elif _SED_IN_PLACE.is_matched_by([word]):
            return _SED_IN_PLACE.why
        elif not (word.literal and _SED_OPTION.fullmatch(word.text)):
            return _UNSEEN
    safe = all(w.literal and _SED_SCRIPT.fullmatch(w.text) for w in scripts or operands[:1])
    return None if safe else _UNSEEN


_AWK_ACTS = re.compile(r"system|getline|@|>(?!=)|(?<!\|)\|(?!\|)|fflush|close")
"""Redirections and pipes, not comparisons (`>=`) and alternatives (`||`)."""


def _find_awk_danger(words: _Words) -> str | None:
    """Return a clause unless it is only `-F`, `-v` and a literal program."""
    remaining = iter(words[1:])
    for word in remaining:
        if word.text in ("-F", "-v"):
            word = next(remaining, word)
        elif not word.text.startswith(("-F", "-v")) and (
            word.known_start.startswith("-") or _AWK_ACTS.search(word.text)
        ):
            return _UNSEEN
        if not word.literal:
            return _UNSEEN
    return None


def _second_operand_danger(words: _Words) -> str | None:
    """Return a clause if there is a second operand, which these write to, else None."""
    operands = [w for w in words[1:] if not w.known_start.startswith("-") or w.text == "-"]
    return _WRITES if len(operands) > 1 or any(w.may_split for w in operands) else None


_SETS = re.compile(r"([A-Za-z_.][\w.-]*)[:+?!]*=(.*)", re.DOTALL)
_MAKE_VALUE = re.compile(r"(?:-[\w./:@%,+= -]*|[\w./:@%,+=-]*)", re.ASCII)
"""One plain word, or options."""
_MAKE_RUNS = to_name_set("SHELL .SHELLFLAGS MAKEFLAGS MAKEFILES MAKE CC CXX CPP LD AR")


def _find_make_danger(words: _Words) -> str | None:
    for word in words[1:]:
        setting = _SETS.fullmatch(word.text)
        if setting and (setting[1] in _MAKE_RUNS or not _MAKE_VALUE.fullmatch(setting[2])):
            return f"{_ELSEWHERE} (sets {setting[1][:40]})"
    return None


def _find_tar_first_word_danger(words: _Words) -> str | None:
    """Return a clause if the first word, which may be letters without a dash, makes tar run a program, else None."""
    return (
        _RUNS
        if len(words) > 1 and set(words[1].known_start) & {"I", "F", "T"} and words[1].known_start.isalpha()
        else None
    )


_SIGNED = re.compile(r"--(?:format|pretty)=.*%[-+ ]?G", re.DOTALL)
"""A format with what gpg says of a signature; which program that is, git's settings say."""


def _find_git_danger(words: _Words) -> str | None:
    at = 1
    while at < len(words) and words[at].known_start.startswith("-"):
        text = words[at].text
        name = text[:2] if text.startswith(("-c", "-C")) else text.partition("=")[0]
        if name in _GIT_IS_GLOBAL:
            return f"{_GIT_IS_GLOBAL[name]} ({name})"
        at += 1
    if at >= len(words):
        return None
    command, rest = words[at], words[at + 1 :]
    if not command.literal:
        return "does what is only known when it runs"
    if command.text in _GIT_IS_ALWAYS:
        return _GIT_IS_ALWAYS[command.text]
    if command.text != "commit" and any("::" in w.known_start.partition("/")[0] for w in rest):
        return _RUNS  # a URL that names a helper
    if any(_SIGNED.match(w.known_start) for w in rest):
        return f"{_RUNS} (gpg)"
    met = (
        f.why for name in ("*", command.text) for f in _GIT_HAS_FORMS.get(name, ()) if f.is_matched_by(rest)
    )
    return next(met, None)


_CHECKS: dict[str, Callable[[_Words], str | None]] = {
    "git": _find_git_danger,
    "sed": _find_sed_danger,
    "tar": _find_tar_first_word_danger,
    **dict.fromkeys(("uniq", "xxd"), _second_operand_danger),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _find_awk_danger),
    **dict.fromkeys(("make", "gmake"), _find_make_danger),
}
