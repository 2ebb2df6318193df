"""pages: follows a page as a reader would: writes the files it shows and runs its commands, in order."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from patience import HANG_S

_STOP = """trap 'echo "$BASH_COMMAND: exit $?" >&2; exit 99' ERR"""
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def followed(page: Path, work: Path, cwd: Path) -> "subprocess.CompletedProcess[str]":
    """Exits with 0 if each command returned the code noted after it (`# exit N`), else with 99."""
    env = {**os.environ, "WORK": str(work), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-Ec", "\n".join([_STOP, *_script(page.read_text())])],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=HANG_S * 5,  # a page has up to twenty commands
        check=False,
    )


def _script(text: str) -> Iterator[str]:
    for kind, block in _BLOCK.findall(text):
        if block.startswith("# needs a checkout"):
            continue  # it installs what is installed here
        if kind == "python":
            first, _, code = block.partition("\n")
            yield f"cat > {first.removeprefix('# file: ')} <<'END OF FILE'\n{code}END OF FILE"
            continue
        yield re.sub(
            r"^(.*\S) +# exit (\d+)$", r"{ rc=0; \1 || rc=$?; [ $rc = \2 ]; }", block, flags=re.MULTILINE
        )
