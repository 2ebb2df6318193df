"""What bash runs, the parser sees and policy allows: random lines in a real bash whose commands only log.

The seed is fixed, so that a result of the suite reflects the change, not luck. To search for longer:
ORACLE_SEED=7 ORACLE_LINES=100000 make sweeps TESTS='-k what_bash_runs'
"""

import os
from pathlib import Path

import pytest
from bash_oracle.check import (
    MODES,
    WORKERS,
    Tally,
    Work,
    betrayed,
    denied,
    policy_of,
    run,
    work,
    work_mutated,
    work_narrow,
)
from bash_oracle.lines import DENIED, Lines
from bash_oracle.stubs import BASH, cage, make_stubs, run_line
from patience import sweep_part

from interlock.services.shell.parse import parse_shell_line
from interlock.state.calls import CallView

SEED = int(os.environ.get("ORACLE_SEED", "1"))
MANY, SHARES, FEW = int(os.environ.get("ORACLE_LINES", "1250")), 4, 125
"""Lines of each share of a sweep, and at least so many of a part of it: they must hold some of each kind."""

pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")


@pytest.fixture(autouse=True)
def caged(tmp_path: Path) -> None:
    if not cage(tmp_path):
        pytest.skip("random lines are run in bubblewrap only")


RANDOM: list[tuple[Work, str]] = [(work, "oracle_rules.toml"), (work_narrow, "narrow_rules.toml")]
MUTATED = pytest.param(work_mutated, "oracle_rules.toml", 250, 0, marks=pytest.mark.sweep)


@pytest.mark.parametrize(
    ("kind", "rules", "lines", "share"),
    [
        *((*kind, 100, 0) for kind in RANDOM),
        *(
            pytest.param(*kind, MANY, n, marks=pytest.mark.sweep(divides=True))
            for kind in RANDOM
            for n in range(SHARES)
        ),
        MUTATED,
    ],
)
def test_what_bash_runs_was_seen_and_nothing_that_is_denied_or_unknown_gets_by(
    tmp_path: Path, kind: Work, rules: str, lines: int, share: int
) -> None:
    (tmp_path / "work").mkdir()
    part, of = sweep_part() if lines == MANY else (0, 1)
    lines = max(FEW, lines // of) if of > 1 else lines
    seed = SEED + (share + SHARES * part) * WORKERS
    told, tallies = run(kind, policy_of(rules, tmp_path / "work"), tmp_path, seed, lines)
    print(told)
    wrong = [w for t in tallies for w in t.wrong]
    assert not wrong, f"seed {seed}\n" + "\n".join(wrong[:20])
    assert all(
        sum(getattr(t, k) for t in tallies) > 5 for k in ("lines", "clear", "allowed", "ran", "caught")
    ), told


@pytest.mark.sweep
def test_a_denied_command_is_never_allowed_however_it_is_embedded(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    lines, tally = Lines(SEED), Tally(policy_of("oracle_rules.toml", tmp_path / "work"))
    stubs = make_stubs(tmp_path / "bin")
    made = [lines.hidden(DENIED[number % len(DENIED)], 5) for number in range(1000)]
    allowed = [line for line in made if tally.look(line)[1]]
    ran = [(line, run_line(line, stubs, tmp_path, n)) for n, line in enumerate(allowed)]
    print(f"seed {SEED}: {len(made)} embeddings, {len(allowed)} allowed since bash runs nothing of them")
    wrong = [line for line, what in ran if any(denied(a) for a in what.argvs)]
    assert not wrong, "\n".join(map(repr, wrong[:20]))


CANARY = [
    ("\\time CI=/evil git status", "evil"),
    ("[[ $w -eq 1 ]]; ls", "c3"),
    ("RANDOM=$w; ls", "c3"),
    ("read $w <<<1; ls", "c3"),
    ('npm test "$v"', "--evil"),
    ("cd sub && npm test", "in /sub"),
    ("echo touch f | xargs --eof touch", "touch"),
    ("sh -c 'x+=/evil; git status'", "evil"),
    ("printf abcd%n PATH; npm test", "evil"),
]


@pytest.mark.parametrize(("line", "sign"), CANARY, ids=[line for line, _ in CANARY])
def test_the_oracle_would_notice_each_of_what_rules_once_let_through(
    tmp_path: Path, line: str, sign: str
) -> None:
    """It runs, the oracle notices, and policy asks."""
    (tmp_path / "work").mkdir()
    policy = policy_of("narrow_rules.toml", tmp_path / "work")
    found = betrayed(line, run_line(line, make_stubs(tmp_path / "bin"), tmp_path, 1))
    assert any(sign in what for what in found), found
    call = CallView(id="1", name="run_shell_command", args={"command": line})
    assert {policy.check(call, "execute", m).decision for m in MODES[:2]} == {"ask"}, parse_shell_line(line)
