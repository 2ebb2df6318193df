"""views: everything that a front end looks at, as the typed rows that `--json` prints. Imports neither LangGraph nor
pydantic until the content of messages or files is asked for."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.engine import read
from interlock.engine.client.decision_lines import format_decision
from interlock.engine.options import Options
from interlock.engine.read import ExecutedNode, Request, RunRow, Step
from interlock.engine.read import calls as of_calls
from interlock.engine.read.calls import Agent, Call, Effect, Reason
from interlock.engine.read.shared_folders import shared_folder_lines
from interlock.engine.store import checkpoints as of_states
from interlock.engine.store.blobs import load_run_patch
from interlock.engine.store.checkpoints import DueNode, RootCheckpoint
from interlock.engine.store.queries import Row
from interlock.engine.store.runs import find_innermost_waiting_subtask
from interlock.engine.store.workspaces import UndoNote, list_undo_notes
from interlock.state.errors import UserError
from interlock.state.names import is_hidden_node, node_display_name
from interlock.state.text import to_one_line

if TYPE_CHECKING:
    from interlock.engine.client.record import RecordExtent
    from interlock.engine.effect_hints import Hint
    from interlock.engine.read.lifecycles import Lifecycle
    from interlock.engine.read.run_path import Marks, RunPath
    from interlock.engine.store import retention
    from interlock.engine.store.snapshots import Snapshot
    from interlock.engine.store.statistics import By
    from interlock.engine.store.statistics import Sums as Sums
    from interlock.engine.workflows import ListedWorkflow
    from interlock.graphs.pipeline import Pipeline
    from interlock.state.events import Event
    from interlock.state.messages import Message
    from interlock.state.settings import Settings

_T = TypeVar("_T")


def load_folder_settings(folder: Path) -> "Settings":
    """A folder's settings as they are now. Raises `ConfigError`."""
    from interlock.services.configuration import load_default_configuration

    return load_default_configuration(folder).loaded_settings.settings


_TROUBLES = {"died": "The run crashed", "node": "A node of the run failed"}
"""Kind of a run's error → what happened."""


_MOST_CALLS = 20


def _call_list_text(calls: Sequence[Call]) -> str:
    """The calls that there are, one a line, each with its number."""
    if not calls:
        return "The run made none."
    shown = [
        f"  {number}  {to_one_line(call.tool, 60)}, {call.state}" for number, call in enumerate(calls, 1)
    ]
    more = len(shown) - _MOST_CALLS
    rest = [f"  … and {more} earlier"] if more > 0 else []
    return "\n".join(["There are:", *rest, *shown[-_MOST_CALLS:]])


