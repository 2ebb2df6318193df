"""test_front_matter: front matter is read as people write it, and whatever it holds, nothing raises or gets lost."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from folders import table
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.context.front_matter import parse_front_matter, to_flag, to_list, to_text

TABLE: dict[str, list[Any]] = table(__file__, "front_matter.yaml")


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("start", ["", "\ufeff"])
@pytest.mark.parametrize(("front", "fields"), TABLE["read"])
def test_what_other_programs_take_is_read(front: str, fields: dict[str, Any], start: str, ends: str) -> None:
    text = start + f"---\n{front}\n--- \nbody\n---\nmore".replace("\n", ends)
    assert parse_front_matter(text) == (fields, "body\n---\nmore".replace("\n", ends), None)


@pytest.mark.parametrize("text", TABLE["text"])
def test_what_is_no_front_matter_is_text(text: str) -> None:
    assert parse_front_matter(text) == ({}, text, None)


def test_what_can_not_be_read_is_said_and_the_body_kept() -> None:
    assert parse_front_matter("---\nname: x\nrest") == (
        {},
        "---\nname: x\nrest",
        "its front matter has no closing line '---'",
    )
    fields, body, problem = parse_front_matter("---\n: : :\n---\nrest")
    assert (fields, body) == ({}, "rest")
    assert problem is not None
    assert "no YAML" in problem
    assert parse_front_matter("---\nodd *line*\nname: x: y\n---\n").problem == (
        "line 'odd *line*' of its front matter belongs to no field"
    )
    assert parse_front_matter(f"---\na: {'b' * 40_000}\n---\nrest").fields == {}
    assert parse_front_matter(f"---\na: {'[' * 5_000}\n---\nrest").fields == {"a": "[" * 5_000}


@pytest.mark.parametrize(("value", "texts"), TABLE["lists"])
def test_a_list_may_be_written_as_text(value: object, texts: list[str]) -> None:
    assert to_list(value) == texts


def test_values_of_odd_types_become_text_or_flags() -> None:
    assert [to_text(v) for v in (None, "a", 1, 1.5, True, ["a", 1], {"a": 1})] == [
        *("", "a", "1", "1.5", "true", "[a, 1]", '{"a": 1}'),
    ]
    assert [to_flag(v) for v in (True, "Yes", "on", 1, False, "no", 0, "perhaps", None)] == [
        *(True, True, True, True, False, False, False, None, None),
    ]


LINES = st.lists(
    st.one_of(
        st.text(max_size=20),
        st.from_regex(r"[a-z]{1,5}: ?[*&!|>'\"\[{a-z,: @`#-]{0,12}", fullmatch=True),
        st.from_regex(r"[ \t]{1,4}(- |[a-z]{1,3}: )[*a-z\[\]{}:,]{0,8}", fullmatch=True),
    ),
    max_size=8,
).map("\n".join)


@given(front=LINES, body=st.text(max_size=40))
def test_whatever_it_holds_nothing_raises_and_the_body_stays(front: str, body: str) -> None:
    text = f"---\n{front}\n---\n{body}"
    fields, rest, _problem = parse_front_matter(text)
    assert text.endswith(rest)
    assert rest.endswith(body)
    assert rest == text or not rest.startswith("---\n" + front) or not fields
    for value in fields.values():
        assert isinstance(to_text(value), str)
        assert all(isinstance(one, str) for one in to_list(value))


VALUES = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zl", "Zp"]), min_size=1).filter(
        str.strip
    ),
    st.booleans(),
    st.integers(-(10**9), 10**9),
)


@given(
    st.dictionaries(st.from_regex(r"[a-z][a-z-]{0,8}", fullmatch=True), VALUES | st.lists(VALUES), min_size=1)
)
def test_what_strict_yaml_writes_is_read_alike(fields: dict[str, Any]) -> None:
    """Also when one broken line beside it makes strict YAML refuse the whole."""
    front = yaml.safe_dump(fields, allow_unicode=True, width=10_000)
    assert parse_front_matter(f"---\n{front}---\n").fields == fields
    assert parse_front_matter(f"---\nglobs: *x, *y\n{front}---\n").fields == {"globs": "*x, *y", **fields}


@given(st.from_regex(r"[*@%`!&a-zA-Z/.,:{} -]{1,30}", fullmatch=True).map(str.strip).filter(bool))
def test_an_unquoted_pattern_or_sentence_is_its_text(value: str) -> None:
    found = parse_front_matter(f"---\nfield: {value}\nother: **/x\n---\n").fields
    assert found["other"] == "**/x"
    assert set(found) == {"field", "other"}


def test_the_table_of_agent_files_names_no_path_twice(tmp_path: Path) -> None:
    from interlock.services.files.agent_files import find_agent_files, load_agent_files

    paths = [(row.kind, path) for row in load_agent_files() for path in row.project]
    assert len(paths) == len(set(paths))
    assert list(find_agent_files("rules", tmp_path)) == []
