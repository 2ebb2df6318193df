"""auto_approval: the task loop's auto-approval settings (Roo Code's names) as rules of the user."""

from collections.abc import Iterable, Iterator
from typing import Any, cast

from interlock.services.policy.rule import USER, Rule
from interlock.state.calls import ApprovalMode, Decision
from interlock.state.names import mcp_name
from interlock.state.settings import Settings

_PRIORITY = 300
"""As `tools.allowed`."""
_WRITING = ("write_to_file", "apply_diff", "insert_content", "generate_image")
_LONGEST = 90
_MODES: frozenset[ApprovalMode] = frozenset({"default", "auto_edit"})


def auto_approval_rules(settings: Settings) -> Iterator[Rule]:
    """They are about the task loop's own tools. Of commands the longest beginning decides, of two alike the denial."""
    task = settings.task
    if not task.auto_approval:
        return
    switches = (
        ("alwaysAllowWrite", task.allow_write, _WRITING),
        ("alwaysAllowBrowser", task.allow_browser, ("browser_action",)),
        ("alwaysAllowModeSwitch", task.allow_mode_switch, ("switch_mode",)),
        ("alwaysAllowSubtasks", task.allow_subtasks, ("new_task",)),
        ("alwaysAllowMcp", task.allow_mcp, (*_of_servers(settings),)),
    )
    yield from (_rule(name, tools, "allow") for name, on, tools in switches if on and tools)
    if task.allow_execute:
        yield from _commands("allowedCommands", task.allowed_commands, "allow", 0)
    yield from _commands("deniedCommands", task.denied_commands, "deny", 0.5)


def _rule(name: str, tools: tuple[str, ...], decision: Decision, prefix: str = "", more: float = 0) -> Rule:
    return Rule(
        source=f"settings task.{name}",
        tools=tools,
        decision=decision,
        tier=USER,
        priority=_PRIORITY + more,
        modes=_MODES if decision == "allow" else frozenset(),
        prefixes=((*prefix.split(),),) if prefix else (),
    )


def _commands(name: str, beginnings: Iterable[str], decision: Decision, more: float) -> Iterator[Rule]:
    for text in (beginning.strip() for beginning in beginnings):
        prefix, length = ("", 0) if text == "*" else (text, min(len(text), _LONGEST))
        if text:
            yield _rule(f"{name} {text!r}", ("execute_command",), decision, prefix, length + more)


def _of_servers(settings: Settings) -> Iterator[str]:
    for name, server in settings.mcp_servers.items():
        named = (server.model_extra or {}).get("alwaysAllow")
        tools = cast(list[Any], named) if isinstance(named, list) else []
        yield from (mcp_name(name, str(tool)) for tool in (*tools, "read_resource"))
