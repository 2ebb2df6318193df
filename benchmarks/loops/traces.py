"""traces: sessions that loop, and sessions that only look like it; known by construction, made from a seed.

A trace is a list of rounds, a round a list of `loop-check` events; a looping one says in which round its loop begins.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Event = dict[str, Any]
Round = list[Event]


@dataclass(frozen=True)
class Trace:
    kind: str
    rounds: list[Round]
    begins: int | None
    """Round in which the loop begins; None: there is none."""


WORDS = str.split(
    "parser request handler value cache token client module buffer index order user session path config server "
    "record field table column number result error message stream socket thread queue worker task state graph "
    "node edge file line test case branch commit change function method class object string list"
)
VERBS = str.split(
    "reads writes checks opens closes moves parses sends keeps drops counts joins splits returns loads"
)


class Maker:
    """Draws the pieces that traces are made of."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng

    def name(self) -> str:
        return f"{self.rng.choice(WORDS)}_{self.rng.choice(WORDS)}"

    def path(self) -> str:
        return f"src/{self.name()}/{self.name()}.py"

    def sentence(self) -> str:
        parts = []
        for _ in range(self.rng.randint(1, 3)):
            parts.append(
                f"the {self.rng.choice(WORDS)} {self.rng.choice(VERBS)} the {self.rng.choice(WORDS)}"
            )
        return " and ".join(parts).capitalize() + ". "

    def prose(self, sentences: int) -> str:
        return "".join(self.sentence() for _ in range(sentences))

    def call(self, name: str, **args: Any) -> Event:
        return {"type": "tool_call", "name": name, "args": args}

    def said(self, text: str) -> list[Event]:
        """Text as it streams: in pieces."""
        size = self.rng.randint(4, 60)
        return [{"type": "content", "text": text[i : i + size]} for i in range(0, len(text), size)]

    def work(self) -> Round:
        """A round of ordinary work."""
        calls = [
            self.call("read_file", file_path=self.path()),
            self.call("grep_search", pattern=self.name()),
            self.call("run_shell_command", command=f"pytest tests/{self.name()}.py"),
            self.call(
                "replace", file_path=self.path(), old_string=self.sentence(), new_string=self.sentence()
            ),
        ]
        return [*self.said(self.prose(self.rng.randint(1, 3))), self.rng.choice(calls)]

    def before(self) -> list[Round]:
        return [self.work() for _ in range(self.rng.randint(0, 12))]


def _answer(make: Maker, text: str) -> list[Round]:
    return [*make.before(), make.said(make.prose(1) + "\n\n" + text)]


# Legitimate


def tests_between_edits(make: Maker) -> list[Round]:
    command, file = f"pytest tests/{make.name()}.py", make.path()
    rounds: list[Round] = []
    for _ in range(make.rng.randint(6, 40)):
        edit = make.call("replace", file_path=file, old_string=make.sentence(), new_string=make.sentence())
        rounds += [[edit], [make.call("run_shell_command", command=command)]]
    return rounds


def paging(make: Maker) -> list[Round]:
    file, step = make.path(), make.rng.choice((50, 100, 500, 2000))
    return [
        [make.call("read_file", file_path=file, offset=i * step, limit=step)]
        for i in range(make.rng.randint(8, 60))
    ]


def many_files(make: Maker) -> list[Round]:
    return [[make.call("read_file", file_path=f"{make.path()}{i}")] for i in range(make.rng.randint(8, 50))]


def batch_rename(make: Maker) -> list[Round]:
    old, new = make.name(), make.name()
    return [
        [make.call("replace", file_path=make.path() + str(i), old_string=old, new_string=new)]
        for i in range(make.rng.randint(8, 40))
    ]


def status_now_and_then(make: Maker) -> list[Round]:
    """The same question after other work: never five times in a row, no cycle."""
    rounds: list[Round] = []
    for _ in range(make.rng.randint(5, 20)):
        rounds += [make.work() for _ in range(make.rng.randint(1, 3))]
        rounds.append([make.call("run_shell_command", command="git status")] * make.rng.randint(1, 2))
    return rounds


