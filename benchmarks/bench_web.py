"""How long the pages of the dashboard take with a thousand schedules and with a million, and how much they load.

Two databases are filled: few schedules with few runs, and a million of each. The service is started on each as a
process, somebody logs in, and every page is asked for several times over HTTP, as a browser asks. What is promised: no
page loads everything, so a page of the many stays within a small multiple of the same page of the few, and what a page
loads beside itself stays below 150 KB, packed.

The schedules belong to a lane that nobody runs: pages are measured, not runs. The many are copies of the few, made
inside the database.

    python -m benchmarks.bench_web [--many 1000000] [--rounds 5] [--keep FOLDER]
"""

from __future__ import annotations

import gzip
import http.cookiejar
import re
import statistics
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from benchmarks.bench_serve import FEW, asked, filled, serving
from noonbell.schedules import Fields, Schedules
from noonbell.store.words import SCHEDULED

MOST_ASSETS: Final = 150_000
PASSWORD: Final = "a password of a benchmark"  # noqa: S105 - of a database that lives for a benchmark
PAGES: Final = {
    "overview": "/",
    "list": "/schedules",
    "list, a page far on": "/schedules?cursor={middle}",
    "list, by name": "/schedules?q=needle",
    "list, by tag": "/schedules?tag=half",
    "a schedule": "/schedules/pattern-500",
    "form of a new one": "/schedules/new",
    "runs": "/runs",
    "runs that failed": "/runs?outcome=failed",
    "forecast, looked up": "/forecast",
    "audit": "/audit",
    "quiet hours": "/quiet-hours",
    "monitors": "/monitors",
    "instances": "/instances",
}


def fields() -> Iterator[Fields]:
    """Schedules of several rhythms and zones."""
    zones = ("UTC", "Europe/Kyiv", "America/New_York", "Asia/Tokyo")
    for number in range(FEW):
        name = "the needle" if number == 900 else f"schedule {number}"
        made: Fields = {
            "schedule_id": f"pattern-{number}", "name": name, "type": "cron", "timezone": zones[number % 4],
            "spec": f"{number % 60} {number % 24} * * *", "tags": ["half"] if number % 2 else [],
            "action": {"kind": "http", "url": "https://example.org/"},
        }  # fmt: skip
        if number % 10 == 0:
            made |= {"type": "interval", "spec": "3600"}
        yield made


async def fill(path: Path, count: int) -> None:
    """As many schedules, and a run for each within the last week."""
    async with Schedules(f"sqlite:///{path}", lane="elsewhere") as schedules:
        await schedules.create_many(fields())
    db = apsw.Connection(str(path))
    db.execute("PRAGMA synchronous = OFF")
    step = db.execute("SELECT max(sid) FROM schedule_definitions").get
    named = {
        "schedule_id": "s.schedule_id || '-' || n.n", "name": "s.name || ' copy ' || n.n",
        "sid": f"s.sid + n.n * {step}",
    }  # fmt: skip
    with db:
        for table in ("schedule_definitions", "schedule_state", "epochs", "schedule_tags"):
            names = [str(row[1]) for row in db.execute(f"PRAGMA table_info({table})")]
            taken = [named.get(name, f"s.{name}") for name in names]
            db.execute(
                "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?1) "  # noqa: S608 - names of tables and columns
                f"INSERT INTO {table} ({', '.join(names)}) SELECT {', '.join(taken)} FROM n CROSS JOIN {table} s "
                f"WHERE s.sid <= {step} AND ?1 > 0",
                (count // FEW - 1,),
            )
        now, week = time.time_ns() // 1000, 7 * 86_400_000_000
        db.execute(
            "INSERT INTO runs (run_for, sid, kind, outcome, attempts, started_at, ended_at, owner, epoch) "
            "SELECT ?1 - (sid * 7919) % ?2, sid, ?3, iif(sid % 100 = 0, 1, 0), 1, "
            "?1 - (sid * 7919) % ?2 + 20000, ?1 - (sid * 7919) % ?2 + 250000, 'bench', 1 FROM schedule_state",
            (now, week, SCHEDULED),
        )
    db.execute("ANALYZE")
    db.close()


class Browser:
    """Somebody who is logged in."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()))
        page, _ = self.get("/login")
        (token,) = re.findall(r'name="csrf" value="([^"]+)"', page)
        form = urllib.parse.urlencode({"csrf": token, "name": "bench", "password": PASSWORD}).encode()
        self._opener.open(f"{address}/login", form, timeout=60).close()

    def get(self, path: str) -> tuple[str, int]:
        """A file, and how many bytes came over the wire."""
        request = urllib.request.Request(f"{self._address}{path}", headers={"Accept-Encoding": "gzip"})  # noqa: S310 - our own service
        with self._opener.open(request, timeout=120) as answer:
            sent: bytes = answer.read()
            packed = answer.headers.get("Content-Encoding") == "gzip"
        return (gzip.decompress(sent) if packed else sent).decode(), len(sent)


def measured(path: Path, rounds: int) -> dict[str, tuple[list[float], int]]:
    """For each page how long it took, the first time and then again, and what it loads beside itself."""
    command = [sys.executable, "-m", "noonbell", "admin", "create", "bench", "--store", f"sqlite:///{path}"]
    subprocess.run(command, input=f"{PASSWORD}\n".encode(), capture_output=True, check=False)  # noqa: S603 - our own program; a kept database has him
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    middle = db.execute("SELECT max(sid) / 2 FROM schedule_state").get
    db.close()
    found = {}
    with serving(path) as address:
        browser = Browser(address)
        for name, page in PAGES.items():
            taken = []
            for _ in range(rounds + 1):
                began = time.perf_counter()
                shown, _ = browser.get(page.format(middle=middle))
                taken.append(time.perf_counter() - began)
            assets = sum(browser.get(asset)[1] for asset in set(re.findall(r'(?:src|href)="(/static/[^"]+)"', shown)))
            found[name] = (taken, assets)
    return found


def main() -> None:
    given = asked(__doc__)
    with filled(given, fill, prefix="web-", what="schedules and as many runs") as paths:
        tables = {count: measured(path, given.rounds) for count, path in paths.items()}
    few, many = tables[FEW], tables[given.many]
    print(f"\n{'':<22}  {FEW:>9,} schedules   {given.many:>12,} schedules              assets")
    print(f"{'page':<22}  {'first':>9}  {'median':>9}   {'first':>9}  {'median':>9}  {'worst':>9}   packed")
    for name in PAGES:
        (first, *taken), assets = many[name]
        (few_first, *few_taken), _ = few[name]
        told = [few_first, statistics.median(few_taken), first, statistics.median(taken), max(taken)]
        ms = [f"{seconds * 1000:>6.1f} ms" for seconds in told]
        print(f"{name:<22}  {ms[0]}  {ms[1]}   {ms[2]}  {ms[3]}  {ms[4]}   {assets / 1000:.0f} KB", flush=True)
    heaviest = max(assets for _, assets in many.values())
    print(
        f"\nthe heaviest page loads {heaviest / 1000:.0f} KB, packed; at most {MOST_ASSETS / 1000:.0f} KB is promised"
    )
    sys.exit(heaviest > MOST_ASSETS)


if __name__ == "__main__":
    main()
