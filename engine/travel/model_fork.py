"""model_fork: continues a run with another model, from one of its steps, in a fork with its own folder.

A person's recorded answer applies only to an identical request; any other request waits.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from interlock.engine.driver import runner
from interlock.engine.driver.run_config import prepare_run
from interlock.engine.driver.run_definition import restore_options
from interlock.engine.driver.stop import provide_stop
from interlock.engine.options import Decision, Options, Outcome, Renderer
from interlock.engine.read import RunRow
from interlock.engine.store.run_copies import change_options_and_newest_checkpoint
from interlock.engine.store.runs import read_run_options
from interlock.engine.travel.fork import Forked, fork_run
from interlock.engine.travel.replay import (
    Paths,
    Prompt,
    RecordedPeople,
    ReplayPoint,
    describe_divergent_step,
    drive_with_recorded_prompts,
    list_later_prompts,
    list_replay_points,
    load_recorded_run,
    read_root_node_path,
)
from interlock.graphs.pipeline import Pipeline
from interlock.graphs.stored_channels import pending_input

_SAME = ("kind", "preview", "questions")
"""What a person sees of a request besides the call."""


@dataclass(frozen=True)
class ModelForkResult:
    """The result of continuing with another model."""

    fork: Forked
    divergence: dict[str, Any] | None
    """The first step whose nodes differ from the recorded ones: `step`, `recorded`, `replayed`."""
    paths: Paths
    outcome: Outcome


async def fork_and_drive_with_model(
    home: Path, name: str, model: str, step: int | None, renderers: Sequence[Renderer] = ()
) -> ModelForkResult:
    """Fork at a root step, by default the first, and drive the fork. Raises `UserError` before it forks."""
    row, chosen, recorded = load_recorded_run(home, name)
    options = _make_checked_fork_options(home, row, chosen, model)
    fork = fork_run(home, row.run, recorded[0].step if step is None else step)
    _set_fork_model(home, fork.run, model)
    outcome = await _drive_fork(home, row.run, fork, options, renderers)
    paths = Paths(read_root_node_path(home, row.run), read_root_node_path(home, fork.run))
    return ModelForkResult(
        fork, _find_first_divergent_step(recorded, list_replay_points(home, fork.run, chosen)), paths, outcome
    )


def _make_checked_fork_options(home: Path, row: RunRow, chosen: Pipeline, model: str) -> Options:
    """The options to drive the fork with; `prepare` raises what is wrong with them."""
    kept = {**read_run_options(home, row.run), "fake": None, "record_to": None}
    options = Options(home=home, model=model, env=dict(os.environ))
    restored_options = restore_options(options, kept, row.workspace)
    chosen.check_model_switch(row.run)
    prepare_run(restored_options, chosen.needs_model)
    return options


def _set_fork_model(home: Path, fork: str, model: str) -> None:
    """Persist the model in the fork, for later resumes too; drop the run's recording or script."""

    def changed(values: dict[str, Any]) -> None:
        for channels in (values, pending_input(values)):
            channels |= {k: v for k, v in (("model", model), ("sticky_model", "")) if k in channels}

    change_options_and_newest_checkpoint(
        home, fork, {"model": model, "fake": None, "record_to": None}, changed
    )


async def _drive_fork(
    home: Path, run: str, fork: Forked, options: Options, renderers: Sequence[Renderer]
) -> Outcome:
    async def resume(run: str, decisions: Sequence[Decision], prompt: Prompt | None = None) -> Outcome:
        asked: Mapping[str, str] = prompt.asked if prompt else {}
        modes: Any = {name: value for name, value in asked.items() if name != "chosen_mode"}
        given, text = replace(options, **modes), prompt and prompt.text
        with provide_stop() as stop:
            return await runner.resume_run(
                run, decisions, text, given, renderers, stop, drive_successors=False
            )

    people = RecordedPeople(home, run, _approval_request_identity)
    prompts = list_later_prompts(home, run, fork.step)
    return await drive_with_recorded_prompts(
        home, fork.run, people, resume, prompts, lambda outcome: outcome.status == "done"
    )


def _approval_request_identity(request: Mapping[str, Any]) -> str:
    shown = {key: request.get(key) or None for key in _SAME}
    return json.dumps([request["tool_name"], request["args"], shown], sort_keys=True)


def _find_first_divergent_step(recorded: list[ReplayPoint], made: list[ReplayPoint]) -> dict[str, Any] | None:
    """The first divergence in nodes; states are ignored, as they differ from the first reply on."""
    sides = (describe_divergent_step(was, now) for was, now in zip_longest(recorded, made))
    return next((one for one in sides if one["recorded"] != one["replayed"]), None)
