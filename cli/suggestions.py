"""suggestions: what somebody may have meant with a word that nothing is called: "did you mean"."""


def nearest_names_hint(word: str, known: list[str], cutoff: float = 0.6) -> str:
    """` Did you mean 'x'?`, or an empty string."""
    return did_you_mean_hint(close_matches(word, known, cutoff))


def close_matches(word: str, known: list[str], cutoff: float) -> list[str]:
    """Return up to three of `known`, the likest first. Dashes before a flag don't make two flags alike."""
    from difflib import get_close_matches

    bare = {name.lstrip("-"): name for name in known}
    return [bare[name] for name in get_close_matches(word.lstrip("-"), [*bare], 3, cutoff)]


def did_you_mean_hint(names: list[str]) -> str:
    return f" Did you mean {' or '.join(map(repr, names))}?" if names else ""
