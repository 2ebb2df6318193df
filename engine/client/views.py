"""views: everything that a front end looks at, as the typed rows that `--json` prints. Imports neither LangGraph nor
pydantic until the content of messages or files is asked for."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.engine import read
from interlock.engine.options import Options
from interlock.engine.read import Request, RunRow, Step, calls
from interlock.engine.read.calls import Agent, Call, Reason
from interlock.engine.store import checkpoints
from interlock.engine.store.checkpoints import RootCheckpoint
from interlock.state.errors import UserError

if TYPE_CHECKING:
    from interlock.engine.workflows import Listed
    from interlock.graphs._pipeline import Pipeline
    from interlock.state.messages import Message
    from interlock.state.settings import Settings


def settings_of(folder: Path) -> "Settings":
    """A folder's settings as they are now. Raises `ConfigError`."""
    from interlock.engine.travel import files

    return files.settings_of(folder)


class Views:
    """What can be seen of runs without driving one. A run is named by its id; `run` finds it by a shorter name."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home = options.home

    def runs(self, status: str | None = None) -> list[RunRow]:
        """All runs, most recently changed first. Raises `StoreError`."""
        return read.list_runs(self.home, status)

    def run(self, name: str, workspace: Path | None = None) -> RunRow:
        """A run by id, unique prefix or `latest`, of a workspace, by default this folder. Raises `UserError`."""
        return read.find_run(self.home, name, workspace or self.options.workspace)

    def requests(self, run: str | None = None) -> list[Request]:
        """What waits for a person, in one run (for a task: in its subtask) or in all."""
        return read.waiting_requests(self.home, run)

    def past_requests(self, run: str) -> dict[str, str]:
        """What became of requests that no longer wait, by id and by number."""
        return read.past_requests(self.home, run)

    def idle(self, run: str) -> str:
        """Why nothing waits in a run, and what to do."""
        return read.idle(self.home, run)

    def innermost(self, run: str) -> str:
        """The subtask that a task waits for, else the run itself."""
        from interlock.engine.store.lineage import deepest

        return deepest(self.home, run)

    def steps(self, run: str) -> list[Step]:
        """Every executed node, in the order they ended."""
        return read.steps(self.home, run)

    def step_rows(self, run: str) -> list[Any]:
        """The steps as `diagrams` reads them."""
        return read.step_rows(self.home, run)

    def path(self, run: str) -> list[tuple[str, int]]:
        """The root graph's nodes in order, with consecutive repetitions counted."""
        return read.path([step for step in self.steps(run) if not step.node.startswith("__")])

    def checkpoints(self, run: str) -> list[RootCheckpoint]:
        """The run's root steps, oldest first."""
        return checkpoints.root_checkpoints(self.home, run)

    def state(self, run: str, step: int | None = None) -> dict[str, Any]:
        """The state after a root step, by default the newest. Raises `UserError` naming the steps there are."""
        return checkpoints.state_at(self.home, run, step)

    def current_state(self, run: str) -> dict[str, Any]:
        """The newest state; empty for a run that was killed before its first checkpoint."""
        try:
            return self.state(run)
        except UserError:
            return {}

    def state_within(self, run: str) -> dict[str, Any]:
        """The state of the graph that works inside the newest step."""
        return checkpoints.state_within(self.home, run)

    def messages(self, run: str, state: dict[str, Any], key: str = "head") -> "list[Message]":
        """The messages up to the record that a state names."""
        from interlock.engine.store.runs import messages_at

        return messages_at(self.home, run, str(state.get(key) or ""))

    def dropped(self, run: str) -> "list[list[Message]]":
        """What compression and masking took out of the conversation."""
        from interlock.engine.store.runs import dropped

        return dropped(self.home, run)

    def calls(self, run: str) -> list[Call]:
        """Tool calls in the order they finished; those without a result last."""
        return calls.calls(self.home, run)

    def call(self, run: str, name: str) -> Call:
        """A call by its number in `calls`, from 1, or by its id. Raises `UserError`."""
        return calls.of_call(self.calls(run), name, run)

    def results(self, run: str) -> dict[str, dict[str, Any]]:
        """Call id → the complete result of each finished call."""
        return calls.results(self.home, run)

    def agents(self, run: str) -> list[Agent]:
        """Every sub-agent started, each below its parent, in call order."""
        return calls.agents(self.home, run)

    def reasons(self, run: str) -> list[Reason]:
        """Reasons that nodes gave for their decisions."""
        return calls.reasons(self.home, run)

    def answered(self, run: str) -> Iterator[dict[str, Any]]:
        """Requests that were answered, by whom and when."""
        return calls.answered(self.home, run)

    def models(self, run: str) -> dict[str, dict[str, int]]:
        """Model → requests and tokens."""
        return read.models(self.home, run)

    def costs(self, run: str) -> dict[str, dict[str, Any]]:
        """`models`, with what each cost in US dollars; null where the settings have no price."""
        from interlock.engine.travel.record import costs

        return costs(self.run(run), self.models(run))

    def export(self, run: str) -> dict[str, Any]:
        """A run's complete record, JSON-like."""
        from interlock.engine.travel.record import record_of

        return record_of(self.home, self.run(run))

    def diff(self, run: str, call: str | None = None) -> str:
        """What a run, or one call, changed in the workspace's files, as git shows it. Raises `UserError`."""
        from interlock.engine.travel.files import chosen_of, diff_of

        row = self.run(run)
        return diff_of(self.home, row, chosen_of(self.home, row, call))

    def unkept(self, run: str) -> str:
        """A line naming included directories, of whose files nothing is kept; empty if there are none."""
        from interlock.engine.travel.files import unkept

        return unkept(self.home, self.run(run))

    def damage(self, run: str) -> list[str]:
        """A line for each record that was lost or changed."""
        from interlock.engine.store.damage import damage

        return list(damage(self.home, run))

    def settings(self, folder: Path) -> "Settings":
        """A folder's settings as they are now. Raises `ConfigError`."""
        return settings_of(folder)

    def workflow(self, name: str, with_own_nodes: bool = False) -> "Pipeline":
        """A workflow of ours, or of the user, also with the nodes that settings add. Raises `InterlockError`."""
        from interlock.engine.workflows import find_workflow

        found, _ = find_workflow(name, self.options)
        if not with_own_nodes:
            return found
        from interlock.engine.driver import prepare, runner

        return runner.with_own_nodes(found, prepare.prepare(self.options, needs_model=False))

    def own_workflows(self) -> "tuple[list[Listed], list[str]]":
        """The user's own workflows, and a line for each folder of them that doesn't count."""
        from interlock.engine.workflows import ignored, listed

        return listed(self.options), ignored(self.options)
