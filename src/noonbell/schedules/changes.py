"""The writes of a creation, an update, a pause or a deletion. Pure: instants and rows in, records out.

An edit first closes the running epoch, so that everything that was due before it has its verdict under the terms that
held then, and opens the next one at the same instant.
"""

from __future__ import annotations

import logging
import marshal
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

from noonbell.core.presence import Polls
from noonbell.core.records import (
    DEFAULT_TEAM,
    AuditEvent,
    DurableSchedule,
    Edit,
    Epoch,
    QuietHoursPolicy,
    ScheduleColumns,
    StoredSchedule,
    Turn,
)
from noonbell.core.turns import close, definition_of, drop, snapshot, timing_of
from noonbell.errors import ScheduleInvalidError
from noonbell.notify.notifier import Notifier
from noonbell.schedules.fields import (
    Written,
    check_id,
    check_team,
    first_anchor,
    keeps_anchor,
    moved_by,
    read_fields,
    read_like,
    require_future,
)
from noonbell.schedules.occurrences import written_terms
from noonbell.timing import jitter_us, parse_one_shot, rules_hash

logger = logging.getLogger("noonbell.schedules")

_encode = msgspec.json.Encoder().encode

_LAST_PLACE: Final = (1 << 80) - 1
_OWN: Final = frozenset({"schedule_id", "name", "payload"})


def created(
    schedule_id: str,
    columns: ScheduleColumns,
    now: int,
    *,
    enabled: bool,
    managed_by: str,
    lane: str,
    team: str = DEFAULT_TEAM,
) -> DurableSchedule:
    """A new schedule: its first occurrence is the first one after now."""
    anchor_at = first_anchor(columns, now)
    timing = timing_of(columns, anchor_at)
    require_future(columns, timing, now)
    following = timing.following(now) if enabled else None
    if following is not None:
        following += jitter_us(schedule_id, following, definition_of(columns.definition).jitter_us)
    return DurableSchedule(
        schedule_id=schedule_id,
        columns=columns,
        enabled=enabled,
        managed_by=managed_by,
        lane=lane,
        cursor_at=now,
        next_run_at=following,
        anchor_at=anchor_at,
        zone_hash=rules_hash(ZoneInfo(columns.timezone)),
        policies=written_terms(columns, anchor_at),
        team=team,
    )


class ScheduleFactory:
    """Makes the schedules that are created together, at one instant.

    Of many that differ in id, name and payload alone only the first is read whole: the others are like it.
    """

    def __init__(self, now: int, *, managed_by: str, lane: str, only_team: str | None = None) -> None:
        self._now = now
        self._only_team = only_team
        self._managed_by = managed_by
        self._lane = lane
        self._ids = new_ids(now)
        self._models: dict[bytes, tuple[DurableSchedule, str | None]] = {}

    def new(self, fields: Mapping[str, Any]) -> tuple[DurableSchedule, str | None]:
        """The schedule, and how its spec was understood if it was typed in another dialect."""
        schedule_id = check_id(fields["schedule_id"]) if "schedule_id" in fields else next(self._ids)
        key = _content({name: value for name, value in fields.items() if name not in _OWN})
        found = None if key is None else self._models.get(key)
        if found is None:
            columns, understood = read_fields(fields, None, default_name=schedule_id, now=self._now)
            model = created(
                schedule_id, columns, self._now, enabled=fields.get("enabled", True), managed_by=self._managed_by,
                lane=self._lane, team=self._team(fields),
            )  # fmt: skip
            if key is not None and not definition_of(columns.definition).jitter_us:
                self._models[key] = model, understood
            return model, understood
        model, understood = found
        columns = read_like(fields, model.columns, default_name=schedule_id)
        new = DurableSchedule(
            schedule_id, columns, model.enabled, self._managed_by, self._lane, self._now, model.next_run_at,
            model.anchor_at, model.zone_hash, model.policies, model.team,
        )  # fmt: skip
        return new, understood

    def _team(self, fields: Mapping[str, Any]) -> str:
        if "team" not in fields:
            return self._only_team or DEFAULT_TEAM
        team = check_team(fields["team"])
        if self._only_team not in (None, team):
            raise ScheduleInvalidError("team", team, f'must be "{self._only_team}" here, or be left out')
        return team


def new_ids(now: int) -> Iterator[str]:
    """Yield unique ids: 32 hexadecimal digits that begin with the time and grow, so that an index grows at its end.

    80 random bits, and from each id to the next a random step of up to 32: what is created together lies together in
    the indexes, and is written page by page.
    """
    begin, place, at_once = f"{now // 1_000:012x}", int.from_bytes(os.urandom(10)), 1
    while True:
        for step in memoryview(os.urandom(4 * at_once)).cast("I"):
            place = (place + step + 1) & _LAST_PLACE
            yield f"{begin}{place:020x}"
        at_once = 256  # a caller that wants a second one is likely to want many


