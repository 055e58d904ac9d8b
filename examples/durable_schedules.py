"""Schedules that are created while the program runs, and outlive it.

Run it twice: the second time the schedule is there already, and what was missed in between has run once.
"""

from __future__ import annotations

import argparse
import asyncio

from noonbell import Schedules
from noonbell.schedules import Call


async def ring(call: Call) -> None:
    print(f"ding {call.payload['bell']}, for {call.scheduled_for:%H:%M:%S}")


async def main(store: str, seconds: float) -> None:
    async with Schedules(store, callbacks={"ring": ring}) as schedules:
        known = await schedules.list(name_contains="bell")
        bell = known.items[0] if known.items else None
        if bell is None:
            bell = await schedules.create(
                name="bell",
                type="interval",
                spec="1",
                payload={"bell": "noon"},
                action={"kind": "callback", "name": "ring"},
                catch_up_policy="run_once",
            )
        await schedules.resume(bell.schedule_id)
        await schedules.start()
        await asyncio.sleep(seconds)
        await schedules.pause(bell.schedule_id)
        for event in (await schedules.audit()).items:
            print(f"  {event.at:%H:%M:%S} {event.event}")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", default="sqlite:///bells.db")
    options.add_argument("--seconds", type=float, default=3.0)
    given = options.parse_args()
    asyncio.run(main(given.store, given.seconds))
