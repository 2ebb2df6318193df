"""schedule: runs that workers start at set times."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from interlock.cli.commands.work import (
    RunParser,
    add_workflow_run_arguments,
    read_run_input,
    workflow_run_options,
)
from interlock.cli.parsing import (
    Args,
    Parser,
    add_flag,
    argparse_argument,
    choice_argument,
    declare_arguments,
)
from interlock.cli.render.output import print_json, print_table, remark_paint, result_paint, to_one_line
from interlock.engine.client import Client, resolve_state_directory
from interlock.engine.client.fleet import Fleet, overdue_line, parse_schedule_option
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.graphs.pipeline import Pipeline


class _ScheduleParser(Parser):
    def parse(self, arguments: Sequence[str]) -> Args:
        """The words after `add` are those of `run`, behind the cron line."""
        place = arguments.index("add") if "add" in arguments else 0
        if not arguments or arguments[place] != "add" or {"list", "remove"} & {*arguments[:place]}:
            return super().parse(arguments)
        adds = _ScheduleAddParser("schedule add")
        add_flag(adds, "--name NAME", "name of the schedule (default: a new id)", default="")
        add_flag(adds, "--timezone ZONE", "time zone of the cron line (default: UTC)", default="UTC")
        adds.add_argument("cron", metavar="CRON", help="minute hour day month weekday, in quotes; or @daily")
        add_workflow_run_arguments(adds)
        made = adds.parse([*arguments[:place], *arguments[place + 1 :]])
        made.action = "add"
        return made


class _ScheduleAddParser(RunParser):
    def add_dynamic_flags(self, words: Sequence[str]) -> None:
        """Look at the cron line first: without quotes, its second field would be the workflow."""
        first, _ = self.parse_known_intermixed_args(list(words))
        parse_schedule_option(first.name, first.cron, first.timezone)
        super().add_dynamic_flags(words)


@declare_arguments(
    choice_argument("action", "add", "list", "remove", nargs="?", default="list", help="default: list"),
    argparse_argument("names", nargs="*", metavar="NAME", help="with remove: of schedules"),
    Parser.add_json_flag,
    parser_type=_ScheduleParser,
)
def schedule(args: Args) -> None:
    if args.action == "add":
        return _add_schedule(args)
    fleet = Fleet(resolve_state_directory())
    if args.action == "remove":
        if not args.names:
            raise UserError("Which schedule? List them with: interlock schedule list")
        for name in args.names:
            fleet.remove_schedule(name)
            remark_paint().print_line(f"Removed schedule {name!r}. A run that it started goes on.")
        return None
    found = fleet.list_schedules()
    if args.json:
        return print_json(found)
    if not found:
        return remark_paint().print_line(
            "No schedules. Add one with: interlock schedule add '30 2 * * *' main 'what to do'"
        )
    if said := overdue_line(fleet.home):
        remark_paint().print_line(said)
    print_table([_schedule_cells(one) for one in found], ("name", "cron", "next", "by", "last run", "what"))


def _schedule_cells(schedule: dict[str, Any]) -> tuple[str, ...]:
    cron = schedule["cron"] if schedule["zone"] == "UTC" else f"{schedule['cron']} ({schedule['zone']})"
    upcoming = "now" if schedule["next"] is None else _format_time(schedule["next"], schedule["zone"])
    last = f"{schedule['run']} {schedule['status'] or 'removed'}" if schedule["run"] else "—"
    last = f"{last}. {to_one_line(schedule['said'])}" if schedule["said"] else last
    what = (
        schedule["title"]
        if schedule["workflow"] == "main"
        else f"{schedule['workflow']}: {schedule['title']}"
    )
    return (schedule["name"], cron, upcoming, schedule["user"], last, to_one_line(what))


def _format_time(at: float, zone: str) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def _add_schedule(args: Args) -> None:
    workflow: Pipeline = args.workflow
    when = parse_schedule_option(args.name, args.cron, args.timezone)
    for name in ("batch", "attach"):
        if vars(args)[name]:
            raise UserError(f"--{name} names a file of now, and a schedule starts runs later. Leave it out.")
    args.detach = True
    client = Client(replace(workflow_run_options(args), schedule=when))
    with client.explain_store_errors():
        made = client.start_sync(_workflow_address_for_worker(args, workflow), read_run_input(args, workflow))
    result_paint().print_line(made.run)
    remark_paint().print_line(f"First time: {_format_time(made.output['next'], when['zone'])} {when['zone']}")
    from interlock.engine.client.worker_unit import missing_unit_line

    if said := missing_unit_line(client.home):
        remark_paint().print_line(said)


def _workflow_address_for_worker(args: Args, workflow: "Pipeline") -> str:
    """How a worker finds the workflow: a graph in a file by the file's full name."""
    file, is_graph, graph = args.typed.rpartition(":")
    return f"{os.path.realpath(file)}:{graph}" if is_graph and os.path.exists(file) else workflow.name  # noqa: PTH110 - as realpath