def waiting(make: Maker) -> list[Round]:
    return [
        *make.before(),
        *(
            [make.call("run_shell_command", command="sleep 30; curl -s localhost:8000/health")]
            for _ in range(4)
        ),
        make.work(),
    ]


def table(make: Maker) -> list[Round]:
    rows = "".join(
        f"| {make.name():<20} | {make.rng.choice(('passed', 'failed'))} in the nightly run on the main branch | no |\n"
        for _ in range(make.rng.randint(10, 60))
    )
    return _answer(make, f"| name | state | open |\n|---|---|---|\n{rows}")


def shared_prefix(make: Maker) -> list[Round]:
    mark = make.rng.choice(("- ", "* ", "{n}. ", "Step {n}: ", "", "[ ] "))
    prefix = f"Update the import of the {make.name()} package and of its sub-packages in the module "
    items = (mark.format(n=i + 1) + prefix + f"{make.name()}{i}\n" for i in range(make.rng.randint(12, 80)))
    return _answer(make, "".join(items))


def log_lines(make: Maker) -> list[Round]:
    text = f"INFO {make.name()} the worker has finished the batch of items and goes on with number"
    at = make.rng.randint(0, 10_000)
    lines = [
        f"2026-03-04T05:{i % 60:02d}:{i * 7 % 60:02d} {text} {at + i}\n"
        for i in range(make.rng.randint(12, 120))
    ]
    if make.rng.random() < 0.3:
        return _answer(make, "```\n" + "".join(line[20:78] + "\n" for line in lines) + "```\n")
    return _answer(make, "".join(lines))


def poem(make: Maker) -> list[Round]:
    refrain = f"and {make.sentence().strip().lower()} the {make.rng.choice(WORDS)} sings along the road\n"
    verses = (
        "".join(make.sentence() + "\n" for _ in range(3)) + refrain + "\n"
        for _ in range(make.rng.randint(4, 9))
    )
    return _answer(make, "".join(verses))


def code(make: Maker) -> list[Round]:
    body = "".join(
        f"    self.assertEqual(compute_the_value(self.{make.name()}, default=None), None)\n"
        for _ in range(20)
    ) * make.rng.randint(1, 3)
    return _answer(make, f"```python\nclass Test(TestCase):\n{body}```\nThat is all of it.\n")


def json_array(make: Maker) -> list[Round]:
    rows = ",\n".join(
        f'{{"id": {i}, "name": "{make.name()}", "kind": "the same for all", "enabled": true, "parent": null}}'
        for i in range(make.rng.randint(12, 100))
    )
    return _answer(make, f"[\n{rows}\n]\n")


def prose(make: Maker) -> list[Round]:
    return _answer(make, make.prose(make.rng.randint(20, 120)))


def headings(make: Maker) -> list[Round]:
    parts = (
        f"## {make.name()}\n\nNothing was found in this part that would have to be changed for the release.\n\n"
        for _ in range(make.rng.randint(8, 25))
    )
    return _answer(make, "".join(parts))


def plan_repeated(make: Maker) -> list[Round]:
    """The list of todos, shown at each step with one more crossed off."""
    todos = [make.sentence().strip() for _ in range(make.rng.randint(5, 9))]
    rounds: list[Round] = []
    for done in range(len(todos)):
        shown = "".join(f"- [{'x' if i <= done else ' '}] {t}\n" for i, t in enumerate(todos))
        rounds.append(
            [*make.said(f"Next: {todos[done]}\n\n{shown}"), make.call("write_file", file_path=make.path())]
        )
    return rounds


def long_work(make: Maker) -> list[Round]:
    return [make.work() for _ in range(make.rng.randint(32, 70))]


# Looping


def cycle(make: Maker, length: int) -> tuple[list[Round], int]:
    before = make.before()
    calls = [make.call("read_file", file_path=f"{make.path()}{i}") for i in range(length)]
    # 7 rounds of it: who doesn't stop it pays for all of them.
    return [*before, *([c] for c in calls * 7)], len(before)


