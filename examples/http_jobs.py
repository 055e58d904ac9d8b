"""HTTP jobs: requests at the right time, with a secret, retries, and a record of each attempt.

It brings its own server, on a free port of this machine. Places that only this machine can reach are refused unless the
operator names them, so the port is on the allow-list. The server is busy at first and asks to be left alone for a
second; the second attempt, with the same id, is taken.
"""

from __future__ import annotations

import argparse
import asyncio

from aiohttp import web

from noonbell import Schedules
from noonbell.actions.egress import Egress, EgressPolicy
from noonbell.actions.secrets.keys import new_ring


class Shop:
    """Takes orders at /orders, from whoever has the key, but not at once."""

    def __init__(self) -> None:
        self.seen: set[str] = set()

    async def order(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer open sesame":
            return web.Response(status=401, text="who are you?")
        run, attempt = request.headers["Idempotency-Key"], request.headers["Noonbell-Attempt"]
        print(f"attempt {attempt}: {await request.text()}")
        if run not in self.seen:
            self.seen.add(run)
            return web.Response(status=503, text="too busy", headers={"Retry-After": "1"})
        return web.json_response({"state": "taken"})


async def serve(shop: Shop) -> tuple[web.AppRunner, int]:
    app = web.Application()
    app.router.add_post("/orders", shop.order)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port: int = runner.addresses[0][1]
    return runner, port


async def main(store: str, seconds: float) -> None:
    runner, port = await serve(Shop())
    egress = Egress(EgressPolicy(allow=(f"127.0.0.1:{port}",)))
    # a program that is to find its secrets again keeps its keys: noonbell keys new master.keys
    async with Schedules(store, egress=egress, secrets=new_ring()) as schedules:
        await schedules.secrets.put("default", "SHOP_KEY", "open sesame")
        job = await schedules.create(
            name="order",
            type="interval",
            spec="1",
            action={
                "kind": "http",
                "url": f"http://127.0.0.1:{port}/orders",
                "auth": {"bearer": "${secrets.SHOP_KEY}"},
                "body": {"json": {"bells": 3}},
                "assert": {"json_path": "$.state", "equals": "taken"},
            },
            retry={"attempts": 3, "delay_seconds": 1},
        )
        await schedules.start()
        await asyncio.sleep(seconds)
        await schedules.stop()
        first = (await schedules.occurrences(job.schedule_id)).items[0]
        for attempt in first.tried:
            detail = attempt.detail or {}
            sent = dict(detail["request"]["headers"])
            print(
                f"kept: attempt {detail['attempt']} {detail['request']['method']} {sent['Authorization']} -> "
                f"{detail['response']['status']} {detail['response']['body']} ({attempt.outcome})"
            )
    await runner.cleanup()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--store", default="memory://")
    options.add_argument("--seconds", type=float, default=4.5)
    given = options.parse_args()
    asyncio.run(main(given.store, given.seconds))
