"""doctor: checks this machine, the settings and, with --store, every record of every run."""

import sys
from collections.abc import Iterator
from pathlib import Path

from interlock.cli.catalog import load_entry_point
from interlock.cli.parsing import Args, Parser, argparse_argument, declare_arguments, flag_argument
from interlock.cli.render.live_calls import format_progress
from interlock.cli.render.output import print_json, result_paint
from interlock.cli.render.text_view import show_spinner
from interlock.engine.client import Client
from interlock.engine.client.health import (
    Finding,
    check_and_protect_state_directory,
    check_machine,
    check_settings,
    check_unguarded_effects,
    examine_and_repair_store,
)
from interlock.state.entry_points import find_entry_points
from interlock.state.errors import InterlockError

_STYLES = {"ok": "green", "note": "yellow", "problem": "red"}


@declare_arguments(
    argparse_argument("workflow", nargs="?", metavar="WORKFLOW", help="check only this workflow's nodes"),
    flag_argument("--store", "read every record of the store, and rebuild derived tables"),
    Parser.add_json_flag,
)
def doctor(args: Args) -> int | None:
    home = Client.for_this_user().home
    machine = [*check_machine(), *_warm_start_findings(), *_run_registered_checks(home)]
    here = [*machine, *check_settings(), *check_and_protect_state_directory(home)]
    findings = [*check_unguarded_effects(args.workflow)] if args.workflow else here
    findings += _check_and_repair_store(home) if args.store else ()
    if args.json:
        print_json([finding._asdict() for finding in findings])
    else:
        paint = result_paint()
        for level, what, text in findings:
            paint.print_line(f"{paint(f'{level:<8}', _STYLES[level])}{what:<12}{text}")
    return 1 if any(finding.level == "problem" for finding in findings) else 0


def _run_registered_checks(home: Path) -> Iterator[Finding]:
    """Yield what rooms of ours and other packages find."""
    for entry in find_entry_points("interlock.checks"):
        try:
            yield from load_entry_point(entry)(home)
        except InterlockError as error:
            yield Finding("problem", entry.name, str(error))


def _warm_start_findings() -> Iterator[Finding]:
    from interlock.cli.warm.warm_control import check_or_stop_warm_process

    if not sys.platform.startswith("linux"):
        return
    pid, why = check_or_stop_warm_process()
    if pid is None:
        yield Finding("ok", "warm", "off. To turn it on: interlock warm")
    else:
        text = f"process {pid} (interlock warm); a start from here is {f'cold: {why}' if why else 'warm'}"
        yield Finding("note" if why else "ok", "warm", text)


def _check_and_repair_store(home: Path) -> Iterator[Finding]:
    """Every record's faults; on a terminal, with a bar that shows how many are read."""
    with show_spinner("store") as show:
        try:
            yield from examine_and_repair_store(home, lambda progress: show(format_progress(progress)))
        except InterlockError as error:
            yield Finding("problem", "store", str(error))
