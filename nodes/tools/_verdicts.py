"""_verdicts: what the channels `decided` and `finished` hold: a word, an attempt, perhaps a key or a record."""


def verdict(word: str, attempt: int, more: str = "") -> str:
    return f"{word} {attempt} {more}".rstrip()


def attempt_of(text: str) -> int:
    return int(text.split(" ")[1])


def approval_of(text: str) -> str:
    """Key of the request that was approved; empty: nobody was asked."""
    return text.partition(" ")[2].partition(" ")[2]


def shortened_of(text: str) -> str:
    """Chain record of what stands for a long output; empty: the output itself does."""
    return text.partition(" ")[2].partition(" ")[2] if text.startswith("done ") else ""


def is_ready(text: str) -> bool:
    return text.startswith("ready ")


def is_cancel(text: str) -> bool:
    return text.startswith("cancel ")
