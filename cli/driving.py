"""driving: starts or resumes a run through the engine, with the requested view, or runs each line of a batch."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.cli.inputs import read_batch_lines
from interlock.cli.render.output import redirect_stdout_to_null, write_json
from interlock.cli.render.views import JsonView, StreamJsonView, View, error_fields, outcome_fields
from interlock.cli.startup import resume_gc_and_start_warm_process
from interlock.engine.client import ENDED, Client, Decision, Options, Outcome, Pending
from interlock.engine.client.batches import Batch, find_newest_batch, make_batch
from interlock.services.process.stdout import original_stdout, redirect_stdout_to_stderr
from interlock.state.errors import BusyError, InputError, InterlockError, RunError, UserError, as_bug_error
from interlock.state.text import make_visible, sanitize_for_terminal

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.state.events import Event


def make_view(args: argparse.Namespace, title: str, decided_requests: Sequence[str] = ()) -> View:
    """The view for `--output-format`; a resumed run has a title and requests that were just decided."""
    if args.output_format in (None, "text"):
        return make_text_view(
            title, decided_requests, args.verbose, for_people=args.output_format == "text" or None
        )
    return JsonView() if args.output_format == "json" else StreamJsonView()


def make_text_view(
    title: str, decided_requests: Sequence[str] = (), verbose: bool = False, for_people: bool | None = None
) -> View:
    """The view for a person, who is asked if they sit at a terminal."""
    from interlock.cli.decisions import ask_for_decisions, can_ask_person
    from interlock.cli.render.text_view import TextView

    return TextView(
        title, decided_requests, verbose, for_people, ask_for_decisions if can_ask_person() else None
    )


def start_run(workflow: str, inputs: Mapping[str, Any], options: Options, view: View) -> int:
    """Run a workflow until it ends or waits; returns the exit code."""
    client = Client(options)
    if options.queue:
        with client.explain_store_errors():
            print(client.start_sync(workflow, inputs).run)
        return 0
    _take_up_due_work(client)
    return _drive_and_show_outcome(
        lambda asker: client.start_sync(
            workflow, inputs, renderers=[_StartupEndingView(view)], decider=asker
        ),
        view,
        client,
    )


def resume_run(
    run: str, decisions: Sequence[Decision], prompt: str | None, options: Options, view: View
) -> int:
    """Resume a run; returns the exit code."""
    client = Client(options)
    _take_up_due_work(client)
    return _drive_and_show_outcome(
        lambda asker: client.resume_sync(
            run, prompt, decisions, renderers=[_StartupEndingView(view)], decider=asker
        ),
        view,
        client,
    )


def _take_up_due_work(client: Client) -> None:
    """Let what is due go on, too, if this machine's worker doesn't run; say so."""
    from interlock.cli.render.output import remark_paint
    from interlock.engine.client.fleet import take_up_due_work

    if said := take_up_due_work(client.home, os.environ):
        remark_paint().print_line(said)


def _drive_and_show_outcome(drive: "Callable[[_TerminalAsker], Outcome]", view: View, client: Client) -> int:
    asker = _TerminalAsker(view)
    try:
        with redirect_stdout_to_stderr(), client.explain_store_errors():
            outcome = drive(asker)
            outcome = wait_for_notifications(outcome, [*asker.notifying, outcome.notifying])
            if not outcome.drained:
                # Its thread holds a lock that an ordinary exit would wait for.
                os._exit(outcome.exit_code)
            _show_ignoring_closed_pipe(lambda: view.show_outcome(outcome))
            print_trace_if_debug(outcome, client.options)
            return outcome.exit_code
    except Exception as error:
        failure = error if isinstance(error, InterlockError) else as_bug_error(error)
        show_failure(view, failure)
        if failure is error:
            raise
        raise failure from error


class _TerminalAsker:
    """Whoever sits at the terminal, as the view can ask; `Decider`."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.notifying: list[Future[list[str]] | None] = []
        """Of the drives so far."""

    async def decide(self, outcome: Outcome, requests: Sequence[Pending]) -> list[Decision]:
        self.notifying.append(outcome.notifying)
        return self._view.ask_for_decisions(outcome, requests)

    def on_decisions_refused(self, error: UserError) -> None:
        sys.stderr.write(f"{make_visible(str(error))}\n")


def show_failure(view: View, error: InterlockError) -> None:
    """Show that the run didn't start, or broke off."""
    _show_ignoring_closed_pipe(lambda: view.show_failure(error))
    error.shown = True


SCREEN_READER = "INTERLOCK_SCREEN_READER"


