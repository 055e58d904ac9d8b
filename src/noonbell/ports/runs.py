"""Live runs: claimed, settled, handed back and asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from noonbell.core.records import LiveRun, Settlement, Start, StoredSchedule, TriggerSource, Turn

Decide = Callable[[StoredSchedule], Turn]


class Claimed(NamedTuple):
    """The result of a claim: what it committed."""

    starts: list[Start]
    looked: int  # rows that were looked at
    full: bool  # the limit was reached: there may be more
    next_wake_at: int | None  # the earliest thing that is not due yet
    quarantined: list[tuple[int, Exception]]
    locked: bool = False  # something that is due was locked by another transaction


class LaneClaim(NamedTuple):
    """The result of a lane's claim: what it committed, and the schedules of its starts by sid."""

    claimed: Claimed
    stored: Mapping[int, StoredSchedule]


class Settled(NamedTuple):
    """The result of recording the ends of attempts.

    `woken` are schedules that wake otherwise than before, and when: the wake-up that came during the run is back, an
    edit in between wants a poll, a run waits that may have its turn now, or the attempt is made again. The instant is
    never later than the right one, and may be earlier. Of all others a look that was made before knows when they wake.
    """

    stale: list[Settlement]  # their fence or owner is old, and nothing of them was written
    woken: dict[int, int]  # by sid


class LedgerRuns(Protocol):
    """Live runs. `decide` is called inside the transaction of a claim, so it must not block."""

    async def claim(
        self,
        lane: str,
        owner: str,
        now: int,
        limit: int,
        decide: Decide,
        *,
        among: Sequence[int] | None = None,
        due_by: int | None = None,
    ) -> LaneClaim:
        """Call `decide` for each schedule of the lane that is due by `now`, and commit its decisions with live runs.

        The private lane of declared tasks goes by the name of their owner.
        With `among` only the schedules of these sids are looked at, each by its key; what comes after them is not
        looked for, so that `next_wake_at` knows of them alone. With `due_by` only what was due by then is looked at.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Settled:
        """Record the ends of attempts.

        Of many attempts of a run the first and the last stay on record (`core.attempts`). A run that an end clears
        (`Settlement.cleared`) ends before it, as failed.
        """
        ...

    async def hand_back(self, starts: Sequence[Start], owner: str, now: int) -> None:
        """Put claimed runs whose action was never called back to `queued`, to wake at `now`; the attempt is undone.

        A manual run that was claimed by `trigger` is forgotten instead.
        """
        ...

    async def trigger(self, sid: int, owner: str, now: int) -> Start | None:
        """Claim a manual run; None where a run of the schedule is executing or queued."""
        ...

    async def ask(
        self,
        schedule_id: str,
        at: int,
        actor: str,
        via: TriggerSource = "manual",
        *,
        queue: bool = False,
        retry: bool = True,
    ) -> int | None:
        """Queue a run that a person asks for, with a `schedule.triggered`; returns the instant that it is for.

        `via` is the cause of its first attempt. Without `retry` it is attempted once, whatever the schedule's policy.

        None where a run of the schedule is executing or queued, or was asked for and waits for its retry, unless its
        overlap is `allow`. With `queue` it starts after those, in the order in which they were asked for; None where
        MOST_ASKED are live. One of the lane's engines starts it. Raises ScheduleNotFoundError.
        """
        ...

    async def live(self, sid: int | None = None, *, owner: str | None = None) -> list[LiveRun]:
        """Return live runs: those of a schedule, or those that `owner` has claimed and not settled.

        The latter are to account for them after a failed claim, so claims of the owner that are still under way are
        waited for. They may cost a look at every schedule.
        """
        ...
