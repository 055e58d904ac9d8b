"""The rules of time zones: those of this host, those that schedules were computed with, and the move to new ones.

`zone_watch` finds out that the rules of a zone have changed. `Move` makes the edit of each schedule of that zone: it
goes on in a new epoch, which begins at its cursor, with an audit event that shows what moves in the coming year.
Intervals have no civil time, and are left as they are. For quiet hours see `quiet_move`.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.resources
import logging
import zlib
import zoneinfo
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources.abc import Traversable
from io import BytesIO
from pathlib import Path
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from noonbell.core.records import AuditEvent, Edit, Epoch, ScheduleColumns, StoredSchedule, Turn
from noonbell.core.turns import ENGINE, definition_of, quiet_hours_of, timing_of
from noonbell.errors import ScheduleChangedError
from noonbell.schedules.changes import is_expired
from noonbell.schedules.occurrences import written_terms
from noonbell.schedules.quiet_move import NewRules
from noonbell.timing import Bounded, OneShotTiming, Timing, cron_timing, jitter_us, parse_one_shot, rules_hash
from noonbell.timing.moved import YEAR, Moved, differing, moved_fires

logger = logging.getLogger("noonbell.schedules")

_PAGE: Final = 500
_encode = msgspec.json.Encoder().encode


class Rules(NamedTuple):
    """The rules of a zone as they are remembered; where only the hash is known, the rest is empty."""

    zone_hash: str
    version: str = ""
    data: bytes = b""

    @classmethod
    def read(cls, text: str) -> Rules:
        zone_hash, _, rest = text.partition(" ")
        version, _, packed = rest.partition(" ")
        return cls(zone_hash, version, zlib.decompress(base64.b64decode(packed)) if packed else b"")

    def written(self) -> str:
        packed = base64.b64encode(zlib.compress(self.data, 9)).decode()
        return f"{self.zone_hash} {self.version or '-'} {packed}"


# --- the zone data of this host ---------------------------------------------------------------------------------------


def zone_data(timezone: str) -> tuple[bytes, str] | None:
    """The compiled rules of a zone and the version of the zone data, found as `zoneinfo` finds them."""
    for folder in _folders():
        path = folder.joinpath(*timezone.split("/"))
        if path.is_file():
            return path.read_bytes(), _version_in(folder)
    return None


def zone_data_version() -> str:
    """The version of the zone data that this host goes by; "-" where it does not say."""
    return next((_version_in(folder) for folder in _folders() if folder.is_dir()), "-")


def _folders() -> Iterator[Traversable]:
    yield from map(Path, zoneinfo.TZPATH)
    with contextlib.suppress(ModuleNotFoundError):  # a host with zone data of its own can do without the package
        yield importlib.resources.files("tzdata").joinpath("zoneinfo")


def _version_in(folder: Traversable) -> str:
    for name in ("tzdata.zi", "+VERSION"):
        path = folder.joinpath(name)
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as lines:
                return lines.readline().removeprefix("# version ").strip() or "-"
    return "-"


def _zone(timezone: str, data: bytes) -> ZoneInfo:
    return ZoneInfo.from_file(BytesIO(data), key=timezone)


@lru_cache(maxsize=1024)
def hash_of(timezone: str, data: bytes) -> str:
    return rules_hash(_zone(timezone, data))


_read: Final[dict[str, bytes]] = {}  # the rules that this process goes by, as far as they have been looked at


def refresh(timezone: str, data: bytes) -> None:
    """Let this process go by these rules, whatever it has read of the zone before."""
    if _read.get(timezone) != data:
        ZoneInfo.clear_cache(only_keys=[timezone])
        quiet_hours_of.cache_clear()
        _read[timezone] = data


def is_older(version: str, than: str) -> bool:
    """Versions are a year and a letter, such as 2026a; one that is not known is neither older nor newer."""
    return version[:1].isdigit() and than[:1].isdigit() and version < than


class Move:
    """Takes schedules over to new rules; called with each inside the transaction."""

    def __init__(self, timezone: str, before: Rules, after: Rules, now: int) -> None:
        self.concerned = 0
        self.moving = 0
        self._before, self._after = before, after
        self._old = _zone(timezone, before.data) if before.data else None
        self._new = _zone(timezone, after.data)
        self._now = now
        self._stretches = [] if self._old is None else differing(self._old, self._new, now, now + YEAR)
        self._moved: dict[tuple[str, str, str], Moved] = {}
        self._expected: dict[int, int] = {}
        self.rules = NewRules(
            timezone, self._old, self._new, (before.version, after.version), after.zone_hash, self._stretches
        )

    def expect(self, stored: StoredSchedule) -> None:
        """This one is to be moved, as it was read; ScheduleChangedError where it is in another epoch by then.

        Raises the errors of its kind where it cannot be read.
        """
        timing_of(stored.columns, stored.anchor_at)
        self.prepare(stored.columns)
        self._expected[stored.sid] = stored.epoch

    def prepare(self, columns: ScheduleColumns) -> Moved | None:
        """Return the occurrences of a schedule that move; None where the old rules are not known any more."""
        if self._old is None:
            return None
        key = (columns.type, columns.spec, columns.definition)
        found = self._moved.get(key)
        if found is None:
            old, new = _timing(columns, self._old), _timing(columns, self._new)
            found = self._moved[key] = moved_fires(old, new, self._stretches)
        return found

    def __call__(self, stored: StoredSchedule) -> Edit:
        if stored.epoch != self._expected[stored.sid]:
            raise ScheduleChangedError(stored.schedule_id)
        columns, at = stored.columns, stored.cursor_at
        definition = definition_of(columns.definition)
        following = timing_of(columns, stored.anchor_at).following(at) if stored.enabled else None
        executing = any(live.state == "running" or live.kind == "manual" for live in stored.lives)
        turn = Turn(
            stored.sid, at, None, stored.enabled, stored.anchor_at, stored.last_run_for, stored.backlog_left,
            stored.backlog_until,
        )  # fmt: skip
        if following is not None and (definition.overlap == "allow" or not executing):
            turn.next_run_at = following + jitter_us(stored.schedule_id, following, definition.jitter_us)
        elif following is None and columns.type == "one_shot":
            turn.enabled = False  # its instant lies before the cursor now, which nothing goes back behind
            if stored.enabled or (self._old is not None and is_expired(stored, self._old)):
                turn.last_run_for = parse_one_shot(columns.spec, self._new, stored=True)
        turn.audits.append(self._change_event(stored, still_due=following is not None))
        epoch = Epoch(
            stored.sid, stored.epoch + 1, at, None, columns.spec, columns.timezone, self._after.zone_hash,
            written_terms(columns, stored.anchor_at), turn.enabled,
        )  # fmt: skip
        return Edit(at, turn, columns, epoch)

    def _change_event(self, stored: StoredSchedule, *, still_due: bool) -> AuditEvent:
        moved = self.prepare(stored.columns)
        self.concerned += 1
        detail: dict[str, Any] = {
            "timezone": stored.columns.timezone,
            "before": self._before.version or None,
            "after": self._after.version,
            "moved": None if moved is None else moved.fires,
        }
        if moved is not None:
            self.moving += bool(moved.fires)
            detail["fires"] = [{"before": before, "after": after} for before, after in moved.shown]
            if moved.more:
                detail["more"] = True
        if stored.columns.type == "one_shot" and stored.enabled and not still_due:
            detail["reason"] = "by the new rules its instant is over; it is disabled"
        return AuditEvent(
            self._now, "schedule.zone_rules_changed", stored.schedule_id, ENGINE, _encode(detail).decode(), stored.team
        )


def _timing(columns: ScheduleColumns, zone: ZoneInfo) -> Timing:
    definition = definition_of(columns.definition)
    timing: Timing
    if columns.type == "cron":
        timing = cron_timing(columns.spec, zone, definition.dst)
    else:
        timing = OneShotTiming(parse_one_shot(columns.spec, zone, stored=True))
    if definition.start_at is None and definition.end_at is None:
        return timing
    return Bounded(timing, definition.start_at, definition.end_at)
