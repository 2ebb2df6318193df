"""driving: starts or resumes a run by the engine, with the view that was asked for, or prompt after prompt."""

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from interlock.cli import quick_start
from interlock.cli.render.output import bug, close_stdout
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.engine.read import waiting_requests
from interlock.state.errors import InterlockError, UserError
from interlock.state.text import visible

if TYPE_CHECKING:
    from concurrent.futures import Future

    from interlock.state.events import Event


class View(Protocol):
    """A renderer of the command line: called with events on a thread of its own, then once with how it ended."""

    def __call__(self, event: "Event", /) -> None:
        """Show it, or keep it for the end."""

    def flush(self) -> None:
        """Show what came until now."""

    def ask(self, outcome: Outcome) -> list[Decision]:  # noqa: ARG002 - of a view that a person reads
        """What a person decides now of what waits; nothing where nobody can be asked. Events may follow."""
        return []

    def finish(self, outcome: Outcome) -> None: ...

    def failed(self, error: InterlockError) -> None:
        """The run did not start, or broke off. The one-line error itself goes to stderr elsewhere."""


def view_for(args: argparse.Namespace, title: str, decided: Sequence[str] = ()) -> View:
    """The renderer of `--output-format`; a run that goes on has a title, and requests that were decided now."""
    if args.output_format == "text":
        from interlock.cli.render.text import TextView

        return TextView(title, decided, args.verbose)
    from interlock.cli.render.structured import JsonView, StreamJsonView

    return JsonView() if args.output_format == "json" else StreamJsonView()


def start(workflow: str, inputs: Mapping[str, Any], options: Options, view: View) -> int:
    """Run a workflow to its end or to where it waits; the exit code."""
    from interlock.engine import run_sync

    return _show(lambda views: run_sync(workflow, inputs, options=options, renderers=views), view, options)


def go_on(run: str, decisions: Sequence[Decision], prompt: str | None, options: Options, view: View) -> int:
    """Resume a run; the exit code."""
    from interlock.engine import resume_sync

    return _show(
        lambda views: resume_sync(run, decisions=decisions, prompt=prompt, options=options, renderers=views),
        view,
        options,
    )


def _show(drive: Callable[[Sequence[Renderer]], Outcome], view: View, options: Options) -> int:
    from interlock.engine.store import diagnosed

    try:
        with diagnosed(options.home / "interlock.db"):
            outcome = _asked(drive([_Settling(view)]), options, view)
            if outcome.status != "approved" or not outcome.output.get("main_run"):
                if not outcome.drained:
                    # Its thread holds a lock that an ordinary exit would wait for.
                    os._exit(outcome.exit_code)
                _quietly(lambda: view.finish(outcome))
                tell_trace(outcome, options)
                return outcome.exit_code
    except Exception as error:
        failure = error if isinstance(error, InterlockError) else bug(error)
        _quietly(lambda: view.failed(failure))
        raise
    following = outcome.output["main_run"]
    sys.stderr.write(f"The plan is approved; run {following} carries it out.\n")
    # What was asked of the plan is kept by the run that carries it out; its mode is the approved one.
    return go_on(following, [], None, replace(options, approval_mode=None), view)


def is_plain() -> bool:
    """The terminal can't do more than lines."""
    return os.environ.get("TERM", "dumb") in ("dumb", "")


class _Settling:
    """A view that ends the quick start."""

    def __init__(self, view: View) -> None:
        self._view, self.flush = view, view.flush
        self.__qualname__ = type(view).__qualname__  # what a warning names

    def __call__(self, event: "Event", /) -> None:
        if event.type in ("finished", "tool_start"):  # a model's client, the largest import, is there by then
            quick_start.settle()
        self._view(event)


def _asked(outcome: Outcome, options: Options, view: View) -> Outcome:
    """Go on with what a person says right away, as long as there is something to say."""
    from interlock.engine import resume_sync

    # What was asked of the run is kept by it; a plan or the model may have moved its mode since.
    options = replace(options, approval_mode=None)
    sent = [outcome.notifying]
    while outcome.drained and (decisions := view.ask(outcome)):
        try:
            outcome = resume_sync(outcome.run, decisions=decisions, options=options, renderers=[view])
            sent.append(outcome.notifying)
        except UserError as error:
            # Arguments that don't fit, or somebody was first: asked again, of what waits now.
            sys.stderr.write(f"{visible(str(error))}\n")
            waiting = [request.fields for request in waiting_requests(options.home, outcome.run)]
            outcome = replace(outcome, pending=waiting)
    return notified(outcome, sent)


def notified(outcome: Outcome, sent: "Sequence[Future[list[str]] | None]") -> Outcome:
    """Once these notifications are sent, with what went wrong with them. Who presses Ctrl-C waits no longer."""
    try:
        problems = [line for one in sent if one for line in one.result()]
    except KeyboardInterrupt:
        problems = ["It isn't known whether the notification was sent: stopped by Ctrl-C."]
    return replace(outcome, warnings=[*outcome.warnings, *problems])


def tell_trace(outcome: Outcome, options: Options) -> None:
    if options.debug and outcome.trace:
        sys.stderr.write(outcome.trace)


def _quietly(show: Callable[[], None]) -> None:
    """A reader that is gone (`| head`) doesn't change how the run ended."""
    try:
        show()
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
