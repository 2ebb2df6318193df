"""Command-line arguments: flags under every name, and one line for each mistake."""

import ast
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import Run
from folders import put

from interlock.cli.catalog import COMMANDS, build_parser, split_command_and_arguments
from interlock.cli.commands import work
from interlock.cli.flags import build_run_options
from interlock.engine.options import Options
from interlock.graphs import PIPELINES, load_pipeline
from interlock.tools.table import TOOLS

ROOT = Path(__file__).parents[2]
MISTAKES: list[tuple[str, int, str]] = yaml.load(
    Path(__file__).with_name("mistakes.yaml").read_text(), yaml.CSafeLoader
)
ROOMS = ("cli", "engine", "graphs", "nodes", "prompts", "services", "state", "tools")


def _options(*flags: str, resuming: bool = False) -> Options:
    return build_run_options(
        build_parser("prompt").parse(flags), {"INTERLOCK_HOME": "/h", "KEY": "v"}, is_resumed=resuming
    )


@pytest.mark.parametrize(
    ("typed", "field", "expected"),
    [
        ("-m flash", "model", "flash"),
        ("--model=flash", "model", "flash"),
        ("--approval-mode auto_edit", "approval_mode", "auto_edit"),
        ("--approval-mode autoEdit", "approval_mode", "auto_edit"),
        ("--permission-mode acceptEdits", "approval_mode", "auto_edit"),
        ("--permission-mode bypassPermissions", "approval_mode", "yolo"),
        ("-y", "approval_mode", "yolo"),
        ("--yolo --approval-mode yolo", "approval_mode", "yolo"),
        ("--dangerously-skip-permissions", "approval_mode", "yolo"),
        ("--full-auto", "approval_mode", "auto_edit"),
        ("", "approval_mode", None),
        ("--max-turns 3 --timeout 1.5m", "limits", {"max_turns": 3, "timeout_s": 90.0}),
        ("--timeout 90", "limits", {"timeout_s": 90.0}),
        ("--timeout 2h", "limits", {"timeout_s": 7200.0}),
        ("--timeout 250ms", "limits", {"timeout_s": 0.25}),
        ("--max-session-turns -1", "limits", {"max_session_turns": -1}),
        ("--max-tokens 5 --max-budget-usd 0.5", "limits", {"max_tokens": 5, "max_budget_usd": 0.5}),
        (
            "--allowed-tools glob,read_file --allowedTools Edit",
            "allowed_tools",
            ("glob", "read_file", "replace"),
        ),
        (
            "--disallowedTools Bash,LS",
            "overrides",
            {"tools": {"exclude": ["run_shell_command", "list_directory"]}},
        ),
        ("--append-system-prompt short", "append_system_prompt", "short"),
        ("--skip-trust", "skip_trust", True),
        ("--record-responses out.yaml", "record_to", Path("out.yaml").absolute()),
        ("", "home", Path("/h")),
        ("", "env", {"INTERLOCK_HOME": "/h", "KEY": "v"}),
    ],
)
def test_flags_become_options(typed: str, field: str, expected: object) -> None:
    assert getattr(_options(*typed.split()), field) == expected


def test_a_shell_rule_keeps_its_spaces_and_commas() -> None:
    typed = "Bash(git log:*) Edit, run_shell_command(echo a, b)"
    expected = ("run_shell_command(git log)", "replace", "run_shell_command(echo a, b)")
    assert _options("--allowedTools", typed).allowed_tools == expected


def test_folders_and_files_are_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "p.toml").touch()
    options = _options("--add-dir", "a,b", "--include-directories", "c", "--policy", "p.toml", "-C", "a")
    assert options.include_directories == (tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert options.policy_files == (tmp_path / "p.toml",)
    assert options.workspace == tmp_path / "a"
    assert _options().workspace == tmp_path
    assert _options(resuming=True).workspace is None


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("fix the bug", "fix the bug"),
        ("-m flash 'fix it'", "fix it"),
        ("'fix it' -m flash", "fix it"),
        ("-p 'fix it' -o json", "fix it"),
        ("-p -o json 'fix it'", "fix it"),
        ("--print 'fix it'", "fix it"),
        ("-p fix it", "fix it"),
    ],
)
def test_the_prompt_may_stand_anywhere(typed: str, words: str) -> None:
    args = build_parser("prompt").parse(shlex.split(typed))
    assert " ".join(filter(None, [args.prompt, *args.words])) == words


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("runs --all", "runs --all"),
        ("-m flash run main x", "run -m flash main x"),
        ("-d runs", "runs -d"),
        ("-y resume x", "resume -y x"),
        ("-p runs", "prompt -p runs"),
        ("--model=runs hello", "prompt --model=runs hello"),
        ("-m runs", "prompt -m runs"),
        ("'what runs here'", "prompt 'what runs here'"),
        ("how does it work", "prompt how does it work"),
        ("hello", "prompt hello"),
        ("tool up the project", "prompt tool up the project"),
        ("", "prompt"),
    ],
)
def test_the_command_is_the_first_word_that_belongs_to_no_flag(typed: str, expected: str) -> None:
    command, *rest = shlex.split(expected)
    assert split_command_and_arguments(shlex.split(typed)) == (command, rest)


