"""limits: what users, workflows and models may use over all workers."""

from typing import Any

from interlock.cli.parsing import Args, Parser, flag, number
from interlock.cli.render.output import err, show_json, show_table
from interlock.engine.client import Client, Options, state_home
from interlock.engine.client.fleet import Fleet, FleetLimit
from interlock.state.errors import UserError

_FIGURES = ("runs", "requests", "tokens", "usd_per_day", "usd_per_month")
_TITLES = ("runs", "requests/min", "tokens/min", "USD/day", "USD/month")


def limits_parser() -> Parser:
    made = Parser(
        "limits",
        "[user=NAME|workflow=NAME|model=NAME] [FLAGS]",
        "Show or set what users, workflows and models may use over all workers. `*` stands for each one that has no\n"
        "limit of its own. A run that meets a limit waits without a process, and goes on by itself.",
        [
            ("interlock limits", "list limits, and what is used"),
            ("interlock limits 'user=*' --runs 4", "drive at most four runs of each user at once"),
            ("interlock limits model=gemini-2.5-pro --requests 60", "make at most 60 requests a minute"),
            ("interlock limits user=anna --usd-per-day 5", "spend at most 5 US dollars a day (UTC)"),
            ("interlock limits user=anna --remove", "remove the limits of a user"),
        ],
    )
    made.add_argument("whose", nargs="?", metavar="KIND=NAME", help="a user, a workflow or a model")
    flag(made, "--runs N", "runs driven at once (user, workflow)", type=number(int, 1))
    flag(made, "--requests N", "requests to models a minute", type=number(int, 1))
    flag(made, "--tokens N", "tokens a minute", type=number(int, 1))
    flag(made, "--usd-per-day USD", "cost a day, in US dollars", type=number(float, 0.01))
    flag(made, "--usd-per-month USD", "cost a month, in US dollars", type=number(float, 0.01))
    flag(made, "--remove", "remove all limits of KIND=NAME")
    return made.json_flag()


def limits(args: Args) -> None:
    fleet = Fleet(state_home())
    given = {name: vars(args)[name] for name in _FIGURES if vars(args)[name] is not None}
    if args.whose:
        kind, name = _whose(args.whose)
        if args.remove:
            fleet.remove_limit(kind, name)
            return err().print(f"Removed the limits of {kind} {name!r}.")
        if kind == "model" and "runs" in given:
            raise UserError("--runs is for a user or a workflow: a run may ask several models.")
        if kind == "workflow" and name != "*":
            Client(Options(home=state_home())).workflow(name)
        if given:
            return fleet.set_limit(kind, name, given)
    elif given or args.remove:
        raise UserError(
            "Say whose limit: user=NAME, workflow=NAME or model=NAME. See: interlock limits --help"
        )
    found = [one for one in fleet.limits() if not args.whose or one.limit[:2] == _whose(args.whose)]
    if args.json:
        return show_json([one.facts for one in found])
    if not found:
        return err().print("No limits. Set one with: interlock limits 'user=*' --runs 4")
    show_table([_cells(one) for one in found], ("whose", *_TITLES))


def _whose(text: str) -> tuple[str, str]:
    kind, has_name, name = text.partition("=")
    if kind not in ("user", "workflow", "model") or not has_name or not name:
        raise UserError(f"{text!r}: expected user=NAME, workflow=NAME or model=NAME; * as NAME: each one.")
    return kind, name


def _cells(one: FleetLimit) -> tuple[str, ...]:
    def cell(name: str) -> str:
        most: Any = getattr(one.limit, name)
        return "—" if most is None else f"{one.used[name]:g} of {most:g}" if name in one.used else f"{most:g}"

    return (f"{one.limit.kind}={one.limit.name}", *map(cell, _FIGURES))
