"""The parser of cron expressions: strict POSIX, five fields, nothing else.

A text in another dialect is refused; where the same schedule can be said in POSIX the error offers it.
"""

from __future__ import annotations

import re
from typing import Final

from noonbell.cron.cron_fields import FIELD_NAMES, FIELD_RANGES, MAX_TEXT, field_mask, mask_values
from noonbell.cron.days import can_match
from noonbell.cron.dialects import translate
from noonbell.cron.expression import CronExpression
from noonbell.errors import FieldParseError, InvalidCronExpressionError

_BLANKS: Final = re.compile(r"[ \t]+")


def parse(text: str) -> CronExpression:
    """Read a POSIX cron expression, or raise InvalidCronExpressionError."""
    if not isinstance(text, str):
        raise InvalidCronExpressionError(repr(text), "expression", f"must be text, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise InvalidCronExpressionError(text, _longest_field(text), f"is out of range: over {MAX_TEXT} characters")
    fields = text.split(" ")
    if len(fields) != 5 or "" in fields or "\t" in text:
        fields = _BLANKS.split(text.strip(" \t"))
    if len(fields) != 5:
        raise _refused(text, "expression", _count_reason(fields))
    minute, hour, day, month, weekday = fields
    try:
        masks = (
            field_mask(minute, "minute"),
            field_mask(hour, "hour"),
            field_mask(day, "day"),
            field_mask(month, "month"),
            field_mask(weekday, "weekday"),
        )
    except FieldParseError as error:
        raise _refused(text, error.field_name, str(error)) from error
    by_day, by_weekday = day != "*", weekday != "*"
    if by_day and not by_weekday and not can_match(masks[2], masks[3]):
        raise InvalidCronExpressionError(text, "expression", "never matches: no such day in any of these months")
    return CronExpression(text, masks, day_restricted=by_day, weekday_restricted=by_weekday)


def parse_field(text: str, field: str) -> frozenset[int]:
    """Read one field on its own, or raise FieldParseError."""
    if field not in FIELD_RANGES:
        raise FieldParseError(f"unknown field {field!r}; the fields are {', '.join(FIELD_NAMES)}", text, field)
    if not isinstance(text, str):
        raise FieldParseError(f"must be text, not {type(text).__name__}", text, field)
    return frozenset(mask_values(field_mask(text, field)))


def _longest_field(text: str) -> str:
    """Whom to blame for a text that is too long to be read."""
    fields = _BLANKS.split(text.strip(" \t"), maxsplit=5)
    if len(fields) != 5:
        return "expression"
    return max(zip(fields, FIELD_NAMES, strict=True), key=lambda pair: len(pair[0]))[1]


def _count_reason(fields: list[str]) -> str:
    if fields == [""]:
        return "is empty; 5 fields are needed: minute hour day month weekday"
    if fields[0].startswith("@"):
        return f"is a macro ({fields[0]!r:.40}); write the 5 fields: minute hour day month weekday"
    return f"must have exactly 5 fields separated by spaces or tabs, not {len(fields)}"


def _refused(text: str, field: str, reason: str) -> InvalidCronExpressionError:
    try:
        suggestion = translate(text)
    except InvalidCronExpressionError:
        suggestion = None
    return InvalidCronExpressionError(text, field, reason, suggestion)
