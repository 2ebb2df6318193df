"""plans: a run's plan files, and the run that carries an approved plan out."""

from pathlib import Path

from interlock.engine.driver.linked import begin_linked, linked_id
from interlock.engine.driver.prepare import RunConfig, kept_options
from interlock.engine.store.database import Store
from interlock.engine.store.runs import NewRun
from interlock.prompts import render
from interlock.services.files.filesystem import write_atomically
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
        run = linked_id(f"main of {self._info.run}")
        text = render("plan/carry_out", prompt=prompt, file=plan.file, plan=plan.text)

        def made(chain: ChainTranscript) -> NewRun:
            head = chain.append("", [Message(role="user", origin="person", content=text)])
            return self._new(run, head, prompt, mode, plan)

        return begin_linked(self._store, self._prepared, self._info.run, run, made)

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
