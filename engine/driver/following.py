"""following: what follows a drive, whichever front end asked for it: the run that carries on an ended one's work."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from interlock.engine.driver.drive import Stop
from interlock.engine.options import Options, Outcome
from interlock.state.errors import EXIT_CODES


async def carried_on(outcome: Outcome, stop: Stop, resumed: Callable[[str], Awaitable[Outcome]]) -> Outcome:
    """Drive the run that carries on an ended one's work, if its pipeline names one; return how that ended."""
    while run := outcome.carried_on_by:
        if stop.why:
            code, command = EXIT_CODES[stop.why], f"interlock resume {run}"
            return replace(outcome, run=run, status=stop.why, exit_code=code, resume_command=command)
        warnings = outcome.warnings
        outcome = await resumed(run)
        outcome = replace(outcome, warnings=[*dict.fromkeys([*warnings, *outcome.warnings])])
    return outcome


def of_the_run(options: Options) -> Options:
    """Options for a run that a drive goes on with: what was asked of another run doesn't count for it."""
    kept: Any = dict.fromkeys(("workspace", "approval_mode", "mode", "model"))
    return replace(options, **kept, attach=(), notes=(), compress=False)
