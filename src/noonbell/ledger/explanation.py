"""A moment of a schedule: the epoch it lies in, its occurrence, or why there is none.

A moment is a minute, as people ask; of an interval or a one-shot it is the occurrence within that minute, or at the
very second that was asked for. A civil time may come twice, or never; both are explained. What became of an occurrence
is explained by `occurrence`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from noonbell.core.instants import instant, moment
from noonbell.core.records import Epoch
from noonbell.cron import zone_of
from noonbell.errors import StoreCorruptError
from noonbell.ledger.explanation_text import Answer, counted, length, vocabulary_of
from noonbell.ledger.ledger_rows import EARLIEST, SECOND, is_instant, rows
from noonbell.ledger.links import pruned_day
from noonbell.ledger.occurrence import explain_occurrence
from noonbell.ledger.policies import is_declared, quiet_for_good, stored_quiet_hours
from noonbell.ledger.subject import Context, Stored, Subject, times_of
from noonbell.ports import LEDGER_TABLES, AuditFilter, Ledger, RunFilter, ScheduleFilter

_MINUTE: Final = 60 * SECOND
_MOST_LISTED: Final = 5
_TO_AT: Final = LEDGER_TABLES["pruned"].columns.index("to_at")


class Explanation:
    """Explains moments of one schedule."""

    def __init__(self, context: Context, stored: Sequence[Stored]) -> None:
        self._context = context
        self._store = context.store
        self._now = context.now
        self._times = context.times
        self._words = context.words
        self._stored = stored
        row = stored[-1].row
        self._name = str(row["name"])
        self._facts: dict[str, Any] = {
            "task": self._name, "schedule_id": row["schedule_id"], "name": self._name, "managed_by": row["managed_by"],
            "type": row["type"], "time_zone": self._times.name,
        }  # fmt: skip

    @classmethod
    async def build(cls, store: Ledger, found: Sequence[Mapping[str, Any]], now: int) -> Explanation:
        """Read what is needed of a schedule with these rows, oldest first."""
        stored = [Stored(row, await store.history.epochs(row["sid"])) for row in found]
        for one in stored:
            if not one.epochs:
                text = f"{one.row['name']} has no epoch in the ledger; run noonbell verify for details"
                raise StoreCorruptError(text)
        row = found[-1]
        lane = str(row["managed_by"])
        if not is_declared(lane):
            existing = await store.schedules.find(ScheduleFilter(schedule_ids=[str(row["schedule_id"])]))
            lane = existing[0].lane if existing else "default"
        silenced = any(one.policies(epoch).quiet_hours_policy_id for one in stored for epoch in one.epochs)
        quiet = await stored_quiet_hours(store) if silenced else {}
        return cls(Context(store, now, times_of(row), vocabulary_of(row["managed_by"]), lane, quiet), stored)

    # --- the three ways to ask ----------------------------------------------------------------------------------------

    async def civil(self, at: datetime) -> Answer:
        """Explain a civil time, which may come twice or not at all."""
        zone = self._times.zone
        first, second = at.replace(tzinfo=zone, fold=0), at.replace(tzinfo=zone, fold=1)
        one, two = first.utcoffset(), second.utcoffset()
        if one is None or two is None or one == two:
            return await self.at(instant(first.astimezone(UTC)))
        if two > one:
            return await self._no_such_time(at, two - one)
        both = [await self._describe(instant(each.astimezone(UTC))) for each in (first, second)]
        text = f"{at:%H:%M} came twice on {at.date()} in {self._times.name}. The first time: {both[0].text} "
        text += f"The second time: {both[1].text}"
        return Answer(text, {**self._facts, "verdict": "twice", "both": [answer.facts for answer in both]})

    async def at(self, at: int) -> Answer:
        """Explain an instant."""
        answer = await self._describe(at)
        return Answer(answer.text, {**self._facts, **answer.facts})

    async def latest(self) -> Answer:
        """Explain the latest occurrence that has come, and say when the next comes."""
        stored = self._stored[-1]
        found = await self._latest_come(stored)
        if found is None:
            created = stored.row["created_at"]
            since = self._times.full(created) if is_instant(created) else "an unknown time"
            text = f"{self._name} has not been due since it was {self._words.created} at {since}."
            answer = Answer(text, {"verdict": "not due yet"})
        else:
            answer = await self._describe(found, exact=True)
        following, at = self._next(stored)
        return Answer(f"{answer.text} {following}", {**self._facts, **answer.facts, "next": at})

    async def _latest_come(self, stored: Stored) -> int | None:
        sid, created, pending = stored.row["sid"], stored.row["created_at"], stored.pending(self._now)
        found = [] if pending is None else [pending]
        found.extend(run.run_for for run in await self._store.runs.live(sid) if run.kind == "scheduled")
        low = max(found, default=self._now - _MINUTE)
        while True:  # the newest run or span, without a read of all of them
            found.extend(
                run.run_for for run in await self._store.history.runs(RunFilter(sid, low, self._now, "scheduled"))
            )
            found.extend(span.to_at for span in await self._store.history.spans(sid, low, self._now))
            if found:
                return max(found)
            if low < (created - _MINUTE if is_instant(created) else EARLIEST):
                break
            low = max(EARLIEST - 1, self._now - 60 * (self._now - low))
        async for page in rows(self._store, "pruned", above_sid=sid - 1, upto_sid=sid):
            found.extend(day[_TO_AT] for day in page)
        return max(found, default=None)

    def _next(self, stored: Stored) -> tuple[str, str | None]:
        row, epoch = stored.row, stored.epochs[-1]
        policies = stored.policies(epoch)
        if row["removed_at"] is not None:
            removed = f"it was {self._words.removed} at {self._times.full(row['removed_at'])}"
            return f"Nothing comes next: {removed}.", None
        if row["enabled"] == 0:
            why = "it is paused"
            if epoch.enabled:
                why = "it was to run once" if policies.kind == "one_shot" else "it has not been scheduled again"
            return f"Nothing comes next: {why}.", None
        following = stored.upcoming(self._now)
        if following is None:
            return "Nothing comes next.", None
        quiet = self._context.quiet.get(policies.quiet_hours_policy_id or "")
        if quiet is not None and quiet.hours is not None and quiet_for_good(quiet.hours, following):
            text = f'Nothing comes next: the quiet hours of the policy "{quiet.name}" have no end; the next occurrence '
            return f"{text}that they silence is {self._times.full(following)}.", None
        text = f"The next occurrence is {self._times.full(following)}, in {length(following - self._now)}."
        return text, moment(following).isoformat()

    # --- one moment ---------------------------------------------------------------------------------------------------

    async def _describe(self, at: int, *, exact: bool = False) -> Answer:
        """Explain the minute or second of `at`; `exact`: that instant and no other."""
        asked = self._minute(at) if self._facts["type"] == "cron" else at
        facts: dict[str, Any] = {"asked": moment(asked).isoformat()}
        place = self._place(asked)
        if place is None:
            answer = await self._gone(self._stored[-1], asked)
            return Answer(answer.text, {**facts, **answer.facts})
        stored, epoch = place
        several = [asked] if exact else await self._occurrences(stored, epoch, asked) if epoch.enabled else []
        if not several and asked <= stored.epochs[0].from_at:
            answer = await self._not_there_yet(stored, asked)
            return Answer(answer.text, {**facts, **answer.facts})
        if several:
            subject = Subject(stored.row, epoch, stored.policies(epoch), stored.recurrence(epoch))
            answer = await explain_occurrence(self._context, subject, several[0])
            answer = self._first_of(several, asked, answer) if len(several) > 1 else answer
        elif not epoch.enabled:
            answer = await self._paused(stored, epoch, asked)
        else:
            answer = await self._no_occurrence(stored, epoch, asked)
        manual, more = await self._asked_for(stored, asked)
        text = answer.text + manual + await self._edits(stored, epoch, asked)
        return Answer(text, {**facts, "spec": epoch.spec, "epoch": epoch.epoch, **answer.facts, **more})

    def _minute(self, at: int) -> int:
        second = at // SECOND
        return (second - (second + zone_of(self._times.zone).offset(second)) % 60) * SECOND

    def _place(self, at: int) -> tuple[Stored, Epoch] | None:
        """Return the row and the epoch that a moment lies in, or those after it; None after the last removal."""
        for stored in self._stored:
            if stored.row["removed_at"] is None or at <= stored.row["removed_at"]:
                held = (epoch for epoch in stored.epochs if epoch.to_at is None or at <= epoch.to_at)
                return stored, next(held, stored.epochs[-1])
        return None

    async def _gone(self, stored: Stored, at: int) -> Answer:
        removed_at = stored.row["removed_at"]
        by = await self._by(stored, "schedule.deleted", removed_at)
        text = (
            f"{self._name} did not run at {self._times.full(at)}, because {self._words.not_after}: it was "
            f"{self._words.removed} at {self._times.full(removed_at)}{by}."
        )
        return Answer(text, {"verdict": self._words.verdict_after, "removed_at": moment(removed_at).isoformat()})

    async def _not_there_yet(self, stored: Stored, at: int) -> Answer:
        created, place = stored.row["created_at"], self._stored.index(stored)
        by = await self._by(stored, "schedule.created", created)
        yet = " yet" if at + _MINUTE > created else ""
        came = f"{self._words.created} at {self._times.full(created)}{by}"
        if place > 0:
            removed_at = self._stored[place - 1].row["removed_at"]
            again = f"{self._words.created} again at {self._times.full(created)}{by}"
            came = f"{self._words.removed} at {self._times.full(removed_at)} and {again}"
        text = f"{self._name} did not run at {self._times.full(at)}, because {self._words.not_before}{yet}: it was "
        facts = {"verdict": self._words.verdict_before, "created_at": moment(created).isoformat()}
        return Answer(f"{text}{came}.", facts)

    def _first_of(self, several: list[int], asked: int, answer: Answer) -> Answer:
        """Name all occurrences of a minute that has several, and explain the first."""
        shown = ", ".join(self._times.near(at, asked) for at in several[:_MOST_LISTED])
        more = f" and {len(several) - _MOST_LISTED} more" if len(several) > _MOST_LISTED else ""
        text = (
            f"{self._name} has {len(several)} occurrences in the minute of {self._times.full(asked)}: {shown}{more}. "
        )
        listed = [moment(at).isoformat() for at in several]
        return Answer(f"{text}The first: {answer.text}", {**answer.facts, "occurrences": listed})

    async def _occurrences(self, stored: Stored, epoch: Epoch, asked: int) -> list[int]:
        """Return the occurrences of a minute or second: by arithmetic, but of intervals by what is recorded."""
        last = asked + (_MINUTE if asked % _MINUTE == 0 else SECOND) - 1
        first, limit = stored.bounds(epoch)
        if stored.policies(epoch).kind != "interval":
            found = stored.recurrence(epoch).after(max(asked - 1, first))
            return [] if found is None or found > min(last, limit) else [found]
        sid, every = stored.row["sid"], stored.every(epoch)
        met = [run.run_for for run in await self._store.history.runs(RunFilter(sid, asked, last, "scheduled"))]
        met += [run.run_for for run in await self._store.runs.live(sid) if asked <= run.run_for <= last]
        for span in await self._store.history.spans(sid, asked, last):
            begin = span.from_at + -(-max(0, asked - span.from_at) // every) * every
            met += range(begin, min(span.to_at, last) + 1, every)
        pending = stored.upcoming(asked - 1) if epoch.to_at is None else None
        if pending is not None:
            met += range(pending, min(last, limit) + 1, every)
        return sorted(set(met))

    # --- a moment without an occurrence -------------------------------------------------------------------------------

    async def _no_occurrence(self, stored: Stored, epoch: Epoch, asked: int) -> Answer:
        policies, at = stored.policies(epoch), self._times.full(asked)
        facts: dict[str, Any] = {"verdict": "no occurrence"}
        head = f"{self._name} was not due at {at}, because"
        if policies.start_at is not None and asked + _MINUTE <= policies.start_at:
            return Answer(f"{head} that is before its start, {self._times.full(policies.start_at)}.", facts)
        if policies.end_at is not None and asked > policies.end_at:
            return Answer(f"{head} that is after its end, {self._times.full(policies.end_at)}.", facts)
        kept = await pruned_day(self._store, stored.row["sid"], asked) if policies.kind == "interval" else None
        if kept is not None:
            text = f"{self._name} at {at}: only the counts of that day are kept, the rest is pruned. "
            text += f"It fired {kept.fired} times, and {counted(kept.passed, 'occurrence')} passed without a run."
            return Answer(text, {"verdict": "pruned", "fired": kept.fired, "passed": kept.passed})
        before, after = await self._neighbours(stored, epoch, asked)
        facts["before"] = None if before is None else moment(before).isoformat()
        facts["after"] = None if after is None else moment(after).isoformat()
        if policies.kind == "one_shot":
            only = before if before is not None else after
            return Answer(f"{head} it is to run once{'' if only is None else f', at {self._times.full(only)}'}.", facts)
        why = f"it comes {epoch.spec} seconds after the start of its last run"
        if policies.kind == "cron":
            why = f'that minute does not match "{epoch.spec}" in {epoch.timezone}'
        parts = [] if before is None else [f"the occurrence before it is {self._times.full(before)}"]
        if after is not None:
            parts.append(f"the {'one' if parts else 'occurrence'} after it is {self._times.full(after)}")
        return Answer(f"{head} {why}{'; ' if parts else ''}{', '.join(parts)}.", facts)

    async def _neighbours(self, stored: Stored, epoch: Epoch, asked: int) -> tuple[int | None, int | None]:
        """Return the occurrences around a moment, of any epoch; those of an interval from the ledger."""
        met: list[int] = []
        if stored.policies(epoch).kind == "interval":
            sid, reach = stored.row["sid"], max(3 * stored.every(epoch), _MINUTE)
            met += [
                run.run_for
                for run in await self._store.history.runs(RunFilter(sid, asked - reach, asked + reach, "scheduled"))
            ]
            for span in await self._store.history.spans(sid, asked - reach, asked + reach):
                met += (span.from_at, span.to_at)
            following = stored.upcoming(asked)
            met += [] if following is None else [following]
        else:
            for one in stored.epochs:
                if one.enabled:
                    (first, last), found = stored.bounds(one), stored.recurrence(one)
                    around = (found.latest(min(asked, last)), found.after(max(asked, first)))
                    met += [at for at in around if at is not None and first < at <= last]
        return max((at for at in met if at < asked), default=None), min((at for at in met if at > asked), default=None)

    async def _paused(self, stored: Stored, epoch: Epoch, asked: int) -> Answer:
        epochs = stored.epochs
        first = last = epochs.index(epoch)
        while first > 0 and not epochs[first - 1].enabled:
            first -= 1
        while last + 1 < len(epochs) and not epochs[last + 1].enabled:
            last += 1
        since, until = epochs[first].from_at, epochs[last].to_at
        text = f"{self._name} was not due at {self._times.full(asked)}, because it was paused: since "
        text += f"{self._times.full(since)}{await self._by(stored, 'schedule.paused', since)}"
        if until is None:
            text += ", and it still is."
        elif stored.row["removed_at"] == until:
            text += f", until it was {self._words.removed} at {self._times.near(until, asked)}."
        else:
            by = await self._by(stored, "schedule.resumed", until)
            text += f", until {self._times.near(until, asked)}{by and f', when it was resumed{by}'}."
        facts = {
            "paused_since": moment(since).isoformat(),
            "until": None if until is None else moment(until).isoformat(),
        }
        return Answer(text, {"verdict": "paused", **facts})

    async def _no_such_time(self, at: datetime, missing: timedelta) -> Answer:
        """Explain a civil time that the clocks skip."""
        zone = self._times.zone
        # read with the offset before the change, a missing time lands after it, by less than what is missing
        landed = instant(at.replace(tzinfo=zone, fold=0).astimezone(UTC)) // SECOND
        second, _, _ = zone_of(zone).transitions(landed - missing // timedelta(seconds=1), landed + 1)[-1]
        change, resumed = second * SECOND, moment(second * SECOND, zone)
        past = change <= self._now
        text = (
            f"{self._name} {'did' if past else 'will'} not run at {at:%H:%M} on {at.date()}, because that time "
            f"{'did' if past else 'does'} not exist in {self._times.name}: the clocks {'went' if past else 'go'} "
            f"forward from {resumed - missing:%H:%M} to {resumed:%H:%M}."
        )
        place = self._place(change)
        if place is not None:
            _, after = await self._neighbours(*place, change - 1)
            if after is not None:
                text += f" The occurrence after it {'was' if after <= self._now else 'is'} {self._times.full(after)}."
            if place[0].policies(place[1]).dst == "once":
                text += " Its clock-change policy is once: what is missing comes at the first minute after."
        facts = {"verdict": "no such time", "asked": at.isoformat(), "clocks_changed_at": moment(change).isoformat()}
        return Answer(text, {**self._facts, **facts})

    # --- runs by hand, and edits --------------------------------------------------------------------------------------

    async def _asked_for(self, stored: Stored, asked: int) -> tuple[str, dict[str, Any]]:
        manual = await self._store.history.runs(RunFilter(stored.row["sid"], asked, asked + _MINUTE - 1, "manual"))
        if not manual:
            return "", {}
        run = manual[0]
        attempts = f" after {run.attempts} attempts" if run.attempts > 1 else ""
        text = f" A person asked for a run at {self._times.near(run.run_for, asked)}; it {run.outcome}{attempts}."
        return text, {"manual_runs": len(manual)}

    async def _edits(self, stored: Stored, epoch: Epoch, asked: int) -> str:
        """Return what has changed since, or that the epoch of a declared task began before its declaration."""
        row, updated_at = stored.row, stored.row["updated_at"]
        if row["removed_at"] is not None:
            return ""
        if epoch.to_at is None:
            # a declaration takes over what has no verdict, which is before the declaration itself
            declared = stored.policies(epoch).consumes and epoch.epoch > 1 and is_instant(updated_at)
            if not declared or asked >= updated_at:
                return ""
            at = self._times.near(updated_at, asked)
            return f' "{epoch.spec}" was declared at {at} and took over all that had not been decided by then.'
        if row["spec"] == epoch.spec and row["timezone"] == epoch.timezone:
            return ""
        later = (one for one in stored.epochs if one.from_at >= epoch.to_at and one.spec != epoch.spec)
        since = next((one.from_at for one in later), epoch.to_at)
        by = await self._by(stored, "schedule.updated", since)
        return f' Since {self._times.near(since, asked)} it is "{row["spec"]}" in {row["timezone"]}{by}.'

    async def _by(self, stored: Stored, event: str, at: int) -> str:
        """Return who did it, if the audit still has it."""
        wanted = AuditFilter(subject=str(stored.row["schedule_id"]), event=event, from_at=at, to_at=at)
        found = await self._store.audit.page(wanted, 0, 1)
        return f" by {found[0][1].actor}" if found and found[0][1].actor else ""
