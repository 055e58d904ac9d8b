"""A durable schedule and a moment of it: created, edited and paused by somebody, of any kind, with policies of its own.

A moment is a minute, as people ask; of an interval or a one-shot it is the occurrence within that minute, or at the
very second that was asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Self, cast

from noonbell.core.records import AuditEvent, Epoch, StoredSchedule
from noonbell.errors import StoreCorruptError
from noonbell.ledger.case import Answer, Case
from noonbell.ledger.durable_occurrence import DurableExplainer, Quiet
from noonbell.ledger.occurrence import Story
from noonbell.ledger.pruned import pruned_day
from noonbell.ledger.quiet import quiet_for_good, quiet_hours
from noonbell.ledger.reading import EARLIEST, LATEST, SECOND, is_instant, moment, rows
from noonbell.ledger.rhythms import Rhythm, Steps, rhythm_of
from noonbell.ledger.terms import Terms, terms_of
from noonbell.ledger.wording import counted, length
from noonbell.ports import LEDGER_TABLES, AuditFilter, ScheduleStore, Store

_MINUTE: Final = 60 * SECOND
_DAY: Final = 86_400 * SECOND
_MOST_LISTED: Final = 5
_TO_AT: Final = LEDGER_TABLES["pruned"].columns.index("to_at")


class DurableCase(Case):
    """A durable schedule, with those of the same name that were deleted before it."""

    _durable: ScheduleStore
    _stored: StoredSchedule | None = None
    _quiet: dict[str, Quiet]

    @classmethod
    async def build(cls, store: Store, lives: list[Mapping[str, Any]], now: int) -> Self:
        case = cls(store, lives, [await store.epochs(row["sid"]) for row in lives], now)
        case._durable = cast("ScheduleStore", store)
        found = await case._durable.find_schedules([str(lives[-1]["schedule_id"])])
        case._stored = found[0] if found else None
        hours = await quiet_hours(store)
        names = {policy.policy_id: policy.name for policy in await case._durable.quiet_hours()}
        case._quiet = {key: Quiet(names[key], hours[key][0]) for key in names}
        case._facts = {
            "schedule_id": lives[-1]["schedule_id"], "name": case._name, "managed_by": lives[-1]["managed_by"],
            "type": lives[-1]["type"], "time_zone": case._times.name,
        }  # fmt: skip
        return case

    # --- what was asked -----------------------------------------------------------------------------------------------

    async def latest(self) -> Answer:
        """The latest occurrence that has come, and the next."""
        row, epochs = self._lives[-1], self._epochs[-1]
        found = await self._latest_come(row, epochs)
        if found is None:
            text = f"{self._name} has not been due since it was created at {self._times.full(row['created_at'])}."
            story = Story(text, {"verdict": "not due yet"})
        else:
            story = await self._story(found, exact=True)
        following, at = self._coming(row, epochs)
        return Answer(f"{story.text} {following}", {**self._facts, **story.facts, "next": at})

    async def _latest_come(self, row: Mapping[str, Any], epochs: list[Epoch]) -> int | None:
        sid, found = row["sid"], []
        open_one = self._open_rhythm(row, epochs)
        if open_one is not None:
            pending = open_one.latest(self._now)
            if pending is not None and pending > max(row["cursor_at"], self._terms(epochs[-1]).start_at or EARLIEST):
                found.append(pending)
        found.extend(run.run_for for run in await self._store.live(sid) if run.kind == "scheduled")
        found.extend(span.to_at for span in (await self._store.spans(sid, EARLIEST, self._now))[-1:])
        back = _MINUTE
        while not found and back < 400 * _DAY:  # the newest run, without a look at all of them
            found.extend(run.run_for for run in await self._store.runs(sid, self._now - back, self._now, "scheduled"))
            back *= 60
        if found:
            near = max(found)
            found.extend(run.run_for for run in await self._store.runs(sid, near, self._now, "scheduled"))
        else:
            async for page in rows(self._store, "pruned", above_sid=sid - 1, upto_sid=sid):
                found.extend(day[_TO_AT] for day in page)
        return max(found, default=None)

    def _coming(self, row: Mapping[str, Any], epochs: list[Epoch]) -> tuple[str, str | None]:
        if row["removed_at"] is not None:
            return f"Nothing comes next: it was deleted at {self._times.full(row['removed_at'])}.", None
        if row["enabled"] == 0:
            one_shot = row["type"] == "one_shot" and epochs[-1].enabled
            return f"Nothing comes next: {'it was to run once' if one_shot else 'it is paused'}.", None
        rhythm, terms = self._open_rhythm(row, epochs), self._terms(epochs[-1])
        after = max(self._now, row["cursor_at"], (terms.start_at or EARLIEST) - 1)
        coming = None if rhythm is None else rhythm.after(after)
        if coming is None or (terms.end_at is not None and coming > terms.end_at):
            return "Nothing comes next.", None
        quiet = self._quiet.get(terms.quiet_hours_policy_id or "")
        if quiet is not None and quiet.hours is not None and quiet_for_good(quiet.hours, coming):
            text = f'Nothing comes next: the quiet hours of the policy "{quiet.name}" have no end; the next occurrence '
            return f"{text}that they silence is {self._times.full(coming)}.", None
        text = f"The next occurrence is {self._times.full(coming)}, in {length(coming - self._now)}."
        return text, moment(coming).isoformat()

    # --- one moment ---------------------------------------------------------------------------------------------------

    async def _story(self, at: int, *, exact: bool = False) -> Story:
        """What became of the minute or second of `at`; `exact`: of that instant and no other."""
        kind = str(self._lives[-1]["type"])
        asked = self._minute(at) if kind == "cron" else at
        facts = {"asked": moment(asked).isoformat()}
        place = await self._held(asked)
        if isinstance(place, Story):
            return Story(place.text, {**facts, **place.facts})
        row, epoch = place
        terms = self._terms(epoch)
        facts.update({"spec": epoch.spec, "epoch": str(epoch.epoch)})
        if not epoch.enabled:
            story = await self._paused(row, epoch, asked)
        else:
            several = [asked] if exact else await self._occurrences(row, epoch, asked)
            occurrence = min(several, default=None)
            if occurrence is None and asked <= self._first(row):
                return await self._not_there_yet(row, asked, facts)
            if occurrence is None:
                story = await self._none_there(row, epoch, terms, asked)
            else:
                lane = None if self._stored is None else self._stored.lane
                quiet = None if terms.quiet_hours_policy_id is None else self._quiet.get(terms.quiet_hours_policy_id)
                explainer = DurableExplainer(
                    self._store, row, epoch, self._rhythm(epoch), times=self._times, now=self._now, terms=terms,
                    quiet=quiet, quiet_now=self._quiet.get(row["quiet_hours_policy_id"] or ""), lane=lane or "default",
                )  # fmt: skip
                story = await explainer.explain(occurrence)
                if len(several) > 1:
                    story = self._first_of(several, asked, story)
        text = story.text + await self._asked_for(row, asked) + await self._edited(row, epoch, asked)
        return Story(text, {**facts, "epoch": epoch.epoch, **story.facts})

    async def _held(self, at: int) -> tuple[Mapping[str, Any], Epoch] | Story:
        """The schedule and the epoch that hold a moment, or why there is none."""
        gone: Mapping[str, Any] | None = None
        for row, epochs in zip(self._lives, self._epochs, strict=True):
            if not epochs:
                raise StoreCorruptError(f"{self._name} has no epoch in the ledger; noonbell verify tells more")
            if at + _MINUTE <= epochs[0].from_at:
                return await self._not_there_yet(row, at, {})
            if row["removed_at"] is None or at <= row["removed_at"]:
                held = (epoch for epoch in epochs if epoch.to_at is None or at <= epoch.to_at)
                return row, next(held, epochs[-1])
            gone = row
        assert gone is not None  # noqa: S101 - every one was left behind, so there is a last one
        by = await self._by(gone, "schedule.deleted", gone["removed_at"])
        text = (
            f"{self._name} did not run at {self._times.full(at)}, because it did not exist any more: it was deleted at "
            f"{self._times.full(gone['removed_at'])}{by}."
        )
        return Story(text, {"verdict": "deleted", "removed_at": moment(gone["removed_at"]).isoformat()})

    async def _not_there_yet(self, row: Mapping[str, Any], at: int, facts: Mapping[str, Any]) -> Story:
        created = row["created_at"]
        by = await self._by(row, "schedule.created", created)
        yet = " yet" if at + _MINUTE > created else ""
        text = f"{self._name} did not run at {self._times.full(at)}, because it did not exist then{yet}: it was "
        text += f"created at {self._times.full(created)}{by}."
        return Story(text, {**facts, "verdict": "not there", "created_at": moment(created).isoformat()})

    def _first_of(self, several: list[int], asked: int, story: Story) -> Story:
        """Of a minute that holds several occurrences the first is told, and which the others are."""
        told = ", ".join(self._times.near(at, asked) for at in several[:_MOST_LISTED])
        more = f" and {len(several) - _MOST_LISTED} more" if len(several) > _MOST_LISTED else ""
        text = f"{self._name} has {len(several)} occurrences in the minute of {self._times.full(asked)}: {told}{more}. "
        listed = [moment(at).isoformat() for at in several]
        return Story(f"{text}The first: {story.text}", {**story.facts, "occurrences": listed})

    async def _occurrences(self, row: Mapping[str, Any], epoch: Epoch, asked: int) -> list[int]:
        """The occurrences that a moment means: by arithmetic where the epoch says it, else by what is on record."""
        terms, last = self._terms(epoch), asked + (_MINUTE if asked % _MINUTE == 0 else SECOND) - 1
        if terms.kind != "interval":
            found = self._rhythm(epoch).after(asked - 1)
            outside = found is None or found > last or found <= epoch.from_at
            if found is None or outside or (epoch.to_at is not None and found > epoch.to_at):
                return []
            return [found] if (terms.start_at or EARLIEST) <= found <= (terms.end_at or LATEST) else []
        sid = row["sid"]
        met = [run.run_for for run in await self._store.runs(sid, asked, last, "scheduled")]
        met += [run.run_for for run in await self._store.live(sid) if asked <= run.run_for <= last]
        every = parse_steps(epoch)
        for span in await self._store.spans(sid, asked, last):
            first = span.from_at + -(-max(0, asked - span.from_at) // every) * every
            met += range(first, min(span.to_at, last) + 1, every)
        rhythm = self._open_rhythm(row, self._epochs_of(row))
        if rhythm is not None and epoch.to_at is None:
            pending = rhythm.after(max(asked - 1, row["cursor_at"]))
            if pending is not None:
                met += range(pending, min(last, terms.end_at or LATEST) + 1, every)
        return sorted(set(met))

    # --- what can be said of a moment without an occurrence -----------------------------------------------------------

    async def _none_there(self, row: Mapping[str, Any], epoch: Epoch, terms: Terms, asked: int) -> Story:
        said = self._times.full(asked)
        facts: dict[str, Any] = {"verdict": "no occurrence"}
        for bound, word in ((terms.start_at, "before its start"), (terms.end_at, "after its end")):
            beyond = bound is not None and (asked + _MINUTE <= bound if bound == terms.start_at else asked > bound)
            if beyond and bound is not None:
                text = f"{self._name} was not due at {said}, because that is {word}, {self._times.full(bound)}."
                return Story(text, facts)
        if terms.kind == "interval":
            if (kept := await pruned_day(self._store, row["sid"], asked)) is not None:
                text = f"{self._name} at {said}: only the counts of that day are kept, the rest is pruned. "
                text += f"It fired {kept.fired} times, and {counted(kept.passed, 'occurrence')} passed without a run."
                return Story(text, {"verdict": "pruned", "fired": kept.fired, "passed": kept.passed})
            why = f"it comes {epoch.spec} seconds after the start of its last run"
            before, after = await self._neighbours(row, epoch, asked)
        elif terms.kind == "one_shot":
            why, before, after = "it is to run once", None, self._rhythm(epoch).after(EARLIEST)
        else:
            why = f'that minute does not match "{epoch.spec}" in {epoch.timezone}'
            before, after = self._rhythm(epoch).latest(asked), self._rhythm(epoch).after(asked)
        parts = []
        if before is not None and before > epoch.from_at:
            parts.append(f"the occurrence before it is {self._times.full(before)}")
        if after is not None and terms.kind == "one_shot":
            parts.append(f"at {self._times.full(after)}")
        elif after is not None and (epoch.to_at is None or after <= epoch.to_at):
            parts.append(f"the {'one' if parts else 'occurrence'} after it is {self._times.full(after)}")
        joint = ", " if terms.kind == "one_shot" else "; "
        text = f"{self._name} was not due at {said}, because {why}{joint if parts else ''}{', '.join(parts)}."
        facts["before"] = None if before is None else moment(before).isoformat()
        facts["after"] = None if after is None else moment(after).isoformat()
        return Story(text, facts)

    async def _neighbours(self, row: Mapping[str, Any], epoch: Epoch, asked: int) -> tuple[int | None, int | None]:
        """The occurrences of an interval around a moment, from the ledger and from what is to come."""
        reach = max(3 * parse_steps(epoch), _MINUTE)
        runs = await self._store.runs(row["sid"], asked - reach, asked + reach, "scheduled")
        spans = await self._store.spans(row["sid"], asked - reach, asked + reach)
        met = [run.run_for for run in runs] + [end for span in spans for end in (span.from_at, span.to_at)]
        rhythm = self._open_rhythm(row, self._epochs_of(row))
        coming = None if rhythm is None else rhythm.after(max(asked, row["cursor_at"]))
        met += [] if coming is None else [coming]
        return max((at for at in met if at < asked), default=None), min((at for at in met if at > asked), default=None)

    async def _paused(self, row: Mapping[str, Any], epoch: Epoch, asked: int) -> Story:
        epochs = self._epochs_of(row)
        at = epochs.index(epoch)
        first, last = at, at
        while first > 0 and not epochs[first - 1].enabled:
            first -= 1
        while last + 1 < len(epochs) and not epochs[last + 1].enabled:
            last += 1
        since, until = epochs[first].from_at, epochs[last].to_at
        text = f"{self._name} was not due at {self._times.full(asked)}, because it was paused: since "
        text += f"{self._times.full(since)}{await self._by(row, 'schedule.paused', since)}"
        if until is None:
            text += ", and it still is."
        elif row["removed_at"] == until:
            text += f", until it was deleted at {self._times.near(until, asked)}."
        else:
            by = await self._by(row, "schedule.resumed", until)
            text += f", until {self._times.near(until, asked)}{by and f', when it was resumed{by}'}."
        facts = {
            "paused_since": moment(since).isoformat(),
            "until": None if until is None else moment(until).isoformat(),
        }
        return Story(text, {"verdict": "paused", **facts})

    async def _asked_for(self, row: Mapping[str, Any], asked: int) -> str:
        manual = await self._store.runs(row["sid"], asked, asked + _MINUTE - 1, "manual")
        if not manual:
            return ""
        run = manual[0]
        attempts = f" after {run.attempts} attempts" if run.attempts > 1 else ""
        return f" A person asked for a run at {self._times.near(run.run_for, asked)}; it {run.outcome}{attempts}."

    async def _edited(self, row: Mapping[str, Any], epoch: Epoch, asked: int) -> str:
        """What has changed since, for whoever looks at the schedule as it is now."""
        if epoch.to_at is None or row["removed_at"] is not None:
            return ""
        changed = row["spec"] != epoch.spec or row["timezone"] != epoch.timezone
        if not changed:
            return ""
        later = next(
            (one for one in self._epochs_of(row) if one.from_at >= epoch.to_at and one.spec != epoch.spec), None
        )
        since = epoch.to_at if later is None else later.from_at
        by = await self._by(row, "schedule.updated", since)
        return f' Since {self._times.near(since, asked)} it is "{row["spec"]}" in {row["timezone"]}{by}.'

    async def _by(self, row: Mapping[str, Any], event: str, at: int) -> str:
        """Who did it, where the audit still knows."""
        wanted = AuditFilter(subject=str(row["schedule_id"]), event=event, from_at=at, to_at=at)
        found: list[tuple[int, AuditEvent]] = await self._durable.audit(wanted, 0, 1)
        return f" by {found[0][1].actor}" if found and found[0][1].actor else ""

    # --- a time that does not exist -----------------------------------------------------------------------------------

    def _gap(self, at: datetime, missing: timedelta) -> Answer:
        answer = super()._gap(at, missing)
        epochs = self._epochs[-1]
        if self._terms(epochs[-1]).dst == "once":
            text = f"{answer.text} Its clock-change policy is once: what is missing comes at the first minute after."
            return Answer(text, answer.facts)
        return answer

    def _place(self, minute: int) -> tuple[Mapping[str, Any], Epoch] | Story:
        row, epochs = self._lives[-1], self._epochs[-1]
        held = (epoch for epoch in epochs if epoch.to_at is None or minute <= epoch.to_at)
        return row, next(held, epochs[-1])

    # --- occurrences --------------------------------------------------------------------------------------------------

    def _rhythm(self, epoch: Epoch) -> Rhythm:
        terms = self._terms(epoch)
        found = rhythm_of(terms.kind, epoch.spec, epoch.timezone, terms.dst, terms.anchor_at)
        if isinstance(found, str):
            raise StoreCorruptError(f"{self._name}, epoch {epoch.epoch}: {found}")
        return found

    def _open_rhythm(self, row: Mapping[str, Any], epochs: list[Epoch]) -> Rhythm | None:
        """What is to come, as the schedule stands."""
        if row["enabled"] == 0 or row["removed_at"] is not None or not is_instant(row["cursor_at"]):
            return None
        found = self._rhythm(epochs[-1])
        if isinstance(found, Steps):
            return None if self._stored is None else Steps(self._stored.anchor_at, found.every)
        return found

    @staticmethod
    def _terms(epoch: Epoch) -> Terms:
        return terms_of(epoch.policies)


def parse_steps(epoch: Epoch) -> int:
    """The length of an interval's step."""
    found = rhythm_of("interval", epoch.spec, "UTC", "literal", 0)
    if not isinstance(found, Steps):
        raise StoreCorruptError(f"epoch {epoch.epoch}: {found}")
    return found.every
