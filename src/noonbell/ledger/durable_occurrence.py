"""What became of one occurrence of a durable schedule, in words: by the policies of the epoch it lies in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from noonbell.core.ids import run_id
from noonbell.core.presence import Polls, lane_name
from noonbell.core.records import Epoch, LifecycleEvent, LiveRun, Run, Sending, Span
from noonbell.ledger.occurrence import Explainer, Story
from noonbell.ledger.quiet import quiet_for_good
from noonbell.ledger.reading import LATEST, SECOND, moment
from noonbell.ledger.rhythms import Rhythm, Steps
from noonbell.ledger.terms import Terms
from noonbell.ledger.wording import Times, counted, length
from noonbell.ports import ScheduleStore, Store
from noonbell.timing import QuietHours, jitter_us

_HOUR: Final = 3600 * SECOND
_GRACE: Final = 60 * SECOND  # what is polled for within that is late, not missed
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
        quiet_now: Quiet | None,
        lane: str | None,
    ) -> None:
        super().__init__(store, row, epoch, rhythm, times=times, now=now)
        self._terms = terms
        self._quiet = quiet
        self._quiet_now = quiet_now  # of the schedule as it stands, which is not that of an older epoch
        self._lane = lane
        self._keeper = "" if lane is None else lane_name(lane)

    async def _somebody_is_there(self) -> bool:
        """Whether an engine of the lane is alive; one that begins or ends is there, too."""
        engines = await cast("ScheduleStore", self._store).engines(self._now)
        return any(lane_name(one.lane) == self._keeper for one in engines)

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
        message = await self._message(run)
        return Story(text + message.text, {**story.facts, **message.facts, "jitter_seconds": delay / SECOND})

    async def _message(self, run: Run) -> Story:
        """Where the message of a run is: on its way, delivered, or a dead letter."""
        durable = cast("ScheduleStore", self._store)
        message_id = run_id(self._row["schedule_id"], run.kind, run.run_for)
        found = await durable.sending(self._sid, message_id)
        if found is not None:
            return self._on_its_way(found, run.run_for)
        after = 0
        while page := await durable.dead_letters(self._sid, after, 500):
            for letter in page:
                if letter.message.message_id == message_id:
                    died = self._times.near(letter.died_at, run.run_for)
                    text = (
                        f" Its message to {letter.message.target} could not be delivered: it is a dead letter since "
                        f"{died}, after {counted(letter.attempts, 'attempt')} ({letter.error})."
                    )
                    return Story(text, {"message": "dead letter"})
            after = page[-1].number
        if run.outcome != "succeeded" or self._terms.message_to is None:
            return Story("", {})
        text = f" Its message to {self._terms.message_to} has left the outbox: it was delivered"
        return Story(f"{text}, unless a person dropped it as a dead letter.", {"message": "left"})

    def _on_its_way(self, found: Sending, at: int) -> Story:
        near = self._times.near
        text = f" Its message to {found.message.target} is still in the outbox, since "
        text += f"{near(found.message.created_at, at)}"
        if found.ahead:
            text += f", behind {counted(found.ahead, 'message')} of this schedule; the first of them"
        elif found.attempt or found.owner:
            text += ", and"
        if found.attempt:
            text += f" was tried {'once' if found.attempt == 1 else f'{found.attempt} times'} in vain"
            text += "" if found.error is None else f", the last time with: {found.error}"
        elif found.owner:
            text += " is being delivered now"
        else:
            text += " was not tried yet" if found.ahead else ", and was not tried yet"
            text += "" if found.error is None else f", because its target is away: {found.error}"
        if (found.attempt or found.error is not None) and found.owner is None:
            text += f"; the next try is at {near(found.wake_at, at)}"
        facts = {"ahead": found.ahead, "attempts": found.attempt, "error": found.error}
        return Story(f"{text}.", {"message": "in the outbox", "outbox": facts})

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
        why = await self._not_polled(at, self._now, events)
        return f"{why}, and its catch-up policy is {self._terms.catch_up}", None

    async def _not_polled(self, at: int, started: int, events: Sequence[LifecycleEvent]) -> str:
        why = await super()._not_polled(at, started, events)
        if "did not look in time" not in why:
            return why
        starts_at = at + self._delay(at)
        polls = (await cast("ScheduleStore", self._store).polls()).get(self._lane or "", Polls())
        gap = next((gap for gap in polls.at(self._now) if gap.since < starts_at <= gap.until), None)
        if gap is None or not gap.since:
            return why
        since, until = self._times.near(gap.since, at), self._times.near(gap.until, at)
        return (
            f"no poll completed between {since} and {until} (the process was frozen or suspended, its event loop "
            "blocked, or the database unreachable)"
        )

    async def _run_before(self, at: int) -> Run | None:
        if not isinstance(self._rhythm, Steps):
            return await super()._run_before(at)
        back = max(20 * self._rhythm.every, _HOUR)
        ended = await self._store.runs(self._sid, at - back, at - 1, "scheduled")
        return ended[-1] if ended else None

    # --- not decided yet ----------------------------------------------------------------------------------------------

    def _undecided(self, at: int, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        if self._row["removed_at"] is not None:
            story = super()._undecided(at, live, events)
            return Story(story.text.replace("it was removed", "it was deleted"), story.facts)
        starts_at, until = at + self._delay(at), self._quiet_until(at)
        later = f", and starts {length(starts_at - at)} later by its jitter" if starts_at > at else ""
        gone = self._gone(events)
        if starts_at > self._now:
            text = f"{self._name} is due at {self._times.full(at)}, in {length(max(at - self._now, 0))}{later}."
            if until is not None:
                text += f" It will be skipped: it lies in the quiet hours{self._quiet_name()}."
            elif gone is not None:
                late = self._times.near(starts_at + _GRACE, at)
                by = "by then" if self._terms.catch_up == "run_once" else f"before {late}"
                text += f" The scheduler is down{self._since(gone, at)}; it has to be up {by}."
            return Story(text, {"verdict": "due later", "quiet": until is not None})
        head = f"{self._name} has no verdict for {self._times.full(at)} yet"
        facts = {"verdict": "not decided", "scheduler_down": gone is not None, "quiet": until is not None}
        if until is not None:
            text = (
                f"{self._name} did not run for {self._times.full(at)}: it is skipped, since it lies in the quiet hours"
            )
            text += f"{self._quiet_name()}, which "
            if until > LATEST:
                text += "have no end. The ledger records it when they are changed."
            else:
                text += f"{'last' if until > self._now else 'lasted'} until {self._times.near(until, at)}. "
                text += "The ledger records it when they are over."
            return Story(text, {**facts, "verdict": "skipped", "reason": "quiet hours"})
        if gone is not None:
            text = f"{head}: the scheduler is down{self._since(gone, at)}."
            return Story(f"{text} {self._forecast(at)}.", facts)
        busy = next((run for run in live if run.state in ("running", "waiting", "queued")), None)
        if busy is not None and self._terms.overlap != "allow":
            states = {"running": "is in progress", "waiting": "waits for its retry", "queued": "is about to start"}
            text = f"{head}: the run for {self._times.near(busy.run_for, at)} {states[busy.state]}. "
            after = {"skip": "What came while it executes is skipped"}.get(
                self._terms.overlap, "One run for all that was due follows right after it"
            )
            return Story(f"{text}{after}.", facts)
        last = next((event for event in reversed(events) if event.event == "init-ok"), None)
        who = "" if last is None else f" (instance {last.instance}, up since {self._times.near(last.at, at)})"
        if last is None and not self._held:
            return Story(f"{head}: no scheduler has been started yet. {self._forecast(at)}.", facts)
        text = (
            f"{head}: it has been due for {length(self._now - starts_at)}, and the scheduler{who} has not taken it up"
        )
        return Story(f"{text}. It is not lost: the next look answers for it.", facts)

    def _forecast(self, at: int) -> str:
        """What the next start makes of an occurrence that no engine has polled for."""
        what = _CATCH_UP.get(self._terms.catch_up, "it will be decided").format(cap=self._terms.cap)
        late_at = at + self._delay(at) + _GRACE
        if self._now >= late_at or self._terms.catch_up == "run_once":
            return f"At the next start {what}"
        return f"If the next start comes before {self._times.near(late_at, at)}, it still runs; later {what}"

    def _when_cut_off(self, run: LiveRun) -> str:
        if self._terms.at_most_once:
            return "it ends as unknown and is not repeated, because it may run at most once"
        return super()._when_cut_off(run)

    def _wait_of(self, run: LiveRun) -> str:
        hours = None if self._quiet_now is None else self._quiet_now.hours
        if hours is not None and run.wake_at is not None and run.wake_at > self._now:
            if quiet_for_good(hours, self._now):
                return "the end of its quiet hours, which have none, to be tried again"
            if hours.quiet_until(self._now) == run.wake_at:
                return f"{super()._wait_of(run)}, when its quiet hours are over"
        return super()._wait_of(run)

    def _quiet_until(self, at: int) -> int | None:
        hours = None if self._quiet is None else self._quiet.hours
        return None if hours is None else hours.quiet_until(at)

    def _quiet_name(self) -> str:
        return "" if self._quiet is None else f' of the policy "{self._quiet.name}"'
