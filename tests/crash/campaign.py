"""Kill, restart, kill again; then judge.

A campaign is one database and one journal. Each life is a process of its own (see `victim`), killed at a named point or
at a random moment; the last one is left alone until everything interrupted has been taken up again, and stopped
properly. Every wait has a limit: a life that does not die in time is a finding, not a hang.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw

from noonbell.engine import SystemClock
from noonbell.ledger import verify_store
from noonbell.store.sqlite.store import SqliteStore
from noonbell.store.sqlite.tables import SCHEDULES
from tests.crash.judge import MINUTE, LedgerRows, judge
from tests.crash.victim import MINUTELY, Point
from tests.patience import PATIENCE_SECONDS

ROOT = Path(__file__).resolve().parent.parent.parent
LIFE_SECONDS = PATIENCE_SECONDS
LAST_LIFE_SECONDS = 0.6
RANDOM_SECONDS = 0.5


@dataclass
class Outcome:
    """What came of a campaign."""

    kills: int = 0
    lives: int = 0
    starts: int = 0
    interrupted: int = 0
    repeated: int = 0
    runs: int = 0
    coalesced: int = 0
    crashes_recorded: int = 0
    wrong: list[str] = field(default_factory=list)


class Campaign:
    """One database that is put through many deaths."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._database = folder / "ledger.db"
        self._journal = folder / "journal"
        self._chosen = random.Random(seed)
        self._origin = SystemClock().elapsed()
        self._outcome = Outcome()

    async def at_point(self, point: Point, times: int) -> Outcome:
        for _ in range(times):
            if not self._live_to(point):
                break
        return await self._judged()

    async def at_random(self, times: int) -> Outcome:
        for _ in range(times):
            self._live_for(self._chosen.uniform(0, RANDOM_SECONDS))
        return await self._judged()

    # --- lives --------------------------------------------------------------------------------------------------------

    def _spawn(self, point: str, nth: int) -> subprocess.Popen[str]:
        arguments = [str(self._database), str(self._journal), repr(self._origin), point, str(nth)]
        victim = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.victim", *arguments],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert victim.stdout is not None
        if victim.stdout.readline() != "alive\n":
            self._outcome.wrong.append("a life ended before it began")
        self._outcome.lives += 1
        return victim

    def _live_to(self, point: Point) -> bool:
        """A life that ends at the point, some way into it; False where it never comes there."""
        # claims and settles are counted in batches, actions one by one
        with self._spawn(point, self._chosen.randint(1, 25 if point == "in-callback" else 5)) as victim:
            try:
                victim.wait(LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                victim.kill()
                self._outcome.wrong.append(f"{point} was not reached in {LIFE_SECONDS:g} s")
                return False
        self._count_death(victim.returncode)
        return True

    def _live_for(self, seconds: float) -> None:
        """A life that is ended from outside."""
        with self._spawn("none", 0) as victim:
            time.sleep(seconds)
            victim.send_signal(signal.SIGKILL)
            victim.wait(LIFE_SECONDS)
        self._count_death(victim.returncode)

    def _count_death(self, status: int) -> None:
        if status == -signal.SIGKILL:
            self._outcome.kills += 1
        else:
            self._outcome.wrong.append(f"a life ended with status {status} and not by SIGKILL")

    def _last_life(self) -> None:
        began = self._initialized()
        with self._spawn("none", 0) as victim:
            until = time.monotonic() + LIFE_SECONDS  # on a busy machine it may take long until it polls
            while self._initialized() == began and time.monotonic() < until:
                time.sleep(0.05)
            time.sleep(LAST_LIFE_SECONDS)
            try:
                victim.communicate("stop\n", LIFE_SECONDS)
            except subprocess.TimeoutExpired:
                victim.kill()
                self._outcome.wrong.append("the last life did not stop when it was told to")
                return
        if victim.returncode:
            self._outcome.wrong.append(f"the last life ended with status {victim.returncode}")

    def _initialized(self) -> int:
        """Return how many lives have come so far that their tasks run."""
        return self._journal.read_text().count('"initialized"') if self._journal.exists() else 0

    # --- afterwards ---------------------------------------------------------------------------------------------------

    async def _judged(self) -> Outcome:
        self._last_life()
        outcome = self._outcome
        journal = [json.loads(line) for line in self._journal.read_text().splitlines()]
        ledger = self._read_ledger()
        outcome.wrong.extend(judge(journal, ledger))
        outcome.starts = sum(line["what"] == "start" for line in journal)
        ends = sum(line["what"] == "end" for line in journal)
        outcome.interrupted = outcome.starts - ends
        starts = Counter(line["run"] for line in journal if line["what"] == "start")
        failures = Counter(line["run"] for line in journal if line["what"] == "end" and not line["ok"])
        outcome.repeated = sum(count - 1 for run, count in starts.items() if count > 1 and not failures[run])
        begun = sum(line["what"] == "initialized" for line in journal) - 1  # the last one did not crash
        if not begun <= outcome.crashes_recorded <= outcome.kills:
            outcome.wrong.append(
                f"{begun} to {outcome.kills} crashes are to be recorded, and {outcome.crashes_recorded} are"
            )
        store = SqliteStore(self._database)
        await store.open()
        try:
            report = await verify_store(store)
        finally:
            await store.close()
        outcome.wrong.extend(problem.text for problem in report.problems)
        outcome.runs = report.runs
        return outcome

    def _read_ledger(self) -> LedgerRows:
        ledger = LedgerRows()
        db = apsw.Connection(str(self._database), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            sql = f"SELECT sid, schedule_id, name, cursor_at FROM {SCHEDULES}"  # noqa: S608 - a constant of the store
            schedules: list[Any] = db.execute(sql).fetchall()
            ledger.ids = {sid: (schedule, name) for sid, schedule, name, _ in schedules}
            for sid, run_for, outcome, attempts in db.execute(
                "SELECT sid, run_for, outcome, attempts FROM run_records"
            ):
                ledger.ended[f"{ledger.ids[sid][0]}:scheduled:{run_for}"] = (outcome, attempts)
            for sid, run_for, state, attempt in db.execute("SELECT sid, run_for, state, attempt FROM live_runs"):
                ledger.live[f"{ledger.ids[sid][0]}:scheduled:{run_for}"] = (state, attempt)
                if state == "running":
                    self._outcome.wrong.append(f"{ledger.ids[sid][1]} is recorded as running after all has stopped")
            for sid, run_for, attempt, outcome in db.execute(
                "SELECT sid, run_for, attempt, outcome FROM attempt_records"
            ):
                ledger.attempts[f"{ledger.ids[sid][0]}:scheduled:{run_for}", attempt] = outcome
            for sid, _, name, cursor_at in schedules:
                spans = db.execute("SELECT coalesce(sum(n), 0) FROM spans WHERE sid = ?", (sid,)).get
                self._outcome.coalesced += spans
                if name in MINUTELY:
                    began = db.execute("SELECT min(from_at) FROM epochs WHERE sid = ?", (sid,)).get
                    fired = db.execute(
                        "SELECT (SELECT count(*) FROM runs WHERE sid = ?1) + "
                        "(SELECT count(*) FROM live_runs WHERE sid = ?1)",
                        (sid,),
                    ).get
                    ledger.minutes[name] = (cursor_at // MINUTE - began // MINUTE, fired + spans)
            crashes = "SELECT count(*) FROM lifecycle WHERE event = 'crash'"
            self._outcome.crashes_recorded = db.execute(crashes).get
        finally:
            db.close()
        return ledger
