"""scene: the run that is killed: parallel reads, several edits of one file, shell commands, approvals, a question."""

import hashlib
import json
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from folders import put
from scripted import call, tools

from interlock.engine import Options, Outcome
from interlock.engine.store import open_reader, prepare_state_directory_for_store
from interlock.engine.store.connection import Connection

RUN = "killtest"
Replies = Sequence[dict[str, Any]]


def shell(word: str, more: str = "") -> dict[str, Any]:
    """A command that leaves a word outside of the workspace, once for each time that it runs."""
    return call("run_shell_command", command=f"echo {word} >> ../effects.log{more}")


LIST = call("list_directory", dir_path=".")
READ_A, READ_B = (call("read_file", file_path=name) for name in ("a.txt", "b.txt"))
EDITS = [
    call("replace", file_path="a.txt", old_string=old, new_string=new)
    for old, new in (("one", "uno"), ("two", "dos"))
]
FRESH = call("write_file", file_path="sub/new.txt", content="fresh\r\nlines\r\n")
REPLIES: Replies = [
    tools(READ_A, READ_B, LIST, thought="look around", text="I look first."),
    tools(*EDITS, shell("first", "; cat a.txt"), READ_A, text="Now I edit."),
    tools(FRESH, shell("second"), shell("third"), call("no_such_tool")),
    {"text": "All done."},
]
SHORT: Replies = [
    tools(READ_B, LIST, *EDITS, shell("first", "; cat a.txt"), text="I read and edit."),
    {"text": "All done."},
]
"""Everything from the long one once, for the test that kills at each moment."""


@dataclass(frozen=True)
class Scene:
    """One run in its own folder."""

    folder: Path
    replies: tuple[dict[str, Any], ...] = tuple(REPLIES)

    def prepare(self) -> None:
        work = self.folder / "work"
        put(work / "a.txt", "one\ntwo\nthree\n")
        (work / "b.txt").write_text("b\n")
        put(work / "run.sh", "#!/bin/sh\n")
        put(self.folder / "script.json", self.replies)

    @property
    def options(self) -> Options:
        return Options(
            home=self.home,
            user_home=self.folder / "user",
            workspace=self.folder / "work",
            model=f"script:{self.folder / 'script.json'}",
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder / "user")},
        )

    @property
    def home(self) -> Path:
        """Of the store: beside the scene, or on the server that KILL_STORE names."""
        return prepare_state_directory_for_store(self.folder / "home", os.environ.get("KILL_STORE", ""))

    @contextmanager
    def reading(self) -> Generator[Connection]:
        with open_reader(self.home) as conn:
            assert conn is not None
            yield conn

    def expected_effects(self) -> tuple[str, ...]:
        """What the script's shell commands write, each once."""
        calls = [c for reply in self.replies for c in reply.get("tool_calls", ())]
        commands = [c["args"]["command"] for c in calls if c["name"] == "run_shell_command"]
        return tuple(sorted(command.split()[1] for command in commands))

    def effects(self) -> list[str]:
        """What the shell commands did, counted outside the program."""
        log = self.folder / "effects.log"
        return log.read_text().split() if log.exists() else []

    def tree(self) -> dict[str, tuple[str, int]]:
        """Every file of the workspace: hash of its bytes, and its mode. Shows leftovers, too."""
        work = self.folder / "work"
        return {
            str(p.relative_to(work)): (
                hashlib.sha256(p.read_bytes()).hexdigest() if p.is_file() else "",
                p.stat().st_mode & 0o777,
            )
            for p in sorted(work.rglob("*"))
        }

    def save(self, outcome: Outcome) -> None:
        """Save what the child reports to its parent."""
        told = {
            "status": outcome.status,
            "exit_code": outcome.exit_code,
            "error": outcome.error,
            "pending": outcome.pending,
            "output": outcome.output,
        }
        target = self.folder / "outcome.json"
        put(target.with_suffix(".tmp"), told)
        target.with_suffix(".tmp").replace(target)

    def outcome(self) -> dict[str, Any]:
        return json.loads((self.folder / "outcome.json").read_text())

    def waiting(self) -> list[tuple[str, dict[str, Any]]]:
        """Pending requests that the run stopped for."""
        with self.reading() as conn:
            rows = conn.execute(
                "select id, request from approvals where interrupt is not null and answer is null order by run, seq"
            ).fetchall()
        return [(name, json.loads(request)) for name, request in rows]

    def exists(self) -> bool:
        """Whether the run is in the store: from then on it is resumed, never restarted."""
        with open_reader(self.home) as conn:
            return bool(conn and conn.execute("select count(*) from runs").fetchone()[0])
