"""Whether the history of a schedule hangs together, in two numbers.

A schedule names the run that ended last, each run the one that ended before it, and the first one of all names nobody.
So of n kept runs there are n + 1 names, and each run is named once: what is named less what is there leaves nothing, or
the one pruned run that the oldest kept one names. Adding up is enough to see that, in any order and without keeping the
runs. Two mistakes that cancel each other out to the microsecond are not seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from noonbell.ledger.reading import is_instant, iso


class Chain:
    """The history of one schedule; its runs are added as they come by."""

    __slots__ = ("_ends", "_kept", "_rest", "_row")

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row
        self._rest = 0
        self._ends = 0
        self._kept = 0
        self._name(row["last_ended_for"], row["last_ended_manual"])

    def add(self, run_for: int, kind: str, prev_for: object, prev_manual: object) -> None:
        """A kept run, and the one that it names."""
        self._kept += 1
        self._rest -= 2 * run_for + (kind == "manual")
        self._name(prev_for, prev_manual)

    def _name(self, run_for: object, manual: object) -> None:
        if type(run_for) is int and manual in (0, 1):
            self._rest += 2 * run_for + (manual == 1)
        elif run_for is None:
            self._ends += 1
        else:
            self._ends = -1 << 62  # damage: never right again

    def wrong(self) -> str | None:
        """What is wrong, once all runs have come by."""
        ended, succeeded = self._row["ended_runs"], self._row["succeeded_runs"]
        if type(ended) is not int or type(succeeded) is not int or not 0 <= succeeded <= ended:
            return f"it counts {ended!r} ended runs, {succeeded!r} of them successful, which cannot be"
        if self._kept > ended:
            return f"it counts {ended} ended runs, but {self._kept} are there"
        if self._rest == 0 and self._ends == 1:
            return None
        if self._kept < ended and self._ends == 0 and is_instant(self._rest >> 1):
            return None  # the older ones are pruned
        last = self._row["last_ended_for"]
        shown = iso(last) if is_instant(last) else repr(last)
        return f"its history does not hang together: of {self._kept} ended runs back from {shown} some are not reached"
