"""schedule: runs that workers start at set times."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from interlock.cli.commands.work import RunParser, run_input, run_options, with_inputs
from interlock.cli.parsing import Args, Parser, action, flag, takes, word
from interlock.cli.render.output import err, one_line, out, show_json, show_table
from interlock.engine.client import Client, state_home
from interlock.engine.client.fleet import Fleet, parse_schedule_option
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.graphs.pipeline import Pipeline


class _ScheduleParser(Parser):
    def parse(self, arguments: Sequence[str]) -> Args:
        """The words after `add` are those of `run`, behind the cron line."""
        place = arguments.index("add") if "add" in arguments else 0
        if not arguments or arguments[place] != "add" or {"list", "remove"} & {*arguments[:place]}:
            return super().parse(arguments)
        adds = _AddParser("schedule add")
        flag(adds, "--name NAME", "name of the schedule (default: a new id)", default="")
        flag(adds, "--timezone ZONE", "time zone of the cron line (default: UTC)", default="UTC")
        adds.add_argument("cron", metavar="CRON", help="minute hour day month weekday, in quotes; or @daily")
        with_inputs(adds)
        made = adds.parse([*arguments[:place], *arguments[place + 1 :]])
        made.action = "add"
        return made


class _AddParser(RunParser):
    def learn(self, words: Sequence[str]) -> None:
        """Look at the cron line first: without quotes, its second field would be the workflow."""
        first, _ = self.parse_known_intermixed_args(list(words))
        parse_schedule_option(first.name, first.cron, first.timezone)
        super().learn(words)


@takes(
    action("action", "add", "list", "remove", nargs="?", default="list", help="default: list"),
    word("names", nargs="*", metavar="NAME", help="with remove: of schedules"),
    Parser.json_flag,
    of=_ScheduleParser,
)
def schedule(args: Args) -> None:
    if args.action == "add":
        return _add(args)
    fleet = Fleet(state_home())
    if args.action == "remove":
        if not args.names:
            raise UserError("Which schedule? List them with: interlock schedule list")
        for name in args.names:
            fleet.remove_schedule(name)
            err().print(f"Removed schedule {name!r}. A run that it started goes on.")
        return None
    found = fleet.schedules()
    if args.json:
        return show_json(found)
    if not found:
        return err().print(
            "No schedules. Add one with: interlock schedule add '30 2 * * *' main 'what to do'"
        )
    show_table([_cells(one) for one in found], ("name", "cron", "next", "by", "last run", "what"))


def _cells(one: dict[str, Any]) -> tuple[str, ...]:
    cron = one["cron"] if one["zone"] == "UTC" else f"{one['cron']} ({one['zone']})"
    upcoming = "now" if one["next"] is None else _time(one["next"], one["zone"])
    last = f"{one['run']} {one['status'] or 'removed'}" if one["run"] else "—"
    last = f"{last}. {one_line(one['said'])}" if one["said"] else last
    what = one["title"] if one["workflow"] == "main" else f"{one['workflow']}: {one['title']}"
    return (one["name"], cron, upcoming, one["user"], last, one_line(what))


def _time(at: float, zone: str) -> str:
    return datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%Y-%m-%d %H:%M")


def _add(args: Args) -> None:
    workflow: Pipeline = args.workflow
    when = parse_schedule_option(args.name, args.cron, args.timezone)
    for name in ("batch", "attach"):
        if vars(args)[name]:
            raise UserError(f"--{name} names a file of now, and a schedule starts runs later. Leave it out.")
    args.detach = True
    client = Client(replace(run_options(args), schedule=when))
    with client.diagnosed():
        made = client.start_sync(_named(args, workflow), run_input(args, workflow))
    out().print(made.run)
    err().print(f"First time: {_time(made.output['next'], when['zone'])} {when['zone']}")


def _named(args: Args, workflow: "Pipeline") -> str:
    """How a worker finds the workflow: a graph in a file by the file's full name."""
    file, is_graph, graph = args.typed.rpartition(":")
    return f"{os.path.realpath(file)}:{graph}" if is_graph and os.path.exists(file) else workflow.name  # noqa: PTH110 - as realpath
