"""plan: a run's plan and where it stands."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interlock.cli.render.paint import Paint, one_line
from interlock.engine.listing import RunRow


def plan(home: Path, run: RunRow, paint: Paint) -> Iterator[str]:
    """The file, the phase while it is made, the steps once it is approved."""
    if (
        run.workflow != "plan"
        and not (run.parent and run.workflow == "main")
        and not _folder(home, run).is_dir()
    ):
        return
    state = _state(home, run.run)
    if carried_out := _state(home, state["main_run"]) if state.get("main_run") else {}:
        state = {**state, "plan_steps": carried_out["plan_steps"]}
    yield from _told(state, paint)


def _state(home: Path, run: str) -> dict[str, Any]:
    """Nothing of a run that was killed before its first checkpoint."""
    from interlock.engine.snapshot import state_at, state_within
    from interlock.state.errors import UserError

    try:
        state = state_at(home, run)
        # A batch moves the phase when its review begins, the run when the batch is over.
        return {**state, **{k: v for k, v in state_within(home, run).items() if k == "plan_phase"}}
    except UserError:
        return {}


def _folder(home: Path, run: RunRow) -> Path:
    return home / "plans" / run.run


def _told(state: Mapping[str, Any], paint: Paint) -> Iterator[str]:
    if not state.get("plan_file") and not state.get("plan_phase"):
        return
    steps: Sequence[Mapping[str, Any]] = state.get("plan_steps") or ()
    done = sum(step["done"] for step in steps)
    stands = (
        f"{done} of {len(steps)} steps done" if state.get("approved_plan") else state.get("plan_phase", "")
    )
    yield f"plan    {state.get('plan_file') or 'not written yet'} · {paint(stands, 'bold')}"
    for step in steps:
        yield f"        {paint('✓', 'green') if step['done'] else '·'} {one_line(step['text'], 100)}"
    if state.get("main_run"):
        yield f"        carried out by run {state['main_run']}: interlock show {state['main_run']}"
