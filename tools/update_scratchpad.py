"""update_scratchpad: update an investigator's checklist, questions and findings."""

from pydantic import Field

from interlock.state.calls import ToolResult
from interlock.state.text import counted
from interlock.state.tooling import Args, Tool, always


class UpdateScratchpadArgs(Args):
    checklist: list[str] | None = Field(
        default=None, description="What is left to look at. Replaces the old list; leave it out to keep that."
    )
    questions: list[str] | None = Field(
        default=None,
        description="Questions that are still open. Replaces the old list; [] when all are answered.",
    )
    findings: list[str] = Field(
        default_factory=list[str], description="New findings, each with its file. Added to the old ones."
    )
    ignored_paths: list[str] = Field(
        default_factory=list[str],
        description="New paths that turned out not to matter. Added to the old ones.",
    )


TOOL = Tool(
    name="update_scratchpad",
    description="Keeps your scratchpad: what to look at, what is open, what you found, what doesn't matter. Call it in"
    " every turn, beside other calls.",
    args=UpdateScratchpadArgs,
    risk="state",
    summary=lambda args: f"Scratchpad: {counted(len(args.findings), 'new finding')}",
    # The graph keeps the scratchpad; the call has only the changes.
    run=always(ToolResult(status="success", content="The scratchpad is updated.")),
)
