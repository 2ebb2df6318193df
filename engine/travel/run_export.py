"""run_export: a run's complete export as plain data; `--format json` writes it, and pages are rendered from it."""

import os
from pathlib import Path
from typing import Any

from interlock.engine.masking import load_folder_redactor, mask_secrets
from interlock.engine.read import (
    RunRow,
    count_consecutive_root_nodes,
    list_steps,
    list_waiting_requests,
    read_usage_by_model,
)
from interlock.engine.read.calls import list_agents, list_answered_requests, list_calls, list_node_reasons
from interlock.engine.run_files import (
    RunFiles,
    diff_calls,
    load_folder_settings,
    provide_run_with_local_files,
)
from interlock.engine.store.chain import read_messages_up_to
from interlock.engine.store.checkpoints import read_newest_state
from interlock.engine.store.snapshots import list_snapshots
from interlock.engine.store.workspaces import list_undo_notes
from interlock.services.models.facts import ModelFacts
from interlock.state.errors import InterlockError
from interlock.state.messages import Usage
from interlock.state.names import is_hidden_node

FORMAT = "interlock-run-1"


def export_run(home: Path, run: RunRow) -> dict[str, Any]:
    """The record, JSON-like. Costs are in US dollars if settings have a price for the model, else null."""
    taken = [step for step in list_steps(home, run.run) if not is_hidden_node(step.node)]
    whole, by_call = _read_run_and_call_diffs(home, run)
    made = [{**call._asdict(), "diff": by_call.get(call.key, "")} for call in list_calls(home, run.run)]
    used = fill_missing_costs(run, read_usage_by_model(home, run.run))
    known = [model["usd"] for model in used.values() if model["usd"] is not None]
    return {
        "format": FORMAT,
        **run._asdict(),
        "path": count_consecutive_root_nodes(taken),
        "steps": [step._asdict() for step in taken],
        "reasons": [reason._asdict() for reason in list_node_reasons(home, run.run)],
        "calls": made,
        "agents": [agent._asdict() for agent in list_agents(home, run.run)],
        "models": used,
        "usd": sum(known) if len(known) == len(used) and used else None,
        "undone": [one._asdict() for one in list_undo_notes(home, run.run)],
        "answered": list(list_answered_requests(home, run.run)),
        "pending_approvals": [request.fields for request in list_waiting_requests(home, run.run)],
        "messages": _list_messages(home, run.run),
        "state": _masked_state_if_no_conversation(home, run),
        "diff": whole,
    }


def _masked_state_if_no_conversation(home: Path, run: RunRow) -> dict[str, Any]:
    """The newest state of a graph without a conversation, without secrets; empty for others: their messages say it."""
    values = read_newest_state(home, run.run)
    return {} if "head" in values else mask_secrets(values, load_folder_redactor(Path(run.workspace), home))


def _list_messages(home: Path, run: str) -> list[dict[str, Any]]:
    head = str(read_newest_state(home, run).get("head") or "")
    return [m.model_dump(mode="json", exclude_defaults=True) for m in read_messages_up_to(home, run, head)]


def _read_run_and_call_diffs(home: Path, run: RunRow) -> tuple[str, dict[str, str]]:
    """Diffs of the whole run, and of each call by its key; empty if a snapshot or git is missing."""
    own = [s for s in list_snapshots(home, run.run) if not s.inherited and s.after]
    changed = [s for s in own if s.before != s.after]
    if not changed:
        return "", {}
    try:
        with provide_run_with_local_files(home, run, needs_workspace=False) as here:
            each = RunFiles(home, here).diff_each_call(changed)
            return diff_calls(home, here, own), {
                s.call_key: diff for s, diff in zip(changed, each, strict=True)
            }
    except InterlockError as error:
        return f"The files can't be shown: {error}", {}


def fill_missing_costs(run: RunRow, usage: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """`usage`, by model, with the cost also of calls whose price wasn't known when they were made, or not kept yet."""
    if all(amounts["usd"] is not None for amounts in usage.values()):
        return usage
    facts = ModelFacts(load_folder_settings(Path(run.workspace)), os.environ)
    found: dict[str, dict[str, Any]] = {}
    for name, amounts in usage.items():
        prices = facts.prices(name) if amounts["usd"] is None else None
        tokens = Usage(
            input=amounts["input_tokens"], output=amounts["output_tokens"], cached=amounts["cached"]
        )
        found[name] = {**amounts, "usd": prices[0].cost_usd(tokens) if prices else amounts["usd"]}
    return found
