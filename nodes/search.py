"""search: update the index, one batch of files at a time, then query it."""

import asyncio
import json
import time
from typing import Any

from langgraph.runtime import Runtime

from interlock.state.calls import ToolError
from interlock.state.deps import Deps
from interlock.state.events import ErrorEvent, Progress
from interlock.state.messages import Message
from interlock.state.node import node
from interlock.state.search import Candidates, CodeIndex, IndexQuery, SearchInput, SearchState

MOST_WAIT_S, _LOOK_S = 600.0, 0.5
"""Seconds to wait for another process that updates the index, and between looks at it."""
_STILL = "Another process is still updating the index, so files may be missing. Search again later."


@node(
    reads=("request",),
    writes=("added", "removed", "found", "index_error", "search_status", "error"),
    labels=("update", "as it is", "only", "refused"),
    nondeterministic=True,
)
async def scan(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    """Skipped if the index should stay as it is. Another process that updates it is waited for."""
    deps = runtime.context
    use = load_search_input(state, deps).index
    fresh: SearchState = {"added": 0, "removed": 0, "found": "", "index_error": "", "search_status": ""}
    try:
        _load_validated_query(state, deps)
    except ToolError as error:
        problem = {"type": error.kind, "message": str(error)}
        return {**fresh, "search_status": "failed", "error": problem, "label": "refused"}
    if use == "never":
        return {**fresh, "error": {}, "label": "as it is"}
    until = time.monotonic() + MOST_WAIT_S
    while not await _index_including_path(state, deps).try_lock_and_scan_files():
        if time.monotonic() >= until:
            runtime.stream_writer(ErrorEvent(severity="warning", message=_STILL))
            label = "only" if use == "only" else "as it is"
            return {**fresh, "error": {}, "index_error": _STILL, "label": label}
        done, total = await deps.index().count_indexed_and_all_files()
        waits = "waiting for another process that is indexing"
        runtime.stream_writer(Progress(what=waits, done=done, total=total, unit="files"))
        await asyncio.sleep(_LOOK_S)
    return {**fresh, "error": {}, "label": "update"}


@node(reads=("request",), writes=("removed",), labels=("changed", "unchanged", "only"), nondeterministic=True)
async def compare(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    """Find changed files by timestamp and size, then by hash."""
    deps = runtime.context
    waiting, removed = await _index_including_path(state, deps).compare_files_and_remove_gone()
    if waiting:
        return {"removed": removed, "label": "changed"}
    await deps.index().release_lock()
    only = load_search_input(state, deps).index == "only"
    return {"removed": removed, "label": "only" if only else "unchanged"}


@node(reads=("request", "added"), writes=("added",), labels=("embed", "store"), nondeterministic=True)
async def chunk(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    deps = runtime.context
    files = await _index_including_path(state, deps).chunk_next_files()
    return {"added": state["added"] + files, "label": "embed" if deps.index().has_embeddings else "store"}


@node(reads=("request",), writes=("index_error",), nondeterministic=True)
async def embed(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    """If this fails, the update goes on by words alone."""
    try:
        await _index_including_path(state, runtime.context).embed_next_files()
    except ToolError as error:
        runtime.stream_writer(ErrorEvent(severity="warning", message=f"Only words are compared. {error}"))
        return {"index_error": str(error)}
    return {}


@node(reads=("request",), labels=("more", "done", "only"), nondeterministic=True)
async def store(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    deps = runtime.context
    left, total = await _index_including_path(state, deps).store_next_files()
    runtime.stream_writer(Progress(what="indexing", done=total - left, total=total, unit="files"))
    if left:
        return {"label": "more"}
    await deps.index().release_lock()
    return {"label": "only" if load_search_input(state, deps).index == "only" else "done"}


@node(reads=("request",), writes=("found",), nondeterministic=True)
async def query(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    deps = runtime.context
    found = await deps.index().find_candidates(_load_validated_query(state, deps))
    return {"found": _store_json_record(deps, found.model_dump(mode="json"))}


@node(reads=("request", "found", "index_error"), writes=("found", "index_error"), nondeterministic=True)
async def rank(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    deps = runtime.context
    found = Candidates.model_validate_json(deps.transcript.read_message(state["found"]).text)
    update: SearchState = {
        "found": _store_json_record(
            deps, deps.index().rank_candidates(found, _load_validated_query(state, deps))
        )
    }
    if found.error and not state["index_error"]:
        message = f"Only words are compared. {found.error}"
        runtime.stream_writer(ErrorEvent(severity="warning", message=message))
    return {**update, "index_error": found.error} if found.error else update


@node(
    reads=("found", "added", "removed", "index_error", "search_status", "error"),
    writes=("found", "search_status", "error"),
    nondeterministic=True,
)
async def format_results(state: SearchState, runtime: Runtime[Deps]) -> SearchState:
    """The chunks themselves, and the index's current state."""
    deps = runtime.context
    ranked: list[tuple[int, float]] = []
    if state["found"]:
        ranked = json.loads(deps.transcript.read_message(state["found"]).text)
    hits = await deps.index().read_hits(ranked)
    info = await deps.index().read_index_info()
    changes: dict[str, Any] = {"added": state["added"], "removed": state["removed"]}
    if problem := state["index_error"]:
        changes |= {"error": problem, "state": "indexing" if problem == _STILL else "failed"}
    output = {
        "results": [hit.model_dump(mode="json") for hit in hits],
        "index": info.model_copy(update=changes).model_dump(mode="json"),
    }
    error = state["error"]
    if problem and not state["found"]:
        error = {"type": "index_failed", "message": problem}
    return {
        "found": _store_json_record(deps, output),
        "search_status": "failed" if error else "done",
        "error": error,
    }


def load_search_input(state: SearchState, deps: Deps) -> SearchInput:
    return SearchInput.model_validate_json(deps.transcript.read_message(state["request"]).text)


def _index_including_path(state: SearchState, deps: Deps) -> CodeIndex:
    """The index, with the path that this search names."""
    try:
        return deps.index().include_excluded_folder_of(_load_validated_query(state, deps).path)
    except ToolError:  # the path is gone since the search began
        return deps.index()


def _load_validated_query(state: SearchState, deps: Deps) -> IndexQuery:
    request = load_search_input(state, deps)
    asked = IndexQuery(
        query=request.query or "",
        path=request.path or ".",
        language=request.language,
        limit=request.limit,
        min_score=request.min_score,
    )
    return deps.index().validate_query(asked)


def _store_json_record(deps: Deps, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return deps.transcript.append("", [Message(role="tool", name="search", content=text)])
