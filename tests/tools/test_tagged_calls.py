"""The XML protocol: a message parses the same however it is split; text inside a value stays text."""

import random
from collections.abc import Collection, Iterable
from itertools import pairwise

import pytest
from folders import table
from hypothesis import given
from hypothesis import strategies as st

from interlock.services.toolset import parameter_schema
from interlock.state.messages import Message, ToolCall, ToolDeclaration
from interlock.tools.call_arguments import TaggedTools, convert_arguments
from interlock.tools.table import TOOLS as TABLE
from interlock.tools.tag_calls import RAW, TaggedCall, TagParser, render_call_as_tags, render_message_as_text

READINGS = table(__file__, "tagged.yaml")
TOOLS = {
    "read_file": ("path", "start_line"),
    "write_to_file": ("path", "content", "line_count"),
    "execute_command": ("command", "cwd"),
    "attempt_completion": ("result",),
    "finish": (),
}
WORDS = [
    *(f"<{name}>" for name in TOOLS),
    *(f"</{name}>" for name in TOOLS),
    *(f"<{p}>" for names in TOOLS.values() for p in names),
    *(f"</{p}>" for names in TOOLS.values() for p in names),
    *("<", ">", "</", "`", "\n", "\r\n", " ", "x", "é", "😀", "<read_file ", "<read_file/>", "<b>"),
    *("&lt;", "<read_"),
]
TEXTS = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=5)), max_size=40).map("".join)

OFFERED = st.sets(st.sampled_from([*TOOLS]))


def read(
    pieces: Iterable[str], *, cut: bool = False, offered: Collection[str] = frozenset(TOOLS)
) -> tuple[str, str, list[TaggedCall], str]:
    """The text shown while streaming, the final text, the calls and their problem."""
    parser = TagParser(TOOLS, offered)
    shown = "".join([*map(parser.feed, pieces), parser.close(truncated=cut)])
    return shown, parser.text, parser.calls, parser.problem


def whole(text: str) -> list[tuple[str, dict[str, str]]]:
    *_, calls, problem = read([text])
    assert problem == ""
    return [(call.name, call.params) for call in calls]


@given(text=TEXTS, cuts=st.lists(st.integers(0, 300)), cut=st.booleans(), offered=OFFERED)
def test_in_whatever_pieces_it_comes_it_reads_the_same(
    text: str, cuts: list[int], cut: bool, offered: set[str]
) -> None:
    at = sorted({0, len(text), *(c for c in cuts if c < len(text))})
    pieces = [text[a:b] for a, b in pairwise(at)]
    ways = [read(way, cut=cut, offered=offered) for way in ([text], text, pieces)]
    assert ways[0] == ways[1] == ways[2]


@given(text=TEXTS, offered=OFFERED)
def test_nothing_is_lost_that_isnt_part_of_a_call(text: str, offered: set[str]) -> None:
    shown, kept, calls, problem = read([text], offered=offered)
    assert kept == shown.strip()
    if not calls and not problem:
        assert shown == text


@given(
    name=st.sampled_from(["write_to_file", "execute_command"]),
    text=st.lists(
        st.sampled_from(["<b>", "</b>", "a < b", "&amp;", "\n", "  ", "<read_file>", "</finish>", "x", "`"])
    ),
    before=st.sampled_from(["", "I write it now.\n", "a < b and <x>, "]),
)
def test_a_call_that_is_written_as_its_model_would_is_read_as_it_was(
    name: str, text: list[str], before: str
) -> None:
    value = "".join(text)
    args = (
        {"path": "a b.md", "content": value} if name == "write_to_file" else {"command": value.strip() or "x"}
    )
    call = ToolCall(id="1", name=name, args={**args})
    shown, kept, calls, problem = read(before + render_call_as_tags(call))
    assert (problem, kept, [(c.name, c.params) for c in calls]) == ("", before.strip(), [(name, args)])
    assert shown.strip() == before.strip()


@pytest.mark.parametrize(("text", "calls"), READINGS["values"])
def test_a_value_is_text_whatever_markup_it_holds(text: str, calls: list[tuple[str, dict[str, str]]]) -> None:
    assert whole(text) == [(name, params) for name, params in calls]


@pytest.mark.parametrize("text", READINGS["looks"])
def test_what_only_looks_like_a_tag_is_text(text: str) -> None:
    assert read([text]) == (text, text, [], "")


@pytest.mark.parametrize("file", READINGS["halves"])
def test_a_file_may_hold_half_of_what_looks_like_a_call(file: str) -> None:
    text = f"<write_to_file><path>a</path>\n<content>\n{file}\n</content>\n</write_to_file>"
    assert whole(text) == [("write_to_file", {"path": "a", "content": file})]


def test_a_file_that_holds_the_end_of_its_own_call_is_asked_for_again_not_cut_short() -> None:
    file = "how to:\n</content>\n</write_to_file>\nthat is all"
    text = f"<write_to_file><path>a</path><content>\n{file}\n</content></write_to_file>"
    assert "</content> stands behind the call" in read([text])[3]