@pytest.mark.parametrize(("typed", "exit_code", "expected"), MISTAKES)
def test_a_mistake_is_one_line_and_its_exit_code(run: Run, typed: str, exit_code: int, expected: str) -> None:
    done = run(*shlex.split(typed))
    assert (done.code, done.out) == (exit_code, "")
    assert expected in done.err and len(done.err.splitlines()) == 1
    assert ".." not in done.err.replace("…", "") and "?." not in done.err


def test_a_user_without_a_home_is_told_to_name_one(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert run("runs") == (2, "", "interlock: No home directory is known for this user. Set HOME.\n")


@pytest.mark.parametrize(
    ("typed", "kind"),
    [
        ("-p x --nosuch -o stream-json", "usage"),
        ("-ostream-json -r abc -p x", "usage"),
        ("-o stream-json -m script:nowhere.yaml", "input"),
        ("-p x -m script:nowhere.yaml -o stream-json", "usage"),
        ("run mian x --output-format=stream-json", "usage"),
        ("run main --input { -o stream-json", "input"),
        ("resume abc -o json", "usage"),
        ("init --file -o json", "usage"),
        ("-p hello -o json", "credentials"),
    ],
)
def test_output_for_programs_is_one_result_where_no_run_can_begin(run: Run, typed: str, kind: str) -> None:
    done = run(*typed.split())
    error = done.json["error"]
    assert (error["type"], error["code"]) == (kind, done.code)
    assert done.json.get("type") == ("result" if "stream" in typed else None)
    assert error["message"] in done.err


def test_input_json_takes_the_prompt_from_the_words(tmp_path: Path) -> None:
    file = put(tmp_path / "in.json", {"history": []})
    args = build_parser("run").parse(["main", "fix it", "--input", f"@{file}"])
    assert work._read_prompt_and_json_input(args, load_pipeline("main")) == {
        "history": [],
        "prompt": "fix it",
    }


def test_piped_text_is_put_before_the_prompt(cli: Any, tmp_path: Path) -> None:
    script = put(tmp_path / "script.yaml", "- {expect: 'the diff\\n\\nreview this', text: seen}\n")
    done = cli("-m", f"script:{script}", "-p", "review this", stdin="the diff\n")
    assert (done.returncode, done.stdout) == (0, "seen\n"), done.stderr


def test_d_shows_where_an_error_came_from(run: Run) -> None:
    done = run("show", "x", "-d")
    assert done.code == 2 and "Traceback" in done.err


def test_nothing_that_users_or_models_read_cites_a_page_of_the_project(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Schemas, tools, help, prompts, and every string in the code except docstrings."""
    shown = [
        json.dumps([p.input.model_json_schema(), p.output.model_json_schema()])
        for p in map(load_pipeline, PIPELINES)
    ]
    shown += [json.dumps([t.description, t.args.model_json_schema()]) for t in TOOLS.values()]
    shown += [file.read_text() for file in ROOT.glob("prompts/**/*.md")]
    for name in COMMANDS:
        build_parser(name).print_help()
    shown.append(capsys.readouterr().out)
    page = re.compile(r"\b(engine|pipelines|design|cli|langgraph|style)\.md\b|§")
    texts = {file: file.read_text() for room in ROOMS for file in (ROOT / room).rglob("*.py")}
    for file, text in texts.items():
        if not page.search(text):
            continue
        tree = ast.parse(text)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found = [n for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in docstrings]
        shown += [f"{file}: {node.value}" for node in found if isinstance(node.value, str)]
    assert [text for text in shown if page.search(text)] == []
