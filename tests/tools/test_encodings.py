"""Files stay in their encoding: an edit keeps all bytes around it, and its own text decodes as the file does."""

import re
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import Calls

from interlock.state.encodings import ConfirmedEncoding
from interlock.state.workspace import FileConventions
from interlock.tools.file_content import TextFile, TextNotWritable, compare_texts, decode_text_file
from interlock.tools.matcher.edit import apply_spans
from interlock.tools.matcher.windows import Span
from interlock.tools.search import other_encodings
from interlock.tools.search.other_encodings import NOT_UTF_8

GBK = "温度=20\n尺寸=1\n".encode("gbk")
SJIS = "name=テスト\nmode=1\n".encode("shift-jis")


class Kind(NamedTuple):
    codec: str
    signs: str
    """Characters that it has."""
    known: FileConventions = FileConventions()
    head: str = ""
    mark: bytes = b""


def confirmed(codec: str, signs: str) -> Kind:
    return Kind(codec, signs, FileConventions(confirmed_encoding=codec))


KINDS = {
    "utf-8": Kind("utf-8", "é温テ€𝄞"),
    "utf-8 with a mark": Kind("utf-8", "é温", mark=b"\xef\xbb\xbf"),
    "utf-16 with a mark": Kind("utf-16-le", "é温𝄞", mark=b"\xff\xfe"),
    "utf-32 with a mark": Kind("utf-32-be", "é温𝄞", mark=b"\0\0\xfe\xff"),
    "utf-16 by git": Kind("utf-16-be", "é温", FileConventions(working_tree_encoding="UTF-16BE")),
    "python": Kind("cp1252", "é€ß", head="# -*- coding: cp1252 -*-\n"),
    "html": Kind("gbk", "温度", head='<meta charset="gb2312">\n'),
    "xml": Kind("euc_jp", "テ設", head="<?xml version='1.0' encoding='EUC-JP'?>\n"),
    "git": Kind("koi8-r", "привет", FileConventions(working_tree_encoding="KOI8-R")),
    "confirmed": confirmed("gb18030", "温度尺é𝄞"),
    "shift-jis": confirmed("cp932", "テスト設∵纊"),
    "latin-1": Kind("latin-1", "éßÿ", FileConventions(charset="latin1")),
    "big5": confirmed("big5", "設檔測試"),
}
NAMES = {"python": "a.py", "html": "a.html"}
OWN_LINES = "abc =\\|x"


@pytest.mark.parametrize("name", KINDS)
@given(data=st.data())
def test_an_edit_keeps_all_bytes_around_it_and_is_in_the_files_encoding(
    name: str, data: st.DataObject
) -> None:
    kind = KINDS[name]
    end = data.draw(st.sampled_from(("\n", "\r\n", "\r")), "line end")
    texts = st.text(st.sampled_from(kind.signs + OWN_LINES), max_size=6)
    lines = [
        f"{n}{text}{kind.signs}" for n, text in enumerate(data.draw(st.lists(texts, min_size=1, max_size=5)))
    ]
    at = data.draw(st.integers(0, len(lines) - 1), "line")
    new = data.draw(texts, "new")
    head = kind.head.replace("\n", "\n" if end == "\r" and kind.head else end)
    before = [kind.mark + (head + end.join([*lines[:at], ""])).encode(kind.codec)]
    before += [lines[at].encode(kind.codec), (end + end.join(lines[at + 1 :])).encode(kind.codec)]
    file = decode_text_file(b"".join(before), kind.known, NAMES.get(name, "a.txt"))
    assert file is not None
    assert not file.encoding.is_guess
    place = file.text.index(lines[at])
    made = file.encode(file.replace_spans([(place, place + len(lines[at]), new)]))
    assert made == before[0] + new.encode(kind.codec) + before[2]


@contextmanager
def project(kind: Kind) -> Generator[Calls]:
    """A folder that says of its files what the kind's encoding needs."""
    with TemporaryDirectory() as folder, closing(Calls(Path(folder).resolve() / "project")) as call:
        known = kind.known
        git = f"a.* working-tree-encoding={known.working_tree_encoding or 'UTF-8'}\n"
        editor = f"[a.*]\ncharset = {known.charset or 'utf-8'}\n"
        call.write({".git/": "", ".gitattributes": git, ".editorconfig": editor})
        if known.confirmed_encoding:
            confirmed = ConfirmedEncoding(pattern="a.*", encoding=known.confirmed_encoding)
            call.context.workspace.confirm_encoding(confirmed)
        yield call


