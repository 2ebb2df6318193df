"""batch: one input a line, one output a line, in order, in one process; a bad line doesn't stop the rest."""

import sys
from collections.abc import Mapping
from typing import Any

from interlock.cli.driving import tell_trace
from interlock.cli.inputs import batch_lines
from interlock.cli.render.stdout import write_json
from interlock.cli.render.structured import error_object, outcome_object
from interlock.engine.options import Options
from interlock.state.errors import InputError, InterlockError, RunError

BAD_INPUT = InputError.exit_code
_CANCELLED = 130


def run_batch(workflow: str, name: str, defaults: Mapping[str, Any], options: Options) -> int:
    """42 when a line was bad, else the first exit code that isn't 0. Ctrl-C ends the batch with the line it hits."""
    from interlock.engine import run_sync

    exit_code = 0
    for number, line in enumerate(batch_lines(name), 1):
        print(f"batch: line {number}", file=sys.stderr)
        code = BAD_INPUT
        try:
            if isinstance(line, InputError):
                raise line
            outcome = run_sync(workflow, {**defaults, **line}, options=options)
            write_json(outcome_object(outcome))
            tell_trace(outcome, options)
            code = outcome.exit_code
        except RunError:
            raise  # of the store: no line could run
        except InterlockError as error:  # its model or workspace can't be used, or its input
            write_json({"error": _bad_line(error)})
        if code == _CANCELLED:
            return code
        exit_code = code if code == BAD_INPUT else exit_code or code
    return exit_code


def _bad_line(error: InterlockError) -> dict[str, Any]:
    return {"field": "", **{k: v for k, v in error_object(error).items() if k != "code"}}
