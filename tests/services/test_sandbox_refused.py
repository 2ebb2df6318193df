"""Without a sandbox, or without the one requested, nothing runs, and one line says why (exit 44)."""

import importlib.metadata
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from folders import put
from sandboxes import needs_sandbox, sandbox_for

from interlock.services.config.settings import load_settings
from interlock.services.sandbox import sandbox
from interlock.services.sandbox.sandbox import open_sandbox
from interlock.state.errors import ConfigError, SandboxError
from interlock.state.settings import ToolSettings


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def fake(folder: Path, script: str) -> str:
    """A PATH with this `bwrap` first."""
    put(folder / "bwrap", f"#!/bin/sh\n{script}\n")
    return f"{folder}:{os.environ['PATH']}"


def no_wheel(name: str) -> Any:
    raise importlib.metadata.PackageNotFoundError(name)


def test_without_bubblewrap_the_line_says_what_to_install(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "distribution", no_wheel)
    with pytest.raises(SandboxError, match=r"no 'bwrap' on the PATH: install the package bubblewrap"):
        sandbox_for(work, env={"PATH": str(tmp_path)})


DENIED = "No permissions to create new namespace"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (f"echo 'bwrap: {DENIED}' >&2; exit 1", f"'{DENIED}'; allow user namespaces"),
        ("exit 7", "exit status 7"),
        ("exec no-such-program 2>/dev/null", "exit status 127"),
    ],
)
def test_a_bubblewrap_that_can_not_work_is_told_in_its_own_words(
    work: Path, tmp_path: Path, script: str, said: str
) -> None:
    with pytest.raises(SandboxError) as caught:
        sandbox_for(work, env={"PATH": fake(tmp_path / "bin", script)})
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert caught.value.exit_code == 44


def test_a_bubblewrap_that_never_answers_is_given_up(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "_PROBE_S", 0.3)
    with pytest.raises(SandboxError, match="no answer within"):
        sandbox_for(work, env={"PATH": fake(tmp_path / "bin", "exec sleep 30")})


@pytest.mark.parametrize("platform", ["darwin", "win32", "freebsd14"])
def test_other_systems_have_none(work: Path, monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(SandboxError, match=f"needs Linux, and this is {platform}"):
        sandbox_for(work)


def test_a_bubblewrap_in_the_workspace_is_not_believed(work: Path) -> None:
    planted = fake(work / "bin", "exit 0").split(":")[0]
    assert sandbox.find_bubblewrap({"PATH": planted}, [work]) != f"{planted}/bwrap"


def test_a_workspace_that_holds_the_home_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    on, env = ToolSettings(sandbox=True), {"PATH": fake(tmp_path / "bin", "exit 0")}
    for root, home in [(tmp_path, tmp_path / "home"), (tmp_path, tmp_path), (Path("/"), tmp_path)]:
        with pytest.raises(SandboxError, match="holds the home directory"):
            open_sandbox(on, roots=[root], home=home, state=tmp_path / "state", env=env)


MEANT = r"tools\.sandboxAllowedPaths: .*expected a file or folder"
KERNEL = r"'/sys' would let commands change the kernel; write '/sys:ro'"
NO_PATHS = ("relative", "/no/such/folder", "~/nothing:ro", "/", "", "/usr\0", ":ro")


@pytest.mark.parametrize(
    ("settings", "link", "said"),
    [
        # Another kind isn't passed over; a link could be turned by a command, and these are never set aside.
        *(
            ({"sandbox": name}, "", f"Unknown sandbox '{name}'; expected 'bwrap'")
            for name in ("docker", "sandbox-exec", "no")
        ),
        *(({}, name, f"{name}' is a link") for name in (".git", ".env")),
        # What can't be shown is a mistake in settings; what is the kernel's isn't writable by any.
        *(({"sandboxAllowedPaths": [path]}, "", MEANT) for path in NO_PATHS),
        ({"sandboxAllowedPaths": ["/sys"]}, "", KERNEL),
        ({"included": [Path("/proc/sys")]}, "", "'/proc/sys' is the kernel's"),
    ],
)
def test_what_can_not_be_closed_is_refused(
    work: Path, tmp_path: Path, settings: dict[str, Any], link: str, said: str
) -> None:
    env = {"PATH": fake(tmp_path / "bin", "exit 0")}
    if link:
        (work / link).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError if "sandboxAllowedPaths" in settings else SandboxError, match=said):
        sandbox_for(work, env=env, **settings)
    if not link:
        assert sandbox_for(work, env=env, sandboxAllowedPaths=["/sys:ro"]).readable == [Path("/sys")]


@pytest.mark.parametrize(
    ("env", "text", "expected"),
    [
        ({}, "", False),
        ({"GEMINI_SANDBOX": "true"}, "", True),
        ({"GEMINI_SANDBOX": "1"}, "", True),
        ({"GEMINI_SANDBOX": "docker"}, "", "docker"),
        ({"GEMINI_SANDBOX": "docker", "INTERLOCK_SANDBOX": "TRUE"}, "", True),
        ({"INTERLOCK_SANDBOX": "0"}, '{"tools": {"sandbox": true}}', False),
        ({"INTERLOCK_SANDBOX": ""}, '{"tools": {"sandbox": "bwrap"}}', "bwrap"),
    ],
)
def test_settings_and_environment_ask_as_gemini_cli_does(
    tmp_path: Path, env: dict[str, str], text: str, expected: object
) -> None:
    put(tmp_path / ".interlock/settings.json", text or "{}")
    loaded = load_settings(workspace=tmp_path / "work", home=tmp_path, env=env, overrides={}, trusted=True)
    assert loaded.settings.tools.sandbox == expected


def test_nothing_is_asked_of_the_machine_when_no_sandbox_is(work: Path, tmp_path: Path) -> None:
    path = fake(tmp_path / "bin", f"touch {tmp_path}/started; exit 1")
    settings = ToolSettings(sandbox=False)
    made = open_sandbox(settings, roots=[work], home=tmp_path, state=tmp_path, env={"PATH": path})
    assert made is None and not (tmp_path / "started").exists()


def test_a_workspace_that_nobody_may_write_needs_no_placeholders(work: Path) -> None:
    needs_sandbox()
    work.chmod(0o555)
    try:
        sandbox_for(work)
    finally:
        work.chmod(0o755)
    assert list(work.iterdir()) == []
