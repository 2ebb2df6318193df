"""What tools refuse: nothing is changed, and one line says why; arguments that can't be meant aren't taken."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError
from tool_calls import Calls

from interlock.tools.table import TOOLS

TABLE: dict[str, dict[str, list[Any]]] = yaml.load(
    Path(__file__).with_name("refusals.yaml").read_text().replace("{long}", "n" * 300), yaml.CSafeLoader
)
FILES: dict[str, str | bytes] = {
    **{name: f"{name}\n" for name in ("a.py", "src/b.py", "src/deep/c.txt", "file")},
    "a": "x\n\nx\n",
    "one": "x",
    "three": "1\n2\n3",
    "empty": "",
    "binary": b"\0\1",
    "latin": "alté\n".encode("latin-1"),
    "locked": "",
    "dir/": "",
    "total.py": "import os\n\ndef total(items):\n    return sum(items)\n",
    ".git/": "",
    ".gitignore": "secret\n",
    "secret": "password = 1\n",
    ".env": "password = 1\n",
}


@pytest.mark.parametrize(
    ("tool", "args", "kind", "says"),
    [(tool, *row, "")[:4] for tool, rows in TABLE["refused"].items() for row in rows],
)
def test_what_a_tool_cannot_do_is_refused_and_says_why(
    call: Calls, folder: Path, tool: str, args: dict[str, Any], kind: str, says: str
) -> None:
    call.write(FILES)
    os.mkfifo(folder / "pipe")
    (folder / "loop").symlink_to("loop")
    (folder / "locked").chmod(0o444)
    with (folder / "huge").open("wb") as file:
        file.truncate(20 * 1024 * 1024 + 1)
    said = call.failed(kind, tool, **args)
    assert says in said and said.count("\n") == says.count("\n") and "password = 1" not in said


@pytest.mark.parametrize(
    ("tool", "args"), [(tool, args) for tool, rows in TABLE["bad"].items() for args in rows]
)
def test_arguments_that_can_not_be_meant_are_refused(tool: str, args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        TOOLS[tool].args.model_validate(args)
