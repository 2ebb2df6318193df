"""workflow_names: where users' workflows are looked for. Light, for the fast commands."""

from pathlib import Path

FOLDER = Path(".interlock") / "workflows"
"""Below a workspace or the user's home."""
GROUP = "interlock.workflows"
"""Of entry points."""
