"""sandboxes: a real sandbox around a folder; where none is available, checks that exit code 44 says so."""

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from interlock.services.sandbox.sandbox import Sandbox, check_and_describe_sandbox_support, open_sandbox
from interlock.state.errors import SandboxError
from interlock.state.settings import ToolSettings


@cache
def _missing() -> str:
    try:
        check_and_describe_sandbox_support(os.environ)
    except SandboxError as error:
        assert error.exit_code == 44 and "run without the sandbox" in str(error)
        return str(error)
    return ""


def needs_sandbox() -> None:
    """Skip where bubblewrap doesn't work, after checking that a run would be refused there."""
    if error := _missing():
        pytest.skip(f"no sandbox here: {error}")


def sandbox_for(
    work: Path,
    *,
    included: Sequence[Path] = (),
    env: dict[str, str] | None = None,
    clones: Path | None = None,
    is_trusted: bool = False,
    **tools: Any,
) -> Sandbox:
    """Open a sandbox as a run does; home and state directory are beside the folder, and may not exist.

    `clones`: the folder is a worker's clone, among those of other runs there.
    """
    beside = (clones or work).parent
    made = open_sandbox(
        ToolSettings.model_validate({"sandbox": True, **tools}),
        roots=[Path(os.path.realpath(folder)) for folder in (work, *included)],
        home=beside / "home",
        state=beside / "state",
        env={"PATH": os.environ["PATH"], **(env or {})},
        other_run_folders=[clones] if clones else [],
        is_trusted=is_trusted,
    )
    assert made is not None
    return made
