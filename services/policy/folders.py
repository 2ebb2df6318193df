"""folders: where a shell line works, and what its redirections write."""

import posixpath
from dataclasses import dataclass

from interlock.services.shell.commands import program_of
from interlock.services.shell.model import ShellCommand, ShellLine, Word
from interlock.state.calls import CallView
from interlock.state.tooling import PathRefused, Workspace

_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_MOVES = frozenset({"cd", "pushd", "popd"})
_FOLDER_ARGS = ("dir_path", "directory", "cwd")


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the commands of a line may run. A rule counts for the workspace's own folder."""

    bases: tuple[str, ...]
    """Each folder that may be current, as the workspace reads paths; empty: not known, or outside of it."""
    elsewhere: str | None = None
    """What takes the line to another folder, as a clause; null: nothing does."""


def folders_of(call: CallView, line: ShellLine, workspace: Workspace) -> Folders:
    """Of the folder that the call names, and of one plain `cd`."""
    start = next((v for k in _FOLDER_ARGS if isinstance(v := call.args.get(k), str)), ".")
    bases, clauses = [start], [] if _is_root(start, workspace) else [f"runs in {start!r}"]
    moves = [c for c in line.commands if c.words and program_of(c.words[0]) in _MOVES]
    for command in moves:
        target = _target(command)
        clauses += [f"changes its folder ({command.text})"]
        if target is None or len(moves) > 1:
            return Folders((), clauses[0])
        bases.append(posixpath.join(start, target))
        if _is_root(bases[-1], workspace):
            clauses.pop()
    inside = all(_is_inside(base, workspace) for base in bases)
    return Folders(tuple(bases) if inside else (), next(iter(clauses), None))


def _target(command: ShellCommand) -> str | None:
    """Of `cd FOLDER`; null: where it leads isn't plain."""
    words = command.words
    if len(words) != 2 or words[0].text != "cd" or not words[1].literal:
        return None
    return None if words[1].text == "" or words[1].text.startswith("-") else words[1].text


def _is_inside(folder: str, workspace: Workspace) -> bool:
    try:
        workspace.readable(folder)
    except PathRefused:
        return False
    return True


def _is_root(folder: str, workspace: Workspace) -> bool:
    try:
        return folder == "." or workspace.readable(folder) == workspace.root
    except PathRefused:
        return False


def protected_target(line: ShellLine, folders: Folders, workspace: Workspace) -> str | None:
    """Which redirection changes what the program goes by, as a clause; null: none does."""
    for target in (r.target for r in line.redirects if r.kind == "write" and r.target is not None):
        for base in folders.bases or (".",):
            found = workspace.protected(posixpath.join(base, target.text))
            if found is not None:
                return f"writes to {target.text!r} ({found.what})"
    return None


def escape(line: ShellLine, folders: Folders, workspace: Workspace) -> str | None:
    """Which redirection writes where tools may not, or opens a connection, as a clause; null: none does."""
    targets = [(r.kind, r.target) for r in line.redirects if r.target is not None]
    net = next((t.text for _, t in targets if t.lead.startswith(_NETWORK)), None)
    if net is not None:
        return f"opens a network connection ({net})"
    problems = (_problem(t, folders, workspace) for kind, t in targets if kind == "write")
    return next((p for p in problems if p), None)


def _problem(target: Word, folders: Folders, workspace: Workspace) -> str | None:
    if not target.literal:
        return f"writes to a file that is only known when it runs ({target.text})"
    if target.text in _NOWHERE:
        return None
    if len(folders.bases) != 1 and not posixpath.isabs(target.text):
        return f"changes its folder before it writes to {target.text!r}"
    try:
        workspace.writable(posixpath.join(*folders.bases, target.text))
    except PathRefused as refused:
        return f"writes to {target.text!r}: {str(refused).rstrip('.')}"
    return None
