"""batch: runs a workflow once for each line of a file, and goes on with a file whose batch was stopped."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from interlock.cli.driving import await_notifications, print_trace
from interlock.cli.inputs import read_batch
from interlock.cli.render.json_views import error_object, outcome_object
from interlock.cli.render.output import write_json
from interlock.engine.client import ENDED, Client, Options, Outcome
from interlock.engine.client.batches import Batch, find_newest_batch, start_batch
from interlock.state.errors import BusyError, InputError, InterlockError, RunError

_CANCELLED = 130


def run_batch(
    workflow: str,
    name: str,
    parse: Callable[[str, str], dict[str, Any]],
    defaults: Mapping[str, Any],
    options: Options,
    *,
    resumes: bool,
) -> int:
    """Write one output per line, in order; a bad line doesn't stop the rest.

    `parse`: a line's text, and what it is called in errors → the input that it is.
    `resumes`: a line that has a run goes on with it, and one that is done gives its output again.

    Returns 42 if a line was bad, else the first exit code that isn't 0. Ctrl-C ends the batch at the current line.
    """
    folder = (options.workspace or Path.cwd()).resolve()
    lines = {
        line: given if isinstance(given, InputError) else {**defaults, **given}
        for line, given in read_batch(name, parse)
    }
    batch = find_newest_batch(options.home, workflow, name, folder) if resumes else None
    if batch:
        batch.check_lines({line: given for line, given in lines.items() if isinstance(given, dict)})
    elif resumes:
        print(f"batch: no line of {name} has run here yet, so all of them run", file=sys.stderr)
    batch, client, exit_code = batch or start_batch(name, folder), Client(options), 0
    for line, given in lines.items():
        print(f"batch: line {line}", file=sys.stderr)
        code = InputError.exit_code
        try:
            if isinstance(given, InputError):
                raise given
            outcome = _run_line(batch, line, workflow, given, options)
            outcome = await_notifications(outcome, [outcome.notifying])
            write_json(outcome_object(outcome))
            print_trace(outcome, options)
            code = outcome.exit_code
        except BusyError as error:  # another process goes on with the line
            write_json({"error": {"field": "", "type": error.kind, "message": str(error)}})
            code = error.exit_code
        except RunError:
            raise  # a store error: no line could run
        except InterlockError as error:  # an unusable model, workspace or input
            fields = error_object(error)
            del fields["code"]
            write_json({"error": {"field": "", **fields}})
        if code == _CANCELLED and client.find_run(batch.run_id_of_line(line)).status not in ENDED:
            return code  # this process was stopped, not the run cancelled
        exit_code = code if code == InputError.exit_code else exit_code or code
    return exit_code


def _run_line(batch: Batch, line: int, workflow: str, given: Mapping[str, Any], options: Options) -> Outcome:
    run = batch.run_id_of_line(line)
    if line not in batch.begun:
        client = Client(replace(options, batch=batch.kept(line, given)))
        return client.start_sync(workflow, given, run=run)
    client = Client(options)
    if options.queue:
        return Outcome(run, workflow, "queued", 0)  # its workers have it
    outcome = client.resume_sync(run)
    if outcome.status == "waiting":
        print(f"batch: line {line} waits: interlock resume {run}", file=sys.stderr)
    return outcome
