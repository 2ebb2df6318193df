"""persons: twenty repairs in a person's words, by `interlock run repair` or by `interlock -p`, with a small model.

A repair counts if the check passes afterwards and only the file with the fault has changed. It is believed falsely if
Interlock ends with exit code 0 and that isn't so. `--verify` asks no model: it proves each task.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import yaml

sys.path.insert(0, str(Path(__file__).parent))
from run import ENTRY, add_server_flags, parse_numbers, require_server, serve_model

TASKS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("tasks.yaml").read_text(encoding="utf-8")
)
COMMANDS = {"pytest": f"{sys.executable} -m pytest -q", "unittest": "python3 -m unittest"}
PROMPT = "The tests fail (`{test}`). Find the bug in the code and fix it. Don't change the tests."


class Result(NamedTuple):
    name: str
    code: int
    passes: bool
    others: list[str]
    """Files that changed though the fault isn't in them."""
    attempts: int
    seconds: float

    @property
    def is_repaired(self) -> bool:
        return self.passes and not self.others and self.code == 0

    @property
    def is_false(self) -> bool:
        return self.code == 0 and not (self.passes and not self.others)


def main() -> int:
    parser = argparse.ArgumentParser(description="Twenty repairs in a person's words.")
    add_server_flags(parser)
    parser.add_argument("--only", type=parse_numbers, default=[*range(1, len(TASKS) + 1)], help="as 1,4")
    parser.add_argument("--way", choices=["repair", "-p"], default="repair")
    parser.add_argument("--attempts", type=int, default=16, help="corrections to try (default: 16)")
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each repair (default: 600)")
    parser.add_argument("--keep", type=Path, help="keep what each run printed in this folder")
    parser.add_argument("--verify", action="store_true", help="only prove the tasks")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if args.verify:
            return _verify(Path(name))
        require_server(parser, args)
        with serve_model(args) as address:
            _measure(Path(name), address, args)
    return 0


def _verify(folder: Path) -> int:
    wrong: list[str] = []
    for task in TASKS:
        work = _fresh(folder / "work", task)
        before = _run(work, *COMMANDS[task["test"]].split()).returncode
        path, old, new = task["fix"]
        text = (work / path).read_text()
        (work / path).write_text(text.replace(old, new))
        after = _run(work, *COMMANDS[task["test"]].split())
        if before == 0 or after.returncode != 0 or text.count(old) != 1:
            wrong.append(
                f"{task['name']}: {before}, {after.returncode}\n{after.stdout[-500:]}{after.stderr[-500:]}"
            )
    print("\n".join(wrong) or f"{len(TASKS)} tasks fail before their fix and pass after it.")
    return bool(wrong)


def _measure(folder: Path, address: str, args: argparse.Namespace) -> None:
    (folder / "home").mkdir()
    env = {
        **os.environ,
        "HOME": str(folder / "home"),
        "INTERLOCK_HOME": str(folder / "state"),
        "OPENAI_BASE_URL": address,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    results = list[Result]()
    only: list[int] = args.only
    print("| repair | elsewhere | test | exit | attempts | seconds |\n|---|---|---|---|---|---|", flush=True)
    for task in (TASKS[number - 1] for number in only):
        results.append(found := _repair(_fresh(folder / "work", task), task, env, args))
        test = "passes" if found.is_repaired else "BELIEVED FALSELY" if found.is_false else "fails"
        where = "yes" if task.get("elsewhere") else ""
        row = (found.name, where, test, found.code, found.attempts, round(found.seconds))
        print("| " + " | ".join(map(str, row)) + " |", flush=True)
    repaired = [one for one in results if one.is_repaired]
    print(
        f"\n{len(repaired)} of {len(results)} repaired, median {statistics.median(r.seconds for r in results):.0f} s, "
        f"{sum(one.is_false for one in results)} believed falsely, {sum(bool(one.others) for one in results)} with "
        "other files changed."
    )


def _repair(work: Path, task: dict[str, Any], env: dict[str, str], args: argparse.Namespace) -> Result:
    command = COMMANDS[task["test"]]
    prompt = PROMPT.format(test="python -m pytest -q" if task["test"] == "pytest" else command)
    given = json.dumps({"task": prompt, "attempts": args.attempts})
    asked = ["run", "repair", "--input", given] if args.way == "repair" else ["-p", prompt]
    flags = ["-m", "openai:qwen", "-y", "--check", command, "--timeout", f"{args.timeout}s"]
    begun = time.monotonic()
    done = _run(work, str(ENTRY), *asked, *flags, env=env)
    seconds = time.monotonic() - begun
    changed = _run(work, "git", "status", "--porcelain", "-uall", env=env).stdout.splitlines()
    others = [line for line in changed if line[3:] != task["fix"][0] and ".pytest_cache" not in line]
    passes = _run(work, *command.split(), env=env).returncode == 0
    with_output = done.stdout if args.way == "repair" else "{}"
    try:
        attempts = int(json.loads(with_output).get("attempts", 0))
    except ValueError:
        attempts = 0
    if args.keep:
        args.keep.mkdir(exist_ok=True, parents=True)
        kept = args.keep / task["name"].replace(" ", "-")
        kept.with_suffix(".txt").write_text(done.stdout + done.stderr)
        more = _run(work, str(ENTRY), "show", "latest", "--json", env=env).stdout
        kept.with_suffix(".json").write_text(more)
    return Result(task["name"], done.returncode, passes, others, attempts, seconds)


def _fresh(work: Path, task: dict[str, Any]) -> Path:
    shutil.rmtree(work, ignore_errors=True)
    for path, text in task["files"].items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text)
    for line in ("init -q", "add .", "-c user.name=b -c user.email=b@localhost commit -qm begin"):
        _run(work, "git", *line.split())
    return work


def _run(work: Path, *command: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    env = env or {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        command, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


if __name__ == "__main__":
    sys.exit(main())