def is_plain_terminal_or_screen_reader() -> bool:
    """Whether the terminal can do no more than print lines, or a screen reader reads them."""
    return os.environ.get("TERM", "dumb") in ("dumb", "") or bool(os.environ.get(SCREEN_READER))


class _StartupEndingView:
    """A view that ends the start-up."""

    def __init__(self, view: View) -> None:
        self._view, self.flush = view, view.flush
        self.__qualname__ = type(view).__qualname__  # named in a warning

    def __call__(self, event: "Event", /) -> None:
        if event.type in ("finished", "tool_start"):  # a model's client, the largest import, is loaded by now
            resume_gc_and_start_warm_process()
        self._view(event)


def wait_for_notifications(outcome: Outcome, notifications: "Sequence[Future[list[str]] | None]") -> Outcome:
    """Wait until these notifications are sent, and add their problems as warnings. Ctrl-C stops waiting."""
    try:
        problems = [line for one in dict.fromkeys(notifications) if one for line in one.result()]
    except KeyboardInterrupt:
        problems = ["Stopped by Ctrl-C. The notification may not have been sent."]
    return replace(outcome, warnings=[*outcome.warnings, *problems])


def print_trace_if_debug(outcome: Outcome, options: Options) -> None:
    if options.debug and outcome.trace:
        sys.stderr.write(sanitize_for_terminal(outcome.trace))


def _show_ignoring_closed_pipe(show: Callable[[], None]) -> None:
    """Ignore a closed pipe (`| head`): it doesn't change how the run ended."""
    try:
        show()
        original_stdout().flush()
    except BrokenPipeError:
        redirect_stdout_to_null()


_CANCELLED = 130


def run_batch(
    workflow: str,
    file: str,
    parse: Callable[[str, str], dict[str, Any]],
    defaults: Mapping[str, Any],
    options: Options,
    *,
    is_resumed: bool,
) -> int:
    """Write one output per line, in order; a bad line doesn't stop the rest.

    `parse`: a line's text, and what it is called in errors → the input that it is.
    `is_resumed`: a line that has a run goes on with it, and one that is done gives its output again.

    Returns 42 if a line was bad, else the first exit code that isn't 0. Ctrl-C ends the batch at the current line.
    """
    folder = (options.workspace or Path.cwd()).resolve()
    lines = {
        line: given if isinstance(given, InputError) else {**defaults, **given}
        for line, given in read_batch_lines(file, parse)
    }
    batch = find_newest_batch(options.home, workflow, file, folder) if is_resumed else None
    if batch:
        batch.check_lines_unchanged({line: given for line, given in lines.items() if isinstance(given, dict)})
    elif is_resumed:
        print(f"batch: no line of {file} has run here yet, so all of them run", file=sys.stderr)
    batch, client, exit_code = batch or make_batch(file, folder), Client(options), 0
    for line, given in lines.items():
        print(f"batch: line {line}", file=sys.stderr)
        code = InputError.exit_code
        try:
            if isinstance(given, InputError):
                raise given
            outcome = _start_or_resume_batch_line(batch, line, workflow, given, options)
            outcome = wait_for_notifications(outcome, [outcome.notifying])
            write_json(outcome_fields(outcome))
            print_trace_if_debug(outcome, options)
            code = outcome.exit_code
        except BusyError as error:  # another process goes on with the line
            write_json({"error": {"field": "", "type": error.kind, "message": str(error)}})
            code = error.exit_code
        except RunError:
            raise  # a store error: no line could run
        except InterlockError as error:  # an unusable model, workspace or input
            fields = error_fields(error)
            del fields["code"]
            write_json({"error": {"field": "", **fields}})
        if code == _CANCELLED and client.find_run(batch.run_id_for_line(line)).status not in ENDED:
            return code  # this process was stopped, not the run cancelled
        exit_code = code if code == InputError.exit_code else exit_code or code
    return exit_code


def _start_or_resume_batch_line(
    batch: Batch, line: int, workflow: str, inputs: Mapping[str, Any], options: Options
) -> Outcome:
    run = batch.run_id_for_line(line)
    if line not in batch.begun:
        client = Client(replace(options, batch=batch.batch_option_for_line(line, inputs)))
        return client.start_sync(workflow, inputs, run=run)
    client = Client(options)
    if options.queue:
        return Outcome(run, workflow, "queued", 0)  # its workers have it
    outcome = client.resume_sync(run)
    if outcome.status == "waiting":
        print(f"batch: line {line} waits: interlock resume {run}", file=sys.stderr)
    return outcome
