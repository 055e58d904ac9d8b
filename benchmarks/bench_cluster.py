"""Several instances on one PostgreSQL, with and without the Redis timeline: fires a second, and how late they are.

    python -m benchmarks.bench_cluster [--burst N] [--rounds N] [--seconds S] [--steady LIST] [--instances LIST]
        [--timelines LIST] [--peer-seconds S] [--peer-burst N] [--json FILE]

- One PostgreSQL server with fsync and full page writes on, and one Valkey, both from wheels, on this machine. Each
  trial has a database of its own. An instance is a process that runs `Schedules` with default settings.
- *Burst*: N one-shot schedules are due at the same instant. The rate counts from that instant until the end of the last
  run is written. The trials take turns, round by round; the table shows medians.
- *Steady*: so many one-shot schedules a second, one after the other at even distances. Late is what lies between the
  due moment and the call of the callback. A bare asyncio timer in a process of its own fires at the same instants,
  beside it; "above" is the difference of the two medians.
- Each callback keeps which schedule it was called for. Exactly once means: each schedule once, by no more than one
  instance, and as many ends are written.
- "looks" are questions for due schedules that the database was asked; "claim" is how long one took that brought some.
- Celery beat with one worker gets the same loads over Redis, for a bounded time: it is less than the same work, see
  `cluster_parts/celery_party.py`. "fired" says how far it got. Beat compares all its entries at every step, so it grows
  slower with their number: it gets a smaller burst, too.
- All of it shares the cores of this machine: more instances cannot be faster than the cores there are. What several
  give here is that one may die; their rate on machines of their own is another measurement.

The exit status is 1 where a bar is missed: each fires exactly once, and at up to 10 a second the median stays below
50 ms above the bare timer's.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.cluster_parts import trial
from benchmarks.cluster_parts.peers import run_celery
from benchmarks.cluster_parts.trial import Load, Result, Setting
from benchmarks.engine_parts.judging import print_load
from benchmarks.schedule_parts.disk_server import start_server
from tests.redis_server import PASSWORD, RedisServer

TIMELINES: Final = ("sql", "redis")
ABOVE_BARE_MS: Final = 50.0
BARRED_UP_TO: Final = 10
PATIENCE_SECONDS: Final = 300.0


def tell(text: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Place:
    """The two servers, and a folder for the logs of one trial after the other."""

    def __init__(self) -> None:
        self.postgres = start_server()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.redis = RedisServer(port=str(port), bind="127.0.0.1")
        self._broker = f"redis://:{PASSWORD}@127.0.0.1:{port}/"
        self._queues = itertools.count(1)  # a database for each: what one has not got to is not the next one's

    def close(self) -> None:
        self.postgres.stop()
        self.redis.stop()

    async def run(self, timeline: str, instances: int, load: Load, *, bare: bool) -> Result:
        dsn = await self.postgres.new_database()
        with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
            address = self.redis.url if timeline == "redis" else None
            setting = Setting(dsn, address, instances, Path(folder), PATIENCE_SECONDS)
            found = await trial.run(setting, load, bare=bare)
        await self.postgres.execute("postgres", f"DROP DATABASE {dsn.rpartition('/')[2]}")
        late = found["late"]
        tell(
            f"{timeline} x {instances}, {load.name}: {found['rate']:,.0f}/s, late {late['p50_ms']} / {late['p99_ms']} "
            f"ms{'' if found['exactly_once'] else ', NOT EXACTLY ONCE'}"
        )
        return found

    def celery(self, load: Load, limit: float) -> Result:
        with tempfile.TemporaryDirectory(prefix="noonbell-bench-") as folder:
            found = run_celery(f"{self._broker}{next(self._queues)}", load, Path(folder), limit)
        late = found["late"]
        fired, p50, p99 = f"{found['fires']:,} of {found['of']:,} fired", late["p50_ms"], late["p99_ms"]
        tell(f"celery, {load.name}: {fired}, late {p50} / {p99} ms")
        return found


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    place = Place()
    crews = [(timeline, instances) for timeline in given.timelines for instances in given.instances]
    rows: dict[tuple[str, int], Result] = {crew: {"burst": [], "steady": {}} for crew in crews}
    celery: Result = {}
    try:
        for _ in range(given.rounds):
            for crew in crews:
                rows[crew]["burst"].append(await place.run(*crew, Load.burst(given.burst), bare=False))
        for rate in given.steady:
            for crew in crews:
                rows[crew]["steady"][rate] = await place.run(*crew, Load.steady(rate, given.seconds), bare=True)
        if given.peer_seconds > 0:
            bursts = sorted({given.burst, min(given.burst, given.peer_burst)})
            celery["bursts"] = [place.celery(Load.burst(count), given.peer_seconds) for count in bursts]
            celery["steady"] = {
                rate: place.celery(Load.steady(rate, given.seconds), given.peer_seconds) for rate in given.steady
            }
    finally:
        place.close()
    found = [
        {
            "timeline": timeline,
            "instances": instances,
            "burst": middle(row["burst"]),
            "steady": row["steady"],
            "exactly_once": all(one["exactly_once"] for one in (*row["burst"], *row["steady"].values())),
        }
        for (timeline, instances), row in rows.items()
    ]
    return {
        "cores": os.cpu_count(),
        "due_at_once": given.burst,
        "rounds": given.rounds,
        "noonbell": found,
        "celery": celery,
        "bars": bars(found),
    }


def middle(rounds: list[Result]) -> Result:
    """The round of the median rate, and all rates."""
    if not rounds:
        return {}
    rate = median(one["rate"] for one in rounds)
    nearest = min(rounds, key=lambda one: abs(one["rate"] - rate))
    return nearest | {"rate": rate, "rates": [one["rate"] for one in rounds]}


def bars(found: list[Result]) -> list[Result]:
    judged: list[Result] = []
    for row in found:
        who = f"{row['timeline']} x {row['instances']}"
        judged.append({"bar": f"{who}: each fires exactly once", "value": None, "met": row["exactly_once"]})
        for rate, steady in row["steady"].items():
            if rate <= BARRED_UP_TO:
                above = steady["above_bare_p50_ms"]
                what = f"{who}: the median at {rate} a second, ms above the bare timer's (below {ABOVE_BARE_MS:g})"
                judged.append({"bar": what, "value": above, "met": above < ABOVE_BARE_MS})
    return judged


def show(told: dict[str, Any]) -> None:
    print(f"\nburst of {told['due_at_once']:,} due at once, on {told['cores']} cores that everything shares")
    print(f"{'':14}{'per second':>12}{'seconds':>10}{'late p50':>13}{'p99':>13}{'looks':>7}{'claim ms':>10}  shares")
    for row in told["noonbell"]:
        found = row["burst"]
        if found:
            claim = max(found["claim_ms"], default=0.0)
            print(
                f"{row['timeline']:>8} x {row['instances']:<3}{found['rate']:>12,.0f}{found['seconds']:>10.2f}"
                f"{_ms(found['late']['p50_ms']):>13}{_ms(found['late']['p99_ms']):>13}{sum(found['looks']):>7}{claim:>10.1f}"
                f"  {' '.join(f'{share:,}' for share in found['shares'])}"
            )
    for found in told["celery"].get("bursts", ()):
        _show_peer(found)
    for rate in told["noonbell"][0]["steady"]:
        print(f"\n{rate} a second")
        print(f"{'':14}{'late p50':>12}{'p99':>12}{'max':>12}{'bare p50':>12}{'p99':>12}{'above':>12}{'claim ms':>10}")
        for row in told["noonbell"]:
            found = row["steady"][rate]
            late, bare = found["late"], found["bare"]
            print(
                f"{row['timeline']:>8} x {row['instances']:<3}{_ms(late['p50_ms']):>12}{_ms(late['p99_ms']):>12}"
                f"{_ms(late['max_ms']):>12}{_ms(bare['p50_ms']):>12}{_ms(bare['p99_ms']):>12}"
                f"{_ms(found['above_bare_p50_ms']):>12}{max(found['claim_ms'], default=0.0):>10.1f}"
            )
        _show_peer(told["celery"].get("steady", {}).get(rate))
    print()
    for bar in told["bars"]:
        value = "" if bar["value"] is None else f": {bar['value']:g}"
        print(f"{'pass' if bar['met'] else 'MISSED':8}{bar['bar']}{value}")


def _show_peer(found: Result | None) -> None:
    if found:
        late = found["late"]
        print(
            f"{'celery':>8}      {found['fires']:,} of {found['of']:,} fired, {found['rate']:,.0f} a second, late "
            f"{_ms(late['p50_ms'])} / {_ms(late['p99_ms'])}"
        )


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f} ms"


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--burst", type=int, default=30_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--seconds", type=float, default=15.0, help="of each steady load")
    options.add_argument("--steady", type=int, nargs="*", default=[10, 200], help="loads in fires a second")
    options.add_argument("--instances", type=int, nargs="+", default=[1, 2, 3])
    options.add_argument("--timelines", nargs="+", choices=TIMELINES, default=list(TIMELINES))
    options.add_argument("--peer-seconds", type=float, default=30.0, help="what Celery is given; 0 leaves it out")
    options.add_argument("--peer-burst", type=int, default=1_000, help="a smaller burst for Celery, beside it")
    options.add_argument("--json", type=Path, help="write the results to this file too")
    given = options.parse_args()
    print_load("start")
    told = asyncio.run(measure(given))
    show(told)
    print_load("end")
    if given.json:
        given.json.write_text(json.dumps(told, indent=1))
    print(json.dumps(told))
    return 0 if all(bar["met"] for bar in told["bars"]) else 1


if __name__ == "__main__":
    sys.exit(main())
