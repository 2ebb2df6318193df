"""A killed run ends like the undisturbed one (`docs/kill-tests.md#what-the-same-means`).

One kill at a moment, before and after every commit, effect and node; and several at random ones, from a printed seed
(KILL_SEED sets another). The programs: a run with approvals and commands; one with hooks around its prompts, calls and
answers, with the record of who decided what; one that is summarised and compressed; a parent with three running
sub-agents, none of which may be lost; a task with a subtask that has a subtask; one with MCP calls, one of which asks a
person; a long session with everything that a turn does by itself. `make sweeps` takes one moment of each state (CI:
every sixth), an ordinary test run a few of the first program.
"""

import os
from typing import Any

import pytest
from databases import DATABASES, fresh_database
from kill_runs.started import killed, seed
from kill_runs.stops import SCENES
from patience import sweep_part

STATES = {
    "program": 30,
    "hooks_program": 60,
    "helpers_program": 32,
    "agents_program": 90,
    "mcp_program": 45,
    "tasks_program": 70,
}
"""Least number of distinct states that a program's kills leave."""
_SERVER_EVERY = 8
SHARES = {"agents_program": 3, "tasks_program": 2}
"""Parts of the long ones, which the suite's workers take. Each begins with two undisturbed runs."""


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize(
    ("program", "share", "shares"),
    [(p, n, SHARES.get(p, 1)) for p in STATES for n in range(SHARES.get(p, 1))],
)
def test_a_kill_at_any_moment_changes_nothing(program: str, share: int, shares: int) -> None:
    """One kill per group of moments that leave the same state. KILL_EVERY=1 takes all 2,500."""
    part, of = sweep_part()
    if of > 1 and share:
        pytest.skip("a part of the moments isn't divided again")
    shares = shares if of == 1 else 1
    told = _killed(program, share + shares * part, shares * of)
    if of == 1 and program in ("program", "hooks_program", "mcp_program"):
        assert told["asked"] >= 1, "no kill came between a command's intent and its end"


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize("program", STATES)
def test_a_kill_at_any_moment_changes_nothing_with_a_server(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same programs with their store in PostgreSQL, at every eighth of these moments."""
    monkeypatch.setenv("KILL_STORE", fresh_database())
    part, of = sweep_part()
    _killed(program, part, _SERVER_EVERY * of)


def _killed(program: str, first: int, step: int) -> dict[str, Any]:
    told = killed(program, "every" if "KILL_EVERY" in os.environ else "states", first, step)
    assert told["differ"] == []
    assert told["kills"] >= STATES[program] // step
    return told


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize("database", DATABASES)
@pytest.mark.parametrize("name", SCENES)
def test_a_kill_at_any_node_request_or_command_of_a_workflow_changes_nothing(
    name: str, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every workflow alone: each node is one of its moments; with a server every third of them."""
    part, of = sweep_part()
    if database == "postgresql":
        monkeypatch.setenv("KILL_STORE", fresh_database())
        of *= 3
    told = killed("stops", name, part, of)
    assert told["differ"] == []
    assert told["kills"] >= (part == 0), "a short workflow has no moment for every part"


@pytest.mark.sweep(divides=True)
@pytest.mark.parametrize(
    ("program", "kills", "share"),
    [("program", 20, 0), ("program", 20, 1), ("agents_program", 9, 0), ("tasks_program", 6, 0)],
)
def test_random_kills_change_nothing(program: str, kills: int, share: int) -> None:
    part, of = sweep_part()
    told = killed(program, "random", kills // of, seed(20261121) + share + 2 * part)
    assert told["differ"] == []
    assert told["kills"] >= kills // of


@pytest.mark.sweep
def test_a_long_session_that_is_killed_ends_as_the_undisturbed_one() -> None:
    told = killed("helpers_program", "random", 4, seed(20261121))
    assert told["differ"] == []
    assert told["status"] == "done"
    assert told["kills"] >= 4
    crossed = told["crossed"]
    assert crossed.pop("turns") >= 150
    assert crossed.pop("models") == 2, "another one took over"
    assert min(crossed.values()) >= 1, crossed


@pytest.mark.parametrize(
    ("program", "first", "step"),
    [
        ("program", 5, 40),
        pytest.param("agents_program", 200, 300, marks=pytest.mark.sweep),
        pytest.param("mcp_program", 30, 100, marks=pytest.mark.sweep),
    ],
)
def test_a_kill_at_some_moments_changes_nothing(program: str, first: int, step: int) -> None:
    told = killed(program, "every", first, step)
    assert told["differ"] == []
    assert told["kills"] >= 2