class Views:
    """What can be seen of runs without driving one. A run is named by its id; `run` finds it by a shorter name."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.home = options.home

    def runs(
        self, status: str | None = None, limit: int | None = None, offset: int = 0, **field_values: str
    ) -> list[RunRow]:
        """Runs, most recently changed first; empty if there is no store. Raises `StoreError`.

        `limit`: only so many of the newest, but for the first `offset`. `field_values`: values of stored fields.
        """
        return read.list_runs(self.home, status, limit, offset, **field_values)

    def runs_by_id(self, run_ids: Sequence[str]) -> list[RunRow]:
        """The runs with exactly these ids, as far as they exist; most recently changed first."""
        return read.list_runs_by_id(self.home, run_ids)

    def undo_notes(self, run: str) -> list[UndoNote]:
        """What was taken back, in order."""
        return list_undo_notes(self.home, run)

    def waiting_requests(
        self, run: str | None = None, limit: int | None = None, offset: int = 0
    ) -> list[Request]:
        """Requests pending a person's answer, of one run or all: the longest wait first, a run's in the order asked.

        `limit`: of so many runs, but for the first `offset`.
        """
        return read.list_waiting_requests(self.home, run, limit, offset)

    def describe_past_requests(self, run: str) -> dict[str, str]:
        """What became of the requests of this run, and of related ones, that no longer wait: by id and by number."""
        return read.describe_past_requests(self.home, run)

    def explain_why_no_request_waits(self, run: str) -> str:
        """Why no request of a run waits, and what to do."""
        return read.explain_why_no_request_waits(self.home, run)

    def steps(self, run: str) -> list[Step]:
        """Every executed node, in the order they ended."""
        return read.list_steps(self.home, run)

    def executed_nodes(self, run: str, since: int = 0, deep: bool = False) -> list[ExecutedNode]:
        """Executed nodes from the one with the number `since` on; unless `deep`, those of the root graph."""
        return read.list_executed_nodes(self.home, run, since, deep)

    def current_node_path(self, run: str) -> str:
        """Where a run is or stopped: the node that ended last, or the graph that it was in the middle of."""
        return read.find_last_node_or_graph_path(self.home, run)

    def step_rows(self, run: str) -> list[Row]:
        """The rows of `steps`."""
        return read.list_step_rows(self.home, run)

    def waiting_tasks(self, run: str) -> list[Row]:
        """Tasks that have asked a person, where their graph stands now; some may be done."""
        return read.list_waiting_tasks(self.home, run)

    def checkpoints(self, run: str) -> list[RootCheckpoint]:
        """Root checkpoints, the oldest first. A step repeated after a crash has two: the newer counts."""
        return of_states.list_root_checkpoints(self.home, run)

    def due_nodes(self, run: str) -> list[DueNode]:
        """The nodes that the newest checkpoints of a run's graphs lead to and that haven't ended, innermost ones."""
        return of_states.list_innermost_due_nodes(self.home, run)

    def unmasked_state(self, run: str) -> dict[str, Any]:
        """The newest state; empty for a run that was killed before its first checkpoint."""
        return of_states.read_newest_state(self.home, run)

    def calls(self, run: str) -> list[Call]:
        """Tool calls in the order they finished; those without a result last."""
        return of_calls.list_calls(self.home, run)

    def results_by_call_id(self, run: str) -> dict[str, dict[str, Any]]:
        """Call id → the complete result of each finished call: `status`, `content`, `error`, `meta`."""
        return of_calls.read_results_by_call_id(self.home, run)

    def agents(self, run: str) -> list[Agent]:
        """Every sub-agent started, each below its parent, in call order."""
        return of_calls.list_agents(self.home, run)

    def route_reasons(self, run: str) -> list[Reason]:
        """Reasons in the order the nodes ended."""
        return of_calls.list_node_reasons(self.home, run)

    def effects(self, run: str) -> list[Effect]:
        """The effects of the run's nodes, in the order in which they began."""
        return of_calls.list_effects(self.home, run)

    def answered_requests(self, run: str) -> Iterator[dict[str, Any]]:
        """Answered requests: id, kind, tool, choice, by whom, when."""
        return of_calls.list_answered_requests(self.home, run)

    def model_usage(self, run: str) -> dict[str, dict[str, Any]]:
        """Model → requests, tokens and cost."""
        return read.read_usage_by_model(self.home, run)

    def find_exact_run(self, name: str) -> RunRow | None:
        """The run with exactly this id; None: there is none."""
        return read.find_exact_run(self.home, name)

    def innermost_waiting_subtask(self, run: str) -> str:
        """The innermost subtask a task is waiting for; the run itself if there is none."""
        return find_innermost_waiting_subtask(self.home, run)

    def dropped_messages(self, run: str, head: str | None = None) -> "list[list[Message]]":
        """The messages each compression or masking removed from the conversation, verbatim, oldest first."""
        from interlock.engine.store.chain import list_dropped_messages

        return list_dropped_messages(self.home, run, head)

    def read_conversation_events(self, run: str, step: int | None = None) -> "list[Event]":
        """The conversation so far, or up to a root step, with what was compressed away. Reads the store alone."""
        from interlock.engine.client.record import read_conversation_events

        return read_conversation_events(self.home, run, step)

    def read_record_extent_at_step(self, run: str, step: int) -> "RecordExtent":
        """The part of `told` that a root step had. Raises `UserError` naming the existing steps."""
        from interlock.engine.client.record import read_record_extent_at_step

        return read_record_extent_at_step(self.home, run, step)

    def statistics(self, by: "By", since: float = 0.0) -> "dict[str, Sums]":
        """Key → sums, ordered by key: days (YYYY-MM-DD, of this machine's time zone), or names. `since`: unix time."""
        from interlock.engine.store.statistics import compute_statistics

        return compute_statistics(self.home, by, since)

    def state_directory_sizes(self) -> dict[str, int]:
        """Part of the state directory → bytes, the largest first; the database without the pages that are free."""
        from interlock.engine.store.retention import state_directory_sizes

        return state_directory_sizes(self.home)

    def plan_pruning(
        self, now: float, keep_days: int | None, max_gb: float | None
    ) -> "retention.RetentionPlan":
        """What to delete: ended runs unchanged for `keep_days`, then the oldest until the rest fits into `max_gb`."""
        from interlock.engine.store.retention import plan_retention

        return plan_retention(self.home, now, keep_days, max_gb)

    def prune_runs(self, plan: "retention.RetentionPlan") -> "Iterator[retention.DueRun]":
        """Delete the runs, each as it is yielded, then give their pages back. One that somebody drives now stays."""
        from interlock.engine.store.retention import delete_due_runs

        return delete_due_runs(self.home, plan)

    def export_record(self, run: str) -> dict[str, Any]:
        """The record of a run, JSON-like. Costs are in US dollars if settings have a price for the model, else null."""
        from interlock.engine.travel.run_export import export_run

        return export_run(self.home, self.find_run(run))

    def load_output(self, run: str) -> Mapping[str, Any]:
        """The output of a run that ended well, as it is shown; empty for others, and if its workflow doesn't load."""
        from interlock.engine.driver.outcome import load_output

        return load_output(self.home, self.find_run(run))

    def unrestorable_changes_line(self, run: str) -> str:
        """A line on what can't be taken back: calls without snapshots, files of included directories; else empty."""
        from interlock.engine.run_files import unrestorable_changes_line

        return unrestorable_changes_line(self.home, self.find_run(run))

    def read_graph_path(
        self, run: str, request_lines: Iterable[str] = (), until_step: int | None = None
    ) -> "RunPath":
        """Return a run's path as the store has it; `until_step`: up to this root step, as if it had stopped there."""
        from interlock.engine.read.run_path import read_run_path

        return read_run_path(self.home, self.find_run(run), request_lines, until_step)

    def read_file_text(self, run: str, path: str, limit: int) -> str:
        """The text of a file as the run's tools may read it, without secrets."""
        from interlock.engine.run_files import read_masked_workspace_text

        return read_masked_workspace_text(self.home, self.find_run(run), path, limit)

    settings = staticmethod(load_folder_settings)

    def find_run_to_continue(self, has_prompt: bool) -> RunRow:
        """The run that `-c` means."""
        return read.find_run_to_continue(self.home, self.options.workspace, has_prompt)

    def find_run(self, name: str, workspace: Path | None = None) -> RunRow:
        """A run by id, unique prefix or `latest`, of a workspace, by default this folder. Raises `UserError`."""
        return read.find_run(self.home, name, workspace or self.options.workspace)

    def masked_state(self, run: str, step: int | None = None) -> dict[str, Any]:
        """The state after a root step, by default the newest, without secrets. Raises `UserError` naming the steps."""
        return self._mask_secrets(run, of_states.read_state_at_step(self.home, run, step))

    def masked_tool_batch_state(self, run: str) -> dict[str, Any]:
        """The newest state of a tool batch in progress or waiting, without secrets; empty if there is none."""
        return self._mask_secrets(run, of_states.read_tool_batch_state(self.home, run))

    def _mask_secrets(self, run: str, values: dict[str, Any]) -> dict[str, Any]:
        from interlock.engine.masking import load_folder_redactor, mask_secrets

        return mask_secrets(values, load_folder_redactor(Path(self.find_run(run).workspace), self.home))

    def root_nodes_with_repeat_counts(self, run: str) -> list[tuple[str, int]]:
        """The root graph's nodes in order, with consecutive repetitions counted."""
        return read.count_consecutive_root_nodes(
            [step for step in self.steps(run) if not is_hidden_node(step.node)]
        )

    def compute_diagram_marks(
        self, run: str, declared_edges: Mapping[str, Iterable[tuple[str, str]]], until_step: int | None = None
    ) -> "Marks":
        """What a drawing with these edges marks of the run's path; `until_step`: only up to this root step."""
        from interlock.engine.read.run_path import compute_path_marks

        return compute_path_marks(self.read_graph_path(run, until_step=until_step), declared_edges)

    def interrupted_node_paths(self, run: RunRow) -> list[str]:
        """The nodes that an interrupted run was in, with the graphs around them; empty for other runs."""
        found = self.due_nodes(run.run) if run.status == "interrupted" else []
        return [" › ".join(map(node_display_name, due.place)) for due in found]

    def describe_failure(self, run: RunRow) -> dict[str, str] | None:
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
            "where": ", ".join(self.interrupted_node_paths(run)),
            "advice": again if run.status == "interrupted" else over,
        }

    def list_damaged_records(self, run: str) -> list[str]:
        """A line for each record that was lost or changed."""
        from interlock.engine.store.integrity import find_damaged_records

        return list(find_damaged_records(self.home, run))

    def read_messages(self, run: str, state: dict[str, Any], key: str = "head") -> "list[Message]":
        """The messages up to the record that a state names."""
        from interlock.engine.store.chain import read_messages_up_to

        return read_messages_up_to(self.home, run, str(state.get(key) or ""))

    def find_call(self, run: str, name: str) -> Call:
        """A call by its number in `calls`, from 1, or by its id. Raises `UserError`."""
        return of_calls.find_call(self.calls(run), name, run)

    def read_lifecycle(self, run: str, chart: str, call: str | None = None) -> "Lifecycle":
        """The way that the run's mode, or a call, took through its statechart. Raises `UserError`."""
        from interlock.engine.read import lifecycles

        if chart not in ("tool-call", "approval-mode"):
            raise UserError(
                f"The path of a run through {chart!r} isn't recorded. Its status: interlock show {run}"
            )
        if chart == "tool-call" and call is None:
            raise UserError(f"Which call? Name it with --call N. {_call_list_text(self.calls(run))}")
        found = (
            lifecycles.read_approval_mode_lifecycle(self.home, run)
            if call is None
            else lifecycles.read_call_lifecycle(self.home, run, call)
        )
        moves = (
            move._replace(why=move.why or format_decision(move.by)) if move.by else move
            for move in found.moves
        )
        return found._replace(moves=tuple(moves))

    def model_costs(self, run: str) -> dict[str, dict[str, Any]]:
        """`models`, with what each cost in US dollars; null where no price is known."""
        from interlock.engine.travel.run_export import fill_missing_costs

        return fill_missing_costs(self.find_run(run), self.model_usage(run))

    def read_patch(self, run: str) -> bytes:
        """What a run changed, for `git apply`. Raises `UserError` if there is nothing."""
        row = self.find_run(run)
        if (kept := load_run_patch(self.home, row.run)) is not None:
            return kept
        if not Path(row.workspace).is_dir():
            raise UserError(f"Run {row.run!r} has no patch: it isn't done, or changed nothing.")
        from interlock.engine.run_files import make_patch_of_calls

        return self._read_changes_of_calls(row, make_patch_of_calls) or b""

    def diff_files(self, run: str, call: str | None = None, until_step: int | None = None) -> str:
        """What a run's conversation, or one call, changed in the workspace's files, as git shows it.

        A fork in the same folder has the changes up to its fork, too. `until_step`: only what was done by that root
        step; empty if that is nothing. Raises `UserError`.
        """
        from interlock.engine.run_files import diff_calls

        return self._read_changes_of_calls(self.find_run(run), diff_calls, call, until_step) or ""

    def _read_changes_of_calls(
        self,
        row: RunRow,
        look: "Callable[[Path, RunRow, list[Snapshot]], _T]",
        call: str | None = None,
        until_step: int | None = None,
    ) -> _T | None:
        """Return what `look` makes of the calls that `diff_files` means; None: there are none by that step."""
        from interlock.engine.run_files import (
            list_snapshots_if_in_place_fork,
            provide_run_with_local_files,
            require_call_snapshots,
        )

        before = [] if call or until_step is not None else list_snapshots_if_in_place_fork(self.home, row)
        chosen = before or require_call_snapshots(self.home, row, call)
        if until_step is not None:
            chosen = [one for one in chosen if one.after and one.root_step < until_step]
        if not chosen:
            return None
        with provide_run_with_local_files(
            self.home, row, needs_workspace=not all(one.after for one in chosen)
        ) as here:
            return look(self.home, here, chosen)

    def shared_folder_lines(self, rows: Sequence[RunRow]) -> list[str]:
        """A line for each folder in which several of these runs are at work."""
        return shared_folder_lines(rows)

    def missing_worker_line(self, rows: Sequence[RunRow]) -> str:
        """A line on those of these runs that wait because no worker is alive; empty if none does."""
        if not (queued := [row.run for row in rows if row.status == "queued"]):
            return ""
        from interlock.engine.client.fleet import missing_worker_line

        return missing_worker_line(self.home, queued)

    def load_workflow(self, name: str, with_user_processors: bool = False) -> "Pipeline":
        """A workflow of ours, or of the user, also with the nodes that settings add. Raises `InterlockError`."""
        from interlock.engine.workflows import find_workflow

        found, _ = find_workflow(name, self.options)
        if not with_user_processors:
            return found
        from interlock.engine.driver import run_config, run_definition

        return run_definition.add_user_processors(
            found, run_config.prepare_run(self.options, needs_model=False)
        )

    def check_run_code_trusted(self, row: RunRow) -> None:
        """Raise `CodeForbiddenError` if the run's row names code that a look may not run on this host."""
        from interlock.engine.driver.run_definition import check_run_code_trusted

        check_run_code_trusted(row, self.options)

    def find_unguarded_effects(self, name: str) -> "list[Hint]":
        """Calls of a workflow's nodes that a kill could repeat outside. Raises `InterlockError`."""
        from interlock.engine.effect_hints import find_unguarded_effects

        return find_unguarded_effects(self.load_workflow(name))

    def list_user_workflows(self) -> "tuple[list[ListedWorkflow], list[str]]":
        """The user's own workflows, and a line for each folder of them that doesn't count."""
        from interlock.engine.workflows import ignored_workflows_warning, list_user_workflows

        return list_user_workflows(self.options), ignored_workflows_warning(self.options)
