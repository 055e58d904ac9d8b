"""The payload of a schedule: a value that JSON can hold, and that an action gets back as it was given.

Whatever would come back as something else is refused, with its place: numbers that JSON has not, keys that are no
text, dates, objects of other types. A tuple comes back as a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from math import isfinite
from typing import Any, Final

import msgspec

from noonbell.errors import ScheduleInvalidError

LARGEST_PAYLOAD: Final = 256 * 1024
"""So many bytes a payload may have, as JSON."""

_FIELD: Final = "payload"
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def written_payload(value: Any) -> str | None:
    """The JSON of a payload; None where there is none."""
    if value is None:
        return None
    try:
        written = _encode(value)
        # most are equal to what is read back, and need no second look
        if _decode(written) != value:
            _check(value, _FIELD)
    except RecursionError:
        raise ScheduleInvalidError(_FIELD, type(value), "is nested too deeply, or in itself") from None
    except (TypeError, ValueError, OverflowError) as error:
        _check_deep(value)
        raise ScheduleInvalidError(_FIELD, value, f"cannot be written as JSON: {error}") from error
    if len(written) > LARGEST_PAYLOAD:
        reason = (
            f"has {len(written):,} bytes as JSON, and at most {LARGEST_PAYLOAD:,} (256 KiB) are kept; keep the data "
            "elsewhere, and where it is here"
        )
        raise ScheduleInvalidError(_FIELD, value, reason)
    return written.decode()


def _check_deep(value: Any) -> None:
    try:
        _check(value, _FIELD)
    except RecursionError:
        raise ScheduleInvalidError(_FIELD, type(value), "is nested too deeply, or in itself") from None


def _check(value: Any, place: str) -> None:
    if isinstance(value, Mapping):
        for key, one in value.items():
            if not isinstance(key, str):
                raise ScheduleInvalidError(place, key, f"is a key, not text; in JSON it would become {str(key)!r}")
            _check(one, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            _check(one, f"{place}[{number}]")
    elif (reason := _refused(value)) is not None:
        raise ScheduleInvalidError(place, value, reason)


def _refused(value: Any) -> str | None:
    """Why a plain value cannot be part of a payload."""
    if value is None or isinstance(value, int):
        return None
    if isinstance(value, float):
        return None if isfinite(value) else "is not a number that JSON can hold"
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return "must be text that UTF-8 can hold"
        return None
    if isinstance(value, datetime | date | time):
        return "is not JSON; write it as text: value.isoformat()"
    if isinstance(value, timedelta):
        return "is not JSON; write it as a number: value.total_seconds()"
    return f"is of the type {type(value).__name__}, which cannot be written as JSON; write it as text, number or list"
