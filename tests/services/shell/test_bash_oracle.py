"""What bash runs, the parser saw and policy let: random lines, run by a real bash whose commands only log.

The seed is fixed, so that a run of the suite says something about the change and not about its luck. To look for
more: ORACLE_SEED=$RANDOM ORACLE_SECONDS=600 pytest -s tests/services/shell/test_bash_oracle.py
"""

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from bash_oracle.lines import DENIED, Lines
from bash_oracle.stubs import BASH, Ran, make_stubs, run_line

from interlock.services.policy import RulePolicy, load_rules
from interlock.services.shell import ShellLine, Word, parse
from interlock.services.workspace import FolderWorkspace
from interlock.state.calls import CallView
from interlock.state.settings import Settings

SECONDS = float(os.environ.get("ORACLE_SECONDS", "8"))
SEED = int(os.environ.get("ORACLE_SEED", "1"))
WORKERS = 4
"""They mostly wait for bash."""
MODES = ("default", "auto_edit", "yolo")
SLOWEST = 0.1
"""CPU seconds that a line may take."""

pytestmark = pytest.mark.skipif(BASH is None, reason="needs bash as the oracle")


def shown(words: Sequence[Word], argv: Sequence[str]) -> bool:
    """Whether the words may have become this argv."""
    if not words:
        return not argv
    first = words[0]
    if first.splits:
        return any(shown(words[1:], argv[n:]) for n in range(len(argv) + 1))
    if not argv or (first.literal and first.text != argv[0]) or not argv[0].startswith(_lead(first)):
        return False
    return shown(words[1:], argv[1:])


def _lead(word: Word) -> str:
    return "" if word.lead.startswith("~") else word.lead


def seen(line: ShellLine, argv: Sequence[str]) -> bool:
    return any(c.words and c.words[0].literal and shown(c.words, argv) for c in line.commands)


def denied(argv: Sequence[str]) -> bool:
    return any(
        list(argv[: len(d)]) == d for d in (["rm", "-rf"], ["git", "push"], ["npm", "publish"], ["c3"])
    )


def written(line: ShellLine, ran: Ran) -> set[str]:
    """Files that appeared though no redirection says so."""
    targets = [r.target for r in line.redirects if r.kind == "write" and r.target is not None]
    # A bent `env -i ORACLE_LOG=…` makes the stubs log elsewhere.
    if any(not t.literal for t in targets) or "-i" in line.text:
        return set()
    return ran.files - {t.text for t in targets}


@dataclass
class Tally:
    """What one worker met."""

    policy: RulePolicy
    lines: int = 0
    clear: int = 0
    """Lines that can be seen through."""
    allowed: int = 0
    ran: int = 0
    """Commands."""
    caught: int = 0
    """Lines that ran a denied command, and weren't allowed."""
    slowest: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def look(self, line: str) -> tuple[ShellLine, bool]:
        """What is said of a line; whether any mode allows it."""
        begun = time.thread_time()
        parsed = parse(line)
        taken = time.thread_time() - begun
        if taken > SLOWEST:  # a second time, so that nothing else is counted in
            begun = time.thread_time()
            parse.__wrapped__(line)
            taken = min(taken, time.thread_time() - begun)
        self.slowest = max(self.slowest, taken)
        call = CallView(id="1", name="run_shell_command", args={"command": line})
        verdicts = {self.policy.check(call, "execute", m).decision for m in MODES}
        return parsed, "allow" in verdicts

    def judge(self, line: str, parsed: ShellLine, allowed: bool, ran: Ran) -> None:
        self.ran += len(ran.argvs)
        against = [a for a in ran.argvs if denied(a)]
        self.caught += bool(against) and not allowed
        if against and allowed:
            self.wrong.append(f"{line!r} was allowed and ran {against}")
        if parsed.opaque is not None:
            return
        for argv in ran.argvs:
            if not seen(parsed, argv):
                self.wrong.append(f"{line!r} ran {argv}, parsed {[c.argv for c in parsed.commands]}")
        if written(parsed, ran):
            self.wrong.append(f"{line!r} wrote {written(parsed, ran)}, parsed {parsed.redirects}")


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_stubs(tmp_path_factory.mktemp("stubs") / "bin")


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> RulePolicy:
    rules, problems = load_rules([(Path(__file__).parent / "oracle_rules.toml", 4)])
    assert problems == []
    return RulePolicy(rules, Settings.model_validate({}), FolderWorkspace(tmp_path_factory.mktemp("work")))


def work(seed: int, policy: RulePolicy, stubs: Path, folder: Path, until: float) -> Tally:
    lines, tally = Lines(seed), Tally(policy)
    parse("ls")  # a parser for each thread: the first line isn't the slowest
    while time.monotonic() < until and len(tally.wrong) < 20:
        line = lines.line()
        if "\0" in line:
            continue
        tally.lines += 1
        parsed, allowed = tally.look(line)
        tally.clear += parsed.opaque is None
        tally.allowed += allowed
        # What is refused needs no proof; a few are run to know that they were refused for a reason.
        if allowed or parsed.opaque is None or tally.lines % 8 == 0:
            tally.judge(line, parsed, allowed, run_line(line, stubs, folder, tally.lines))
    return tally


def test_what_bash_runs_was_seen_and_nothing_that_is_denied_gets_by(
    policy: RulePolicy, stubs: Path, tmp_path: Path
) -> None:
    until = time.monotonic() + SECONDS
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [pool.submit(work, SEED + n, policy, stubs, tmp_path / str(n), until) for n in range(WORKERS)]
        tallies = [job.result() for job in jobs]
    total = {k: sum(getattr(t, k) for t in tallies) for k in ("lines", "clear", "allowed", "ran", "caught")}
    slowest = max(t.slowest for t in tallies)
    print(f"seed {SEED}: {total}, the slowest took {slowest * 1000:.1f} ms")
    wrong = [w for t in tallies for w in t.wrong]
    assert not wrong, f"seed {SEED}\n" + "\n".join(wrong[:20])
    assert slowest < SLOWEST
    assert min(total.values()) > 30, "the oracle ran nearly nothing"


def test_a_denied_command_is_never_allowed_however_it_is_embedded(
    policy: RulePolicy, stubs: Path, tmp_path: Path
) -> None:
    lines, tally = Lines(SEED), Tally(policy)
    allowed: list[str] = []
    count = 1000 * max(1, int(SECONDS / 8))
    for number in range(count):
        line = lines.hidden(DENIED[number % len(DENIED)], 5)
        if tally.look(line)[1]:
            allowed.append(line)
    ran = [(line, run_line(line, stubs, tmp_path, n)) for n, line in enumerate(allowed)]
    print(f"seed {SEED}: {count} embeddings, {len(allowed)} allowed since bash runs nothing of them")
    wrong = [line for line, what in ran if any(denied(a) for a in what.argvs)]
    assert not wrong, "\n".join(map(repr, wrong[:20]))
    assert tally.slowest < SLOWEST