@pytest.mark.parametrize(("text", "calls", "problem"), READINGS["cut"])
def test_a_call_that_was_cut_off_is_no_call(text: str, calls: int, problem: str) -> None:
    """With every parameter complete, only the last tag may be missing, and not in a truncated answer."""
    *_, found, said = read([text])
    assert (len(found), problem in said, bool(said)) == (calls, True, bool(problem))
    *_, found, said = read([text], cut=True)
    assert said != ""
    assert "half" not in str(found)


@pytest.mark.parametrize(("text", "shown", "calls", "problem"), READINGS["unoffered"])
def test_a_call_of_a_tool_that_isnt_offered_is_a_call_and_its_mere_name_is_text(
    text: str, shown: str, calls: list[str], problem: str
) -> None:
    _, kept, found, said = read([text], offered={"read_file"})
    assert (kept, [c.name for c in found], problem in said) == (shown, calls, True)
    assert bool(said) == bool(problem)


@pytest.mark.parametrize(("text", "name", "args"), READINGS["files"])
def test_files_as_roo_code_names_them_are_read_with_their_lines_or_refused_by_name(
    text: str, name: str, args: dict[str, object]
) -> None:
    offered = [
        ToolDeclaration(name=name, description="", parameters=parameter_schema(TABLE[name].args))
        for name in ("read_file", "read_many_files")
    ]
    tools = TaggedTools(offered)
    parser = tools.make_parser()
    parser.feed(f"<read_file>{text}</read_file>")
    assert [tools.resolve_call(call) for call in parser.calls] == [(name, args)]
    alone = TaggedTools(offered[:1])
    assert [alone.resolve_call(call)[0] for call in parser.calls] == ["read_file"]


def test_work_grows_with_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long text, in one piece and in many: counts characters examined, not time."""
    looked = 0
    take = TagParser._append_call_text  # pyright: ignore[reportPrivateUsage]

    def counted(self: TagParser, start: int, end: int) -> int:
        nonlocal looked
        looked += len(self._buffer)  # pyright: ignore[reportPrivateUsage]
        return take(self, start, end)

    monkeypatch.setattr(TagParser, "_append_call_text", counted)
    body = "line < of </code> text\n" * 10_000
    text = f"<write_to_file><path>a</path><content>\n{body}</content></write_to_file>"
    generator = random.Random(1)
    at = sorted({0, len(text), *(generator.randrange(len(text)) for _ in range(4_000))})
    *_, calls, problem = read(text[a:b] for a, b in pairwise(at))
    assert (problem, calls[0].params["content"]) == ("", body.removesuffix("\n"))
    assert looked < 4 * len(text)
    *_, calls, problem = read([text])
    assert (problem, len(calls[0].params["content"])) == ("", len(body) - 1)
    for many in (
        "<" * 200_000,
        "<read_file" * 20_000,
        "<read_file>" + "</path>x" * 20_000 + "</read_file>",
        "<finish><b>" * 20_000,
    ):
        assert read([many], offered={"read_file"})[3] == ""


def test_values_become_what_the_schema_says_or_stay_text() -> None:
    schema = {
        "properties": {
            "n": {"type": "integer"},
            "f": {"type": "number"},
            "b": {"type": "boolean"},
            "l": {"type": "array"},
            "o": {"type": "object"},
            "s": {"type": "string"},
            "e": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        }
    }
    given = {"n": "3", "f": "0.5", "b": "True", "l": "[1]", "o": '{"a": 1}', "s": "3", "e": "x", "new": "1"}
    want = {"n": 3, "f": 0.5, "b": True, "l": [1], "o": {"a": 1}, "s": "3", "e": "x", "new": "1"}
    assert convert_arguments(given, schema) == want
    bad = {"n": "3.5", "f": "x", "b": "1", "l": "{}", "o": "[" * 100_000}
    assert convert_arguments(bad, schema) == bad


def test_a_conversation_reads_as_what_its_model_would_have_written() -> None:
    call = ToolCall(id="0.0", name="write_to_file", args={"path": "a", "content": "x\n", "line_count": 1})
    asked = render_message_as_text(Message(role="assistant", content="Now.", tool_calls=(call,)))
    assert (asked.tool_calls, asked.text.partition("\n\n")[0]) == ((), "Now.")
    *_, calls, _ = read([asked.text])
    assert calls[0].params == {"path": "a", "content": "x\n", "line_count": "1"}
    done = render_message_as_text(
        Message(role="tool", name="write_to_file", tool_call_id="0.0", content="ok", status="success")
    )
    assert (done.role, done.text) == (
        "user",
        "[write_to_file]\n<tool_result>\n<output>\nok\n</output>\n</tool_result>",
    )
    bad = render_message_as_text(
        Message(role="tool", name="x", tool_call_id="0.0", content="no", status="error")
    )
    assert "<error>\nno\n</error>" in bad.text
    assert {"content", "diff"} <= RAW
