"""A job that fails and recovers, and a webhook that is told of it. Runs by itself, in memory, on loopback.

python examples/notifications.py
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from noonbell import Schedules
from noonbell.actions.callback import Call
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import new_ring

WANTED = 2


async def main() -> None:
    told = asyncio.Event()
    titles: list[str] = []

    async def receive(request: web.Request) -> web.Response:
        event = await request.json()
        titles.append(event["data"]["title"])
        print(f"{event['type']}: {event['data']['title']}")
        if len(titles) == WANTED:
            told.set()
        return web.Response(text="thank you")

    app = web.Application()
    app.router.add_post("/hook", receive)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    place = "{}:{}".format(*runner.addresses[0])

    runs = 0

    async def backup(call: Call) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise RuntimeError(f"{call.name}: the disk is full")

    # loopback is refused unless the operator names it
    egress = Egress(EgressPolicy(allow=(place,)))
    async with Schedules("memory://", callbacks={"backup": backup}, secrets=new_ring(), egress=egress) as schedules:
        await schedules.channels.create(
            channel_id="ops", name="ops", kind="webhook", config={"url": f"http://{place}/hook"}
        )
        await schedules.rules.create(name="backups", on=["failed", "recovered"], tag="backup", channels=["ops"])
        await schedules.create(
            name="backup", type="interval", spec="1", tags=["backup"], action={"kind": "callback", "name": "backup"}
        )
        await schedules.start()
        await told.wait()
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())
