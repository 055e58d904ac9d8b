"""A schedule that sends messages, to a receiver that is not always at home.

Every second an event is put into the outbox, with the run that it belongs to, and is delivered from there: in order,
and again after a while where the receiver refused it. The id of an event is the same each time.
"""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from noonbell import Schedules


class Receiver:
    """Refuses the first event once."""

    def __init__(self) -> None:
        self.refused: str | None = None

    async def __call__(self, event: dict[str, Any]) -> None:
        if self.refused is None:
            self.refused = event["id"]
            print(f"not at home: {event['id']}")
            raise ConnectionError("not at home")
        again = " (the one from before)" if event["id"] == self.refused else ""
        print(f"got {event['data']['text']}, from {event['data']['source']['channel']}{again}")


async def main(store: str, seconds: float) -> None:
    async with Schedules(store, targets={"door": Receiver()}) as schedules:
        bell = await schedules.create(
            name="doorbell",
            type="interval",
            spec="1",
            payload={"type": "ring", "text": "{{name}} for {{scheduled_for}}"},
            action={"kind": "message", "to": "door"},
        )
        await schedules.start()
        await asyncio.sleep(seconds)
        await schedules.delete(bell.schedule_id)
        print(f"{len((await schedules.dead_letters()).items)} dead letters")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", default="memory://")
    options.add_argument("--seconds", type=float, default=4.5)
    given = options.parse_args()
    asyncio.run(main(given.store, given.seconds))
