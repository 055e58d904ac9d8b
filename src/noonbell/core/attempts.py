"""The attempts of a run that the ledger records. Pure.

A run may be tried without end. Its first FIRST_KEPT attempts stay on record, and its last LAST_KEPT; when an attempt is
recorded, what lies between goes. How many went is known from the numbers of those that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from noonbell.core.records import Attempt

FIRST_KEPT: Final = 5
LAST_KEPT: Final = 20


def upto_omitted(attempt: int) -> int:
    """Return the last number to omit when this attempt is recorded; nothing is omitted up to FIRST_KEPT."""
    return attempt - LAST_KEPT


def omitted(recorded: Sequence[Attempt]) -> int:
    """Count the attempts of one run that were omitted from its record."""
    last = max((one.attempt for one in recorded), default=0)
    between = sum(FIRST_KEPT < one.attempt <= upto_omitted(last) for one in recorded)
    return max(upto_omitted(last) - FIRST_KEPT - between, 0)
