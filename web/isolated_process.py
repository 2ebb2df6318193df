"""isolated_process: runs what needs graphs in a process that ends: the server stays small, and no workflow can hurt it.

The work comes pickled on stdin; the answer is one JSON object on stdout.
"""

import asyncio
import json
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from interlock.cli.warm.fork_client import FORKER, Child
from interlock.engine.client import FORBIDDEN, PIPELINES, Client, CodeForbiddenError, Options
from interlock.state.errors import InterlockError, UserError, as_bug_error

if TYPE_CHECKING:
    from interlock.graphs.pipeline import Pipeline

_CACHE_SIZE = 64
"""Drawings and forms that are kept until the folder's workflows or settings change."""
_MAX_PROCESSES = 2
_UNREAD = "What your own workflows do is only known by running their files."


@dataclass(frozen=True)
class IsolatedTask:
    """One piece of work: a key of `_DONE_BY`, on a workflow or run."""

    what: str
    options: Options
    name: str = ""
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    forbidden: str = field(default_factory=FORBIDDEN.get)
    """Why it may run no code of users; empty: it may."""


class IsolatedRunner:
    """Asks such processes, and keeps their answers for a while."""

    def __init__(self) -> None:
        self._kept: dict[str, asyncio.Task[dict[str, Any]]] = {}
        self._gate = asyncio.Semaphore(_MAX_PROCESSES)

    async def run_task_cached(self, isolated_task: IsolatedTask) -> dict[str, Any]:
        """Return the answer, as it was when the folder's workflows and settings last changed. Raises `UserError`."""
        folder = isolated_task.options.workspace or Path.cwd()
        key = json.dumps(
            [
                isolated_task.what,
                isolated_task.name,
                str(folder),
                isolated_task.given,
                isolated_task.forbidden,
                _configuration_file_mtimes(folder),
            ]
        )
        task = self._kept.pop(key, None)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = asyncio.create_task(self.run_task(isolated_task))
        self._kept[key] = task  # the newest stands last
        while len(self._kept) > _CACHE_SIZE:
            del self._kept[next(iter(self._kept))]
        return await asyncio.shield(task)

    async def run_task(self, isolated_task: IsolatedTask) -> dict[str, Any]:
        """Return the answer. Raises `UserError` with why there is none."""
        async with self._gate:
            child, answer = await asyncio.to_thread(_start_task_process, isolated_task)
            try:
                told = await asyncio.to_thread(answer.read)
            finally:
                child.send_signal(signal.SIGKILL)  # also if nobody waits for the answer any more
                await asyncio.to_thread(child.wait)
                answer.close()
        made = json.loads(told) if told else {"error": f"The process for {isolated_task.what} died."}
        if "error" in made:
            is_code = made.get("kind") == CodeForbiddenError.kind
            raise (CodeForbiddenError if is_code else UserError)(made["error"])
        return made


def _start_task_process(isolated_task: IsolatedTask) -> tuple[Child, BinaryIO]:
    """Return the process, and where its answer comes from."""
    answer, stdout = os.pipe()
    try:
        with tempfile.TemporaryFile() as work:
            work.write(pickle.dumps(isolated_task))
            work.seek(0)
            return FORKER.start(__name__, stdin=work.fileno(), stdout=stdout), os.fdopen(answer, "rb")
    except BaseException:
        os.close(answer)
        raise
    finally:
        os.close(stdout)


def _configuration_file_mtimes(folder: Path) -> list[float]:
    """Return when what may change a folder's workflows was written."""
    settings = [
        path / name / "settings.json" for path in (folder, Path.home()) for name in (".gemini", ".interlock")
    ]
    files = [*settings, Path.home() / ".interlock" / "trusted.json", *folder.glob(".interlock/workflows/*")]
    return [file.stat().st_mtime for file in files if file.is_file()]


def _list_workflows(isolated_task: IsolatedTask) -> dict[str, Any]:
    own, ignored = Client(isolated_task.options).list_user_workflows()
    rows = [{"name": w.name, "summary": w.summary, "problem": w.problem} for w in own]
    shipped = [{"name": name, "summary": summary, "problem": ""} for name, summary in PIPELINES.items()]
    unread = [f"{_UNREAD} {isolated_task.forbidden}"] if own and isolated_task.forbidden else []
    return {"workflows": [*rows, *shipped], "ignored": [*ignored, *unread]}


def _describe_workflow(isolated_task: IsolatedTask) -> dict[str, Any]:
    found = Client(isolated_task.options).load_workflow(isolated_task.name)
    schema, talks = found.input.model_json_schema(), found.follow_up is not None
    return {
        "name": found.name,
        "summary": found.summary,
        "schema": schema,
        "prompt": found.prompt_field,
        "talks": talks,
    }


def _draw_diagram(isolated_task: IsolatedTask) -> dict[str, Any]:
    """Return a workflow's drawing, and the edges by which a run's path through it is found."""
    from interlock.engine.client.diagrams import GROUPS, declared_edges_by_place, render_diagram

    groups = [group for group in isolated_task.given["show"] if group in GROUPS] or GROUPS
    workflow, depth, session = (
        _load_user_or_shipped_workflow(isolated_task),
        isolated_task.given["depth"],
        isolated_task.given["session"],
    )
    drawn = render_diagram(workflow, "svg", depth, groups=groups, with_session_hooks=session)
    return {
        "svg": drawn.decode() if isinstance(drawn, bytes) else drawn,
        "edges": declared_edges_by_place(workflow, depth, session),
    }


def _load_user_or_shipped_workflow(isolated_task: IsolatedTask) -> "Pipeline | str":
    """With the nodes that settings add; if its folder is gone or its settings are wrong now, ours of that name."""
    folder = isolated_task.options.workspace
    try:
        if folder and folder.is_dir():
            return Client(isolated_task.options).load_workflow(isolated_task.name, with_user_processors=True)
    except InterlockError:
        pass
    return Client(replace(isolated_task.options, workspace=None)).load_workflow(isolated_task.name)


def _compare_replay_with_record(isolated_task: IsolatedTask) -> dict[str, Any]:
    from interlock.engine.client.travel import compare_replay_with_record

    return compare_replay_with_record(
        Client(isolated_task.options), isolated_task.name, isolated_task.given.get("swap") or None
    )


def _export_run(isolated_task: IsolatedTask) -> dict[str, Any]:
    from interlock.cli.render.export import export_run

    client = Client(isolated_task.options)
    return {"text": export_run(client.find_run(isolated_task.name), isolated_task.given["format"])}


_TASKS: Mapping[str, Callable[[IsolatedTask], dict[str, Any]]] = {
    "workflows": _list_workflows,
    "form": _describe_workflow,
    "diagram": _draw_diagram,
    "replay": _compare_replay_with_record,
    "export": _export_run,
}


def main() -> None:
    asked: IsolatedTask = pickle.load(sys.stdin.buffer)
    FORBIDDEN.set(asked.forbidden)
    # What a user's workflow prints must not end up in the answer.
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answer:
        os.dup2(2, 1)
        try:
            if asked.options.workspace and Path(asked.options.workspace).is_dir():
                os.chdir(asked.options.workspace)
            made = _TASKS[asked.what](asked)
        except Exception as error:
            failure = error if isinstance(error, InterlockError) else as_bug_error(error)
            made = {"error": str(failure), "kind": failure.kind}
        json.dump(made, answer, default=repr)
