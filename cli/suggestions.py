"""suggestions: what somebody may have meant with a word that nothing is called: "did you mean"."""


def nearest_names_hint(word: str, known: list[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'x'?`, or an empty string."""
    return did_you_mean_hint(close_matches(word, known, cutoff))


def close_matches(word: str, known: list[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches

    return get_close_matches(word, known, 3, cutoff)


def did_you_mean_hint(names: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""
