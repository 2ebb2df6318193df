"""What is shown of a change: the diff, and for a search text that isn't there what comes nearest."""

import pytest

from interlock.state.text import find_truncated_diff_notice, format_diff_stat
from interlock.tools.matcher.edit import describe_nearest_text
from interlock.tools.matcher.windows import WorkBudget
from interlock.tools.text_diff import unified_diff


def test_a_diff_shows_what_changes_and_nothing_for_nothing() -> None:
    assert unified_diff("a", b"x\ny\n", b"x\nz\n") == "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n x\n-y\n+z\n"
    assert unified_diff("a", b"x", b"x") == ""
    assert unified_diff("a", b"x\r\ny\r\n", b"x\r\nz\r\n").count("␍") == 0
    assert "No newline at end of file" in unified_diff("a", b"x", b"x\n")
    assert unified_diff("a", None, b"x\n").startswith("--- /dev/null\n+++ b/a\n@@")
    assert unified_diff("a", b"\0", b"x") == "Binary file a differs.\n"


def test_a_diff_of_huge_files_is_quick_right_and_cut() -> None:
    lines = [f"line {i}\n" for i in range(40_000)]
    changed = [*lines[:20_000], "other\n", *lines[20_001:]]
    text = unified_diff("a", "".join(lines).encode(), "".join(changed).encode())
    assert text.splitlines()[2:] == [
        "@@ -19998,7 +19998,7 @@",
        *(f" line {i}" for i in range(19_997, 20_000)),
        "-line 20000",
        "+other",
        *(f" line {i}" for i in range(20_001, 20_004)),
    ]
    cut = unified_diff("a", None, "".join(lines).encode())
    assert len(cut) < 101_000
    assert find_truncated_diff_notice(cut) and format_diff_stat(cut) == "+40000", "what isn't shown counts"
    dashes = unified_diff("a", b"-- a\nkept\n", b"++ b\nkept\n")
    assert format_diff_stat(dashes) == "+1 −1", "a line of the file isn't taken for a header"


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        ("def f():\n\treturn 1\n", "    return 1\n", "x", "other whitespace stands at line 2:\n\treturn 1"),
        ("a\nv = f(1)\nb\n", "v = f(2)", "x", "most similar text stands at line 2:\nv = f(1)"),
        ("done = True\n", "done = False", "done = True", "What it would put there stands at line 1 already"),
        ("a\n", "zzzzzz", "x", "Nothing in it is similar"),
        ("", "zzzzzz", "x", "Nothing in it is similar"),
        ("a\n", "\n\n\n", "x", "Nothing in it is similar"),
    ],
)
def test_a_failed_search_says_what_comes_nearest(text: str, old: str, new: str, expected: str) -> None:
    assert expected in describe_nearest_text(text, old, new, work=WorkBudget())
