"""stats: what runs did and cost, by day, model, workflow or repository."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from interlock.cli.parsing import Args, Parser, flag, since
from interlock.cli.render.output import amount, dollars, elapsed, err, place, show_json, show_table
from interlock.engine.client import Client

if TYPE_CHECKING:
    from interlock.engine.client.views import Sums

_HEADER = ("runs", "turns", "tokens", "cost", "asked", "given", "refused", "waited", "failed")


def stats_parser() -> Parser:
    made = Parser(
        "stats",
        "[--by KEY] [--since WHEN] [--json]",
        "Add up runs: turns, tokens, cost, approvals (asked, given, refused, time until the answer), and failures by\n"
        "kind. `runs rm` and `store prune` take deleted runs out of it.",
        [
            ("interlock stats", "the last 30 days, by day"),
            ("interlock stats --by model --since 2026-11-01", "a month, by model"),
        ],
    )
    keys = ("day", "model", "workflow", "repository")
    flag(made, "--by KEY", "day, model, workflow or repository (default: day)", choices=keys, default="day")
    flag(made, "--since WHEN", "a date, or an age like 7d or 12h (default: 30d)", default="30d")
    return made.json_flag()


def stats(args: Args) -> int | None:
    found = Client.at_home().statistics(args.by, since(args.since))
    if args.json:
        return show_json([{args.by: key, **asdict(sums)} for key, sums in found.items()])
    if not found:
        return err().print(f"No runs since {args.since}. See older ones with: interlock stats --since 365d")
    rows = [
        (place(key) if args.by == "repository" else key, *_cells(sums, args.by))
        for key, sums in found.items()
    ]
    if len(rows) > 1 and args.by != "model":  # a run may ask several models
        whole = type(next(iter(found.values())))()
        for sums in found.values():
            whole.add(sums)
        rows.append(("all", *_cells(whole, args.by)))
    show_table(rows, (args.by, *_HEADER), flexible=(0,))


def _cells(sums: "Sums", by: str) -> tuple[str, ...]:
    priced = sums.usd or not sums.unpriced
    cost = (dollars(sums.usd) + (" + ?" if sums.unpriced else "")) if priced else "—"
    tokens = amount(sums.input_tokens + sums.output_tokens)
    if by == "model":
        return str(sums.runs), str(sums.turns), tokens, cost, *("",) * 5
    failed = ", ".join(f"{number} {kind}" for kind, number in sorted(sums.failures.items())) or "0"
    waited = elapsed(sums.waited_s) if sums.asked else "0"
    return (
        *(str(sums.runs), str(sums.turns), tokens, cost),
        *(str(sums.asked), str(sums.given), str(sums.refused), waited, failed),
    )
