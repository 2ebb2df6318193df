"""test_settings_jsonc: JSON with comments and trailing commas parses to its meaning, errors keep their position."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.files.json_with_comments import parse_json_with_comments

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
NOISE = [
    *("", " ", "\n", "\t", '// a "comment" , ] } /* \n', '/* , } ] // " \n */', "/**/", "/* * / **/", "//\n"),
]


def spoiled(value: Any, draw: Any) -> str:
    """`value` as JSON, with comments between all tokens and commas after last elements."""
    noise = lambda: draw(st.sampled_from(NOISE))  # noqa: E731
    comma = lambda: draw(st.sampled_from(["", ","]))  # noqa: E731
    if isinstance(value, list) and value:
        inner = ",".join(spoiled(v, draw) for v in value)
        return f"{noise()}[{inner}{comma()}{noise()}]{noise()}"
    if isinstance(value, dict) and value:
        pairs = [
            f"{noise()}{json.dumps(k, ensure_ascii=False)}{noise()}:{spoiled(v, draw)}"
            for k, v in value.items()
        ]
        return f"{noise()}{{{','.join(pairs)}{comma()}{noise()}}}{noise()}"
    return f"{noise()}{json.dumps(value, ensure_ascii=False)}{noise()}"


@given(VALUES, st.data())
def test_comments_and_trailing_commas_change_nothing(value: Any, data: st.DataObject) -> None:
    assert parse_json_with_comments(spoiled(value, data.draw)) == value
    assert parse_json_with_comments(json.dumps(value, indent=2)) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\" // no", /* yes */ "b\\": 1, // yes' + "\n}", {"a": '" // no', "b\\": 1}),
        (r'["/* no */", "a,]", "\\", /* yes " */]', ["/* no */", "a,]", "\\"]),
        ("[1 /*,*/ , // ]\n]", [1]),
    ],
)
def test_strings_are_no_comments_and_comments_no_strings(text: str, value: Any) -> None:
    assert parse_json_with_comments(text) == value


@pytest.mark.parametrize(
    "text",
    [
        *("[,]", "[1,,]", "{,}", '{"a":,}', ",", "[1 2]", "[1,", "/* [1]", "1 // \n 2", "/ 1"),
        *("[NaN]", "[-Infinity]", "[" * 100_000, "1" * 5000),
    ],
)
def test_what_is_wrong_without_comments_stays_wrong(text: str) -> None:
    with pytest.raises(ValueError):
        parse_json_with_comments(text)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ('{"a": 1,\n "b" 2}', 2, 6),
        ('// first\n{"a": /* x\n */ nope}', 3, 5),
        ('{\n  "url": "http://x",\n  "b": [1, 2,],\n  c: 1\n}', 4, 3),
    ],
)
def test_an_error_names_line_and_column_of_the_text_as_written(text: str, line: int, column: int) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        parse_json_with_comments(text)
    assert (caught.value.lineno, caught.value.colno) == (line, column)
