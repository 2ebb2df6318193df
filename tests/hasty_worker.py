"""hasty_worker: `interlock worker` that counts another as dead after three seconds of silence, not after twelve."""

import sys

from interlock.cli.main import main
from interlock.fleet import procrastinate_worker as worker

worker._BEAT_S, worker._STALLED_S, worker._SWEEP_S = 0.3, 3.0, 0.3
sys.exit(main(["worker", *sys.argv[1:]]))
