"""outside: records, for all nodes that a test runs, which of them ask for things that may differ on replay.

A replay gives such a node its recorded result if it is declared (`@node(nondeterministic=True)`); without that, the
replay diverges once a file, an index or the clock has changed.
"""

from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from typing import Any, get_type_hints

import pytest

OUTSIDE: Mapping[str, frozenset[str]] = {
    "clock": frozenset({"now"}),
    "context": frozenset(
        {"summarize_git_state", "render_directory_trees", "load_commands", "resolve_path_reference"}
        | {
            "read_ide_state",
            "resolve_prompt_references",
            "load_subdirectory_memory_files",
            "load_memory_files",
        }
    ),
    "index": frozenset({"__call__"}),
    "toolset": frozenset({"read_file_to_edit", "written_paths"}),
    "plans": frozenset({"find_plan"}),
    "steps": frozenset({"working_seconds"}),
    "modes": frozenset({"refusal_reason"}),
    "checks": frozenset({"find_test_changes", "find_test_command", "find_suspects"}),
}
"""Service → methods whose results may differ another time and aren't recorded."""
INSIDE: Mapping[str, frozenset[str]] = {
    # Durations are reported, not compared.
    "clock": frozenset({"monotonic"}),
    # The system prompt is rebuilt, so that a replay reports a changed one.
    "context": frozenset(
        {"roots", "has_ide_source", "system_prompt_replacement", "load_mode_rules", "system_prompt_facts"}
    ),
    "modes": frozenset({"find_mode", "list_modes"}),
    # A replay has how each check ended.
    "checks": frozenset(
        {
            "command",
            "must_pass_with_original_tests",
            "is_test_or_settings",
            "run_check",
            "run_check_with_original_tests",
            "run_check_with_files",
            "for_command",
            "restore_tests",
            "is_test_change_requested",
        }
    ),
    # A replay has the results of calls, and the problems of those that never ran.
    "toolset": frozenset(
        {
            "run_call",
            "plan_change",
            "preview_call",
            "find_encoding_to_confirm",
            "find_call_problem",
            "current_file_digest",
        }
        | {"find_changed_files"}  # the record has the note on them
    )
    | {"confirm_encoding", "declare_tools", "find_tool_info", "nearest_tool_names", "summarize_call"},
    # What it writes belongs to the run; its folder has the run's name.
    "plans": frozenset({"folder", "redirect_to_plans_folder", "write_plan", "create_main_run"}),
    "steps": frozenset(
        {"record_start", "record_end", "detach_graph_steps", "attach_graph_steps"}
        | {"record_route", "record_reason", "record_decision", "commit_progress"}
        # Numbers count from a task's beginning, in a replay as well.
        | {"invalidate_replies_of_failed_node", "next_occurrence_index"}
    ),
}
RECORDED = frozenset(
    {
        *("transcript", "journal", "approvals", "outputs", "effects"),  # the record itself
        *("models", "hooks", "mcp", "tasks", "agents", "snapshots"),  # answered from it
        *("info", "settings", "cancel", "policy", "emit"),  # the run's own, or nothing is returned
    }
)


class Watched:
    """A service that records the calls made to it."""

    def __init__(self, service: Any, name: str, note: Callable[[str, str], None]) -> None:
        self._service, self._name, self._note = service, name, note

    def __getattr__(self, asked: str) -> Any:
        self._note(self._name, asked)
        return getattr(self._service, asked)

    def __call__(self, *args: Any) -> Any:
        self._note(self._name, "__call__")
        return self._service(*args)


FIND_AGAIN = ("call_model", "run_tool")
"""Nodes that find what they did again: a reply, a call's result."""


@pytest.fixture
def undeclared(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Outside calls of nodes that don't declare them. `FIND_AGAIN` get their results back on a rerun."""
    # Not above: what starts the workers would import all of LangGraph first, too.
    from interlock.graphs import user_nodes
    from interlock.state.deps import Deps
    from interlock.state.node import find_node_spec

    undeclared: set[str] = set()
    called = user_nodes.call_node

    def watched(function: Any, state: Any, runtime: Any) -> Any:
        spec = find_node_spec(function)
        recorded = function.__name__ in FIND_AGAIN
        if spec is None or spec.nondeterministic or recorded or not isinstance(runtime.context, Deps):
            return called(function, state, runtime)

        def note(service: str, asked: str) -> None:
            if asked in OUTSIDE[service]:
                undeclared.add(f"{function.__module__}.{function.__name__} asks {service}.{asked}")

        deps = runtime.context
        services = {name: Watched(getattr(deps, name), name, note) for name in OUTSIDE}
        return called(function, state, runtime.override(context=replace(deps, **services)))

    monkeypatch.setattr(user_nodes, "call_node", watched)
    return undeclared


@pytest.fixture
def nodes_declare_what_they_ask(undeclared: set[str]) -> Generator[None]:
    yield
    assert not undeclared, "declare @node(…, nondeterministic=True): " + "; ".join(sorted(undeclared))


def services() -> dict[str, set[str]]:
    """Each service of `Deps`, with the methods that nodes can call."""
    from interlock.state.deps import Deps

    hints = get_type_hints(Deps)
    asked: dict[str, dict[str, object]] = {
        name: dict(vars(kind)) for name, kind in hints.items() if isinstance(kind, type)
    }
    return {
        name: {what for what in asked.get(name, {"__call__": None}) if what == "__call__" or what[0] != "_"}
        for name in hints
    }
