"""run_shell_command: what the model reads, and what people see beforehand."""

import asyncio
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from interlock.services.files.filesystem import OutputFiles
from interlock.services.files.workspace import FolderWorkspace
from interlock.services.process.processes import SupervisedProcesses
from interlock.services.secrets.environment import tool_environment
from interlock.state.calls import CallKey, ToolError, ToolResult
from interlock.state.settings import Settings
from interlock.state.tooling import ToolContext
from interlock.tools.run_shell_command import TOOL, RunShellCommandArgs, preview, run


class Shell:
    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.runner = asyncio.Runner()
        self.shown: list[str] = []
        outputs = OutputFiles(folder / "state")
        self.processes = SupervisedProcesses(outputs=outputs, env=tool_environment(os.environ))
        self.context = ToolContext(
            key=CallKey(message="m", index=0),
            workspace=FolderWorkspace(self.root),
            processes=self.processes,
            outputs=outputs,
            settings=Settings(),
            emit_output=self.shown.append,
        )

    def __call__(self, command: str, **args: Any) -> ToolResult:
        try:
            return self.play(run(RunShellCommandArgs(command=command, **args), self.context))
        except ToolError as error:
            return error.result

    def play(self, scene: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(scene)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    with shell.runner:
        yield shell
    shell.processes.close()


def test_output_is_what_the_model_reads(shell: Shell) -> None:
    result = shell("echo hello; pwd")
    assert (result.status, result.content) == ("success", f"Output:\nhello\n{shell.root}")
    assert "".join(shell.shown) == f"hello\n{shell.root}\n"
    assert result.meta["exit_code"] == 0 and result.meta["duration_ms"]


def test_a_failing_exit_code_is_no_tool_error(shell: Shell) -> None:
    result = shell("echo no >&2; exit 3")
    assert (result.status, result.content, result.error) == ("success", "Output:\nno\nExit Code: 3", None)


def test_no_output_and_a_signal_are_said(shell: Shell) -> None:
    assert shell("kill -9 $$").content == "Output: (empty)\nSignal: SIGKILL"


def test_the_same_outcome_reads_the_same(shell: Shell) -> None:
    assert shell("echo x; sleep 0.05").content == shell("echo x; sleep 0.2").content


def test_it_runs_in_the_named_directory(shell: Shell) -> None:
    (shell.root / "sub").mkdir()
    assert shell("pwd", dir_path="sub").content == f"Output:\n{shell.root}/sub"


@pytest.mark.parametrize(
    ("dir_path", "kind"),
    [("missing", "file_not_found"), ("../..", "path_refused"), ("file", "not_a_directory")],
)
def test_a_directory_that_can_not_be_used_is_an_error(shell: Shell, dir_path: str, kind: str) -> None:
    (shell.root / "file").write_text("")
    result = shell("touch ran", dir_path=dir_path)
    assert result.error is not None and result.error["type"] == kind
    assert not (shell.root / "ran").exists()


def test_a_time_out_keeps_what_was_written(shell: Shell) -> None:
    result = shell("echo partial; sleep 60", timeout_s=2)
    assert result.error is not None and result.error["type"] == "timeout"
    assert result.content == (
        "The command was ended because it ran longer than 2 s.\nOutput:\npartial\nSignal: SIGTERM"
    )


def test_settings_cap_the_time_out(shell: Shell) -> None:
    shell.context.settings.tools.shell.timeout_s = 0.5
    assert "longer than 0.5 s" in shell("sleep 60", timeout_s=3000).content


def test_silence_ends_a_command(shell: Shell) -> None:
    shell.context.settings.tools.shell.inactivity_timeout_s = 2
    result = shell("echo partial; sleep 60")
    assert result.error is not None and result.error["type"] == "inactivity"
    assert result.content.startswith(
        "The command was ended because it wrote nothing for 2 s.\nOutput:\npartial\n"
    )


def test_long_output_names_the_file_that_has_all_of_it(shell: Shell) -> None:
    shell.context.settings.tools.truncate_at = 1000
    result = shell("seq 1 5000")
    full = Path(str(result.meta["full_output"]))
    assert full.read_text() == "".join(f"{n}\n" for n in range(1, 5001))
    assert f"All of it: {full}." in result.content
    assert len(result.content) < 1400 and result.content.startswith("Output:\n1\n2\n")
    assert result.content == shell("seq 1 5000").content


def test_substitutions_run(shell: Shell) -> None:
    assert shell("echo $(echo inner) `echo old`").content == "Output:\ninner old"


def test_secrets_do_not_reach_a_command(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GEMINI_API_KEY", "hush")
    (tmp_path / "two").mkdir()
    other = Shell(tmp_path / "two")
    with other.runner:
        assert "hush" not in other("env").content


def test_a_background_command_returns_at_once(shell: Shell) -> None:
    async def scene() -> tuple[ToolResult, str]:
        result = await run(
            RunShellCommandArgs(command="echo up; sleep 60", is_background=True), shell.context
        )
        (info,) = shell.processes.background()
        output = Path(info["output_file"])
        while not output.read_text():
            await asyncio.sleep(0.02)
        assert info["running"] and info["label"] == "echo up; sleep 60"
        return result, output.read_text()

    result, output = shell.play(scene())
    (info,) = shell.processes.background()
    assert result.status == "success" and output == "up\n"
    assert f"PID: {info['pid']}" in result.content and info["output_file"] in result.content


def test_git_log_needs_no_pager(shell: Shell) -> None:
    result = shell(
        "git init -q . && git commit -q --allow-empty -m first && git log --format=%s && git commit",
        timeout_s=20,
    )
    assert "Output:\nfirst" in result.content and "Exit Code: 1" in result.content


def test_the_preview_shows_command_and_directory(shell: Shell) -> None:
    (shell.root / "sub").mkdir()

    def show(**args: Any) -> str:
        return shell.play(preview(RunShellCommandArgs(command="make all", **args), shell.context)).text

    assert show() == "make all\nin the workspace"
    assert show(dir_path="sub", is_background=True) == "make all\nin sub\nin the background"


def test_the_preview_of_what_can_not_run_says_so(shell: Shell) -> None:
    shown = shell.play(preview(RunShellCommandArgs(command="ls", dir_path="/etc"), shell.context))
    assert shown.problem is not None and "outside the workspace" in shown.problem


def test_bad_arguments_are_refused() -> None:
    for bad in ({"command": ""}, {"command": "ls", "timeout_s": 0}, {"command": "ls", "cwd": "/"}):
        with pytest.raises(ValidationError):
            TOOL.args.model_validate(bad)


def test_the_summary_is_one_line() -> None:
    assert TOOL.summary(RunShellCommandArgs(command="cd x\n  && make")) == "cd x && make"
