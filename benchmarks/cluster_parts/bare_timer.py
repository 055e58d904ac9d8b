"""A bare timer beside the cluster: one asyncio timer for each instant, and nothing behind it.

    python -m benchmarks.cluster_parts.bare_timer INSTANTS LOG

Both files hold 8-byte integers: the instants in microseconds on the clock of the cluster, and triples as those
of an instance. The protocol is an instance's, too.
"""

from __future__ import annotations

import asyncio
import sys
from array import array
from pathlib import Path

import uvloop

from benchmarks.cluster_parts.instance import now_us, tell


async def live(instants: array[int], log: Path) -> None:
    fires = array("q")
    loop = asyncio.get_running_loop()
    tell(said="ready")
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await orders.readline()
    tell(said="up")
    shift = int(await orders.readline())
    began, machine = loop.time(), now_us()

    def fire(number: int) -> None:
        began = now_us()
        fires.extend((number, began, began))

    for number, at in enumerate(instants):
        loop.call_at(began + (at - shift - machine) / 1_000_000, fire, number)
    tell(said="set", ahead=shift)
    await orders.read()
    log.write_bytes(fires.tobytes())  # noqa: ASYNC240 - nothing else runs any more
    tell(said="gone", fires=len(fires) // 3)


if __name__ == "__main__":
    read, where = sys.argv[1:]
    uvloop.run(live(array("q", Path(read).read_bytes()), Path(where)))
