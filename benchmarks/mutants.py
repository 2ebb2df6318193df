"""mutants: changes the code in one place at a time, and lists the changes that no test finds (`make mutants`).

The operators are cosmic-ray's, without those that rarely change behaviour (`|` of annotations, `==` to `is`). Each
mutant is tried by the tests of its room first, and by the whole suite if it survives those. The files are changed in
place and restored; a file with uncommitted changes is refused.
"""

# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import use_mutation
from cosmic_ray.plugins import get_operator

ROOT = Path(__file__).parent.parent
ROOMS = {
    "policy": (["services/policy/*.py"], ["tests/services/policy", "tests/cli/test_policy_command.py"]),
    "tools": (
        ["nodes/tools_*.py"],
        ["tests/tools", "tests/test_model_tools.py", "tests/test_hooks_around_calls.py"],
    ),
    "engine": (["engine/store/*.py", "engine/driver/*.py"], ["tests/engine", "tests/test_faults.py"]),
}
"""Room → its modules, and the tests that should find a change there."""
_COMPARED = ("Eq_NotEq", "NotEq_Eq", "Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt", "Is_IsNot", "IsNot_Is")
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{pair}" for pair in _COMPARED),
    *("core/AddNot", "core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue", "core/ReplaceAndWithOr"),
    *("core/ReplaceOrWithAnd", "core/ReplaceUnaryOperator_Delete_Not", "core/NumberReplacer"),
    *("core/ReplaceBinaryOperator_Add_Sub", "core/ReplaceBinaryOperator_Sub_Add"),
    *("core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak", "core/ZeroIterationForLoop"),
)
HANG_S = 900


class Mutant(NamedTuple):
    module: Path
    operator: str
    occurrence: int


def mutants(patterns: list[str]) -> Iterator[Mutant]:
    for module in sorted(path for pattern in patterns for path in ROOT.glob(pattern)):
        nodes = list(ast_nodes(get_ast(module.read_text())))
        for name in OPERATORS:
            operator = get_operator(name)()
            places = sum(1 for node in nodes for _ in operator.mutation_positions(node))
            yield from (Mutant(module, name, number) for number in range(places))


def is_found(mutant: Mutant, tests: list[str]) -> bool:
    with use_mutation(mutant.module, get_operator(mutant.operator)(), mutant.occurrence) as (_, changed):
        assert changed is not None, mutant
        try:
            return not passes(tests)
        except subprocess.TimeoutExpired:
            return True


def passes(tests: list[str]) -> bool:
    argv = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "-p", "no:cacheprovider", *tests]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    tried = subprocess.run(argv, cwd=ROOT, env=env, capture_output=True, timeout=HANG_S, check=False)
    return tried.returncode == 0


def place(mutant: Mutant) -> str:
    """The change as `-` and `+` lines."""
    with use_mutation(mutant.module, get_operator(mutant.operator)(), mutant.occurrence) as (before, after):
        old, new = before.splitlines(), (after or "").splitlines()
    changed = [(n, a, b) for n, (a, b) in enumerate(zip(old, new, strict=False), 1) if a != b]
    lines = [f"  {mutant.module.relative_to(ROOT)}:{changed[0][0]}  {mutant.operator.removeprefix('core/')}"]
    return "\n".join([*lines, *(f"    - {a.strip()}\n    + {b.strip()}" for _, a, b in changed[:1])])


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("room", choices=ROOMS)
    made.add_argument("-n", type=int, default=50, help="mutants, drawn by chance (default 50)")
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--whole", action="store_true", help="try survivors with the whole suite, too")
    args = made.parse_args()
    patterns, tests = ROOMS[args.room]
    if subprocess.run(["git", "diff", "--quiet", "--", *patterns], cwd=ROOT, check=False).returncode:
        sys.exit(f"mutants: commit the changes in {' '.join(patterns)} first.")
    if not passes(tests):
        sys.exit(f"mutants: the tests fail without a change: {' '.join(tests)}")
    every = list(mutants(patterns))
    drawn = Random(args.seed).sample(every, min(args.n, len(every)))
    alive: list[Mutant] = []
    for number, mutant in enumerate(drawn, 1):
        if not (is_found(mutant, tests) or (args.whole and is_found(mutant, ["tests"]))):
            alive.append(mutant)
            print(place(mutant), flush=True)
        print(f"{number} of {len(drawn)}: {len(alive)} not found", file=sys.stderr, flush=True)
    print(
        f"{args.room}: {len(drawn)} of {len(every)} mutants tried (seed {args.seed}), {len(alive)} not found"
    )


if __name__ == "__main__":
    main()
