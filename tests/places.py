"""places: a workspace with a store and a home, in which workflows are run."""

import os
from pathlib import Path
from typing import Any

from interlock.engine import Options, Outcome, run_sync
from interlock.engine.diagrams import taken_edges
from interlock.engine.read import list_step_rows
from interlock.engine.read.run_path import build_run_path


class Place:
    """A workspace and a store of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.work.mkdir(parents=True)
        (self.work / "a.txt").write_text("one\ntwo\n")

    def options(self, env: dict[str, str] | None = None, **given: Any) -> Options:
        given = {"model": "gemini-2.5-pro", **given}
        home = {"home": self.folder / "home", "user_home": self.folder / "user"}
        return Options(**home, workspace=self.work, env={"PATH": os.environ["PATH"], **(env or {})}, **given)

    def run(self, workflow: str, given: dict[str, Any], **options: Any) -> Outcome:
        outcome = run_sync(workflow, given, options=self.options(**options))
        assert outcome.status == "done", outcome.error
        return outcome

    def taken(self, outcome: Outcome) -> set[tuple[str, str, str]]:
        """The edges that a run took."""
        rows = list_step_rows(self.folder / "home", outcome.run)
        return taken_edges(outcome.workflow, build_run_path(rows, "done"))
