"""Reading and formatting of time zones and instants.

The current time is passed in; nothing here reads a clock.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import tzlocal

from noonbell.cli.cli_errors import CliError
from noonbell.cron import zone_of
from noonbell.errors import LanguageError
from noonbell.language.time_phrases import read_time
from noonbell.timing.zone_names import near_zones

_FORM = (
    "ISO-8601, such as 2026-11-01T01:30 (in the zone), 2026-11-01T01:30-04:00 or 2026-11-01, or English, such as "
    "yesterday at 9, 2 hours ago or 1 march 2027"
)


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a listing: `at` is shown, and occurrences strictly after `after` are listed.

    The two differ only if the given time does not exist; `remark` describes the effect of the clock change.
    """

    at: datetime
    after: datetime
    given: bool
    remark: str | None = None


def find_zone(name: str | None, *, as_json: bool) -> tzinfo:
    """Return the named IANA zone, or the host's."""
    if name is None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # tzlocal warns where a host has no zone at all; UTC is right then
                return tzlocal.get_localzone()
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            message = f"The host's time zone cannot be read ({error}); name one with --tz"
            raise CliError(message, {"option": "--tz"}, as_json=as_json) from error
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        near = near_zones(name)
        message = f'Unknown time zone "{name}"'
        hint = f"Did you mean {' or '.join(near)}?" if near else "Right is an IANA name, such as Europe/Kyiv or UTC"
        facts = {"option": "--tz", "value": name, "suggestions": near}
        raise CliError(message, facts, (hint,), as_json=as_json) from None


def find_start(text: str | None, zone: tzinfo, now: datetime, *, as_json: bool) -> Start:
    """Return the instant of --from, or now, in the zone."""
    if text is None:
        here = now.astimezone(zone)
        return Start(here, here, given=False)
    try:
        typed = read_time(text, now.astimezone(zone))
        if typed.tzinfo is not None:
            there = typed.astimezone(zone)
            return Start(there, there, given=True)
        return _civil_start(typed, zone)
    except (LanguageError, ValueError, OverflowError) as error:
        facts = {"option": "--from", "value": text, "right": _FORM}
        reason = error.reason if isinstance(error, LanguageError) else error
        message = f'--from "{text}" is not a time: {reason}'
        raise CliError(message, facts, (f"Right is {_FORM}",), as_json=as_json) from error


def _civil_start(typed: datetime, zone: tzinfo) -> Start:
    first, second = typed.replace(tzinfo=zone, fold=0), typed.replace(tzinfo=zone, fold=1)
    before, after = first.utcoffset(), second.utcoffset()
    if before is None or after is None or before == after:
        return Start(first, first, given=True)
    if after < before:
        remark = f"{typed:%H:%M} comes twice on {typed.date()}: counted from the first, {offset_text(first)}"
        return Start(first, first, given=True, remark=remark)
    # the clocks go forward over it: the moment they do is shown as the start, and may be an occurrence itself
    earliest, latest = int(second.timestamp()), int(first.timestamp())
    change = zone_of(zone).transitions(earliest, latest + 1)[0][0]
    resumed = datetime.fromtimestamp(change, zone)
    remark = f"{typed:%H:%M} does not exist on {typed.date()}: counted from {resumed:%H:%M}, which is included"
    just_before = datetime.fromtimestamp(change - 1, zone)
    return Start(resumed, just_before, given=True, remark=remark)


def offset_text(at: datetime) -> str:
    """Return the UTC offset and the zone's short name, if it has one: `-04:00 EDT`."""
    offset = at.isoformat()[len(at.replace(tzinfo=None).isoformat()) :]
    name = at.tzname() or ""
    return f"{offset} {name}" if name.isalpha() else offset


def span_text(span: timedelta) -> str:
    """Return a length of time in its two largest units: `3 h 20 min`."""
    minutes = span // timedelta(minutes=1)
    if minutes < 1:
        return "less than a minute"
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    years, days = divmod(days, 365)
    units = [(years, "y"), (days, "d"), (hours, "h"), (minutes, "min")]
    first = next(index for index, (count, _) in enumerate(units) if count)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2] if count)
