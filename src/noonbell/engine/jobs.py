"""The seam between the loop and what it runs.

The loop knows when to look, how to start an action and how its end gets into the ledger. A `Work` knows what is due and
what is called for it: the tasks that a program has declared (`declared`), or the durable schedules of a lane (`lane`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from noonbell.core.instants import EPOCH
from noonbell.core.records import Settlement, Span, Start
from noonbell.engine.metrics import Metrics
from noonbell.ports import Claimed

BATCH: Final = 4096
NEVER: Final = 1 << 62

logger = logging.getLogger("noonbell.engine")

S = TypeVar("S")


class Job(msgspec.Struct, Generic[S], gc=False):
    """A claimed start, the subject that it belongs to, and the function to call."""

    start: Start
    subject: S
    name: str
    call: Callable[..., Any]
    is_async: bool
    waits: bool = False  # its call may wait for a slot, and says when it begins
    waited: bool = False  # for a slot or a thread, since the claim
    deleted: bool = False  # its schedule was deleted, and its end is not recorded
    task: asyncio.Task[None] | None = None  # that executes it, where it is async


class Capacity(NamedTuple):
    """Free slots for further claims: runs altogether, and among them plain functions, which need a thread each."""

    runs: int
    threads: int


class Batch(NamedTuple):
    """The result of a claim."""

    jobs: Sequence[Job[Any]]
    claimed: Claimed
    polled_at: int | None = None  # when it was decided, where that was not when the claim began


class JobSource(Protocol):
    """One owner's part of the ledger. All but `claim` are called on the event loop and must not block."""

    owner: str  # the instance that its runs are claimed for
    metrics: Metrics
    left_due: bool  # the last claim has left something due that found no room

    async def claim(self, now: int, last_poll_at: int | None, room: Capacity) -> Batch:
        """Claim what is due by `now` and finds room. `last_poll_at`: when this engine completed its last poll."""
        ...

    async def poll(self, now: int, last_poll_at: int | None) -> None:
        """Do what belongs to a poll besides claiming: no run can be started now."""
        ...

    def due_at(self, job: Job[Any]) -> int:
        """Return when it could have started at the earliest; the loop adds that it was not up before it began."""
        ...

    def started(self, job: Job[Any], at: int) -> None: ...

    def retry_at(self, job: Job[Any], at: int, error: BaseException) -> int | None:
        """Return when a run that failed at `at` is tried again."""
        ...

    def ended(self, job: Job[Any], at: int, error: BaseException | None, retry_at: int | None) -> None: ...

    def prepare_end(self, job: Job[Any], settlement: Settlement, error: BaseException | None) -> None:
        """Complete a settlement that is about to be recorded, for example with notices."""
        ...


def log_span(name: str, span: Span) -> None:
    """Log a decision about occurrences that do not run by themselves: how many, which, and why."""
    if not logger.isEnabledFor(logging.DEBUG):
        return
    first, last = (EPOCH + timedelta(microseconds=at) for at in (span.from_at, span.to_at))
    logger.debug(
        "occurrences %s name=%r count=%d first=%s last=%s reason=%r",
        span.verdict, name, span.n, first.isoformat(), last.isoformat(), span.reason,
        extra={"noonbell": {"verdict": span.verdict, "name": name, "count": span.n, "reason": span.reason}},
    )  # fmt: skip
