"""legitimate: sessions that only look like a loop."""

from collections.abc import Callable

from maker import WORDS, Maker, Round


def _answer(make: Maker, text: str) -> list[Round]:
    return [*make.before(), make.said(make.prose(1) + "\n\n" + text)]


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
