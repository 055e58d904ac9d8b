"""`parse`: the meaning of a text in English or cron.

A refusal offers similar phrases. They are tried before they are offered: each one is understood, so a user who
takes it is not refused again. A typo in several words is corrected word by word.
"""

from __future__ import annotations

import re
from datetime import datetime, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from noonbell.cron import translate
from noonbell.errors import LanguageError, NaiveDatetimeError
from noonbell.language.describe import describe
from noonbell.language.grammar import read_phrase
from noonbell.language.meaning import meaning_of
from noonbell.language.sense import Sense
from noonbell.language.understood import ScheduleFields, Understood
from noonbell.language.zone_words import zone_named

_CRON_PART: Final = re.compile(r"[0-9*?][0-9*?,/#-]*")
_MOST_SUGGESTIONS: Final = 3
_MOST_TRIES: Final = 24
_DEEPEST: Final = 3  # words that are mended one after the other


def parse(text: str, *, now: datetime, timezone: str | tzinfo = "UTC") -> Understood:
    """Return the meaning of a text at `now`, in the zone that it names or else in `timezone`.

    Raises LanguageError where English is not understood, InvalidCronExpressionError for a cron expression, and
    ScheduleInvalidError for a `timezone` that is none.
    """
    if not isinstance(text, str):
        raise LanguageError(repr(text), 0, len(repr(text)), f"must be text, not {type(text).__name__}")
    if now.utcoffset() is None:
        raise NaiveDatetimeError(now)
    name = timezone if isinstance(timezone, str) else str(timezone)
    zone = zone_named(timezone) if isinstance(timezone, str) else timezone
    if looks_like_cron(text):
        posix = translate(text)
        return Understood(text, "cron", posix, name, zone_named=False, description=describe(posix), language="cron")
    try:
        return _understand(text, now, name, zone)
    except LanguageError as error:
        suggestions = _tried(error, now, name, zone)
        raise LanguageError(error.text, error.position, error.end, error.reason, error.accepted, suggestions) from None


def schedule_fields(text: str, *, now: datetime, timezone: str = "UTC") -> ScheduleFields:
    """The `type`, `spec` and `timezone` to create a schedule with; raises as `parse` does."""
    return parse(text, now=now, timezone=timezone).fields


def looks_like_cron(text: str) -> bool:
    """Return whether a text is to be read as a cron expression: macros, and fields of numbers and stars."""
    parts = text.split()
    if not parts:
        return False
    if parts[0].startswith("@") or any("*" in part for part in parts):
        return True
    return len(parts) > 1 and all(_CRON_PART.fullmatch(part) for part in parts[:2])


def _understand(text: str, now: datetime, name: str, zone: tzinfo) -> Understood:
    cursor, phrase = read_phrase(text)
    if phrase.zone is not None:
        name = phrase.zone[0]
        zone = ZoneInfo(name)
    sense = Sense(cursor, phrase, now.astimezone(zone), zone)
    kind, spec, description = meaning_of(sense)
    return Understood(text, kind, spec, name, phrase.zone is not None, description, tuple(dict.fromkeys(sense.notes)))


def _tried(error: LanguageError, now: datetime, name: str, zone: tzinfo) -> tuple[str, ...]:
    """Of the candidates those that are understood; one that fails elsewhere is mended there in turn."""
    found: list[str] = []
    queue = [(text, 1) for text in error.suggestions]
    seen = {error.text}
    for _ in range(_MOST_TRIES):
        if not queue or len(found) == _MOST_SUGGESTIONS:
            break
        candidate, depth = queue.pop(0)
        text = " ".join(candidate.split())
        if text in seen:
            continue
        seen.add(text)
        try:
            _understand(text, now, name, zone)
        except LanguageError as next_error:
            if depth < _DEEPEST:
                queue += [(following, depth + 1) for following in next_error.suggestions]
        else:
            found.append(text)
    return tuple(found)
