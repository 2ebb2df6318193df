"""testing: tools for testing your own workflows: a stage with a scripted model, path tables, and kills.

Needs neither a key nor a network. `interlock new workflow NAME` writes a test that uses it.
"""

from interlock.testing.kills import kill_everywhere
from interlock.testing.stage import Person, Scene, Stage, agrees, check_paths, reads_from, said

__all__ = ["Person", "Scene", "Stage", "agrees", "check_paths", "kill_everywhere", "reads_from", "said"]
