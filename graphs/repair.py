"""repair: mends code until a check passes: the machine locates, tries and checks, and a model only writes.

`propose`, `try`, `run_check` and `choose_next` loop: each attempt starts from the best known state and is checked in a
scratch view. The first that passes is confirmed and applied as one edit; no attempts left ends with what was tried.
"""

from collections.abc import Mapping
from typing import Any

from langgraph.graph import END, START

from interlock.graphs import nested_graph_builder
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.nodes.repair import (
    apply,
    check_rights,
    confirm,
    find_check,
    report,
    run_check,
    take_approval,
    verify,
)
from interlock.nodes.repair_attempts import choose_next, diff_of_files, locate, propose, try_answer
from interlock.nodes.repair_records import load_check_end, load_files, load_suspects
from interlock.nodes.requests import await_person
from interlock.state.repair import RepairInput, RepairOutput, RepairState
from interlock.state.workflow import WorkflowContext, error_from_state


def build() -> Graph:
    g = Graph("repair", RepairState)
    g.nodes(find_check, check_rights, take_approval, run_check, locate, propose, choose_next, confirm, apply)
    g.node("await_approval", await_person)
    g.node("try", try_answer)
    g.subgraph("tools", nested_graph_builder("tools", 0))
    g.nodes(verify, report)

    g.edge(START, "find_check")
    g.by_label("find_check", {"found": "check_rights", "none": "report"})
    g.by_label("check_rights", {"allowed": "run_check", "asked": "await_approval", "denied": "report"})
    g.edge("await_approval", "take_approval")
    g.by_label("take_approval", {"proceed": "run_check", "refused": "report"})
    checked = {"fails": "locate", "passes at once": "report", "unusable": "report"}
    tried = {"passes": "confirm", "better": "choose_next", "no better": "choose_next"}
    g.by_label("run_check", {**checked, **tried})
    g.by_label("locate", {"found": "propose", "nothing": "report"})
    g.by_label("propose", {"answered": "try", "no answer": "choose_next", "no model": "report"})
    g.by_label("try", {"tried": "run_check", "unusable": "choose_next"})
    g.by_label("choose_next", {"again": "propose", "nothing left": "report"})
    g.by_label("confirm", {"holds": "apply", "flaky": "report"})
    g.edge("apply", "tools", "verify")
    g.by_label("verify", {"made": "report", "refused": "report"})
    g.edge("report", END)
    return g


def initial_state(input: RepairInput, context: WorkflowContext) -> dict[str, Any]:
    return {
        "task": context.record_prompt(input.task),
        "approval_mode": context.approval_mode,
        "max_attempts": input.attempts,
        "check_timeout_s": input.check_timeout_s or 0.0,
        "head": "",
    }


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> RepairOutput:
    state, transcript = RepairState(**values), context.transcript
    status: Any = state["repair_status"]
    best = load_files(transcript, state["best"])
    diff = diff_of_files(load_suspects(transcript, state).files, best) if best else ""
    is_made = status == "done" and bool(best)
    failing = (
        0 if status == "done" or not state["checked"] else len(load_check_end(transcript, state).failures)
    )
    return RepairOutput(
        status=status,
        response=transcript.read_message(state["told"]).text
        if state["told"]
        else f"Nothing to repair: {state['command']!r} passes.",
        check=state["command"],
        attempts=state["attempt_no"],
        failing=failing,
        changed=sorted(best) if is_made else [],
        proposal="" if is_made else diff,
        error=error_from_state(values),
    )


PIPELINE = Pipeline(
    "repair",
    build,
    RepairInput,
    RepairOutput,
    prompt_field="task",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
    outcome="repair_status",
)
