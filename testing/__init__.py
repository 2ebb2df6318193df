"""testing: what tests of your own workflows need: a stage with a scripted model, tables of paths, and kills.

None of it needs a key or a network. `interlock new workflow NAME` writes a test that uses it.
"""

from interlock.testing.kills import kill_everywhere
from interlock.testing.stage import Person, Scene, Stage, agrees, check_paths, reads_from, said

__all__ = ["Person", "Scene", "Stage", "agrees", "check_paths", "kill_everywhere", "reads_from", "said"]
