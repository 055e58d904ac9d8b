"""The minute and the hour field: which times of a day a phrase names, where cron can say them.

Cron multiplies: every minute of its list in every hour of its list. Times that do not form such a product are
refused, because the nearest expression would fire at other times as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from noonbell.language.phrase import Clock, EveryUnits, Share, Window
from noonbell.language.sense import Sense

_DAY: Final = 1440
_ALL_HOURS: Final = frozenset(range(24))

Fields = tuple[frozenset[int], frozenset[int]]


def time_fields(sense: Sense) -> Fields:
    """The minutes and the hours."""
    phrase = sense.phrase
    _refuse_unused(sense)
    _refuse_vague_part(sense)
    if phrase.times:
        return _times(sense)
    if phrase.share is not None and phrase.share.unit in ("day", "hour"):
        return _share(sense, phrase.share)
    if phrase.minutes is not None:
        return _minutes(sense, phrase.minutes.values)
    if phrase.recurrence is not None:
        return _recurrence(sense, phrase.recurrence)
    if phrase.hours is not None:
        raise sense.refusal(
            "say how often in these hours", phrase.hours.place, ("every 15 minutes during hours 9 to 17",)
        )
    sense.notes.append("no time was named: 00:00")
    return frozenset({0}), frozenset({0})


_HOUR_OF: Final = {"morning": "9am", "afternoon": "3pm", "evening": "8pm"}


def _refuse_vague_part(sense: Sense) -> None:
    """A part of the day settles what a plain 8 is. Alone it is not a time, but for the night: it begins at midnight."""
    phrase = sense.phrase
    if phrase.day_part is None or phrase.times or phrase.window is not None:
        return
    part, place = phrase.day_part
    if phrase.recurrence is not None or phrase.minutes is not None or phrase.share is not None:
        reason = f"the {part} has no first and no last hour; say which are meant"
        raise sense.refusal(reason, place, ("from 6am to 11am",))
    if part != "night":
        reason = f"the {part} has no time of its own; say which"
        raise sense.refusal(reason, place, ("a time, such as 9am",), (f"{phrase.text} at {_HOUR_OF[part]}",))


def _refuse_unused(sense: Sense) -> None:
    """Refuse parts without a meaning in this phrase."""
    phrase = sense.phrase
    window, anchor = phrase.window, phrase.anchor
    if window is not None and (phrase.recurrence is None or phrase.times) and not phrase.minutes:
        words = f"every hour from {sense.said(window.first.place)} to {sense.said(window.last.place)}"
        wide = sense.cursor.widened(window.place)
        before = phrase.text[: wide.start].rstrip()
        announced = before.lower().endswith(("from", "between", "at"))
        opening = before[: -len(before.split()[-1])] if announced else f"{before} "
        suggestion = f"{opening}{words}{phrase.text[wide.end :]}".strip()
        raise sense.refusal(
            "say how often in this stretch", window.place, ("every hour", "every 15 minutes"), (suggestion,)
        )
    if anchor is not None and (phrase.recurrence is None or phrase.times or window is not None):
        reason = "a stretch has an end as well, and a beginning alone needs a recurrence"
        said = sense.said(anchor.place)
        accepted = (f"from {said} to 11pm", f"every 2 hours from {said}")
        raise sense.refusal(reason, anchor.place, accepted, sense.instead(anchor.place, f"{said} to 11pm"))
    if phrase.recurrence is not None and phrase.times:
        place = phrase.times[0].place
        reason = f"'{sense.said(phrase.recurrence.place)}' is not one time of the day; a stretch of it can be said"
        said = sense.said(place)
        raise sense.refusal(reason, place, ("from 9am to 5pm", ":15"), (f"every day at {said}",))


# --- times ------------------------------------------------------------------------------------------------------------


def _times(sense: Sense) -> Fields:
    phrase = sense.phrase
    for clock in phrase.times:
        if clock.second:
            near = sense.instead(clock.place, f"{clock.hour:02}:{clock.minute:02}")
            raise sense.refusal("cron has no seconds", clock.place, ("hours and minutes",), near)
    for extra in (phrase.minutes, phrase.hours):
        if extra is not None:
            raise sense.refusal("times of the day were said already", extra.place)
    at = {clock.hour * 60 + clock.minute for clock in phrase.times}
    share = phrase.share
    if share is not None and (share.unit == "hour" or (share.unit == "day" and share.count != len(at))):
        reason = f"that is {share.count} times, and {len(at)} of them have a time"
        raise sense.refusal(reason, share.place, (), sense.instead(share.place, "every day"))
    fields = product(at)
    if fields is None:
        place = phrase.times[0].place.to(phrase.times[-1].place)
        also = sorted({h * 60 + m for h in {t // 60 for t in at} for m in {t % 60 for t in at}} - at)
        listed = ", ".join(hhmm(time) for time in also[:3])
        reason = f"cron cannot say just these times: it would also fire at {listed}; make a schedule for each"
        raise sense.refusal(reason, place, (), sense.instead(place, *(sense.said(c.place) for c in phrase.times[:2])))
    return fields


def product(at: Iterable[int]) -> Fields | None:
    """The fields that give exactly these minutes of the day, where there are any."""
    wanted = frozenset(at)
    minutes, hours = frozenset(t % 60 for t in wanted), frozenset(t // 60 for t in wanted)
    return (minutes, hours) if len(minutes) * len(hours) == len(wanted) else None


def hhmm(minute: int) -> str:
    return f"{minute // 60 % 24:02}:{minute % 60:02}"


def _share(sense: Sense, share: Share) -> Fields:
    phrase = sense.phrase
    if phrase.recurrence or phrase.minutes or phrase.hours:
        raise sense.refusal("how often is said twice", share.place)
    size = 24 if share.unit == "day" else 60
    if share.count > size or size % share.count:
        near = [n for n in range(2, size + 1) if size % n == 0]
        close = sorted(sorted(near, key=lambda n: abs(n - share.count))[:2])
        words = [f"{n} times {'a day' if share.unit == 'day' else 'an hour'}" for n in close]
        unit = "24 hours" if share.unit == "day" else "60 minutes"
        reason = f"{share.count} times do not divide {unit} evenly"
        raise sense.refusal(reason, share.place, tuple(words), sense.instead(share.place, *words))
    step = size // share.count
    values = frozenset(range(0, size, step))
    if share.unit == "hour":
        listed = _said([f":{minute:02}" for minute in sorted(values)])
        sense.notes.append(f"{sense.said(share.place)}: at {listed} of every hour")
        return values, _ALL_HOURS
    sense.notes.append(f"{sense.said(share.place)}: {_said([f'{hour:02}:00' for hour in sorted(values)])}")
    return frozenset({0}), values


def _said(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


# --- minutes of hours, recurrences, stretches -------------------------------------------------------------------------


def _minutes(sense: Sense, minutes: frozenset[int]) -> Fields:
    phrase = sense.phrase
    recurrence = phrase.recurrence
    if phrase.anchor is not None:
        raise sense.refusal("the minutes are known already", phrase.anchor.place, ("from 9am to 5pm",))
    if phrase.hours is not None and (phrase.window is not None or recurrence is not None):
        raise sense.refusal("the hours were said twice", phrase.hours.place)
    if recurrence is not None and recurrence.unit != "hour":
        place = phrase.minutes.place if phrase.minutes else recurrence.place
        reason = f"'{sense.said(recurrence.place)}' has minutes of its own"
        raise sense.refusal(reason, place, (), sense.instead(recurrence.place, "every hour"))
    if phrase.window is not None:
        first, end = _bounds(phrase.window)
        if recurrence is not None and recurrence.count > 1:
            raise sense.refusal(
                "cron cannot count hours from minutes within a stretch", recurrence.place, ("every hour",)
            )
        at = [time for time in range(first, end + 1) if time % 60 in minutes]
        return _exactly(sense, phrase.window, at, 60)
    if phrase.hours is not None:
        return minutes, phrase.hours.values
    if recurrence is None:
        sense.notes.append("no hour was named: every hour")
        return minutes, _ALL_HOURS
    return minutes, _even_hours(sense, recurrence, recurrence.count)


def _recurrence(sense: Sense, recurrence: EveryUnits) -> Fields:
    phrase = sense.phrase
    step = recurrence.count * (60 if recurrence.unit == "hour" else 1)
    if phrase.window is not None:
        first, end = _bounds(phrase.window)
        if phrase.hours is not None:
            raise sense.refusal("the hours were said twice", phrase.hours.place)
        return _exactly(sense, phrase.window, list(range(first, end + 1, step)), step)
    start = 0 if phrase.anchor is None else phrase.anchor.hour * 60 + phrase.anchor.minute
    if step >= 60:
        if phrase.hours is not None and step == 60:
            return frozenset({start % 60}), phrase.hours.values
        if phrase.hours is not None:
            raise sense.refusal("the hours were said twice", phrase.hours.place, ("every hour",))
        return frozenset({start % 60}), _even_hours(sense, recurrence, step // 60, start // 60)
    if start >= 60 and phrase.anchor is not None:
        said = sense.said(phrase.anchor.place)
        near = sense.instead(phrase.anchor.place, f"{said} to 11:59pm")
        raise sense.refusal("say where the stretch ends, too", phrase.anchor.place, (f"from {said} to 5pm",), near)
    minutes = frozenset((start + time) % 60 for time in range(0, 60, step))
    return minutes, _ALL_HOURS if phrase.hours is None else phrase.hours.values


def _even_hours(sense: Sense, recurrence: EveryUnits, step: int, start: int = 0) -> frozenset[int]:
    if 24 % step or step == 24:
        near = sorted(sorted((n for n in (1, 2, 3, 4, 6, 8, 12)), key=lambda n: abs(n - step))[:2])
        words = [f"every {n} hours" if n > 1 else "every hour" for n in near]
        reason = f"{step} hours do not divide the day evenly"
        raise sense.refusal(reason, recurrence.place, tuple(words), sense.instead(recurrence.place, *words))
    return frozenset((start + hour) % 24 for hour in range(0, 24, step))


def _bounds(window: Window) -> tuple[int, int]:
    """The first and the last minute; beyond 1440 where the stretch runs over midnight."""
    first, last = _minute(window.first), _minute(window.last)
    return first, last if last > first else last + _DAY


def _minute(clock: Clock) -> int:
    return clock.hour * 60 + clock.minute


def _exactly(sense: Sense, window: Window, at: list[int], step: int) -> Fields:
    """The fields of a stretch, both ends included; its last minute is left out where only that makes it a product."""
    phrase = sense.phrase
    first, end = _bounds(window)
    if window.first.second or window.last.second:
        raise sense.refusal("cron has no seconds", window.place, ("hours and minutes",))
    if end - first == _DAY:
        raise sense.refusal("the stretch ends where it begins", window.place, ("two different times",))
    if end > _DAY and (phrase.weekdays or phrase.days or phrase.dates):
        reason = "the stretch runs over midnight, and cron would not carry its days over; make a schedule for each part"
        near = sense.instead(window.last.place, "23:59")
        raise sense.refusal(reason, window.place, ("a stretch within one day",), near)
    alone = product(_of_day(at)) is None and at[-1:] == [end]
    kept = [time for time in at if time != end] if end == _DAY or alone else at
    fields = product(_of_day(kept)) if kept else None
    if fields is None:
        low, high = first - first % 60, end + 59 - end % 60
        last = low + (high - low) // step * step
        words = f"{hhmm(low)} {'and' if 'between' in phrase.text.lower() else 'to'} {hhmm(last)}"
        reason = "cron cannot begin or end this recurrence in the middle of an hour"
        raise sense.refusal(reason, window.place, (words,), sense.instead(window.place, words))
    if len(kept) < len(at):
        why = "belongs to the next day" if end == _DAY else "cannot be added by cron without others of its hour"
        sense.notes.append(f"the last one is at {hhmm(kept[-1])}: {hhmm(end)} {why}")
    elif kept[-1] != end:
        sense.notes.append(f"the last one is at {hhmm(kept[-1])}")
    return fields


def _of_day(at: list[int]) -> list[int]:
    return [time % _DAY for time in at]
