"""conftest: the command line as a process and in this one, and a store with rows in it."""

import json
import os
import subprocess
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm

from interlock.engine.store import Store
from interlock.engine.store.approvals import SqlApprovals
from interlock.engine.store.runs import NewRun, insert_run
from interlock.state.calls import ApprovalRequest, CallKey, CallView, Choice, ShellPart

if TYPE_CHECKING:
    from acp_editor import Editor

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
DIFF = (
    "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def add(a, b):\n-    return a - b\n+    return a + b\n"
)
CHOICES: tuple[Choice, ...] = ("proceed_once", "proceed_always", "modify", "reject", "cancel")


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Run `interlock …` in an empty folder, without a terminal."""

    def run(*arguments: str, stdin: str = "", cwd: Path = tmp_path) -> "subprocess.CompletedProcess[str]":
        return warm.run(arguments, stdin=stdin, cwd=cwd, env=os.environ)

    return run


class StoreMaker:
    """Writes rows to the store as the engine does, for the command line to read."""

    def __init__(self, home: Path) -> None:
        self.store = Store(home)
        self.store.create_or_migrate()
        self.conn = self.store.connect()

    def run(
        self, name: str, title: str = "fix it", status: str = "open", updated: float | None = None
    ) -> None:
        insert_run(self.conn, NewRun(name, "main", "/work/app", title, {}, {}))
        self.execute("update runs set status = $1 where run = $2", status, name)
        if updated is not None:
            self.execute("update runs set created = $1, updated = $2 where run = $3", updated, updated, name)

    def edit(self, run: str, **changes: object) -> str:
        """A pending request to edit calc.py."""
        args = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
        return self.ask(run, "replace", args, DIFF, "edits ask in mode default", **changes)

    def shell(self, run: str, command: str = "pytest -q && git push", **changes: object) -> str:
        parts = tuple(
            ShellPart(text=p.strip(), decision="ask", reason="it executes") for p in command.split("&&")
        )
        return self.ask(
            run, "run_shell_command", {"command": command}, command, "commands ask", parts=parts, **changes
        )

    def ask(
        self, run: str, tool: str, args: dict[str, object], preview: str, reason: str, **changes: object
    ) -> str:
        (count,) = self.conn.execute("select count(*) from approvals where run = $1", (run,)).fetchone()
        request = ApprovalRequest.model_validate(
            {
                "attempt": CallKey(message="m", index=count),
                "kind": "approval",
                "call": CallView.model_validate({"id": f"0.{count}", "name": tool, "args": args}),
                "reason": reason,
                "preview": preview,
                "choices": CHOICES,
                **changes,
            }
        )
        name = SqlApprovals(self.conn, run).write_request(request)
        self.execute(
            "update approvals set interrupt = $1, number = $2 where id = $3", f"i{count}", count + 1, name
        )
        return name

    def hold(self, run: str, owner: tuple[str, str, int, str], held: int = 1) -> None:
        """Insert a process's lease row."""
        self.execute("insert into lease values ($1, $2, $3, $4, $5, 1, 1, $6, null)", run, *owner, held)

    def execute(self, sql: str, *values: object) -> None:
        with self.conn.transaction():
            self.conn.execute_raw(sql, values)


@pytest.fixture
def made(home: Path) -> Generator[StoreMaker]:
    maker = StoreMaker(home / "interlock")
    yield maker
    maker.conn.close()


@pytest.fixture
def editor(tmp_path: Path) -> Generator[Callable[..., "Editor"]]:
    """Start an editor on `tmp_path/work` with scripted replies."""
    from acp_editor import Editor  # the protocol's schema takes a while to import

    work, opened = tmp_path / "work", list[Editor]()
    work.mkdir()

    def start(*replies: dict[str, Any], **given: Any) -> Editor:
        script, offers = tmp_path / "script.json", given.pop("offers", {})
        if replies:
            script.write_text(json.dumps(replies))
        opened.append(Editor(work, "-m", f"script:{script}", *given.pop("arguments", ()), **given))
        opened[-1].initialize(**offers)
        return opened[-1]

    yield start
    for one in opened:
        with suppress(OSError):
            one.kill()


@pytest.fixture
def asking(editor: Callable[..., "Editor"]) -> "Callable[..., tuple[Editor, str, int]]":
    """An editor whose question is open, its session and the prompt that waits for the answer."""
    from acp_editor import open_question, prompted

    def start(*replies: dict[str, Any]) -> "tuple[Editor, str, int]":
        here = editor(*replies, person=open_question)
        session = here.new()
        turn = here.begin("session/prompt", prompted(session, "write"))
        here.until(lambda: bool(here.asked))
        return here, session, turn

    return start
