"""What other agents' users type works, or is answered with what to type here, which exists."""

import re
from pathlib import Path

from commands import Run
from folders import put

from interlock.cli.catalog import COMMANDS, build_parser
from interlock.cli.other_programs import (
    APPROVAL_MODES,
    FLAGS,
    SLASH_COMMANDS,
    SUBCOMMANDS,
    find_other_programs_command,
)
from interlock.cli.other_programs import COMMANDS as THEIR_COMMANDS
from interlock.cli.session import commands as session_commands

_SHELL = re.compile(r"interlock ((?:-[-\w]+|\w[-\w]*)(?: \w+)?)")
_SLASH = re.compile(r"(?<![\w.~/])/([a-z-]+)")
_SESSION = {
    *session_commands.COMMANDS,
    *(a for c in session_commands.COMMANDS.values() for a in c.aliases.split()),
}


def test_each_answer_names_commands_and_flags_that_exist() -> None:
    flags = build_parser("prompt").visible_flag_names()
    for text in (*FLAGS.values(), *THEIR_COMMANDS.values(), *SUBCOMMANDS.values(), *SLASH_COMMANDS.values()):
        for found in _SHELL.findall(text):
            first = found.split(" ")[0]
            assert first in {*COMMANDS, *flags, "--version"}, text
        assert {*_SLASH.findall(text)} <= _SESSION, text
        assert {*re.findall(r"(?<!\S)--[a-z-]+", text)} <= {
            *flags,
            "--at",
            "--untrust",
            "--approve",
            "--input",
            "--version",
            "--agent",
            "--forget",
        }, text


def test_no_answer_stands_in_the_way_of_what_there_is() -> None:
    flags = {*build_parser("prompt").visible_flag_names()}
    assert flags.isdisjoint(FLAGS)
    assert {name for name in SLASH_COMMANDS if " " not in name}.isdisjoint(_SESSION)
    assert {name.partition(" ")[0] for name in SLASH_COMMANDS if " " in name} <= _SESSION
    assert {*THEIR_COMMANDS}.isdisjoint(COMMANDS)
    assert {name.partition(" ")[0] for name in SUBCOMMANDS} <= {*COMMANDS}
    assert find_other_programs_command("config", ["set", "x"])
    assert find_other_programs_command("rm", ["abc"])
    for words in (["config", "the", "server"], ["update", "the", "docs"], ["stop", "the", "server"]):
        assert find_other_programs_command(words[0], words[1:]) is None, words
    assert {*APPROVAL_MODES.values()} <= {"default", "auto_edit", "plan", "yolo"}


def test_tools_after_the_flag_are_tools_and_a_resume_without_a_run_takes_the_newest_conversation(
    run: Run, tmp_path: Path
) -> None:
    put(tmp_path / "replies.yaml", '[{expect: "say hi(?! Read)", text: one}, {text: two}]')
    model = ("--model", f"script:{tmp_path / 'replies.yaml'}", "-o", "json")
    first = run("-p", "say hi", *model, "--allowedTools", "Bash(git log:*)", "Read", "mcp__docs")
    again = run("-r", "-p", "more", *model)
    assert (first.code, again.code, again.json["response"]) == (0, 0, "two"), first.err
    assert first.json["session_id"] == again.json["session_id"]
    both = run("-p", "x", "--allowedTools", "Read", "--disallowedTools", "Write", "Edit")
    assert both.code == 2 and "'Edit' could be allowed or denied" in both.err
