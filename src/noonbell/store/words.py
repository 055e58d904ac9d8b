"""The words that `runs` and `attempts` keep as numbers in both SQL stores: the number of a word is its place.

Numbers are never changed and never used again: a new word is added at the end.
"""

from __future__ import annotations

from typing import Final

from noonbell.core.records import Cause, Kind, Outcome

KINDS: Final[tuple[Kind, ...]] = ("manual", "scheduled")  # in the order of the words: keys sort alike
OUTCOMES: Final[tuple[Outcome, ...]] = ("succeeded", "failed", "abandoned", "unknown")
CAUSES: Final[tuple[Cause, ...]] = (
    "cron", "retry", "orphan", "manual", "api", "manual_once", "api_once", "api_retry", "one_shot",
)  # fmt: skip
MANUAL: Final = KINDS.index("manual")
SCHEDULED: Final = KINDS.index("scheduled")
SUCCEEDED: Final = OUTCOMES.index("succeeded")
