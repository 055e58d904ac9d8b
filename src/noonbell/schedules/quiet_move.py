"""Quiet hours whose zone gets new rules: which occurrences they silence now, which they free, and the audit events of
it.

The windows stay as they are written; what they cover moves. Each schedule that refers to such quiet hours goes on in a
new epoch, in one transaction with the policy, which counts as new since then. A schedule of the zone itself has its new
epoch already. So has an interval in the midst of a catch-up none: what it counts from is not settled before its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from noonbell.core.records import AuditEvent, Edit, Epoch, QuietHoursPolicy, StoredSchedule, Turn
from noonbell.core.turns import ENGINE, definition_of, quiet_hours_of, timing_of
from noonbell.schedules.occurrences import written_terms
from noonbell.timing import QuietHours, jitter_us, rules_hash
from noonbell.timing.moved import Silence, moved_silence

QUIET_CHANGED: Final = "quiet_hours.zone_rules_changed"
_MOST_SHOWN: Final = 10
_encode = msgspec.json.Encoder().encode


class NewRules(NamedTuple):
    """A zone whose rules have changed; `old` is None where they are not known any more."""

    timezone: str
    old: ZoneInfo | None
    new: ZoneInfo
    versions: tuple[str, str]
    zone_hash: str
    differing: Sequence[tuple[int, int]]  # where the two differ in the coming year


class QuietHoursHaveChangedError(Exception):
    """The quiet hours were changed in between: they have to be read again. Never seen outside."""


class QuietMove:
    """Takes the schedules of one policy over to new rules; called with each inside the transaction."""

    def __init__(self, policy: QuietHoursPolicy, rules: NewRules, now: int) -> None:
        self.concerned = 0
        self._policy = policy
        self._rules = rules
        self._now = now
        self._counted: dict[tuple[str, str, str, str], dict[str, int]] = {}
        self._moved: list[Silence] | None = None
        if rules.old is not None:
            before, after = (self._in_zone(zone) for zone in (rules.old, rules.new))
            self._moved = moved_silence(before, after, rules.differing)

    def _in_zone(self, zone: ZoneInfo) -> QuietHours:
        windows = quiet_hours_of(self._policy.document).windows
        named = self._rules.timezone
        return QuietHours([replace(one, zone=zone) if str(one.zone) == named else one for one in windows])

    def event(self) -> AuditEvent:
        """Return the audit event of the quiet hours themselves: which stretches are quiet now, or are not any more."""
        detail = self._detail()
        detail["zone_hash"] = self._rules.zone_hash
        detail["moved"] = None if self._moved is None else len(self._moved)
        if self._moved is not None:
            detail["stretches"] = [part._asdict() for part in self._moved[:_MOST_SHOWN]]
        detail_text, policy = _encode(detail).decode(), self._policy
        return AuditEvent(self._now, QUIET_CHANGED, policy.policy_id, ENGINE, detail_text, policy.team)

    def __call__(self, stored: StoredSchedule) -> Edit | None:
        if stored.quiet != self._policy.document:
            raise QuietHoursHaveChangedError
        columns, interval = stored.columns, stored.columns.type == "interval"
        if (columns.timezone == self._rules.timezone and not interval) or (
            interval and stored.backlog_left is not None
        ):
            return None
        # an interval's epoch must not begin before what it counts from, and up to there all is decided
        at = max(stored.cursor_at, stored.anchor_at or 0) if interval else stored.cursor_at
        definition = definition_of(columns.definition)
        following = timing_of(columns, stored.anchor_at).following(at) if stored.enabled else None
        executing = any(live.state == "running" or live.kind == "manual" for live in stored.lives)
        turn = Turn(
            stored.sid, at, None, stored.enabled, stored.anchor_at, stored.last_run_for, stored.backlog_left,
            stored.backlog_until,
        )  # fmt: skip
        if following is not None and (definition.overlap == "allow" or not executing):
            turn.next_run_at = following + jitter_us(stored.schedule_id, following, definition.jitter_us)
        detail = self._detail() | {"quiet_hours": self._policy.policy_id} | self._counts(stored)
        detail_text = _encode(detail).decode()
        turn.audits.append(
            AuditEvent(self._now, "schedule.zone_rules_changed", stored.schedule_id, ENGINE, detail_text, stored.team)
        )
        epoch = Epoch(
            stored.sid, stored.epoch + 1, at, None, columns.spec, columns.timezone,
            rules_hash(ZoneInfo(columns.timezone)), written_terms(columns, stored.anchor_at), stored.enabled,
        )  # fmt: skip
        self.concerned += 1
        return Edit(at, turn, columns, epoch)

    def _detail(self) -> dict[str, Any]:
        before, after = self._rules.versions
        return {"timezone": self._rules.timezone, "before": before or None, "after": after}

    def _counts(self, stored: StoredSchedule) -> dict[str, int]:
        """Return how many occurrences of the coming year are silenced and freed; an interval's cannot be known."""
        columns = stored.columns
        if self._moved is None or columns.type == "interval":
            return {}
        key = (columns.type, columns.spec, columns.timezone, columns.definition)
        found = self._counted.get(key)
        if found is None:
            timing = timing_of(columns, stored.anchor_at)
            found = self._counted[key] = {"silenced": 0, "freed": 0}
            for part in self._moved:
                found["silenced" if part.quiet else "freed"] += timing.count(part.from_at - 1, part.to_at - 1)
        return found
