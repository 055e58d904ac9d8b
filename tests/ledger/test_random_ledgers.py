"""Random lives of a scheduler: each ledger is whole, and missing any one of its rows it is not."""

from __future__ import annotations

import random
from pathlib import Path

import apsw
import pytest

from noonbell.core.records import Settlement, Start
from noonbell.ledger import verify_store
from noonbell.ledger.ledger_rows import declared_tasks, iso, lifecycle_of
from noonbell.ports import Ledger
from noonbell.store.memory import MemoryStore
from noonbell.store.sqlite import SqliteStore
from noonbell.store.words import SCHEDULED
from tests.ledger.history import OWNER, SECOND, History, us

SPECS = ["* * * * *", "0,7,30 * * * *", "0 * * * *", "30 1,2 * * *", "15 0-5 * * 0", "59 23 31 12 *"]
ZONES = ["UTC", "Europe/Kyiv", "America/New_York", "Australia/Lord_Howe"]
STARTS = ["2026-03-07T20:00:13", "2026-10-24T22:00:47", "2026-10-31T23:59:59", "2026-04-04T09:00:00"]
TABLES = {
    "runs": f"kind = {SCHEDULED}",
    "spans": "1",
    "runs_live": "kind = 'scheduled'",
    "epochs": "1",
    "lifecycle": "event = 'crash' OR id = 1",
}


class Life:
    """One random life, told step by step by a seed."""

    def __init__(self, store: Ledger, seed: int) -> None:
        self.random = random.Random(seed)
        self.history = History(store, self.random.choice(ZONES))
        self.now = us(self.random.choice(STARTS))
        self.running: list[Start] = []
        self.tasks: dict[str, str] = {}
        self.up = False
        self.instances = 0

    async def live(self, steps: int) -> None:
        await self._begin()
        for _ in range(steps):
            await self._step()

    async def _step(self) -> None:
        self.now += self._pause()
        if not self.up:
            await self._begin()
            return
        choice = self.random.random()
        if choice < 0.5:
            starts = await self.history.claim(self.now)
            self.running.extend(starts)
        elif choice < 0.85:
            await self._settle()
        elif choice < 0.9 and not self.running:
            await self.history.stop(iso(self.now)[:-1])
            self.up = False
        elif choice < 0.95:
            self.running.clear()
            self.up = False  # a crash
        else:
            rows = await declared_tasks(self.history.store)
            start = await self.history.store.runs.trigger(self.random.choice(rows)["sid"], self._name, self.now)
            if start is not None:
                self.running.append(start)

    def _pause(self) -> int:
        shapes = [
            lambda: self.random.randrange(30),
            lambda: self.random.randrange(900),
            lambda: self.random.randrange(90_000),
        ]
        seconds = self.random.choices(shapes, [6, 3, 1])[0]()
        back = -1 if self.random.random() < 0.05 else 1  # now and then the clock is set back a little
        return back * min(seconds, 600 if back < 0 else seconds) * SECOND + self.random.randrange(SECOND)

    @property
    def _name(self) -> str:
        return f"i{self.instances}"

    async def _begin(self) -> None:
        events = await lifecycle_of(self.history.store, OWNER)
        crashed = bool(events) and events[-1].event == "init-ok"
        self.instances += 1
        names = self.random.sample("abcd", self.random.randrange(1, 5))
        kept = {name: spec for name, spec in self.tasks.items() if name in names and self.random.random() < 0.7}
        self.tasks = {name: kept.get(name) or self.random.choice(SPECS) for name in names}
        await self.history.start(iso(self.now)[:-1], self.tasks, instance=self._name, crashed=crashed)
        self.up = True

    async def _settle(self) -> None:
        self.random.shuffle(self.running)
        n = self.random.randrange(len(self.running) + 1)
        ending, self.running = self.running[:n], self.running[n:]
        for start in ending:
            fails = self.random.random() < 0.4
            wake_at = self.now + 20 * SECOND if fails and start.kind == "scheduled" else None
            await self.history.store.runs.settle(
                [
                    Settlement(
                        start,
                        self._name,
                        "failed" if fails else "succeeded",
                        self.now,
                        wake_at,
                        "no" if fails else None,
                    )
                ]
            )


@pytest.mark.parametrize("seed", range(60))
async def test_a_random_ledger_is_whole(seed: int) -> None:
    store = MemoryStore()
    await store.open()
    life = Life(store, seed)
    await life.live(150)
    report = await verify_store(store)
    assert [problem.text for problem in report.problems] == []
    assert report.schedules > 0
    # a window of it is whole as well
    cut = sorted(life.now - life.random.randrange(10**12) for _ in range(2))
    assert (await verify_store(store, from_at=cut[0], to_at=cut[1])).clean


@pytest.mark.parametrize("seed", range(12))
async def test_no_row_can_go_unnoticed(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "ledger.db"
    store = SqliteStore(path, threaded=False)
    await store.open()
    life = Life(store, 1000 + seed)
    await life.live(60)
    assert (await verify_store(store)).clean
    tried = 0
    for table, which in TABLES.items():
        for _ in range(4):
            db = apsw.Connection(str(path))
            db.execute("ATTACH ':memory:' AS aside")
            keys = "rowid" if table == "lifecycle" else ", ".join(column for column in KEYS[table])
            picked = db.execute(
                f"SELECT {keys} FROM {table} WHERE {which} ORDER BY random() LIMIT 1"  # noqa: S608 - constants
            ).fetchone()
            if picked is None:
                db.close()
                break
            match = f"({keys}) = ({', '.join('?' * len(picked))})"
            db.execute(f"CREATE TABLE aside.kept AS SELECT * FROM {table} WHERE {match}", picked)  # noqa: S608 - as above
            db.execute(f"DELETE FROM {table} WHERE {match}", picked)  # noqa: S608 - as above
            assert db.changes() == 1
            report = await verify_store(store)
            assert not report.clean, f"a row of {table} is gone and nobody noticed: {picked}"
            db.execute(f"INSERT INTO {table} SELECT * FROM aside.kept")  # noqa: S608 - as above
            db.close()
            tried += 1
    assert tried > 4
    assert (await verify_store(store)).clean


KEYS = {
    "runs": ("run_for", "sid", "kind"),
    "spans": ("sid", "from_at"),
    "runs_live": ("sid", "kind", "run_for"),
    "epochs": ("sid", "epoch"),
}
