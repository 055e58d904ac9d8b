"""A watch over a job that runs elsewhere: it reports, falls silent, and comes back.

In a service the job calls its ping URL over HTTP (`PingApp` takes it); here it calls the same thing directly. What goes
late, down and up again is told to whoever implements `monitor_flipped`.
"""

from __future__ import annotations

import argparse
import asyncio

from noonbell.engine import SystemClock
from noonbell.monitors import MonitorFlipped, Monitors, Watch
from noonbell.store.memory import MemoryStore


class Printed:
    """Tells on the terminal, and lets the job know when it has been missed."""

    def __init__(self) -> None:
        self.missed = asyncio.Event()
        self.back = asyncio.Event()

    async def monitor_flipped(self, flipped: MonitorFlipped) -> None:
        print(f"{flipped.event}: {flipped.name} is {flipped.status} ({flipped.reason})")
        if flipped.event == "failed":
            self.missed.set()
        if flipped.event == "recovered":
            self.back.set()


async def job(monitors: Monitors, token: str, alerts: Printed, beats: int) -> None:
    for beat in range(beats):
        await monitors.ping(token, "start")
        await asyncio.sleep(0.1)
        await monitors.ping(token, body=f"beat {beat}: all is well")
        await asyncio.sleep(0.2)
    print("the job falls silent")
    await alerts.missed.wait()
    await monitors.ping(token, body="sorry, overslept")
    await alerts.back.wait()


async def main(beats: int) -> None:
    store, clock, alerts = MemoryStore(), SystemClock(), Printed()
    await store.open()
    watch = Watch(store, clock, alerts)
    monitors = Monitors(store, clock, on_due=watch.wake)
    made = await monitors.create(name="heart", type="interval", spec="1", grace_seconds=1)
    stop = asyncio.Event()
    duty = asyncio.ensure_future(watch.run(stop))
    await job(monitors, made.token, alerts, beats)
    stop.set()
    await duty
    for flip in reversed(await monitors.flips(made.monitor_id)):
        print(f"{flip.was} -> {flip.status} after {flip.lasted.total_seconds():.1f} s")
    print(f"last words: {(await monitors.pings(made.monitor_id, limit=1))[0].body}")
    await store.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--beats", type=int, default=3)
    asyncio.run(main(options.parse_args().beats))
