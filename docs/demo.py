"""demo: `make run`: repairs a failing test in a real git repository, with an approval on the way; needs no key."""

import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from interlock.engine.client import Client, Options
from interlock.engine.client.requests import request_number_or_id

_CODE = '''def discount(price: float, percent: float) -> float:
    """The price after a discount of so many percent."""
    return price - price * percent / 10
'''
_TEST = """import unittest

from prices import discount


class Prices(unittest.TestCase):
    def test_a_quarter_off(self):
        self.assertEqual(discount(80, 25), 60)


if __name__ == "__main__":
    unittest.main()
"""
ENTRY = "import sys; from interlock.cli.main import main; sys.exit(main())"
_WAITING = 75
PROMPT = "The test in test_prices.py fails. Find out why and fix it."


def main() -> int:
    """Make the repository, run `main` until it parks, resume it, and check with the repository's own test."""
    folder = Path(tempfile.mkdtemp(prefix="interlock-demo-"))
    repository, env = folder / "shop", {**os.environ, "INTERLOCK_HOME": str(folder / "state")}
    script = folder / "replies.yaml"
    script.write_bytes(Path(__file__).with_suffix(".yaml").read_bytes())
    make_repository(repository)
    _say(
        f"A small git repository with a failing test: {repository}",
        "The model's replies are scripted, so that this works offline and without a key; the graph, the tools,",
        "the policy and the store are the real ones.",
    )
    model = ["-m", f"script:{script}", "--allowed-tools", "run_shell_command(python3 -m unittest)"]
    ended = _interlock(["-p", PROMPT, *model], repository, env)
    if ended != _WAITING:
        return _failed(f"the run should have parked with exit code {_WAITING}, it ended with {ended}")
    _say(
        f"Exit code {_WAITING}: the run is parked, and this process is gone. The edit waits for a person, who may",
        "decide tomorrow, in another terminal. That person says yes, with the command shown above:",
    )
    ended = _interlock(_approval(folder), repository, env)
    if ended != 0:
        return _failed(f"the resumed run should have ended with 0, it ended with {ended}")
    passed = subprocess.run(
        [sys.executable, "-m", "unittest"], cwd=repository, capture_output=True, check=False
    )
    if passed.returncode != 0:
        return _failed("the repository's test still fails")
    _say(
        "The repository's own test passes now. Look at what happened:",
        f"  export INTERLOCK_HOME={shlex.quote(env['INTERLOCK_HOME'])}",
        f"  {_program()} show {_client(folder).runs()[0].run}",
        "With a real model, in your own repository:",
        f"  export GEMINI_API_KEY=…;  {_program()} -p 'what to do'",
        f"  {_program()} -m openai:MODEL -p 'what to do'      (also llama.cpp, Ollama, vLLM: OPENAI_BASE_URL)",
    )
    return 0


def make_repository(folder: Path) -> None:
    folder.mkdir()
    (folder / "prices.py").write_text(_CODE, encoding="utf-8")
    (folder / "test_prices.py").write_text(_TEST, encoding="utf-8")
    person = ["-c", "user.name=Demo", "-c", "user.email=demo@example.invalid", "-c", "commit.gpgsign=false"]
    for command in (["init", "--quiet"], ["add", "."], [*person, "commit", "--quiet", "-m", "A shop"]):
        subprocess.run(["git", *command], cwd=folder, check=True)


def _interlock(arguments: Sequence[str], folder: Path, env: Mapping[str, str]) -> int:
    shown = " ".join(shlex.quote(a) if " " in a else a for a in arguments)
    print(f"\n$ interlock {shown}", flush=True)
    command = [sys.executable, "-P", "-c", ENTRY, *arguments]
    # Nobody can be asked without a terminal, so the run parks.
    return subprocess.run(command, cwd=folder, env=env, check=False, stdin=subprocess.DEVNULL).returncode


def _approval(folder: Path) -> list[str]:
    """The command that the parked run printed, from the one pending request in the store."""
    (request,) = _client(folder).waiting_requests()
    return ["resume", request.run, "--approve", request_number_or_id(request.fields)]


def _client(folder: Path) -> Client:
    return Client(Options(home=folder / "state"))


def _program() -> str:
    installed = Path(sys.executable).with_name("interlock")
    return str(installed) if installed.exists() else "interlock"


def _say(*lines: str) -> None:
    print("\n" + "\n".join(f"# {line}" for line in lines), flush=True)


def _failed(why: str) -> int:
    print(f"\nThe demo failed: {why}.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
