"""`Retry-After` of an answer with status 429 or 503: when it asks to be tried again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from noonbell.core.instants import EPOCH, MICROSECOND

STATUSES: Final = frozenset({429, 503})
_SECONDS: Final = re.compile(r"[0-9]{1,12}", re.ASCII)


def retry_after_us(status: int, headers: Sequence[tuple[str, str]], now: int) -> int | None:
    """Return how many microseconds after `now` the answer asks to be tried again; None if it does not say.

    Written as seconds, or as a date by this machine's clock. What cannot be read, or lies in the past, says nothing.
    How long it may be is for the retry policy.
    """
    if status not in STATUSES:
        return None
    written = next((value.strip() for name, value in headers if name.lower() == "retry-after"), "")
    if _SECONDS.fullmatch(written):
        asked = int(written) * 1_000_000
    else:
        try:
            date = parsedate_to_datetime(written)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        at = date.replace(tzinfo=UTC) if date.tzinfo is None else date
        asked = (at - EPOCH) // MICROSECOND - now
    return asked if asked > 0 else None
