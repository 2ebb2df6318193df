"""of_run: the workflow of a run, as it is now, and what a drive of it needs."""

from contextlib import closing
from typing import Any

from interlock.engine.driver.kept import restored
from interlock.engine.driver.prepare import RunConfig, prepare
from interlock.engine.options import Options
from interlock.engine.processors import placed, processor_files
from interlock.engine.read import find_run
from interlock.engine.store import Store, read_options
from interlock.engine.workflows import begun_with
from interlock.graphs._pipeline import Pipeline


def workflow_of(run: str, options: Options) -> tuple[Pipeline, RunConfig]:
    """The workflow of a run, and what a drive of it needs. Raises `InterlockError`."""
    row = find_run(options.home, run, options.workspace)
    kept = restored(options, _kept(Store(options.home), row.run), row.workspace)
    chosen, changed = begun_with(row.run, row.workflow, kept)
    prepared = prepare(kept, chosen.needs_model)
    prepared.warnings.extend(changed)
    return chosen, prepared


def _kept(store: Store, run: str) -> dict[str, Any]:
    with closing(store.connect()) as conn:
        return read_options(conn, run)


def with_own_nodes(chosen: Pipeline, prepared: RunConfig) -> Pipeline:
    """Add the processors from settings and installed packages."""
    root, home = prepared.workspace.root, prepared.options.user_home
    return placed(chosen, processor_files(prepared.settings, root, home, prepared.trusted))
