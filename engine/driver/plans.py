"""plans: a run's plan files, and the run that carries an approved plan out."""

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path

from interlock.engine.driver.prepare import RunConfig, kept_options
from interlock.engine.store.database import Store
from interlock.engine.store.runs import NewRun, insert_run
from interlock.prompts import render
from interlock.services.files.filesystem import write_atomically
from interlock.services.sqlite import transaction
from interlock.services.transcript import ChainTranscript
from interlock.state.calls import CallKey, CallView
from interlock.state.deps import RunInfo
from interlock.state.messages import Message
from interlock.state.plan import ApprovedPlan

_WRITES = ("write_file", "replace")


class RunPlans:
    """Implements `Plans`."""

    def __init__(self, store: Store, info: RunInfo, prepared: RunConfig) -> None:
        self._folder = plans_folder(store.home, info.run)
        self._store = store
        self._info = info
        self._workspace = prepared.workspace
        self._prepared = prepared

    @property
    def folder(self) -> Path:
        return self._folder

    def placed(self, call: CallView) -> CallView | None:
        path = call.args.get("file_path")
        if not isinstance(path, str) or call.name not in (*_WRITES, "read_file"):
            return None
        relative = Path(path.removeprefix("@"))
        if (
            relative.is_absolute()
            or relative.suffix != ".md"
            or ".." in relative.parts
            or path.startswith("~")
        ):
            return None
        place = self._folder / relative
        if call.name not in _WRITES and ((self._workspace.root / relative).exists() or not place.is_file()):
            return None  # it reads a file of the workspace
        return CallView(id=call.id, name=call.name, args={**call.args, "file_path": str(place)})

    def find(self, name: str) -> Path | None:
        return self._workspace.plan_file(str(self._folder / name.removeprefix("@")))

    def write(self, path: Path, text: str, token: str) -> None:
        with self._workspace.place(path, make=True) as place:
            write_atomically(place, text.encode(), CallKey.parse(token))

    def hand_over(self, prompt: str, mode: str, plan: ApprovedPlan) -> str:
        run = _linked(self._info.run)
        text = render("plan/carry_out", prompt=prompt, file=plan.file, plan=plan.text)
        with closing(self._store.connect()) as conn:
            chain = ChainTranscript(conn, self._store.outputs, run, redact=self._prepared.redact)
            head = chain.append("", [Message(role="user", origin="person", content=text)])
            _insert_linked(conn, self._new(run, head, prompt, mode, plan), self._info.run)
        return run

    def _new(self, run: str, record: str, prompt: str, mode: str, plan: ApprovedPlan) -> NewRun:
        prepared = self._prepared
        state = {
            "prompt": record,
            "head": "",
            "approval_mode": mode,
            "model": prepared.model,
            "max_turns": prepared.limits.max_turns,
            "max_session_turns": prepared.limits.max_session_turns,
            "session_turns": 0,
            "last_prompt_tokens": 0,
            "plan_file": plan.file,
            "approved_plan": True,
            "plan_steps": [dict(s) for s in plan.steps],
        }
        options = {**kept_options(prepared.options), "approval_mode": mode}
        title = prepared.redact(f"carries out: {prompt}")[:200]
        return NewRun(run, "main", str(self._info.workspace), title, options, state)


def plans_folder(home: Path, run: str) -> Path:
    return home / "plans" / run


def _linked(run: str) -> str:
    """The same for the same plan run, so that a hand-over that was killed begins no second one."""
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    digest = hashlib.sha256(f"main of {run}".encode()).digest()
    return "".join(letters[byte % 32] for byte in digest[:8])


def _insert_linked(conn: sqlite3.Connection, new: NewRun, parent: str) -> None:
    """Insert the run with its parent; twice changes nothing."""
    with transaction(conn):
        if conn.execute("select 1 from runs where run = ?", (new.run,)).fetchone() is None:
            insert_run(conn, new)
            conn.execute("update runs set parent = ? where run = ?", (parent, new.run))
