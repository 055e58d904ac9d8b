"""Engines: which have joined which lane, when lanes were polled, and the recovery of what dead engines left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from noonbell.core.presence import EngineRecord, EngineSign, Gap, Polls
from noonbell.core.records import LifecycleEvent, LiveRun, OutboxMessage, Outcome, StoredSchedule


class Rescue(NamedTuple):
    """The result of a rescue: how many runs are queued again, and which engines were found dead.

    What is `left` of theirs, runs and streams, another transaction had locked: another look soon is worth it.
    """

    queued: int
    dead: list[str]
    left: int = 0


class Members(NamedTuple):
    """Engines that have joined and not left.

    Those that are alive, by lane and by when they joined, and the names of those that are alive no more.
    """

    alive: list[EngineRecord]
    dead: list[str]


MakeNotices = Callable[[StoredSchedule, LiveRun, Outcome], Sequence[OutboxMessage]]


class LedgerEngines(Protocol):
    """The engines of all lanes."""

    async def join(self, engine: EngineRecord) -> int:
        """Add an engine, whose name is held, to its lane; returns since when the lane is up.

        That is the earliest time that an engine which is alive knows of; without one, that of the new engine.
        """
        ...

    async def beat(self, sign: EngineSign, now: Callable[[], int]) -> None:
        """Record a heartbeat, with the step of the engine's life that is in it.

        That of an engine which did not join, or was taken for dead, is dropped.
        `now` is the clock. It is read after the polls of the lane are, within the transaction (`Polls.polled`).
        """
        ...

    async def leave(self, instance: str, event: LifecycleEvent | None = None) -> None:
        """Remove an engine that has ended and left nothing behind; with it the last step of its life is recorded."""
        ...

    async def members(self, now: int, lane: str | None = None) -> Members:
        """Return the engines of a lane, or of all."""
        ...

    async def polls(self) -> dict[str, Polls]:
        """Return when each lane was last polled, as recorded by `beat` and `record_gaps`, and its latest gaps."""
        ...

    async def record_gaps(self, lane: str, instance: str, gaps: Sequence[Gap], now: Callable[[], int]) -> Polls:
        """Record gaps and the polls that ended them, unless another poll has ended one of them before.

        Returns the polls of the lane. `now` is the clock, read as in `beat`.
        """
        ...

    async def rescue(
        self, lane: str, owner: str, at: int, make_notices: MakeNotices | None = None, *, stopped: bool = False
    ) -> Rescue:
        """Free what dead engines of the lane have left, on behalf of the engine `owner`.

        Runs that were executing are queued again, as `orphan`. A run of an at-most-once schedule and one that a person
        asked for end as `unknown` instead. A run at its third death may end as `abandoned` (`core.crashes`), with a
        `schedule.quarantined`; its schedule goes on. The messages that `make_notices` makes of each run that ends here
        are put into the outbox. Streams of messages can be claimed again. The crash of each dead engine is recorded in
        the lifecycle of the lane. Runs and streams of engines that are alive are not touched.

        With `stopped` the owner itself stops and hands over what it has cut off: its runs and streams alone, and none
        of them counts a death.
        """
        ...
