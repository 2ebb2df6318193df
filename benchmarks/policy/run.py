"""run: what one decision costs in CPU time, parser warm, under a realistic set of more than a hundred rules."""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule_files import load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.state.calls import CallView, Risk
from interlock.state.settings import Settings

PLAIN_MS, SHELL_MS = 1.0, 3.0
"""The medians that issue 5 promises."""
ROUNDS = 400
PROGRAMS = """
git status, git diff, git log, git add, git commit, git branch, git show, git fetch, ls, cat, head,
tail, grep, rg, find, wc, sed, awk, sort, uniq, jq, pytest, ruff, mypy, pyright, python -m pytest,
npm test, npm run lint, npm run build, yarn test, cargo build, cargo test, cargo clippy, go build,
go test, go vet, make test, make build, make lint, docker ps, docker logs, kubectl get, kubectl
describe, terraform plan, pip list, uv lock, tsc, eslint, prettier, black, echo
"""
DENIED = """
git push, npm publish, curl, wget, ssh, scp, kubectl delete, terraform apply, docker rm, aws,
gcloud, az, systemctl, shutdown
"""
LINE = (
    'cd src && git status --short | head -20; for f in *.py; do wc -l "$f" | sort -n; done && pytest -q tests/unit '
    '--maxfail=1 -x 2>&1 | tail -40 && echo "done: $(git log --oneline -1)" && ls -la docs src'
)


def _names(text: str) -> list[str]:
    return [" ".join(name.split()) for name in text.split(",")]


def rules() -> str:
    """Prefixes, patterns, paths, servers and modes, as a team and a user would have them."""
    head = '[[rule]]\ntoolName = "{}"\ndecision = "{}"\npriority = {}\n{}\n'
    shell = "run_shell_command"
    found = [
        head.format(shell, "allow", 100 + i, f'commandPrefix = "{p}"') for i, p in enumerate(_names(PROGRAMS))
    ]
    found += [
        head.format(shell, "deny", 900 + i, f'commandPrefix = "{p}"') for i, p in enumerate(_names(DENIED))
    ]
    found += [head.format(shell, "ask", 300 + i, f'commandRegex = "make deploy-{i}( |$)"') for i in range(12)]
    found += [
        head.format("write_file", "deny", 800 + i, f'argsPattern = \'"file_path":"gen{i}/\'')
        for i in range(12)
    ]
    found += [head.format(f"mcp_server{i}_*", "allow", 50, 'modes = ["auto_edit"]') for i in range(15)]
    found += [head.format("web_fetch", "allow", 10 + i, f'host = "docs{i}.example.com"') for i in range(15)]
    return "\n".join(found)


def cpu_ms(decide: Callable[[int], object]) -> list[float]:
    times: list[float] = []
    for number in range(ROUNDS + 20):
        began = time.process_time_ns()
        decide(number)
        times.append((time.process_time_ns() - began) / 1e6)
    return sorted(times[20:])


def report(name: str, policy: RulePolicy, calls: Callable[[int], CallView], risk: Risk, most: float) -> bool:
    times = cpu_ms(lambda number: policy.check(calls(number), risk, "default"))
    median, p95 = statistics.median(times), times[int(len(times) * 0.95)]
    held = median <= most
    print(
        f"{name:<34} median {median:6.3f} ms   p95 {p95:6.3f} ms   aim {most:g} ms{'' if held else '   MISSED'}"
    )
    return held


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rules.toml"
        file.write_text(rules())
        found, problems = load_rules([(file, 4)])
        if problems:
            raise SystemExit(str(problems[0]))
        policy = RulePolicy(WorkspaceRules(found, Settings(), FolderWorkspace(Path(folder))))
        print(f"{rules().count('[[rule]]')} rules; a line of {len(LINE)} characters; no line is seen twice")
        calls: list[tuple[str, Risk, float, Callable[[int], CallView]]] = [
            ("plain tool (read)", "read", PLAIN_MS, lambda n: _call("read_file", file_path=f"src/a{n}.py")),
            (
                *("plain tool (write, 12 patterns)", "write", PLAIN_MS),
                lambda n: _call("write_file", file_path=f"src/a{n}.py", content="x" * 2_000),
            ),
            (
                *("fetch (15 hosts)", "network", PLAIN_MS),
                lambda n: _call("web_fetch", prompt=f"https://x{n}.example.com"),
            ),
            ("shell line", "execute", SHELL_MS, lambda n: _shell(f"{LINE}{n:03}")),
            (
                "shell line that a rule denies",
                "execute",
                SHELL_MS,
                lambda n: _shell(f"{LINE}{n:03}; git push"),
            ),
        ]
        held = [report(name, policy, made, risk, most) for name, risk, most, made in calls]
    return 0 if all(held) else 1


def _shell(line: str) -> CallView:
    return _call("run_shell_command", command=line)


def _call(name: str, **args: str) -> CallView:
    return CallView(id="1", name=name, args={**args})


if __name__ == "__main__":
    sys.exit(main())
