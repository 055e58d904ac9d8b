"""What became of one occurrence, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from noonbell.core.records import Attempt, Epoch, LifecycleEvent, LiveRun, PrunedDay, Run, Span
from noonbell.ledger.presence import Absence, absence_now, absences
from noonbell.ledger.pruned import pruned_day
from noonbell.ledger.reading import SECOND, is_instant, moment
from noonbell.ledger.rhythms import Rhythm
from noonbell.ledger.wording import Times, counted, length
from noonbell.ports import Store

_LATE: Final = 60 * SECOND  # a start later than that wants a reason
_MOST_ATTEMPTS: Final = 5  # the latest are told one by one
_FAR_BACK: Final = 1_000  # how many neighbouring spans are walked over in search of their run


class Story(NamedTuple):
    """Sentences, and the facts in them."""

    text: str
    facts: dict[str, Any]


class Explainer:
    """Explains occurrences of one schedule within one of its epochs."""

    def __init__(
        self, store: Store, row: Mapping[str, Any], epoch: Epoch, rhythm: Rhythm, *, times: Times, now: int
    ) -> None:
        self._store = store
        self._row = row
        self._sid: int = row["sid"]
        self._name = str(row["name"])
        self._epoch = epoch
        self._rhythm = rhythm
        self._times = times
        self._now = now
        self._keeper: str = row["managed_by"]  # whose lifecycle tells when something was up
        self._held = True  # whether somebody holds that name now

    async def explain(self, at: int) -> Story:
        """The story of the occurrence `at`."""
        ended = await self._store.runs(self._sid, at, at, "scheduled")
        live = [run for run in await self._store.live(self._sid) if run.kind == "scheduled"]
        self._held = await self._somebody_is_there()
        events = await self._store.lifecycle(self._keeper)
        alive = next((run for run in live if run.run_for == at), None)
        if ended:
            return await self._fired(ended[0], live, events)
        if alive is not None:
            return await self._alive(alive, events)
        spans = await self._store.spans(self._sid, at, at)
        if spans:
            return await self._folded(at, spans[0], live, events)
        cursor = self._row["cursor_at"]
        if is_instant(cursor) and at <= cursor:
            if (kept := await pruned_day(self._store, self._sid, at)) is not None:
                return self._forgotten(at, kept)
            text = f"The ledger has no verdict on {self._said(at)}, though it should; noonbell verify tells more."
            return Story(text, {"verdict": "lost"})
        return self._undecided(at, live, events)

    async def _somebody_is_there(self) -> bool:
        return await self._store.holder(self._keeper) is not None

    def _forgotten(self, at: int, kept: PrunedDay) -> Story:
        """Its day was pruned."""
        day = moment(kept.day).date()
        text = (
            f"What became of {self._said(at)} is pruned: only the counts of that day are kept. On {day} (UTC) "
            f"{self._name} fired {kept.fired} times, and {counted(kept.passed, 'occurrence')} passed without a run."
        )
        return Story(text, {"verdict": "pruned", "day": str(day), "fired": kept.fired, "passed": kept.passed})

    # --- fired --------------------------------------------------------------------------------------------------------

    async def _fired(self, run: Run, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        at, near = run.run_for, self._times.near
        attempts = await self._attempts(at)
        late = run.began_at - at
        instance = run.owner or (attempts[-1].owner if attempts else "")
        text = f"{self._name} ran for {self._times.full(at)}: it started at {near(run.began_at, at)}"
        text += f" on instance {instance}" if instance and run.attempts <= 1 else ""
        text += f", {length(late)} after it was due," if late >= SECOND else ""
        text += f" and {_OUTCOMES[run.outcome]} at {near(run.ended_at, at)}"
        if run.attempts <= 1:
            text += f" ({attempts[-1].error})." if attempts and attempts[-1].error else "."
        else:
            text += f", after {run.attempts} attempts. {self._attempt_list(attempts, at)}".rstrip()
        if run.outcome == "failed":
            text += await self._gave_way(run, live)
        elif run.outcome == "abandoned":
            text += " It was given up because the task was removed."
        if run.waited_us >= SECOND:
            text += f" It waited {length(run.waited_us)} for a free HTTP slot or thread."
        if late - run.waited_us - self._delay(at) > _LATE:
            text += f" It started late because {await self._not_at_once(at, run.started_at, events)}."
        text += await self._stands_for(at)
        facts = {
            "verdict": "fired",
            "outcome": run.outcome,
            "attempts": run.attempts,
            "instance": instance,
            "started_at": moment(run.began_at).isoformat(),
            "ended_at": moment(run.ended_at).isoformat(),
            "late_seconds": late / SECOND,
            "waited_seconds": run.waited_us / SECOND,
            "errors": [attempt.error for attempt in attempts if attempt.error],
        }
        return Story(text, facts)

    def _delay(self, at: int) -> int:  # noqa: ARG002 - for those who have one
        """How long the start of an occurrence is put off on purpose."""
        return 0

    async def _attempts(self, at: int) -> list[Attempt]:
        return [attempt for attempt in await self._store.attempts(self._sid, at, at) if attempt.kind == "scheduled"]

    def _attempt_list(self, attempts: Sequence[Attempt], at: int) -> str:
        told = [self._attempt(attempt, at) for attempt in attempts[-_MOST_ATTEMPTS:]]
        if not told:
            return ""
        left = f"The last {len(told)}: " if len(attempts) > len(told) else "Attempt by attempt: "
        return f"{left}{'; '.join(told)}."

    def _attempt(self, attempt: Attempt, at: int) -> str:
        when = f"{self._times.near(attempt.started_at, at)}, " if is_instant(attempt.started_at) else ""
        text = f"{attempt.attempt} ({when}instance {attempt.owner})"
        if attempt.outcome == "unknown":
            return f"{text} was cut off when its instance ended"
        if attempt.outcome == "failed":
            return f"{text} failed with {attempt.error or 'an error that was not kept'}"
        how = {"orphan": " as a restart", "retry": " as a retry"}.get(attempt.cause, "")
        return f"{text}{how} {attempt.outcome}"

    async def _gave_way(self, run: Run, live: Sequence[LiveRun]) -> str:
        """A failed run ended because a newer occurrence, a run by hand or the removal of the task ended its retries."""
        if self._row["removed_at"] == run.ended_at:
            return " It was not tried again because the task was removed."
        # asked for twice in one instant, they are kept apart by a microsecond
        by_hand = await self._store.runs(self._sid, run.run_for, run.ended_at + SECOND, "manual")
        if any((one.outcome, one.ended_at) == ("succeeded", run.ended_at) for one in by_hand):
            return " It was not tried again because a run by hand had succeeded by then."
        newer = self._rhythm.latest(run.ended_at)
        if newer is None or newer <= run.run_for:
            return ""
        taken = await self._run_at(newer, live)
        if taken is None or taken.started_at != run.ended_at:
            return ""
        return f" It was not tried again because {self._times.near(newer, run.run_for)} was due by then."

    async def _stands_for(self, at: int) -> str:
        before = self._rhythm.latest(at - 1)
        if before is None or before <= self._epoch.from_at:
            return ""
        spans = await self._store.spans(self._sid, before, before)
        if not spans or spans[0].verdict != "coalesced" or spans[0].reason.startswith(("folded", "the interval")):
            return ""
        first, last = self._times.near(spans[0].from_at, at), self._times.near(spans[0].to_at, at)
        which = first if spans[0].n == 1 else f"{first} to {last}"
        return f" It stands for {counted(spans[0].n, 'occurrence')} before it as well ({which})."

    # --- alive --------------------------------------------------------------------------------------------------------

    async def _alive(self, run: LiveRun, events: Sequence[LifecycleEvent]) -> Story:
        at, near = run.run_for, self._times.near
        attempts = await self._attempts(at)
        facts: dict[str, Any] = {
            "verdict": run.state,
            "attempts": run.attempt,
            "instance": run.owner,
            "wake_at": moment(run.wake_at).isoformat() if is_instant(run.wake_at) else None,
            "crashes": run.crashes,
        }
        began = run.attempt_at if is_instant(run.attempt_at) else self._now
        if run.state == "running":
            gone = self._gone(events)
            restart = f", as a restart after a {'crash' if run.crashes else 'stop'}"
            how = {"retry": ", as a retry", "orphan": restart}.get(run.cause, "")
            is_was = "is running now" if gone is None else "was running"
            text = (
                f"{self._name} {is_was} for {self._times.full(at)}: attempt {run.attempt} began at {near(began, at)} "
                f"on instance {run.owner}{how}."
            )
            facts["cut_off"] = gone is not None
            if gone is not None:
                text += f" The scheduler is down{self._since(gone, at)}. At the next start {self._when_cut_off(run)}."
        elif run.state == "waiting":
            text = f"{self._name} started for {self._times.full(at)} and waits for {self._wait_of(run)}"
            text += f", after {counted(run.attempt, 'failed attempt')}.{self._if_down(events, at)}"
        elif run.attempt == 0 and is_instant(run.wake_at) and run.wake_at > self._now:
            text = f"{self._name} is to start for {self._times.full(at)} and waits for {self._wait_of(run)}."
            text += self._if_down(events, at)
        else:
            cut_off = run.crashes > 0 or run.cause == "orphan"
            what = "was cut off when its instance ended" if cut_off else "was claimed and put back before it began"
            text = f"{self._name} is to start again at once for {self._times.full(at)}: it {what}."
            text += self._if_down(events, at)
        tried = self._attempt_list(attempts, at)
        return Story(f"{text} {tried}".rstrip(), facts)

    def _wait_of(self, run: LiveRun) -> str:
        what = "its retry" if run.state == "waiting" else "its start"
        return f"{what} at {self._times.near(run.wake_at, run.run_for)}" if is_instant(run.wake_at) else what

    def _when_cut_off(self, run: LiveRun) -> str:  # noqa: ARG002 - for those who tell runs apart
        """What the next start does with a run whose instance is gone."""
        return "it counts as cut off, and is started again"

    # --- folded into another run --------------------------------------------------------------------------------------

    async def _folded(self, at: int, span: Span, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        near = self._times.near
        into = await self._run_of(span, live)
        text = f"{self._name} did not run by itself for {self._times.full(at)}: it "
        if span.n == 1:
            text += "was folded into"
        else:
            text += f"is one of {span.n} occurrences ({near(span.from_at, at)} to {near(span.to_at, at)}) folded into"
        facts: dict[str, Any] = {
            "verdict": span.verdict,
            "reason": span.reason,
            "span": {"from": moment(span.from_at).isoformat(), "to": moment(span.to_at).isoformat(), "n": span.n},
            "into": None if into is None else moment(into.run_for).isoformat(),
        }
        if into is None:
            text += " another run"
        else:
            text += f" the run for {near(into.run_for, at)}"
            text += f", which started at {near(into.started_at, at)}" if is_instant(into.started_at) else ""
            tries = into.attempts if isinstance(into, Run) else into.attempt
            text += f" on instance {into.owner}" if into.owner and tries <= 1 else ""
        if span.reason.startswith("folded into the orphan"):
            because = "that run had been cut off by the end of its instance and was started again"
        elif span.reason.startswith("folded into the retry"):
            because = "that run had failed and was to be tried again"
        else:
            started = into.started_at if into is not None and is_instant(into.started_at) else self._now
            because = await self._not_at_once(at, started, events)
        facts["because"] = because
        return Story(f"{text}, because {because}.", facts)

    async def _run_of(self, span: Span, live: Sequence[LiveRun]) -> Run | LiveRun | None:
        """The run that answers for a span: the next one, or the one before where it was folded backwards."""
        if not span.reason.startswith("folded into the"):
            following = self._rhythm.after(span.to_at)
            return None if following is None else await self._run_at(following, live)
        for _ in range(_FAR_BACK):
            before = self._rhythm.latest(span.from_at - 1)
            if before is None:
                return None
            found = await self._run_at(before, live)
            spans = await self._store.spans(self._sid, before, before)
            if found is not None or not spans:
                return found
            span = spans[0]
        return None

    async def _run_at(self, at: int, live: Sequence[LiveRun]) -> Run | LiveRun | None:
        ended = await self._store.runs(self._sid, at, at, "scheduled")
        return ended[0] if ended else next((run for run in live if run.run_for == at), None)

    # --- not decided yet ----------------------------------------------------------------------------------------------

    def _undecided(self, at: int, live: Sequence[LiveRun], events: Sequence[LifecycleEvent]) -> Story:
        gone = self._gone(events)
        removed_at = self._row["removed_at"]
        if removed_at is not None:
            text = f"{self._name} did not run for {self._times.full(at)}: it was removed at "
            text += f"{self._times.near(removed_at, at)}, before that was decided."
            return Story(text, {"verdict": "removed"})
        if at > self._now:
            text = f"{self._name} is due at {self._times.full(at)}, in {length(at - self._now)}."
            if gone is not None:
                text += f" The scheduler is down{self._since(gone, at)}; it has to be up by then."
            return Story(text, {"verdict": "due later"})
        facts = {"verdict": "not decided", "scheduler_down": gone is not None}
        head = f"{self._name} has not run for {self._times.full(at)} yet"
        running = next((run for run in live if run.state == "running"), None)
        if gone is not None:
            text = f"{head}: the scheduler is down{self._since(gone, at)}. It will be answered for at the next start"
            return Story(f"{text}, by one run for all that was due.", facts)
        if running is not None:
            started = self._times.near(running.attempt_at, at) if is_instant(running.attempt_at) else "an unknown time"
            text = f"{head}: a run of it is in progress since {started} on instance {running.owner}"
            return Story(f"{text}. One run for all that was due follows right after it.", facts)
        last = events[-1] if events else None
        who = "" if last is None else f" (instance {last.instance}, up since {self._times.near(last.at, at)})"
        waited = length(self._now - at)
        text = f"{head}: it has been due for {waited}, and the scheduler{who} has not taken it up."
        return Story(f"{text} It is not lost: the next look, or the next start, answers for it.", facts)

    # --- reasons ------------------------------------------------------------------------------------------------------

    async def _not_at_once(self, at: int, started: int, events: Sequence[LifecycleEvent]) -> str:
        """Why an occurrence had to wait: a run was in the way, the scheduler was down, or it did not look."""
        near = self._times.near
        before = await self._run_before(at)
        if before is not None and before.started_at <= at < before.ended_at:
            return (
                f"a run was in progress (the one for {near(before.run_for, at)}, from {near(before.started_at, at)} to "
                f"{near(before.ended_at, at)})"
            )
        return await self._not_polled(at, started, events)

    async def _not_polled(self, at: int, started: int, events: Sequence[LifecycleEvent]) -> str:
        """Why no poll came for an occurrence: the scheduler was down, or did not look."""
        near = self._times.near
        gone = next((gone for gone in absences(events) if _meets(gone, at, started)), None)
        if gone is None and started >= self._now:
            gone = self._gone(events)
        if gone is None:
            return f"the scheduler did not look in time, and {_NOT_KNOWN}"
        if gone.until is None:
            return f"the scheduler was down{self._since(gone, at)}"
        if gone.crashed:
            crashed = f"instance {gone.instance} had crashed"
            return f"the scheduler was down: {crashed}, and the next start was at {near(gone.until, at)}"
        return f"the scheduler was down from {near(gone.since, at)} to {near(gone.until, at)}"

    async def _run_before(self, at: int) -> Run | None:
        """The run that came before an occurrence, over the spans in between."""
        for _ in range(_FAR_BACK):
            before = self._rhythm.latest(at - 1)
            if before is None or before <= self._epoch.from_at:
                return None
            ended = await self._store.runs(self._sid, before, before, "scheduled")
            if ended:
                return ended[0]
            spans = await self._store.spans(self._sid, before, before)
            if not spans:
                return None
            at = min(spans[0].from_at, before)
        return None

    def _if_down(self, events: Sequence[LifecycleEvent], at: int) -> str:
        gone = self._gone(events)
        if gone is None:
            return ""
        return f" The scheduler is down{self._since(gone, at)}, so it waits for the next start."

    def _gone(self, events: Sequence[LifecycleEvent]) -> Absence | None:
        return absence_now(events, self._now, held=self._held)

    def _since(self, gone: Absence, at: int) -> str:
        if gone.silent:
            up = self._times.near(gone.since, at)
            return f" (instance {gone.instance}, up since {up}, is gone without a word: nobody holds its place)"
        if gone.crashed:
            return f" (instance {gone.instance} crashed)"
        return f" since {self._times.near(gone.since, at)} (instance {gone.instance} stopped)"

    def _said(self, at: int) -> str:
        return f"{self._name} at {self._times.full(at)}"


def _meets(gone: Absence, due: int, started: int) -> bool:
    """Whether an absence stands between an occurrence and its start."""
    return gone.since <= started if gone.until is None else due < gone.until <= started


# The ledger holds what was done, and nothing of what kept a program from doing it earlier.
_NOT_KNOWN: Final = (
    "nothing recorded says why (the machine may have slept, its clock been set, or the program or its store "
    "been held up)"
)

_OUTCOMES: Final = {
    "succeeded": "succeeded",
    "failed": "failed for good",
    "abandoned": "was abandoned",
    "unknown": "ended in a way nobody saw",
}
