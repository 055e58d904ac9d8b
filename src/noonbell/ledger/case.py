"""A task or schedule and a moment of it: which epoch held, whether it was due, and the way to its story.

A civil time may come twice, or never; both are told. What became of an occurrence itself is told by an `Explainer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self

import msgspec

from noonbell.core.records import Epoch
from noonbell.cron import zone_of
from noonbell.errors import StoreCorruptError
from noonbell.ledger.occurrence import Explainer, Story
from noonbell.ledger.reading import SECOND, instant, is_instant, moment
from noonbell.ledger.rhythms import ByClock, Rhythm, by_clock
from noonbell.ledger.terms import terms_of
from noonbell.ledger.wording import Times, length
from noonbell.ports import Store

_MINUTE: Final = 60 * SECOND


class Answer(msgspec.Struct, frozen=True):
    """One paragraph, and what it is made of. `facts["verdict"]` is the short of it."""

    text: str
    facts: dict[str, Any]


def zone_of_task(lives: list[Mapping[str, Any]]) -> Times:
    """The zone that a task's times are said in: that of its latest registration."""
    found = by_clock("* * * * *", lives[-1]["timezone"]) if isinstance(lives[-1]["timezone"], str) else None
    if not isinstance(found, ByClock):
        return Times(UTC, "UTC")
    return Times(found.zone.tzinfo, lives[-1]["timezone"])


