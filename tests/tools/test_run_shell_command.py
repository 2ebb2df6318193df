"""run_shell_command: what the model reads, and what people see beforehand."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tool_calls import Calls

from interlock.services.files.workspace import FolderWorkspace
from interlock.state.calls import ToolResult
from interlock.tools.run_shell_command import (
    TOOL,
    RunShellCommandArgs,
    preview_command_line,
    run_command_line,
)


class Shell(Calls):
    def __call__(self, command: str, **args: Any) -> ToolResult:  # type: ignore[override]
        return super().__call__("run_shell_command", command=command, **args)

    def shows(self, command: str, **args: Any) -> Any:
        return self.play(preview_command_line(RunShellCommandArgs(command=command, **args), self.context))


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setenv("GEMINI_API_KEY", "hush")
    made = Shell(tmp_path / "work")
    made.write({"file": "", "sub/": ""})
    yield made
    made.close()


@pytest.mark.parametrize(
    ("command", "args", "content"),
    [
        ("echo hello; pwd", {}, "Output:\nhello\n{here}"),
        ("echo no >&2; exit 3", {}, "Output:\nno\nExit Code: 3"),
        ("kill -9 $$", {}, "Output: (empty)\nSignal: SIGKILL"),
        ("pwd", {"dir_path": "sub"}, "Output:\n{here}/sub"),
        ("echo $(echo inner) `echo old`", {}, "Output:\ninner old"),
        ("printenv GEMINI_API_KEY", {}, "Output: (empty)\nExit Code: 1"),
        ("git init -q . && git commit -q --allow-empty -m 1 && git log --format=%s", {}, "Output:\n1"),
    ],
)
def test_output_is_what_the_model_reads(
    shell: Shell, command: str, args: dict[str, Any], content: str
) -> None:
    """A failing exit code is no tool error; git needs no pager; secrets don't reach a command."""
    result = shell(command, **args)
    assert (result.status, result.error) == ("success", None)
    assert result.content == content.format(here=shell.folder)


def test_output_is_shown_as_it_comes_and_the_same_outcome_reads_the_same(shell: Shell) -> None:
    result = shell("echo hello")
    assert "".join(shell.emitted) == "hello\n"
    assert result.meta["exit_code"] == 0 and result.meta["duration_ms"] >= 0
    assert shell("echo hello; sleep 0.05").content == result.content


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("settings", "args", "kind", "why"),
    [
        ({}, {"timeout_s": 2}, "timeout", "it ran longer than 2 s"),
        ({"timeout_s": 2}, {"timeout_s": 3000}, "timeout", "it ran longer than 2 s"),
        ({"inactivity_timeout_s": 2}, {}, "inactivity", "it wrote nothing for 2 s"),
    ],
)
def test_a_command_that_takes_too_long_is_ended_and_keeps_what_was_written(
    shell: Shell, settings: dict[str, float], args: dict[str, float], kind: str, why: str
) -> None:
    for name, value in settings.items():
        setattr(shell.settings.tools.shell, name, value)
    result = shell("echo partial; sleep 60", **args)
    assert result.error is not None and result.error["type"] == kind
    assert result.content == f"The command was stopped because {why}.\nOutput:\npartial\nSignal: SIGTERM"


def test_long_output_names_the_file_that_has_all_of_it(shell: Shell) -> None:
    shell.settings.tools.truncate_at = 1000
    result = shell("seq 1 5000")
    full = Path(str(result.meta["full_output"]))
    assert full.read_text() == "".join(f"{n}\n" for n in range(1, 5001))
    assert f"All of it: {full}." in result.content
    assert len(result.content) < 1400 and result.content.startswith("Output:\n1\n2\n")
    assert result.content == shell("seq 1 5000").content


def test_a_background_command_returns_at_once(shell: Shell) -> None:
    async def scene() -> tuple[ToolResult, str]:
        result = await run_command_line(
            RunShellCommandArgs(command="echo up; sleep 60", is_background=True), shell.context
        )
        (info,) = shell.processes.list_background_processes()
        output = Path(info["output_file"])
        while not output.read_text():
            await asyncio.sleep(0.02)
        assert info["running"] and info["label"] == "echo up; sleep 60"
        return result, output.read_text()

    result, output = shell.play(scene())
    (info,) = shell.processes.list_background_processes()
    assert result.status == "success" and output == "up\n"
    assert f"PID: {info['pid']}" in result.content and info["output_file"] in result.content


def test_the_preview_shows_command_and_directory_or_why_it_can_not_run(shell: Shell) -> None:
    assert shell.shows("make all").text == "make all\nin the workspace"
    background = shell.shows("make all", dir_path="sub", is_background=True)
    assert background.text == "make all\nin sub\nin the background"
    refused = shell.shows("ls", dir_path="/etc")
    assert refused.problem is not None and "outside the workspace" in refused.problem
    assert TOOL.summary(RunShellCommandArgs(command="cd x\n  && make")) == "cd x && make"


def test_what_a_command_leaves_running_is_named_with_the_way_to_keep_it(shell: Shell) -> None:
    said = shell("sleep 300 & (setsid nohup tail -f /dev/null >/dev/null &); sleep 0.3; echo started").content
    assert said.startswith("Output:\nstarted\nStill running when the command ended, and ended with it: ")
    assert "sleep" in said and "tail" in said and "is_background: true" in said
    told = Calls.__call__(shell, "execute_command", command="sleep 300 & sleep 0.2").content
    assert "sleep. Needed by another command? Run both in one line." in told
    for command in ("sleep 0.01 & wait; echo done", "true | cat; echo done"):
        assert shell(command).content == "Output:\ndone"


def test_a_command_may_be_longer_than_an_argument(shell: Shell) -> None:
    text = "é'\"$x`\\ %s\n" * 20_000
    done = shell(f"cat > out.txt <<'END'\n{text}END\necho $# $0; wc -c < out.txt; exit 3")
    assert done.content == f"Output:\n0 bash\n{len(text.encode())}\nExit Code: 3"
    assert shell.read("out.txt") == text


def test_the_model_reads_what_a_screen_shows(shell: Shell) -> None:
    binary = r"printf '\0\xff\1\xfe%.0s' {1..99}"
    said = shell(rf"printf '\e[31mred\e[0m\n10%%\r100%%\n'; printf 'caf\xe9\n'; {binary}; echo; echo end")
    assert said.content == (
        "Output:\nred\n100%\ncaf\\xe9\n[Output that isn't text in UTF-8 isn't shown here.]\nend"
    )
    assert "\x1b" in "".join(shell.emitted)


def test_a_long_output_is_read_as_a_screen_shows_it(shell: Shell) -> None:
    said = shell(r"printf '\e[32m%s\e[0m\n' {1..30000}")
    assert said.content.startswith("Output:\n1\n2\n") and "\x1b" not in said.content
    file = str(said.meta["full_output"])
    workspace = FolderWorkspace(shell.folder, outputs=shell.outputs.directory)
    shell.context = replace(shell.context, workspace=workspace)
    assert "\x1b[32m" in Path(file).read_text()
    assert Calls.__call__(
        shell, "read_file", file_path=file, start_line=15000, end_line=15001
    ).content.endswith("15000\n15001")
