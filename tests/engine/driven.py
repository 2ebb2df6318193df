"""driven: drives a run until a signal stops it: `python driven.py brief|busy|slow|raw|after`."""

import asyncio
import sys
import tty

from interlock.engine.driver.stop import stop_on_signals


async def main(deed: str) -> None:
    told, drained = asyncio.Event(), list[str]()

    def request() -> None:
        told.set()
        drained.append("signal")

    with stop_on_signals(request):
        print("driving", flush=True)
        await told.wait()
        print("stopping", *drained, flush=True)
        if deed == "busy":  # a loop that the event loop can't interrupt
            while True:
                pass
        if deed == "brief":  # still running when the second one comes
            await asyncio.sleep(0.3)
        if deed == "raw":
            tty.setraw(0)
        if deed in ("raw", "slow"):
            await asyncio.sleep(60)
    print("parked", flush=True)
    if deed == "after":
        await asyncio.sleep(60)


asyncio.run(main(sys.argv[1]))
