"""investigate: the codebase investigator on its own: a sub-agent that takes an objective and returns a report.

Turns and tools alternate until the report is complete, or turns or time run out, after one last turn.
"""

import json
from collections.abc import Mapping
from typing import Any

from interlock.graphs import subagent
from interlock.graphs.graph import Graph
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.subagent import record_call_and_build_state, recorded_agent_result
from interlock.state.subagent import INVESTIGATOR, InvestigateInput, InvestigateOutput, Report
from interlock.state.workflow import WorkflowContext


def build() -> Graph:
    return subagent.build(0, "investigate")


def initial_state(input: InvestigateInput, context: WorkflowContext) -> dict[str, Any]:
    return record_call_and_build_state(INVESTIGATOR, {"objective": input.objective}, context)


def build_output(values: Mapping[str, Any], context: WorkflowContext) -> InvestigateOutput:
    meta: dict[str, Any] = dict(recorded_agent_result(values, context).meta)
    if meta["reason"] == "goal":
        report = Report.model_validate(json.loads(meta["result"]))
        return InvestigateOutput(status="goal", report=report)
    return InvestigateOutput(
        status=meta["reason"], partial=meta["result"], reason=meta["why"], error=meta.get("error")
    )


PIPELINE = Pipeline(
    "investigate",
    build,
    InvestigateInput,
    InvestigateOutput,
    prompt_field="objective",
    needs_model=True,
    enter=initial_state,
    leave=build_output,
)
