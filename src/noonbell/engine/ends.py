"""Ends of runs: what an action returned or raised becomes a settlement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from noonbell.actions.results import Finished
from noonbell.core.attempt_detail import has_traceback, traceback_text, unpack, with_traceback
from noonbell.core.records import Settlement
from noonbell.engine.in_flight import InFlight
from noonbell.engine.jobs import Job, JobSource
from noonbell.engine.phase import Life, Phase
from noonbell.engine.settling import Settler
from noonbell.errors import ActionError, describe_error, fact_of
from noonbell.ports import Clock


class RunEnds:
    """Records how runs end, unless their schedule was deleted or the engine has abandoned them."""

    def __init__(
        self,
        work: JobSource,
        clock: Clock,
        life: Life,
        in_flight: InFlight,
        settler: Settler,
        *,
        mask: Callable[[str], str],
        on_messages: Callable[[], None] | None,
    ) -> None:
        """`mask` removes secrets from what actions raise. `on_messages` is called when a recorded end has some."""
        self.abandoned = 0  # runs that ended because the engine cancelled them
        self._work = work
        self._clock = clock
        self._life = life
        self._in_flight = in_flight
        self._settler = settler
        self._mask = mask
        self._on_messages = on_messages

    def record(self, job: Job[Any], result: object, error: BaseException | None) -> None:
        """Record the end of a run."""
        start, work = job.start, self._work
        now = self._clock.now()
        if self._life.stopping and self._is_abandoned(error):
            self.abandoned += 1
            work.ended(job, now, error, None)
            self._in_flight.discard(start)
            return
        if job.deleted:
            work.ended(job, now, error, None)
            self._in_flight.discard(start)
            if not self._in_flight:
                self._in_flight.empty.set()
            return
        settlement = Settlement(start, work.owner, "succeeded" if error is None else "failed", now)
        try:
            if error is None:
                work.metrics.succeeded += 1
                if type(result) is Finished:
                    settlement.detail = result.detail
                    settlement.messages = result.messages
            else:
                work.metrics.failed += 1
                settlement.error = describe_error(error, self._mask)
                settlement.detail = _detail_of(error, self._mask)
                settlement.wake_at = work.retry_at(job, now, error)
            work.prepare_end(job, settlement, error)
            work.ended(job, now, error, settlement.wake_at)
        finally:  # a listener or log handler that raises must not keep the end from being recorded
            self._settler.add(settlement)

    def _is_abandoned(self, error: BaseException | None) -> bool:
        phase = self._life.phase
        return phase is Phase.ABANDONED or (phase is Phase.CANCELLING and error is not None)

    def recorded(self, settlements: Sequence[Settlement]) -> None:
        """Remove runs whose ends are recorded, and announce the messages among them."""
        sent = False
        for settlement in settlements:
            self._in_flight.discard(settlement.start)
            sent = sent or bool(settlement.messages)
        if not self._in_flight:
            self._in_flight.empty.set()
        if sent and self._on_messages is not None:
            self._on_messages()


def _detail_of(error: BaseException, mask: Callable[[str], str]) -> bytes | None:
    """Return what is stored of an error beside its text: the action's own record, the traceback, or both."""
    detail = _recorded_in(error)
    return with_traceback(detail, traceback_text(error, mask)) if has_traceback(error) else detail


def _recorded_in(error: BaseException) -> bytes | None:
    """Return the record that an action has packed into its error; others use the name `detail` for other things."""
    detail = fact_of(error, "detail")
    if not isinstance(detail, bytes):
        return None
    if not isinstance(error, ActionError):
        try:
            unpack(detail)
        except ValueError:
            return None
    return detail
