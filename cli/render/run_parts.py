"""run_parts: what `show` prints of a run beside its calls: the plan, sub-agents, why it decided as it did."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from interlock.cli.render.figures import amount, elapsed
from interlock.cli.render.paint import Paint, one_line
from interlock.engine.read.agents import Agent, agents
from interlock.engine.read.calls import reasons
from interlock.engine.read.runs import RunRow


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
    from interlock.engine.read.snapshot import state_at, state_within
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


_STYLES = {"goal": "green", "": "yellow"}


def tree(home: Path, run: str, paint: Paint) -> Iterator[str]:
    """A line for each: state or reason of its end, turns, tokens, time."""
    found = agents(home, run)
    for number, agent in enumerate(found):
        name = agent.path.rpartition("/")[2]
        word = agent.reason or agent.state
        facts = [f"{agent.turns} turns" if agent.turns != 1 else "1 turn", f"{amount(agent.tokens)} tokens"]
        if agent.seconds is not None:
            facts.append(elapsed(agent.seconds))
        told = paint(word, _STYLES.get(agent.reason, "red"))
        lead = "agents" if number == 0 else ""
        yield f"{lead:<8}{_branches(found, number)} {name} · {told} · {' · '.join(facts)}"


def _branches(found: Sequence[Agent], number: int) -> str:
    """Lines that lead from the parents to this one."""
    marks: list[str] = []
    for level in range(found[number].depth + 1):
        more = _goes_on(found, number, level)
        if level == found[number].depth:
            marks.append("├─" if more else "└─")
        else:
            marks.append("│ " if more else "  ")
    return "".join(marks)


def _goes_on(found: Sequence[Agent], number: int, level: int) -> bool:
    """Another agent of this level follows, below the same parent."""
    for later in found[number + 1 :]:
        if later.depth < level:
            return False
        if later.depth == level:
            return True
    return False


_LABELS = {"use_model": "model", "note_loop": "loop"}
"""Nodes whose reasons people want to know without asking; the others are in --json."""


def reason_lines(home: Path, run: str) -> Iterator[str]:
    """One line for each, the label only where it changes."""
    shown = ""
    for found in reasons(home, run):
        label = _LABELS.get(found.node, "")
        if label:
            yield f"{label if label != shown else '':<8}{one_line(found.reason, 400)} (step {found.step})"
            shown = label
