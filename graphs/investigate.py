"""investigate: the codebase investigator, alone: a sub-agent whose objective is the input and whose end is a report.

Turns and tools alternate until the report is complete; its turns and its time end it, after one last turn.
"""

from interlock.graphs import subagent
from interlock.graphs._pipeline import Graph, Pipeline
from interlock.state.investigate import InvestigateInput, InvestigateOutput


def build() -> Graph:
    return subagent.build(0, "investigate")


PIPELINE = Pipeline(
    "investigate", build, InvestigateInput, InvestigateOutput, prompt_field="objective", needs_model=True
)
