"""What an edit broke is told with its result, and nothing else is."""

import json
import re
from pathlib import Path

import pytest
from commands import Run
from folders import put
from scripted import says

from interlock.tools.new_problems import describe_new_problem, describe_new_syntax_error

GOOD = {"a.py": "x = 1\n", "a.json": '{"x": 1}', "a.toml": "x = 1\n", "a.yml": "x: [1]\n"}
BAD = {"a.py": "x = (\n", "a.json": '{"x": }', "a.toml": "x = \n", "a.yml": "x: [1\n"}


@pytest.mark.parametrize("name", GOOD)
def test_only_what_parsed_before_or_is_new_is_blamed(name: str) -> None:
    good, bad = GOOD[name].encode(), BAD[name].encode()
    told = describe_new_problem(name, good, bad)
    assert told.startswith("The file doesn't parse now: ") and "\n" not in told
    assert describe_new_problem(name, None, bad) == told
    assert describe_new_problem(name, b"", bad) == told
    for before, after in ((bad, bad + b"\n"), (bad, good), (good, good), (good, b""), (None, good)):
        assert describe_new_problem(name, before, after) == ""


def test_an_address_in_json_is_no_comment() -> None:
    good = b'{"at": "https://example.org", "x": 1}'
    assert describe_new_problem("package.json", good, good.replace(b": 1", b" 1"))


@pytest.mark.parametrize(
    ("name", "after"),
    [
        ("a.txt", b"x = ("),
        ("a.yaml", b"{{ if }}: ["),
        ("tsconfig.json", b'{"x": 1, // comment\n}'),
        ("a.json", b"[" * 100_000),
        ("a.py", b"(" * 300_000),
        ("a.json", "\ufeff{}".encode()),
        ("a.toml", "\ufeffx = 1\r\n".encode()),
        ("a.py", "# coding: latin-1\nx = 'é'\n".encode("latin-1")),
        ("a.yaml", b"a: &a [1]\n---\nb: !tag {x: y}\n"),
    ],
)
def test_what_only_looks_broken_is_left_alone(name: str, after: bytes) -> None:
    assert describe_new_problem(name, None, after) == ""


def test_binary_and_odd_bytes_get_a_line(tmp_path: Path) -> None:
    for name in GOOD:
        told = describe_new_problem(name, GOOD[name].encode(), b"\x00\xff\xfe(")
        assert "\n" not in told


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("a.js", "f({});\n", "f({;\n"),
        ("a.ts", "let x: number = 1;\n", "let x: number = (;\n"),
        ("a.go", "package a\n\nfunc f() {}\n", "package a\n\nfunc f( {}\n"),
        ("a.rs", "fn f() {}\n", "fn f( {}\n"),
        ("a.java", "class A {}\n", "class A {\n"),
    ],
)
def test_other_languages_are_read_by_tree_sitter(name: str, good: str, bad: str) -> None:
    told = describe_new_syntax_error(name, good.encode(), bad.encode())
    assert re.fullmatch(r"The file doesn't parse now: line \d \(as tree-sitter reads it\)\.", told)
    assert describe_new_syntax_error(name, None, bad.encode()) == told
    for before, after in ((bad, good), (bad, bad + "\n"), (good, good)):
        assert describe_new_syntax_error(name, before.encode(), after.encode()) == ""
    for other in ("a.c", "a.txt", "a.py"):  # macros; no grammar; Python itself
        assert describe_new_syntax_error(other, None, bad.encode()) == ""


def test_without_a_server_the_model_hears_of_a_syntax_error_in_another_language(
    run: Run, tmp_path: Path, home: Path
) -> None:
    put(tmp_path / "work/calc.js", "function add(a, b) {\n  return a + b;\n}\n")
    put(home / ".interlock/settings.json", {"tools": {"languageServers": {"typescript": {"disabled": True}}}})
    edit = says("replace", file_path="calc.js", old_string="a + b", new_string="(a + b")
    script = put(tmp_path / "script.json", [edit, {"expect": "as tree-sitter reads it", "text": "seen"}])
    done = run("-m", f"script:{script}", "-y", "-p", "go")
    assert done.code == 0, done.err


def test_the_model_hears_of_it_a_replay_needs_nothing_and_a_setting_turns_it_off(
    run: Run, tmp_path: Path, home: Path
) -> None:
    put(tmp_path / "work/calc.py", "def add(a, b):\n    return a + b\n")
    edit = says("replace", file_path="calc.py", old_string="a + b", new_string="(a + b")
    heard, silent = (
        {"expect": "doesn't parse now: line 2", "text": "seen"},
        {"expect": "Success", "text": "silent"},
    )
    script = put(tmp_path / "script.json", [edit, heard])
    done = run("-m", f"script:{script}", "-y", "-p", "go", "-o", "json")
    assert done.code == 0, done.err
    assert run("replay", json.loads(done.out)["session_id"]).code == 0
    put(tmp_path / "work/calc.py", "def add(a, b):\n    return a + b\n")
    put(home / ".interlock/settings.json", {"tools": {"diagnostics": False}})
    put(script, [edit, heard])
    assert run("-m", f"script:{script}", "-y", "-p", "go").code != 0
    put(tmp_path / "work/calc.py", "def add(a, b):\n    return a + b\n")
    put(script, [edit, silent | {"expect": "calc.py"}])
    assert run("-m", f"script:{script}", "-y", "-p", "go").code == 0
