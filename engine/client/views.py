"""views: everything that a front end looks at, as the typed rows that `--json` prints. Imports neither LangGraph nor
pydantic until the content of messages or files is asked for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from interlock.engine import read
from interlock.engine.client.deciders import sentence
from interlock.engine.options import Options
from interlock.engine.read import RunRow
from interlock.engine.read import calls as of_calls
from interlock.engine.read.calls import Call
from interlock.engine.store import checkpoints as of_states
from interlock.engine.store.blobs import patch_of
from interlock.engine.store.places import undone as undone_of
from interlock.engine.store.runs import deepest
from interlock.state.errors import UserError
from interlock.state.names import display_name, is_hidden_node
from interlock.state.text import one_line

if TYPE_CHECKING:
    from interlock.engine import masking
    from interlock.engine import run_files as files
    from interlock.engine.client import changes as changes
    from interlock.engine.client import ended, record
    from interlock.engine.effect_hints import Hint
    from interlock.engine.read import run_path
    from interlock.engine.read.lives import Life
    from interlock.engine.store import audited, keeping, usage
    from interlock.engine.store import chain as records
    from interlock.engine.store import damage as losses
    from interlock.engine.store.usage import Sums as Sums
    from interlock.engine.travel import record as whole
    from interlock.engine.workflows import Listed
    from interlock.graphs._pipeline import Pipeline
    from interlock.state.messages import Message
    from interlock.state.settings import Settings
else:

    class _Late:
        """A module that is imported when something of it is first asked for."""

        def __init__(self, name: str) -> None:
            self._name = f"interlock.engine.{name}"

        def __getattr__(self, part: str) -> Any:
            return getattr(import_module(self._name), part)

    audited, keeping, usage, losses, records = map(
        _Late, ("store.audited", "store.keeping", "store.usage", "store.damage", "store.chain")
    )
    changes, ended, record, files, whole, run_path, masking = map(
        _Late,
        (
            "client.changes",
            "client.ended",
            "client.record",
            "run_files",
            "travel.record",
            "read.run_path",
            "masking",
        ),
    )

P = ParamSpec("P")
R = TypeVar("R")


def settings_of(folder: Path) -> "Settings":
    """A folder's settings as they are now. Raises `ConfigError`."""
    return files.settings_of(folder)


def later(find: Callable[[], Callable[Concatenate[Path, P], R]]) -> Callable[Concatenate["Views", P], R]:
    """A method that calls a function with the client's state directory first.

    `find` returns the function; it isn't called before the method is, so that no import comes early.
    """

    def method(self: "Views", *args: P.args, **kwargs: P.kwargs) -> R:
        return find()(self.home, *args, **kwargs)

    return method


def of_run(
    find: Callable[[], Callable[Concatenate[Path, RunRow, P], R]],
) -> Callable[Concatenate["Views", str, P], R]:
    """As `later`, of a function that takes a run's row next: the method takes the run's name, and finds the row."""

    def method(self: "Views", run: str, *args: P.args, **kwargs: P.kwargs) -> R:
        return find()(self.home, self.run(run), *args, **kwargs)

    return method


_TROUBLES = {"died": "The run crashed", "node": "A node of the run failed"}
"""Kind of a run's error → what happened."""


_MOST_CALLS = 20


def _listed_calls(made: Sequence[Call]) -> str:
    """The calls that there are, one a line, each with its number."""
    if not made:
        return "The run made none."
    shown = [f"  {number}  {one_line(call.tool, 60)}, {call.state}" for number, call in enumerate(made, 1)]
    more = len(shown) - _MOST_CALLS
    rest = [f"  … and {more} earlier"] if more > 0 else []
    return "\n".join(["There are:", *rest, *shown[-_MOST_CALLS:]])