def chant(make: Maker) -> tuple[list[Round], int]:
    before, phrase = make.before(), make.sentence() * make.rng.randint(1, 2)
    return [*before, make.said(make.prose(2) + phrase * make.rng.randint(25, 60))], len(before)


def numbered_chant(make: Maker) -> tuple[list[Round], int]:
    """With a number that goes round: 1, 2, 3, 1, 2, 3, …"""
    before, phrase = make.before(), f"I will try once more to repair the {make.name()} now, attempt "
    text = "".join(f"{phrase}{i % make.rng.randint(2, 4) + 1}. " for i in range(40))
    return [*before, make.said(text)], len(before)


def apologies(make: Maker) -> tuple[list[Round], int]:
    before = make.before()
    pair = (
        f"I am sorry, the {make.name()} is wrong. You are right, I apologise: the {make.name()} was right. "
    )
    return [*before, make.said(pair * make.rng.randint(15, 40))], len(before)


def drifting_arguments(make: Maker) -> tuple[list[Round], int]:
    """The same command with an argument that means nothing; the last level must see it."""
    before, name = make.before(), make.name()
    rounds = [
        [make.call("run_shell_command", command=f"pytest -q tests/{name}.py  # try {i}")] for i in range(90)
    ]
    return [*before, *rounds], len(before)


def drifting_chant(make: Maker) -> tuple[list[Round], int]:
    """One sentence a round, with a number that grows."""
    before, name = make.before(), make.name()
    rounds = [
        [
            *make.said(f"Let me look at {name} again (attempt {i})."),
            make.call("read_file", file_path=f"{name}.py", offset=i),
        ]
        for i in range(90)
    ]
    return [*before, *rounds], len(before)


def growing_chant(make: Maker) -> tuple[list[Round], int]:
    """Answers full of one sentence with a growing number, each cut off and gone on with.

    The texts between two occurrences all differ, like those of a list with a shared prefix: level 2 lets them be.
    """
    before, name = make.before(), make.name()
    rounds = [
        make.said("".join(f"I will now try to repair {name} (attempt {i * 20 + j}). " for j in range(20)))
        for i in range(60)
    ]
    return [*before, *rounds], len(before)


LEGITIMATE: dict[str, Callable[[Maker], list[Round]]] = {
    "tests re-run between edits": tests_between_edits,
    "paging through a file": paging,
    "reading many files": many_files,
    "a batch of renames": batch_rename,
    "git status now and then": status_now_and_then,
    "waiting for a server": waiting,
    "a table": table,
    "a list with a shared prefix": shared_prefix,
    "log lines": log_lines,
    "a poem with a refrain": poem,
    "generated code": code,
    "an array in JSON": json_array,
    "long prose": prose,
    "sections that say the same": headings,
    "a plan that is shown again": plan_repeated,
    "long work": long_work,
}
LOOPING: dict[str, Callable[[Maker], tuple[list[Round], int]]] = {
    **{f"a cycle of {k}": (lambda make, k=k: cycle(make, k)) for k in range(1, 6)},
    "chanting": chant,
    "chanting with a number in turn": numbered_chant,
    "alternating apologies": apologies,
    "drifting arguments": drifting_arguments,
    "a growing number, round by round": drifting_chant,
    "a growing number in every answer": growing_chant,
}


def traces(seed: int, legitimate: int, looping: int) -> list[Trace]:
    """At least so many of each, spread evenly over the kinds."""
    found: list[Trace] = []
    for kinds, least in ((LEGITIMATE, legitimate), (LOOPING, looping)):
        for number in range(-(-least // len(kinds)) * len(kinds)):
            kind = list(kinds)[number % len(kinds)]
            made = kinds[kind](Maker(random.Random(f"{seed} {kind} {number}")))
            rounds, begins = made if isinstance(made, tuple) else (made, None)
            found.append(Trace(kind, rounds, begins))
    return found
