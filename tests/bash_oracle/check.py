"""check: compares what bash runs for a random line with what the parser saw and policy allowed."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from bash_oracle.constructs import Constructs
from bash_oracle.lines import Lines
from bash_oracle.mutations import Mutations
from bash_oracle.stubs import Ran, make_stubs, run_line

from interlock.services.files.workspace import FolderWorkspace
from interlock.services.policy.policy import RulePolicy
from interlock.services.policy.rule_files import load_rules
from interlock.services.policy.workspace_rules import WorkspaceRules
from interlock.services.shell.model import ShellLine, Word, literal_word
from interlock.services.shell.parse import parse_shell_line
from interlock.state.calls import CallView
from interlock.state.settings import Settings

WORKERS = 4
"""Workers mostly wait for bash."""
MODES = ("default", "auto_edit", "yolo")
COUNTS = ("lines", "clear", "allowed", "ran", "caught")
RULES = Path(__file__).parent.parent / "services" / "shell"


def policy_of(name: str, folder: Path) -> RulePolicy:
    """The policy of one of the oracle's rule files."""
    rules, problems = load_rules([(RULES / name, 4)])
    assert problems == []
    asking = Settings.model_validate({"tools": {"readingCommands": False}})
    return RulePolicy(WorkspaceRules(rules, asking, FolderWorkspace(folder)))


def shown(words: Sequence[Word], argv: Sequence[str]) -> bool:
    """Whether the words may expand to this argv."""
    if not words:
        return not argv
    first = words[0]
    if first.may_split:
        return any(shown(words[1:], argv[n:]) for n in range(len(argv) + 1))
    if not argv or (first.literal and first.text != argv[0]) or not argv[0].startswith(_lead(first)):
        return False
    return shown(words[1:], argv[1:])


def _lead(word: Word) -> str:
    return "" if word.known_start.startswith("~") else word.known_start


def seen(line: ShellLine, argv: Sequence[str]) -> bool:
    """Whether the parser saw this command. Stubs log their names without the folder."""
    known = [c.words for c in line.commands if c.words and c.words[0].literal]
    return any(shown((literal_word(words[0].text.rsplit("/", 1)[-1]), *words[1:]), argv) for words in known)


def denied(argv: Sequence[str]) -> bool:
    return any(
        list(argv[: len(d)]) == d
        for d in (["rm", "-rf"], ["git", "push"], ["npm", "publish"], ["c3"], ["git", "commit"])
    )


def written(line: ShellLine, ran: Ran) -> set[str]:
    """Files that were created without a redirection naming them."""
    targets = [r.target for r in line.redirects if r.kind == "write" and r.target is not None]
    # A bent `env -i ORACLE_LOG=…` makes the stubs log elsewhere.
    if any(not t.literal for t in targets) or "-i" in line.text:
        return set()
    return ran.files - {t.text for t in targets}


@dataclass
class Tally:
    """One worker's results."""

    policy: RulePolicy
    lines: int = 0
    clear: int = 0
    """Lines that the parser understands."""
    allowed: int = 0
    ran: int = 0
    """Commands."""
    caught: int = 0
    """Lines that ran a denied command, and weren't allowed."""
    wrong: list[str] = field(default_factory=list[str])

    def look(self, line: str, modes: Sequence[str] = MODES) -> tuple[ShellLine, bool]:
        """Parse a line; returns it and whether one of the modes allows it."""
        parsed = parse_shell_line(line)
        call = CallView(id="1", name="run_shell_command", args={"command": line})
        allowed = any(self.policy.check(call, "execute", m).decision == "allow" for m in modes)
        self.clear += parsed.opaque is None
        self.allowed += allowed
        return parsed, allowed

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


def betrayed(line: str, ran: Ran) -> list[str]:
    """What an allowed line did that `narrow_rules.toml` doesn't allow."""
    found: list[str] = []
    for argv, folder in zip(ran.argvs, ran.folders, strict=True):
        own = argv[:2] in (["git", "status"], ["npm", "test"])
        if not own and argv[0] not in ("ls", "c1"):
            found.append(f"ran {argv}")
        if own and any(a.startswith("--evil") for a in argv):
            found.append(f"ran {argv}")
        if folder and (own or argv[0] == "c1"):
            found.append(f"ran {argv} in {folder}")
    return found


def work(seed: int, policy: RulePolicy, stubs: Path, folder: Path, most: int) -> Tally:
    """Run any lines, under a rule that allows everything and some denials."""
    return _work(Lines(seed), policy, stubs, folder, most)


def work_mutated(seed: int, policy: RulePolicy, stubs: Path, folder: Path, most: int) -> Tally:
    """Run mutations of lines that the parser understands."""
    return _work(Mutations(seed), policy, stubs, folder, most)


def _made(lines: Lines | Mutations | Constructs, tally: Tally, most: int) -> Iterator[str]:
    while tally.lines < most and len(tally.wrong) < 20:
        if "\0" not in (line := lines.line()):
            tally.lines += 1
            yield line


def _work(lines: Lines | Mutations, policy: RulePolicy, stubs: Path, folder: Path, most: int) -> Tally:
    tally = Tally(policy)
    for line in _made(lines, tally, most):
        parsed, allowed = tally.look(line)
        # Refused lines prove nothing; a few are run to see that they were refused for a reason.
        if allowed or parsed.opaque is None or tally.lines % 8 == 0:
            tally.judge(line, parsed, allowed, run_line(line, stubs, folder, tally.lines))
    return tally


def work_narrow(seed: int, policy: RulePolicy, stubs: Path, folder: Path, most: int) -> Tally:
    """Run constructs under narrow rules: an allowed line in default mode runs nothing else."""
    tally = Tally(policy)
    for line in _made(Constructs(seed), tally, most):
        parsed, allowed = tally.look(line, ["default"])
        if not allowed and parsed.opaque is not None and tally.lines % 16:
            continue
        ran = run_line(line, stubs, folder, tally.lines)
        tally.judge(line, parsed, False, ran)
        found = betrayed(line, ran)
        tally.caught += bool(found) and not allowed
        if allowed:
            tally.wrong += [f"{line!r} was allowed and {what}" for what in found]
    return tally


Work = Callable[[int, RulePolicy, Path, Path, int], Tally]


def run(work: Work, policy: RulePolicy, folder: Path, seed: int, lines: int) -> tuple[str, list[Tally]]:
    """Run `WORKERS` in parallel for so many lines; returns a line of counts, and each one's results."""
    stubs = make_stubs(folder / "bin")
    with ThreadPoolExecutor(WORKERS) as pool:
        jobs = [
            pool.submit(work, seed + n, policy, stubs, folder / f"{work.__name__}{n}", lines)
            for n in range(WORKERS)
        ]
        tallies = [job.result() for job in jobs]
    total = {k: sum(getattr(t, k) for t in tallies) for k in COUNTS}
    return f"{work.__name__}, seed {seed}: {total}", tallies
