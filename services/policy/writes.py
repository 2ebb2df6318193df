"""writes: redirections of a shell line that leave what tools may write."""

import posixpath

from interlock.services.shell.model import ShellCommand, ShellLine, Word
from interlock.services.shell.options import seen
from interlock.services.shell.simple import program_of
from interlock.state.calls import CallView
from interlock.state.tooling import PathRefused, Workspace

_NOWHERE = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty"})
_NETWORK = ("/dev/tcp/", "/dev/udp/")
_MOVES = frozenset({"cd", "pushd", "popd"})
_MOVERS = frozenset({"env", "sudo", "doas", "git", "make", "find"})
_FOLDER_ARGS = ("dir_path", "directory", "cwd")


def protected_target(call: CallView, line: ShellLine, workspace: Workspace) -> str | None:
    """Which redirection changes what the program goes by, as a clause; null: none does."""
    folder = next((v for k in _FOLDER_ARGS if isinstance(v := call.args.get(k), str)), "")
    for redirect in line.redirects:
        if redirect.kind != "write" or redirect.target is None:
            continue
        found = workspace.protected(posixpath.join(folder, redirect.target.text))
        if found is not None:
            return f"writes to {redirect.target.text!r} ({found.what})"
    return None


def escape(call: CallView, line: ShellLine, workspace: Workspace) -> str | None:
    """Which redirection writes where tools may not, or opens a connection, as a clause; null: none does."""
    net = next(
        (r.target.text for r in line.redirects if r.target and r.target.lead.startswith(_NETWORK)), None
    )
    if net is not None:
        return f"opens a network connection ({net})"
    targets = [r.target for r in line.redirects if r.kind == "write" and r.target is not None]
    if not targets:
        return None
    moves = any(_moves(c) for c in line.commands)
    folder = next((v for k in _FOLDER_ARGS if isinstance(v := call.args.get(k), str)), "")
    problems = (_problem(t, folder, moves, workspace) for t in targets)
    return next((p for p in problems if p), None)


def _moves(command: ShellCommand) -> bool:
    """`env -C DIR bash -c '… > file'` writes there, too; so may options that aren't known."""
    if not command.words:
        return False
    program = program_of(command.words[0])
    given = seen(command.words[1:])
    return program in _MOVES or (
        program in _MOVERS and (given.has("CD", "chdir", "execdir") or given.unknown)
    )


def _problem(target: Word, folder: str, moves: bool, workspace: Workspace) -> str | None:
    if not target.literal:
        return f"writes to a file that is only known when it runs ({target.text})"
    if target.text in _NOWHERE:
        return None
    if moves and not posixpath.isabs(target.text):
        return f"changes its folder before it writes to {target.text!r}"
    try:
        workspace.writable(posixpath.join(folder, target.text))
    except PathRefused as refused:
        return f"writes to {target.text!r}: {str(refused).rstrip('.')}"
    return None
