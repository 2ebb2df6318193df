"""switch_mode: continue in another mode of work."""

from pydantic import Field

from interlock.state.calls import ToolResult
from interlock.state.tooling import Args, Tool, ToolContext


class SwitchModeArgs(Args):
    mode_slug: str = Field(min_length=1, description="Slug of the mode.")
    reason: str = Field(default="", description="Why it fits better, in one sentence.")


async def run(args: SwitchModeArgs, context: ToolContext) -> ToolResult:  # noqa: ARG001 - every tool has this shape
    because = f" because: {args.reason.strip()}" if args.reason.strip() else ""
    text = f"You go on in mode {args.mode_slug!r}{because}. Its tools and its rules hold from now on."
    return ToolResult(
        status="success", content=text, meta={"switch_to_mode": args.mode_slug, "summary": args.mode_slug}
    )


TOOL = Tool(
    name="switch_mode",
    description="Goes on in another mode of work, with its tools and its rules; the user is asked.",
    args=SwitchModeArgs,
    risk="state",
    summary=lambda args: f"Switch to mode {args.mode_slug}" + (f": {args.reason}" if args.reason else ""),
    run=run,
)
