"""How files are split into chunks, and code into words."""

from hypothesis import given
from hypothesis import strategies as st

from interlock.services.index.ranking import significant_words, to_index_columns, to_search_terms
from interlock.services.index.sources import (
    LEAST,
    MOST,
    TOLERATED,
    Source,
    cut_into_chunks,
    prepare_file_for_index,
)
from interlock.services.secrets.redaction import SHAPES
from interlock.state.workspace import FileConventions

LINES = st.sampled_from(
    [
        *("", "    ", "# comment", "@decorator", "class A:", "    def f(self):", "def g():"),
        *("        return 1", "x = 1", "    '''doc'''", "}" * 40, "a" * 90, "b" * 1151, "é" * 600),
        *("## Heading", "```", "---", "\tif x:"),
    ]
)


@given(st.lists(LINES, max_size=120).map("\n".join), st.sampled_from(["python", "markdown", "go", "text"]))
def test_chunks_are_within_the_limits_and_nothing_is_in_two_or_lost(text: str, language: str) -> None:
    lines = text.split("\n")
    found = cut_into_chunks(text.encode(), language)
    last, segments = 0, ""
    for chunk in found:
        assert len(chunk.text.strip()) >= LEAST or segments
        assert len(chunk.text) <= TOLERATED
        whole = "\n".join(lines[chunk.start - 1 : chunk.end])
        if len(whole) > TOLERATED:
            segments = segments + chunk.text
            assert whole.startswith(segments)
            segments = "" if segments == whole else segments
        else:
            assert (chunk.text, segments) == (whole, "")
        assert chunk.start > last or (segments or len(whole) > TOLERATED)
        last = chunk.end
    assert segments == ""
    covered = {number for chunk in found for number in range(chunk.start, chunk.end + 1)}
    assert all(len(line.strip()) < LEAST for number, line in enumerate(lines, 1) if number not in covered)


@given(st.binary(max_size=3000), st.sampled_from(["python", "markdown", "text"]))
def test_any_bytes_are_cut(data: bytes, language: str) -> None:
    assert all(len(chunk.text) <= TOLERATED for chunk in cut_into_chunks(data, language))


def test_a_definition_keeps_its_comment_its_decorators_and_its_names() -> None:
    body = "\n".join(f"        value_{n} = compute({n})" for n in range(45))
    head = f"import os\n\n\nclass Big:\n    '''{'Doc ' * 20}'''\n\n"
    source = f"{head}    # Says why.\n    @cached\n    def long(self):\n{body}\n"
    found = cut_into_chunks(source.encode(), "python")
    assert [c.name for c in found] == ["Big", "Big.long", "Big.long"]
    assert found[1].text.startswith("    # Says why.\n    @cached\n    def long")


def test_the_last_piece_is_not_too_short_and_a_line_that_is_too_long_comes_in_segments() -> None:
    assert [len(c.text) for c in cut_into_chunks(("word " * 10 + "\n").encode() * 24, "text")] == [1019, 203]
    found = cut_into_chunks(b"x" * 2500, "text")
    assert [(c.start, c.end, len(c.text)) for c in found] == [(1, 1, MOST), (1, 1, MOST), (1, 1, 500)]


def test_code_is_found_by_the_words_that_names_are_made_of() -> None:
    assert to_search_terms("parseHTTPDate") == "parsehttpdate parse http date"
    assert to_search_terms("read_file2") == "read_file2 read file 2"
    assert to_search_terms("Straße_übergroß") == "straße_übergroß straße übergroß"
    assert significant_words("Where is the function that parses HTTPDate?") == [
        "parses",
        "httpdate",
        "http",
        "date",
    ]
    assert significant_words("how to do it") == ["how", "to", "do", "it"]
    path, name, said, code = to_index_columns(
        "src/httpDate.py", "A.f", '"""Says\nwhat."""\n# why\nx = 1  # not this'
    )
    assert (path, name, said) == ("src httpdate http date", "a f", "says what why")
    assert code.endswith("not this")


def test_a_file_is_indexed_by_its_text_in_its_own_encoding() -> None:
    text = "# 温度传感器的读数每五秒更新一次，并写入日志文件。\n" * 3
    conventions = FileConventions(charset="gbk")
    source = Source("a.txt", "text", "")
    assert (
        prepare_file_for_index(source, text.encode("gbk"), SHAPES, conventions).chunks[0].text == text.strip()
    )
