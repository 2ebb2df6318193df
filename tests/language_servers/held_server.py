"""held_server: has an edit checked, and waits to be killed. Arguments: a folder, `sandboxed` or nothing."""

import sys
import time
from pathlib import Path

from language_servers.lab import TOY, check_edits, toy
from sandboxes import sandbox_for


class Held(str):
    """A text that isn't written before the process is killed."""

    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        print("New problems in a.toy:", flush=True)
        time.sleep(600)
        return super().encode(encoding, errors)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    seen = [f"{TOY.parent}:ro", f"{sys.prefix}:ro", f"{sys.base_prefix}:ro"]
    sandbox = sandbox_for(folder, sandboxAllowedPaths=seen) if sys.argv[2] else None
    check_edits(folder, {"toy": toy("push", folder)}, [("a.toy", None, Held("BAD"))], sandbox=sandbox)
