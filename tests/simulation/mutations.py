"""Faults to be put into the engine, each a context in which real code does the wrong thing.

They show that the checkers can fail: a simulation that stays clean with one of these in place would prove nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from noonbell.core.records import LiveRun, Settlement, Start, StoredSchedule, Turn
from noonbell.core.terms import Terms
from noonbell.core.turns import look as look_at
from noonbell.declarative import override
from noonbell.engine import declared_jobs as declared_module
from noonbell.engine.declared_jobs import DeclaredJobs
from noonbell.engine.engine import Engine
from noonbell.ports import Settled
from noonbell.store.memory.runs import MemoryRuns
from noonbell.store.memory.schedules import MemorySchedules
from noonbell.timing.timing_protocol import Timing

MINUTE = 60_000_000

settle = MemoryRuns.settle
settle_one = MemoryRuns._settle
launch = Engine._launch
look = Engine._look
first_cursor = override.first_cursor


@contextmanager
def _settling(change: Callable[[Settlement], Settlement]) -> Iterator[None]:
    async def changed(self: MemoryRuns, settlements: Sequence[Settlement]) -> Settled:
        pairs = [(change(settlement), settlement) for settlement in settlements]
        settled = await settle(self, [new for new, _ in pairs])
        stale = {id(settlement) for settlement in settled.stale}
        return Settled([old for new, old in pairs if id(new) in stale], settled.woken)

    with patch.object(MemoryRuns, "settle", changed):
        yield


@contextmanager
def _deciding(change: Callable[[StoredSchedule, Turn, Timing], Turn]) -> Iterator[None]:
    def changed(stored: StoredSchedule, now: int, terms: Terms) -> Turn:
        return change(stored, look_at(stored, now, terms=terms), terms.timing)

    with patch.object(declared_module, "look", changed):
        yield


# --- the faults -------------------------------------------------------------------------------------------------------


def dropped_retry() -> Any:
    return _settling(lambda settlement: replace(settlement, wake_at=None))


def retry_too_early() -> Any:
    def hasten(settlement: Settlement) -> Settlement:
        if settlement.wake_at is None:
            return settlement
        return replace(settlement, wake_at=(settlement.ended_at + settlement.wake_at) // 2)

    return _settling(hasten)


def double_claim() -> Any:
    return patch.object(Engine, "_launch", lambda self, jobs: launch(self, [*jobs, *map(copy, jobs)]))


def lost_orphan() -> Any:
    return patch.object(override, "_revived", lambda task, now: task.live)


def unfenced_settle() -> Any:
    def anybodys(self: MemoryRuns, start: Start, owner: str) -> LiveRun | None:
        return self.data.live[start.sid].get((start.kind, start.run_for))

    return patch.object(MemoryRuns, "_mine", anybodys)


def cursor_not_advanced() -> Any:
    return _deciding(lambda stored, turn, timing: replace(turn, cursor_at=stored.cursor_at))


def cursor_too_far() -> Any:
    def far(stored: StoredSchedule, turn: Turn, timing: Timing) -> Turn:
        return replace(turn, cursor_at=turn.cursor_at + MINUTE) if turn.starts else turn

    return _deciding(far)


@contextmanager
def overlap_allowed() -> Iterator[None]:
    """A task whose run executes starts if it is due."""

    def careless(stored: StoredSchedule, now: int, terms: Terms) -> Turn:
        waiting = [live for live in stored.lives if live.state != "running"]
        return look_at(replace(stored, lives=waiting), now, terms=terms)

    with patch.object(declared_module, "look", careless):
        yield


@contextmanager
def start_before_commit() -> Iterator[None]:
    """Actions are called while the claim is still being decided."""

    async def hasty(self: Engine[DeclaredJobs]) -> int:
        def launching(stored: StoredSchedule, now: int, terms: Terms) -> Turn:
            turn = look_at(stored, now, terms=terms)
            launch(self, [self.work._job(start) for start in turn.starts])
            return turn

        with ExitStack() as stack:
            stack.enter_context(patch.object(declared_module, "look", launching))
            stack.enter_context(patch.object(Engine, "_launch", lambda self, jobs: None))
            return await look(self)

    with patch.object(Engine, "_look", hasty):
        yield


def lost_follow_up() -> Any:
    """What fell due during a run is taken to be answered by it."""

    def forgetful(self: MemoryRuns, tx: Any, settlement: Settlement, live: LiveRun) -> None:
        settle_one(self, tx, settlement, live)
        row = self.data.schedules[live.sid]
        tx.update(live.sid, cursor_at=max(row["cursor_at"], settlement.ended_at))

    return patch.object(MemoryRuns, "_settle", forgetful)


def boot_run_without_match() -> Any:
    return patch.object(override, "first_cursor", lambda timing, now: first_cursor(timing, now) - 60 * MINUTE)


def stop_without_waiting() -> Any:
    async def impatient(self: Engine[DeclaredJobs]) -> None:
        self.request_stop()
        await self._loop.stopped()

    return patch.object(Engine, "stop", impatient)


def forgotten_removal() -> Any:
    return patch.object(MemorySchedules, "_remove", lambda self, tx, declaration: None)


def made_up_runs() -> Any:
    """Every missed occurrence gets a run of its own."""

    def each(stored: StoredSchedule, turn: Turn, timing: Timing) -> Turn:
        start = turn.starts[0] if turn.starts else None
        first = timing.following(stored.cursor_at)
        if start is None or start.cause != "cron" or first is None or first >= start.run_for:
            return turn
        following = timing.following(first)
        alone = replace(start, run_for=first, due_at=first, following=following)
        return replace(turn, cursor_at=first, next_run_at=following, starts=[alone], spans=[])

    return _deciding(each)


def forgotten_claim() -> Any:
    """A claim whose answer was lost is taken not to have happened."""

    async def trusting(self: Engine[DeclaredJobs]) -> None:
        return None

    return patch.object(Engine, "_account_for_claims", trusting)


MUTATIONS: dict[str, Callable[[], Any]] = {
    mutation.__name__: mutation
    for mutation in (
        dropped_retry, retry_too_early, double_claim, lost_orphan, unfenced_settle, cursor_not_advanced, cursor_too_far,
        overlap_allowed, start_before_commit, lost_follow_up, boot_run_without_match, stop_without_waiting,
        forgotten_removal, made_up_runs, forgotten_claim,
    )
}  # fmt: skip
