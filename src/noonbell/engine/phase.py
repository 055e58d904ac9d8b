"""The current phase of an engine, shared by its parts."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.IntEnum):
    """The phases of an engine, in their order."""

    POLLING = 0
    STOPPING = 1  # nothing starts any more; runs in flight end and are recorded
    CANCELLING = 2  # runs in flight are cancelled, and an error is not a failure of their own
    ABANDONED = 3  # what still ends here was handed back, and counts for nothing


@dataclass
class Life:
    """The phase of an engine, and whether another engine has taken its name."""

    phase: Phase = Phase.POLLING
    stopping: bool = False  # in any phase but the first; read for every run
    lost: bool = False

    def enter(self, phase: Phase) -> None:
        """Enter a phase, unless a later one has begun."""
        self.phase = max(self.phase, phase)
        self.stopping = self.phase is not Phase.POLLING
