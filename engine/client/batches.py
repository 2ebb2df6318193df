"""batches: a file of inputs, a run for each of its lines, and which run a line has after a batch was stopped."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock.engine.store import queries
from interlock.engine.store.runs import new_run_id
from interlock.state.errors import InputError


@dataclass(frozen=True)
class Batch:
    """One execution of a file, which may have been stopped and resumed."""

    id: str
    file: str
    folder: str
    """Where its runs work."""
    begun: Mapping[int, str] = field(default_factory=dict[int, str])
    """Line → digest of the input that its run has."""

    def run_id_for_line(self, line: int) -> str:
        """The id of a line's run, whether it has begun or not: two processes can't begin it twice."""
        return f"{self.id}-{line}"

    def batch_option_for_line(self, line: int, line_input: Mapping[str, Any]) -> dict[str, str]:
        """What a line's run keeps of its batch (`Options.batch`)."""
        return {
            "id": self.id,
            "file": self.file,
            "folder": self.folder,
            "line": str(line),
            "input": _input_digest(line_input),
        }

    def check_lines_unchanged(self, lines: Mapping[int, Mapping[str, Any]]) -> None:
        """Raises `InputError` that names the lines which aren't what their runs were begun with."""
        gone = sorted(line for line in self.begun if line not in lines)
        other = sorted(
            line for line, was in self.begun.items() if line in lines and _input_digest(lines[line]) != was
        )
        found = [f"line {line} has changed" for line in other] + [f"line {line} is gone" for line in gone]
        if found:
            more = f" and {len(found) - 3} more" if len(found) > 3 else ""
            raise InputError(
                f"--batch {self.file} --resume: {', '.join(found[:3])}{more} since the batch began. Restore the file, "
                "or leave out --resume to run all of it anew.",
                "batch",
            )


def make_batch(file: str, folder: Path) -> Batch:
    return Batch(new_run_id(), _absolute_file_name(file), str(folder))


def find_newest_batch(home: Path, workflow: str, file: str, folder: Path) -> Batch | None:
    """The newest batch of this file that was begun with this workflow in this folder."""
    found: Batch | None = None
    begun: dict[int, str] = {}
    for run, options in queries.list_batch_runs(home, workflow):
        kept: dict[str, str] = json.loads(options)["batch"]
        if (kept["file"], kept["folder"]) != (_absolute_file_name(file), str(folder)):
            continue
        if found is None:
            found = Batch(kept["id"], kept["file"], kept["folder"], begun)
        if run == found.run_id_for_line(line := int(kept["line"])):  # no fork of one
            begun[line] = kept["input"]
    return found


def _absolute_file_name(file: str) -> str:
    return file if file == "-" else str(Path(file).expanduser().resolve())


def _input_digest(line_input: Mapping[str, Any]) -> str:
    text = json.dumps(line_input, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
