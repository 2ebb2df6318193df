"""run_definition: loads what a run was begun with: its workflow, its options, and nodes from users' files and packages.

A file named in settings, or an entry point of `interlock.processors`, holds `PROCESSORS = {PLACE: [node, …]}`; inside a
workspace it counts only if that is trusted. A run on a git repository has no files here until a worker clones it.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, cast

from interlock.engine.driver.run_config import RunConfig, prepare_run
from interlock.engine.graph_files import parse_graph_path
from interlock.engine.options import WORKFLOWS_FOLDER, Options
from interlock.engine.read import RunRow
from interlock.engine.store import Store, explain_store_errors
from interlock.engine.store.leases import read_lease
from interlock.engine.store.runs import RunDefinition, is_sealed, read_definition, read_run_options
from interlock.engine.store.workspaces import change_task_folder_in_store
from interlock.engine.user_code import FORBIDDEN, CodeForbiddenError
from interlock.engine.workflows import (
    MisdeclaredError,
    error_line_number,
    execute_file_as_module,
    load_recorded_workflow,
)
from interlock.engine.worktrees import missing_worktree_advice
from interlock.graphs.graph_changes import COMPRESS, PLACES, Processor, place_processors
from interlock.graphs.pipeline import Pipeline
from interlock.services.files.disk import make_private_directory
from interlock.services.policy.rule_files import RuleText, parse_rule_files
from interlock.services.secrets.redaction import SHAPES
from interlock.state.entry_points import find_entry_points
from interlock.state.errors import THEIR_ERRORS, ConfigError, SetupError, UntrustedError, UserError
from interlock.state.node import find_node_spec
from interlock.state.repository import Repository, RepositoryError, hide_credentials, parse_repository
from interlock.state.settings import Settings


def load_workflow_and_config(
    row: RunRow, options: Options, defined: RunDefinition | None = None
) -> tuple[Pipeline, RunConfig]:
    """The workflow of a run, and what a drive of it needs. Raises `InterlockError`.

    `defined`: of a run that is to be driven, its definition, which was checked; None: it is only looked at.
    """
    began = read_run_options(options.home, row.run) if defined is None else defined.options
    kept = restore_options(options, began, row.workspace)
    if options.workspace is None and not kept.repository and not Path(row.workspace).is_dir():
        if kept.worktree and Path(row.workspace).is_relative_to(kept.worktree.get("path", "\0")):
            raise UserError(missing_worktree_advice(row.run, kept.worktree))
        raise UserError(
            f"No directory {row.workspace!r}, in which run {row.run!r} works. If it was moved, say where it is: "
            f"interlock resume {row.run} -C DIR"
        )
    chosen, changed = load_recorded_workflow(row.run, row.workflow, kept)
    prepared = prepare_run(kept, chosen.needs_model)
    prepared.warnings.extend(changed)
    return chosen, prepared


class DefinedElsewhereError(UserError):
    """A process that serves others was to drive a run that this host didn't define."""


def load_drivable_run(row: RunRow, options: Options) -> tuple[RunRow, RunDefinition, list[str]]:
    """Return a run that is to be driven as its row is now, its definition, and a warning if this host didn't write it.

    Raises `DefinedElsewhereError` where others asked for the drive. A person at a terminal decides: then what it brings
    counts only in a trusted folder, and `UntrustedError` names it.
    """
    store = Store(options.home)
    with explain_store_errors(store.path), closing(store.connect()) as conn:
        defined, lease = read_definition(conn, row.run), read_lease(conn, row.run)
    row = row._replace(workflow=defined.workflow, workspace=defined.workspace)
    check_defined_on_this_host(row, defined, options)
    if not store.blobs or options.door == WORKER_DOOR or is_sealed(store.home, row.run, defined):
        return row, defined, []
    if brings := [
        what
        for what, folder in _list_programs_and_files_to_trust(row, defined.options, options)
        if not options.trusts(folder)
    ]:
        raise UntrustedError(
            f"{ELSEWHERE.format(run=row.run)}, and brings what would run here: {', '.join(brings)}. That counts only "
            "in a trusted folder. Resume it with --skip-trust, or trust the folder: interlock trust"
        )
    whose: Mapping[str, str] = defined.options.get("submitted") or {}
    told = [f"started by {whose['user']!r}"] if "user" in whose else []
    told += [f"last driven on {lease.owner.host!r}"] if lease else []
    told += [what for what, _ in _list_programs_and_files_to_trust(row, defined.options, options)]
    if (mode := defined.options.get("approval_mode") or "default") != "default":
        told.append(f"approval mode {mode!r}")
    return (
        row,
        defined,
        [f"{ELSEWHERE.format(run=row.run)}; its row says: {', '.join(told) or 'nothing of it'}."],
    )