def _content(fields: dict[str, Any]) -> bytes | None:
    """Bytes that are equal only where the fields are, types included; None where a field is of a type of its own."""
    try:
        return marshal.dumps(fields, 2)  # a version without references, whose bytes depend on the values alone
    except ValueError:
        return None


class EditBuilder:
    """An update in the making; called with each schedule inside the transaction.

    `polls` is when each lane was polled, which decides what was missed. With a `notifier` the rules for notifications
    apply to what the edit decides.
    """

    def __init__(
        self,
        fields: Mapping[str, Any],
        now: int,
        polls: Mapping[str, Polls],
        actor: str,
        *,
        notifier: Notifier | None = None,
    ) -> None:
        self._fields = fields
        self._notifier = notifier
        self.sent = False  # there are notices to deliver
        self._now = now
        self._polls = polls
        self._actor = actor
        self._models: dict[tuple[str | None, ...], Written] = {}
        self._details: dict[tuple[tuple[str | None, ...], ...], str] = {}
        self.understood: str | None = None
        self.wake_at: int | None = None  # the earliest wake-up that the edits have left

    def __call__(self, stored: StoredSchedule) -> Edit | None:
        written = self._written(stored.columns)
        self.understood = written.understood
        enabled = self._fields.get("enabled", stored.enabled or self._comes_again(stored, written.columns))
        if written.columns == stored.columns and enabled == stored.enabled:
            return None
        return self.edit(stored, written.columns, enabled=enabled)

    def _comes_again(self, stored: StoredSchedule, columns: ScheduleColumns) -> bool:
        """Return whether a one-shot that is off because it has had its time is given another one."""
        if columns.type != "one_shot" or moved_by(stored.columns, columns) is None or not _is_over(stored):
            return False
        # a new time that is over, too, is refused as it is for a new schedule
        return "spec" in self._fields or timing_of(columns, None).following(self._now) is not None

    def _written(self, before: ScheduleColumns) -> Written:
        """Return the requested columns over the present ones; many that are changed together differ in their names
        alone.
        """
        key = _like(before)
        found = self._models.get(key)
        if found is None:
            found = self._models[key] = read_fields(self._fields, before, now=self._now)
        if "name" in self._fields or found.columns.name == before.name:
            return found
        return Written(replace(found.columns, name=before.name), found.understood)

    def reopen(self, stored: StoredSchedule) -> Edit:
        """The same schedule in a new epoch: something that it refers to is about to change."""
        return self.edit(stored, stored.columns, enabled=stored.enabled)

    def edit(self, stored: StoredSchedule, columns: ScheduleColumns, *, enabled: bool) -> Edit:
        turn = close(stored, self._now, self._polls.get(stored.lane, Polls()).at(self._now))
        at = turn.cursor_at
        anchor_at = turn.anchor_at
        if not keeps_anchor(stored.columns, columns, at):
            anchor_at = first_anchor(columns, at)
        timing = timing_of(columns, anchor_at)
        moved = moved_by(stored.columns, columns)
        if enabled and (moved is not None or "spec" in self._fields or not stored.enabled):
            require_future(columns, timing, at, moved or "spec")
        turn.enabled = enabled and not (columns.type == "one_shot" and timing.following(at) is None)
        if columns.type == "one_shot" and not turn.enabled and (enabled or _is_over(stored)):
            turn.last_run_for = timing.latest(at) or turn.last_run_for  # see `is_expired`
        turn.anchor_at = anchor_at
        definition = definition_of(columns.definition)
        executing = any(live.state == "running" or live.kind == "manual" for live in stored.lives)
        following = timing.following(at) if turn.enabled else None
        if following is not None and (definition.overlap == "allow" or not executing):
            turn.next_run_at = following + jitter_us(stored.schedule_id, following, definition.jitter_us)
        else:
            turn.next_run_at = None
        self._notify(stored, turn, at)
        turn.audits.extend(self._events(stored, columns, at, enabled=enabled))
        epoch = Epoch(
            stored.sid, stored.epoch + 1, at, None, columns.spec, columns.timezone,
            rules_hash(ZoneInfo(columns.timezone)), written_terms(columns, anchor_at), enabled,
        )  # fmt: skip
        wakes = [turn.next_run_at, *(live.wake_at for live in (*turn.queued, *turn.put_off)), self.wake_at]
        self.wake_at = min((wake for wake in wakes if wake is not None), default=None)
        return Edit(at, turn, columns, epoch)

    def _notify(self, stored: StoredSchedule, turn: Turn, at: int) -> None:
        if self._notifier is None or not (turn.spans or turn.preempted):
            return
        try:
            turn.messages.extend(self._notifier.in_lane(stored.lane).of_turn(stored, turn, (), at))
        except Exception:
            logger.exception("notification rules failed, an edit gets no notices schedule=%r", stored.columns.name)
        self.sent = self.sent or bool(turn.messages)

    def _events(self, stored: StoredSchedule, columns: ScheduleColumns, at: int, *, enabled: bool) -> list[AuditEvent]:
        found = []
        if columns != stored.columns:
            found.append(self._event("updated", stored, at, self._detail(stored.columns, columns)))
        if enabled != stored.enabled:
            found.append(self._event("resumed" if enabled else "paused", stored, at, "{}"))
        return found

    def _detail(self, before: ScheduleColumns, after: ScheduleColumns) -> str:
        """Return the fields that differ, before and after."""
        key = (_like(before), _like(after))
        found = self._details.get(key) if before.name == after.name else None
        if found is None:
            old, new = _parts(before), _parts(after)
            changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            parts = {"before": {key: old.get(key) for key in changed}, "after": {key: new.get(key) for key in changed}}
            found = _encode(parts).decode()
            if before.name == after.name:
                self._details[key] = found
        return found

    def _event(self, event: str, stored: StoredSchedule, at: int, detail: str) -> AuditEvent:
        return AuditEvent(at, f"schedule.{event}", stored.schedule_id, self._actor, detail, stored.team)


