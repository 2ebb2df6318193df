"""_verdicts: what the channels `decided` and `finished` hold: a word, an attempt, perhaps a key or a record."""


def verdict(word: str, attempt: int, more: str = "") -> str:
    return f"{word} {attempt} {more}".rstrip()


def attempt_of(text: str) -> int:
    return int(text.split(" ")[1])


def approval_of(text: str) -> str:
    """Key of the request that was approved; empty: nobody was asked."""
    return text.partition(" ")[2].partition(" ")[2]


def instead_of(text: str) -> str:
    """Chain record of what the model is sent in place of the result; empty: the result itself."""
    return "" if is_ready(text) else text.partition(" ")[2].partition(" ")[2]


def is_ready(text: str) -> bool:
    return text.startswith("ready ") or is_changed(text)


def is_changed(text: str) -> bool:
    """Ready, with arguments that a hook made."""
    return text.startswith("changed ")


def is_stop(text: str) -> bool:
    """Done, and a hook wants the run to end."""
    return text.startswith("stop ")


def is_cancel(text: str) -> bool:
    return text.startswith("cancel ")
