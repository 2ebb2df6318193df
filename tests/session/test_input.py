"""The input line alone: its completions, how it folds pastes, what it keeps."""

import json
import os
from pathlib import Path

import pytest
from folders import put, tree
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from interlock.cli.session.completion import (
    CommandOffer,
    FuzzyNameMatcher,
    SessionCompleter,
    WorkspaceFiles,
    quote_file_reference,
)
from interlock.cli.session.input_line import InputHistory, Pastes, SessionInput
from interlock.services.context.references import find_references
from interlock.services.files.workspace import FolderWorkspace

OTHER = CommandOffer("what it does")
COMMANDS = {
    "model": CommandOffer("what it does", lambda _: ("flash", "pro")),
    "mode": OTHER,
    "git:commit": OTHER,
}


@pytest.fixture(scope="module")
def completer(tmp_path_factory: pytest.TempPathFactory) -> SessionCompleter:
    root = tmp_path_factory.mktemp("workspace")
    names = [
        "calc.py",
        "src/main.py",
        "src/deep/er.py",
        "my notes.txt",
        'odd"name',
        "end.",
        "ü/日本.md",
        "a b/c",
    ]
    for name in names:
        put(root / name, "x")
    tree(root, {".git/": "", ".gitignore": "build/\n", "build/out.py": "x"})
    (root / "out").symlink_to(root.parent)
    return SessionCompleter(lambda _: COMMANDS, WorkspaceFiles(lambda: FolderWorkspace(root)))


def offered(completer: SessionCompleter, text: str) -> list[str]:
    """The lines that completion would produce."""
    found = completer.get_completions(Document(text), CompleteEvent())
    return [text[: len(text) + c.start_position] + c.text for c in found]


def test_a_slash_offers_commands_and_then_their_arguments(completer: SessionCompleter) -> None:
    assert offered(completer, "/mo") == ["/mode", "/model"]
    assert offered(completer, "/gc") == ["/git:commit"]
    assert offered(completer, "/model ") == ["/model flash", "/model pro"]
    assert offered(completer, "/model p") == ["/model pro"]
    assert offered(completer, "/nothing x") == []
    assert offered(completer, "see /mo") == []


def test_an_at_offers_files_and_folders_by_some_of_their_letters(completer: SessionCompleter) -> None:
    assert offered(completer, "look at @calc") == ["look at @calc.py"]
    assert offered(completer, "(@smain") == ["(@src/main.py"]
    assert offered(completer, "@src/")[0] == "@src/"
    assert offered(completer, "@日") == ["@ü/日本.md"]
    assert offered(completer, "me@example") == []


def test_a_name_that_needs_quotes_gets_them(completer: SessionCompleter) -> None:
    assert offered(completer, "@notes") == ['@"my notes.txt"']
    assert offered(completer, '@"my n') == ['@"my notes.txt"']
    assert offered(completer, "@odd") == ['@odd\\"name']
    assert offered(completer, "@end") == ['@"end."']


def test_what_is_ignored_isnt_offered(completer: SessionCompleter) -> None:
    assert offered(completer, "@out.py") == []
    assert not [line for line in offered(completer, "@") if "build" in line or ".git/" in line]


@given(st.text(st.sampled_from("/@\"'\\ abcmo.:!()[]{}~日\n\x1b"), max_size=30))
def test_completion_never_raises_and_never_leaves_the_workspace(
    completer: SessionCompleter, text: str
) -> None:
    for line in offered(completer, text):
        _, at, path = line.rpartition("@")
        if at and not text.startswith("/"):
            assert ".." not in path
            assert not path.strip('"').startswith(("/", "~"))


@given(
    st.text(st.characters(exclude_categories=("Cs", "Cc", "Zl", "Zp")), min_size=1).filter(
        lambda t: t.strip() == t
    )
)
def test_a_reference_names_the_file_that_was_offered(name: str) -> None:
    if '"' in name and ("\\" in name or name.endswith((".", ":", "?"))):
        return  # can't be written; see `references`
    assert [*find_references(f"see {quote_file_reference(name)} now")] == [name]


@given(st.lists(st.text(max_size=12), max_size=8), st.text(max_size=4))
def test_every_name_with_the_letters_in_their_order_is_found(names: list[str], typed: str) -> None:
    def fits(name: str) -> bool:
        left = iter(name.lower())
        return all(letter in left for letter in typed.lower())

    assert sorted(FuzzyNameMatcher(names).find_matching_indices(typed, 100)) == [
        n for n, name in enumerate(names) if fits(name)
    ]


