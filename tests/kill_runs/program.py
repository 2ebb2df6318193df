"""program: kills a run with reads, edits of one file, shell commands and approvals."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from kill_runs.harness import Play, show
from kill_runs.scene import REPLIES, SHORT

if __name__ == "__main__":
    show(Play(REPLIES, SHORT))
