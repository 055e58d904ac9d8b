"""The watch over the rules of time zones.

For each zone that durable schedules use, the store remembers the rules that they were computed with: a hash, the
version of the zone data, and the compiled rules themselves, so that old and new can be compared after the old ones are
gone from the disk. Every hour they are compared with the zone data of this host, as it is on the disk then:

- the same rules, or other bytes for the same rules: nothing happens;
- newer rules: each schedule of the zone moves to a new epoch (`zone_rules.Move`). When all have, the new rules are
  remembered: a crash before that does the rest at the next start. A schedule that cannot be read by them stays as it
  is, which is logged;
- older rules than those remembered: this host must not undo what another has done. The zone is `outdated` here, and
  the engine leaves its schedules alone until the host has newer zone data.

The zones of quiet hours are watched as well: see `quiet_move`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from noonbell.background import PeriodicService
from noonbell.core.records import StoredSchedule
from noonbell.core.turns import quiet_zones
from noonbell.errors import ScheduleChangedError, ScheduleNotFoundError
from noonbell.ledger.ledger_rows import stored_zone_rules
from noonbell.ports import AuditFilter, Clock, Ledger, QuietChanges, QuietHoursPut, ScheduleChange, ScheduleFilter
from noonbell.schedules.quiet_move import QUIET_CHANGED, NewRules, QuietHoursHaveChangedError, QuietMove
from noonbell.schedules.zone_rules import Move, Rules, hash_of, is_older, refresh, zone_data

logger = logging.getLogger("noonbell.schedules")

_HOUR: Final = 3_600_000_000
_PAGE: Final = 500


class ZoneCheck(NamedTuple):
    """The result of a check: zones whose schedules have moved to new rules, and zones that are outdated here."""

    changed: list[str]
    outdated: frozenset[str]


class ZoneWatch(PeriodicService[ZoneCheck]):
    """Compares the rules that schedules were computed with to those of this host.

    `lock` is held while a zone changes: nothing must be decided by new rules in an old epoch.
    """

    def __init__(
        self,
        store: Ledger,
        clock: Clock,
        *,
        lock: asyncio.Lock | None = None,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(clock, _HOUR, at_once=False)  # an engine checks before it starts
        self.outdated: frozenset[str] = frozenset()
        self.lock = asyncio.Lock() if lock is None else lock
        self.on_change = on_change
        self._store = store

    async def run_once(self) -> ZoneCheck:
        """Bring schedules up to the rules of now."""
        changed, outdated = [], set()
        await self._learn()
        for timezone, text in sorted((await stored_zone_rules(self._store)).items()):
            before = Rules.read(text)
            found = zone_data(timezone)
            if found is None:
                logger.error(
                    "The zone data of this host has no rules for %s any more; its schedules cannot be decided", timezone
                )
                continue
            if found[0] == before.data:
                refresh(timezone, found[0])
                continue
            after = Rules(hash_of(timezone, found[0]), found[1], found[0])
            await asyncio.sleep(0)
            if after.zone_hash == before.zone_hash:
                refresh(timezone, found[0])
                if not is_older(after.version, before.version):
                    await self._store.schedules.apply(ScheduleChange(zone_rules={timezone: after.written()}))
            elif is_older(after.version, before.version):
                outdated.add(timezone)
            else:
                async with self.lock:
                    await self._change(timezone, before, after)
                changed.append(timezone)
        if new := outdated - self.outdated:
            logger.error(
                "The zone data of this host is older than what schedules were computed with; those in %s are left "
                "alone until it is brought up to date",
                ", ".join(sorted(new)),
            )
        self.outdated = frozenset(outdated)
        if changed:
            self.on_change()
        return ZoneCheck(changed, self.outdated)

    async def _learn(self) -> None:
        """Remember the rules of zones that quiet hours were written in before their zones were watched."""
        used = {zone for policy in await self._store.schedules.quiet_hours() for zone in quiet_zones(policy.document)}
        for timezone in used - (await stored_zone_rules(self._store)).keys():
            if (found := zone_data(timezone)) is not None:
                rules = Rules(hash_of(timezone, found[0]), found[1], found[0])
                await self._store.schedules.apply(ScheduleChange(zone_rules={timezone: rules.written()}))

    async def _change(self, timezone: str, before: Rules, after: Rules) -> None:
        refresh(timezone, after.data)
        move = Move(timezone, before, after, self._clock.now())
        after_sid, in_zone = 0, ScheduleFilter(timezone=timezone)
        while page := await self._store.schedules.find(in_zone, after_sid, _PAGE):
            waiting = [stored for stored in page if await self._is_waiting(stored, after.zone_hash)]
            moving: list[str] = []
            for stored in waiting:
                try:
                    move.expect(stored)
                except Exception:  # one bad row must not stop its neighbours
                    logger.exception("%r cannot be read by the new rules of %s", stored.columns.name, timezone)
                else:
                    moving.append(stored.schedule_id)
                await asyncio.sleep(0)
            try:
                await self._store.schedules.apply(ScheduleChange(edited=moving, edit=move))
            except (ScheduleNotFoundError, ScheduleChangedError):
                continue  # one was deleted, edited, or moved by another engine in between: read the page again
            after_sid = page[-1].sid
        silenced = 0
        for policy in await self._store.schedules.quiet_hours():
            if timezone in quiet_zones(policy.document):
                silenced += await self._change_quiet(policy.policy_id, move.rules)
        await self._store.schedules.apply(ScheduleChange(zone_rules={timezone: after.written()}))
        logger.warning(
            "The rules of %s have changed (zone data %s, now %s): %d schedules go on by the new ones, %d of them move "
            "in the coming year; so do the quiet hours of %d others",
            timezone, before.version or "unknown", after.version, move.concerned, move.moving, silenced,
        )  # fmt: skip

    async def _change_quiet(self, policy_id: str, rules: NewRules) -> int:
        """Take quiet hours and their schedules over to new rules; returns how many schedules that were."""
        while policies := await self._store.schedules.quiet_hours(policy_id):
            (policy,) = policies
            if not await self._store.schedules.find(ScheduleFilter(quiet_hours_policy_id=policy_id), 0, 1):
                return 0
            events = await self._store.audit.page(
                AuditFilter(policy_id, QUIET_CHANGED, from_at=policy.updated_at), 0, _PAGE
            )
            if any(msgspec.json.decode(event.detail)["zone_hash"] == rules.zone_hash for _, event in events):
                return 0  # by an attempt that was cut off afterwards
            now = max(self._clock.now(), policy.updated_at + 1)  # so that another engine sees that it has changed
            move = QuietMove(policy, rules, now)
            dated = replace(policy, updated_at=now)
            try:
                await self._store.schedules.apply(
                    ScheduleChange(
                        edit=move, quiet=QuietChanges([QuietHoursPut(dated, move.event(), policy.updated_at)])
                    )
                )
            except (QuietHoursHaveChangedError, ScheduleChangedError):
                continue
            return move.concerned
        return 0

    async def _is_waiting(self, stored: StoredSchedule, zone_hash: str) -> bool:
        """Return whether it has not been brought up to these rules yet, by an attempt that was cut off."""
        if stored.columns.type == "interval":
            return False
        epochs = await self._store.history.epochs(stored.sid)
        return not epochs or epochs[-1].zone_hash != zone_hash
