"""plain: a session where the cursor can't be moved: prompt, answer, prompt, line by line."""

import os
import sys
from dataclasses import replace

from interlock.cli import quick_start
from interlock.cli.driving import advanced
from interlock.cli.render.output import one_line, redacted
from interlock.cli.render.text import TextView
from interlock.engine.options import Options
from interlock.engine.read.runs import find_run
from interlock.state.errors import InterlockError


def is_plain() -> bool:
    """The terminal can't do more than lines."""
    return os.environ.get("TERM", "dumb") in ("dumb", "")


def converse(options: Options, workflow: str, prompt: str = "", run: str | None = None) -> int:
    """Until the person leaves; the exit code."""
    quick_start.begin()
    run = run and find_run(options.home, run, options.workspace).run
    while True:
        try:
            text = prompt or input("> ").strip()
            prompt = ""
            if not text and not run:
                continue
            outcome = advanced(workflow, run, text or None, options, TextView(text))
            run = outcome.run
            options = replace(options, attach=(), approval_mode=None)
        except (EOFError, KeyboardInterrupt):
            print()
            break
        except InterlockError as error:
            print(f"interlock: {one_line(redacted(str(error)))}", file=sys.stderr)
    if run:
        print(f"Go on with: interlock -r {run}")
    return 0
