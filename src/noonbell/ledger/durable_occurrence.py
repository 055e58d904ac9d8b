"""What became of one occurrence of a durable schedule, in words: by the policies of the epoch it lies in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from noonbell.core.records import Epoch, LifecycleEvent, LiveRun, Run, Span
from noonbell.ledger.occurrence import Explainer, Story
from noonbell.ledger.presence import absence_at
from noonbell.ledger.reading import SECOND, moment
from noonbell.ledger.rhythms import Rhythm, Steps
from noonbell.ledger.terms import Terms
from noonbell.ledger.wording import Times, length
from noonbell.ports import ScheduleStore, Store
from noonbell.timing import QuietHours, jitter_us

_HOUR: Final = 3600 * SECOND
_CATCH_UP: Final = {
    "skip": "it will be missed, because its catch-up policy is skip",
    "run_once": "one run will answer for all that was missed, because its catch-up policy is run_once",
    "run_all_capped": "the oldest {cap} will be caught up one after the other, because its catch-up policy is "
    "run_all_capped",
}


class Quiet(NamedTuple):
    """The quiet hours of a schedule as they stand now."""

    name: str
    hours: QuietHours | None


class DurableExplainer(Explainer):
    """Explains occurrences of one durable schedule within one of its epochs."""

    def __init__(
        self,
        store: Store,
        row: Mapping[str, Any],
        epoch: Epoch,
        rhythm: Rhythm,
        *,
        times: Times,
        now: int,
        terms: Terms,
        quiet: Quiet | None,
        lane: str | None,
    ) -> None:
        super().__init__(store, row, epoch, rhythm, times=times, now=now)
        self._terms = terms
        self._quiet = quiet
        self._keeper = "" if lane is None else f"lane:{lane}"

    async def explain(self, at: int) -> Story:
        if isinstance(self._rhythm, Steps):
            self._rhythm.goes_through(at)  # its neighbours are a step away, as far as they share an anchor
        return await super().explain(at)

    # --- fired --------------------------------------------------------------------------------------------------------

    async def _fired(self, run: Run, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        story = await super()._fired(run, live, events)
        text = story.text.replace("because the task was removed", "because the schedule was deleted")
        delay = self._delay(run.run_for)
        if delay:
            text += f" Its jitter puts each start off; this one by {length(delay)}."
        if run.outcome == "unknown":
            text += " It is not repeated: it may run at most once, or a person had asked for it."
        text += await self._dead_letter(run)
        return Story(text, {**story.facts, "jitter_seconds": delay / SECOND})

    async def _dead_letter(self, run: Run) -> str:
        if not hasattr(self._store, "dead_letters"):
            return ""
        run_id = f"{self._row['schedule_id']}:{run.kind}:{run.run_for}"
        after = 0
        while page := await cast("ScheduleStore", self._store).dead_letters(self._sid, after, 500):
            for letter in page:
                if letter.message.message_id == run_id:
                    died = self._times.near(letter.died_at, run.run_for)
                    return (
                        f" Its message to {letter.message.target} could not be delivered: it is a dead letter since "
                        f"{died}, after {letter.attempts} attempts ({letter.error})."
                    )
            after = page[-1].number
        return ""

    async def _gave_way(self, run: Run, live: Sequence[LiveRun]) -> str:
        if self._row["removed_at"] == run.ended_at:
            return " It was not tried again because the schedule was deleted."
        if self._terms.retry_vs_new == "preempt":
            return await super()._gave_way(run, live)
        return "" if run.attempts < 2 else " Its attempts were used up."

    def _delay(self, at: int) -> int:
        return jitter_us(str(self._row["schedule_id"]), at, self._terms.jitter_us)

    # --- passed over --------------------------------------------------------------------------------------------------

    async def _folded(self, at: int, span: Span, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        if span.verdict == "coalesced" and not span.reason.startswith("the interval"):
            return await super()._folded(at, span, live, events)
        near = self._times.near
        because, into = await self._passed_because(at, span, events)
        head = f"{self._name} did not run for {self._times.full(at)}: it was {span.verdict}"
        if span.n > 1:
            head += f", with {span.n - 1} more ({near(span.from_at, at)} to {near(span.to_at, at)}),"
        facts: dict[str, Any] = {
            "verdict": span.verdict,
            "reason": span.reason,
            "span": {"from": moment(span.from_at).isoformat(), "to": moment(span.to_at).isoformat(), "n": span.n},
            "into": None if into is None else moment(into).isoformat(),
            "because": because,
        }
        return Story(f"{head} because {because}.", facts)

    async def _passed_because(self, at: int, span: Span, events: Sequence[LifecycleEvent]) -> tuple[str, int | None]:
        """The reason, and the run that answers for it where there is one."""
        near = self._times.near
        if span.reason == "quiet hours":
            name = "" if self._quiet is None else f' of the policy "{self._quiet.name}"'
            return f"it lies in the quiet hours{name}", None
        before = await self._run_before(span.from_at)
        if span.reason == "overlap":
            told = "" if before is None else (
                f" (the one for {near(before.run_for, at)}, from {near(before.started_at, at)} to "
                f"{near(before.ended_at, at)})"
            )  # fmt: skip
            return f"a run was still executing{told} and its overlap policy is skip", None
        if span.reason == "cap":
            return f"the {self._terms.cap} oldest of all that was missed were caught up, and no more", None
        if span.reason == "deleted":
            return "the schedule was deleted before it was decided", None
        if span.reason.startswith("the interval"):
            started = None if before is None else before.started_at
            when = "" if started is None else f", at {near(started, at)}"
            return f"the run before it started only later{when}, and the interval counts from there", (
                None if before is None else before.run_for
            )
        why = await self._not_at_once(at, self._now, events)
        if "did not look in time" in why:
            why = "nothing was up or looked in time"
        return f"{why}, and its catch-up policy is {self._terms.catch_up}", None

    async def _run_before(self, at: int) -> Run | None:
        if not isinstance(self._rhythm, Steps):
            return await super()._run_before(at)
        back = max(20 * self._rhythm.every, _HOUR)
        ended = await self._store.runs(self._sid, at - back, at - 1, "scheduled")
        return ended[-1] if ended else None

    # --- not decided yet ----------------------------------------------------------------------------------------------

    def _undecided(self, at: int, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        if self._row["removed_at"] is not None:
            return super()._undecided(at, live, events)
        starts_at, until = at + self._delay(at), self._quiet_until(at)
        later = f", and starts {length(starts_at - at)} later by its jitter" if starts_at > at else ""
        gone = absence_at(events, self._now)
        if starts_at > self._now:
            text = f"{self._name} is due at {self._times.full(at)}, in {length(max(at - self._now, 0))}{later}."
            if until is not None:
                text += f" It will be skipped: it lies in the quiet hours{self._quiet_name()}."
            elif gone is not None:
                text += f" The scheduler is down{self._since(gone, at)}; it has to be up by then."
            return Story(text, {"verdict": "due later", "quiet": until is not None})
        head = f"{self._name} has no verdict for {self._times.full(at)} yet"
        facts = {"verdict": "not decided", "scheduler_down": gone is not None, "quiet": until is not None}
        if until is not None and until > self._now:
            text = f"{head}: it lies in the quiet hours{self._quiet_name()}, which last until "
            return Story(f"{text}{self._times.near(until, at)}. It will be skipped when they are over.", facts)
        if gone is not None:
            what = _CATCH_UP.get(self._terms.catch_up, "it will be decided").format(cap=self._terms.cap)
            return Story(f"{head}: the scheduler is down{self._since(gone, at)}. At the next start {what}.", facts)
        busy = next((run for run in live if run.state in ("running", "waiting", "queued")), None)
        if busy is not None and self._terms.overlap != "allow":
            states = {"running": "is in progress", "waiting": "waits for its retry", "queued": "is about to start"}
            text = f"{head}: the run for {self._times.near(busy.run_for, at)} {states[busy.state]}. "
            after = {"skip": "What came while it executes is skipped"}.get(
                self._terms.overlap, "One run for all that was due follows right after it"
            )
            return Story(f"{text}{after}.", facts)
        return super()._undecided(at, live, events)

    def _quiet_until(self, at: int) -> int | None:
        hours = None if self._quiet is None else self._quiet.hours
        return None if hours is None else hours.quiet_until(at)

    def _quiet_name(self) -> str:
        return "" if self._quiet is None else f' of the policy "{self._quiet.name}"'