EDITS: dict[str, Callable[[str, str, int, str], dict[str, Any]]] = {
    "replace": lambda name, old, _, new: {"file_path": name, "old_string": old, "new_string": new},
    "apply_diff": lambda name, old, _, new: {
        "path": name,
        "diff": f"<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE",
    },
    "insert_content": lambda name, old, line, new: {"path": name, "line": line, "content": f"{new}\n{old}"},
}


@settings(max_examples=settings().max_examples // 3)
@given(
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(sorted(EDITS)),
    st.lists(st.sampled_from(("\n", "\r\n")), max_size=6),
    st.data(),
)
def test_every_tool_keeps_all_bytes_around_an_edit_also_where_line_ends_are_mixed_and_its_diff_can_be_read(
    name: str, tool: str, ends: list[str], data: st.DataObject
) -> None:
    kind, file_name = KINDS[name], NAMES.get(name, "a.txt")
    lines = [f"{n} {kind.signs}" for n in range(len(ends) + 1)]
    at = data.draw(st.integers(0, len(ends)), "line")
    new = f"new {data.draw(st.text(st.sampled_from(kind.signs + OWN_LINES), max_size=4))}|"
    whole = [line + end for line, end in zip(lines, [*ends, ""], strict=True)]
    before, after = kind.head + "".join(whole[:at]), "".join(whole[at + 1 :])
    end = whole[at].removeprefix(lines[at])
    with project(kind) as call:
        path = call.folder / file_name
        path.write_bytes(kind.mark + (before + whole[at] + after).encode(kind.codec))
        args = EDITS[tool](file_name, lines[at], at + 1 + bool(kind.head), new)
        result = call(tool, **args)
        assert result.status == "success", result.content
        made, most = path.read_bytes().decode(kind.codec)[bool(kind.mark) :], {"\n", "\r\n"}
        expected = {before + new + end + after}
        if tool == "insert_content":  # its two lines come before the one that is there
            expected = {before + new + a + lines[at] + b + whole[at] + after for a in most for b in most}
        assert made in expected
        assert path.read_bytes().startswith(kind.mark)
        assert f"+{new}" in str(result.meta["diff"])
        assert new in call.text("read_file", file_path=file_name)


@given(
    st.lists(
        st.sampled_from((b"\xff", b"\x80", "é".encode(), "温".encode(), b"a", b"\n", b"\r\n")), max_size=12
    ),
    st.text(st.sampled_from("aé温\n"), max_size=4),
)
def test_bytes_that_are_no_text_stay(pieces: list[bytes], new: str) -> None:
    body = b"".join(pieces)
    before = "éé温温".encode() * 6 + body
    file = decode_text_file(before + b"MARK\n" + body)
    assert file is not None
    assert file.encoding.codec == "utf-8"
    place = file.text.index("MARK")
    made = file.encode(file.replace_spans([(place, place + 4, new)]))
    assert made == before + file.convert_line_endings(new).encode() + b"\n" + body
    again = file.encode(apply_spans(file, (Span(0, len(file.text), file.text.replace("MARK", "x")),)))
    # A changed line ends as most lines do.
    assert again.replace(b"\r\n", b"\n") == (before + b"x\n" + body).replace(b"\r\n", b"\n"), (
        "a model gives the placeholders back"
    )


@given(st.text("ab\n\r温", max_size=20), st.text("ab\n\r温", max_size=20))
def test_texts_are_compared_piece_by_piece(old: str, new: str) -> None:
    rows = list(compare_texts(old, new))
    assert "".join(old[i:j] for i, j, *_ in rows) == old
    assert "".join(new[k:m] for _, _, k, m, _ in rows) == new
    assert all(old[i:j] == new[k:m] for i, j, k, m, same in rows if same)


def test_a_character_with_two_forms_keeps_its_own_bytes() -> None:
    body = b"a=\x87\x9a\nb=\x81\xe6\nc=1\n"  # both are the same character
    file = decode_text_file(body, FileConventions(confirmed_encoding="cp932"))
    assert file is not None
    assert file.text == "a=∵\nb=∵\nc=1\n"
    place = file.text.index("1")
    assert file.encode(file.replace_spans([(place, place + 1, "∵")])) == body.replace(b"1", b"\x81\xe6")


def test_an_edit_between_escape_sequences_keeps_them_or_is_refused(call: Calls) -> None:
    call.context.workspace.confirm_encoding(ConfirmedEncoding(pattern="*", encoding="iso-2022-jp"))
    data = b"a\x1b$B%F%9\x1b(Jb=1\n\x1b$B%F\x1b(J"
    call.write({"a.txt": data})
    call.text("replace", file_path="a.txt", old_string="1", new_string="2")
    assert (call.folder / "a.txt").read_bytes() == data.replace(b"1", b"2")
    call.failed("not_text", "replace", file_path="a.txt", old_string="スb", new_string="c")


@pytest.mark.parametrize(
    ("data", "known", "codec", "dropped"),
    [
        (GBK, {"charset": "utf-8"}, "gb18030", ".editorconfig"),
        (GBK, {"working_tree_encoding": "nonsense"}, "gb18030", "unknown"),
        (GBK, {"working_tree_encoding": "zip"}, "gb18030", "unknown"),
        ("é".encode() * 3, {"charset": "latin1"}, "utf-8", ""),
        (b"abc\n", {"charset": "utf-16le"}, "utf-8", ".editorconfig"),
        (b"<?xml version='1.0' encoding='utf-16'?>\n", {}, "utf-8", "XML"),
        ("<?xml version='1.0' encoding='utf-16'?>\n".encode("utf-16-be"), {}, "utf-16-be", ""),
        (b"abc\n", {"charset": "latin1"}, "iso8859-1", ""),
        ("Größe = 1\n".encode("cp1252"), {}, "cp1252", ""),
        ("# настройка\nимя=значение\n".encode("cp1251"), {}, "cp1251", ""),
        ("이름=테스트\n".encode("euc-kr"), {}, "cp949", ""),
    ],
)
def test_what_the_bytes_contradict_is_dropped_with_a_word(
    data: bytes, known: dict[str, Any], codec: str, dropped: str
) -> None:
    file = decode_text_file(data, replace(FileConventions(), **known), "a")
    assert file is not None
    assert file.encoding.codec == codec
    assert dropped in file.encoding.dropped
    assert bool(dropped) == bool(file.encoding.dropped)


@pytest.mark.parametrize("data", [b"a\0b", b"\xff\xfea", b"\xef\xbb\xbfa\0\xff", b"%PDF-1.4 \xff"])
def test_what_is_no_text_in_any_encoding(data: bytes) -> None:
    assert decode_text_file(data, FileConventions(confirmed_encoding="gbk")) is None


def test_new_text_is_not_written_in_a_guess_until_a_person_confirms_it(call: Calls) -> None:
    call.write({"a.txt": GBK, "b.ini": SJIS})
    assert "[Encoding: gb18030 (a guess from its bytes)" in call.text("read_file", file_path="a.txt")
    why = call.failed("encoding_guessed", "replace", file_path="a.txt", old_string="=20", new_string="=20°C")
    assert '{"*.txt": "gb18030"}' in why
    call.failed("encoding_guessed", "write_file", file_path="b.ini", content="name=テスト設\n")
    call.text(
        "replace", file_path="b.ini", old_string="name=テスト\nmode=1", new_string="name=テスト\nmode=2"
    )
    assert (call.folder / "b.ini").read_bytes() == SJIS.replace(b"1", b"2")
    call.context.workspace.confirm_encoding(ConfirmedEncoding(pattern="*.txt", encoding="gbk"))
    result = call("replace", file_path="a.txt", old_string="=20", new_string="=20度")
    assert (call.folder / "a.txt").read_bytes() == GBK.replace(b"20", "20度".encode("gbk"))
    assert "+温度=20度" in str(result.meta["diff"])
    assert "can't hold '☃'" in call.failed(
        "not_text", "replace", file_path="a.txt", old_string="20", new_string="☃"
    )


def test_a_file_that_is_utf_8_but_for_some_bytes_stays_so(call: Calls) -> None:
    data = '# café\nNAME = "x"\nBAD = "?"\n'.encode().replace(b"?", b"\xff")
    call.write({"a.py": data})
    assert "1 byte isn't UTF-8" in call.text("read_file", file_path="a.py")
    call.text("replace", file_path="a.py", old_string='"x"\nBAD = "�"', new_string='"José"\nBAD = "�"')
    assert (call.folder / "a.py").read_bytes() == data.replace(b"x", "José".encode())
    call.failed("not_text", "replace", file_path="a.py", old_string="José", new_string="��")


def test_blocks_of_a_diff_keep_the_encoding(call: Calls) -> None:
    call.write({"a.txt": "温度=20\r\n尺寸=1\r\n".encode("gbk")})
    diff = "<<<<<<< SEARCH\n:start_line:2\n-------\n尺寸=1\n=======\n尺寸=2\n>>>>>>> REPLACE"
    call.text("apply_diff", path="a.txt", diff=diff)
    assert (call.folder / "a.txt").read_bytes() == "温度=20\r\n尺寸=2\r\n".encode("gbk")


def test_a_new_file_follows_the_conventions_of_its_folder(call: Calls) -> None:
    call.write(
        {
            ".git/": "",
            ".gitattributes": "*.bat eol=crlf\n*.rc working-tree-encoding=UTF-16LE-BOM\n*.png binary\n",
            ".editorconfig": "root = true\n[*]\nend_of_line = lf\ninsert_final_newline = true\n"
            "[*.{js,ts}]\nindent_style = tab\n[/old/**.txt]\ncharset = latin1\nend_of_line = crlf\n",
            "[x]/.editorconfig": "[*.txt]\ncharset = utf-8-bom\n",
        }
    )
    made = {
        name: call.text("write_file", file_path=name, content="é\n  b")
        for name in ("a.bat", "old/b.txt", "c.rc")
    }
    assert (call.folder / "a.bat").read_bytes() == "é\r\n  b\r\n".encode()
    assert (call.folder / "old/b.txt").read_bytes() == b"\xe9\r\n  b\r\n"
    assert "CRLF line ends (.editorconfig), iso8859-1 (.editorconfig)" in made["old/b.txt"]
    assert (call.folder / "c.rc").read_bytes() == "\ufeffé\n  b\n".encode("utf-16-le")
    assert "asks for tabs" in call.text("replace", file_path="d.ts", old_string="", new_string="a\n  b\n")
    call.text("write_file", file_path="[x]/e.txt", content="é")
    assert (call.folder / "[x]/e.txt").read_bytes() == b"\xef\xbb\xbf\xc3\xa9\n"
    call.failed("not_text", "write_file", file_path="old/f.txt", content="温")


def test_a_file_of_conventions_that_is_odd_is_left_out(call: Calls) -> None:
    (call.folder / "far").mkdir()
    (call.folder / ".editorconfig").symlink_to("/etc/passwd")
    call.write({"far/.editorconfig": b"[*]\ncharset = latin1\n[" + b"*{a,b}" * 200 + b"]\n\xff\nnonsense\n"})
    call.text("write_file", file_path="far/" + "a" * 100, content="é")
    assert (call.folder / "far" / ("a" * 100)).read_bytes() == b"\xe9"


def test_text_that_an_encoding_cannot_hold_is_refused() -> None:
    with pytest.raises(TextNotWritable, match="can't hold"):
        decode_or_fail("é".encode("latin-1"), "latin-1").encode("温")


def decode_or_fail(data: bytes, codec: str) -> TextFile:
    file = decode_text_file(data, FileConventions(confirmed_encoding=codec))
    assert file is not None
    return file


@given(
    st.lists(
        st.sampled_from(
            [bytes([n]) for n in (97, 0x80, 0x9F, 0xA0, 0xBF, 0xC1, 0xC2, 0xE0, 0xED, 0xEE, 0xF0, 0xF4, 0xFF)]
        )
    )
)
def test_lines_that_are_not_utf_8_are_found(pieces: list[bytes]) -> None:
    line = b"".join(pieces)
    try:
        line.decode()
        valid = True
    except UnicodeDecodeError:
        valid = False
    pattern = re.compile(NOT_UTF_8.removeprefix("(?-u)").encode())
    assert (pattern.search(line) is None) == valid


def test_files_are_searched_in_their_own_encoding(call: Calls) -> None:
    call.write(
        {
            "a/gbk.txt": "头\n温度=20\n尺寸=1\n".encode("gbk"),
            "sjis.ini": "表示=1\n".encode("shift-jis"),
            "utf.txt": "温度=30\n",
            "wide.txt": "\ufeff温度=40\n".encode("utf-16-le"),
            ".gitignore": "ignored/\n",
            "ignored/b.txt": "温度=50\n".encode("gbk"),
            ".git/": "",
        }
    )
    found = call.text("grep_search", pattern="温度")
    assert [line for line in found.splitlines()[1:] if line[:1].isdigit()] == [
        "1-头",
        "2:温度=20",
        "3-尺寸=1",
        "1:温度=30",
        "1:温度=40",
    ]
    assert "No matches" in call.text("grep_search", pattern="温度", dir_path="sjis.ini")
    assert "1:表示=1" in call.text("grep_search", pattern="^..=1$")
    assert "2:温度=20" in call.text("grep_search", pattern="=20", dir_path="a"), (
        "other patterns show its text, too"
    )
    assert "a/gbk.txt" in call.text("grep_search", pattern="^尺寸", names_only=True)
    assert "2:温度" not in call.text("grep_search", pattern="温度", exclude_pattern="度=20")


def test_a_search_that_leaves_files_out_says_so(call: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(other_encodings, "_MOST_FILES", 1)
    call.write({f"{n}.txt": GBK for n in range(3)})
    assert "2 files in other encodings" in call.text("grep_search", pattern="温度")
