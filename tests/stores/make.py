"""make: makes the runs that a later version must be able to resume, as this version stores them.

`python tests/stores/make.py NAME` writes `NAME.tar.xz`: one run that waits for a person, one killed while its second
command ran, one that is done with two prompts. Run it with the version whose layout is to be kept.
"""

import json
import os
import signal
import sqlite3
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from interlock.engine import Decision, Options, resume_sync, run_sync
from interlock.services.process.processes import SupervisedProcesses


def shell(command: str) -> dict[str, Any]:
    return {"name": "run_shell_command", "args": {"command": command}}


READ = {"name": "read_file", "args": {"file_path": "a.txt"}}
EDIT = {"name": "replace", "args": {"file_path": "a.txt", "old_string": "one", "new_string": "uno"}}
BATCH = [READ, EDIT, shell("echo first >> log"), shell("echo second >> log")]
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "parked": [{"tool_calls": [READ]}, {"text": "Now.", "tool_calls": BATCH}, {"text": "Parked is done."}],
    "killed": [{"tool_calls": [READ]}, {"text": "Now.", "tool_calls": BATCH}, {"text": "Killed is done."}],
    "done": [{"tool_calls": [READ]}, {"text": "First."}, {"text": "Second."}, {"text": "Third."}],
}


def options(folder: Path, run: str) -> Options:
    """The same for whoever makes the store and whoever resumes its runs."""
    work = folder / "work" / run
    work.mkdir(parents=True, exist_ok=True)
    if not (work / "a.txt").exists():
        (work / "a.txt").write_text("one\ntwo\n")
    script = folder / f"{run}.json"  # not in the model's name, which a run's state keeps
    script.write_text(json.dumps(SCRIPTS[run]))
    env = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    return Options(home=folder / "home", user_home=folder, workspace=work, fake=script, env=env)


def _killed_in_the_second_command(folder: Path) -> None:
    first = SupervisedProcesses.run
    seen: list[int] = []

    async def run(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        if len(seen) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return await first(*args, **kwargs)

    SupervisedProcesses.run = run
    resume_sync("killed", decisions=[Decision("all", "proceed_once")], options=options(folder, "killed"))


def main(name: str) -> None:
    target = Path(__file__).resolve().with_name(f"{name}.tar.xz")
    with tempfile.TemporaryDirectory() as temp:
        folder = Path(temp)
        for run, status in (("parked", "waiting"), ("killed", "waiting"), ("done", "done")):
            outcome = run_sync("main", {"prompt": "Do it."}, options=options(folder, run), run_id=run)
            assert outcome.status == status, outcome
        assert resume_sync("done", prompt="And again.", options=options(folder, "done")).status == "done"
        if (pid := os.fork()) == 0:
            _killed_in_the_second_command(folder)
            os._exit(1)
        assert os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        conn = sqlite3.connect(folder / "home" / "interlock.db")
        conn.execute("pragma wal_checkpoint(truncate)")
        conn.close()
        with tarfile.open(target, "w:xz") as out:
            for part in ("home/interlock.db", "home/outputs", *(f"work/{run}" for run in SCRIPTS)):
                out.add(folder / part, part)


if __name__ == "__main__":
    main(sys.argv[1])
