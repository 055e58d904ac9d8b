"""The fate of one occurrence, in words: it fired, its run is live, or a span answers for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from noonbell.core.instants import moment
from noonbell.core.records import Attempt, LiveRun, PrunedDay, Run, Span
from noonbell.ledger.explanation_text import Answer, counted, length
from noonbell.ledger.ledger_rows import SECOND, is_instant
from noonbell.ledger.links import pruned_day
from noonbell.ledger.pending import message_of, undecided
from noonbell.ledger.policies import quiet_for_good
from noonbell.ledger.reasons import FAR_BACK, Reasons
from noonbell.ledger.recurrence import EveryN
from noonbell.ledger.subject import Context, Subject
from noonbell.ports import RunFilter

_LATE: Final = 60 * SECOND  # a later start needs a reason
_MOST_ATTEMPTS: Final = 5  # the latest are listed one by one
_OUTCOMES: Final = {
    "succeeded": "succeeded",
    "failed": "failed for good",
    "abandoned": "was abandoned",
    "unknown": "ended without a recorded outcome",
}


async def explain_occurrence(context: Context, subject: Subject, at: int) -> Answer:
    """Explain the occurrence `at` of a schedule, which lies in the epoch of `subject`."""
    if isinstance(subject.recurrence, EveryN):
        subject.recurrence.goes_through(at)  # its neighbours are a step away, as far as they share an anchor
    live = [run for run in await context.store.runs.live(subject.sid) if run.kind == "scheduled"]
    explainer = _Explainer(context, subject, await Reasons.read(context, subject), live)
    return await explainer.explain(at)


class _Explainer:
    """Explains occurrences of one schedule within one of its epochs."""

    def __init__(self, context: Context, subject: Subject, reasons: Reasons, live: Sequence[LiveRun]) -> None:
        self._context = context
        self._store = context.store
        self._times = context.times
        self._now = context.now
        self._subject = subject
        self._sid = subject.sid
        self._name = subject.name
        self._policies = subject.policies
        self._recurrence = subject.recurrence
        self._reasons = reasons
        self._live = live

    async def explain(self, at: int) -> Answer:
        for ended in await self._store.history.runs(RunFilter(self._sid, at, at, "scheduled")):
            return await self._fired(ended)
        for run in self._live:
            if run.run_for == at:
                return await self._alive(run)
        for span in await self._store.history.spans(self._sid, at, at):
            return await self._passed(at, span)
        cursor = self._subject.row["cursor_at"]
        if not is_instant(cursor) or at > cursor:
            return undecided(self._context, self._subject, self._reasons, at, self._live)
        if (kept := await pruned_day(self._store, self._sid, at)) is not None:
            return self._pruned(at, kept)
        said = f"{self._name} at {self._times.full(at)}"
        text = f"The ledger has no verdict on {said}, though it should; run noonbell verify for details."
        return Answer(text, {"verdict": "lost"})

    def _pruned(self, at: int, kept: PrunedDay) -> Answer:
        day = moment(kept.day).date()
        text = (
            f"What became of {self._name} at {self._times.full(at)} is pruned: only the counts of that day are kept. "
            f"On {day} (UTC) {self._name} fired {kept.fired} times, and {counted(kept.passed, 'occurrence')} passed "
            "without a run."
        )
        return Answer(text, {"verdict": "pruned", "day": str(day), "fired": kept.fired, "passed": kept.passed})

    # --- fired --------------------------------------------------------------------------------------------------------

    async def _fired(self, run: Run) -> Answer:
        at, near = run.run_for, self._times.near
        attempts, delay, late = await self._attempts(at), self._subject.delay(at), run.began_at - at
        instance = run.owner or (attempts[-1].owner if attempts else "")
        text = f"{self._name} ran for {self._times.full(at)}: it started at {near(run.began_at, at)}"
        text += f" on instance {instance}" if instance and run.attempts <= 1 else ""
        text += f", {length(late)} after it was due," if late >= SECOND else ""
        text += f" and {_OUTCOMES[run.outcome]} at {near(run.ended_at, at)}"
        if run.attempts <= 1:
            text += f" ({attempts[-1].error})." if attempts and attempts[-1].error else "."
        else:
            text += f", after {run.attempts} attempts. {self._attempt_list(attempts, at)}".rstrip()
        text += await self._not_repeated(run)
        if run.waited_us >= SECOND:
            text += f" It waited {length(run.waited_us)} for a free HTTP slot or thread."
        if late - run.waited_us - delay > _LATE:
            text += f" It started late because {await self._reasons.not_at_once(at, run.started_at)}."
        text += await self._covered_before(at)
        text += f" Its jitter puts each start off; this one by {length(delay)}." if delay else ""
        message = await message_of(self._context, self._subject, run)
        facts = {
            "verdict": "fired",
            "outcome": run.outcome,
            "attempts": run.attempts,
            "instance": instance,
            "started_at": moment(run.began_at).isoformat(),
            "ended_at": moment(run.ended_at).isoformat(),
            "late_seconds": late / SECOND,
            "waited_seconds": run.waited_us / SECOND,
            "jitter_seconds": delay / SECOND,
            "errors": [attempt.error for attempt in attempts if attempt.error],
        }
        return Answer(text + message.text, {**facts, **message.facts})

    async def _attempts(self, at: int) -> list[Attempt]:
        return [
            attempt for attempt in await self._store.history.attempts(self._sid, at, at) if attempt.kind == "scheduled"
        ]

    def _attempt_list(self, attempts: Sequence[Attempt], at: int) -> str:
        listed = [self._attempt(attempt, at) for attempt in attempts[-_MOST_ATTEMPTS:]]
        if not listed:
            return ""
        left = f"The last {len(listed)}: " if len(attempts) > len(listed) else "Attempt by attempt: "
        return f"{left}{'; '.join(listed)}."

    def _attempt(self, attempt: Attempt, at: int) -> str:
        when = f"{self._times.near(attempt.started_at, at)}, " if is_instant(attempt.started_at) else ""
        text = f"{attempt.attempt} ({when}instance {attempt.owner})"
        if attempt.outcome == "unknown":
            return f"{text} was cut off when its instance ended"
        if attempt.outcome == "failed":
            return f"{text} failed with {attempt.error or 'an error that was not kept'}"
        how = {"orphan": " as a restart", "retry": " as a retry"}.get(attempt.cause, "")
        return f"{text}{how} {attempt.outcome}"

    async def _not_repeated(self, run: Run) -> str:
        """Return why a run that did not succeed was not attempted again, as far as the ledger says it."""
        removed = f"because the {self._context.words.noun} was {self._context.words.removed}"
        at_removal = self._subject.row["removed_at"] == run.ended_at
        if run.outcome == "unknown":
            return " It is not repeated: it may run at most once, or a person had asked for it."
        if run.outcome == "abandoned":
            why = removed if at_removal else "because engines died while they executed it"
            return f" It was given up {why}."
        if run.outcome != "failed":
            return ""
        if at_removal:
            return f" It was not tried again {removed}."
        if self._policies.consumes and await self._cleared_by_hand(run):
            return " It was not tried again because a run by hand had succeeded by then."
        if self._policies.retry_vs_new == "preempt":
            return await self._preempted(run)
        return " Its attempts were used up." if run.attempts > 1 and not self._policies.consumes else ""

    async def _cleared_by_hand(self, run: Run) -> bool:
        # asked for twice in one instant, they are kept apart by a microsecond
        manual = await self._store.history.runs(RunFilter(self._sid, run.run_for, run.ended_at + SECOND, "manual"))
        return any((one.outcome, one.ended_at) == ("succeeded", run.ended_at) for one in manual)

    async def _preempted(self, run: Run) -> str:
        newer = self._recurrence.latest(run.ended_at)
        taken = None if newer is None or newer <= run.run_for else await self._run_at(newer)
        if newer is None or taken is None or taken.started_at != run.ended_at:
            return ""
        return f" It was not tried again because {self._times.near(newer, run.run_for)} was due by then."

    async def _covered_before(self, at: int) -> str:
        before = self._recurrence.latest(at - 1)
        if before is None or before <= self._subject.epoch.from_at:
            return ""
        spans = await self._store.history.spans(self._sid, before, before)
        if not spans or spans[0].verdict != "coalesced" or spans[0].reason.startswith(("folded", "the interval")):
            return ""
        first, last = self._times.near(spans[0].from_at, at), self._times.near(spans[0].to_at, at)
        which = first if spans[0].n == 1 else f"{first} to {last}"
        return f" It also covers {counted(spans[0].n, 'occurrence')} before it ({which})."

    # --- a live run ---------------------------------------------------------------------------------------------------

    async def _alive(self, run: LiveRun) -> Answer:
        at = run.run_for
        facts: dict[str, Any] = {
            "verdict": run.state,
            "attempts": run.attempt,
            "instance": run.owner,
            "wake_at": moment(run.wake_at).isoformat() if is_instant(run.wake_at) else None,
            "crashes": run.crashes,
        }
        if run.state == "running":
            text = self._running(run)
            facts["cut_off"] = self._reasons.down is not None
        elif run.state == "waiting":
            text = f"{self._name} started for {self._times.full(at)} and waits for {self._wait_of(run)}"
            text += f", after {counted(run.attempt, 'failed attempt')}.{self._reasons.if_down(at)}"
        elif run.attempt == 0 and is_instant(run.wake_at) and run.wake_at > self._now:
            text = f"{self._name} is to start for {self._times.full(at)} and waits for {self._wait_of(run)}."
            text += self._reasons.if_down(at)
        else:
            cut_off = run.crashes > 0 or run.cause == "orphan"
            what = "was cut off when its instance ended" if cut_off else "was claimed and put back before it began"
            text = f"{self._name} is to start again at once for {self._times.full(at)}: it {what}."
            text += self._reasons.if_down(at)
        tried = self._attempt_list(await self._attempts(at), at)
        return Answer(f"{text} {tried}".rstrip(), facts)

    def _running(self, run: LiveRun) -> str:
        at, gone = run.run_for, self._reasons.down
        began = run.attempt_at if is_instant(run.attempt_at) else self._now
        restart = f", as a restart after a {'crash' if run.crashes else 'stop'}"
        how = {"retry": ", as a retry", "orphan": restart}.get(run.cause, "")
        text = (
            f"{self._name} {'is running now' if gone is None else 'was running'} for {self._times.full(at)}: attempt "
            f"{run.attempt} began at {self._times.near(began, at)} on instance {run.owner}{how}."
        )
        if gone is None:
            return text
        then = "it counts as cut off, and is started again"
        if self._policies.at_most_once:
            then = "it ends as unknown and is not repeated, because it may run at most once"
        return f"{text} The scheduler is down{self._reasons.since(gone, at)}. At the next start {then}."

    def _wait_of(self, run: LiveRun) -> str:
        what = "its retry" if run.state == "waiting" else "its start"
        if not is_instant(run.wake_at):
            return what
        text = f"{what} at {self._times.near(run.wake_at, run.run_for)}"
        quiet = self._context.quiet.get(self._subject.row["quiet_hours_policy_id"] or "")  # as it is now
        hours = None if quiet is None else quiet.hours
        if hours is not None and run.wake_at > self._now:
            if quiet_for_good(hours, self._now):
                return "the end of its quiet hours, which have none, to be tried again"
            if hours.quiet_until(self._now) == run.wake_at:
                return f"{text}, when its quiet hours are over"
        return text

    # --- a span -------------------------------------------------------------------------------------------------------

    async def _passed(self, at: int, span: Span) -> Answer:
        near = self._times.near
        facts: dict[str, Any] = {
            "verdict": span.verdict,
            "reason": span.reason,
            "span": {"from": moment(span.from_at).isoformat(), "to": moment(span.to_at).isoformat(), "n": span.n},
        }
        if span.verdict == "coalesced" and not span.reason.startswith("the interval"):
            return await self._coalesced(at, span, facts)
        because, into = await self._passed_because(at, span)
        text = f"{self._name} did not run for {self._times.full(at)}: it was {span.verdict}"
        if span.n > 1:
            text += f", with {span.n - 1} more ({near(span.from_at, at)} to {near(span.to_at, at)}),"
        facts["into"] = None if into is None else moment(into).isoformat()
        return Answer(f"{text} because {because}.", {**facts, "because": because})

    async def _coalesced(self, at: int, span: Span, facts: dict[str, Any]) -> Answer:
        near, into = self._times.near, await self._run_of(span)
        text = f"{self._name} did not run by itself for {self._times.full(at)}: it "
        if span.n == 1:
            text += "was folded into"
        else:
            text += f"is one of {span.n} occurrences ({near(span.from_at, at)} to {near(span.to_at, at)}) folded into"
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
            because = await self._reasons.not_at_once(at, started)
        facts["into"] = None if into is None else moment(into.run_for).isoformat()
        return Answer(f"{text}, because {because}.", {**facts, "because": because})

    async def _passed_because(self, at: int, span: Span) -> tuple[str, int | None]:
        """Return the reason, and the run that answers for it where there is one."""
        if span.reason == "quiet hours":
            quiet = self._context.quiet.get(self._policies.quiet_hours_policy_id or "")
            name = "" if quiet is None else f' of the policy "{quiet.name}"'
            return f"it lies in the quiet hours{name}", None
        before = await self._reasons.run_before(span.from_at)
        if span.reason == "overlap":
            which = "" if before is None else f" ({self._reasons.lasted(before, at)})"
            return f"a run was still executing{which} and its overlap policy is skip", None
        if span.reason == "cap":
            return f"the {self._policies.cap} oldest of all that was missed were caught up, and no more", None
        if span.reason == "deleted":
            return "the schedule was deleted before it was decided", None
        if span.reason.startswith("the interval"):
            when = "" if before is None else f", at {self._times.near(before.started_at, at)}"
            return f"the run before it started only later{when}, and the interval counts from there", (
                None if before is None else before.run_for
            )
        why = await self._reasons.not_polled(at, self._now)
        return f"{why}, and its catch-up policy is {self._policies.catch_up}", None

    async def _run_of(self, span: Span) -> Run | LiveRun | None:
        """Return the run that answers for a span: the next one, or the one before if it was folded backwards."""
        if not span.reason.startswith("folded into the"):
            following = self._recurrence.after(span.to_at)
            return None if following is None else await self._run_at(following)
        for _ in range(FAR_BACK):
            before = self._recurrence.latest(span.from_at - 1)
            if before is None:
                return None
            found = await self._run_at(before)
            spans = await self._store.history.spans(self._sid, before, before)
            if found is not None or not spans:
                return found
            span = spans[0]
        return None

    async def _run_at(self, at: int) -> Run | LiveRun | None:
        ended = await self._store.history.runs(RunFilter(self._sid, at, at, "scheduled"))
        return ended[0] if ended else next((run for run in self._live if run.run_for == at), None)
