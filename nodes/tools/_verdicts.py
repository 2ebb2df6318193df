"""_verdicts: what the channels `decided` and `finished` hold, a word, an attempt and perhaps a request's key."""


def verdict(word: str, attempt: int, approval: str = "") -> str:
    return f"{word} {attempt} {approval}".rstrip()


def attempt_of(text: str) -> int:
    return int(text.split(" ")[1])


def approval_of(text: str) -> str:
    """Key of the request that was approved; empty: nobody was asked."""
    return text.partition(" ")[2].partition(" ")[2]


def is_ready(text: str) -> bool:
    return text.startswith("ready ")


def is_cancel(text: str) -> bool:
    return text.startswith("cancel ")
