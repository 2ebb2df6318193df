"""narrowing: what a person may answer, and the rule that an always-choice stands for."""

from interlock.services.policy.prefixes import leading_words
from interlock.services.policy.session import target
from interlock.services.shell.model import ShellLine
from interlock.state.calls import ApprovalMode, CallView, Choice, Risk, SessionRule
from interlock.state.tooling import Workspace

LOOSER: dict[str, tuple[ApprovalMode, ...]] = {
    "plan": ("plan", "default", "auto_edit", "yolo"),
    "default": ("default", "auto_edit", "yolo"),
    "auto_edit": ("auto_edit", "yolo"),
    "yolo": ("yolo",),
}
"""A mode and those that allow more: a choice made in a loose mode doesn't hold in a stricter one."""


def shell_rule(call: CallView, line: ShellLine, mode: str) -> SessionRule | None:
    """The leading words of every command of the line; null when one can't be narrowed."""
    if line.opaque is not None or not line.effective:
        return None
    words = [leading_words(c) for c in line.effective]
    prefixes = tuple(dict.fromkeys(w for w in words if w is not None))
    if None in words:
        return None
    return SessionRule(
        tool=call.name, command_prefixes=prefixes, redirection=bool(line.redirects), modes=_modes(mode)
    )


def target_rule(call: CallView, risk: Risk, workspace: Workspace, mode: str) -> SessionRule | None:
    """The tool on this one file, folder or host."""
    about = target(call, risk, workspace)
    return None if about is None else SessionRule(tool=call.name, path=about, modes=_modes(mode))


def server_rule(call: CallView, choice: Choice, server: str, mode: str) -> SessionRule:
    """One MCP tool, or for `proceed_always_server` all tools of its server."""
    whole = choice == "proceed_always_server"
    return SessionRule(tool=call.name, server=server if whole else None, modes=_modes(mode))


def _modes(mode: str) -> tuple[ApprovalMode, ...]:
    return LOOSER[mode]