def check_defined_on_this_host(row: RunRow, defined: RunDefinition, options: Options) -> None:
    """Raise `DefinedElsewhereError` if others ask for the drive of a run that this host didn't define."""
    if not options.serves_others or not Store(options.home).blobs:
        return
    if not is_sealed(options.home, row.run, defined):
        raise DefinedElsewhereError(
            f"{ELSEWHERE.format(run=row.run)}, so it isn't driven from here: resume it in a terminal of the host "
            f"where it was begun (interlock resume {row.run}), or start it with a queue (--detach)."
        )


ELSEWHERE = "Run {run!r} wasn't begun on this host, or was changed elsewhere since"


def _list_programs_and_files_to_trust(
    row: RunRow, stored_options: Mapping[str, Any], options: Options
) -> Iterator[tuple[str, Path]]:
    """Yield what a run's definition names of programs and files, each with the folder that has to be trusted."""
    folder = options.workspace or Path(row.workspace)
    overrides: Mapping[str, Any] = stored_options.get("overrides") or {}
    source: Mapping[str, str] = stored_options.get("source") or {}
    graph, own = parse_graph_path(row.workflow), options.user_home / WORKFLOWS_FOLDER
    files = [
        source.get("file"),
        str(graph.file) if graph else "",
        *(stored_options.get("policy_files") or ()),
    ]
    files += [
        *overrides.get("processors", ()),
        *map(stored_options.get, ("record_to", "fake", "ide_context")),
    ]
    for file in dict.fromkeys(Path(folder, file) for file in files if file):
        if not file.is_relative_to(own):
            yield f"file {str(file)!r}", file.parent
    rights: Mapping[str, Any] = stored_options.get("rights") or {}
    rules = parse_rule_files([RuleText(*file) for file in rights.get("files", ())])[0]
    checkers = [rule.checker.command for rule in rules if rule.checker and rule.checker.command]
    found = [f"hooks for {event}" for event in overrides.get("hooks", ())]
    found += [f"MCP server {name!r}" for name in overrides.get("mcpServers", ())]
    found += [f"tools.{name}" for name in overrides.get("tools", ()) if name in _PROGRAM_SETTINGS]
    found += [f"checker {command!r}" for command in dict.fromkeys(checkers)]
    found += (
        [f"check {stored_options['check']!r}"] if stored_options.get("check") and not options.check else []
    )
    yield from ((what, folder) for what in found)


def check_run_code_trusted(row: RunRow, options: Options) -> None:
    """Raise `CodeForbiddenError` if a run's row in a shared database names a file that isn't trusted on this host.

    Others may write such rows, and nobody who looks at a run asked for its file to run here.
    """
    if options.submitted is None:
        return
    kept = read_recorded_workflow_source(options.home, row.run)
    graph = parse_graph_path(row.workflow)
    for file in ([Path(kept["file"])] if "file" in kept else []) + ([graph.file] if graph else []):
        if not options.trusts(file.parent):
            raise CodeForbiddenError(
                f"This would run {str(file)!r}, which a row of a shared database names. Its folder isn't trusted here: "
                "interlock trust"
            )


def read_recorded_workflow_source(home: Path, run: str) -> Mapping[str, str]:
    """What a run recorded of where its workflow comes from; empty: it is one of ours."""
    return read_run_options(home, run).get("source") or {}


def update_run_folder_if_gone(store: Store, row: RunRow, prepared: RunConfig) -> None:
    """Let a run whose folder isn't there any more work in the one that was named instead, from now on."""
    folder = str(prepared.workspace.root)
    if Path(row.workspace).is_dir() or folder == row.workspace or prepared.options.repository:
        return
    change_task_folder_in_store(store.home, row.run, folder)
    prepared.warnings.append(f"Run {row.run!r} now works in {folder!r}: {row.workspace!r} no longer exists.")


def add_user_processors(pipeline: Pipeline, prepared: RunConfig) -> Pipeline:
    """Add the processors from settings and installed packages; none where code of users may not run.

    Raises `ConfigError`: one line with file, line, expected.
    """
    named = prepared.settings.processors or find_entry_points(_PROCESSORS_GROUP)
    if FORBIDDEN.get() or pipeline.name not in _WORKFLOWS_WITH_PLACES or not named:
        return pipeline
    root, home = prepared.workspace.root, prepared.options.user_home
    files = list_processor_files(prepared.settings, root, home, prepared.trusted)
    found = [
        p for source in (*map(_load_processor_file, files), *_load_installed_processors()) for p in source
    ]
    if twice := next((p.name for p in found if sum(p.name == o.name for o in found) > 1), None):
        raise ConfigError(
            f"Two processors are called {twice!r} (place and function). Rename one of the functions."
        )
    if not found:
        return pipeline
    try:
        made = place_processors(pipeline, tuple(found))
        made.build_uncompiled_graph()  # checks that every node fits the state
        return made
    except SetupError as error:
        raise ConfigError(f"A processor doesn't fit {pipeline.name!r}: {error}") from error