def test_a_paste_of_5000_lines_is_one_mark_and_is_sent_whole() -> None:
    pastes = Pastes()
    text = "\r\n".join(f"line {n}" for n in range(5_000))
    mark = pastes.fold_long_paste(text)
    assert mark == "[pasted 5,000 lines #1]"
    assert pastes.expand_paste_marks(f"why? {mark}!") == f"why? {text.replace(chr(13), '')}!"
    assert pastes.fold_long_paste("x" * 2_000) == "[pasted 2,000 characters #2]"
    assert pastes.fold_long_paste("a\r\nb") == "a\nb"
    assert pastes.expand_paste_marks("[pasted 7 lines #9]") == "[pasted 7 lines #9]"
    assert pastes.trailing_paste_mark(f"why? {mark}") == mark
    assert pastes.trailing_paste_mark(f"why? {mark} ") == ""


def history(home: Path, workspace: str = "/w") -> InputHistory:
    return InputHistory(home, Path(workspace), Pastes(), lambda text: text.replace("hunter2", "[redacted]"))


def test_what_was_typed_is_there_in_the_next_session_of_the_same_folder(tmp_path: Path) -> None:
    first = history(tmp_path)
    for text in ("one", "two\nlines", "one"):
        first.append_string(text)
    assert history(tmp_path).load_history_strings() == ["one", "two\nlines"]
    assert history(tmp_path, "/other").load_history_strings() == []
    assert first.path.stat().st_mode & 0o777 == 0o600
    assert first.path.parent.stat().st_mode & 0o777 == 0o700
    assert len(first.path.read_text().splitlines()) == 3


def test_secrets_are_not_kept_and_a_line_that_was_cut_off_is_passed_by(tmp_path: Path) -> None:
    kept = history(tmp_path)
    kept.append_string("login with hunter2")
    with kept.path.open("a") as file:
        file.write('[1]\n{"text": 5}\n{"text": "cut o')
    assert "hunter2" not in kept.path.read_text()
    assert history(tmp_path).load_history_strings() == ["login with [redacted]"]


def test_a_paste_comes_back_folded_and_whole_and_a_huge_one_isnt_kept(tmp_path: Path) -> None:
    pastes = Pastes()
    kept = InputHistory(tmp_path, Path("/w"), pastes, str)
    text = "\n".join(map(str, range(50)))
    kept.append_string(f"{pastes.fold_long_paste('z' * 3000)} {pastes.fold_long_paste(text)}")
    kept.append_string(pastes.fold_long_paste("y" * 200_000))
    again = Pastes()
    (entry,) = InputHistory(tmp_path, Path("/w"), again, str).load_history_strings()
    assert entry == "[pasted 3,000 characters #1] [pasted 50 lines #2]"
    assert again.expand_paste_marks(entry) == f"{'z' * 3000} {text}"


def test_a_file_that_grew_too_large_keeps_its_newest_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.session.input_line._FILE_SIZE", 2_000)
    monkeypatch.setattr("interlock.cli.session.input_line._ENTRIES", 10)
    kept = history(tmp_path)
    for number in range(300):
        kept.append_string(f"prompt {number}")
    assert len(kept.path.read_bytes()) < 2_300
    assert json.loads(kept.path.read_text().splitlines()[-1]) == {"text": "prompt 299"}


def test_a_state_directory_that_cant_be_written_stops_nobody(tmp_path: Path) -> None:
    (home := tmp_path / "home").write_text("no folder")
    history(home).append_string("one")
    assert history(home).load_history_strings() == []


@pytest.mark.parametrize("reported", ["\x1b[13;2u", "\x1b[27;2;13~"])
@pytest.mark.parametrize("pieces", [1, 3])
def test_shift_enter_is_a_new_line_where_a_terminal_reports_it(reported: str, pieces: int) -> None:
    reading, writing = os.pipe()
    typed, cut = f"a\x1b[Ab{reported}c\r", 4 if pieces > 1 else 99
    with os.fdopen(reading) as stream:
        keys: list[str] = []
        read = SessionInput(stream)
        for part in (typed[:cut], typed[cut:7], typed[7:]) if pieces > 1 else (typed,):
            os.write(writing, part.encode())
            keys += [str(getattr(key.key, "value", key.key)) for key in read.read_keys()]
    os.close(writing)
    assert keys == ["a", "up", "b", "c-j", "c", "c-m"]
