"""Engines that a clock of the database which was set back makes seem alive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

# So long at least an engine whose clock was set back is watched: six times what the living need for a sign of life.
SET_BACK_SECONDS: Final = 30.0


class ClockRegressionWatch:
    """Engines whose last heartbeat is ahead of the clock of the database, as one process has watched them.

    That clock was set back. A living engine sends a heartbeat every few seconds and renews its lease; one that has done
    neither for as long as this process has watched, and that was long, is dead.
    """

    def __init__(self) -> None:
        self._since: dict[str, dict[tuple[str, int, int], float]] = {}  # by lane

    def note(self, lane: str, ahead: Iterable[tuple[str, int, int]], now: float) -> None:
        """Note the engines that are ahead, each with its heartbeat and the end of its lease; one that is missing has
        moved.
        """
        before = self._since.get(lane, {})
        self._since[lane] = {one: before.get(one, now) for one in ahead}

    def dead(self, lane: str, now: float, patience: float) -> dict[str, int]:
        """Return the engines that have not moved for long, each with the end of its lease."""
        longest = max(patience, SET_BACK_SECONDS)
        return {one: ends for (one, _, ends), since in self._since.get(lane, {}).items() if now - since >= longest}
