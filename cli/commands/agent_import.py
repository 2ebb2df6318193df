"""agent_import: shows what can be taken over from another agent's home folder, and takes it over after a yes."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.inputs import ask_to_confirm, command_input
from interlock.cli.parsing import choice_parser
from interlock.cli.render.output import (
    abbreviate_home,
    print_json,
    remark_paint,
    result_paint,
    to_one_line,
)

if TYPE_CHECKING:
    from interlock.engine.client.agent_import import ImportItem, ImportPlan

_NAMES = ("claude", "codex", "gemini", "roo", "opencode")
AGENT = choice_parser(
    _NAMES,
    {
        f"{name}{end}": name
        for name, end in zip(_NAMES, ("-code", "-cli", "-cli", "-code", ""), strict=True)
        if end
    },
)
_WORDS = {
    "new": "",
    "there": "read where it is",
    "same": "taken over already",
    "differs": "differs",
    "left out": "no",
}
_SHOWN_LEFT_OUT = 30


def show_and_apply_agent_import(
    agent: str, *, yes: bool, as_json: bool, conversations_of: Path | None
) -> int:
    """Return the exit code: 1 if something couldn't be written. `conversations_of`: a folder, if they are wanted."""
    from interlock.engine.client.agent_import import apply_agent_import, plan_agent_import

    plan = plan_agent_import(agent, Path.home(), os.environ, conversations_of)
    typed = command_input()
    at_terminal = typed is not None and typed.isatty()
    if not as_json:
        result_paint().print_lines(_plan_lines(plan))
    wanted = bool(plan.new) and (
        yes or (at_terminal and not as_json and ask_to_confirm("Take over what is new?", ""))
    )
    failed = apply_agent_import(plan) if wanted else []
    if as_json:
        print_json(_plan_fields(plan, wanted, failed))
        return 1 if failed else 0
    say = remark_paint().print_line
    for item in failed:
        say(f"{item.kind} {item.name}: not taken over: {to_one_line(item.note)}")
    if wanted:
        say(f"{len(plan.new) - len(failed)} of {len(plan.new)} taken over.")
        if talk := next((item for item in plan.new if item.kind == "conversations"), None):
            file = shlex.quote(str(talk.target))
            say(f"Go on with a conversation: interlock run main 'PROMPT' --input @{file}")
    elif not plan.new:
        say("Nothing is new. Nothing was changed.")
    else:
        say(f"Nothing was changed. To take it over: interlock import --agent {agent} --yes")
    return 1 if failed else 0


def _plan_lines(plan: "ImportPlan") -> Iterator[str]:
    paint = result_paint()
    yield f"{paint(plan.program, 'bold')}, {abbreviate_home(str(plan.folder))}"
    for item in plan.items:
        if item.state != "left out":
            yield f"  {item.kind:<11}  {_describe(item)}"
    left_out = [item for item in plan.items if item.state == "left out"]
    if left_out:
        yield "Not taken over:"
    for item in left_out[:_SHOWN_LEFT_OUT]:
        yield f"  {item.kind:<11}  {to_one_line(item.name, 60)}: {to_one_line(item.note)}"
    if len(left_out) > _SHOWN_LEFT_OUT:
        yield f"  and {len(left_out) - _SHOWN_LEFT_OUT} more; see --json"
    if plan.unset:
        yield "Variables to set, in your shell or in ~/.gemini/.env:"
    for name, stands_there in plan.unset.items():
        yield f"  {name}" + (" (its value stands in the old file; it wasn't copied)" if stands_there else "")


def _describe(item: "ImportItem") -> str:
    name = to_one_line(item.name, 60)
    if item.state == "there":
        return f"{name}: {f'{item.note}, ' if item.note else ''}{_WORDS['there']}"
    to = f" → {abbreviate_home(str(item.target))}" if item.target and item.state != "same" else ""
    notes = [_WORDS[item.state], to_one_line(item.note)]
    if item.variables:
        notes.append(f"needs {', '.join(item.variables)}")
    said = "; ".join(filter(None, notes))
    return f"{name}{to}" + (f" ({said})" if said else "")


def _plan_fields(plan: "ImportPlan", wanted: bool, failed: "list[ImportItem]") -> dict[str, Any]:
    errors = {(item.kind, item.name): item.note for item in failed}
    return {
        "agent": plan.agent,
        "folder": str(plan.folder),
        "taken_over": wanted,
        "items": [
            {
                "kind": item.kind,
                "name": item.name,
                "source": str(item.source),
                "state": item.state,
                "target": str(item.target) if item.target else None,
                "note": item.note,
                "variables": [*item.variables],
                "error": errors.get((item.kind, item.name)) if item.state == "new" else None,
            }
            for item in plan.items
        ],
        "unset_variables": [*plan.unset],
    }
