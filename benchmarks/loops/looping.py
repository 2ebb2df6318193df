"""looping: sessions that loop; each maker returns the round in which the loop begins."""

from collections.abc import Callable

from maker import Maker, Round


def cycle(make: Maker, length: int) -> tuple[list[Round], int]:
    before = make.before()
    calls = [make.call("read_file", file_path=f"{make.path()}{i}") for i in range(length)]
    # 7 rounds of it: a detector that doesn't stop it pays for all of them.
    return [*before, *([c] for c in calls * 7)], len(before)


def chant(make: Maker) -> tuple[list[Round], int]:
    before, phrase = make.before(), make.sentence() * make.rng.randint(1, 2)
    return [*before, make.said(make.prose(2) + phrase * make.rng.randint(25, 60))], len(before)


def numbered_chant(make: Maker) -> tuple[list[Round], int]:
    """A number that repeats: 1, 2, 3, 1, 2, 3, …"""
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
    """The same command with a meaningless argument; the last level must notice."""
    before, name = make.before(), make.name()
    rounds = [
        [make.call("run_shell_command", command=f"pytest -q tests/{name}.py  # try {i}")] for i in range(90)
    ]
    return [*before, *rounds], len(before)


def drifting_chant(make: Maker) -> tuple[list[Round], int]:
    """One sentence a round, with a growing number."""
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
    """Answers full of one sentence with a growing number, each cut off and continued.

    The texts between two occurrences all differ, like those of a list with a shared prefix: level 2 accepts them.
    """
    before, name = make.before(), make.name()
    rounds = [
        make.said("".join(f"I will now try to repair {name} (attempt {i * 20 + j}). " for j in range(20)))
        for i in range(60)
    ]
    return [*before, *rounds], len(before)


LOOPING: dict[str, Callable[[Maker], tuple[list[Round], int]]] = {
    **{f"a cycle of {k}": (lambda make, k=k: cycle(make, k)) for k in range(1, 6)},
    "chanting": chant,
    "chanting with a number in turn": numbered_chant,
    "alternating apologies": apologies,
    "drifting arguments": drifting_arguments,
    "a growing number, round by round": drifting_chant,
    "a growing number in every answer": growing_chant,
}
