"""models: lists what the configured providers and the servers nearby offer."""

from interlock.cli.flags import options_here
from interlock.cli.parsing import Args, Parser
from interlock.cli.render.output import show_json, show_table, warn


def models_parser() -> Parser:
    made = Parser(
        "models",
        "[--json]",
        "What the configured providers and the servers of this machine or its network offer: window in tokens, US "
        "dollars\nfor a million tokens (input / output), how the model calls tools, and if it was tried here. What "
        "is assumed\ncan be set: model.tokenLimits, model.prices, models.NAME.protocol.",
        [("interlock -m openai:qwen", "use one; a server's address is OPENAI_BASE_URL")],
    )
    made.folder_flags()
    made.json_flag()
    return made


def models(args: Args) -> int | None:
    from interlock.engine.client.models import offered_models

    rows = offered_models(options_here(args))
    if args.json:
        return show_json(rows)
    shown = [
        (
            row["model"],
            f"{row['window']:,}" + ("" if row["window_known"] else " (assumed)"),
            row["price"] or "—",
            row["protocol"],
            "tried" if row["tried"] else "",
        )
        for row in rows
    ]
    show_table(shown, ("model", "window", "price", "calls", ""))
    unknown = [row["model"] for row in rows if not row["window_known"]]
    if unknown:
        warn([f"{', '.join(unknown)}: the window is assumed. Set it in settings: model.tokenLimits."])
    return None
