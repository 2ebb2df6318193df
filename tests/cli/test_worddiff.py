"""What a diff marks: the words that changed in matching lines; deceptive characters are escaped."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.cli.render.word_diff import SIGNS, DiffLine, parse_diff
from interlock.state.text import make_visible
from interlock.tools.text_diff import unified_diff


def lines_of(old: str, new: str) -> list[DiffLine]:
    return [*parse_diff(unified_diff("f.py", old.encode(), new.encode()))]


def marked(line: DiffLine) -> str:
    return "".join(f"[{text}]" if changed else text for text, changed in line.pieces)


def changes(old: str, new: str) -> list[str]:
    return [SIGNS[x.kind] + marked(x) for x in lines_of(old, new) if x.kind in ("removed", "added")]


def test_the_words_that_changed_are_marked() -> None:
    assert changes("total = add(a, b)\n", "total = add(a, c)\n") == [
        "-total = add(a, [b])",
        "+total = add(a, [c])",
    ]
    assert changes("say('old words here')\n", "say('new text here')\n") == [
        "-say('[old words] here')",
        "+say('[new text] here')",
    ]


def test_lines_that_have_little_in_common_are_marked_as_a_whole() -> None:
    assert changes("return 3.14 * r\n", "raise ValueError(name)\n") == [
        "-return 3.14 * r",
        "+raise ValueError(name)",
    ]


def test_of_unequal_numbers_of_lines_those_that_are_alike_belong_together() -> None:
    old = "def area(r):\n    return 3.14 * r * r\n"
    new = (
        "def area(r):\n    '''Of a circle, or what is left of it.'''\n    # exactly\n    return pi * r * r\n"
    )
    assert changes(old, new)[-1] == "+    return [pi] * r * r"
    assert changes(old, new)[1] == "+    '''Of a circle, or what is left of it.'''"


def test_lines_are_numbered_in_their_own_file() -> None:
    lines = lines_of("a\nb\nc\n", "a\nB\nnew\nc\n")
    numbers = [(line.kind, line.number) for line in lines if line.kind not in ("file", "hunk")]
    assert numbers == [("same", 1), ("removed", 2), ("added", 2), ("added", 3), ("same", 4)]


def test_lines_that_look_like_a_header_are_content() -> None:
    lines = lines_of("-- a\n++ b\n", "-- c\n++ d\n")
    kinds = [line.kind for line in lines]
    assert kinds == ["file", "file", "hunk", "removed", "removed", "added", "added"]
    assert [line.text for line in lines[3:]] == ["-- a", "++ b", "-- c", "++ d"]


TEXT = st.lists(
    st.sampled_from(["a b c", "a b d", "", " x", "-- y", "+++ z", "@@ -1 +1 @@", "日本"]), max_size=9
)


@given(TEXT, TEXT, st.booleans())
def test_nothing_of_a_diff_is_lost(old: list[str], new: list[str], ends: bool) -> None:
    diff = unified_diff("f", ("\n".join(old) + "\n" * ends).encode(), "\n".join(new).encode())
    shown = [SIGNS.get(line.kind, "") + line.text for line in parse_diff(diff)]
    assert shown == [line for line in make_visible(diff).split("\n") if line]


def test_a_huge_change_isnt_compared_pair_by_pair() -> None:
    old, new = "".join(f"old {n}\n" for n in range(3000)), "".join(f"new {n}\n" for n in range(2000))
    assert sum(line.kind == "added" for line in lines_of(old, new)) > 1000
    long = "word " * 5000
    assert changes(long + "a\n", long + "b\n") == [f"-{long}a", f"+{long}b"]