_KEPT = (
    "model",
    "approval_mode",
    "edits_granted",
    "prompt_profile",
    "overrides",
    "check",
    "check_tests",
    "include_directories",
    "allowed_tools",
    "policy_files",
    "limits",
    "record_to",
    "fake",
    "system_prompt",
    "append_system_prompt",
    "ide_context",
    "sandbox",
    "rights",
    "source",
    "context",
    "guard",
    "task_path",
    "repository",
    "submitted",
    "batch",
    "worktree",
)
"""Options a resumed run keeps unless overridden. Not `skip_trust`: a later drive may meet other files."""
_OF_HOST = ("include_directories", "policy_files", "record_to", "fake", "ide_context", "source")
"""Those that name files of the host that started the run. A run on a git repository names none of a worker's."""
_FOR_WORKERS = {
    "model": ("disableLoopDetection", "thinking"),
    "tools": ("exclude",),
    "hooks": ("AfterAgent",),
}
"""Settings of a run that a worker obeys: others could name its files, its programs, or who gets its keys."""


def options_to_store(options: Options) -> dict[str, Any]:
    """The options persisted in a run's row, JSON-like."""
    kept: dict[str, Any] = {}
    for name in _KEPT:
        value: Any = getattr(options, name)
        if isinstance(value, tuple):
            value = [str(item) for item in cast(tuple[Any, ...], value)]
        kept[name] = str(value) if isinstance(value, Path) else value
    return kept


def restore_options(options: Options, stored_options: Mapping[str, Any], workspace: str) -> Options:
    """The run's persisted options, overridden by those passed now."""
    changes: dict[str, Any] = {"workspace": options.workspace or Path(workspace)}
    left = _OF_HOST if stored_options.get("repository") else ()
    left = (*left, "edits_granted") if options.approval_mode else left  # a mode that is chosen now
    for name in (name for name in _KEPT if name not in left and name not in ("limits", "overrides")):
        mine, old = getattr(options, name), stored_options.get(name)
        if mine or not old or (name == "context" and mine is not None):
            continue
        if name in ("include_directories", "policy_files"):
            old = tuple(Path(item) for item in old)
        elif name == "allowed_tools":
            old = tuple(old)
        elif name in ("record_to", "fake", "ide_context"):
            old = Path(old)
        changes[name] = old
    changes["limits"] = {**(stored_options.get("limits") or {}), **options.limits}
    began: dict[str, Any] = stored_options.get("overrides") or {}
    if stored_options.get("repository"):
        began = {
            section: {key: value for key, value in began[section].items() if key in known}
            for section, known in _FOR_WORKERS.items()
            if section in began
        }
    changes["overrides"] = _merge_overrides(began, options.overrides)
    return replace(options, **changes)