class Views:
    """What can be seen of runs without driving one. A run is named by its id; `run` finds it by a shorter name."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home = options.home

    runs = later(lambda: read.list_runs)
    named_runs = later(lambda: read.named_runs)
    undone = later(lambda: undone_of)
    requests = later(lambda: read.waiting_requests)
    past_requests = later(lambda: read.past_requests)
    idle = later(lambda: read.idle)
    steps = later(lambda: read.steps)
    places = later(lambda: read.places)
    here = later(lambda: read.here)
    step_rows = later(lambda: read.step_rows)
    waits = later(lambda: read.waits)
    checkpoints = later(lambda: of_states.root_checkpoints)
    due = later(lambda: of_states.due_within)
    current_state = later(lambda: of_states.current_state)
    calls = later(lambda: of_calls.calls)
    results = later(lambda: of_calls.results)
    agents = later(lambda: of_calls.agents)
    reasons = later(lambda: of_calls.reasons)
    effects = later(lambda: of_calls.effects)
    answered = later(lambda: of_calls.answered)
    models = later(lambda: read.models)
    exact = later(lambda: read.exact_run)
    innermost = later(lambda: deepest)
    dropped = later(lambda: records.dropped)
    told = later(lambda: record.events)
    seen_at = later(lambda: record.seen_at)
    statistics = later(lambda: usage.statistics)
    sizes = later(lambda: keeping.sizes)
    prune_plan = later(lambda: keeping.plan)
    prune = later(lambda: keeping.prune)
    audit_problems = later(lambda: audited.verify)
    audit_records = later(lambda: audited.records)
    audit_head = later(lambda: audited.head)
    export = of_run(lambda: whole.record_of)
    output = of_run(lambda: ended.output_of)
    unkept = of_run(lambda: files.unkept)
    graph_path = of_run(lambda: run_path.read_path)
    file_text = of_run(lambda: files.text_of)
    settings = staticmethod(settings_of)

    def to_continue(self, prompted: bool) -> RunRow:
        """The run that `-c` means."""
        return read.to_continue(self.home, self.options.workspace, prompted)

    def run(self, name: str, workspace: Path | None = None) -> RunRow:
        """A run by id, unique prefix or `latest`, of a workspace, by default this folder. Raises `UserError`."""
        return read.find_run(self.home, name, workspace or self.options.workspace)

    def state(self, run: str, step: int | None = None) -> dict[str, Any]:
        """The state after a root step, by default the newest, without secrets. Raises `UserError` naming the steps."""
        return self._masked(run, of_states.state_at(self.home, run, step))

    def state_within(self, run: str) -> dict[str, Any]:
        """The newest state of a tool batch in progress or waiting, without secrets; empty if there is none."""
        return self._masked(run, of_states.state_within(self.home, run))

    def _masked(self, run: str, values: dict[str, Any]) -> dict[str, Any]:
        return masking.masked(values, masking.redactor_at(Path(self.run(run).workspace), self.home))

    def path(self, run: str) -> list[tuple[str, int]]:
        """The root graph's nodes in order, with consecutive repetitions counted."""
        return read.path([step for step in self.steps(run) if not is_hidden_node(step.node)])

    def graph_marks(
        self, run: str, declared: Mapping[str, Iterable[tuple[str, str]]], until: int | None = None
    ) -> "run_path.Marks":
        """What a drawing with these edges marks of the run's path; `until`: only up to this root step."""
        return run_path.marks_of(self.graph_path(run, until=until), declared)

    def stopped_in(self, run: RunRow) -> list[str]:
        """The nodes that an interrupted run was in, with the graphs around them; empty for other runs."""
        found = self.due(run.run) if run.status == "interrupted" else []
        return [" › ".join(map(display_name, due.place)) for due in found]

    def trouble(self, run: RunRow) -> dict[str, str] | None:
        """What stopped a run that crashed or failed, where, and what to do; None: nothing is wrong with it."""
        if run.error is None or run.status not in ("interrupted", "failed"):
            return None
        headline = _TROUBLES.get(
            run.error["type"], "The run failed" if run.status == "failed" else "The run stopped"
        )
        again = f"Resume it: it goes on after step {run.step}. In a terminal: interlock resume {run.run}"
        over = (
            f"Start another run, or fork this one at an earlier step. What it did: interlock show {run.run}"
        )
        return {
            "headline": headline,
            "what": run.error["message"],
            "where": ", ".join(self.stopped_in(run)),
            "advice": again if run.status == "interrupted" else over,
        }

    def damage(self, run: str) -> list[str]:
        """A line for each record that was lost or changed."""
        return list(losses.damage(self.home, run))

    def messages(self, run: str, state: dict[str, Any], key: str = "head") -> "list[Message]":
        """The messages up to the record that a state names."""
        return records.messages_at(self.home, run, str(state.get(key) or ""))

    def call(self, run: str, name: str) -> Call:
        """A call by its number in `calls`, from 1, or by its id. Raises `UserError`."""
        return of_calls.of_call(self.calls(run), name, run)

    def life(self, run: str, chart: str, call: str | None = None) -> "Life":
        """The way that the run's mode, or a call, took through its statechart. Raises `UserError`."""
        from interlock.engine.read import lives

        if chart not in ("tool-call", "approval-mode"):
            raise UserError(
                f"The path of a run through {chart!r} isn't recorded. Its status: interlock show {run}"
            )
        if chart == "tool-call" and call is None:
            raise UserError(f"Which call? Name it with --call N. {_listed_calls(self.calls(run))}")
        found = lives.mode_life(self.home, run) if call is None else lives.call_life(self.home, run, call)
        moves = (
            move._replace(why=move.why or sentence(move.by)) if move.by else move for move in found.moves
        )
        return found._replace(moves=tuple(moves))

    def costs(self, run: str) -> dict[str, dict[str, Any]]:
        """`models`, with what each cost in US dollars; null where no price is known."""
        return whole.costs(self.run(run), self.models(run))

    def patch(self, run: str) -> bytes:
        """What a run changed, for `git apply`. Raises `UserError` if there is nothing."""
        row = self.run(run)
        if (kept := patch_of(self.home, row.run)) is not None:
            return kept
        if not Path(row.workspace).is_dir():
            raise UserError(f"Run {row.run!r} has no patch: it isn't done, or changed nothing.")
        return self.diff(row.run).encode(errors="surrogateescape")

    def diff(self, run: str, call: str | None = None, until: int | None = None) -> str:
        """What a run's conversation, or one call, changed in the workspace's files, as git shows it.

        A fork in the same folder has the changes up to its fork, too. `until`: only what was done by that root step;
        empty if that is nothing. Raises `UserError`.
        """
        from interlock.engine.fleet.checkout import at_hand

        row = self.run(run)
        before = [] if call or until is not None else files.inherited_here(self.home, row)
        chosen = before or files.chosen_of(self.home, row, call)
        if until is not None:
            chosen = [one for one in chosen if one.after and one.root_step < until]
        if not chosen:
            return ""
        with at_hand(self.home, row, files=not all(one.after for one in chosen)) as here:
            return files.diff_of(self.home, here, chosen)

    def no_worker(self, rows: Sequence[RunRow]) -> str:
        """A line on those of these runs that wait because no worker is alive; empty if none does."""
        if not (queued := [row.run for row in rows if row.status == "queued"]):
            return ""
        from interlock.engine.client.fleet import no_worker

        return no_worker(self.home, queued)

    def workflow(self, name: str, with_own_nodes: bool = False) -> "Pipeline":
        """A workflow of ours, or of the user, also with the nodes that settings add. Raises `InterlockError`."""
        from interlock.engine.workflows import find_workflow

        found, _ = find_workflow(name, self.options)
        if not with_own_nodes:
            return found
        from interlock.engine.driver import of_run, prepare

        return of_run.with_own_nodes(found, prepare.prepare(self.options, needs_model=False))

    def effect_hints(self, name: str) -> "list[Hint]":
        """Calls of a workflow's nodes that a kill could repeat outside. Raises `InterlockError`."""
        from interlock.engine.effect_hints import effect_hints

        return effect_hints(self.workflow(name))

    def own_workflows(self) -> "tuple[list[Listed], list[str]]":
        """The user's own workflows, and a line for each folder of them that doesn't count."""
        from interlock.engine.workflows import ignored, listed

        return listed(self.options), ignored(self.options)