class Case:
    """A task and its registrations."""

    def __init__(self, store: Store, lives: list[Mapping[str, Any]], epochs: list[list[Epoch]], now: int) -> None:
        self._store = store
        self._lives = lives
        self._epochs = epochs
        self._now = now
        self._times = zone_of_task(lives)
        self._name = str(lives[-1]["name"])
        self._facts: dict[str, Any] = {
            "task": self._name,
            "managed_by": lives[-1]["managed_by"],
            "time_zone": self._times.name,
        }

    @classmethod
    async def build(cls, store: Store, lives: list[Mapping[str, Any]], now: int) -> Self:
        return cls(store, lives, [await store.epochs(row["sid"]) for row in lives], now)

    # --- the three ways to ask ----------------------------------------------------------------------------------------

    async def civil(self, at: datetime) -> Answer:
        """A civil time, which may come twice or not at all."""
        zone = self._times.zone
        first, second = at.replace(tzinfo=zone, fold=0), at.replace(tzinfo=zone, fold=1)
        one, two = first.utcoffset(), second.utcoffset()
        if one is None or two is None or one == two:
            return await self.at(instant(first.astimezone(UTC)))
        if two > one:
            return self._gap(at, two - one)
        early, late = instant(first.astimezone(UTC)), instant(second.astimezone(UTC))
        tell_both = [await self._story(early), await self._story(late)]
        text = f"{at:%H:%M} came twice on {at.date()} in {self._times.name}. The first time: {tell_both[0].text} "
        text += f"The second time: {tell_both[1].text}"
        return Answer(text, {**self._facts, "verdict": "twice", "both": [story.facts for story in tell_both]})

    async def at(self, at: int) -> Answer:
        story = await self._story(at)
        return Answer(story.text, {**self._facts, **story.facts})

    async def latest(self) -> Answer:
        """The latest occurrence, and the next."""
        row, epochs = self._lives[-1], self._epochs[-1]
        removed_at = row["removed_at"]
        upto = min(self._now, removed_at) if is_instant(removed_at) else self._now
        found = None
        for epoch in reversed(epochs):
            end = upto if epoch.to_at is None else min(upto, epoch.to_at)
            found = self._rhythm(epoch).latest(end)
            if found is not None and found > epoch.from_at:
                break
            found = None
        if found is None:
            since = self._times.full(row["created_at"]) if is_instant(row["created_at"]) else "an unknown time"
            story = Story(
                f"{self._name} has not been due since it was registered at {since}.", {"verdict": "not due yet"}
            )
        else:
            story = await self._story(found)
        following = self._following(row, epochs)
        text = f"{story.text} {following[0]}"
        return Answer(text, {**self._facts, **story.facts, "next": following[1]})

    def _following(self, row: Mapping[str, Any], epochs: list[Epoch]) -> tuple[str, str | None]:
        if row["removed_at"] is not None:
            return f"Nothing comes next: it was removed at {self._times.full(row['removed_at'])}.", None
        coming = self._rhythm(epochs[-1]).after(self._now) if epochs else None
        if coming is None:
            return "Nothing comes next.", None
        text = f"The next occurrence is {self._times.full(coming)}, in {length(coming - self._now)}."
        return text, moment(coming).isoformat()

    # --- one instant --------------------------------------------------------------------------------------------------

    async def _story(self, at: int) -> Story:
        minute = self._minute(at)
        asked = {"asked": moment(minute).isoformat()}
        place = self._place(minute)
        if isinstance(place, Story):
            return Story(place.text, {**asked, **place.facts})
        row, epoch = place
        found = self._rhythm(epoch)
        if not found.has(minute):
            return await self._no_occurrence(row, epoch, minute)
        explainer = Explainer(self._store, row, epoch, found, times=self._times, now=self._now)
        story = await explainer.explain(minute)
        text = story.text + self._took_over(row, epoch, minute)
        return Story(text, {**asked, "spec": epoch.spec, "epoch": epoch.epoch, **story.facts})

    def _minute(self, at: int) -> int:
        second = at // SECOND
        return (second - (second + zone_of(self._times.zone).offset(second)) % 60) * SECOND

    def _place(self, minute: int) -> tuple[Mapping[str, Any], Epoch] | Story:
        """The registration and the epoch that hold a minute, or why there is none."""
        gone: Mapping[str, Any] | None = None
        for row, epochs in zip(self._lives, self._epochs, strict=True):
            if not epochs:
                raise StoreCorruptError(f"{self._name} has no epoch in the ledger; noonbell verify tells more")
            if minute <= epochs[0].from_at:
                return self._not_registered(row, gone, minute)
            removed_at = row["removed_at"]
            if removed_at is not None and minute > removed_at:
                gone = row
                continue
            for epoch in epochs:
                if epoch.to_at is None or minute <= epoch.to_at or (epoch is epochs[-1]):
                    return row, epoch
        assert gone is not None  # noqa: S101 - every registration was left behind, so there is a last one
        text = (
            f"{self._name} did not run at {self._times.full(minute)}, because it was not registered then: "
            f"it was removed at {self._times.full(gone['removed_at'])}."
        )
        return Story(text, {"verdict": "not registered", "removed_at": moment(gone["removed_at"]).isoformat()})

    def _not_registered(self, row: Mapping[str, Any], gone: Mapping[str, Any] | None, minute: int) -> Story:
        created = row["created_at"]
        facts = {"verdict": "not registered", "created_at": moment(created).isoformat()}
        came = f"it was registered at {self._times.full(created)}"
        if gone is not None:
            came = (
                f"it was removed at {self._times.full(gone['removed_at'])} and came back at {self._times.full(created)}"
            )
        text = f"{self._name} did not run at {self._times.full(minute)}, because it was not registered then: {came}."
        return Story(text, facts)

    async def _no_occurrence(self, row: Mapping[str, Any], epoch: Epoch, minute: int) -> Story:
        found = self._rhythm(epoch)
        before, after = found.latest(minute), found.after(minute)
        parts = []
        if before is not None and before > self._first(row):
            parts.append(f"the occurrence before it is {self._times.full(before)}")
        if after is not None:
            parts.append(f"the {'one' if parts else 'occurrence'} after it is {self._times.full(after)}")
        text = (
            f"{self._name} was not due at {self._times.full(minute)}, because that minute does not match "
            f'"{epoch.spec}" in {epoch.timezone}{"; " if parts else ""}{", ".join(parts)}.'
        )
        facts: dict[str, Any] = {
            "asked": moment(minute).isoformat(),
            "verdict": "no occurrence",
            "spec": epoch.spec,
            "epoch": epoch.epoch,
            "before": None if before is None else moment(before).isoformat(),
            "after": None if after is None else moment(after).isoformat(),
        }
        if row["spec"] != epoch.spec or row["timezone"] != epoch.timezone:
            since = next((e.from_at for e in self._epochs_of(row) if e.spec == row["spec"]), None)
            then = "" if since is None else f", from {self._times.full(_up(since))} on"
            text += f' Its expression was changed to "{row["spec"]}" ({row["timezone"]}) later{then}.'
        text += self._took_over(row, epoch, minute)
        manual = await self._store.runs(row["sid"], minute, minute + _MINUTE - 1, "manual")
        if manual:
            text += (
                f" A person asked for a run at {self._times.near(manual[0].run_for, minute)}; it {manual[0].outcome}."
            )
            facts["manual_runs"] = len(manual)
        return Story(text, facts)

    def _took_over(self, row: Mapping[str, Any], epoch: Epoch, minute: int) -> str:
        """An edit takes over where its predecessor was decided up to, which is before the edit itself."""
        declared = row["updated_at"]
        if epoch.epoch == 1 or epoch.epoch != row["epoch"] or row["removed_at"] is not None:
            return ""
        if not is_instant(declared) or minute >= declared:
            return ""
        said = self._times.near(declared, minute)
        return f' "{epoch.spec}" was declared at {said} and took over all that had not been decided by then.'

    def _gap(self, at: datetime, missing: timedelta) -> Answer:
        zone = self._times.zone
        # read with the offset before the change, a missing time lands after it, by less than what is missing
        landed = instant(at.replace(tzinfo=zone, fold=0).astimezone(UTC)) // SECOND
        change, _, _ = zone_of(zone).transitions(landed - missing // timedelta(seconds=1), landed + 1)[-1]
        resumed = moment(change * SECOND, zone)
        past = change * SECOND <= self._now
        text = (
            f"{self._name} {'did' if past else 'will'} not run at {at:%H:%M} on {at.date()}, because that time "
            f"{'did' if past else 'does'} not exist in {self._times.name}: the clocks {'went' if past else 'go'} "
            f"forward from {resumed - missing:%H:%M} to {resumed:%H:%M}."
        )
        place = self._place(change * SECOND)
        after = None if isinstance(place, Story) else self._rhythm(place[1]).after(change * SECOND - 1)
        if after is not None:
            text += f" The occurrence after it {'was' if after <= self._now else 'is'} {self._times.full(after)}."
        facts = {
            "verdict": "no such time",
            "asked": at.isoformat(),
            "clocks_changed_at": moment(change * SECOND).isoformat(),
        }
        return Answer(text, {**self._facts, **facts})

    def _rhythm(self, epoch: Epoch) -> Rhythm:
        found = by_clock(epoch.spec, epoch.timezone, terms_of(epoch.policies).dst)
        if isinstance(found, str):
            raise StoreCorruptError(f"{self._name}, epoch {epoch.epoch}: {found}")
        return found

    def _epochs_of(self, row: Mapping[str, Any]) -> list[Epoch]:
        return self._epochs[self._lives.index(row)]

    def _first(self, row: Mapping[str, Any]) -> int:
        return self._epochs_of(row)[0].from_at


def _up(at: int) -> int:
    """An epoch begins just after its from_at; a first one just before a minute, which is what people would say."""
    return at + 1 if (at + 1) % SECOND == 0 else at
