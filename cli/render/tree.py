"""tree: the sub-agents of a run, each below the one that started it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from interlock.cli.render.figures import amount, elapsed
from interlock.cli.render.paint import Paint
from interlock.engine.listing_agents import Agent, agents

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
