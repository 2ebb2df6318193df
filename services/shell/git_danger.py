"""git_danger: forms of git that run programs, throw work away or change what others see."""

from collections.abc import Sequence

from interlock.services.shell.model import Word
from interlock.services.shell.names import names
from interlock.services.shell.options import Seen, seen

_RUNS = "may run another program"
_LOSES = "throws work away"
_GLOBAL_VALUES = names("-C --git-dir --work-tree --namespace --super-prefix --attr-source")
_SHOWS = names(
    "status log diff show branch grep blame shortlog reflog format-patch stash range-diff diff-tree"
)
_ALWAYS = {
    **dict.fromkeys(
        names(
            "filter-branch filter-repo bisect difftool mergetool config submodule hook instaweb gui credential"
        ),
        _RUNS,
    ),
    **dict.fromkeys(names("clean restore gc prune update-ref replace"), _LOSES),
    **dict.fromkeys(
        names("daemon upload-pack receive-pack http-backend send-email remote-ext remote-fd"), _RUNS
    ),
}
_LOSING = {
    "push": ("fd", ("force", "delete", "mirror", "prune", "force-with-lease", "force-if-includes")),
    "reset": ("", ("hard", "merge", "keep")),
    "checkout": ("fB", ("force",)),
    "switch": ("fC", ("force", "discard-changes", "force-create")),
    "branch": ("DdMmfcC", ("delete", "move", "force", "copy", "edit-description")),
    "tag": ("df", ("delete", "force")),
    "worktree": ("f", ("force",)),
    "stash": ("", ()),
    "rm": ("rf", ("force",)),
    "mv": ("f", ("force",)),
}
_RUNNING = names(
    "output ext-diff textconv exec open-files-in-pager upload-pack receive-pack template strategy"
)
_RUNNING_LETTERS = {"rebase": "xi", "grep": "O", "fetch": "u", "clone": "uc", "pull": "", "ls-remote": ""}


def git(words: Sequence[Word]) -> str | None:
    place = 1
    while place < len(words) and words[place].lead.startswith("-"):
        text = words[place].text
        if text.startswith(("-c", "--config-env", "--exec-path=")) or text in ("-p", "--paginate"):
            return f"{_RUNS} ({text.partition('=')[0]})"
        place += 2 if text in _GLOBAL_VALUES else 1
    if place >= len(words):
        return None
    command, rest = words[place], words[place + 1 :]
    if not command.literal or command.splits:
        return "does what is only known when it runs"
    if command.text in _ALWAYS:
        return _ALWAYS[command.text]
    return _by_command(command.text, rest, seen(rest))


def _by_command(command: str, rest: Sequence[Word], options: Seen) -> str | None:
    if options.long(*_RUNNING) or options.has(_RUNNING_LETTERS.get(command, "")):
        return _RUNS
    if (
        any(w.lead.startswith("ext::") or "::" in w.lead.partition("/")[0] for w in rest)
        and command != "commit"
    ):
        return _RUNS
    letters, longs = _LOSING.get(command, ("", ()))
    if options.has(letters, *longs):
        return _LOSES
    if _loses(command, rest):
        return _LOSES
    watched = command in _LOSING or command in _SHOWS or command in _RUNNING_LETTERS
    return "has arguments that are only known when it runs" if watched and options.unknown else None


def _loses(command: str, rest: Sequence[Word]) -> bool:
    texts = [w.text for w in rest]
    if command == "push":
        return any(t.startswith(("+", ":")) for t in texts)
    if command == "checkout":
        return "--" in texts or "." in texts
    if command in ("stash", "reflog", "remote", "worktree"):
        return bool(
            {"drop", "clear", "delete", "expire", "remove", "rm", "prune", "set-url"} & set(texts[:1])
        )
    return False
