"""investigate: input and output of the codebase investigator."""

from pydantic import BaseModel, ConfigDict, Field

from interlock.state.run import WorkflowInput, WorkflowOutput
from interlock.state.subagent import EndReason

INVESTIGATOR = "codebase_investigator"


class _Closed(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Location(_Closed):
    """A place in the code that matters."""

    FilePath: str = Field(description="path of the file, relative to the workspace")
    Reasoning: str = Field(description="why it matters for the objective")
    KeySymbols: list[str] = Field(description="functions, classes and names in it that matter")


class Report(_Closed):
    """What an investigation found."""

    SummaryOfFindings: str = Field(description="the findings, and what follows from them for the objective")
    ExplorationTrace: list[str] = Field(description="step by step, what was looked at and why")
    RelevantLocations: list[Location] = Field(description="the places that matter, the most important first")


class InvestigateInput(WorkflowInput):
    """Input of `investigate`."""

    objective: str = Field(
        min_length=1, description="the user's request word for word, and what else you want to know ★"
    )


class InvestigateOutput(WorkflowOutput):
    """Output of `investigate`."""

    status: EndReason
    report: Report | None = None
    partial: str | None = None
    """What was found, where no valid report came of it."""
    reason: str | None = None