def is_expired(stored: StoredSchedule, zone: ZoneInfo) -> bool:
    """Return whether a one-shot was decided at its instant; one that a person has switched off before then was not.

    Its cursor is at its instant until an edit moves it on, and `last_run_for` keeps the instant then, fired or not.
    """
    instant = parse_one_shot(stored.columns.spec, zone, stored=True)
    return not stored.enabled and instant in (stored.cursor_at, stored.last_run_for)


def _is_over(stored: StoredSchedule) -> bool:
    return is_expired(stored, ZoneInfo(stored.columns.timezone))


def deleted(stored: StoredSchedule, now: int, actor: str) -> Edit:
    """The end of a schedule."""
    turn = drop(stored, now)
    at = turn.cursor_at
    turn.audits.append(
        AuditEvent(at, "schedule.deleted", stored.schedule_id, actor, snapshot(stored.columns), stored.team),
    )
    return Edit(at, turn, stored.columns, None, [("signing_key", stored.schedule_id)])


def quiet_hours_event(
    at: int,
    actor: str,
    policy_id: str,
    *,
    before: QuietHoursPolicy | None = None,
    after: QuietHoursPolicy | None = None,
) -> AuditEvent:
    """Quiet hours that were created (`after` alone), updated (both) or deleted (`before` alone)."""
    was, will = _policy_parts(before), _policy_parts(after)
    event = "updated" if was and will else "created" if will else "deleted"
    detail = {"before": was, "after": will} if was and will else will or was or {}
    concerned = after or before
    team = None if concerned is None else concerned.team
    return AuditEvent(at, f"quiet_hours.{event}", policy_id, actor, _encode(detail).decode(), team)


def _policy_parts(policy: QuietHoursPolicy | None) -> dict[str, Any] | None:
    return None if policy is None else {"name": policy.name, **msgspec.json.decode(policy.document)}


def dead_letters_event(at: int, actor: str, event: str, team: str | None = None) -> Callable[[list[int]], AuditEvent]:
    """Return a function that makes the audit event of dead letters, once it is known which of them were there."""

    def event_of(numbers: list[int]) -> AuditEvent:
        detail = _encode({"numbers": numbers, "found": len(numbers)}).decode()
        return AuditEvent(at, event, "dead_letters", actor, detail, team)

    return event_of


def _like(columns: ScheduleColumns) -> tuple[str | None, ...]:
    """Return all columns but the name."""
    return (
        columns.type, columns.spec, columns.timezone, columns.quiet_hours_policy_id, columns.catch_up_policy,
        columns.payload, columns.definition,
    )  # fmt: skip


def _parts(columns: ScheduleColumns) -> dict[str, Any]:
    parts: dict[str, Any] = msgspec.structs.asdict(columns)
    parts.pop("definition")
    return {**parts, **msgspec.json.decode(columns.definition)}