def _merge_overrides(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of flags, with `new` ones before `old`. A tool that either excludes stays excluded."""
    merged = {**old, **new}
    for section in ("model", "tools"):
        if section in old and section in new:
            merged[section] = {**old[section], **new[section]}
    excluded = [tool for layer in (old, new) for tool in layer.get("tools", {}).get("exclude", ())]
    if excluded:
        merged["tools"] = {**merged["tools"], "exclude": list(dict.fromkeys(excluded))}
    return merged


_PROGRAM_SETTINGS = ("discoveryCommand", "callCommand", "browser", "webSearch")
"""Settings of tools that are command lines."""
_PROCESSORS_GROUP = "interlock.processors"

_HOW_PROCESSORS = "expected `PROCESSORS = {PLACE: [node, …]}` with the places " + ", ".join(PLACES)
_WORKFLOWS_WITH_PLACES = ("main", "task")
"""Workflows that have these places."""


def list_processor_files(settings: Settings, root: Path, home: Path, trusted: bool) -> list[Path]:
    """Real paths; relative ones start at the workspace. Files inside it count only if it is trusted."""
    paths = (Path(os.path.realpath(path)) for path in settings.processor_files(root, home))
    return [path for path in paths if trusted or not path.is_relative_to(root)]


def _load_installed_processors() -> Iterator[list[Processor]]:
    for point in find_entry_points(_PROCESSORS_GROUP):
        try:
            yield [*_parse_processors(point.load())]
        except THEIR_ERRORS as error:
            what = " ".join(str(error).split())
            raise ConfigError(
                f"Entry point {point.value} of {_PROCESSORS_GROUP}: {type(error).__name__}: {what}; {_HOW_PROCESSORS}."
            ) from error


def _load_processor_file(file: Path) -> list[Processor]:
    try:
        code = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"{file}: can't be read ({error.strerror}); setting `processors` names it."
        ) from None
    return _execute_processors(file, code)


@cache
def _execute_processors(file: Path, code: bytes) -> list[Processor]:
    """Cached by content."""
    try:
        return [*_parse_processors(execute_file_as_module(file, code).__dict__.get("PROCESSORS"))]
    except THEIR_ERRORS as error:
        line = error_line_number(file, code, error, "PROCESSORS")
        kind = "" if isinstance(error, MisdeclaredError) else f"{type(error).__name__}: "
        raise ConfigError(
            f"{file}:{line}: {kind}{' '.join(str(error).split())}; {_HOW_PROCESSORS}."
        ) from error


def _parse_processors(found: Any) -> Iterator[Processor]:
    if not isinstance(found, Mapping):
        raise MisdeclaredError(f"PROCESSORS is {found!r}" if found is not None else "there is no PROCESSORS")
    for place, nodes in cast(Mapping[Any, Any], found).items():
        if place not in PLACES:
            raise MisdeclaredError(f"unknown place {place!r}")
        several = isinstance(nodes, list | tuple)
        for node in cast(Sequence[Any], nodes) if several else [nodes]:
            yield _make_processor(place, node)


def _make_processor(place: str, node: Any) -> Processor:
    if node == COMPRESS:
        if place != "after_tool":
            raise MisdeclaredError(f"{COMPRESS!r} may stand at after_tool, not at {place}")
        return Processor(place, f"{place}_{COMPRESS}", None)
    spec = find_node_spec(node) if callable(node) else None
    if spec is None or spec.labels or not node.__name__.isidentifier():
        raise MisdeclaredError(f"{node!r} at {place} isn't a function under @node without labels")
    return Processor(place, f"{place}_{node.__name__}", cast(Any, node))


WORKER_DOOR = "worker"
"""The door through which workers drive."""
_FLAGS = {
    "include_directories": "--include-directories",
    "record_to": "--record-responses",
    "fake": "--fake-responses",
    "ide_context": "--ide-context",
}
_NO_FILE = "{what} names a file of this host, and a worker has other files. Leave it out with --repo."


def parse_repository_option(text: str, deliver: str) -> dict[str, str]:
    """`Options.repository` for `--repo URL[@REF]`. Raises `UserError`."""
    try:
        found = parse_repository(text)
    except RepositoryError as error:
        raise UserError(f"--repo: {error}") from error
    if SHAPES(found.url) != found.url:
        raise UserError(
            f"--repo: {hide_credentials(found.url)!r} holds a token. Workers use their own credentials."
        )
    return {"url": found.url, "ref": found.ref, "deliver": deliver}


def prepare_repository_options(options: Options) -> Options:
    """Options of a run that names a repository, in a folder without files. Raises `UserError`."""
    if not options.repository or "at" in options.repository:
        return options
    if not options.queue:
        raise UserError("--repo: a worker clones the repository. Add --detach.")
    if options.workspace is not None:
        raise UserError(_NO_FILE.format(what="-C"))
    for name, flag in _FLAGS.items():
        if getattr(options, name):
            raise UserError(_NO_FILE.format(what=flag))
    if (options.model or "").startswith("script:"):
        raise UserError(_NO_FILE.format(what="-m script:FILE"))
    empty = options.home / "submitted"
    make_private_directory(empty)
    return replace(options, workspace=empty, skip_trust=False)


def repository_workspace_placeholder(options: Options) -> str:
    """What stands for the folder of such a run, until a worker has one."""
    found = options.repository
    return str(Repository(found["url"], found["ref"])) if found and "at" not in found else ""


def check_prompt_allowed(store: Store, row: RunRow, prompt: str | None, options: Options) -> None:
    """Raises `UserError` for a prompt that a worker would have to send, or to a run whose files are a worker's."""
    if not prompt or options.door == WORKER_DOOR:
        return
    if options.queue:
        raise UserError("--detach: a worker takes no prompt. Without it, this process sends the prompt.")
    if not row.queue:
        return
    if found := read_run_options(store.home, row.run).get("repository"):
        again = Repository(
            found["url"], f"interlock/{row.run}" if found["deliver"] == "branch" else found["ref"]
        )
        raise UserError(
            f"Run {row.run!r} works in a worker's clone, so it takes no prompt from here. Start another on what it "
            f"did: interlock run {row.workflow} --detach --repo {again} '…'"
        )
